//! A band of input rows in scratch memory: padded with zeros and sorted by column phase, so that kernels neither test for
//! borders nor stride.

use crate::conv::ConvShape;
use crate::simd::{LANES, Simd};

/// Output rows that a kernel may compute beyond the band's last one.
pub(super) const SPARE_ROWS: usize = 7;
/// Output columns that a kernel computes together.
pub(super) const COLUMNS: usize = 2 * LANES;

/// How a band lies in memory: [padded row][column % stride][column / stride].
#[derive(Clone, Copy)]
pub(super) struct BandLayout {
    /// Output rows of a band.
    pub(super) out_rows: usize,
    /// Floats of a phase of a row.
    pub(super) pitch: usize,
    /// Floats of a row.
    pub(super) row_len: usize,
}

impl BandLayout {
    pub(super) fn new(shape: &ConvShape) -> Self {
        /// Half of the first-level cache: a band is read right after it is written.
        const BAND_FLOATS: usize = 16 * 1024 / size_of::<f32>();
        let [_, stride] = shape.stride;
        let reach = (shape.kernel[1] - 1) * shape.dilation[1] / stride;
        let held = (shape.width + shape.padding[1]).div_ceil(stride) + 2 * LANES;
        let pitch = (shape.out_width().next_multiple_of(COLUMNS) + reach)
            .max(held)
            .next_multiple_of(LANES);
        let row_len = stride * pitch;
        let out_rows =
            (BAND_FLOATS / (row_len * shape.stride[0])).clamp(8, shape.out_height().max(8));
        Self {
            out_rows,
            pitch,
            row_len,
        }
    }

    /// Offset of a tap's first column from the start of its output row.
    pub(super) fn tap_offset(&self, shape: &ConvShape, [y, x]: [usize; 2]) -> usize {
        let column = x * shape.dilation[1];
        let stride = shape.stride[1];
        y * shape.dilation[0] * self.row_len + column % stride * self.pitch + column / stride
    }

    fn in_rows(&self, shape: &ConvShape, out_rows: usize) -> usize {
        (out_rows - 1) * shape.stride[0] + (shape.kernel[0] - 1) * shape.dilation[0] + 1
    }

    pub(super) fn len(&self, shape: &ConvShape) -> usize {
        self.in_rows(shape, self.out_rows + SPARE_ROWS) * self.row_len
    }

    /// Copies what the output rows from `first_row` on need of a plane. The band must be all zeros the first time; its
    /// padding columns then stay so.
    #[inline(always)]
    pub(super) fn fill<S: Simd>(
        &self,
        s: S,
        shape: &ConvShape,
        plane: &[f32],
        first_row: usize,
        out_rows: usize,
        band: &mut [f32],
    ) {
        let rows = band
            .chunks_exact_mut(self.row_len)
            .take(self.in_rows(shape, out_rows));
        for (index, to) in rows.enumerate() {
            let padded = first_row * shape.stride[0] + index;
            let row = padded.wrapping_sub(shape.padding[0]);
            if row < shape.height {
                self.fill_row(
                    s,
                    shape,
                    &plane[row * shape.width..(row + 1) * shape.width],
                    to,
                );
            } else {
                to.fill(0.0);
            }
        }
    }

    #[inline(always)]
    fn fill_row<S: Simd>(&self, s: S, shape: &ConvShape, from: &[f32], to: &mut [f32]) {
        let [_, padding] = shape.padding;
        match shape.stride[1] {
            1 => {
                let to = to[padding..].chunks_exact_mut(LANES);
                for (from, to) in from.chunks(LANES).zip(to) {
                    s.write(to, s.read(from));
                }
            }
            2 => {
                // Even input columns fall on the phase of the padding, odd ones on the other.
                let (first, second) = to.split_at_mut(self.pitch);
                let [even, odd] = if padding.is_multiple_of(2) {
                    [first, second]
                } else {
                    [second, first]
                };
                let mut even = even[padding / 2..].chunks_exact_mut(LANES);
                let mut odd = odd[padding.div_ceil(2)..].chunks_exact_mut(LANES);
                let parts = from.chunks_exact(2 * LANES);
                let rest = parts.remainder();
                for ((part, even), odd) in parts.zip(&mut even).zip(&mut odd) {
                    // SAFETY: parts have 16 floats.
                    let [evens, odds] = unsafe { s.load_split2(part.as_ptr()) };
                    s.write(even, evens);
                    s.write(odd, odds);
                }
                if let (false, Some(even), Some(odd)) = (rest.is_empty(), even.next(), odd.next()) {
                    let (low, high) = rest.split_at(rest.len().min(LANES));
                    let (low, high) = (s.read(low), s.read(high));
                    s.write(even, s.evens(low, high));
                    s.write(
                        odd,
                        s.evens(s.shift_down(low, 0.0), s.shift_down(high, 0.0)),
                    );
                }
            }
            stride => {
                for (column, &value) in from.iter().enumerate() {
                    let padded = column + padding;
                    to[padded % stride * self.pitch + padded / stride] = value;
                }
            }
        }
    }
}
