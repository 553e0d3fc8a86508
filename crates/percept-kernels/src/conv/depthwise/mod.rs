//! Depthwise convolutions: each channel with its own kernel, one plane at a time.

mod band;
mod rows;

use band::BandLayout;
use rows::Rows;

use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::conv::ConvShape;
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Depthwise convolution of x [batch, channels, height, width] with weights [channels, 1, kernel height, kernel width].
///
/// `channel_sums` [batch, channels], when given, receives the sum of each output plane: squeeze-and-excitation averages
/// it next, and here it is still in the cache.
pub fn depthwise_conv2d(
    cpu: &Cpu,
    shape: &ConvShape,
    weight: &[f32],
    x: &[f32],
    epilogue: Epilogue,
    channel_sums: Option<&mut [f32]>,
    y: &mut [f32],
) {
    assert!(
        supports(shape),
        "a depthwise convolution has one input and one output channel a group"
    );
    shape.check(Some(weight.len()), x.len(), y.len());
    epilogue.check(shape.out_channels, y.len());
    let planes = shape.batch * shape.out_channels;
    if let Some(sums) = &channel_sums {
        assert_eq!(sums.len(), planes, "length of the channel sums");
    }
    if y.is_empty() {
        channel_sums.into_iter().for_each(|sums| sums.fill(0.0));
        return;
    }
    let layout = BandLayout::new(shape);
    let y = SharedMut::new(y);
    let sums = channel_sums.map(SharedMut::new);
    let planes_per_block = planes_per_block(shape);
    cpu.parallel(planes.div_ceil(planes_per_block), &|block, scratch| {
        let [band] = scratch.floats([layout.len(shape)]);
        for plane in block * planes_per_block..((block + 1) * planes_per_block).min(planes) {
            let (pixels, taps, channel) =
                (shape.out_pixels(), shape.taps(), plane % shape.out_channels);
            let outputs = plane * pixels..(plane + 1) * pixels;
            let sum = cpu.isa().run(Plane {
                shape,
                layout,
                weight: &weight[channel * taps..(channel + 1) * taps],
                x: &x[plane * shape.in_pixels()..(plane + 1) * shape.in_pixels()],
                bias: epilogue.bias.map_or(0.0, |bias| bias[channel]),
                residual: epilogue.residual.map(|residual| &residual[outputs.clone()]),
                activation: epilogue.activation,
                summed: sums.is_some(),
                band,
                // SAFETY: each plane belongs to one block.
                y: unsafe { y.slice(outputs) },
            });
            if let Some(sums) = &sums {
                // SAFETY: each plane belongs to one block.
                unsafe { sums.slice(plane..plane + 1).fill(sum) };
            }
        }
    });
}

/// Whether `shape` can be computed here.
pub(crate) fn supports(shape: &ConvShape) -> bool {
    shape.groups == shape.in_channels && shape.groups == shape.out_channels
}

/// Enough work for a block to be worth claiming, and enough blocks for the threads to finish together.
fn planes_per_block(shape: &ConvShape) -> usize {
    const BLOCK_MACS: usize = 1 << 18;
    let planes = shape.batch * shape.out_channels;
    (BLOCK_MACS / (shape.out_pixels() * shape.taps())).clamp(1, planes.div_ceil(16))
}

/// One plane of the output.
struct Plane<'a> {
    shape: &'a ConvShape,
    layout: BandLayout,
    weight: &'a [f32],
    x: &'a [f32],
    bias: f32,
    residual: Option<&'a [f32]>,
    activation: Activation,
    summed: bool,
    band: &'a mut [f32],
    y: &'a mut [f32],
}

impl Kernel for Plane<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let (height, width) = (self.shape.out_height(), self.shape.out_width());
        let mut sum = s.splat(0.0);
        let mut first_row = 0;
        while first_row < height {
            let out_rows = self.layout.out_rows.min(height - first_row);
            self.layout
                .fill(s, self.shape, self.x, first_row, out_rows, self.band);
            let from = first_row * width;
            let rows = Rows {
                shape: self.shape,
                layout: &self.layout,
                weight: self.weight,
                bias: self.bias,
                band: self.band,
                count: out_rows,
            };
            rows.convolve(s, &mut self.y[from..]);
            let done = from..from + out_rows * width;
            let residual = self.residual.map(|residual| &residual[done.clone()]);
            sum = finish(
                s,
                &mut self.y[done],
                residual,
                self.activation,
                self.summed,
                sum,
            );
            first_row += out_rows;
        }
        s.sum(sum)
    }
}

/// Adds the residual, activates, and sums finished rows, which are still in the first-level cache.
#[inline(always)]
fn finish<S: Simd>(
    s: S,
    outputs: &mut [f32],
    residual: Option<&[f32]>,
    activation: Activation,
    summed: bool,
    mut sum: S::V,
) -> S::V {
    if let Some(residual) = residual {
        for (y, residual) in outputs.chunks_mut(LANES).zip(residual.chunks(LANES)) {
            s.write(y, s.add(s.read(y), s.read(residual)));
        }
    }
    match activation {
        Activation::Identity => {}
        // Spelled out, so that their loops have no match inside.
        Activation::Relu => activate(s, outputs, Activation::Relu),
        Activation::Silu => activate(s, outputs, Activation::Silu),
        other => activate(s, outputs, other),
    }
    if summed {
        for part in outputs.chunks(LANES) {
            sum = s.add(sum, s.read(part));
        }
    }
    sum
}

#[inline(always)]
fn activate<S: Simd>(s: S, outputs: &mut [f32], activation: Activation) {
    for part in outputs.chunks_mut(LANES) {
        s.write(part, activation.apply(s, s.read(part)));
    }
}

#[cfg(test)]
mod tests;
