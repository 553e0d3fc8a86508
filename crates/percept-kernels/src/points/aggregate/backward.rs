//! The gradient of the aggregation: patches are encoded and scored again, and nothing is kept from the forward pass.
//!
//! With a = softmax(scores) and dy the gradient of the sum: dx = a dy, and dscore = a dy (x - y). The scores' linear map
//! then gives dx its second part. For features that part is linear in the sum of dscore over all who name a neighbour, so
//! dscore is scattered (2C wide) and multiplied once for each point instead of once for each neighbour.

use std::ops::Range;

use super::encode::{Encoder, PATCH, Patch, padded_at};
use super::forward::{Cloud, PackedAggregation, ScoreWeights};
use super::scatter::{Chunks, ScatterPlan};
use super::shape::{AggregationGradient, AggregationShape, AggregationWeights, GEOMETRY, Join};
use super::tile::{PANEL, ROW_UNIT, RowProduct, WeightProduct, pack_panels, read_at};
use crate::aligned::SharedMut;
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::gemm::{MatmulShape, PackedLinear, linear, matmul};
use crate::isa::Kernel;
use crate::math::exp2_up_to_0;
use crate::simd::channels::{Channels, Eights};
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Sixteen};
use crate::simd::{Floats, LANES, Simd};

/// dfeatures `[N, C]` and the gradients of the weights, from dy `[N, 2C]`. The rest is as for the forward pass.
pub fn aggregate_gradient(
    cpu: &Cpu,
    shape: &AggregationShape,
    weights: &AggregationWeights<'_, f32>,
    points: &[[f32; 3]],
    neighbours: &[i32],
    features: &[f32],
    dy: &[f32],
    dfeatures: &mut [f32],
) -> AggregationGradient<f32> {
    shape.check(points, neighbours, features);
    assert_eq!(dy.len(), shape.outputs(), "length of dy");
    assert_eq!(dfeatures.len(), features.len(), "length of dfeatures");
    let width = shape.width;
    let mut gradient = AggregationGradient::zeros(width, weights.encode_again.is_some());
    if shape.points == 0 {
        return gradient;
    }
    let packed = PackedAggregation::pack(cpu, shape, weights);
    let features = packed.padded_features(features);
    let cloud = Cloud {
        weights: &packed,
        points,
        neighbours,
        feature_scores: &packed.feature_scores(cpu, &features),
        features: &features,
    };
    let backward = BackwardWeights::new(shape, weights, packed.encoder.padded);
    let chunks = Chunks::new(shape.points);
    let sums = WeightSums::new(&packed, weights.encode_again.is_some());
    let plan = (shape.join == Join::Neighbours)
        .then(|| ScatterPlan::new(cpu, chunks, shape.k, neighbours));
    let slot = 3 * packed.encoder.padded;
    let mut slots = vec![0.0; plan.as_ref().map_or(0, ScatterPlan::len) * slot];
    let mut all_sums = vec![0.0; chunks.count() * sums.len];
    let (shared_slots, shared_sums) = (SharedMut::new(&mut slots), SharedMut::new(&mut all_sums));
    cpu.parallel(chunks.count(), &|chunk, scratch| {
        let of_chunk = plan.as_ref().map_or(0..0, |plan| plan.of_chunk(chunk));
        // SAFETY: each chunk has its own slots and sums.
        let (slots, part) = unsafe {
            (
                shared_slots.slice(of_chunk.start * slot..of_chunk.end * slot),
                shared_sums.slice(chunk * sums.len..(chunk + 1) * sums.len),
            )
        };
        cpu.isa().run_widened(Chunk {
            cloud: &cloud,
            backward: &backward,
            points: chunks.range(chunk),
            dy,
            plan: plan.as_ref(),
            slots,
            sums: sums.split(part),
            scratch,
        });
    });
    let mut total = vec![0.0; sums.len];
    for part in all_sums.chunks_exact(sums.len) {
        for (total, &value) in total.iter_mut().zip(part) {
            *total += value;
        }
    }
    sums.split(&mut total)
        .unpad(shape, packed.encoder.padded, &mut gradient);
    match &plan {
        Some(plan) => feature_gradient(
            cpu,
            shape,
            &cloud,
            weights,
            plan,
            &slots,
            dfeatures,
            &mut gradient,
        ),
        // A point's own features are passed on as they are.
        None => {
            let (start, _) = shape.join.starts(width);
            for (d, dy) in dfeatures
                .chunks_exact_mut(width)
                .zip(dy.chunks_exact(2 * width))
            {
                d.copy_from_slice(&dy[start..start + width]);
            }
        }
    }
    gradient
}

/// What slots hold, summed, gives the gradient of the features and of their part of the scores' weights.
fn feature_gradient(
    cpu: &Cpu,
    shape: &AggregationShape,
    cloud: &Cloud<'_>,
    weights: &AggregationWeights<'_, f32>,
    plan: &ScatterPlan,
    slots: &[f32],
    dfeatures: &mut [f32],
    gradient: &mut AggregationGradient<f32>,
) {
    let (width, padded) = (shape.width, cloud.weights.encoder.padded);
    let mut dscores = vec![0.0; shape.points * 2 * padded];
    plan.sum_rows(cpu, 3 * padded, padded..3 * padded, slots, &mut dscores);
    plan.sum_rows(cpu, 3 * padded, 0..width, slots, dfeatures);
    let score = ScoreWeights {
        shape,
        padded,
        weight: weights.score,
    };
    let turned: Vec<f32> = (0..width * 2 * padded)
        .map(|at| score.at(at % (2 * padded), at / (2 * padded)))
        .collect();
    let turned = PackedLinear::pack(cpu, &turned, width, 2 * padded);
    let epilogue = Epilogue {
        residual_in_place: true,
        ..Epilogue::default()
    };
    linear(cpu, &turned, &dscores, epilogue, dfeatures);
    let product = MatmulShape {
        batch: 1,
        m: 2 * padded,
        k: shape.points,
        n: padded,
        transpose_a: true,
        transpose_b: false,
    };
    let mut dweight = vec![0.0; 2 * padded * padded];
    matmul(cpu, &product, &dscores, cloud.features, &mut dweight);
    for (row, dweight) in dweight.chunks_exact(padded).enumerate() {
        if row % padded < width {
            let row = row / padded * width + row % padded;
            gradient.score[row * 2 * width..][..width].copy_from_slice(&dweight[..width]);
        }
    }
}

/// Packed weights that only the gradient needs.
struct BackwardWeights {
    /// From the gradient of the scores to that of the encoding.
    score: Vec<f32>,
    /// From the second encoding to the first.
    again: Option<Vec<f32>>,
}

impl BackwardWeights {
    fn new(
        shape: &AggregationShape,
        weights: &AggregationWeights<'_, f32>,
        padded: usize,
    ) -> BackwardWeights {
        let score = ScoreWeights {
            shape,
            padded,
            weight: weights.score,
        };
        BackwardWeights {
            score: pack_panels(score.columns(), padded, |column, input| {
                score.at(column, padded + input)
            }),
            again: weights.encode_again.map(|(weight, _)| {
                pack_panels(padded, padded, |output, input| {
                    padded_at(weight, shape.width, output, input)
                })
            }),
        }
    }
}

/// Sums for each channel that the first encoding's gradient is made of: of the distance, p - n, p, and the bias.
pub(super) const GEOMETRY_SUMS: usize = 8;

/// Where the sums of a chunk's weights lie, padded.
struct WeightSums {
    score: usize,
    again: usize,
    padded: usize,
    len: usize,
}

/// The sums of a chunk.
struct Sums<'a> {
    /// `[score columns][padded]`
    score: &'a mut [f32],
    /// `[padded][padded]` and `[padded]`, or empty.
    again: &'a mut [f32],
    again_bias: &'a mut [f32],
    /// Of [`geometry_sums`].
    encode: &'a mut [f32],
}

impl WeightSums {
    fn new(packed: &PackedAggregation, again: bool) -> WeightSums {
        let padded = packed.encoder.padded;
        let score = packed.score_columns() * padded;
        let again = if again { padded * padded } else { 0 };
        WeightSums {
            score,
            again,
            padded,
            len: score + again + (1 + GEOMETRY_SUMS) * padded,
        }
    }

    fn split<'a>(&self, part: &'a mut [f32]) -> Sums<'a> {
        let (score, rest) = part.split_at_mut(self.score);
        let (again, rest) = rest.split_at_mut(self.again);
        let (again_bias, encode) = rest.split_at_mut(self.padded);
        Sums {
            score,
            again,
            again_bias,
            encode,
        }
    }
}

impl Sums<'_> {
    /// Copies what is not padding to its place. The features' part of the scores comes from elsewhere.
    fn unpad(
        &self,
        shape: &AggregationShape,
        padded: usize,
        gradient: &mut AggregationGradient<f32>,
    ) {
        let width = shape.width;
        let (features_at, encoding_at) = shape.join.starts(width);
        let first = 2 * padded - self.score.len() / padded;
        for (column, sums) in self.score.chunks_exact(padded).enumerate() {
            let (half, row) = ((first + column) / padded, column % padded);
            if row < width {
                let row = [features_at, encoding_at][half] + row;
                let to = row * 2 * width + encoding_at;
                gradient.score[to..to + width].copy_from_slice(&sums[..width]);
            }
        }
        if let Some((weight, bias)) = &mut gradient.encode_again {
            for (weight, sums) in weight
                .chunks_exact_mut(width)
                .zip(self.again.chunks_exact(padded))
            {
                weight.copy_from_slice(&sums[..width]);
            }
            bias.copy_from_slice(&self.again_bias[..width]);
        }
        unpad_geometry_sums(shape, self.encode, &mut gradient.encode);
    }
}

/// From [`geometry_sums`] to the gradient of the first encoding's weights and bias.
pub(super) fn unpad_geometry_sums(
    shape: &AggregationShape,
    sums: &[f32],
    (weight, bias): &mut (Vec<f32>, Vec<f32>),
) {
    let padded = sums.len() / GEOMETRY_SUMS;
    for channel in 0..shape.width {
        let sum = |number: usize| sums[number * padded + channel];
        let mut set = |number: usize, value: f32| {
            weight[channel * GEOMETRY + shape.join.geometry_column(number)] = value;
        };
        set(0, sum(0));
        for axis in 0..3 {
            let (away, point) = (sum(1 + axis), sum(4 + axis));
            set(1 + axis, away);
            set(4 + axis, point);
            // n = p - (p - n)
            set(7 + axis, point - away);
        }
        bias[channel] = sum(7);
    }
}

/// The gradient of a chunk of points.
struct Chunk<'a> {
    cloud: &'a Cloud<'a>,
    backward: &'a BackwardWeights,
    points: Range<usize>,
    dy: &'a [f32],
    plan: Option<&'a ScatterPlan>,
    slots: &'a mut [f32],
    sums: Sums<'a>,
    scratch: &'a mut Scratch,
}

impl Kernel for Chunk<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let cloud = self.cloud;
        let encoder = &cloud.weights.encoder;
        let (k, padded, columns) = (encoder.k, encoder.padded, cloud.weights.score_columns());
        let rows = (PATCH * k).next_multiple_of(ROW_UNIT);
        let [memory, scores, dencoding, donce] = self.scratch.floats([
            encoder.scratch_len(),
            rows * columns,
            rows * padded,
            rows * padded,
        ]);
        for first in self.points.clone().step_by(PATCH) {
            let points = first..self.points.end.min(first + PATCH);
            let listed = points.start * k..points.end * k;
            let mut patch = Patch::split(encoder, points, cloud.neighbours, memory);
            patch.encode(s, encoder, cloud.points);
            let patch_rows = patch.padded_rows;
            let scores = &mut scores[..patch_rows * columns];
            let dencoding = &mut dencoding[..patch_rows * padded];
            dencoding[patch.rows * padded..].fill(0.0);
            for panel in (0..columns).step_by(PANEL) {
                cloud.score_panel(s, &patch, panel, &mut scores[panel..], columns);
            }
            scores[patch.rows * columns..].fill(0.0);
            let slots = self.plan.map_or(&[][..], |plan| plan.slots(listed));
            let mut unpooling = Unpooling {
                cloud,
                patch: &patch,
                dy: self.dy,
                scores,
                dencoding,
                patch_slots: slots,
                slots: self.slots,
            };
            for column in (0..columns).step_by(PANEL) {
                if columns - column < PANEL {
                    unpooling.unpool(Eights::<S, 1>(s), s, column);
                    continue;
                }
                #[cfg(target_arch = "x86_64")]
                if let Some(wide) = s.wide() {
                    unpooling.unpool(Sixteen::new(wide), Avx2::of(wide), column);
                    continue;
                }
                unpooling.unpool(Eights::<S, 2>(s), s, column);
            }
            for (row, &slot) in slots.iter().enumerate() {
                let slot = &mut self.slots[(slot as usize * 3 + 1) * padded..][..columns];
                let scores = &scores[row * columns..][..columns];
                for column in (0..columns).step_by(LANES) {
                    let sum = s.add(read_at(s, slot, column), read_at(s, scores, column));
                    s.write(&mut slot[column..], sum);
                }
            }
            s.call(WeightProduct {
                a: scores,
                outputs: columns,
                b: patch.encoding(),
                inputs: padded,
                rows: patch.rows,
                y: self.sums.score,
            });
            s.call(RowProduct {
                a: scores,
                depth: columns,
                panels: &self.backward.score,
                columns: padded,
                bias: None,
                slope: 1.0,
                y: dencoding,
            });
            let slope = s.splat(encoder.slope);
            if let Some(again) = &self.backward.again {
                through_leaky(s, slope, patch.twice, dencoding);
                add_rows(
                    s,
                    padded,
                    &dencoding[..patch.rows * padded],
                    self.sums.again_bias,
                );
                s.call(WeightProduct {
                    a: dencoding,
                    outputs: padded,
                    b: patch.once,
                    inputs: padded,
                    rows: patch.rows,
                    y: self.sums.again,
                });
                let donce = &mut donce[..patch_rows * padded];
                donce.fill(0.0);
                s.call(RowProduct {
                    a: dencoding,
                    depth: padded,
                    panels: again,
                    columns: padded,
                    bias: None,
                    slope: 1.0,
                    y: donce,
                });
                through_leaky(s, slope, patch.once, donce);
                geometry_sums(s, encoder, cloud.points, &patch, donce, self.sums.encode);
            } else {
                through_leaky(s, slope, patch.once, dencoding);
                geometry_sums(
                    s,
                    encoder,
                    cloud.points,
                    &patch,
                    dencoding,
                    self.sums.encode,
                );
            }
        }
    }
}

/// From dy to the gradient of the scores and of what was joined.
struct Unpooling<'a> {
    cloud: &'a Cloud<'a>,
    patch: &'a Patch<'a>,
    dy: &'a [f32],
    /// Their gradient comes in their place.
    scores: &'a mut [f32],
    dencoding: &'a mut [f32],
    /// The slot of each row, which its features' gradient is added to.
    patch_slots: &'a [u32],
    slots: &'a mut [f32],
}

impl Unpooling<'_> {
    /// Does so for some channels.
    #[inline(always)]
    fn unpool<C: Channels>(&mut self, c: C, s: C::S, column: usize) {
        let (cloud, patch) = (self.cloud, self.patch);
        let encoder = &cloud.weights.encoder;
        let (k, padded, columns) = (encoder.k, encoder.padded, cloud.weights.score_columns());
        let channel = cloud.first_channel() + column;
        for (turn, point) in patch.points.clone().enumerate() {
            let rows = turn * k..(turn + 1) * k;
            let mut dy = [s.splat(0.0); 2];
            for j in 0..C::EIGHTS {
                let (place, len) = cloud.output_place(channel + j * LANES);
                dy[j] = s.read(&self.dy[point * 2 * cloud.weights.width + place..][..len]);
            }
            let dy = c.join(dy);
            let scores = &mut self.scores[rows.start * columns..rows.end * columns];
            let mut most = c.read(&scores[column..]);
            for scores in scores.chunks_exact(columns).skip(1) {
                most = c.max(most, c.read(&scores[column..]));
            }
            let (mut total, mut sum) = (c.splat(0.0), c.splat(0.0));
            for (row, scores) in rows.clone().zip(scores.chunks_exact_mut(columns)) {
                let weight = exp2_up_to_0(c, c.sub(c.read(&scores[column..]), most));
                c.write(&mut scores[column..], weight);
                total = c.add(total, weight);
                sum = c.mul_add(weight, cloud.joined(c, s, patch, row, channel), sum);
            }
            let share = c.div(c.splat(1.0), total);
            let (pooled, share) = (c.mul(sum, share), c.mul(share, dy));
            for (row, scores) in rows.zip(scores.chunks_exact_mut(columns)) {
                let direct = c.mul(c.read(&scores[column..]), share);
                let away = c.sub(cloud.joined(c, s, patch, row, channel), pooled);
                c.write(&mut scores[column..], c.mul(direct, away));
                let eights = c.eights(direct);
                for j in 0..C::EIGHTS {
                    let channel = channel + j * LANES;
                    if channel < padded {
                        let slot = self.patch_slots[row] as usize * 3 * padded + channel;
                        let slot = &mut self.slots[slot..][..LANES];
                        s.write(slot, s.add(s.read(slot), eights[j]));
                    } else {
                        let at = row * padded + channel - padded;
                        s.write(&mut self.dencoding[at..][..LANES], eights[j]);
                    }
                }
            }
        }
    }
}

/// The gradient before a leaky ReLU, from its output and the gradient behind it.
#[inline(always)]
pub(super) fn through_leaky<S: Simd>(s: S, slope: S::V, output: &[f32], d: &mut [f32]) {
    let zero = s.splat(0.0);
    for (output, d) in output.chunks_exact(LANES).zip(d.chunks_exact_mut(LANES)) {
        let value = s.read(d);
        let positive = s.less(zero, s.read(output));
        s.write(d, s.select(positive, value, s.mul(slope, value)));
    }
}

/// Adds up rows of whole vectors.
#[inline(always)]
fn add_rows<S: Simd>(s: S, width: usize, rows: &[f32], sums: &mut [f32]) {
    for channel in (0..width).step_by(LANES) {
        let mut sum = read_at(s, sums, channel);
        for row in rows.chunks_exact(width) {
            sum = s.add(sum, read_at(s, row, channel));
        }
        s.write(&mut sums[channel..], sum);
    }
}

/// What the first encoding's weights get from a patch: of distance and p - n for each row, of p and the bias for each point.
#[inline(always)]
pub(super) fn geometry_sums<S: Simd>(
    s: S,
    encoder: &Encoder,
    points: &[[f32; 3]],
    patch: &Patch<'_>,
    d: &[f32],
    sums: &mut [f32],
) {
    let (k, padded) = (encoder.k, encoder.padded);
    for channel in (0..padded).step_by(LANES) {
        let mut all = [s.splat(0.0); GEOMETRY_SUMS];
        for number in 0..GEOMETRY_SUMS {
            all[number] = read_at(s, sums, number * padded + channel);
        }
        for (turn, point) in patch.points.clone().enumerate() {
            let mut of_point = s.splat(0.0);
            for row in turn * k..(turn + 1) * k {
                let d = read_at(s, d, row * padded + channel);
                of_point = s.add(of_point, d);
                for number in 0..4 {
                    let geometry = s.splat(patch.geometry[number * patch.stride() + row]);
                    all[number] = s.mul_add(geometry, d, all[number]);
                }
            }
            for axis in 0..3 {
                let p = s.splat(points[point][axis]);
                all[4 + axis] = s.mul_add(p, of_point, all[4 + axis]);
            }
            all[7] = s.add(all[7], of_point);
        }
        for number in 0..GEOMETRY_SUMS {
            s.write(&mut sums[number * padded + channel..], all[number]);
        }
    }
}
