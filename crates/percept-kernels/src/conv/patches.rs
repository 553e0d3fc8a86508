//! The parts of a map that runs of output pixels read, copied so that every tap of every pixel is there: borders are zeros.

use std::ops::Range;

use super::gather::read_strided;
use super::shape::ConvShape;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// How the part of a map under a run of output rows lies in a copy: `[channel][row][column]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patches {
    shape: ConvShape,
    rows: usize,
    width: usize,
}

impl Patches {
    /// Of runs of at most `rows` output rows.
    pub(super) fn new(shape: &ConvShape, rows: usize) -> Patches {
        let reach = |outputs: usize, axis: usize| {
            (outputs - 1) * shape.stride[axis] + shape.dilation[axis] * (shape.kernel[axis] - 1) + 1
        };
        Patches {
            shape: *shape,
            rows: reach(rows, 0),
            width: reach(shape.out_width(), 1),
        }
    }

    /// Floats of a channel.
    pub(super) fn channel_len(&self) -> usize {
        self.rows * self.width
    }

    /// Floats of all channels.
    pub(super) fn len(&self) -> usize {
        self.shape.in_channels * self.channel_len()
    }

    /// Floats from an output row's pixels to the next one's.
    pub(super) fn row_stride(&self) -> usize {
        self.width * self.shape.stride[0]
    }

    /// Where the taps of a pixel lie, for each channel.
    pub(super) fn offsets(&self) -> Vec<usize> {
        let [down, right] = self.shape.dilation;
        let mut offsets = Vec::with_capacity(self.shape.in_channels * self.shape.taps());
        for channel in 0..self.shape.in_channels {
            for row in 0..self.shape.kernel[0] {
                let row = channel * self.channel_len() + row * down * self.width;
                offsets.extend((0..self.shape.kernel[1]).map(|column| row + column * right));
            }
        }
        offsets
    }
}

/// Copies what outputs of a sample read.
#[derive(Clone, Copy)]
pub(super) struct CopyPatch<'a> {
    pub(super) patches: &'a Patches,
    /// The sample's.
    pub(super) x: &'a [f32],
    pub(super) scale: Option<&'a [f32]>,
}

impl<'a> CopyPatch<'a> {
    /// Copies these channels of what output rows from `first_row` on read.
    pub(super) fn of(
        self,
        first_row: usize,
        channels: Range<usize>,
        to: &'a mut [f32],
    ) -> CopyChannels<'a> {
        CopyChannels {
            copy: self,
            first_row,
            channels,
            to,
        }
    }
}

pub(super) struct CopyChannels<'a> {
    copy: CopyPatch<'a>,
    first_row: usize,
    channels: Range<usize>,
    to: &'a mut [f32],
}

impl Kernel for CopyChannels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let CopyPatch { patches, x, scale } = self.copy;
        let Patches { shape, rows, width } = *patches;
        let [above, left] = [shape.padding[0], shape.padding[1].min(width)];
        let len = (width - left).min(shape.width);
        let mut rest = self.to;
        for channel in self.channels {
            let factor = scale.map(|scale| scale[channel]);
            for row in 0..rows {
                let source = (self.first_row * shape.stride[0] + row).wrapping_sub(above);
                if source < shape.height {
                    let start = (channel * shape.height + source) * shape.width;
                    let vectors = len.next_multiple_of(LANES);
                    if left + vectors <= rest.len() {
                        // The last vector reaches into the next row, which is copied later.
                        let to = &mut rest[left..left + vectors];
                        read_strided::<S, 1>(s, x, start, 1, factor, to);
                    } else {
                        let to = &mut rest[left..left + len];
                        read_strided::<S, 0>(s, x, start, 1, factor, to);
                    }
                    rest[..left].fill(0.0);
                    rest[left + len..width].fill(0.0);
                } else {
                    rest[..width].fill(0.0);
                }
                rest = &mut rest[width..];
            }
        }
    }
}
