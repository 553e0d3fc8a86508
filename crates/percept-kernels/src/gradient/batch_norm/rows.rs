//! Batch normalisation of rows [batch, channels] in training: channels lie side by side, so they fill the vectors.

use super::{BatchNormAgain, BatchNormGradient, BatchNormTraining};
use crate::activation::Activation;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::kept::Kept;
use crate::norm::ChannelShape;
use crate::reduce::{ReduceOp, reduce};
use crate::rows::for_each_block;
use crate::simd::{LANES, Simd};

/// y = (x - mean) / sqrt(variance + eps) · gamma + beta with the statistics of each column.
pub(super) fn training(
    cpu: &Cpu,
    shape: &ChannelShape,
    norm: &mut BatchNormTraining<'_>,
    x: &[f32],
    y: &mut [f32],
) {
    let dims = [shape.batch, shape.channels];
    reduce(cpu, ReduceOp::Mean, &dims, &[0], x, norm.mean);
    let variance = ReduceOp::Variance { correction: 0 };
    reduce(cpu, variance, &dims, &[0], x, norm.variance);
    norm.move_running(shape.batch);
    again(cpu, shape, norm.again(), x, y);
}

/// The same by statistics that are known.
pub(super) fn again<K: Kept>(
    cpu: &Cpu,
    shape: &ChannelShape,
    norm: BatchNormAgain<'_>,
    x: &[K],
    y: &mut [f32],
) {
    let (channels, rectified) = (shape.channels, norm.rectified);
    let (scale, shift) = affine(norm.gamma, norm.beta, norm.mean, norm.variance, norm.eps);
    for_each_block(cpu, shape.batch, channels, channels, y, |rows, y| {
        let x = &x[rows.start * channels..rows.end * channels];
        cpu.isa().run(Line {
            scale: &scale,
            shift: &shift,
            rectified,
            x,
            y,
        });
    });
}

/// The norm as y = x · scale + shift, column by column.
pub(super) fn affine(
    gamma: &[f32],
    beta: &[f32],
    mean: &[f32],
    variance: &[f32],
    eps: f32,
) -> (Vec<f32>, Vec<f32>) {
    let wide = |values: &[f32], c: usize| f64::from(values[c]);
    (0..gamma.len())
        .map(|c| {
            let scale = wide(gamma, c) / (wide(variance, c) + f64::from(eps)).sqrt();
            let shift = wide(beta, c) - wide(mean, c) * scale;
            (scale as f32, shift as f32)
        })
        .unzip()
}

/// y = x · scale + shift, and a ReLU where one follows.
struct Line<'a, K> {
    scale: &'a [f32],
    shift: &'a [f32],
    rectified: bool,
    x: &'a [K],
    y: &'a mut [f32],
}

impl<K: Kept> Kernel for Line<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.scale.len();
        let rows = self.x.chunks_exact(width);
        for (x, y) in rows.zip(self.y.chunks_exact_mut(width)) {
            for start in (0..width).step_by(LANES) {
                let (scale, shift) = (s.read(&self.scale[start..]), s.read(&self.shift[start..]));
                let value = s.mul_add(K::read(s, &x[start..]), scale, shift);
                let value = match self.rectified {
                    true => Activation::Relu.apply(s, value),
                    false => value,
                };
                s.write(&mut y[start..], value);
            }
        }
    }
}

/// dx, dgamma and dbeta; `dx` holds dy before.
pub(super) fn gradient<K: Kept>(
    cpu: &Cpu,
    shape: &ChannelShape,
    norm: BatchNormGradient<'_>,
    x: &[K],
    dx: &mut [f32],
) {
    let (channels, dims) = (shape.channels, [shape.batch, shape.channels]);
    if let Some(beta) = norm.rectified {
        let (scale, shift) = affine(norm.gamma, beta, norm.mean, norm.variance, norm.eps);
        for_each_block(cpu, shape.batch, channels, channels, dx, |rows, dx| {
            let x = &x[rows.start * channels..rows.end * channels];
            cpu.isa().run(Gate {
                scale: &scale,
                shift: &shift,
                x,
                dx,
            });
        });
    }
    reduce(cpu, ReduceOp::Sum, &dims, &[0], dx, norm.dbeta);
    let mut products = vec![0.0; x.len()];
    for_each_block(
        cpu,
        shape.batch,
        channels,
        channels,
        &mut products,
        |rows, products| {
            let range = rows.start * channels..rows.end * channels;
            cpu.isa().run(Products {
                mean: norm.mean,
                x: &x[range.clone()],
                dy: &dx[range],
                products,
            });
        },
    );
    reduce(cpu, ReduceOp::Sum, &dims, &[0], &products, norm.dgamma);
    let count = shape.batch as f64;
    let columns: Vec<[f32; 3]> = (0..channels)
        .map(|c| {
            let inverse = 1.0 / (f64::from(norm.variance[c]) + f64::from(norm.eps)).sqrt();
            let slope = f64::from(norm.dgamma[c]) * inverse;
            norm.dgamma[c] = slope as f32;
            let scale = f64::from(norm.gamma[c]) * inverse;
            let (shared, leaning) = match norm.batch_statistics {
                true => (f64::from(norm.dbeta[c]) / count, slope * inverse / count),
                false => (0.0, 0.0),
            };
            [scale, shared, leaning].map(|value| value as f32)
        })
        .collect();
    let column = |part: usize| {
        columns
            .iter()
            .map(|values| values[part])
            .collect::<Vec<f32>>()
    };
    let [scale, shared, leaning] = [0, 1, 2].map(column);
    for_each_block(cpu, shape.batch, channels, channels, dx, |rows, dx| {
        cpu.isa().run(Combine {
            mean: norm.mean,
            scale: &scale,
            shared: &shared,
            leaning: &leaning,
            x: &x[rows.start * channels..rows.end * channels],
            dx,
        });
    });
}

/// Lets dy through, in `dx`, where y = x · scale + shift is above zero.
struct Gate<'a, K> {
    scale: &'a [f32],
    shift: &'a [f32],
    x: &'a [K],
    dx: &'a mut [f32],
}

impl<K: Kept> Kernel for Gate<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.scale.len();
        let (zero, one) = (s.splat(0.0), s.splat(1.0));
        let rows = self.x.chunks_exact(width);
        for (x, dx) in rows.zip(self.dx.chunks_exact_mut(width)) {
            for start in (0..width).step_by(LANES) {
                let (scale, shift) = (s.read(&self.scale[start..]), s.read(&self.shift[start..]));
                let y = s.mul_add(K::read(s, &x[start..]), scale, shift);
                let passed = s.select(s.less(zero, y), one, zero);
                let dy = s.mul(s.read(&dx[start..]), passed);
                s.write(&mut dx[start..], dy);
            }
        }
    }
}

/// dy (x - mean).
struct Products<'a, K> {
    mean: &'a [f32],
    x: &'a [K],
    dy: &'a [f32],
    products: &'a mut [f32],
}

impl<K: Kept> Kernel for Products<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.mean.len();
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        for ((x, dy), products) in rows.zip(self.products.chunks_exact_mut(width)) {
            for start in (0..width).step_by(LANES) {
                let away = s.sub(K::read(s, &x[start..]), s.read(&self.mean[start..]));
                s.write(&mut products[start..], s.mul(away, s.read(&dy[start..])));
            }
        }
    }
}

/// dx = scale · (dy - shared - (x - mean) · leaning), with dy in `dx`.
struct Combine<'a, K> {
    mean: &'a [f32],
    scale: &'a [f32],
    shared: &'a [f32],
    leaning: &'a [f32],
    x: &'a [K],
    dx: &'a mut [f32],
}

impl<K: Kept> Kernel for Combine<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.mean.len();
        let rows = self.x.chunks_exact(width);
        for (x, dx) in rows.zip(self.dx.chunks_exact_mut(width)) {
            for start in (0..width).step_by(LANES) {
                let away = s.sub(K::read(s, &x[start..]), s.read(&self.mean[start..]));
                let rest = s.sub(s.read(&dx[start..]), s.read(&self.shared[start..]));
                let rest = s.neg_mul_add(away, s.read(&self.leaning[start..]), rest);
                let value = s.mul(rest, s.read(&self.scale[start..]));
                s.write(&mut dx[start..], value);
            }
        }
    }
}
