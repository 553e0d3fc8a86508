//! Batch normalisation of rows [batch, channels] in training: channels lie side by side, so they fill the vectors.

use super::batch_norm::{BatchNormGradient, BatchNormTraining};
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::norm;
use crate::norm::ChannelShape;
use crate::reduce::{ReduceOp, reduce};
use crate::rows::for_each_block;
use crate::simd::{LANES, Simd};

/// y = (x - mean) / sqrt(variance + eps) · gamma + beta with the statistics of each column.
pub(super) fn training(
    cpu: &Cpu,
    shape: &ChannelShape,
    mut norm: BatchNormTraining<'_>,
    x: &[f32],
    y: &mut [f32],
) {
    let dims = [shape.batch, shape.channels];
    reduce(cpu, ReduceOp::Mean, &dims, &[0], x, norm.mean);
    let variance = ReduceOp::Variance { correction: 0 };
    reduce(cpu, variance, &dims, &[0], x, norm.variance);
    norm.move_running(shape.batch);
    let wide = |values: &[f32], c: usize| f64::from(values[c]);
    let (scale, shift): (Vec<f32>, Vec<f32>) = (0..shape.channels)
        .map(|c| {
            let deviation = (wide(norm.variance, c) + f64::from(norm.eps)).sqrt();
            let scale = wide(norm.gamma, c) / deviation;
            let shift = wide(norm.beta, c) - wide(norm.mean, c) * scale;
            (scale as f32, shift as f32)
        })
        .unzip();
    norm::batch_norm(cpu, shape, x, &scale, &shift, y);
    if norm.rectified {
        crate::elementwise::unary_in_place(cpu, crate::Activation::Relu, y);
    }
}

/// dx, dgamma and dbeta; `dx` holds dy before.
pub(super) fn gradient(
    cpu: &Cpu,
    shape: &ChannelShape,
    norm: BatchNormGradient<'_>,
    x: &[f32],
    dx: &mut [f32],
) {
    let (channels, dims) = (shape.channels, [shape.batch, shape.channels]);
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

/// dy (x - mean).
struct Products<'a> {
    mean: &'a [f32],
    x: &'a [f32],
    dy: &'a [f32],
    products: &'a mut [f32],
}

impl Kernel for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.mean.len();
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        for ((x, dy), products) in rows.zip(self.products.chunks_exact_mut(width)) {
            for start in (0..width).step_by(LANES) {
                let away = s.sub(s.read(&x[start..]), s.read(&self.mean[start..]));
                s.write(&mut products[start..], s.mul(away, s.read(&dy[start..])));
            }
        }
    }
}

/// dx = scale · (dy - shared - (x - mean) · leaning), with dy in `dx`.
struct Combine<'a> {
    mean: &'a [f32],
    scale: &'a [f32],
    shared: &'a [f32],
    leaning: &'a [f32],
    x: &'a [f32],
    dx: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.mean.len();
        let rows = self.x.chunks_exact(width);
        for (x, dx) in rows.zip(self.dx.chunks_exact_mut(width)) {
            for start in (0..width).step_by(LANES) {
                let away = s.sub(s.read(&x[start..]), s.read(&self.mean[start..]));
                let rest = s.sub(s.read(&dx[start..]), s.read(&self.shared[start..]));
                let rest = s.neg_mul_add(away, s.read(&self.leaning[start..]), rest);
                let value = s.mul(rest, s.read(&self.scale[start..]));
                s.write(&mut dx[start..], value);
            }
        }
    }
}
