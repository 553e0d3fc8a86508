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
    /// Output columns.
    pub(super) width: usize,
}

impl Rows<'_> {
    /// Writes the rows to the front of `y`, the rest of the plane. What follows them may be overwritten.
    ///
    /// K x K kernels with a stride of STEP are unrolled; `K = 0` stands for any other.
    #[inline(always)]
    pub(super) fn convolve<S: Simd, const K: usize, const STEP: usize>(&self, s: S, y: &mut [f32]) {
        assert!(self.band.len() >= self.layout.len(self.shape));
        if K == 0 {
            return self.any_kernel(s, y);
        }
        assert_eq!(self.weight.len(), K * K);
        // From right to left and from top to bottom: a vector stored over a row's end only touches what is stored later.
        for column in (0..self.width).step_by(COLUMNS).rev() {
            // SAFETY: blocks start at rows of the band and columns of the map.
            unsafe {
                // Both ways have eight sums in flight.
                if self.width - column > LANES {
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

    #[inline(always)]
    fn any_kernel<S: Simd>(&self, s: S, y: &mut [f32]) {
        for row in 0..self.count {
            for column in (0..self.width).step_by(LANES) {
                let mut sum = s.splat(self.bias);
                for (tap, &weight) in self.weight.iter().enumerate() {
                    let tap = [tap / self.shape.kernel[1], tap % self.shape.kernel[1]];
                    let offset = self.layout.tap_offset(self.shape, tap);
                    let start = row * self.shape.stride[0] * self.layout.row_len + column + offset;
                    sum = s.mul_add(s.splat(weight), s.read(&self.band[start..]), sum);
                }
                let start = row * self.width + column;
                let end = (start + LANES).min((row + 1) * self.width);
                s.write(&mut y[start..end], sum);
            }
        }
    }

    /// ROWS rows by VECTORS vectors of outputs: each input vector is loaded once and used for every row it reaches.
    ///
    /// # Safety
    /// The band holds `count` rows and `SPARE_ROWS` more for this kernel and stride, there are K * K weights, and `row`
    /// and `column` lie within the map.
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
        let (weight, row_len, pitch) =
            (self.weight.as_ptr(), self.layout.row_len, self.layout.pitch);
        // SAFETY: `row + ROWS` is at most SPARE_ROWS past the band's rows, which it has room for; rows are wide enough for
        // whole vectors from any column and tap.
        unsafe {
            let band = self.band.as_ptr().add(row * STEP * row_len + column);
            // Each output row meets one input row of each remainder by K, so all sums grow side by side and none waits
            // for itself. Macros, because the compiler would not unroll loops of this size, and then keep no sum in a
            // register.
            macro_rules! input_rows {
                ($r:literal $x:literal: $($m:literal)*) => {$(
                    let i = $r + $m * K;
                    if i < (ROWS - 1) * STEP + K {
                        let from = band.add(i * row_len + $x % STEP * pitch + $x / STEP);
                        let mut inputs = [s.splat(0.0); VECTORS];
                        for v in 0..VECTORS {
                            inputs[v] = s.load(from.add(v * LANES));
                        }
                        for o in 0..ROWS {
                            if i >= o * STEP && i < o * STEP + K {
                                let weight = s.splat(*weight.add((i - o * STEP) * K + $x));
                                for v in 0..VECTORS {
                                    // Settled, or else the compiler takes the sums one after the other.
                                    sums[o][v] = s.settle(s.mul_add(weight, inputs[v], sums[o][v]));
                                }
                            }
                        }
                    }
                )*};
            }
            macro_rules! taps {
                ($r:literal: $($x:literal)*) => {$(
                    if $x < K {
                        input_rows!($r $x: 0 1 2 3 4 5);
                    }
                )*};
            }
            taps!(0: 0 1 2 3 4);
            taps!(1: 0 1 2 3 4);
            taps!(2: 0 1 2 3 4);
            if K > 3 {
                taps!(3: 0 1 2 3 4);
                taps!(4: 0 1 2 3 4);
            }
        }
        for o in 0..ROWS {
            // A bound that is known when compiling, or else the sums live in memory.
            if row + o >= self.count {
                break;
            }
            for v in 0..VECTORS {
                s.write(
                    &mut y[(row + o) * self.width + column + v * LANES..],
                    sums[o][v],
                );
            }
        }
    }
}
