//! Vectors of channels that stand side by side: 8, pairs of 8, or, with AVX-512, 16. All give the same bits.

#[cfg(target_arch = "x86_64")]
use super::Sixteen;
use super::{Floats, LANES, Simd};
use crate::cpu::Scratch;
use crate::isa::Kernel;

/// Pixels of as many channels that are turned together.
pub(crate) const TURNED: usize = 2 * LANES;

/// Arithmetic on `8 * EIGHTS` channels.
pub(crate) trait Channels: Floats {
    /// Vectors of 8.
    type S: Simd;

    /// Vectors of 8 that it stands for: 1 or 2.
    const EIGHTS: usize;
    /// Whether a vector is one register, of which there are 32.
    const WIDE: bool;

    /// # Safety
    /// Readable: a float for each channel.
    unsafe fn load(self, from: *const f32) -> Self::V;
    /// # Safety
    /// Writable: a float for each channel.
    unsafe fn store(self, to: *mut f32, v: Self::V);
    /// From vectors of 8, of which the first `EIGHTS` count.
    fn join(self, eights: [<Self::S as Floats>::V; 2]) -> Self::V;
    /// As vectors of 8, of which the first `EIGHTS` count.
    fn eights(self, v: Self::V) -> [<Self::S as Floats>::V; 2];

    /// Channels that stand side by side.
    #[inline(always)]
    fn read(self, from: &[f32]) -> Self::V {
        let from = &from[..Self::EIGHTS * LANES];
        // SAFETY: as many floats are there.
        unsafe { self.load(from.as_ptr()) }
    }
    #[inline(always)]
    fn write(self, to: &mut [f32], v: Self::V) {
        let to = &mut to[..Self::EIGHTS * LANES];
        // SAFETY: as many floats are there.
        unsafe { self.store(to.as_mut_ptr(), v) }
    }
}

/// Vectors of 16 channels.
pub(crate) trait Turn: Channels {
    /// Turns 16 pixels' channels into 16 channels' pixels.
    fn turn(self, pixels: [Self::V; TURNED]) -> [Self::V; TURNED];
    /// Loads the first `n` (at most 16) floats and zeroes the other lanes.
    ///
    /// # Safety
    /// `from` must be valid for reading `n` floats.
    unsafe fn load_first(self, from: *const f32, n: usize) -> Self::V;
    /// Stores the first `n` (at most 16) lanes.
    ///
    /// # Safety
    /// `to` must be valid for writing `n` floats.
    unsafe fn store_first(self, to: *mut f32, n: usize, v: Self::V);
}

/// Work on vectors of 16 channels, written once for all that are such vectors.
pub(crate) trait OnChannels {
    fn compute<C: Turn>(&self, c: C, scratch: &mut Scratch);
}

/// Some work, and memory for it: computed with 16 lanes where the CPU has them, else with twice 8.
pub(crate) struct Compute<'a, W> {
    pub(crate) work: W,
    pub(crate) scratch: &'a mut Scratch,
}

impl<W: OnChannels> Kernel for Compute<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = s.wide() {
            return self.work.compute(Sixteen::new(wide), self.scratch);
        }
        self.work.compute(Eights::<S, 2>(s), self.scratch);
    }
}

/// Vectors of 8, side by side so that none need wait for the other.
#[derive(Clone, Copy)]
pub(crate) struct Eights<S, const N: usize>(pub(crate) S);

/// Methods that go vector by vector.
macro_rules! each {
    ($($name:ident($($v:ident: $kind:ident),+) -> $result:ident;)+) => {
        $(
            #[inline(always)]
            fn $name(self, $($v: Self::$kind),+) -> Self::$result {
                let mut result = [self.0.$name($($v[0]),+); N];
                for i in 1..N {
                    result[i] = self.0.$name($($v[i]),+);
                }
                result
            }
        )+
    };
}

impl<S: Simd, const N: usize> Floats for Eights<S, N> {
    type V = [S::V; N];
    type Mask = [S::Mask; N];

    #[inline(always)]
    fn splat(self, value: f32) -> [S::V; N] {
        [self.0.splat(value); N]
    }
    each! {
        add(a: V, b: V) -> V;
        sub(a: V, b: V) -> V;
        mul(a: V, b: V) -> V;
        div(a: V, b: V) -> V;
        min(a: V, b: V) -> V;
        max(a: V, b: V) -> V;
        mul_add(a: V, b: V, c: V) -> V;
        neg_mul_add(a: V, b: V, c: V) -> V;
        round(a: V) -> V;
        pow2(a: V) -> V;
        times_pow2(a: V, n_plus_rounder: V) -> V;
        less(a: V, b: V) -> Mask;
        select(mask: Mask, yes: V, no: V) -> V;
    }
}

impl<S: Simd, const N: usize> Channels for Eights<S, N> {
    type S = S;

    const EIGHTS: usize = N;
    const WIDE: bool = false;

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> [S::V; N] {
        let mut v = [self.0.splat(0.0); N];
        for i in 0..N {
            // SAFETY: the caller gives as many floats.
            v[i] = unsafe { self.0.load(from.add(i * LANES)) };
        }
        v
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: [S::V; N]) {
        for i in 0..N {
            // SAFETY: the caller gives as many floats.
            unsafe { self.0.store(to.add(i * LANES), v[i]) };
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
}

impl<S: Simd> Turn for Eights<S, 2> {
    #[inline(always)]
    fn turn(self, pixels: [[S::V; 2]; TURNED]) -> [[S::V; 2]; TURNED] {
        let mut turned = pixels;
        for side in 0..2 {
            for half in 0..2 {
                let mut rows = [self.0.splat(0.0); LANES];
                for i in 0..LANES {
                    rows[i] = pixels[side * LANES + i][half];
                }
                let columns = self.0.transpose8(rows);
                for i in 0..LANES {
                    turned[half * LANES + i][side] = columns[i];
                }
            }
        }
        turned
    }
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, n: usize) -> [S::V; 2] {
        let (low, high) = (n.min(LANES), n.saturating_sub(LANES));
        // SAFETY: the caller gives as many floats.
        unsafe {
            [
                self.0.load_first(from, low),
                self.0.load_first(from.wrapping_add(LANES), high),
            ]
        }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize, v: [S::V; 2]) {
        let (low, high) = (n.min(LANES), n.saturating_sub(LANES));
        // SAFETY: the caller gives as many floats.
        unsafe {
            self.0.store_first(to, low, v[0]);
            self.0.store_first(to.wrapping_add(LANES), high, v[1]);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::{Channels, TURNED, Turn};
    use crate::simd::{Avx2, Sixteen};

    /// Wraps intrinsics that need nothing but the CPU's support.
    macro_rules! supported {
        ($e:expr) => {
            // SAFETY: a value of `Sixteen` proves AVX-512.
            unsafe { $e }
        };
    }

    impl Channels for Sixteen {
        type S = Avx2;

        const EIGHTS: usize = 2;
        const WIDE: bool = true;

        #[inline(always)]
        unsafe fn load(self, from: *const f32) -> __m512 {
            // SAFETY: the caller gives 16 readable floats.
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32, v: __m512) {
            // SAFETY: the caller gives 16 writable floats.
            unsafe { _mm512_storeu_ps(to, v) }
        }
        #[inline(always)]
        fn join(self, [low, high]: [__m256; 2]) -> __m512 {
            supported!(_mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high))
        }
        #[inline(always)]
        fn eights(self, v: __m512) -> [__m256; 2] {
            supported!([_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)])
        }
    }

    impl Turn for Sixteen {
        // Within blocks of 4 by 4, and then the blocks.
        #[inline(always)]
        fn turn(self, pixels: [__m512; TURNED]) -> [__m512; TURNED] {
            supported!({
                let mut blocks = [[_mm512_setzero_ps(); 4]; 4];
                for g in 0..4 {
                    let [a, b, c, d] = [
                        pixels[4 * g],
                        pixels[4 * g + 1],
                        pixels[4 * g + 2],
                        pixels[4 * g + 3],
                    ];
                    let ab = [_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)];
                    let cd = [_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)];
                    for half in 0..2 {
                        let (ab, cd) = (_mm512_castps_pd(ab[half]), _mm512_castps_pd(cd[half]));
                        blocks[g][2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
                        blocks[g][2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
                    }
                }
                let mut turned = [_mm512_setzero_ps(); TURNED];
                for j in 0..4 {
                    let [a, b, c, d] = [blocks[0][j], blocks[1][j], blocks[2][j], blocks[3][j]];
                    let (ab_even, ab_odd) = (
                        _mm512_shuffle_f32x4::<0x88>(a, b),
                        _mm512_shuffle_f32x4::<0xdd>(a, b),
                    );
                    let (cd_even, cd_odd) = (
                        _mm512_shuffle_f32x4::<0x88>(c, d),
                        _mm512_shuffle_f32x4::<0xdd>(c, d),
                    );
                    turned[j] = _mm512_shuffle_f32x4::<0x88>(ab_even, cd_even);
                    turned[4 + j] = _mm512_shuffle_f32x4::<0x88>(ab_odd, cd_odd);
                    turned[8 + j] = _mm512_shuffle_f32x4::<0xdd>(ab_even, cd_even);
                    turned[12 + j] = _mm512_shuffle_f32x4::<0xdd>(ab_odd, cd_odd);
                }
                turned
            })
        }
        #[inline(always)]
        unsafe fn load_first(self, from: *const f32, n: usize) -> __m512 {
            // SAFETY: the caller gives as many floats; masked lanes are not touched.
            unsafe { _mm512_maskz_loadu_ps(first(n), from) }
        }
        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, n: usize, v: __m512) {
            // SAFETY: the caller gives as many floats; masked lanes are not touched.
            unsafe { _mm512_mask_storeu_ps(to, first(n), v) }
        }
    }

    fn first(n: usize) -> __mmask16 {
        ((1_u32 << n.min(TURNED)) - 1) as __mmask16
    }
}
