//! Moments of what is encoded, over all neighbours of all points: what training needs to normalise encodings.
//!
//! With m the mean and C the covariance of a layer's inputs, its outputs W x + b have the mean W m + b and the variances
//! diag(W C Wᵀ). So the statistics of N · K rows need no second pass, and no rows.

use std::ops::Range;

use super::backward::{GEOMETRY_SUMS, geometry_sums, through_leaky, unpad_geometry_sums};
use super::encode::{Encoder, PATCH, Patch};
use super::scatter::Chunks;
use super::shape::{AggregationShape, GEOMETRY};
use super::tile::{RowProduct, WeightProduct, pack_panels, read_at};
use crate::aligned::SharedMut;
use crate::cpu::{Cpu, Scratch};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Sums over rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// Rows, N · K.
    pub rows: usize,
    /// Of each number of a row, `[width]`.
    pub sums: Vec<f64>,
    /// Of the products of each two, `[width, width]`.
    pub products: Vec<f64>,
}

impl Moments {
    fn zeros(rows: usize, width: usize) -> Moments {
        Moments {
            rows,
            sums: vec![0.0; width],
            products: vec![0.0; width * width],
        }
    }
}

/// Moments of the geometry of all neighbours (10 numbers, in the order of the shape's `join`). Features do not matter.
pub fn geometry_moments(
    cpu: &Cpu,
    shape: &AggregationShape,
    points: &[[f32; 3]],
    neighbours: &[i32],
) -> Moments {
    shape.check_lists(points, neighbours);
    let chunks = Chunks::new(shape.points);
    let mut parts = vec![[0.0; FREE + FREE * FREE]; chunks.count()];
    let shared = SharedMut::new(&mut parts);
    cpu.parallel(chunks.count(), &|chunk, _| {
        // SAFETY: each chunk has its own part.
        let part = &mut unsafe { shared.slice(chunk..chunk + 1) }[0];
        for point in chunks.range(chunk) {
            let lists = neighbours[point * shape.k..].iter().take(shape.k);
            add_point(
                points[point],
                lists.map(|&n| points[n as usize]),
                shape.k,
                part,
            );
        }
    });
    let mut free = [0.0; FREE + FREE * FREE];
    for part in &parts {
        for (sum, value) in free.iter_mut().zip(part) {
            *sum += value;
        }
    }
    // The ten numbers are sums of the seven: n = p - (p - n).
    let made_of = |number: usize| match number {
        0..7 => [(number, 1.0), (0, 0.0)],
        _ => [(number - 3, 1.0), (number - 6, -1.0)],
    };
    let mut moments = Moments::zeros(shape.points * shape.k, GEOMETRY);
    for a in 0..GEOMETRY {
        let row = shape.join.geometry_column(a);
        moments.sums[row] = made_of(a).iter().map(|&(at, times)| times * free[at]).sum();
        for b in 0..GEOMETRY {
            let column = shape.join.geometry_column(b);
            let pairs = made_of(a)
                .into_iter()
                .flat_map(|a| made_of(b).map(|b| (a, b)));
            moments.products[row * GEOMETRY + column] = pairs
                .map(|((a, times_a), (b, times_b))| {
                    times_a * times_b * free[FREE + a.min(b) * FREE + a.max(b)]
                })
                .sum();
        }
    }
    moments
}

/// Numbers of the geometry that are free: distance, p - n and p.
const FREE: usize = 7;

/// Adds sums and products (each pair once) of the free numbers of a point's neighbours.
fn add_point(
    p: [f32; 3],
    neighbours: impl Iterator<Item = [f32; 3]>,
    k: usize,
    part: &mut [f64; FREE + FREE * FREE],
) {
    let mut sums = [0.0; 4];
    for n in neighbours {
        let away: [f64; 3] = std::array::from_fn(|axis| f64::from(p[axis] - n[axis]));
        let distance = (away[0] * away[0] + away[1] * away[1] + away[2] * away[2]).sqrt();
        let row = [distance, away[0], away[1], away[2]];
        for a in 0..4 {
            sums[a] += row[a];
            for b in a..4 {
                part[FREE + a * FREE + b] += row[a] * row[b];
            }
        }
    }
    let (p, k) = (p.map(f64::from), k as f64);
    for a in 0..4 {
        part[a] += sums[a];
        for axis in 0..3 {
            part[FREE + a * FREE + 4 + axis] += sums[a] * p[axis];
        }
    }
    for axis in 0..3 {
        part[4 + axis] += k * p[axis];
        for other in axis..3 {
            part[FREE + (4 + axis) * FREE + 4 + other] += k * p[axis] * p[other];
        }
    }
}

/// Patches whose products are summed in f32 before they are added in f64.
const PATCHES: usize = 16;

/// Moments of the first encoding `[N · K, C]`, by its weights `[C, 10]` and bias `[C]`.
pub fn encoding_moments(
    cpu: &Cpu,
    shape: &AggregationShape,
    encode: (&[f32], &[f32]),
    points: &[[f32; 3]],
    neighbours: &[i32],
) -> Moments {
    shape.check_lists(points, neighbours);
    shape.check_encode(encode);
    let encoder = Encoder::new(shape, encode, None);
    let (width, padded) = (shape.width, encoder.padded);
    let chunks = Chunks::new(shape.points);
    let len = padded + padded * padded;
    let mut parts = vec![0.0f64; chunks.count() * len];
    let shared = SharedMut::new(&mut parts);
    cpu.parallel(chunks.count(), &|chunk, scratch| {
        // SAFETY: each chunk has its own part.
        let part = unsafe { shared.slice(chunk * len..(chunk + 1) * len) };
        cpu.isa().run_widened(ChunkMoments {
            encoder: &encoder,
            points,
            neighbours,
            chunk: chunks.range(chunk),
            scratch,
            part,
        });
    });
    let mut moments = Moments::zeros(shape.points * shape.k, width);
    for part in parts.chunks_exact(len) {
        let (sums, products) = part.split_at(padded);
        add(&mut moments.sums, sums);
        let rows = moments.products.chunks_exact_mut(width);
        rows.zip(products.chunks_exact(padded))
            .for_each(|(sum, part)| add(sum, part));
    }
    moments
}

fn add<T: Copy + Into<f64>>(sums: &mut [f64], part: &[T]) {
    for (sum, &value) in sums.iter_mut().zip(part) {
        *sum += value.into();
    }
}

struct ChunkMoments<'a> {
    encoder: &'a Encoder,
    points: &'a [[f32; 3]],
    neighbours: &'a [i32],
    chunk: Range<usize>,
    scratch: &'a mut Scratch,
    /// `[padded]` and `[padded][padded]`
    part: &'a mut [f64],
}

impl Kernel for ChunkMoments<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (encoder, padded) = (self.encoder, self.encoder.padded);
        let [memory, sums, products] =
            self.scratch
                .floats([encoder.scratch_len(), padded, padded * padded]);
        let (all_sums, all_products) = self.part.split_at_mut(padded);
        for first in self.chunk.clone().step_by(PATCHES * PATCH) {
            sums.fill(0.0);
            products.fill(0.0);
            let end = self.chunk.end.min(first + PATCHES * PATCH);
            for first in (first..end).step_by(PATCH) {
                let points = first..end.min(first + PATCH);
                let mut patch = Patch::split(encoder, points, self.neighbours, memory);
                patch.encode(s, encoder, self.points);
                for row in patch.once[..patch.rows * padded].chunks_exact(padded) {
                    for channel in (0..padded).step_by(LANES) {
                        let sum = s.add(read_at(s, sums, channel), read_at(s, row, channel));
                        s.write(&mut sums[channel..], sum);
                    }
                }
                s.call(WeightProduct {
                    a: patch.once,
                    outputs: padded,
                    b: patch.once,
                    inputs: padded,
                    rows: patch.rows,
                    y: products,
                });
            }
            add(all_sums, sums);
            add(all_products, products);
        }
    }
}

/// The gradient of the encoding's weights `[C, 10]` and bias `[C]`, from that of the moments' sums and products.
pub fn encoding_moments_gradient(
    cpu: &Cpu,
    shape: &AggregationShape,
    encode: (&[f32], &[f32]),
    points: &[[f32; 3]],
    neighbours: &[i32],
    dsums: &[f64],
    dproducts: &[f64],
) -> (Vec<f32>, Vec<f32>) {
    shape.check_lists(points, neighbours);
    shape.check_encode(encode);
    let width = shape.width;
    assert_eq!(dsums.len(), width, "length of the sums' gradient");
    assert_eq!(
        dproducts.len(),
        width * width,
        "length of the products' gradient"
    );
    let encoder = Encoder::new(shape, encode, None);
    let padded = encoder.padded;
    // d of x xᵀ by x, on both sides.
    let both = |a: usize, b: usize| (dproducts[a * width + b] + dproducts[b * width + a]) as f32;
    let panels = pack_panels(padded, padded, |a, b| {
        if a < width && b < width {
            both(a, b)
        } else {
            0.0
        }
    });
    let mut start: Vec<f32> = dsums.iter().map(|&d| d as f32).collect();
    start.resize(padded, 0.0);
    let chunks = Chunks::new(shape.points);
    let len = GEOMETRY_SUMS * padded;
    let mut parts = vec![0.0f32; chunks.count() * len];
    let shared = SharedMut::new(&mut parts);
    cpu.parallel(chunks.count(), &|chunk, scratch| {
        // SAFETY: each chunk has its own part.
        let sums = unsafe { shared.slice(chunk * len..(chunk + 1) * len) };
        cpu.isa().run_widened(ChunkGradient {
            encoder: &encoder,
            panels: &panels,
            start: &start,
            points,
            neighbours,
            chunk: chunks.range(chunk),
            scratch,
            sums,
        });
    });
    let mut total = vec![0.0; len];
    for part in parts.chunks_exact(len) {
        for (total, &value) in total.iter_mut().zip(part) {
            *total += value;
        }
    }
    let mut gradient = (vec![0.0; width * GEOMETRY], vec![0.0; width]);
    unpad_geometry_sums(shape, &total, &mut gradient);
    gradient
}

struct ChunkGradient<'a> {
    encoder: &'a Encoder,
    panels: &'a [f32],
    start: &'a [f32],
    points: &'a [[f32; 3]],
    neighbours: &'a [i32],
    chunk: Range<usize>,
    scratch: &'a mut Scratch,
    sums: &'a mut [f32],
}

impl Kernel for ChunkGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (encoder, padded) = (self.encoder, self.encoder.padded);
        let len = encoder.scratch_len();
        let [memory, d] = self.scratch.floats([len, len]);
        for first in self.chunk.clone().step_by(PATCH) {
            let points = first..self.chunk.end.min(first + PATCH);
            let mut patch = Patch::split(encoder, points, self.neighbours, memory);
            patch.encode(s, encoder, self.points);
            let d = &mut d[..patch.padded_rows * padded];
            s.call(RowProduct {
                a: patch.once,
                depth: padded,
                panels: self.panels,
                columns: padded,
                bias: Some(self.start),
                slope: 1.0,
                y: d,
            });
            through_leaky(s, s.splat(encoder.slope), patch.once, d);
            geometry_sums(s, encoder, self.points, &patch, d, self.sums);
        }
    }
}
