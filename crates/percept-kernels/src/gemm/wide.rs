//! Proof of AVX-512, and products of rows that lie anywhere with 16 columns.
//!
//! Sums go through the depth in the same order as in [`tile`](super::tile), so bits are those of AVX2.

/// Rows of a tile that is one vector wide.
pub(crate) const ROWS: usize = 12;

/// A row of a product: where its numbers of A begin, and where it is added to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScatteredRow {
    pub from: *const f32,
    pub to: *mut f32,
}

/// Proof that this CPU has AVX-512 (F, DQ and VL), and BMI 1 and 2.
#[derive(Clone, Copy, Debug)]
pub struct Wide(());

impl Wide {
    /// The proof.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F, DQ and VL, and BMI 1 and 2.
    pub(crate) unsafe fn new() -> Wide {
        Wide(())
    }

    /// `Y = leaky(Y0 + A B)` for a tile of [`ROWS`] rows and 16 columns. `Y0` is the bias, the same for all rows, or what Y
    /// holds; leaky is x, or `slope * x` where that is larger.
    ///
    /// # Safety
    /// Readable: `depth` floats in each row of `a`, `16 * depth` at `b`, 16 at `bias`. Writable: 16 floats in each row of `y`.
    #[inline(always)]
    pub(crate) unsafe fn multiply_rows(
        self,
        depth: usize,
        (a, a_row): (*const f32, usize),
        b: *const f32,
        bias: Option<*const f32>,
        slope: f32,
        (y, y_row): (*mut f32, usize),
    ) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `self` proves the instruction set; the rest is passed on from the caller.
        unsafe {
            avx512::multiply_rows(depth, (a, a_row), b, bias, slope, (y, y_row))
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("there is no proof of AVX-512 on this architecture");
    }

    /// `Y += A B` for up to [`ROWS`] rows that lie anywhere, and up to 16 columns. The sums are made first and then added, as
    /// narrower tiles do. A row of A has its numbers `a_step` apart, B its rows `b_step`.
    ///
    /// # Safety
    /// Readable: `depth` numbers from `from` on of each row, 16 floats in each row of B. Writable: `columns` floats in each `to`,
    /// which do not overlap.
    #[inline(always)]
    pub(crate) unsafe fn add_scattered_rows(
        self,
        depth: usize,
        rows: &[ScatteredRow],
        a_step: usize,
        (b, b_step): (*const f32, usize),
        columns: usize,
    ) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `self` proves the instruction set; the rest is passed on from the caller.
        unsafe {
            match rows.len() {
                0 => {}
                1..=4 => avx512::add_rows::<4>(depth, rows, a_step, (b, b_step), columns),
                5..=8 => avx512::add_rows::<8>(depth, rows, a_step, (b, b_step), columns),
                _ => avx512::add_rows::<ROWS>(depth, rows, a_step, (b, b_step), columns),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("there is no proof of AVX-512 on this architecture");
    }

    /// Rounds of multiply-adds on registers alone, to measure the peak: a sum, and how many a round has.
    pub(crate) fn multiply_adds(self, rounds: usize) -> (f32, usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `self` proves the instruction set.
        unsafe {
            avx512::multiply_adds(rounds)
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("there is no proof of AVX-512 on this architecture");
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::{ROWS, ScatteredRow};
    use crate::simd::LANES;

    /// # Safety
    /// As for [`Wide::multiply_rows`](super::Wide::multiply_rows), on a CPU with AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn multiply_rows(
        depth: usize,
        (a, a_row): (*const f32, usize),
        b: *const f32,
        bias: Option<*const f32>,
        slope: f32,
        (y, y_row): (*mut f32, usize),
    ) {
        let mut sums = [_mm512_setzero_ps(); ROWS];
        for i in 0..ROWS {
            // SAFETY: the caller gives a bias, or rows to begin with.
            sums[i] = unsafe { _mm512_loadu_ps(bias.unwrap_or(y.add(i * y_row))) };
        }
        for step in 0..depth {
            // SAFETY: the caller gives `depth` steps of both operands.
            unsafe {
                let columns = _mm512_loadu_ps(b.add(step * 2 * LANES));
                for i in 0..ROWS {
                    let row = _mm512_set1_ps(*a.add(i * a_row + step));
                    sums[i] = _mm512_fmadd_ps(row, columns, sums[i]);
                }
            }
        }
        let slope = _mm512_set1_ps(slope);
        for i in 0..ROWS {
            let sum = _mm512_max_ps(sums[i], _mm512_mul_ps(slope, sums[i]));
            // SAFETY: the caller gives 16 floats in each row.
            unsafe { _mm512_storeu_ps(y.add(i * y_row), sum) };
        }
    }

    /// Of at most `COUNT` rows; where there are fewer, the first is computed again and not kept.
    ///
    /// # Safety
    /// As for [`Wide::add_scattered_rows`](super::Wide::add_scattered_rows), on a CPU with AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn add_rows<const COUNT: usize>(
        depth: usize,
        rows: &[ScatteredRow],
        a_step: usize,
        (b, b_step): (*const f32, usize),
        columns: usize,
    ) {
        let mut a = [rows[0].from; COUNT];
        for (a, row) in a.iter_mut().zip(rows) {
            *a = row.from;
        }
        let mut sums = [_mm512_setzero_ps(); COUNT];
        for step in 0..depth {
            // SAFETY: the caller gives `depth` steps of both operands.
            unsafe {
                let columns = _mm512_loadu_ps(b.add(step * b_step));
                for i in 0..COUNT {
                    let row = _mm512_set1_ps(*a[i].add(step * a_step));
                    sums[i] = _mm512_fmadd_ps(row, columns, sums[i]);
                }
            }
        }
        let inside = (1u32 << columns.min(2 * LANES)) - 1;
        for (row, sum) in rows.iter().zip(sums) {
            // SAFETY: the caller gives these columns of each row.
            unsafe {
                let held = _mm512_maskz_loadu_ps(inside as u16, row.to);
                _mm512_mask_storeu_ps(row.to, inside as u16, _mm512_add_ps(held, sum));
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn multiply_adds(rounds: usize) -> (f32, usize) {
        const CHAINS: usize = 12;
        let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(0.001));
        let mut chains = [_mm512_set1_ps(black_box(1.0)); CHAINS];
        for _ in 0..rounds {
            for i in 0..CHAINS {
                chains[i] = _mm512_fmadd_ps(chains[i], a, b);
            }
        }
        let mut sum = 0.0;
        for i in 0..CHAINS {
            sum += _mm512_reduce_add_ps(chains[i]);
        }
        (sum, CHAINS * 2 * LANES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::activation::Activation;
    use crate::conv::{ConvAlgorithm, ConvShape, PackedConv, conv2d, supports};
    use crate::epilogue::Epilogue;
    use crate::gemm::{PackedLinear, linear};
    use crate::testing::numbers;
    use crate::{Cpu, Isa};

    /// CPUs of both instruction sets; none where there is no AVX-512.
    fn cpus() -> Option<[Cpu; 2]> {
        Isa::Avx512.is_supported().then(|| {
            [Isa::Avx2, Isa::Avx512].map(|isa| Cpu::with_isa(2, isa).expect("it is supported"))
        })
    }

    /// An epilogue whose parts are there or not.
    fn epilogue<'a>(
        bias: &'a [f32],
        residual: &'a [f32],
        parts: [bool; 2],
        activation: usize,
    ) -> Epilogue<'a> {
        Epilogue {
            bias: parts[0].then_some(bias),
            residual: parts[1].then_some(residual),
            residual_in_place: false,
            activation: [Activation::Identity, Activation::Relu, Activation::Silu][activation],
        }
    }

    proptest! {
        #[test]
        fn products_have_the_bits_of_avx2(
            m in 0usize..40, k in 1usize..300, n in 0usize..130, parts in any::<[bool; 2]>(), activation in 0usize..3,
        ) {
            let (x, weight, bias, residual) = (numbers(1, m * k), numbers(2, n * k), numbers(3, n), numbers(4, m * n));
            let answers = cpus().map(|cpus| cpus.map(|cpu| {
                let weights = PackedLinear::pack(&cpu, &weight, n, k);
                let mut y = vec![f32::NAN; m * n];
                linear(&cpu, &weights, &x, epilogue(&bias, &residual, parts, activation), &mut y);
                y
            }));
            if let Some([narrow, wide]) = answers {
                prop_assert_eq!(narrow, wide);
            }
        }

        #[test]
        fn convolutions_have_the_bits_of_avx2(
            channels in 1usize..20, outputs in 1usize..40, size in (3usize..20, 3usize..60), batch in 0usize..4,
            window in (0usize..4, 1usize..4), parts in any::<[bool; 2]>(), activation in 0usize..3,
        ) {
            let ((height, width), (kernel, stride)) = (size, (2 * window.0 + 1, window.1));
            let shape = ConvShape {
                batch,
                in_channels: channels,
                height,
                width,
                out_channels: outputs,
                kernel: [kernel; 2],
                stride: [stride; 2],
                padding: [kernel / 2; 2],
                dilation: [1, 1],
                groups: 1,
            };
            let x = numbers(1, batch * channels * height * width);
            let weight = numbers(2, shape.weight_len());
            let (bias, residual) = (numbers(3, outputs), numbers(4, batch * outputs * shape.out_pixels()));
            let algorithms = [
                ConvAlgorithm::Pointwise, ConvAlgorithm::ImplicitGemm, ConvAlgorithm::Winograd2, ConvAlgorithm::Winograd4,
                ConvAlgorithm::WinogradStride2, ConvAlgorithm::WinogradStem,
            ];
            for algorithm in algorithms.into_iter().filter(|&algorithm| supports(&shape, algorithm)) {
                let answers = cpus().map(|cpus| cpus.map(|cpu| {
                    let weights = PackedConv::pack(&cpu, &shape, algorithm, &weight);
                    let mut y = vec![f32::NAN; residual.len()];
                    let epilogue = epilogue(&bias, &residual, parts, activation);
                    conv2d(&cpu, &shape, &weights, &x, None, epilogue, &mut y);
                    y
                }));
                if let Some([narrow, wide]) = answers {
                    prop_assert_eq!(narrow, wide, "{:?}", algorithm);
                }
            }
        }
    }
}
