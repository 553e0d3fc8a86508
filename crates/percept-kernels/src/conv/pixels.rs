//! Convolutions whose pixels are spread over vectors of output channels: a unit of work is a run of pixels and 32 channels.
//!
//! Pixels of a 1x1 convolution are read where they lie; those that several taps read are copied once for all of them, with
//! their border ([`Patches`]). So it pays where there are few output channels to pay for the gathering of panels, or few pixels
//! to share it. What comes next is asked for while pixels are multiplied.

use std::ops::Range;

use super::patches::{CopyPatch, Patches};
use super::shape::ConvShape;
use crate::activation::Activation;
use crate::aligned::{FLOATS_PER_LINE, SharedMut};
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::gemm::blocking::Parts;
use crate::gemm::pixels::{
    Ahead, CHANNELS, ChannelWeights, PackedChannels, PixelRow, PixelTaps, Pixels, Sums,
    UNIT_CHANNELS, VECTORS, multiply_row, padded_bias, tile_pixels,
};
use crate::simd::channels::{Compute, OnChannels, TURNED, Turn};

/// Most pixels of a unit: their sums stay in the first-level cache.
const RUN: usize = 112;
/// Products that one thread has made before another one is there.
const SMALL: usize = 1 << 17;
/// Most depth of a pass: its weights stay there too.
const DEPTH: usize = 192;
/// Channels that are copied at a time.
const COPIED: usize = 64;
/// Floats of weights, and of a sample's input, that are no longer near when they are read again: asking for less costs more than
/// it gains.
const FAR_WEIGHTS: usize = 1 << 17;
const FAR_INPUT: usize = 1 << 19;

/// Whether a convolution can be computed here.
pub(super) fn supports(shape: &ConvShape) -> bool {
    shape.groups == 1 && shape.stride[1] <= 2
}

/// Whether pixels are read where they lie.
fn in_place(shape: &ConvShape) -> bool {
    shape.kernel == [1, 1] && shape.stride == [1, 1] && shape.padding == [0, 0]
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
    let y = SharedMut::new(y);
    let run = |runs: Parts, source: Source<'_>, samples: Range<usize>| {
        let job = Job {
            shape,
            weights,
            epilogue,
            y: &y,
            runs,
            source,
        };
        job.run(cpu, samples);
    };
    if in_place(shape) {
        let runs = Parts::at_most(RUN, shape.out_pixels(), 1);
        let source = Source::Input {
            x,
            scale: input_scale,
        };
        return run(runs, source, 0..shape.batch);
    }
    let runs = Parts::at_most(RUN, shape.out_pixels(), shape.out_width());
    let patches = Patches::new(shape, runs.longest() / shape.out_width());
    let taps = &patches.offsets();
    let mut shared = cpu.shared_scratch();
    let [copies] = shared.floats([runs.count() * patches.len()]);
    let inputs = shape.in_channels;
    // Sample by sample, so that copies are read while they are near.
    for sample in 0..shape.batch {
        let copy = CopyPatch {
            patches: &patches,
            x: &x[sample * inputs * shape.in_pixels()..][..inputs * shape.in_pixels()],
            scale: input_scale.map(|scale| &scale[sample * inputs..][..inputs]),
        };
        let target = SharedMut::new(&mut *copies);
        let parts = Parts::at_most(COPIED, inputs, 1);
        cpu.parallel(runs.count() * parts.count(), &|index, _| {
            let (run, channels) = (index / parts.count(), parts.range(index % parts.count()));
            let place = run * patches.len() + channels.start * patches.channel_len();
            // SAFETY: each run and channel has its own place.
            let to = unsafe { target.slice(place..place + channels.len() * patches.channel_len()) };
            let first_row = runs.range(run).start / shape.out_width();
            cpu.isa().run(copy.of(first_row, channels, to));
        });
        let source = Source::Copies {
            patches: &patches,
            copies,
            taps,
        };
        run(runs, source, sample..sample + 1);
    }
}

/// A convolution on its way.
struct Job<'a> {
    shape: &'a ConvShape,
    weights: &'a PackedChannels,
    epilogue: Epilogue<'a>,
    y: &'a SharedMut<'a, f32>,
    /// Runs of a sample's output pixels.
    runs: Parts,
    source: Source<'a>,
}

/// Where pixels are read.
enum Source<'a> {
    /// The input of all samples.
    Input {
        x: &'a [f32],
        scale: Option<&'a [f32]>,
    },
    /// Copies for the runs of one sample, and where taps lie in one.
    Copies {
        patches: &'a Patches,
        copies: &'a [f32],
        taps: &'a [usize],
    },
}

impl Job<'_> {
    fn run(&self, cpu: &Cpu, samples: Range<usize>) {
        let blocks = self.blocks();
        // Runs before blocks: threads that have the upper and the lower half of a map have so in the next layer.
        let units = samples.len() * self.runs.count() * blocks;
        let small = self.y.len() * self.shape.in_channels * self.shape.taps() < SMALL;
        let parts = if small { 1 } else { units };
        cpu.parallel(parts, &|part, scratch| {
            for unit in part * units / parts..(part + 1) * units / parts {
                let (place, block) = (unit / blocks, unit % blocks);
                let work = Unit {
                    job: self,
                    sample: samples.start + place / self.runs.count(),
                    run: place % self.runs.count(),
                    pixels: self.runs.range(place % self.runs.count()),
                    block,
                };
                cpu.isa().run_widened(Compute {
                    work,
                    scratch: &mut *scratch,
                });
            }
        });
    }

    fn blocks(&self) -> usize {
        self.shape.out_channels.div_ceil(UNIT_CHANNELS)
    }
}

/// Some pixels of some output channels.
struct Unit<'a> {
    job: &'a Job<'a>,
    sample: usize,
    /// Its number, and the pixels that it has.
    run: usize,
    pixels: Range<usize>,
    block: usize,
}

impl OnChannels for Unit<'_> {
    #[inline(always)]
    fn compute<C: Turn>(&self, c: C, scratch: &mut Scratch) {
        let shape = self.job.shape;
        match self.job.source {
            Source::Input { x, scale } => {
                let (plane, inputs) = (shape.in_pixels(), shape.in_channels);
                let first = self.sample * inputs;
                let sample = &x[first * plane..(first + inputs) * plane];
                let row = |part: &Range<usize>| PixelRow {
                    x: sample[part.start * plane + self.pixels.start..].as_ptr(),
                    stride: plane,
                    depth: part.len(),
                };
                let scale = scale.map(|scale| &scale[first..first + inputs]);
                let near = (sample.as_ptr(), plane);
                let rows = (self.pixels.len(), 0);
                self.convolve::<C, _, 1>(c, row, rows, near, scale, scratch);
            }
            Source::Copies {
                patches,
                copies,
                taps,
            } => {
                let copy = &copies[self.run * patches.len()..];
                let row = |part: &Range<usize>| PixelTaps {
                    x: copy.as_ptr(),
                    offsets: &taps[part.clone()],
                };
                let near = (copy.as_ptr(), patches.channel_len());
                let rows = (shape.out_width(), patches.row_stride());
                match shape.stride[1] {
                    1 => self.convolve::<C, _, 1>(c, row, rows, near, None, scratch),
                    _ => self.convolve::<C, _, 2>(c, row, rows, near, None, scratch),
                }
            }
        }
    }
}

impl Unit<'_> {
    /// Convolves the unit's pixels. `first_row` tells where the pixels of its first row lie, for a part of the depth; rows have
    /// this many pixels, and are this far apart. `near` tells where the first channel lies, and how long channels are.
    #[inline(always)]
    fn convolve<C: Turn, X: Pixels, const STEP: usize>(
        &self,
        c: C,
        first_row: impl Fn(&Range<usize>) -> X,
        (width, row_stride): (usize, usize),
        near: (*const f32, usize),
        scale: Option<&[f32]>,
        scratch: &mut Scratch,
    ) {
        let (job, pixels) = (self.job, self.pixels.len());
        let depth = job.shape.in_channels * job.shape.taps();
        let (vectors, weights) = job.weights.block(self.block);
        let row_len = vectors * CHANNELS;
        let vector_len = (pixels + TURNED) * CHANNELS;
        let whole = width.is_multiple_of(tile_pixels::<C>(width));
        let pass = if whole { DEPTH.min(depth) } else { depth };
        let [sums, scaled] = scratch.floats([VECTORS * vector_len, pass * UNIT_CHANNELS]);
        let bias = padded_bias(job.epilogue.bias, self.block);
        for start in (0..depth).step_by(pass) {
            let part = start..(start + pass).min(depth);
            let mut part_weights = &weights[part.start * row_len..part.end * row_len];
            let ahead = self.ahead(&part, depth, part_weights, near);
            if let Some(scale) = scale {
                scale_rows(c, part_weights, &scale[part.clone()], row_len, scaled);
                part_weights = scaled;
            }
            let rows = pixels / width;
            let mut row = first_row(&part);
            for index in 0..rows {
                let weights = ChannelWeights {
                    weights: part_weights,
                    vectors,
                    sums: match start {
                        0 => Sums::Begin(&bias),
                        _ => Sums::GoOn,
                    },
                    ahead: ahead.map(|ahead| ahead.part(index, rows, index * width)),
                };
                // SAFETY: the pixels of all rows lie within the input or the copy, and there is room for their sums.
                unsafe {
                    let to = sums.as_mut_ptr().add(index * width * CHANNELS);
                    multiply_row::<C, _, STEP>(c, &row, width, weights, to, vector_len);
                }
                row.advance(row_stride);
            }
        }
        for v in 0..vectors {
            let sums = &sums[v * vector_len..][..vector_len];
            for first in (0..pixels).step_by(TURNED) {
                let sums = &sums[first * CHANNELS..][..TURNED * CHANNELS];
                match job.epilogue.activation {
                    // Spelled out, so that the common ones have no match inside.
                    Activation::Identity => self.write_out(c, v, sums, first, Activation::Identity),
                    Activation::Relu => self.write_out(c, v, sums, first, Activation::Relu),
                    other => self.write_out(c, v, sums, first, other),
                }
            }
        }
    }

    /// What to ask for while a part of the depth is multiplied: the weights and channels behind it, in the end the output, and
    /// before another run begins its pixels.
    #[inline(always)]
    fn ahead(
        &self,
        part: &Range<usize>,
        depth: usize,
        weights: &[f32],
        (channels, channel_len): (*const f32, usize),
    ) -> Option<Ahead> {
        let (shape, job) = (self.job.shape, self.job);
        let far_weights = shape.weight_len() >= FAR_WEIGHTS;
        let far_input = shape.in_channels * shape.in_pixels() >= FAR_INPUT;
        if !far_weights && !far_input {
            return None;
        }
        let last_part = part.end == depth;
        let last_block = self.block + 1 == job.blocks();
        let next_weights = match last_part && last_block {
            true => job.weights.block(0).1.as_ptr(),
            false => weights.as_ptr().wrapping_add(weights.len()),
        };
        let plane = shape.out_pixels();
        let runs = job.runs.count();
        let (mut next_channel, mut next_channels, mut next_run) = (0, 0, None);
        match job.source {
            Source::Copies { .. } => {
                next_channel = if last_part {
                    0
                } else {
                    part.end / shape.taps()
                };
                next_channels = part.len().div_ceil(shape.taps());
            }
            Source::Input { .. } if !far_input || !last_block => {}
            Source::Input { .. } if self.run + 1 < runs => {
                next_run = Some(self.pixels.len());
            }
            Source::Input { .. } if self.sample + 1 < shape.batch => {
                next_run = Some(shape.in_channels * plane - self.pixels.start);
            }
            Source::Input { .. } => {}
        }
        let channel = self.block * UNIT_CHANNELS;
        let start = (self.sample * shape.out_channels + channel) * plane + self.pixels.start;
        // What is written of a small map is near.
        let outputs = match last_part && far_input {
            true => (shape.out_channels - channel).min(UNIT_CHANNELS),
            false => 0,
        };
        let next_weights_len = if far_weights { weights.len() } else { 0 };
        Some(Ahead {
            lines: [
                (next_weights, next_weights_len / FLOATS_PER_LINE),
                (
                    channels.wrapping_add(next_channel * channel_len),
                    next_channels * channel_len / FLOATS_PER_LINE,
                ),
            ],
            pixels: next_run,
            output: (job.y.as_mut_ptr().wrapping_add(start), plane, outputs),
        })
    }

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
        let (shape, epilogue) = (self.job.shape, &self.job.epilogue);
        let count = (self.pixels.len() - first).min(TURNED);
        let channel = self.block * UNIT_CHANNELS + vector * CHANNELS;
        let channels = (shape.out_channels - channel).min(CHANNELS);
        let plane = shape.out_pixels();
        let start =
            (self.sample * shape.out_channels + channel) * plane + self.pixels.start + first;
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
                let y = self.job.y.as_mut_ptr().add(at);
                if let Some(residual) = epilogue.residual {
                    value = c.add(value, c.load_first(residual.as_ptr().add(at), count));
                } else if epilogue.residual_in_place {
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
