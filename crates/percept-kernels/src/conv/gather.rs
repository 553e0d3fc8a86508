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
/// Under a kernel row, the pixels of a run read one input row, each tap a bit further on. With a stride, neighbouring
/// pixels take every so many columns: those that start `phase` columns into the row are one line, and a tap is a window of
/// the line of its phase. Lines carry the padding, so that the windows are plain copies.
#[derive(Debug, Default)]
pub(crate) struct PanelPlan {
    /// Where they go.
    pub(crate) pieces: Vec<Piece>,
    runs: Vec<Run>,
    /// One for each run and phase.
    lines: Vec<Line>,
    /// The lines of one channel, as `[kernel row][run][phase]`, each `line_len` long.
    buffer: Vec<f32>,
    line_len: usize,
    /// What makes the taps of a kernel row of its lines.
    moves: Vec<Move>,
    width: usize,
}

/// A vector to copy from the lines of a kernel row to its taps.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: usize,
    to: usize,
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

/// Which columns of an input row a line takes, and where among them they stand: before and behind there is padding.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: usize,
    len: usize,
    column: usize,
    has_padding: bool,
}

/// Distinct starting columns of the taps, up to whole strides.
fn phases(shape: &ConvShape) -> usize {
    shape.stride[1].min((shape.kernel[1] - 1) * shape.dilation[1] + 1)
}

impl PanelPlan {
    /// Plans the panel of these output pixels.
    pub(crate) fn set(&mut self, shape: &ConvShape, pixels: Range<usize>) {
        self.set_pieces(shape, pixels);
        let phases = phases(shape);
        let reach = (shape.kernel[1] - 1) * shape.dilation[1] / shape.stride[1];
        let longest = self.runs.iter().map(|run| run.len).max().unwrap_or(0) + reach;
        // Windows are copied in whole vectors, and so are lines.
        self.line_len = longest.next_multiple_of(LANES) + 2 * LANES;
        self.lines.clear();
        for run in &self.runs {
            self.lines
                .extend((0..phases).map(|phase| run.line(shape, phase, run.len + reach)));
        }
        let row_len = self.lines.len() * self.line_len;
        self.buffer.resize(shape.kernel[0] * row_len, 0.0);
        self.moves.clear();
        for kernel_column in 0..shape.kernel[1] {
            let column = kernel_column * shape.dilation[1];
            let (shift, phase) = (column / shape.stride[1], column % shape.stride[1]);
            for (index, run) in self.runs.iter().enumerate() {
                let from = (index * phases + phase) * self.line_len + shift;
                let to = kernel_column * self.width + run.column;
                self.moves
                    .extend((0..run.len).step_by(LANES).map(|at| Move {
                        from: from + at,
                        to: to + at,
                    }));
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
        &mut self,
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
            self.fill_lines(s, shape, x, scale, channel);
            self.copy_windows(s, shape, &mut target[index * channel_len..]);
        }
    }

    /// Gathers the lines of one channel.
    #[inline(always)]
    fn fill_lines<S: Simd>(
        &mut self,
        s: S,
        shape: &ConvShape,
        x: &[f32],
        scale: Option<&[f32]>,
        channel: usize,
    ) {
        let phases = phases(shape);
        let mut buffer = self.buffer.chunks_exact_mut(self.line_len);
        for kernel_row in 0..shape.kernel[0] {
            for (run, lines) in self.runs.iter().zip(self.lines.chunks_exact(phases)) {
                let plane = run.sample * shape.in_channels + channel;
                let row = (run.row * shape.stride[0] + kernel_row * shape.dilation[0])
                    .wrapping_sub(shape.padding[0]);
                let source: &[f32] = if row < shape.height {
                    &x[(plane * shape.height + row) * shape.width..]
                } else {
                    &[]
                };
                let factor = scale.map(|scale| scale[plane]);
                for (line, target) in lines.iter().zip(&mut buffer) {
                    line.gather(s, source, shape.stride[1], factor, target);
                }
            }
        }
    }

    /// Copies all taps of one channel from its lines.
    #[inline(always)]
    fn copy_windows<S: Simd>(&self, s: S, shape: &ConvShape, target: &mut [f32]) {
        assert!(target.len() >= shape.taps() * self.width + SLACK);
        let row_len = self.lines.len() * self.line_len;
        for kernel_row in 0..shape.kernel[0] {
            let lines = &self.buffer[kernel_row * row_len..][..row_len];
            let taps = &mut target[kernel_row * shape.kernel[1] * self.width..];
            let (lines, taps) = (lines.as_ptr(), taps.as_mut_ptr());
            for &Move { from, to } in &self.moves {
                // SAFETY: `set` made lines long enough for the windows of whole vectors. Runs are inside the rows of the
                // target; their last vectors reach at most SLACK further, and what they overwrite is packed later.
                unsafe { s.store(taps.add(to), s.load(lines.add(from))) };
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
    /// The line of `len` columns that starts `phase` columns after the first tap's.
    fn line(&self, shape: &ConvShape, phase: usize, len: usize) -> Line {
        let (stride, padding) = (shape.stride[1], shape.padding[1]);
        let first = self.first * stride + phase;
        let start = padding.saturating_sub(first).div_ceil(stride);
        let end = (shape.width + padding)
            .saturating_sub(first)
            .div_ceil(stride)
            .min(len);
        Line {
            start,
            len: end.saturating_sub(start),
            column: first + start * stride - padding,
            has_padding: start > 0 || end < len,
        }
    }
}

impl Line {
    /// Takes the line from an input row, which an empty `source` says is padding.
    #[inline(always)]
    fn gather<S: Simd>(
        self,
        s: S,
        source: &[f32],
        stride: usize,
        factor: Option<f32>,
        target: &mut [f32],
    ) {
        if self.has_padding || source.is_empty() {
            for vector in target.chunks_exact_mut(LANES) {
                s.write(vector, s.splat(0.0));
            }
        }
        if self.len == 0 || source.is_empty() {
            return;
        }
        let source = &source[self.column..];
        let whole = self.len.next_multiple_of(LANES);
        assert!(source.len() > (self.len - 1) * stride && target.len() >= self.start + whole);
        // Without padding behind them, the lanes past the end may hold anything.
        let last = if self.has_padding || source.len() < whole * stride {
            self.len
        } else {
            whole
        };
        for done in (0..last).step_by(LANES) {
            let n = (last - done).min(LANES);
            let at = done * stride;
            // SAFETY: source and target were checked above.
            unsafe {
                let p = source.as_ptr().add(at);
                let mut v = load_strided(s, p, stride, n, source.len() - at);
                if let Some(factor) = factor {
                    v = s.mul(v, s.splat(factor));
                }
                s.store(target.as_mut_ptr().add(self.start + done), v);
            }
        }
    }
}

/// `n` (1 to 8) floats, `stride` apart, and zeros, from `available` floats at `p`.
#[inline(always)]
unsafe fn load_strided<S: Simd>(
    s: S,
    p: *const f32,
    stride: usize,
    n: usize,
    available: usize,
) -> S::V {
    // SAFETY: the caller gives at least `(n - 1) * stride + 1` floats, and no more than `available` are touched.
    unsafe {
        match stride {
            1 if n == LANES => s.load(p),
            1 => s.load_first(p, n),
            2 if n == LANES && available >= 2 * LANES => s.evens(s.load(p), s.load(p.add(LANES))),
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
