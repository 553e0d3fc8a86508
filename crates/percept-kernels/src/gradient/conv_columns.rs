//! The adjoint of a strided convolution: what each window gives to its pixels, then the sum over the windows of each pixel.
//!
//! A window gives weight^T · dy, a number for every input channel and tap: one matrix product, some samples at a time so that
//! it stays in the caches. With stride s, neighbouring windows meet every s-th pixel: a row of dx is s interleaved rows, each
//! of which is a sum of whole lines.

use crate::conv::{ConvAlgorithm, ConvShape, Filters, PackedConv, conv2d};
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::rows::for_each_block;

/// Floats of the product at a time: they stay in a third-level cache.
const PRODUCT: usize = 1 << 20;

/// dx = adjoint(dy) + residual.
pub(super) fn input_gradient(
    cpu: &Cpu,
    shape: &ConvShape,
    dy: &[f32],
    weight: &[f32],
    residual: Option<&[f32]>,
    dx: &mut [f32],
) {
    // The forward convolution, with what a window reads as its input channels; and the way back.
    let windows = ConvShape {
        in_channels: shape.in_channels * shape.taps(),
        height: shape.out_height(),
        width: shape.out_width(),
        kernel: [1, 1],
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
        ..*shape
    };
    let back = ConvShape {
        in_channels: windows.out_channels,
        out_channels: windows.in_channels,
        ..windows
    };
    let filters = Filters::turned(&windows, weight, vec![0]);
    let packed = PackedConv::pack_filters(cpu, &back, ConvAlgorithm::Pointwise, &filters);
    let sample = back.out_len() / shape.batch;
    let samples = (PRODUCT / sample).clamp(1, shape.batch);
    let mut product = cpu.buffer(samples * sample);
    let image = shape.in_channels * shape.in_pixels();
    for first in (0..shape.batch).step_by(samples) {
        let batch = samples.min(shape.batch - first);
        let dy = &dy[first * windows.out_channels * windows.out_pixels()..];
        let dy = &dy[..batch * windows.out_channels * windows.out_pixels()];
        let part = ConvShape { batch, ..back };
        let product = &mut product.floats_mut()[..batch * sample];
        conv2d(cpu, &part, &packed, dy, None, Epilogue::default(), product);
        let range = first * image..(first + batch) * image;
        let residual = residual.map(|residual| &residual[range.clone()]);
        gather(cpu, shape, product, residual, &mut dx[range]);
    }
    cpu.give_back(product);
    packed.give_back(cpu);
}

/// Adds up what the windows gave to each pixel, and the residual.
fn gather(cpu: &Cpu, shape: &ConvShape, product: &[f32], residual: Option<&[f32]>, dx: &mut [f32]) {
    let (area, width) = (shape.in_pixels(), shape.width);
    if dx.is_empty() {
        return;
    }
    let windows = shape.taps() * shape.out_pixels();
    let planes = dx.len() / area;
    for_each_block(cpu, planes, area + windows, area, dx, |planes, dx| {
        let mut line = Line::new(shape);
        for (plane, dx) in planes.zip(dx.chunks_exact_mut(area)) {
            let product = &product[plane * windows..][..windows];
            for (row, dx) in dx.chunks_exact_mut(width).enumerate() {
                line.sum(product, row);
                line.write(dx);
                if let Some(residual) = residual {
                    let residual = &residual[plane * area + row * width..];
                    dx.iter_mut().zip(residual).for_each(|(dx, r)| *dx += r);
                }
            }
        }
    });
}

/// A row of dx on its way: one part for each remainder of the padded column by the stride.
struct Line<'a> {
    shape: &'a ConvShape,
    /// Height and width of dy.
    out: [usize; 2],
    /// Columns of a part.
    columns: usize,
    parts: Vec<f32>,
}

impl<'a> Line<'a> {
    fn new(shape: &'a ConvShape) -> Self {
        let padded = shape.width + 2 * shape.padding[1];
        let columns = padded.div_ceil(shape.stride[1]);
        Self {
            shape,
            out: [shape.out_height(), shape.out_width()],
            columns,
            parts: vec![0.0; shape.stride[1] * columns],
        }
    }

    /// Sums the lines of windows that reach `row`.
    fn sum(&mut self, product: &[f32], row: usize) {
        let shape = self.shape;
        let ([out_height, out_width], stride) = (self.out, shape.stride);
        self.parts.fill(0.0);
        for down in 0..shape.kernel[0] {
            let above = (row + shape.padding[0]).checked_sub(down * shape.dilation[0]);
            let Some(above) = above.filter(|above| above.is_multiple_of(stride[0])) else {
                continue;
            };
            let out_row = above / stride[0];
            if out_row >= out_height {
                continue;
            }
            for right in 0..shape.kernel[1] {
                let tap = down * shape.kernel[1] + right;
                let line = &product[(tap * out_height + out_row) * out_width..][..out_width];
                let shift = right * shape.dilation[1];
                let start = shift % stride[1] * self.columns + shift / stride[1];
                let sums = self.parts[start..].iter_mut();
                sums.zip(line).for_each(|(sum, value)| *sum += value);
            }
        }
    }

    /// Puts the parts together.
    fn write(&self, dx: &mut [f32]) {
        let (stride, padding) = (self.shape.stride[1], self.shape.padding[1]);
        for (part, numbers) in self.parts.chunks_exact(self.columns).enumerate() {
            // The first place of this part that lies in the map.
            let skipped = padding.saturating_sub(part).div_ceil(stride);
            let first = skipped * stride + part - padding;
            let places = dx.iter_mut().skip(first).step_by(stride);
            let numbers = numbers.iter().skip(skipped);
            places.zip(numbers).for_each(|(dx, &sum)| *dx = sum);
        }
    }
}
