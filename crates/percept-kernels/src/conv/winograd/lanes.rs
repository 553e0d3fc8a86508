//! Vectors whose lanes are tiles: eight on every CPU, sixteen with AVX-512.

use crate::simd::{Floats, LANES, Simd};

/// Most tiles of a vector.
pub(super) const MOST_TILES: usize = 2 * LANES;

/// What the transforms of tiles need of a vector.
pub(crate) trait Lanes: Copy {
    /// A number of each tile.
    type V: Copy;
    /// Tiles.
    const TILES: usize;

    fn splat(self, value: f32) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`, rounded once.
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger one; `b` where one is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;

    /// # Safety
    /// [`Lanes::TILES`] floats are readable.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// # Safety
    /// [`Lanes::TILES`] floats are writable.
    unsafe fn store(self, p: *mut f32, v: Self::V);
    /// The first `n` lanes; zeros in the others.
    ///
    /// # Safety
    /// `n` floats are readable.
    unsafe fn load_first(self, p: *const f32, n: usize) -> Self::V;
    /// # Safety
    /// `n` floats are writable.
    unsafe fn store_first(self, p: *mut f32, n: usize, v: Self::V);

    /// Columns of tiles that follow one another, two numbers each.
    ///
    /// # Safety
    /// That many floats are readable.
    unsafe fn load_split2(self, p: *const f32) -> [Self::V; 2];
    /// The same of four numbers each.
    ///
    /// # Safety
    /// That many floats are readable.
    unsafe fn load_split4(self, p: *const f32) -> [Self::V; 4];
    /// The same of eight numbers each.
    ///
    /// # Safety
    /// That many floats are readable.
    unsafe fn load_split8(self, p: *const f32) -> [Self::V; 8];
    /// The inverse of [`Lanes::load_split2`].
    fn merge2(self, columns: [Self::V; 2]) -> [Self::V; 2];
    /// The inverse of [`Lanes::load_split4`].
    fn merge4(self, columns: [Self::V; 4]) -> [Self::V; 4];
    /// Every tile's right neighbour's, and `last` for the last tile.
    fn shift_down(self, v: Self::V, last: f32) -> Self::V;
}

impl<S: Simd> Lanes for S {
    type V = <S as Floats>::V;
    const TILES: usize = LANES;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        Floats::splat(self, value)
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        Floats::add(self, a, b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        Floats::sub(self, a, b)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        Floats::mul_add(self, a, b, c)
    }
    #[inline(always)]
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        Floats::neg_mul_add(self, a, b, c)
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        Floats::max(self, a, b)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::V {
        // SAFETY: passed on from the caller.
        unsafe { Simd::load(self, p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::V) {
        // SAFETY: passed on from the caller.
        unsafe { Simd::store(self, p, v) }
    }
    #[inline(always)]
    unsafe fn load_first(self, p: *const f32, n: usize) -> Self::V {
        // SAFETY: passed on from the caller.
        unsafe { Simd::load_first(self, p, n) }
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize, v: Self::V) {
        // AVX2's masked store is an order of magnitude slower than a plain one on some CPUs.
        let values = Simd::to_array(self, v);
        for lane in 0..n {
            // SAFETY: the caller vouches for `n` floats.
            unsafe { p.add(lane).write(values[lane]) };
        }
    }
    #[inline(always)]
    unsafe fn load_split2(self, p: *const f32) -> [Self::V; 2] {
        // SAFETY: passed on from the caller.
        unsafe { Simd::load_split2(self, p) }
    }
    #[inline(always)]
    unsafe fn load_split4(self, p: *const f32) -> [Self::V; 4] {
        // SAFETY: passed on from the caller.
        unsafe { Simd::load_split4(self, p) }
    }
    #[inline(always)]
    unsafe fn load_split8(self, p: *const f32) -> [Self::V; 8] {
        let mut tiles = [Floats::splat(self, 0.0); LANES];
        for tile in 0..LANES {
            // SAFETY: the caller vouches for 64 floats.
            tiles[tile] = unsafe { Simd::load(self, p.add(8 * tile)) };
        }
        self.transpose8(tiles)
    }
    #[inline(always)]
    fn merge2(self, columns: [Self::V; 2]) -> [Self::V; 2] {
        Simd::merge2(self, columns)
    }
    #[inline(always)]
    fn merge4(self, columns: [Self::V; 4]) -> [Self::V; 4] {
        Simd::merge4(self, columns)
    }
    #[inline(always)]
    fn shift_down(self, v: Self::V, last: f32) -> Self::V {
        Simd::shift_down(self, v, last)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use crate::simd::Sixteen;

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::{Lanes, MOST_TILES};
    use crate::simd::{Sixteen, as_sixteen};

    /// Wraps intrinsics that need nothing but the CPU's support.
    macro_rules! supported {
        ($e:expr) => {
            // SAFETY: a value of `Sixteen` proves AVX-512.
            unsafe { $e }
        };
    }

    /// Every second number of both vectors, and the others.
    #[inline(always)]
    fn split(a: __m512, b: __m512) -> [__m512; 2] {
        // SAFETY: called by methods of `Sixteen` only.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
            [
                _mm512_permutex2var_ps(a, even, b),
                _mm512_permutex2var_ps(a, odd, b),
            ]
        }
    }

    /// The inverse of [`split`].
    #[inline(always)]
    fn merge(a: __m512, b: __m512) -> [__m512; 2] {
        // SAFETY: called by methods of `Sixteen` only.
        unsafe {
            let first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
            [
                _mm512_permutex2var_ps(a, first, b),
                _mm512_permutex2var_ps(a, second, b),
            ]
        }
    }

    /// As [`split`], of pairs of numbers.
    #[inline(always)]
    fn split_pairs(a: __m512, b: __m512) -> [__m512; 2] {
        // SAFETY: called by methods of `Sixteen` only.
        unsafe {
            let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
            let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
            let [a, b] = [_mm512_castps_pd(a), _mm512_castps_pd(b)];
            [
                _mm512_castpd_ps(_mm512_permutex2var_pd(a, even, b)),
                _mm512_castpd_ps(_mm512_permutex2var_pd(a, odd, b)),
            ]
        }
    }

    /// The inverse of [`split_pairs`].
    #[inline(always)]
    fn merge_pairs(a: __m512, b: __m512) -> [__m512; 2] {
        // SAFETY: called by methods of `Sixteen` only.
        unsafe {
            let first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
            let second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
            let [a, b] = [_mm512_castps_pd(a), _mm512_castps_pd(b)];
            [
                _mm512_castpd_ps(_mm512_permutex2var_pd(a, first, b)),
                _mm512_castpd_ps(_mm512_permutex2var_pd(a, second, b)),
            ]
        }
    }

    /// As [`split`], of four numbers.
    #[inline(always)]
    fn split_fours(a: __m512, b: __m512) -> [__m512; 2] {
        // SAFETY: called by methods of `Sixteen` only.
        unsafe {
            [
                _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b),
                _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b),
            ]
        }
    }

    /// The lanes before the `n`th.
    #[inline(always)]
    fn first_lanes(n: usize) -> u16 {
        ((1u32 << n.min(MOST_TILES)) - 1) as u16
    }

    impl Lanes for Sixteen {
        type V = __m512;
        const TILES: usize = MOST_TILES;

        as_sixteen!(|all: Self| all; add(a, b), sub(a, b), mul_add(a, b, c), neg_mul_add(a, b, c), max(a, b));

        #[inline(always)]
        unsafe fn load(self, p: *const f32) -> __m512 {
            // SAFETY: the caller vouches for 16 floats.
            unsafe { _mm512_loadu_ps(p) }
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut f32, v: __m512) {
            // SAFETY: the caller vouches for 16 floats.
            unsafe { _mm512_storeu_ps(p, v) }
        }
        #[inline(always)]
        unsafe fn load_first(self, p: *const f32, n: usize) -> __m512 {
            // SAFETY: the caller vouches for `n` floats, and no others are touched.
            unsafe { _mm512_maskz_loadu_ps(first_lanes(n), p) }
        }
        #[inline(always)]
        unsafe fn store_first(self, p: *mut f32, n: usize, v: __m512) {
            // SAFETY: the caller vouches for `n` floats, and no others are touched.
            unsafe { _mm512_mask_storeu_ps(p, first_lanes(n), v) }
        }
        #[inline(always)]
        unsafe fn load_split2(self, p: *const f32) -> [__m512; 2] {
            // SAFETY: the caller vouches for 32 floats.
            unsafe { split(self.load(p), self.load(p.add(16))) }
        }
        #[inline(always)]
        unsafe fn load_split4(self, p: *const f32) -> [__m512; 4] {
            // SAFETY: the caller vouches for 64 floats.
            unsafe {
                let [a, b] = split_pairs(self.load(p), self.load(p.add(16)));
                let [c, d] = split_pairs(self.load(p.add(32)), self.load(p.add(48)));
                let ([c0, c1], [c2, c3]) = (split(a, c), split(b, d));
                [c0, c1, c2, c3]
            }
        }
        #[inline(always)]
        unsafe fn load_split8(self, p: *const f32) -> [__m512; 8] {
            let mut columns = [self.splat(0.0); 8];
            // Half a vector has four numbers of each tile: those of eight tiles to a vector.
            let mut halves = [[self.splat(0.0); 2]; 4];
            for i in 0..4 {
                // SAFETY: the caller vouches for 128 floats.
                unsafe {
                    halves[i] =
                        split_fours(self.load(p.add(32 * i)), self.load(p.add(32 * i + 16)));
                }
            }
            for half in 0..2 {
                let [a, b] = split_pairs(halves[0][half], halves[1][half]);
                let [c, d] = split_pairs(halves[2][half], halves[3][half]);
                let ([c0, c1], [c2, c3]) = (split(a, c), split(b, d));
                columns[4 * half] = c0;
                columns[4 * half + 1] = c1;
                columns[4 * half + 2] = c2;
                columns[4 * half + 3] = c3;
            }
            columns
        }
        #[inline(always)]
        fn merge2(self, [a, b]: [__m512; 2]) -> [__m512; 2] {
            merge(a, b)
        }
        #[inline(always)]
        fn merge4(self, [c0, c1, c2, c3]: [__m512; 4]) -> [__m512; 4] {
            let ([a, c], [b, d]) = (merge(c0, c1), merge(c2, c3));
            let ([r0, r1], [r2, r3]) = (merge_pairs(a, b), merge_pairs(c, d));
            [r0, r1, r2, r3]
        }
        #[inline(always)]
        fn shift_down(self, v: __m512, last: f32) -> __m512 {
            supported!({
                let last = _mm512_castps_si512(_mm512_set1_ps(last));
                let v = _mm512_castps_si512(v);
                _mm512_castsi512_ps(_mm512_alignr_epi32::<1>(last, v))
            })
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::gemm::wide::Wide;

    #[test]
    fn sixteen_tiles_are_split_and_merged_in_their_order() {
        if !Isa::Avx512.is_supported() {
            return;
        }
        // SAFETY: support was asked for.
        let lanes = Sixteen::new(unsafe { Wide::new() });
        let numbers: Vec<f32> = (0..128).map(|n| n as f32).collect();
        let p = numbers.as_ptr();
        let numbers_of = |v| {
            let mut values = [0.0; 16];
            // SAFETY: there are 16.
            unsafe { lanes.store(values.as_mut_ptr(), v) };
            values
        };
        let column = |j: usize, of: usize| std::array::from_fn(|tile| (tile * of + j) as f32);
        // SAFETY: there are 128 numbers.
        let (two, four, eight) = unsafe {
            (
                lanes.load_split2(p),
                lanes.load_split4(p),
                lanes.load_split8(p),
            )
        };
        for j in 0..8 {
            assert_eq!(numbers_of(eight[j]), column(j, 8));
        }
        for j in 0..4 {
            assert_eq!(numbers_of(four[j]), column(j, 4));
            assert_eq!(numbers_of(lanes.merge4(four)[j]), numbers[16 * j..][..16]);
        }
        for j in 0..2 {
            assert_eq!(numbers_of(two[j]), column(j, 2));
            assert_eq!(numbers_of(lanes.merge2(two)[j]), numbers[16 * j..][..16]);
        }
        let shifted = numbers_of(lanes.shift_down(two[0], 99.0));
        assert_eq!((shifted[0], shifted[14], shifted[15]), (2.0, 30.0, 99.0));
    }
}
