//! Packing the input of a convolution into panels for the matrix product, straight from NCHW.
//!
//! Output pixels are numbered linearly over the batch, so panels of 24 cut across rows and samples and small maps fill
//! them too. Depth runs over (channel, kernel row, kernel column).

use std::ops::Range;

use super::shape::ConvShape;
use crate::gemm::TILE_COLUMNS;
use crate::gemm::product::Piece;
use crate::simd::{LANES, Simd, prefetch_read};

/// Floats past a packed panel that [`PanelPlan::pack`] may overwrite.
pub(crate) const SLACK: usize = LANES;

/// How many planes ahead of packing to fetch.
const PLANES_AHEAD: usize = 8;

/// Where the pixels of one panel come from and go to.
#[derive(Debug, Default)]
pub(crate) struct PanelPlan {
    /// Where they go.
    pub(crate) pieces: Vec<Piece>,
    /// Where they come from: the copies of all kernel taps, one tap after the other.
    copies: Vec<Copy>,
    taps: Vec<Tap>,
    runs: Vec<Run>,
    width: usize,
}

/// Neighbouring pixels of a panel row that come from one input row.
#[derive(Clone, Copy, Debug)]
struct Copy {
    column: usize,
    len: usize,
    sample: usize,
    /// Offset of the first, within a channel of the sample.
    offset: usize,
}

#[derive(Clone, Debug)]
struct Tap {
    copies: Range<usize>,
    /// Whether some pixels are padding, which no copy writes.
    has_padding: bool,
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

impl PanelPlan {
    /// Plans the panel of these (at most 24) output pixels.
    pub(crate) fn set(&mut self, shape: &ConvShape, pixels: Range<usize>) {
        self.set_pieces(shape, pixels);
        self.copies.clear();
        self.taps.clear();
        for kernel_row in 0..shape.kernel[0] {
            for kernel_column in 0..shape.kernel[1] {
                let start = self.copies.len();
                self.copies.extend(
                    self.runs
                        .iter()
                        .filter_map(|run| run.copy(shape, kernel_row, kernel_column)),
                );
                let copied = self.copies[start..]
                    .iter()
                    .map(|copy| copy.len)
                    .sum::<usize>();
                self.taps.push(Tap {
                    copies: start..self.copies.len(),
                    has_padding: copied < self.width,
                });
            }
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
        assert!(target.len() >= channels.len() * self.taps.len() * self.width + SLACK);
        let in_pixels = shape.in_pixels();
        if let ([copy], 1) = (&self.copies[..], shape.stride[1])
            && self.taps.len() == 1
            && copy.len == TILE_COLUMNS
        {
            let planes = copy.sample * shape.in_channels + channels.start
                ..copy.sample * shape.in_channels + channels.end;
            return pack_whole(
                s,
                &x[..planes.end * in_pixels],
                in_pixels,
                copy.offset,
                planes,
                scale,
                target,
            );
        }
        let mut target = target.as_mut_ptr();
        for channel in channels {
            for tap in &self.taps {
                if tap.has_padding {
                    for vector in (0..self.width).step_by(LANES) {
                        // SAFETY: inside the row, which the target has room for.
                        unsafe { s.store(target.add(vector), s.splat(0.0)) };
                    }
                }
                for copy in &self.copies[tap.copies.clone()] {
                    let plane = copy.sample * shape.in_channels + channel;
                    let source = &x[plane * in_pixels + copy.offset..];
                    let factor = scale.map(|scale| scale[plane]);
                    // SAFETY: the columns are inside the row; a vector reaches at most SLACK further, and what it
                    // overwrites there is zero or packed later.
                    unsafe {
                        copy.run(s, shape.stride[1], source, factor, target.add(copy.column))
                    };
                }
                // SAFETY: at most the end of the asserted length.
                target = unsafe { target.add(self.width) };
            }
        }
    }
}

/// Packs a panel whose 24 pixels lie side by side in each plane.
#[inline(always)]
fn pack_whole<S: Simd>(
    s: S,
    x: &[f32],
    in_pixels: usize,
    offset: usize,
    planes: Range<usize>,
    scale: Option<&[f32]>,
    target: &mut [f32],
) {
    for (plane, target) in planes.zip(target.chunks_exact_mut(TILE_COLUMNS)) {
        let source = &x[plane * in_pixels + offset..][..TILE_COLUMNS];
        for line in [0, TILE_COLUMNS - 1] {
            prefetch_read(
                source
                    .as_ptr()
                    .wrapping_add(PLANES_AHEAD * in_pixels + line),
            );
        }
        for vector in (0..TILE_COLUMNS).step_by(LANES) {
            let mut v = s.read(&source[vector..]);
            if let Some(scale) = scale {
                v = s.mul(v, s.splat(scale[plane]));
            }
            s.write(&mut target[vector..], v);
        }
    }
}

impl Run {
    /// The part of the run that is not padding under one kernel tap.
    fn copy(&self, shape: &ConvShape, kernel_row: usize, kernel_column: usize) -> Option<Copy> {
        let (stride, padding) = (shape.stride[1], shape.padding[1]);
        let row = (self.row * shape.stride[0] + kernel_row * shape.dilation[0])
            .checked_sub(shape.padding[0])?;
        if row >= shape.height {
            return None;
        }
        let shift = kernel_column * shape.dilation[1];
        // The first and past-the-last output column whose input column `column * stride + shift - padding` exists.
        let low = padding
            .saturating_sub(shift)
            .div_ceil(stride)
            .max(self.first);
        let high = (shape.width + padding)
            .saturating_sub(shift)
            .div_ceil(stride)
            .min(self.first + self.len);
        (low < high).then(|| Copy {
            column: self.column + low - self.first,
            len: high - low,
            sample: self.sample,
            offset: row * shape.width + low * stride + shift - padding,
        })
    }
}

impl Copy {
    /// Copies to `target`, with zeros behind up to the next whole vector.
    #[inline(always)]
    unsafe fn run<S: Simd>(
        self,
        s: S,
        stride: usize,
        source: &[f32],
        factor: Option<f32>,
        target: *mut f32,
    ) {
        assert!(source.len() > (self.len - 1) * stride);
        let source = source.as_ptr();
        for done in (0..self.len).step_by(LANES) {
            let n = (self.len - done).min(LANES);
            // SAFETY: the source was checked above; the caller vouches for the target.
            unsafe {
                let mut v = load_strided(s, source.add(done * stride), stride, n);
                if let Some(factor) = factor {
                    v = s.mul(v, s.splat(factor));
                }
                s.store(target.add(done), v);
            }
        }
    }
}

/// `n` (1 to 8) floats, `stride` apart, and zeros.
#[inline(always)]
unsafe fn load_strided<S: Simd>(s: S, p: *const f32, stride: usize, n: usize) -> S::V {
    // SAFETY: the caller gives `(n - 1) * stride + 1` floats, and no more are touched.
    unsafe {
        match stride {
            1 if n == LANES => s.load(p),
            1 => s.load_first(p, n),
            2 => {
                let span = 2 * n - 1;
                let low = s.load_first(p, span.min(LANES));
                s.evens(
                    low,
                    s.load_first(p.wrapping_add(LANES), span.saturating_sub(LANES)),
                )
            }
            _ => {
                let mut lanes = [0.0; LANES];
                for lane in 0..n {
                    lanes[lane] = *p.add(lane * stride);
                }
                s.vector(lanes)
            }
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
