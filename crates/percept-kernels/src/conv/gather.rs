//! Packing the input of a convolution into panels for the matrix product, straight from NCHW.
//!
//! Output pixels are numbered linearly over the batch, so panels cut across rows and samples and small maps fill
//! them too. Depth runs over (channel, kernel row, kernel column).

use std::ops::Range;

use super::shape::ConvShape;
use crate::gemm::product::Piece;
use crate::simd::{LANES, Simd, prefetch_read};

/// Floats past a packed panel that [`PanelPlan::pack`] may overwrite.
pub(crate) const SLACK: usize = LANES;

/// How many planes ahead of packing to fetch.
const PLANES_AHEAD: usize = 8;

/// Where the pixels of one panel come from and go to.
///
/// Under a kernel row, the pixels of a run read one input row, each tap a bit further on. Vectors are read there in place, over
/// the row's ends too; what belongs to the padding is cleared afterwards.
#[derive(Debug, Default)]
pub(crate) struct PanelPlan {
    /// Where they go.
    pub(crate) pieces: Vec<Piece>,
    runs: Vec<Run>,
    /// One for each kernel column and run.
    taps: Vec<Tap>,
    width: usize,
}

/// A run of output pixels in one row.
#[derive(Clone, Copy, Debug)]
struct Run {
    column: usize,
    len: usize,
    sample: usize,
    row: usize,
    first: usize,
}

/// What a run reads under a kernel column.
#[derive(Clone, Copy, Debug)]
struct Tap {
    /// The input row under the first kernel row; one above the map wraps around.
    row: usize,
    /// Where the first pixel reads the first channel in that row; in the padding, that is another row or nowhere.
    from: usize,
    /// Where it goes within the taps of the kernel row.
    to: usize,
    len: usize,
    /// Pixels before those that read the map, and the first one behind them.
    start: usize,
    end: usize,
    /// The first channel's number over all samples.
    plane: usize,
}

impl PanelPlan {
    /// Plans the panel of these output pixels.
    pub(crate) fn set(&mut self, shape: &ConvShape, pixels: Range<usize>) {
        self.set_pieces(shape, pixels);
        self.taps.clear();
        for kernel_column in 0..shape.kernel[1] {
            let to = kernel_column * self.width;
            let taps = self
                .runs
                .iter()
                .map(|run| run.tap(shape, kernel_column, to));
            self.taps.extend(taps);
        }
    }

    /// Plans only where these pixels go.
    pub(crate) fn set_pieces(&mut self, shape: &ConvShape, pixels: Range<usize>) {
        self.width = pixels.len().next_multiple_of(LANES);
        self.pieces.clear();
        self.runs.clear();
        let (out_pixels, out_width) = (shape.out_pixels(), shape.out_width());
        let mut pixel = pixels.start;
        while pixel < pixels.end {
            let (sample, within) = (pixel / out_pixels, pixel % out_pixels);
            let (row, first) = (within / out_width, within % out_width);
            let (column, len) = (
                pixel - pixels.start,
                (out_width - first).min(pixels.end - pixel),
            );
            self.runs.push(Run {
                column,
                len,
                sample,
                row,
                first,
            });
            match self.pieces.last_mut() {
                Some(piece) if within > 0 => piece.len += len,
                _ => {
                    let offset = sample * shape.out_channels * out_pixels + within;
                    self.pieces.push(Piece {
                        column,
                        len,
                        offset,
                    });
                }
            }
            pixel += len;
        }
    }

    /// Packs `channels` (counted over all groups) as `[channel][tap][width]`. `scale` holds a factor for each
    /// (sample, channel).
    ///
    /// `target` must have room for that and for [`SLACK`] more, which are overwritten.
    #[inline(always)]
    pub(crate) fn pack<S: Simd>(
        &self,
        s: S,
        shape: &ConvShape,
        x: &[f32],
        scale: Option<&[f32]>,
        channels: Range<usize>,
        target: &mut [f32],
    ) {
        let channel_len = shape.taps() * self.width;
        assert!(target.len() >= channels.len() * channel_len + SLACK);
        let in_pixels = shape.in_pixels();
        if let [run] = self.runs[..]
            && shape.taps() == 1
            && shape.stride == [1, 1]
            && shape.padding == [0, 0]
            && run.len == self.width
        {
            let first = run.sample * shape.in_channels;
            let planes = first + channels.start..first + channels.end;
            let offset = run.row * shape.width + run.first;
            let x = &x[..planes.end * in_pixels];
            return pack_whole(s, x, in_pixels, offset, planes, scale, self.width, target);
        }
        for (index, channel) in channels.enumerate() {
            let target = &mut target[index * channel_len..][..channel_len + SLACK];
            // Spelled out, so that the loops over the common strides are short.
            match shape.stride[1] {
                1 => self.pack_channel::<S, 1>(s, shape, x, scale, channel, target),
                2 => self.pack_channel::<S, 2>(s, shape, x, scale, channel, target),
                _ => self.pack_channel::<S, 0>(s, shape, x, scale, channel, target),
            }
        }
    }

    /// Packs all taps of one channel. A `STRIDE` of 0 is any.
    #[inline(always)]
    fn pack_channel<S: Simd, const STRIDE: usize>(
        &self,
        s: S,
        shape: &ConvShape,
        x: &[f32],
        scale: Option<&[f32]>,
        channel: usize,
        target: &mut [f32],
    ) {
        for kernel_row in 0..shape.kernel[0] {
            let down = kernel_row * shape.dilation[0];
            let offset = channel * shape.in_pixels() + down * shape.width;
            let target = &mut target[kernel_row * shape.kernel[1] * self.width..];
            for tap in &self.taps {
                // The last vector reaches at most SLACK further than the run; what it overwrites is packed later.
                let target = &mut target[tap.to..][..tap.len.next_multiple_of(LANES)];
                if tap.row.wrapping_add(down) >= shape.height {
                    target.fill(0.0);
                    continue;
                }
                let start = tap.from.wrapping_add(offset);
                let factor = scale.map(|scale| scale[tap.plane + channel]);
                read_strided::<S, STRIDE>(s, x, start, shape.stride[1], factor, target);
                if tap.start > 0 {
                    target[..tap.start].fill(0.0);
                }
                if tap.end < tap.len {
                    target[tap.end..tap.len].fill(0.0);
                }
            }
        }
    }
}

/// Packs a panel whose pixels, whole vectors of them, lie side by side in each plane.
#[inline(always)]
fn pack_whole<S: Simd>(
    s: S,
    x: &[f32],
    in_pixels: usize,
    offset: usize,
    planes: Range<usize>,
    scale: Option<&[f32]>,
    width: usize,
    target: &mut [f32],
) {
    for (plane, target) in planes.zip(target.chunks_exact_mut(width)) {
        let source = &x[plane * in_pixels + offset..][..width];
        for line in [0, width - 1] {
            prefetch_read(
                source
                    .as_ptr()
                    .wrapping_add(PLANES_AHEAD * in_pixels + line),
            );
        }
        for vector in (0..width).step_by(LANES) {
            let mut v = s.read(&source[vector..]);
            if let Some(scale) = scale {
                v = s.mul(v, s.splat(scale[plane]));
            }
            s.write(&mut target[vector..], v);
        }
    }
}

impl Run {
    fn tap(&self, shape: &ConvShape, kernel_column: usize, to: usize) -> Tap {
        let (stride, padding) = (shape.stride[1], shape.padding[1]);
        let plane = self.sample * shape.in_channels;
        let row = (self.row * shape.stride[0]).wrapping_sub(shape.padding[0]);
        let column = self.first * stride + kernel_column * shape.dilation[1];
        let first = (plane * shape.height).wrapping_add(row);
        let end = (shape.width + padding)
            .saturating_sub(column)
            .div_ceil(stride);
        let end = end.min(self.len);
        Tap {
            row,
            from: first
                .wrapping_mul(shape.width)
                .wrapping_add(column)
                .wrapping_sub(padding),
            to: to + self.column,
            len: self.len,
            start: padding.saturating_sub(column).div_ceil(stride).min(end),
            end,
            plane,
        }
    }
}

/// Fills whole vectors with floats `stride` apart, the first at `start`; those that are not in `x` are 0.
#[inline(always)]
pub(super) fn read_strided<S: Simd, const STRIDE: usize>(
    s: S,
    x: &[f32],
    start: usize,
    stride: usize,
    factor: Option<f32>,
    target: &mut [f32],
) {
    let inside = start < x.len() && STRIDE * target.len() <= x.len() - start;
    if STRIDE == 0 || !inside {
        for (index, value) in target.iter_mut().enumerate() {
            let read = x.get(start.wrapping_add(index * stride)).copied();
            *value = read.unwrap_or(0.0) * factor.unwrap_or(1.0);
        }
        return;
    }
    for at in (0..target.len()).step_by(LANES) {
        // SAFETY: `x` has `STRIDE` floats for each of the target, which are whole vectors.
        unsafe {
            let from = x.as_ptr().add(start + at * STRIDE);
            let mut v = s.load(from);
            if STRIDE == 2 {
                v = s.evens(v, s.load(from.add(LANES)));
            }
            if let Some(factor) = factor {
                v = s.mul(v, s.splat(factor));
            }
            s.store(target.as_mut_ptr().add(at), v);
        }
    }
}

/// The part of each channel of the first sample that a run of output pixels reads: its offset and length.
pub(crate) fn input_span(shape: &ConvShape, pixels: &Range<usize>) -> (usize, usize) {
    let out_pixels = shape.out_pixels();
    let sample = pixels.start / out_pixels;
    let first = pixels.start % out_pixels;
    let last = (pixels.end - 1 - sample * out_pixels).min(out_pixels - 1);
    let at = |pixel: usize, tap: [usize; 2]| {
        let position = |axis: usize, out: usize, size: usize| {
            (out * shape.stride[axis] + tap[axis] * shape.dilation[axis])
                .saturating_sub(shape.padding[axis])
                .min(size.saturating_sub(1))
        };
        let row = position(0, pixel / shape.out_width(), shape.height);
        row * shape.width + position(1, pixel % shape.out_width(), shape.width)
    };
    let start = at(first, [0, 0]);
    let end = at(last, [shape.kernel[0] - 1, shape.kernel[1] - 1]);
    let plane = sample * shape.in_channels * shape.in_pixels();
    (plane + start, end.saturating_sub(start) + 1)
}
