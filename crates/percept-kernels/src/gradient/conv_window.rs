//! What lies under one tap of a convolution's windows: a row of the matrix that weight gradients multiply dy with.

use std::ops::Range;

use crate::conv::ConvShape;
use crate::rows::take_every;
use crate::simd::Simd;

/// The inputs that one window position (channel and tap) has under some output pixels; zero outside the map.
#[inline(always)]
pub(super) fn gather_window<S: Simd>(
    s: S,
    shape: &ConvShape,
    map: &[f32],
    position: usize,
    pixels: Range<usize>,
    target: &mut [f32],
) {
    let (channel, tap) = (position / shape.taps(), position % shape.taps());
    let plane = &map[channel * shape.in_pixels()..][..shape.in_pixels()];
    let offset = [tap / shape.kernel[1], tap % shape.kernel[1]];
    let shift = [0, 1].map(|axis| offset[axis] * shape.dilation[axis]);
    let out_width = shape.out_width();
    let mut at = pixels.start;
    let mut target = target;
    while at < pixels.end {
        let (row, column) = (at / out_width, at % out_width);
        let count = (out_width - column).min(pixels.end - at);
        let (run, rest) = std::mem::take(&mut target).split_at_mut(count);
        target = rest;
        at += count;
        let input_row = (row * shape.stride[0] + shift[0]).checked_sub(shape.padding[0]);
        match input_row.filter(|&row| row < shape.height) {
            Some(row) => {
                let line = &plane[row * shape.width..][..shape.width];
                gather_line(s, shape, line, column, shift[1], run);
            }
            None => run.fill(0.0),
        }
    }
}

/// line[j · stride + shift - padding] for the output columns j from `column` on.
#[inline(always)]
fn gather_line<S: Simd>(
    s: S,
    shape: &ConvShape,
    line: &[f32],
    column: usize,
    shift: usize,
    run: &mut [f32],
) {
    let (stride, padding) = (shape.stride[1], shape.padding[1]);
    // The first j with j · stride + shift >= padding, and the first with j · stride + shift >= padding + width.
    let enter = padding.saturating_sub(shift).div_ceil(stride);
    let leave = (padding + line.len())
        .saturating_sub(shift)
        .div_ceil(stride);
    let end = column + run.len();
    let enter = enter.clamp(column, end);
    let leave = leave.clamp(enter, end);
    run[..enter - column].fill(0.0);
    run[leave - column..].fill(0.0);
    let inside = &mut run[enter - column..leave - column];
    if inside.is_empty() {
        return;
    }
    take_every(s, &line[enter * stride + shift - padding..], stride, inside);
}
