//! Pointwise convolutions whose pixels are read where they lie: a unit of work is a run of pixels and 32 output channels.
//!
//! Nothing is gathered, so it pays where there are few output channels to pay for the gathering, or few pixels to share it.

use std::ops::Range;

use super::shape::ConvShape;
use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::gemm::blocking::Parts;
use crate::gemm::pixels::{
    CHANNELS, ChannelWeights, PackedChannels, PixelRow, Sums, UNIT_CHANNELS, VECTORS, multiply_row,
    padded_bias, tile_pixels,
};
use crate::simd::channels::{Compute, OnChannels, TURNED, Turn};

/// Most pixels of a unit: their sums stay in the first-level cache.
const RUN: usize = 112;
/// Products that one thread has made before another one is there.
const SMALL: usize = 1 << 17;
/// Most depth of a pass: its weights stay there too.
const DEPTH: usize = 192;

/// Whether a convolution can be computed here.
pub(super) fn supports(shape: &ConvShape) -> bool {
    shape.kernel == [1, 1] && shape.stride == [1, 1] && shape.padding == [0, 0] && shape.groups == 1
}

/// Convolves; lengths were checked.
pub(super) fn conv2d(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &PackedChannels,
    x: &[f32],
    input_scale: Option<&[f32]>,
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    let plane = shape.in_pixels();
    let runs = Parts::at_most(RUN, plane, 1);
    let blocks = shape.out_channels.div_ceil(UNIT_CHANNELS);
    let y = SharedMut::new(y);
    // Runs before blocks: threads that have the upper and the lower half of a map have so in the next layer.
    let units = shape.batch * runs.count() * blocks;
    let small = y.len() * shape.in_channels < SMALL;
    let parts = if small { 1 } else { units };
    let compute = |index: usize, scratch: &mut Scratch| {
        let (place, block) = (index / blocks, index % blocks);
        let (sample, run) = (place / runs.count(), runs.range(place % runs.count()));
        let inputs = sample * shape.in_channels..(sample + 1) * shape.in_channels;
        cpu.isa().run_widened(Compute {
            work: Unit {
                shape,
                weights,
                x: &x[inputs.start * plane..inputs.end * plane],
                scale: input_scale.map(|scale| &scale[inputs]),
                epilogue,
                y: &y,
                sample,
                block,
                run,
            },
            scratch,
        });
    };
    cpu.parallel(parts, &|part, scratch| {
        let units = part * units / parts..(part + 1) * units / parts;
        units.for_each(|unit| compute(unit, scratch));
    });
}

/// Some pixels of some output channels.
struct Unit<'a> {
    shape: &'a ConvShape,
    weights: &'a PackedChannels,
    /// The sample's.
    x: &'a [f32],
    scale: Option<&'a [f32]>,
    epilogue: Epilogue<'a>,
    y: &'a SharedMut<'a, f32>,
    sample: usize,
    block: usize,
    run: Range<usize>,
}

impl OnChannels for Unit<'_> {
    #[inline(always)]
    fn compute<C: Turn>(&self, c: C, scratch: &mut Scratch) {
        let (plane, depth) = (self.shape.in_pixels(), self.shape.in_channels);
        let (vectors, weights) = self.weights.block(self.block);
        let width = vectors * CHANNELS;
        let vector_len = (self.run.len() + TURNED) * CHANNELS;
        let whole = self
            .run
            .len()
            .is_multiple_of(tile_pixels::<C>(self.run.len()));
        let pass = if whole { DEPTH } else { depth };
        let [sums, scaled] = scratch.floats([VECTORS * vector_len, pass * UNIT_CHANNELS]);
        let bias = padded_bias(self.epilogue.bias, self.block);
        for start in (0..depth).step_by(pass) {
            let part = start..(start + pass).min(depth);
            let mut weights = &weights[part.start * width..part.end * width];
            if let Some(scale) = self.scale {
                scale_rows(c, weights, &scale[part.clone()], width, scaled);
                weights = scaled;
            }
            let row = PixelRow {
                x: self.x[part.start * plane + self.run.start..].as_ptr(),
                stride: plane,
                depth: part.len(),
            };
            let weights = ChannelWeights {
                weights,
                vectors,
                sums: match start {
                    0 => Sums::Begin(&bias),
                    _ => Sums::GoOn,
                },
            };
            // SAFETY: the run's pixels lie within the channels' planes, and there is room for their sums.
            unsafe {
                multiply_row::<C, _, 1>(
                    c,
                    &row,
                    self.run.len(),
                    weights,
                    sums.as_mut_ptr(),
                    vector_len,
                )
            };
        }
        for v in 0..vectors {
            let sums = &sums[v * vector_len..][..vector_len];
            for first in (0..self.run.len()).step_by(TURNED) {
                let sums = &sums[first * CHANNELS..][..TURNED * CHANNELS];
                match self.epilogue.activation {
                    // Spelled out, so that the common ones have no match inside.
                    Activation::Identity => self.write_out(c, v, sums, first, Activation::Identity),
                    Activation::Relu => self.write_out(c, v, sums, first, Activation::Relu),
                    other => self.write_out(c, v, sums, first, other),
                }
            }
        }
    }
}

impl Unit<'_> {
    /// Writes up to 16 pixels of a vector of channels, the first of them `first` in the run.
    #[inline(always)]
    fn write_out<C: Turn>(
        &self,
        c: C,
        vector: usize,
        sums: &[f32],
        first: usize,
        activation: Activation,
    ) {
        let shape = self.shape;
        let count = (self.run.len() - first).min(TURNED);
        let channel = self.block * UNIT_CHANNELS + vector * CHANNELS;
        let channels = (shape.out_channels - channel).min(CHANNELS);
        let plane = shape.in_pixels();
        let start = (self.sample * shape.out_channels + channel) * plane + self.run.start + first;
        let mut values = [c.splat(0.0); TURNED];
        for i in 0..TURNED {
            values[i] = c.read(&sums[i * CHANNELS..]);
        }
        let turned = c.turn(values);
        for channel in 0..CHANNELS {
            // A bound that is known when compiling, or else the vectors live in memory.
            if channel >= channels {
                continue;
            }
            let at = start + channel * plane;
            let mut value = turned[channel];
            // SAFETY: the pixels lie within the planes of these channels, which no other unit has; the residual is as long.
            unsafe {
                let y = self.y.as_mut_ptr().add(at);
                if let Some(residual) = self.epilogue.residual {
                    value = c.add(value, c.load_first(residual.as_ptr().add(at), count));
                } else if self.epilogue.residual_in_place {
                    value = c.add(value, c.load_first(y, count));
                }
                c.store_first(y, count, activation.apply(c, value));
            }
        }
    }
}

/// Rows of weights times the factors of their inputs.
#[inline(always)]
fn scale_rows<C: Turn>(c: C, weights: &[f32], scale: &[f32], width: usize, scaled: &mut [f32]) {
    let rows = weights
        .chunks_exact(width)
        .zip(scaled.chunks_exact_mut(width));
    for ((from, to), &factor) in rows.zip(scale) {
        let factor = c.splat(factor);
        let vectors = from
            .chunks_exact(CHANNELS)
            .zip(to.chunks_exact_mut(CHANNELS));
        for (from, to) in vectors {
            c.write(to, c.mul(c.read(from), factor));
        }
    }
}
