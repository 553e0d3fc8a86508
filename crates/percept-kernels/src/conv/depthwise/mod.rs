//! Depthwise convolutions: each channel with its own kernel, one plane at a time.

mod band;
mod rows;

use std::ops::Range;

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
    epilogue.check_apart();
    let planes = shape.batch * shape.out_channels;
    if let Some(sums) = &channel_sums {
        assert_eq!(sums.len(), planes, "length of the channel sums");
    }
    if y.is_empty() {
        channel_sums.into_iter().for_each(|sums| sums.fill(0.0));
        return;
    }
    let call = Call {
        shape,
        weight,
        x,
        epilogue,
        sums: channel_sums.map(SharedMut::new),
        y: SharedMut::new(y),
    };
    match (shape.kernel, shape.stride, shape.dilation) {
        ([3, 3], [1, 1], [1, 1]) => call.run::<3, 1>(cpu),
        ([3, 3], [2, 2], [1, 1]) => call.run::<3, 2>(cpu),
        ([5, 5], [1, 1], [1, 1]) => call.run::<5, 1>(cpu),
        ([5, 5], [2, 2], [1, 1]) => call.run::<5, 2>(cpu),
        _ => call.run::<0, 0>(cpu),
    }
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

/// The arguments of a call.
struct Call<'a> {
    shape: &'a ConvShape,
    weight: &'a [f32],
    x: &'a [f32],
    epilogue: Epilogue<'a>,
    sums: Option<SharedMut<'a, f32>>,
    y: SharedMut<'a, f32>,
}

impl Call<'_> {
    /// Computes all planes with the kernel unrolled for K x K taps and a stride of STEP (see [`Rows::convolve`]).
    fn run<const K: usize, const STEP: usize>(&self, cpu: &Cpu) {
        let shape = self.shape;
        let layout = BandLayout::new(shape);
        let planes = shape.batch * shape.out_channels;
        let planes_per_block = planes_per_block(shape);
        cpu.parallel(planes.div_ceil(planes_per_block), &|block, scratch| {
            let [band] = scratch.floats([layout.len(shape)]);
            band.fill(0.0);
            let first = block * planes_per_block;
            cpu.isa().run(Planes::<K, STEP> {
                call: self,
                layout,
                planes: first..(first + planes_per_block).min(planes),
                band,
            });
        });
    }
}

/// Some planes of the output, by one thread.
struct Planes<'a, const K: usize, const STEP: usize> {
    call: &'a Call<'a>,
    layout: BandLayout,
    planes: Range<usize>,
    band: &'a mut [f32],
}

impl<const K: usize, const STEP: usize> Kernel for Planes<'_, K, STEP> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Call {
            shape,
            weight,
            x,
            epilogue,
            sums,
            y,
        } = self.call;
        let (height, width) = (shape.out_height(), shape.out_width());
        let (pixels, taps) = (height * width, shape.taps());
        for plane in self.planes {
            let channel = plane % shape.out_channels;
            let x = &x[plane * shape.in_pixels()..(plane + 1) * shape.in_pixels()];
            let outputs = plane * pixels..(plane + 1) * pixels;
            let residual = epilogue.residual.map(|residual| &residual[outputs.clone()]);
            // SAFETY: each plane belongs to one block.
            let y = unsafe { y.slice(outputs) };
            let mut sum = s.splat(0.0);
            for first_row in (0..height).step_by(self.layout.out_rows) {
                let count = self.layout.out_rows.min(height - first_row);
                self.layout.fill(s, shape, x, first_row, count, self.band);
                let rows = Rows {
                    shape,
                    layout: &self.layout,
                    weight: &weight[channel * taps..(channel + 1) * taps],
                    bias: epilogue.bias.map_or(0.0, |bias| bias[channel]),
                    band: self.band,
                    count,
                    width,
                };
                let done = first_row * width..(first_row + count) * width;
                rows.convolve::<S, K, STEP>(s, &mut y[done.start..]);
                let residual = residual.map(|residual| &residual[done.clone()]);
                s.call(Finish {
                    outputs: &mut y[done.clone()],
                    residual,
                    activation: epilogue.activation,
                });
                if sums.is_some() {
                    sum = add_all(s, sum, &y[done]);
                }
            }
            if let Some(sums) = sums {
                // SAFETY: each plane belongs to one block.
                unsafe { sums.slice(plane..plane + 1).fill(s.sum(sum)) };
            }
        }
    }
}

/// Adds the residual and activates finished rows, which are still in the first-level cache.
struct Finish<'a> {
    outputs: &'a mut [f32],
    residual: Option<&'a [f32]>,
    activation: Activation,
}

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let outputs = self.outputs;
        if let Some(residual) = self.residual {
            for (y, residual) in outputs.chunks_mut(LANES).zip(residual.chunks(LANES)) {
                s.write(y, s.add(s.read(y), s.read(residual)));
            }
        }
        match self.activation {
            Activation::Identity => {}
            // Spelled out, so that their loops have no match inside.
            Activation::Relu => activate(s, outputs, Activation::Relu),
            Activation::Silu => activate(s, outputs, Activation::Silu),
            other => activate(s, outputs, other),
        }
    }
}

#[inline(always)]
fn activate<S: Simd>(s: S, outputs: &mut [f32], activation: Activation) {
    let mut parts = outputs.chunks_exact_mut(LANES);
    for part in &mut parts {
        s.write(part, activation.apply(s, s.read(part)));
    }
    let rest = parts.into_remainder();
    s.write(rest, activation.apply(s, s.read(rest)));
}

/// Adds all values to the lanes of `sum`.
#[inline(always)]
fn add_all<S: Simd>(s: S, mut sum: S::V, values: &[f32]) -> S::V {
    let parts = values.chunks_exact(LANES);
    let rest = s.read(parts.remainder());
    for part in parts {
        sum = s.add(sum, s.read(part));
    }
    s.add(sum, rest)
}

#[cfg(test)]
mod tests;
