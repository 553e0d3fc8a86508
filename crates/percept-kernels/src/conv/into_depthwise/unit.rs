//! A band of output rows of some channels.

use std::ops::Range;

use super::PackedDepthwise;
use super::{ConvIntoDepthwise, Finish};
use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::conv::ConvShape;
use crate::cpu::Scratch;
use crate::gemm::pixels::{
    CHANNELS, ChannelWeights, PackedChannels, PixelTaps, Sums, UNIT_CHANNELS, VECTORS, for_tiles,
    multiply_row, padded_bias,
};
use crate::simd::channels::{Channels, OnChannels, TURNED, Turn};

/// The longest side of a depthwise filter.
const MAX_TAPS: usize = 5;

/// Where the numbers of a pixel lie, from its first one on, in the memory that [`Unit`] reads.
pub(super) fn offsets(first: &ConvShape) -> Vec<usize> {
    let layout = InputRows::new(first);
    let [height, width] = first.kernel;
    let taps = (0..first.in_channels).flat_map(|channel| {
        (0..height).flat_map(move |y| (0..width).map(move |x| [channel, y, x]))
    });
    taps.map(|[channel, y, x]| channel * layout.plane + y * layout.row + x)
        .collect()
}

/// How the rows lie that the first convolution reads: where they are, or copied between zeros.
struct InputRows {
    plane: usize,
    row: usize,
    copied: bool,
}

impl InputRows {
    fn new(first: &ConvShape) -> InputRows {
        let copied = [first.kernel, first.stride] != [[1, 1]; 2] || first.padding != [0, 0];
        let row = first.width + 2 * first.padding[1];
        // Of a copy, the rows of one output row.
        let rows = if copied {
            first.kernel[0]
        } else {
            first.height
        };
        InputRows {
            plane: rows * row,
            row,
            copied,
        }
    }
}

/// A unit of work, by one thread.
pub(super) struct Unit<'a> {
    pub(super) shapes: &'a ConvIntoDepthwise,
    pub(super) weights: (&'a PackedChannels, &'a PackedDepthwise),
    /// From the sample on.
    pub(super) x: &'a [f32],
    pub(super) finish: [Finish<'a>; 2],
    pub(super) y: &'a SharedMut<'a, f32>,
    pub(super) sample: usize,
    pub(super) block: usize,
    /// Output rows.
    pub(super) band: Range<usize>,
}

impl OnChannels for Unit<'_> {
    #[inline(always)]
    fn compute<C: Turn>(&self, c: C, scratch: &mut Scratch) {
        let ConvIntoDepthwise { first, second, .. } = self.shapes;
        let [padding_y, padding_x] = second.padding;
        // Known sizes are for the loops over pixels alone: all of this would be compiled for each of them.
        let (taps, step) = (second.kernel[0], second.stride[0]);
        let (vectors, weights) = self.weights.0.block(self.block);
        let out_width = second.out_width();
        let input = InputRows::new(first);
        // Rows of the map between, with zeros at both ends, of one vector of channels.
        let row_len = (second.width + 2 * padding_x) * CHANNELS;
        // The last row stays empty: what is above and below the map.
        let vector_len = (taps + 1) * row_len;
        let pending_len = (out_width + 2 * TURNED) * CHANNELS;
        let copy_len = if input.copied {
            first.in_channels * input.plane
        } else {
            0
        };
        let lengths = [VECTORS * vector_len, VECTORS * pending_len, copy_len];
        let [ring, pending, copy] = scratch.floats(lengths);
        ring.fill(0.0);
        copy.fill(0.0);
        let bias = self
            .finish
            .map(|finish| padded_bias(finish.bias, self.block));
        let weights = ChannelWeights {
            weights,
            vectors,
            sums: Sums::Begin(&bias[0]),
            ahead: None,
        };
        let mut made = (self.band.start * step).saturating_sub(padding_y);
        let mut waiting = 0;
        let mut done = self.band.start * out_width;
        for out_row in self.band.clone() {
            // In rows of the padded map, which the window begins at.
            let window = out_row * step;
            let end = (window + taps).saturating_sub(padding_y).min(second.height);
            while made < end {
                let slot = (made + padding_y) % taps * row_len + padding_x * CHANNELS;
                let row = if input.copied {
                    copy_rows(first, &input, self.x, made, copy);
                    copy.as_ptr()
                } else {
                    self.x[made * first.width..].as_ptr()
                };
                let row = PixelTaps {
                    x: row,
                    offsets: &self.shapes.offsets,
                };
                // SAFETY: x was checked to be as long as its shape says, or copied; a slot holds a row.
                unsafe {
                    let to = ring.as_mut_ptr().add(slot);
                    let width = second.width;
                    match first.stride[0] {
                        1 => multiply_row::<C, _, 1>(c, &row, width, weights, to, vector_len),
                        2 => multiply_row::<C, _, 2>(c, &row, width, weights, to, vector_len),
                        other => unreachable!("no kernel of stride {other}"),
                    }
                    for v in 0..vectors {
                        let row = to.add(v * vector_len);
                        activate(c, self.finish[0].activation, row, second.width);
                    }
                }
                made += 1;
            }
            // Where the window's rows are in the ring.
            let (mut places, oldest) = ([taps * row_len; MAX_TAPS], window % taps);
            for ky in 0..taps {
                if (window + ky).wrapping_sub(padding_y) < second.height {
                    let slot = oldest + ky;
                    places[ky] = row_len * if slot < taps { slot } else { slot - taps };
                }
            }
            for v in 0..vectors {
                let filter = self.weights.1.vector(self.block * VECTORS + v);
                let rows = &ring[v * vector_len..][..vector_len];
                let to = &mut pending[v * pending_len + waiting * CHANNELS..];
                // SAFETY: rows have zeros for all taps of the first and the last column; there is room for a row of outputs.
                unsafe {
                    let bias = bias[1].as_ptr().add(v * CHANNELS);
                    let (rows, to) = ((rows.as_ptr(), &places), to.as_mut_ptr());
                    match (taps, step) {
                        (3, 1) => depthwise_row::<C, 3, 1>(c, rows, filter, bias, out_width, to),
                        (3, 2) => depthwise_row::<C, 3, 2>(c, rows, filter, bias, out_width, to),
                        (5, 1) => depthwise_row::<C, 5, 1>(c, rows, filter, bias, out_width, to),
                        (5, 2) => depthwise_row::<C, 5, 2>(c, rows, filter, bias, out_width, to),
                        other => unreachable!("no depthwise kernel for {other:?}"),
                    }
                    activate(c, self.finish[1].activation, to, out_width);
                }
            }
            waiting += out_width;
            let last = out_row + 1 == self.band.end;
            let mut written = 0;
            while waiting - written >= TURNED || last && written < waiting {
                let count = (waiting - written).min(TURNED);
                for v in 0..vectors {
                    let from = &pending[v * pending_len + written * CHANNELS..];
                    // SAFETY: no other unit has these rows of these channels.
                    unsafe { self.write_out(c, v, &from[..TURNED * CHANNELS], done, count) };
                }
                written += count;
                done += count;
            }
            for v in 0..vectors {
                let pending = &mut pending[v * pending_len..][..pending_len];
                pending.copy_within(written * CHANNELS..waiting * CHANNELS, 0);
            }
            waiting -= written;
        }
    }
}

impl Unit<'_> {
    /// Writes some finished pixels of a vector of channels, the first one at `pixel` of the map.
    ///
    /// # Safety
    /// Nobody else may write these pixels of the channels.
    #[inline(always)]
    unsafe fn write_out<C: Turn>(
        &self,
        c: C,
        vector: usize,
        from: &[f32],
        pixel: usize,
        count: usize,
    ) {
        let second = &self.shapes.second;
        let first = self.block * UNIT_CHANNELS + vector * CHANNELS;
        let channels = (second.out_channels - first).min(CHANNELS);
        let plane = second.out_pixels();
        let start = (self.sample * second.out_channels + first) * plane + pixel;
        let mut values = [c.splat(0.0); TURNED];
        for (i, from) in from.chunks_exact(CHANNELS).enumerate().take(TURNED) {
            values[i] = c.read(from);
        }
        let turned = c.turn(values);
        for channel in 0..TURNED {
            // A bound that is known when compiling, or else the vectors live in memory.
            if channel < channels {
                // SAFETY: the pixels lie within the planes of these channels.
                unsafe {
                    let to = self.y.as_mut_ptr().add(start + channel * plane);
                    c.store_first(to, count, turned[channel]);
                }
            }
        }
    }
}

/// Copies what a row of the first convolution's output reads. The zeros at the ends of rows stay.
fn copy_rows(first: &ConvShape, layout: &InputRows, x: &[f32], out_row: usize, copy: &mut [f32]) {
    let [padding_y, padding_x] = first.padding;
    for (channel, to) in copy.chunks_exact_mut(layout.plane).enumerate() {
        for (tap, to) in to.chunks_exact_mut(layout.row).enumerate() {
            let to = &mut to[padding_x..padding_x + first.width];
            let row = (out_row * first.stride[0] + tap).wrapping_sub(padding_y);
            if row < first.height {
                let from = channel * first.in_pixels() + row * first.width;
                to.copy_from_slice(&x[from..from + first.width]);
            } else {
                to.fill(0.0);
            }
        }
    }
}

/// Outputs of a row, channels side by side, of K x K taps and stride STEP.
///
/// # Safety
/// Readable: at each place, as many pixels as `width` outputs meet; 16 floats of the bias. Writable: `width` pixels.
#[inline(always)]
unsafe fn depthwise_row<C: Channels, const K: usize, const STEP: usize>(
    c: C,
    (rows, places): (*const f32, &[usize; MAX_TAPS]),
    filter: &[f32],
    bias: *const f32,
    width: usize,
    to: *mut f32,
) {
    assert_eq!(filter.len(), K * K * CHANNELS);
    let weights = filter.as_ptr();
    // SAFETY: as the caller promises; weights are as long as asserted.
    unsafe {
        for_tiles!(C, width, |first, P| {
            let mut sums = [c.load(bias); P];
            for ky in 0..K {
                let row = rows.add(places[ky] + first * STEP * CHANNELS);
                for kx in 0..K {
                    let weight = c.load(weights.add((ky * K + kx) * CHANNELS));
                    for p in 0..P {
                        let pixel = c.load(row.add((p * STEP + kx) * CHANNELS));
                        sums[p] = c.mul_add(pixel, weight, sums[p]);
                    }
                }
            }
            for p in 0..P {
                c.store(to.add((first + p) * CHANNELS), sums[p]);
            }
        });
    }
}

/// Activates pixels in place.
///
/// # Safety
/// Readable and writable: as many pixels.
#[inline(always)]
unsafe fn activate<C: Channels>(c: C, activation: Activation, at: *mut f32, pixels: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        match activation {
            Activation::Identity => {}
            // Spelled out, so that their loops have no match inside.
            Activation::Relu => activate_by(c, Activation::Relu, at, pixels),
            Activation::Silu => activate_by(c, Activation::Silu, at, pixels),
            other => activate_by(c, other, at, pixels),
        }
    }
}

/// # Safety
/// As for [`activate`].
#[inline(always)]
unsafe fn activate_by<C: Channels>(c: C, activation: Activation, at: *mut f32, pixels: usize) {
    for pixel in 0..pixels {
        // SAFETY: the caller gives as many pixels.
        unsafe {
            let at = at.add(pixel * CHANNELS);
            c.store(at, activation.apply(c, c.load(at)));
        }
    }
}
