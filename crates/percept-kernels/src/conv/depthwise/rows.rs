//! The convolution of a band's rows.

use super::band::{BandLayout, COLUMNS};
use crate::conv::ConvShape;
use crate::simd::{LANES, Simd};

/// Output rows of a plane that lie in one band.
pub(super) struct Rows<'a> {
    pub(super) shape: &'a ConvShape,
    pub(super) layout: &'a BandLayout,
    pub(super) weight: &'a [f32],
    pub(super) bias: f32,
    pub(super) band: &'a [f32],
    pub(super) count: usize,
}

impl Rows<'_> {
    /// Writes the rows to the front of `y`, the rest of the plane. What follows them may be overwritten.
    #[inline(always)]
    pub(super) fn convolve<S: Simd>(&self, s: S, y: &mut [f32]) {
        assert!(self.band.len() >= self.layout.len(self.shape));
        let shape = self.shape;
        // SAFETY: the band was made by this layout, for these rows and `SPARE_ROWS` more.
        unsafe {
            match (shape.kernel, shape.stride, shape.dilation) {
                ([3, 3], [1, 1], [1, 1]) => self.unrolled::<S, 3, 1>(s, y),
                ([3, 3], [2, 2], [1, 1]) => self.unrolled::<S, 3, 2>(s, y),
                ([5, 5], [1, 1], [1, 1]) => self.unrolled::<S, 5, 1>(s, y),
                ([5, 5], [2, 2], [1, 1]) => self.unrolled::<S, 5, 2>(s, y),
                _ => self.any_kernel(s, y),
            }
        }
    }

    /// # Safety
    /// The band holds the rows and `SPARE_ROWS` more.
    #[inline(always)]
    unsafe fn any_kernel<S: Simd>(&self, s: S, y: &mut [f32]) {
        let width = self.shape.out_width();
        for row in 0..self.count {
            for column in (0..width).step_by(LANES) {
                let mut sum = s.splat(self.bias);
                for (tap, &weight) in self.weight.iter().enumerate() {
                    let tap = [tap / self.shape.kernel[1], tap % self.shape.kernel[1]];
                    let offset = self.layout.tap_offset(self.shape, tap);
                    let start = row * self.shape.stride[0] * self.layout.row_len + column + offset;
                    sum = s.mul_add(s.splat(weight), s.read(&self.band[start..]), sum);
                }
                let end = (row * width + column + LANES).min((row + 1) * width);
                s.write(&mut y[row * width + column..end], sum);
            }
        }
    }

    /// Kernels of K x K taps with a stride of STEP: columns from right to left, rows from top to bottom, so that a vector
    /// stored over a row's end only touches what is stored later.
    ///
    /// # Safety
    /// The band holds the rows and `SPARE_ROWS` more, and the shape has this kernel and stride.
    #[inline(always)]
    unsafe fn unrolled<S: Simd, const K: usize, const STEP: usize>(&self, s: S, y: &mut [f32]) {
        let width = self.shape.out_width();
        for column in (0..width).step_by(COLUMNS).rev() {
            // SAFETY: blocks start at rows of the band and columns of the map.
            unsafe {
                // Both ways have eight sums in flight.
                if width - column > LANES {
                    for row in (0..self.count).step_by(4) {
                        self.block::<S, K, STEP, 4, 2>(s, row, column, y);
                    }
                } else {
                    for row in (0..self.count).step_by(8) {
                        self.block::<S, K, STEP, 8, 1>(s, row, column, y);
                    }
                }
            }
        }
    }

    /// ROWS rows by VECTORS vectors of outputs: each input vector is loaded once and used for every row it reaches.
    ///
    /// # Safety
    /// As for [`Rows::unrolled`]; `row` and `column` lie within the map.
    #[inline(always)]
    unsafe fn block<
        S: Simd,
        const K: usize,
        const STEP: usize,
        const ROWS: usize,
        const VECTORS: usize,
    >(
        &self,
        s: S,
        row: usize,
        column: usize,
        y: &mut [f32],
    ) {
        let mut sums = [[s.splat(self.bias); VECTORS]; ROWS];
        let weight = &self.weight[..K * K];
        // SAFETY: `row + ROWS` is at most SPARE_ROWS past the band's rows, which it has room for; rows are wide enough for
        // whole vectors from any column and tap.
        unsafe {
            let band = self
                .band
                .as_ptr()
                .add(row * STEP * self.layout.row_len + column);
            // A macro, because the compiler would not unroll a loop of this size, and then keep no sum in a register.
            macro_rules! input_rows {
                ($($i:literal)*) => {$(
                    if $i < (ROWS - 1) * STEP + K {
                        for x in 0..K {
                            let from = band.add($i * self.layout.row_len + x % STEP * self.layout.pitch + x / STEP);
                            let mut inputs = [s.splat(0.0); VECTORS];
                            for v in 0..VECTORS {
                                inputs[v] = s.load(from.add(v * LANES));
                            }
                            for o in 0..ROWS {
                                if $i >= o * STEP && $i < o * STEP + K {
                                    let weight = s.splat(weight[($i - o * STEP) * K + x]);
                                    for v in 0..VECTORS {
                                        sums[o][v] = s.mul_add(weight, inputs[v], sums[o][v]);
                                    }
                                }
                            }
                        }
                    }
                )*};
            }
            input_rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
        }
        let width = self.shape.out_width();
        for o in 0..ROWS {
            for v in 0..VECTORS {
                let start = (row + o) * width + column + v * LANES;
                if row + o < self.count {
                    s.write(&mut y[start..], sums[o][v]);
                }
            }
        }
    }
}
