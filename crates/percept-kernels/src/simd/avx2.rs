//! The AVX2 + FMA vector.

use std::arch::x86_64::*;

use super::{Floats, LANES, SET_LANES, Simd};
use crate::gemm::wide::Wide;
use crate::isa::Kernel;

/// Proof that this CPU has AVX2, FMA, F16C and POPCNT, and what it has beside them.
#[derive(Clone, Copy, Debug)]
pub struct Avx2 {
    wide: Option<Wide>,
}

impl Avx2 {
    /// Who has AVX-512 has this too.
    pub(crate) fn of(wide: Wide) -> Avx2 {
        Avx2 { wide: Some(wide) }
    }
}

/// 8 set lanes, then 8 clear ones: a window that starts at 8 - n sets the first n.
static MASKS: [i32; 2 * LANES] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

#[inline(always)]
fn first_lanes(n: usize) -> __m256i {
    debug_assert!(n <= LANES);
    // SAFETY: the window starts at 0..=8 of 16; loads are AVX, which holders of an `Avx2` have.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(LANES - n.min(LANES)).cast()) }
}

/// Transposes the 4x4 blocks of both halves.
#[inline(always)]
fn transpose4([a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
    // SAFETY: only called with an `Avx2` at hand.
    unsafe {
        // One by one: a closure given to `map` would not be compiled for AVX.
        let ab_low = _mm256_castps_pd(_mm256_unpacklo_ps(a, b));
        let ab_high = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
        let cd_low = _mm256_castps_pd(_mm256_unpacklo_ps(c, d));
        let cd_high = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
        [
            _mm256_castpd_ps(_mm256_unpacklo_pd(ab_low, cd_low)),
            _mm256_castpd_ps(_mm256_unpackhi_pd(ab_low, cd_low)),
            _mm256_castpd_ps(_mm256_unpacklo_pd(ab_high, cd_high)),
            _mm256_castpd_ps(_mm256_unpackhi_pd(ab_high, cd_high)),
        ]
    }
}

/// The order that turns 4 rows of 4 bytes into 4 columns.
#[inline(always)]
fn transpose_bytes() -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15) }
}

#[inline]
#[target_feature(enable = "avx")]
fn settle(mut a: __m256) -> __m256 {
    // SAFETY: no instruction at all; the operand alone orders the code around it.
    unsafe { std::arch::asm!("/* {0} */", inout(ymm_reg) a, options(nostack, preserves_flags)) };
    a
}

/// A kernel compiled for AVX2, FMA, F16C and POPCNT.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(crate) fn run_avx2<K: Kernel>(kernel: K, wide: Option<Wide>) -> K::Output {
    kernel.run(Avx2 { wide })
}

/// The same without AVX-512, which is known when compiling: what a kernel does with it is left out.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(crate) fn run_avx2_alone<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2 { wide: None })
}

/// A kernel compiled for AVX-512: with twice the registers, and for vectors of 16 floats in the kernel itself.
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt,avx512f,avx512dq,avx512vl")]
pub(crate) fn run_avx512<K: Kernel>(kernel: K, wide: Wide) -> K::Output {
    kernel.run(Avx2::of(wide))
}

/// Wraps intrinsics that need nothing but the CPU's support.
macro_rules! supported {
    ($e:expr) => {
        // SAFETY: a value of `Avx2` proves that the CPU supports the intrinsic.
        unsafe { $e }
    };
}

impl Floats for Avx2 {
    type V = __m256;
    type Mask = __m256;

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        supported!(_mm256_set1_ps(value))
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        supported!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        supported!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        supported!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        supported!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        supported!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        supported!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        supported!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn neg_mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        supported!(_mm256_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        supported!(_mm256_round_ps::<
            { _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC },
        >(a))
    }
    #[inline(always)]
    fn pow2(self, a: __m256) -> __m256 {
        supported!({
            let biased = _mm256_add_epi32(_mm256_cvttps_epi32(a), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        })
    }
    #[inline(always)]
    fn times_pow2(self, a: __m256, n_plus_rounder: __m256) -> __m256 {
        supported!({
            let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(n_plus_rounder));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), exponent))
        })
    }
    #[inline(always)]
    fn less(self, a: __m256, b: __m256) -> __m256 {
        supported!(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn select(self, mask: __m256, yes: __m256, no: __m256) -> __m256 {
        supported!(_mm256_blendv_ps(no, yes, mask))
    }
}

impl Simd for Avx2 {
    type Keys = __m256d;

    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        supported!(run_avx2(kernel, self.wide))
    }

    #[inline(always)]
    fn fused(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        self.mul_add(a, b, c)
    }

    #[inline(always)]
    fn wide(self) -> Option<Wide> {
        self.wide
    }

    #[inline(always)]
    fn widen_half(self, halves: [u16; LANES]) -> __m256 {
        supported!(_mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast())))
    }
    #[inline(always)]
    fn narrow_half(self, v: __m256) -> [u16; LANES] {
        let mut halves = [0; LANES];
        supported!({
            let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
            _mm_storeu_si128(halves.as_mut_ptr().cast(), narrow);
        });
        halves
    }
    #[inline(always)]
    fn widen_upper(self, uppers: [u16; LANES]) -> __m256 {
        supported!({
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(uppers.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    fn narrow_upper(self, v: __m256) -> [u16; LANES] {
        let mut uppers = [0; LANES];
        supported!({
            let bits = _mm256_castps_si256(v);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
            // What is no number stays none, whatever its lower bits.
            let quiet = _mm256_or_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(0x40));
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
            let narrow = _mm256_blendv_epi8(rounded, quiet, is_nan);
            let packed = _mm256_packus_epi32(narrow, narrow);
            let packed = _mm256_permute4x64_epi64::<0b00_00_10_00>(packed);
            _mm_storeu_si128(uppers.as_mut_ptr().cast(), _mm256_castsi256_si128(packed));
        });
        uppers
    }

    #[inline(always)]
    fn vector(self, values: [f32; LANES]) -> __m256 {
        supported!(_mm256_loadu_ps(values.as_ptr()))
    }
    #[inline(always)]
    fn to_array(self, v: __m256) -> [f32; LANES] {
        let mut values = [0.0; LANES];
        supported!(_mm256_storeu_ps(values.as_mut_ptr(), v));
        values
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        // SAFETY: the caller gives 8 readable floats.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        // SAFETY: the caller gives 8 writable floats.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_first(self, p: *const f32, n: usize) -> __m256 {
        // SAFETY: the caller gives `n` readable floats; masked lanes are not touched.
        unsafe { _mm256_maskload_ps(p, first_lanes(n)) }
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize, v: __m256) {
        // A masked store takes some 20 times as long as a plain one on Zen; full vectors are the common case.
        if n == LANES {
            // SAFETY: the caller gives 8 writable floats.
            return unsafe { self.store(p, v) };
        }
        // SAFETY: the caller gives `n` writable floats; masked lanes are not touched.
        unsafe { _mm256_maskstore_ps(p, first_lanes(n), v) }
    }

    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        supported!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), a))
    }
    #[inline(always)]
    fn sqrt(self, a: __m256) -> __m256 {
        supported!(_mm256_sqrt_ps(a))
    }
    #[inline(always)]
    fn floor(self, a: __m256) -> __m256 {
        supported!(_mm256_floor_ps(a))
    }

    #[inline(always)]
    fn equal(self, a: __m256, b: __m256) -> __m256 {
        supported!(_mm256_cmp_ps::<_CMP_EQ_OQ>(a, b))
    }

    #[inline(always)]
    fn bits(self, mask: __m256) -> u32 {
        supported!(_mm256_movemask_ps(mask)).cast_unsigned()
    }
    #[inline(always)]
    fn compress(self, v: __m256, bits: u32) -> __m256 {
        let lanes = SET_LANES[bits as usize % SET_LANES.len()].cast_signed();
        supported!({
            let lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(lanes));
            _mm256_permutevar8x32_ps(v, lanes)
        })
    }

    // The bits of two floats that are not negative order like the f64 that they form.
    #[inline(always)]
    fn keys(self, high: __m256, low: __m256) -> [__m256d; 2] {
        supported!([
            _mm256_castps_pd(_mm256_unpacklo_ps(low, high)),
            _mm256_castps_pd(_mm256_unpackhi_ps(low, high)),
        ])
    }
    #[inline(always)]
    fn keys_min(self, a: __m256d, b: __m256d) -> __m256d {
        supported!(_mm256_min_pd(a, b))
    }
    #[inline(always)]
    fn keys_max(self, a: __m256d, b: __m256d) -> __m256d {
        supported!(_mm256_max_pd(a, b))
    }
    #[inline(always)]
    fn transpose_keys(self, [a, b, c, d]: [__m256d; 4]) -> [__m256d; 4] {
        supported!({
            let (ab_low, ab_high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            let (cd_low, cd_high) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
            [
                _mm256_permute2f128_pd::<0x20>(ab_low, cd_low),
                _mm256_permute2f128_pd::<0x20>(ab_high, cd_high),
                _mm256_permute2f128_pd::<0x31>(ab_low, cd_low),
                _mm256_permute2f128_pd::<0x31>(ab_high, cd_high),
            ]
        })
    }
    #[inline(always)]
    fn key_parts(self, [a, b]: [__m256d; 2]) -> (__m256, __m256) {
        supported!({
            let (a, b) = (_mm256_castpd_ps(a), _mm256_castpd_ps(b));
            let high = _mm256_castps_pd(_mm256_shuffle_ps::<0b11_01_11_01>(a, b));
            let low = _mm256_castps_pd(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
            (
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(high)),
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(low)),
            )
        })
    }

    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        supported!({
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn max_lane(self, a: __m256) -> f32 {
        supported!({
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        })
    }

    #[inline(always)]
    fn settle(self, a: __m256) -> __m256 {
        supported!(settle(a))
    }

    #[inline(always)]
    unsafe fn load_split4(self, p: *const f32) -> [__m256; 4] {
        // SAFETY: the caller gives 32 readable floats; the last load covers 28..32.
        unsafe {
            transpose4([
                _mm256_loadu2_m128(p.add(16), p),
                _mm256_loadu2_m128(p.add(20), p.add(4)),
                _mm256_loadu2_m128(p.add(24), p.add(8)),
                _mm256_loadu2_m128(p.add(28), p.add(12)),
            ])
        }
    }
    #[inline(always)]
    fn merge4(self, v: [__m256; 4]) -> [__m256; 4] {
        let [a, b, c, d] = transpose4(v);
        supported!([
            _mm256_permute2f128_ps::<0x20>(a, b),
            _mm256_permute2f128_ps::<0x20>(c, d),
            _mm256_permute2f128_ps::<0x31>(a, b),
            _mm256_permute2f128_ps::<0x31>(c, d),
        ])
    }
    #[inline(always)]
    unsafe fn load_split2(self, p: *const f32) -> [__m256; 2] {
        // SAFETY: the caller gives 16 readable floats; the last load covers 12..16.
        unsafe {
            let low = _mm256_loadu2_m128(p.add(8), p);
            let high = _mm256_loadu2_m128(p.add(12), p.add(4));
            [
                _mm256_shuffle_ps::<0x88>(low, high),
                _mm256_shuffle_ps::<0xDD>(low, high),
            ]
        }
    }
    #[inline(always)]
    fn merge2(self, [a, b]: [__m256; 2]) -> [__m256; 2] {
        supported!({
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            [
                _mm256_permute2f128_ps::<0x20>(low, high),
                _mm256_permute2f128_ps::<0x31>(low, high),
            ]
        })
    }
    #[inline(always)]
    fn shift_down(self, a: __m256, last: f32) -> __m256 {
        supported!({
            let rotated = _mm256_permutevar8x32_ps(a, _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0));
            _mm256_blend_ps::<0x80>(rotated, _mm256_set1_ps(last))
        })
    }
    #[inline(always)]
    fn evens(self, a: __m256, b: __m256) -> __m256 {
        supported!({
            let pairs = _mm256_castps_pd(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(pairs))
        })
    }
    #[inline(always)]
    fn transpose8(self, [a, b, c, d, e, f, g, h]: [__m256; 8]) -> [__m256; 8] {
        let [t0, t1, t2, t3] = transpose4([a, b, c, d]);
        let [t4, t5, t6, t7] = transpose4([e, f, g, h]);
        supported!([
            _mm256_permute2f128_ps::<0x20>(t0, t4),
            _mm256_permute2f128_ps::<0x20>(t1, t5),
            _mm256_permute2f128_ps::<0x20>(t2, t6),
            _mm256_permute2f128_ps::<0x20>(t3, t7),
            _mm256_permute2f128_ps::<0x31>(t0, t4),
            _mm256_permute2f128_ps::<0x31>(t1, t5),
            _mm256_permute2f128_ps::<0x31>(t2, t6),
            _mm256_permute2f128_ps::<0x31>(t3, t7),
        ])
    }

    #[inline(always)]
    unsafe fn load_integers(self, p: *const i32) -> __m256 {
        // SAFETY: the caller gives 8 readable integers.
        unsafe { _mm256_cvtepi32_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    fn to_bytes(self, v: __m256) -> [i8; LANES] {
        supported!({
            let words = _mm256_cvtps_epi32(v);
            let words = _mm256_packs_epi32(words, words);
            let bytes = _mm256_packs_epi16(words, words);
            let low = _mm_cvtsi128_si32(_mm256_castsi256_si128(bytes));
            let high = _mm_cvtsi128_si32(_mm256_extracti128_si256::<1>(bytes));
            std::mem::transmute::<[i32; 2], [i8; LANES]>([low, high])
        })
    }
    #[inline(always)]
    fn widen_bytes(self, bytes: [i8; LANES]) -> __m256 {
        supported!({
            let bytes = _mm_loadl_epi64(bytes.as_ptr().cast());
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))
        })
    }
    #[inline(always)]
    fn to_quads(self, [a, b, c, d]: [__m256; 4]) -> [[i8; 4]; LANES] {
        supported!({
            let ab = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
            let cd = _mm256_packs_epi32(_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
            let bytes = _mm256_packs_epi16(ab, cd);
            let quads = _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(transpose_bytes()));
            std::mem::transmute::<__m256i, [[i8; 4]; LANES]>(quads)
        })
    }
    #[inline(always)]
    fn widen_quads(self, quads: [[i8; 4]; LANES]) -> [__m256; 4] {
        supported!({
            let quads = _mm256_loadu_si256(quads.as_ptr().cast());
            // A byte moved to the top of its quad, and back with its sign.
            let a = _mm256_srai_epi32::<24>(_mm256_slli_epi32::<24>(quads));
            let b = _mm256_srai_epi32::<24>(_mm256_slli_epi32::<16>(quads));
            let c = _mm256_srai_epi32::<24>(_mm256_slli_epi32::<8>(quads));
            let d = _mm256_srai_epi32::<24>(quads);
            [
                _mm256_cvtepi32_ps(a),
                _mm256_cvtepi32_ps(b),
                _mm256_cvtepi32_ps(c),
                _mm256_cvtepi32_ps(d),
            ]
        })
    }
}
