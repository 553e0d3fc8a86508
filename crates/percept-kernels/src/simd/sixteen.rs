//! Arithmetic on vectors of 16 floats, for what takes them inside of its own loops.

use std::arch::x86_64::*;

use super::Floats;
use crate::gemm::wide::Wide;

/// Vectors of 16 floats; a value proves AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct Sixteen(());

/// Methods of one intrinsic each, on vectors alone.
macro_rules! arithmetic {
    ($($(#[$doc:meta])* $name:ident($($v:ident),+) = $intrinsic:ident;)+) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub(crate) fn $name(self, $($v: __m512),+) -> __m512 {
                // SAFETY: a value of `Sixteen` proves AVX-512.
                unsafe { $intrinsic($($v),+) }
            }
        )+
    };
}

impl Sixteen {
    /// With the proof that the CPU has AVX-512.
    #[inline(always)]
    pub(crate) fn new(_: Wide) -> Sixteen {
        Sixteen(())
    }

    #[inline(always)]
    pub(crate) fn splat(self, value: f32) -> __m512 {
        // SAFETY: a value of `Sixteen` proves AVX-512.
        unsafe { _mm512_set1_ps(value) }
    }

    arithmetic! {
        add(a, b) = _mm512_add_ps;
        sub(a, b) = _mm512_sub_ps;
        mul(a, b) = _mm512_mul_ps;
        div(a, b) = _mm512_div_ps;
        min(a, b) = _mm512_min_ps;
        max(a, b) = _mm512_max_ps;
        /// `a * b + c`, rounded once.
        mul_add(a, b, c) = _mm512_fmadd_ps;
        /// `c - a * b`, rounded once.
        neg_mul_add(a, b, c) = _mm512_fnmadd_ps;
    }
}

/// Methods of a trait that [`Sixteen`] has already; `$all` gets one from the implementor.
macro_rules! as_sixteen {
    ($all:expr; $($name:ident($($v:ident),+)),+) => {
        #[inline(always)]
        fn splat(self, value: f32) -> __m512 {
            $all(self).splat(value)
        }
        $(
            #[inline(always)]
            fn $name(self, $($v: __m512),+) -> __m512 {
                Sixteen::$name($all(self), $($v),+)
            }
        )+
    };
}
pub(crate) use as_sixteen;

impl Floats for Sixteen {
    type V = __m512;
    type Mask = __mmask16;

    as_sixteen!(|all: Self| all; add(a, b), sub(a, b), mul(a, b), div(a, b), min(a, b), max(a, b), mul_add(a, b, c), neg_mul_add(a, b, c));

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        // SAFETY: a value of `Sixteen` proves AVX-512.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn pow2(self, a: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvttps_epi32(a), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    fn times_pow2(self, a: __m512, n_plus_rounder: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(n_plus_rounder));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), exponent))
        }
    }
    #[inline(always)]
    fn less(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: as above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    fn select(self, mask: __mmask16, yes: __m512, no: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_mask_blend_ps(mask, no, yes) }
    }
}
