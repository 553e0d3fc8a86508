//! Gathering the pixels of a convolution with vectors of 512 bits, to the layout of [`PanelPlan`](crate::conv::gather::PanelPlan).
//!
//! What a vector of a panel reads is some pieces of rows of the input, the same in every quad of channels: each is a load under a
//! mask, which reads nothing outside of the map, and leaves zeros there.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::conv::ConvShape;

const LANES: usize = 16;

/// The pieces of a panel's vectors, in the order of their depth.
#[derive(Default)]
pub(super) struct Pieces {
    pieces: Vec<Piece>,
    runs: Vec<Run>,
    /// What each run reads under each column of the kernel.
    columns: Vec<Columns>,
    /// Quads from one tap of the panel to the next.
    width: usize,
}

struct Piece {
    /// Where lane 0 would be read, from the first quad of the panel's group on; where that is not the map's, the lane is masked.
    from: isize,
    /// What is read: a bit for each quad from there on, every second one with a stride of 2.
    reads: u32,
    /// Where the vector goes within the taps of a quad, when this is its last piece.
    to: Option<u32>,
}

/// What a run reads of a row of the map.
#[derive(Clone, Copy)]
struct Columns {
    /// From the row's first quad to where lane 0 would be read.
    from: isize,
    reads: u32,
}

/// Output pixels side by side in one row, all in one vector of the panel.
struct Run {
    /// The vector's first pixel within the panel.
    vector: usize,
    lane: usize,
    len: usize,
    /// Where the first of its sample's numbers lie.
    sample: usize,
    /// What its first pixel reads under the first tap, counted from the start of the padding.
    row: usize,
    column: usize,
    /// Whether its vector ends with it.
    is_last: bool,
}

impl Pieces {
    /// Whether pixels can be read in this way, and so many quads that planning pays.
    pub(super) fn supports(shape: &ConvShape) -> bool {
        shape.stride[1] <= 2 && shape.in_channels >= 8 * shape.groups
    }

    /// Those of some output pixels, numbered over all samples, of a convolution whose channels are quads.
    pub(super) fn set(&mut self, shape: &ConvShape, pixels: Range<usize>) {
        self.width = pixels.len().next_multiple_of(8);
        self.set_runs(shape, pixels);
        self.columns.clear();
        for tap in 0..shape.kernel[1] {
            let tap = tap * shape.dilation[1];
            let columns = self.runs.iter().map(|run| run.columns(shape, tap));
            self.columns.extend(columns);
        }
        self.pieces.clear();
        for tap in 0..shape.kernel[0] {
            let first = tap * shape.kernel[1] * self.width;
            let tap = tap * shape.dilation[0];
            let columns = self.columns.chunks(self.runs.len().max(1));
            for (column, columns) in columns.enumerate() {
                let first = (first + column * self.width) as u32;
                let pieces = self.runs.iter().zip(columns);
                self.pieces.extend(pieces.map(|(run, columns)| Piece {
                    to: run.is_last.then_some(first + run.vector as u32),
                    ..run.piece(shape, tap, columns)
                }));
            }
        }
    }

    fn set_runs(&mut self, shape: &ConvShape, pixels: Range<usize>) {
        let (out_pixels, out_width) = (shape.out_pixels(), shape.out_width());
        self.runs.clear();
        let mut done = 0;
        while done < pixels.len() {
            let (pixel, lane) = (pixels.start + done, done % LANES);
            let (sample, within) = (pixel / out_pixels, pixel % out_pixels);
            let (row, column) = (within / out_width, within % out_width);
            let len = (out_width - column)
                .min(LANES - lane)
                .min(pixels.len() - done);
            done += len;
            self.runs.push(Run {
                vector: done - len - lane,
                is_last: done.is_multiple_of(LANES) || done == pixels.len(),
                lane,
                len,
                sample: sample * shape.in_channels * shape.in_pixels(),
                row: row * shape.stride[0],
                column: column * shape.stride[1],
            });
        }
    }

    /// Gathers some quads of channels of the input, with 128 added to each byte if asked for.
    ///
    /// # Safety
    /// This CPU must have AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn gather(
        &self,
        shape: &ConvShape,
        x: &[f32],
        quads: Range<usize>,
        lifts: bool,
        target: &mut [f32],
    ) {
        let (taps, in_pixels) = (shape.taps() * self.width, shape.in_pixels());
        assert!(
            x.len() >= shape.batch * shape.in_channels * in_pixels
                && quads.end <= shape.in_channels
        );
        assert!(
            target.len() >= quads.len() * taps + LANES,
            "a last vector reaches over the end"
        );
        let lift = _mm512_set1_epi32(if lifts { 0x8080_8080_u32 as i32 } else { 0 });
        for (index, quad) in quads.enumerate() {
            let from = x.as_ptr().wrapping_add(quad * in_pixels);
            let to = target[index * taps..].as_mut_ptr();
            // SAFETY: pieces lie in the map of a quad, and vectors within its taps and 16 quads more, as asserted above.
            unsafe {
                match shape.stride[1] {
                    1 => self.gather_quad::<1>(from, lift, to),
                    _ => self.gather_quad::<2>(from, lift, to),
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn gather_quad<const STRIDE: usize>(
        &self,
        x: *const f32,
        lift: __m512i,
        target: *mut f32,
    ) {
        let evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let mut vector = lift;
        for piece in &self.pieces {
            let from = x.wrapping_offset(piece.from).cast::<i32>();
            // SAFETY: passed on from the caller; nothing outside of the masks is read.
            let read = unsafe {
                match STRIDE {
                    1 => _mm512_maskz_loadu_epi32(piece.reads as __mmask16, from),
                    _ => {
                        let low = _mm512_maskz_loadu_epi32(piece.reads as __mmask16, from);
                        let high = from.wrapping_add(LANES);
                        let reads = (piece.reads >> LANES) as __mmask16;
                        let high = _mm512_maskz_loadu_epi32(reads, high);
                        _mm512_permutex2var_epi32(low, evens, high)
                    }
                }
            };
            // Other lanes of what was read are zero.
            vector = _mm512_xor_si512(vector, read);
            if let Some(to) = piece.to {
                // SAFETY: passed on from the caller.
                unsafe { _mm512_storeu_si512(target.add(to as usize).cast(), vector) };
                vector = lift;
            }
        }
    }
}

impl Run {
    /// What it reads of a row under a tap so far to the right.
    fn columns(&self, shape: &ConvShape, tap: usize) -> Columns {
        let (column, left, stride) = (self.column + tap, shape.padding[1], shape.stride[1]);
        // Pixels that lie before a column.
        let before = |end: usize| end.saturating_sub(column).div_ceil(stride).min(self.len);
        let (start, end) = (before(left), before(left + shape.width));
        let lanes = ((1u32 << end) - (1 << start)) << self.lane;
        Columns {
            from: column as isize - (self.lane * stride + left) as isize,
            reads: if stride == 1 {
                lanes
            } else {
                spread(lanes as u16)
            },
        }
    }

    /// What it reads under a tap so far down.
    #[inline(always)]
    fn piece(&self, shape: &ConvShape, tap: usize, columns: &Columns) -> Piece {
        let (row, above) = (self.row + tap, shape.padding[0]);
        match row >= above && row - above < shape.height {
            true => Piece {
                from: (self.sample + (row - above) * shape.width) as isize + columns.from,
                reads: columns.reads,
                to: None,
            },
            false => Piece {
                from: 0,
                reads: 0,
                to: None,
            },
        }
    }
}

/// Bit i at place 2i.
#[inline]
fn spread(bits: u16) -> u32 {
    let mut spread = u32::from(bits);
    for (shift, mask) in [
        (8, 0x00ff_00ff),
        (4, 0x0f0f_0f0f),
        (2, 0x3333_3333),
        (1, 0x5555_5555),
    ] {
        spread = (spread | spread << shift) & mask;
    }
    spread
}
