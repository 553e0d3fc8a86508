//! Four floats in a register of SSE2, which every x86-64 has.

use std::arch::x86_64::*;

use super::Quad;

/// Wraps intrinsics that need nothing but SSE2.
macro_rules! sse2 {
    ($e:expr) => {
        // SAFETY: every x86-64 supports the intrinsic.
        unsafe { $e }
    };
}

impl Quad for __m128 {
    type Mask = __m128;
    // The bits of two floats that are not negative order like the f64 that they form.
    type Pair = __m128d;

    #[inline(always)]
    fn splat(value: f32) -> __m128 {
        sse2!(_mm_set1_ps(value))
    }
    #[inline(always)]
    fn new([a, b, c, d]: [f32; 4]) -> __m128 {
        sse2!(_mm_setr_ps(a, b, c, d))
    }
    #[inline(always)]
    fn to_array(self) -> [f32; 4] {
        let mut values = [0.0; 4];
        // SAFETY: there is room for 4 floats.
        unsafe { _mm_storeu_ps(values.as_mut_ptr(), self) };
        values
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m128 {
        // SAFETY: the caller gives 4 readable floats.
        unsafe { _mm_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller gives 4 writable floats.
        unsafe { _mm_storeu_ps(p, self) }
    }

    #[inline(always)]
    fn add(self, b: __m128) -> __m128 {
        sse2!(_mm_add_ps(self, b))
    }
    #[inline(always)]
    fn sub(self, b: __m128) -> __m128 {
        sse2!(_mm_sub_ps(self, b))
    }
    #[inline(always)]
    fn mul(self, b: __m128) -> __m128 {
        sse2!(_mm_mul_ps(self, b))
    }
    #[inline(always)]
    fn div(self, b: __m128) -> __m128 {
        sse2!(_mm_div_ps(self, b))
    }
    #[inline(always)]
    fn min(self, b: __m128) -> __m128 {
        sse2!(_mm_min_ps(self, b))
    }
    #[inline(always)]
    fn max(self, b: __m128) -> __m128 {
        sse2!(_mm_max_ps(self, b))
    }
    #[inline(always)]
    fn abs(self) -> __m128 {
        sse2!(_mm_andnot_ps(_mm_set1_ps(-0.0), self))
    }
    #[inline(always)]
    fn sqrt(self) -> __m128 {
        sse2!(_mm_sqrt_ps(self))
    }
    #[inline(always)]
    fn pow2(self) -> __m128 {
        sse2!({
            let biased = _mm_add_epi32(_mm_cvttps_epi32(self), _mm_set1_epi32(127));
            _mm_castsi128_ps(_mm_slli_epi32::<23>(biased))
        })
    }
    #[inline(always)]
    fn times_pow2(self, n_plus_rounder: __m128) -> __m128 {
        sse2!({
            let exponent = _mm_slli_epi32::<23>(_mm_castps_si128(n_plus_rounder));
            _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(self), exponent))
        })
    }

    #[inline(always)]
    fn less(self, b: __m128) -> __m128 {
        sse2!(_mm_cmplt_ps(self, b))
    }
    #[inline(always)]
    fn equal(self, b: __m128) -> __m128 {
        sse2!(_mm_cmpeq_ps(self, b))
    }
    #[inline(always)]
    fn select(mask: __m128, yes: __m128, no: __m128) -> __m128 {
        sse2!(_mm_or_ps(_mm_and_ps(mask, yes), _mm_andnot_ps(mask, no)))
    }
    #[inline(always)]
    fn bits(mask: __m128) -> u32 {
        sse2!(_mm_movemask_ps(mask).cast_unsigned())
    }

    #[inline(always)]
    fn evens(self, b: __m128) -> __m128 {
        sse2!(_mm_shuffle_ps::<0b10_00_10_00>(self, b))
    }
    #[inline(always)]
    fn odds(self, b: __m128) -> __m128 {
        sse2!(_mm_shuffle_ps::<0b11_01_11_01>(self, b))
    }
    #[inline(always)]
    fn interleave(self, b: __m128) -> [__m128; 2] {
        sse2!([_mm_unpacklo_ps(self, b), _mm_unpackhi_ps(self, b)])
    }
    #[inline(always)]
    fn transpose([a, b, c, d]: [__m128; 4]) -> [__m128; 4] {
        sse2!({
            let ([ab_low, ab_high], [cd_low, cd_high]) = (a.interleave(b), c.interleave(d));
            [
                _mm_movelh_ps(ab_low, cd_low),
                _mm_movehl_ps(cd_low, ab_low),
                _mm_movelh_ps(ab_high, cd_high),
                _mm_movehl_ps(cd_high, ab_high),
            ]
        })
    }

    #[inline(always)]
    fn keys(high: __m128, low: __m128) -> [__m128d; 2] {
        sse2!({
            let [first, second] = low.interleave(high);
            [_mm_castps_pd(first), _mm_castps_pd(second)]
        })
    }
    #[inline(always)]
    fn keys_min(a: __m128d, b: __m128d) -> __m128d {
        sse2!(_mm_min_pd(a, b))
    }
    #[inline(always)]
    fn keys_max(a: __m128d, b: __m128d) -> __m128d {
        sse2!(_mm_max_pd(a, b))
    }
    #[inline(always)]
    fn transpose_keys(a: __m128d, b: __m128d) -> [__m128d; 2] {
        sse2!([_mm_unpacklo_pd(a, b), _mm_unpackhi_pd(a, b)])
    }
    #[inline(always)]
    fn key_parts(a: __m128d, b: __m128d) -> (__m128, __m128) {
        sse2!({
            let (a, b) = (_mm_castpd_ps(a), _mm_castpd_ps(b));
            (a.odds(b), a.evens(b))
        })
    }
}
