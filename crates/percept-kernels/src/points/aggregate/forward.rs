//! The aggregation, patch by patch.

use std::borrow::Cow;
use std::f32::consts::LOG2_E;
use std::ops::Range;

use super::encode::{Encoder, PATCH, Patch, padded_at};
use super::precise::{self, PreciseScores};
use super::shape::{AggregationShape, AggregationWeights, Join};
use super::tile::{PANEL, ROW_UNIT, accumulate, pack_panels, read_at};
use crate::aligned::SharedMut;
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::gemm::wide::Wide;
use crate::gemm::{PackedLinear, linear};
use crate::isa::Kernel;
use crate::math::exp2_up_to_0;
use crate::simd::channels::{Channels, Eights};
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Sixteen};
use crate::simd::{Floats, LANES, Simd};

/// Points that a thread takes at a time.
const BLOCK: usize = 64 * PATCH;

/// The weights of an aggregation, packed. Channels are padded to whole vectors, features before the encoding.
#[derive(Debug)]
pub struct PackedAggregation {
    pub(super) width: usize,
    pub(super) join: Join,
    pub(super) encoder: Encoder,
    /// From features to their part of the scores, where neighbours' features are joined.
    pub(super) feature_score: Option<PackedLinear>,
    /// From the encoding to its part of the scores.
    encoding_score: Vec<f32>,
    /// Both, where there are few channels.
    precise: Option<PreciseScores>,
}

impl PackedAggregation {
    /// Packs the weights of a shape. The number of points does not matter.
    pub fn pack(
        cpu: &Cpu,
        shape: &AggregationShape,
        weights: &AggregationWeights<'_, f32>,
    ) -> PackedAggregation {
        weights.check(shape.width);
        let encoder = Encoder::new(shape, weights.encode, weights.encode_again);
        let padded = encoder.padded;
        let score = ScoreWeights {
            shape,
            padded,
            weight: weights.score,
        };
        // The softmax's exponential is a power of 2.
        let encoding_score = pack_panels(padded, score.columns(), |input, column| {
            LOG2_E * score.at(column, padded + input)
        });
        let feature_score = (shape.join == Join::Neighbours).then(|| {
            let weight: Vec<f32> = (0..2 * padded * padded)
                .map(|at| LOG2_E * score.at(at / padded, at % padded))
                .collect();
            PackedLinear::pack(cpu, &weight, 2 * padded, padded)
        });
        let precise = (padded == precise::CHANNELS).then(|| {
            let has_features = feature_score.is_some();
            PreciseScores::new(score.columns(), has_features, |column, channel| {
                score.at(column, channel)
            })
        });
        PackedAggregation {
            width: shape.width,
            join: shape.join,
            encoder,
            feature_score,
            encoding_score,
            precise,
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let encoder = 9 * self.encoder.padded + self.encoder.padded * self.encoder.padded;
        let features = self.feature_score.as_ref().map_or(0, PackedLinear::bytes);
        let precise = self.precise.as_ref().map_or(0, PreciseScores::bytes);
        features + precise + (encoder + self.encoding_score.len()) * size_of::<f32>()
    }

    /// Channels that have scores. The point's own features have the same score for each neighbour, so they stay as they are.
    pub(super) fn score_columns(&self) -> usize {
        score_columns(self.join, self.encoder.padded)
    }

    /// What the features add to the scores, `[N, 2 padded]`; empty where they add nothing.
    pub(super) fn feature_scores(&self, cpu: &Cpu, features: &[f32]) -> Vec<f32> {
        let Some(weights) = &self.feature_score else {
            return Vec::new();
        };
        let mut scores = vec![0.0; features.len() * 2];
        linear(cpu, weights, features, Epilogue::default(), &mut scores);
        scores
    }

    /// Features with padded rows: themselves where rows are whole vectors.
    pub(super) fn padded_features<'a>(&self, features: &'a [f32]) -> Cow<'a, [f32]> {
        let (width, padded) = (self.width, self.encoder.padded);
        if width == padded {
            return features.into();
        }
        let mut rows = vec![0.0; features.len() / width * padded];
        for (to, from) in rows
            .chunks_exact_mut(padded)
            .zip(features.chunks_exact(width))
        {
            to[..width].copy_from_slice(from);
        }
        rows.into()
    }
}

fn score_columns(join: Join, padded: usize) -> usize {
    match join {
        Join::Neighbours => 2 * padded,
        Join::Own => padded,
    }
}

/// The score's weights with padded channels, features before the encoding.
pub(super) struct ScoreWeights<'a> {
    pub(super) shape: &'a AggregationShape,
    pub(super) padded: usize,
    /// `[2C, 2C]`
    pub(super) weight: &'a [f32],
}

impl ScoreWeights<'_> {
    pub(super) fn columns(&self) -> usize {
        score_columns(self.shape.join, self.padded)
    }

    /// Of the score in a column, by a joined channel.
    pub(super) fn at(&self, column: usize, channel: usize) -> f32 {
        let width = self.shape.width;
        let (features, encoding) = self.shape.join.starts(width);
        // Without scores for features, the first column is the encoding's.
        let column = column + 2 * self.padded - self.columns();
        let start = |channel: usize| {
            if channel < self.padded {
                features
            } else {
                encoding
            }
        };
        let (row, input) = (column % self.padded, channel % self.padded);
        if row >= width || input >= width {
            return 0.0;
        }
        padded_at(
            self.weight,
            2 * width,
            start(column) + row,
            start(channel) + input,
        )
    }
}

/// Encodes, scores and sums the neighbours of every point: y `[N, 2C]`. See the module's head.
pub fn aggregate(
    cpu: &Cpu,
    shape: &AggregationShape,
    weights: &PackedAggregation,
    points: &[[f32; 3]],
    neighbours: &[i32],
    features: &[f32],
    y: &mut [f32],
) {
    shape.check(points, neighbours, features);
    assert_eq!(
        (weights.width, weights.join),
        (shape.width, shape.join),
        "packed for another shape"
    );
    assert_eq!(weights.encoder.k, shape.k, "packed for other lists");
    assert_eq!(y.len(), shape.outputs(), "length of y");
    let features = weights.padded_features(features);
    let (precise, feature_scores) = match &weights.precise {
        Some(precise) => (precise.feature_scores(cpu, &features), Vec::new()),
        None => (Vec::new(), weights.feature_scores(cpu, &features)),
    };
    let cloud = Cloud {
        weights,
        points,
        neighbours,
        feature_scores: &feature_scores,
        features: &features,
    };
    let y = SharedMut::new(y);
    cpu.parallel(shape.points.div_ceil(BLOCK), &|block, scratch| {
        let block = block * BLOCK..shape.points.min((block + 1) * BLOCK);
        let outputs = 2 * shape.width;
        // SAFETY: blocks are disjoint.
        let y = unsafe { y.slice(block.start * outputs..block.end * outputs) };
        cpu.isa().run_widened(Block {
            cloud: &cloud,
            precise: &precise,
            block,
            scratch,
            y,
        });
    });
}

/// What all points share. Neighbours were checked; features have padded rows.
pub(super) struct Cloud<'a> {
    pub(super) weights: &'a PackedAggregation,
    pub(super) points: &'a [[f32; 3]],
    pub(super) neighbours: &'a [i32],
    pub(super) features: &'a [f32],
    pub(super) feature_scores: &'a [f32],
}

impl Cloud<'_> {
    /// Scores, times log2 e, of the channels from `first` on: a panel of them into y, whose rows are `stride` apart.
    #[inline(always)]
    pub(super) fn score_panel<S: Simd>(
        &self,
        s: S,
        patch: &Patch<'_>,
        first: usize,
        y: &mut [f32],
        stride: usize,
    ) {
        let columns = self.weights.score_columns();
        if let (true, Some(wide)) = (columns - first >= PANEL, s.wide()) {
            self.score_wide(s, wide, patch, first, y, stride);
        } else if columns - first >= PANEL {
            self.score_tiles::<S, 6, 2>(s, patch, first, y, stride);
        } else {
            self.score_tiles::<S, ROW_UNIT, 1>(s, patch, first, y, stride);
        }
    }

    /// The same for a whole panel, on vectors of 16 floats.
    #[inline(always)]
    fn score_wide<S: Simd>(
        &self,
        s: S,
        wide: Wide,
        patch: &Patch<'_>,
        first: usize,
        y: &mut [f32],
        stride: usize,
    ) {
        let depth = self.weights.encoder.padded;
        let columns = self.weights.score_columns();
        let panel = &self.weights.encoding_score[first * depth..][..PANEL * depth];
        assert!(y.len() >= (patch.padded_rows - 1) * stride + PANEL);
        for row in 0..patch.padded_rows {
            let y = &mut y[row * stride..][..PANEL];
            if self.feature_scores.is_empty() {
                y.fill(0.0);
                continue;
            }
            let from = &self.feature_scores[patch.neighbour(row) * columns + first..][..PANEL];
            for j in [0, LANES] {
                s.write(&mut y[j..], read_at(s, from, j));
            }
        }
        for row in (0..patch.padded_rows).step_by(ROW_UNIT) {
            let a = patch.encoding()[row * depth..][..ROW_UNIT * depth].as_ptr();
            // SAFETY: `ROW_UNIT` rows of both operands and of y were checked above.
            unsafe {
                let y = y.as_mut_ptr().add(row * stride);
                wide.multiply_rows(depth, (a, depth), panel.as_ptr(), None, 1.0, (y, stride));
            }
        }
    }

    #[inline(always)]
    fn score_tiles<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        s: S,
        patch: &Patch<'_>,
        first: usize,
        y: &mut [f32],
        stride: usize,
    ) {
        let depth = self.weights.encoder.padded;
        let columns = self.weights.score_columns();
        let panel = &self.weights.encoding_score[first * depth..];
        assert!(panel.len() >= VECTORS * LANES * depth);
        for row in (0..patch.padded_rows).step_by(ROWS) {
            let mut sums = [[s.splat(0.0); VECTORS]; ROWS];
            if !self.feature_scores.is_empty() {
                for i in 0..ROWS {
                    let from = patch.neighbour(row + i) * columns + first;
                    for j in 0..VECTORS {
                        // SAFETY: there is a row of scores for each neighbour, and neighbours were checked.
                        sums[i][j] =
                            unsafe { s.load(self.feature_scores.as_ptr().add(from + j * LANES)) };
                    }
                }
            }
            let a = patch.encoding()[row * depth..][..ROWS * depth].as_ptr();
            // SAFETY: both operands are as long as their slices above.
            let sums = unsafe {
                accumulate(
                    s,
                    sums,
                    (a, depth, 1),
                    (panel.as_ptr(), VECTORS * LANES),
                    depth,
                )
            };
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    s.write(
                        &mut y[(row + i) * stride + j * LANES..][..LANES],
                        sums[i][j],
                    );
                }
            }
        }
    }

    /// What is joined for a row of the patch, from channel `channel` (padded, features first, a multiple of 8) on.
    #[inline(always)]
    pub(super) fn joined<C: Channels>(
        &self,
        c: C,
        s: C::S,
        patch: &Patch<'_>,
        row: usize,
        channel: usize,
    ) -> C::V {
        let padded = self.weights.encoder.padded;
        debug_assert!(row < patch.rows && channel + C::EIGHTS * LANES <= 2 * padded);
        let mut eights = [s.splat(0.0); 2];
        for j in 0..C::EIGHTS {
            let channel = channel + j * LANES;
            // SAFETY: features have a row for each neighbour, which were checked, and the encoding one for each row of the
            // patch; rows are `padded` long.
            eights[j] = unsafe {
                s.load(match channel.checked_sub(padded) {
                    None => self
                        .features
                        .as_ptr()
                        .add(patch.neighbour(row) * padded + channel),
                    Some(channel) => patch.encoding().as_ptr().add(row * padded + channel),
                })
            };
        }
        c.join(eights)
    }

    /// Channels with scores start here.
    pub(super) fn first_channel(&self) -> usize {
        2 * self.weights.encoder.padded - self.weights.score_columns()
    }

    /// Where a padded channel stands in a row of the result, and how many of the 8 from there are real.
    #[inline(always)]
    pub(super) fn output_place(&self, channel: usize) -> (usize, usize) {
        let (width, padded) = (self.weights.width, self.weights.encoder.padded);
        let (features, encoding) = self.weights.join.starts(width);
        let (start, channel) = match channel < padded {
            true => (features, channel),
            false => (encoding, channel - padded),
        };
        (start + channel, LANES.min(width - channel))
    }
}

struct Block<'a> {
    cloud: &'a Cloud<'a>,
    /// The features' part of precise scores.
    precise: &'a [f64],
    block: Range<usize>,
    scratch: &'a mut Scratch,
    y: &'a mut [f32],
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block {
            cloud,
            precise,
            block,
            scratch,
            y,
        } = self;
        let encoder = &cloud.weights.encoder;
        let (k, width) = (encoder.k, cloud.weights.width);
        let rows = (PATCH * k).next_multiple_of(ROW_UNIT);
        let [memory, scores] = scratch.floats([encoder.scratch_len(), rows * PANEL]);
        for first in block.clone().step_by(PATCH) {
            let points = first..block.end.min(first + PATCH);
            let y = &mut y[(first - block.start) * 2 * width..][..points.len() * 2 * width];
            let mut patch = Patch::split(encoder, points, cloud.neighbours, memory);
            patch.encode(s, encoder, cloud.points);
            for panel in (0..cloud.weights.score_columns()).step_by(PANEL) {
                match &cloud.weights.precise {
                    Some(weights) => score_precisely(s, weights, &patch, precise, k, scores),
                    None => cloud.score_panel(s, &patch, panel, scores, PANEL),
                }
                let channel = cloud.first_channel() + panel;
                let pooling = Pooling {
                    cloud,
                    patch: &patch,
                    channel,
                    scores,
                };
                if cloud.weights.score_columns() - panel < PANEL {
                    pooling.pool(Eights::<S, 1>(s), s, y);
                    continue;
                }
                #[cfg(target_arch = "x86_64")]
                if let Some(wide) = s.wide() {
                    pooling.pool(Sixteen::new(wide), Avx2::of(wide), y);
                    continue;
                }
                pooling.pool(Eights::<S, 2>(s), s, y);
            }
            if cloud.weights.join == Join::Own {
                let (start, _) = cloud.weights.join.starts(width);
                let padded = encoder.padded;
                for (point, y) in patch.points.clone().zip(y.chunks_exact_mut(2 * width)) {
                    y[start..start + width]
                        .copy_from_slice(&cloud.features[point * padded..][..width]);
                }
            }
        }
    }
}

/// Scores of all channels, which are few, in f64; less the largest ones, times log2 e.
#[inline(always)]
fn score_precisely<S: Simd>(
    s: S,
    weights: &PreciseScores,
    patch: &Patch<'_>,
    feature_scores: &[f64],
    k: usize,
    scores: &mut [f32],
) {
    let encoding = &patch.encoding()[..patch.rows * precise::CHANNELS];
    let lists = patch
        .lists()
        .chunks_exact(k)
        .zip(encoding.chunks_exact(k * precise::CHANNELS))
        .zip(scores.chunks_exact_mut(k * PANEL));
    for ((neighbours, encoding), scores) in lists {
        weights.exponents(s, neighbours, feature_scores, encoding, scores);
    }
}

/// The sums of points' rows by the softmax of their scores.
struct Pooling<'a> {
    cloud: &'a Cloud<'a>,
    patch: &'a Patch<'a>,
    /// The first of the channels.
    channel: usize,
    /// Of each row, [`PANEL`] of them.
    scores: &'a [f32],
}

impl Pooling<'_> {
    /// Fills some channels of the points' rows of the result.
    #[inline(always)]
    fn pool<C: Channels>(&self, c: C, s: C::S, y: &mut [f32]) {
        let Pooling {
            cloud,
            patch,
            channel,
            ..
        } = *self;
        let k = cloud.weights.encoder.k;
        let lists = self.scores.chunks_exact(k * PANEL);
        for ((turn, scores), y) in lists
            .enumerate()
            .zip(y.chunks_exact_mut(2 * cloud.weights.width))
        {
            let mut most = c.splat(f32::NEG_INFINITY);
            for row in scores.chunks_exact(PANEL) {
                most = c.max(most, c.read(row));
            }
            let (mut total, mut sum) = (c.splat(0.0), c.splat(0.0));
            for (row, scores) in scores.chunks_exact(PANEL).enumerate() {
                let weight = exp2_up_to_0(c, c.sub(c.read(scores), most));
                let joined = cloud.joined(c, s, patch, turn * k + row, channel);
                total = c.add(total, weight);
                sum = c.mul_add(weight, joined, sum);
            }
            let eights = c.eights(c.div(sum, total));
            for j in 0..C::EIGHTS {
                let (place, len) = cloud.output_place(channel + j * LANES);
                s.write(&mut y[place..place + len], eights[j]);
            }
        }
    }
}
