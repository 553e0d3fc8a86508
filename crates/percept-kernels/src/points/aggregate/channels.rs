//! Vectors of channels that neighbours are pooled on: 8, pairs of 8, or, with AVX-512, 16. All give the same bits.

use crate::math::exp2_up_to_0;
use crate::simd::{LANES, Simd};

/// Arithmetic on `8 * EIGHTS` channels.
pub(super) trait Channels: Copy {
    /// Vectors of 8.
    type S: Simd;
    type V: Copy;

    /// Vectors of 8 that it stands for: 1 or 2.
    const EIGHTS: usize;

    fn splat(self, value: f32) -> Self::V;
    /// Channels that stand side by side.
    fn read(self, from: &[f32]) -> Self::V;
    fn write(self, to: &mut [f32], v: Self::V);
    /// From vectors of 8, of which the first `EIGHTS` count.
    fn join(self, eights: [<Self::S as Simd>::V; 2]) -> Self::V;
    /// As vectors of 8, of which the first `EIGHTS` count.
    fn eights(self, v: Self::V) -> [<Self::S as Simd>::V; 2];

    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a * b + c
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// As [`exp2_up_to_0`].
    fn exp2_up_to_0(self, x: Self::V) -> Self::V;
}

/// Vectors of 8, side by side so that none need wait for the other.
#[derive(Clone, Copy)]
pub(super) struct Eights<S, const N: usize>(pub(super) S);

/// Vector by vector.
macro_rules! each {
    ($s:ident, $op:ident, $($v:ident),+) => {{
        let mut result = [$s.0.splat(0.0); N];
        for i in 0..N {
            result[i] = $s.0.$op($($v[i]),+);
        }
        result
    }};
}

impl<S: Simd, const N: usize> Channels for Eights<S, N> {
    type S = S;
    type V = [S::V; N];

    const EIGHTS: usize = N;

    #[inline(always)]
    fn splat(self, value: f32) -> [S::V; N] {
        [self.0.splat(value); N]
    }
    #[inline(always)]
    fn read(self, from: &[f32]) -> [S::V; N] {
        let from = &from[..N * LANES];
        let mut v = [self.0.splat(0.0); N];
        for i in 0..N {
            v[i] = self.0.read(&from[i * LANES..][..LANES]);
        }
        v
    }
    #[inline(always)]
    fn write(self, to: &mut [f32], v: [S::V; N]) {
        let to = &mut to[..N * LANES];
        for i in 0..N {
            self.0.write(&mut to[i * LANES..][..LANES], v[i]);
        }
    }
    #[inline(always)]
    fn join(self, eights: [S::V; 2]) -> [S::V; N] {
        let mut v = [eights[0]; N];
        v[N - 1] = eights[N - 1];
        v
    }
    #[inline(always)]
    fn eights(self, v: [S::V; N]) -> [S::V; 2] {
        [v[0], v[N - 1]]
    }

    #[inline(always)]
    fn max(self, a: [S::V; N], b: [S::V; N]) -> [S::V; N] {
        each!(self, max, a, b)
    }
    #[inline(always)]
    fn add(self, a: [S::V; N], b: [S::V; N]) -> [S::V; N] {
        each!(self, add, a, b)
    }
    #[inline(always)]
    fn sub(self, a: [S::V; N], b: [S::V; N]) -> [S::V; N] {
        each!(self, sub, a, b)
    }
    #[inline(always)]
    fn mul(self, a: [S::V; N], b: [S::V; N]) -> [S::V; N] {
        each!(self, mul, a, b)
    }
    #[inline(always)]
    fn div(self, a: [S::V; N], b: [S::V; N]) -> [S::V; N] {
        each!(self, div, a, b)
    }
    #[inline(always)]
    fn mul_add(self, a: [S::V; N], b: [S::V; N], c: [S::V; N]) -> [S::V; N] {
        each!(self, mul_add, a, b, c)
    }
    #[inline(always)]
    fn exp2_up_to_0(self, mut x: [S::V; N]) -> [S::V; N] {
        for i in 0..N {
            x[i] = exp2_up_to_0(self.0, x[i]);
        }
        x
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use crate::simd::Sixteen;

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::{Channels, LANES};
    use crate::math::EXP2_UP_TO_0;
    use crate::simd::{Avx2, ROUNDER, Sixteen, as_sixteen};

    /// Wraps intrinsics that need nothing but the CPU's support.
    macro_rules! supported {
        ($e:expr) => {
            // SAFETY: a value of `Sixteen` proves AVX-512.
            unsafe { $e }
        };
    }

    impl Channels for Sixteen {
        type S = Avx2;
        type V = __m512;

        const EIGHTS: usize = 2;

        as_sixteen!(|all: Self| all; max(a, b), add(a, b), sub(a, b), mul(a, b), div(a, b), mul_add(a, b, c));

        #[inline(always)]
        fn read(self, from: &[f32]) -> __m512 {
            supported!(_mm512_loadu_ps(from[..2 * LANES].as_ptr()))
        }
        #[inline(always)]
        fn write(self, to: &mut [f32], v: __m512) {
            supported!(_mm512_storeu_ps(to[..2 * LANES].as_mut_ptr(), v));
        }
        #[inline(always)]
        fn join(self, [low, high]: [__m256; 2]) -> __m512 {
            supported!(_mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high))
        }
        #[inline(always)]
        fn eights(self, v: __m512) -> [__m256; 2] {
            supported!([_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)])
        }

        #[inline(always)]
        fn exp2_up_to_0(self, x: __m512) -> __m512 {
            let x = self.max(self.splat(-120.0), x);
            let whole = self.add(x, self.splat(ROUNDER));
            let part = self.sub(x, self.sub(whole, self.splat(ROUNDER)));
            let [lower @ .., last] = EXP2_UP_TO_0;
            let mut curve = self.splat(last);
            for coefficient in lower.into_iter().rev() {
                curve = self.mul_add(curve, part, self.splat(coefficient));
            }
            supported!({
                let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(whole));
                _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(curve), exponent))
            })
        }
    }
}
