//! What a search of sixteen queries does on vectors: pairs of 8 floats and keys of four queries, or, with AVX-512, 16 floats and keys
//! of eight.

use super::super::order::LEAF;
use crate::simd::{Floats, LANES, Simd};

/// Sixteen floats at a time, and keys: a distance's bits above a number, one key for each query of a part.
pub(super) trait Lanes: Copy {
    /// Vectors of 8.
    type S: Simd;
    /// Sixteen floats.
    type Floats: Copy;
    /// The keys of a part's queries, one rank of each.
    type Keys: Copy;

    /// Vectors of keys that sixteen queries fill.
    const PARTS: usize;
    /// Which queries stand in the lanes of each part.
    const QUERIES: [&'static [usize]; MAX_PARTS];

    fn simd(self) -> Self::S;

    fn splat(self, value: f32) -> Self::Floats;
    fn read(self, values: &[[f32; LANES]; 2]) -> Self::Floats;
    fn to_array(self, v: Self::Floats) -> [[f32; LANES]; 2];
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn min(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn max(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// A bit for each lane where a < b.
    fn less(self, a: Self::Floats, b: Self::Floats) -> u32;
    /// A bit for each lane where a = b.
    fn equal(self, a: Self::Floats, b: Self::Floats) -> u32;
    /// Stores the keys of what is at most as far as the key `bound` says, side by side; gives their number.
    ///
    /// # Safety
    /// `to` must be valid for writing 16 keys.
    unsafe fn store_within(
        self,
        to: *mut u64,
        distance: Self::Floats,
        number: Self::Floats,
        bound: u64,
    ) -> usize;

    /// The same key for all queries of a part.
    fn splat_key(self, key: u64) -> Self::Keys;
    fn keys_min(self, a: Self::Keys, b: Self::Keys) -> Self::Keys;
    fn keys_max(self, a: Self::Keys, b: Self::Keys) -> Self::Keys;
    /// Distance and number of each query of a part.
    fn parts(self, keys: Self::Keys) -> ([f32; LANES], [f32; LANES]);
    /// Eight keys of each query of a part to eight vectors with one key of each, in any order of ranks. `there` says how
    /// many there are of each query: in place of the others stands `nothing`.
    fn turn(
        self,
        keys: [&[u64; LANES]; LANES],
        there: [usize; LANES],
        nothing: u64,
    ) -> [Self::Keys; LANES];
    /// Eight successive ranks of a part, as distances and numbers of each query.
    fn turn_back(self, ranks: [Self::Keys; LANES]) -> Rows<Self::S>;
}

/// Distances and numbers of the queries of a part, eight of each; of fewer than eight queries, the first ones count.
pub(super) type Rows<S> = [(<S as Floats>::V, <S as Floats>::V); LANES];

/// Parts of sixteen queries at most.
pub(super) const MAX_PARTS: usize = 4;

/// The key of a distance and a number.
#[inline(always)]
pub(super) fn key(distance: f32, number: f32) -> u64 {
    u64::from(distance.to_bits()) << 32 | u64::from(number.to_bits())
}

/// Distance and number of a key.
#[inline(always)]
pub(super) fn parts(key: u64) -> (f32, f32) {
    (
        f32::from_bits((key >> 32) as u32),
        f32::from_bits(key as u32),
    )
}

/// Pairs of vectors of 8.
#[derive(Clone, Copy)]
pub(super) struct Pairs<S: Simd>(pub(super) S);

impl<S: Simd> Lanes for Pairs<S> {
    type S = S;
    type Floats = [S::V; 2];
    type Keys = S::Keys;

    const PARTS: usize = 4;
    /// As [`Simd::keys`] interleaves them.
    const QUERIES: [&'static [usize]; MAX_PARTS] = [
        &[0, 1, 4, 5],
        &[2, 3, 6, 7],
        &[8, 9, 12, 13],
        &[10, 11, 14, 15],
    ];

    #[inline(always)]
    fn simd(self) -> S {
        self.0
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [S::V; 2] {
        [self.0.splat(value); 2]
    }
    #[inline(always)]
    fn read(self, values: &[[f32; LANES]; 2]) -> [S::V; 2] {
        [self.0.read(&values[0]), self.0.read(&values[1])]
    }
    #[inline(always)]
    fn to_array(self, v: [S::V; 2]) -> [[f32; LANES]; 2] {
        [self.0.to_array(v[0]), self.0.to_array(v[1])]
    }
    #[inline(always)]
    fn add(self, a: [S::V; 2], b: [S::V; 2]) -> [S::V; 2] {
        [self.0.add(a[0], b[0]), self.0.add(a[1], b[1])]
    }
    #[inline(always)]
    fn sub(self, a: [S::V; 2], b: [S::V; 2]) -> [S::V; 2] {
        [self.0.sub(a[0], b[0]), self.0.sub(a[1], b[1])]
    }
    #[inline(always)]
    fn mul(self, a: [S::V; 2], b: [S::V; 2]) -> [S::V; 2] {
        [self.0.mul(a[0], b[0]), self.0.mul(a[1], b[1])]
    }
    #[inline(always)]
    fn min(self, a: [S::V; 2], b: [S::V; 2]) -> [S::V; 2] {
        [self.0.min(a[0], b[0]), self.0.min(a[1], b[1])]
    }
    #[inline(always)]
    fn max(self, a: [S::V; 2], b: [S::V; 2]) -> [S::V; 2] {
        [self.0.max(a[0], b[0]), self.0.max(a[1], b[1])]
    }
    #[inline(always)]
    fn less(self, a: [S::V; 2], b: [S::V; 2]) -> u32 {
        let s = self.0;
        s.bits(s.less(a[0], b[0])) | s.bits(s.less(a[1], b[1])) << LANES
    }
    #[inline(always)]
    fn equal(self, a: [S::V; 2], b: [S::V; 2]) -> u32 {
        let s = self.0;
        s.bits(s.equal(a[0], b[0])) | s.bits(s.equal(a[1], b[1])) << LANES
    }
    #[inline(always)]
    unsafe fn store_within(
        self,
        to: *mut u64,
        distance: [S::V; 2],
        number: [S::V; 2],
        bound: u64,
    ) -> usize {
        let s = self.0;
        let bound = s.splat(parts(bound).0);
        let mut count = 0;
        for half in 0..2 {
            let chosen = !s.bits(s.less(bound, distance[half])) & 0xFF;
            let numbers = s.compress(number[half], chosen);
            let distances = s.compress(distance[half], chosen);
            let [first, second] = s.merge2([numbers, distances]);
            // SAFETY: the caller gives room for 16 keys, and at most 8 are in front of the second half's.
            unsafe {
                s.store(to.add(count).cast(), first);
                s.store(to.add(count + LANES / 2).cast(), second);
            }
            count += chosen.count_ones() as usize;
        }
        count
    }

    #[inline(always)]
    fn splat_key(self, key: u64) -> S::Keys {
        let s = self.0;
        let (distance, number) = parts(key);
        s.keys(s.splat(distance), s.splat(number))[0]
    }
    #[inline(always)]
    fn keys_min(self, a: S::Keys, b: S::Keys) -> S::Keys {
        self.0.keys_min(a, b)
    }
    #[inline(always)]
    fn keys_max(self, a: S::Keys, b: S::Keys) -> S::Keys {
        self.0.keys_max(a, b)
    }
    #[inline(always)]
    fn parts(self, keys: S::Keys) -> ([f32; LANES], [f32; LANES]) {
        let (distance, number) = self.0.key_parts([keys, keys]);
        (self.0.to_array(distance), self.0.to_array(number))
    }
    #[inline(always)]
    fn turn(
        self,
        keys: [&[u64; LANES]; LANES],
        there: [usize; LANES],
        nothing: u64,
    ) -> [S::Keys; LANES] {
        const SEATS: [f32; LANES] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let s = self.0;
        let seats = s.vector(SEATS);
        let (nowhere, nobody) = parts(nothing);
        let (nowhere, nobody) = (s.splat(nowhere), s.splat(nobody));
        let mut rows = [s.keys(nowhere, nobody); 4];
        for query in 0..4 {
            // SAFETY: eight keys are sixteen floats.
            let [number, distance] = unsafe { s.load_split2(keys[query].as_ptr().cast()) };
            let there = s.less(seats, s.splat(there[query] as f32));
            rows[query] = s.keys(
                s.select(there, distance, nowhere),
                s.select(there, number, nobody),
            );
        }
        let [a, b, c, d] = rows;
        let low = s.transpose_keys([a[0], b[0], c[0], d[0]]);
        let high = s.transpose_keys([a[1], b[1], c[1], d[1]]);
        [
            low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3],
        ]
    }
    #[inline(always)]
    fn turn_back(self, ranks: [S::Keys; LANES]) -> Rows<S> {
        let s = self.0;
        let low = s.transpose_keys([ranks[0], ranks[1], ranks[2], ranks[3]]);
        let high = s.transpose_keys([ranks[4], ranks[5], ranks[6], ranks[7]]);
        let mut rows = [(s.splat(0.0), s.splat(0.0)); LANES];
        for query in 0..4 {
            rows[query] = s.key_parts([low[query], high[query]]);
        }
        rows
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use wide::Sixteens;

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::{LANES, LEAF, Lanes, MAX_PARTS, Rows};
    use crate::gemm::wide::Wide;
    use crate::simd::{Avx2, Sixteen, as_sixteen};

    /// Vectors of 16 floats, and keys of eight queries.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Sixteens {
        all: Sixteen,
        eight: Avx2,
    }

    impl Sixteens {
        /// With the proof that the CPU has AVX-512.
        #[inline(always)]
        pub(in super::super) fn new(wide: Wide) -> Sixteens {
            Sixteens {
                all: Sixteen::new(wide),
                eight: Avx2::of(wide),
            }
        }
    }

    /// Wraps intrinsics that need nothing but the CPU's support.
    macro_rules! supported {
        ($e:expr) => {
            // SAFETY: a value of `Sixteens` proves AVX-512.
            unsafe { $e }
        };
    }

    /// Turns eight rows of eight keys.
    #[inline(always)]
    fn transpose(r: [__m512d; LANES]) -> [__m512d; LANES] {
        // SAFETY: called by methods of `Sixteens` only.
        unsafe {
            let mut pairs = r;
            for i in [0, 2, 4, 6] {
                pairs[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
                pairs[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
            }
            // Lanes of two keys: 0 to 3 of each pair of rows.
            let mut out = r;
            for odd in 0..2 {
                let [a, b, c, d] = [pairs[odd], pairs[2 + odd], pairs[4 + odd], pairs[6 + odd]];
                let ab_low = _mm512_shuffle_f64x2::<0b01_00_01_00>(a, b);
                let ab_high = _mm512_shuffle_f64x2::<0b11_10_11_10>(a, b);
                let cd_low = _mm512_shuffle_f64x2::<0b01_00_01_00>(c, d);
                let cd_high = _mm512_shuffle_f64x2::<0b11_10_11_10>(c, d);
                out[odd] = _mm512_shuffle_f64x2::<0b10_00_10_00>(ab_low, cd_low);
                out[2 + odd] = _mm512_shuffle_f64x2::<0b11_01_11_01>(ab_low, cd_low);
                out[4 + odd] = _mm512_shuffle_f64x2::<0b10_00_10_00>(ab_high, cd_high);
                out[6 + odd] = _mm512_shuffle_f64x2::<0b11_01_11_01>(ab_high, cd_high);
            }
            out
        }
    }

    /// Distances and numbers of eight keys.
    #[inline(always)]
    fn key_parts(keys: __m512d) -> (__m256, __m256) {
        // SAFETY: called by methods of `Sixteens` only.
        unsafe {
            let keys = _mm512_castpd_si512(keys);
            let high = _mm512_cvtepi64_epi32(_mm512_srli_epi64::<32>(keys));
            (
                _mm256_castsi256_ps(high),
                _mm256_castsi256_ps(_mm512_cvtepi64_epi32(keys)),
            )
        }
    }

    impl Lanes for Sixteens {
        type S = Avx2;
        type Floats = __m512;
        type Keys = __m512d;

        const PARTS: usize = 2;
        const QUERIES: [&'static [usize]; MAX_PARTS] = [
            &[0, 1, 2, 3, 4, 5, 6, 7],
            &[8, 9, 10, 11, 12, 13, 14, 15],
            &[],
            &[],
        ];

        #[inline(always)]
        fn simd(self) -> Avx2 {
            self.eight
        }

        as_sixteen!(|lanes: Self| lanes.all; add(a, b), sub(a, b), mul(a, b), min(a, b), max(a, b));

        #[inline(always)]
        fn read(self, values: &[[f32; LANES]; 2]) -> __m512 {
            const { assert!(2 * LANES == LEAF) };
            supported!(_mm512_loadu_ps(values.as_ptr().cast()))
        }
        #[inline(always)]
        fn to_array(self, v: __m512) -> [[f32; LANES]; 2] {
            let mut values = [[0.0; LANES]; 2];
            supported!(_mm512_storeu_ps(values.as_mut_ptr().cast(), v));
            values
        }
        #[inline(always)]
        fn less(self, a: __m512, b: __m512) -> u32 {
            u32::from(supported!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b)))
        }
        #[inline(always)]
        fn equal(self, a: __m512, b: __m512) -> u32 {
            u32::from(supported!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b)))
        }
        #[inline(always)]
        unsafe fn store_within(
            self,
            to: *mut u64,
            distance: __m512,
            number: __m512,
            bound: u64,
        ) -> usize {
            // SAFETY: the caller gives room for 16 keys, and at most 8 are in front of the second half's.
            unsafe {
                let bound = _mm512_set1_pd(f64::from_bits(bound));
                let low = _mm512_castps_pd(_mm512_unpacklo_ps(number, distance));
                let high = _mm512_castps_pd(_mm512_unpackhi_ps(number, distance));
                let in_low = _mm512_cmp_pd_mask::<_CMP_LE_OQ>(low, bound);
                let in_high = _mm512_cmp_pd_mask::<_CMP_LE_OQ>(high, bound);
                let first = in_low.count_ones() as usize;
                _mm512_storeu_pd(to.cast(), _mm512_maskz_compress_pd(in_low, low));
                let behind = to.add(first).cast();
                _mm512_storeu_pd(behind, _mm512_maskz_compress_pd(in_high, high));
                first + in_high.count_ones() as usize
            }
        }

        #[inline(always)]
        fn splat_key(self, key: u64) -> __m512d {
            supported!(_mm512_set1_pd(f64::from_bits(key)))
        }
        #[inline(always)]
        fn keys_min(self, a: __m512d, b: __m512d) -> __m512d {
            supported!(_mm512_min_pd(a, b))
        }
        #[inline(always)]
        fn keys_max(self, a: __m512d, b: __m512d) -> __m512d {
            supported!(_mm512_max_pd(a, b))
        }
        #[inline(always)]
        fn parts(self, keys: __m512d) -> ([f32; LANES], [f32; LANES]) {
            use crate::simd::Simd;
            let (distance, number) = key_parts(keys);
            (self.eight.to_array(distance), self.eight.to_array(number))
        }
        #[inline(always)]
        fn turn(
            self,
            keys: [&[u64; LANES]; LANES],
            there: [usize; LANES],
            nothing: u64,
        ) -> [__m512d; LANES] {
            supported!({
                let nothing = _mm512_set1_pd(f64::from_bits(nothing));
                let mut rows = [nothing; LANES];
                for query in 0..LANES {
                    let there = (1u32 << there[query].min(LANES)) - 1;
                    let keys = _mm512_loadu_pd(keys[query].as_ptr().cast());
                    rows[query] = _mm512_mask_mov_pd(nothing, there as u8, keys);
                }
                transpose(rows)
            })
        }
        #[inline(always)]
        fn turn_back(self, ranks: [__m512d; LANES]) -> Rows<Avx2> {
            let turned = transpose(ranks);
            let mut rows = [key_parts(turned[0]); LANES];
            for query in 1..LANES {
                rows[query] = key_parts(turned[query]);
            }
            rows
        }
    }
}
