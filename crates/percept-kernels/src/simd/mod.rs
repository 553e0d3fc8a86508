//! Vectors of 8 floats, on each instruction set.
//!
//! Kernels are generic over [`Simd`] and entered through [`Isa::run`](crate::Isa::run). A value of a `Simd` type is proof
//! that the CPU can run it, so the arithmetic is safe to call; only memory access by pointer is not.

#[cfg(target_arch = "x86_64")]
mod avx2;
pub(crate) mod channels;
mod floats;
mod portable;
mod quad;
#[cfg(target_arch = "x86_64")]
mod sixteen;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::{run_avx2, run_avx2_alone, run_avx512};
pub use floats::Floats;
pub(crate) use portable::run_portable;
pub use portable::{Halves, Portable};
#[cfg(any(test, not(target_arch = "x86_64")))]
pub use quad::Array4;
#[cfg(target_arch = "x86_64")]
pub(crate) use sixteen::{Sixteen, as_sixteen};

use half::{bf16, f16};

use crate::gemm::wide::Wide;
use crate::isa::Kernel;

/// Lanes of a vector, on every instruction set (so packed layouts are shared).
pub const LANES: usize = 8;

/// For each set of lanes, their numbers one after the other, a byte each.
pub(crate) static SET_LANES: [u64; 1 << LANES] = {
    let mut table = [0; 1 << LANES];
    let mut bits = 0;
    while bits < table.len() {
        let (mut lane, mut place) = (0, 0);
        while lane < LANES {
            if bits >> lane & 1 == 1 {
                table[bits] |= (lane as u64) << (8 * place);
                place += 1;
            }
            lane += 1;
        }
        bits += 1;
    }
    table
};

/// Adding it rounds a float of at most 2^21 to a whole number, which then stands in the lowest bits of the sum.
pub const ROUNDER: f32 = 12_582_912.0;

/// Vectors of [`LANES`] floats.
pub trait Simd: Floats + Send + Sync + 'static {
    /// A vector of 4 keys of 64 bits: a float that is not negative above the bits of another one that is not.
    type Keys: Copy;

    /// Runs a kernel as a call of its own, compiled once for all that call it: for large parts that several kernels share.
    fn call<K: Kernel>(self, kernel: K) -> K::Output;

    /// The register tile of 16 floats to a vector, where the CPU has it.
    #[inline(always)]
    fn wide(self) -> Option<Wide> {
        None
    }

    /// Lane i from element i.
    fn vector(self, values: [f32; LANES]) -> Self::V;
    /// Element i from lane i.
    fn to_array(self, v: Self::V) -> [f32; LANES];

    /// `a * b + c`, rounded once whatever the instruction set has.
    #[inline(always)]
    fn fused(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        let [a, b, c] = [a, b, c].map(|v| self.to_array(v));
        self.vector(std::array::from_fn(|lane| {
            a[lane].mul_add(b[lane], c[lane])
        }))
    }

    /// Loads 8 floats; no alignment needed.
    ///
    /// # Safety
    /// `p` must be valid for reading 8 floats.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// Stores 8 floats; no alignment needed.
    ///
    /// # Safety
    /// `p` must be valid for writing 8 floats.
    unsafe fn store(self, p: *mut f32, v: Self::V);
    /// Stores lanes 0..4 and lanes 4..8 at places of their own.
    ///
    /// # Safety
    /// `low` and `high` must be valid for writing 4 floats.
    #[inline(always)]
    unsafe fn store_halves(self, low: *mut f32, high: *mut f32, v: Self::V) {
        let values = self.to_array(v);
        // SAFETY: passed on from the caller.
        unsafe {
            low.copy_from_nonoverlapping(values.as_ptr(), LANES / 2);
            high.copy_from_nonoverlapping(values.as_ptr().add(LANES / 2), LANES / 2);
        }
    }
    /// Loads the first `n` (at most 8) floats and zeroes the other lanes.
    ///
    /// # Safety
    /// `p` must be valid for reading `n` floats.
    unsafe fn load_first(self, p: *const f32, n: usize) -> Self::V;
    /// Stores the first `n` (at most 8) lanes.
    ///
    /// # Safety
    /// `p` must be valid for writing `n` floats.
    unsafe fn store_first(self, p: *mut f32, n: usize, v: Self::V);

    /// The first 8 floats of a slice; lanes past its end are 0.
    #[inline(always)]
    fn read(self, slice: &[f32]) -> Self::V {
        if slice.len() >= LANES {
            // SAFETY: 8 floats are there.
            unsafe { self.load(slice.as_ptr()) }
        } else {
            // SAFETY: `len` floats are there.
            unsafe { self.load_first(slice.as_ptr(), slice.len()) }
        }
    }
    /// Writes the lanes to the first 8 floats of a slice, or to all of a shorter one.
    #[inline(always)]
    fn write(self, slice: &mut [f32], v: Self::V) {
        if slice.len() >= LANES {
            // SAFETY: 8 floats are there.
            unsafe { self.store(slice.as_mut_ptr(), v) }
        } else {
            // SAFETY: `len` floats are there.
            unsafe { self.store_first(slice.as_mut_ptr(), slice.len(), v) }
        }
    }

    /// Floats from the bits of half-precision numbers.
    #[inline(always)]
    fn widen_half(self, halves: [u16; LANES]) -> Self::V {
        self.vector(halves.map(|bits| f16::from_bits(bits).to_f32()))
    }
    /// The bits of the nearest half-precision numbers, of two the even one.
    #[inline(always)]
    fn narrow_half(self, v: Self::V) -> [u16; LANES] {
        let narrow = |value| f16::from_f32(value).to_bits();
        self.to_array(v).map(narrow)
    }
    /// Floats from their upper halves.
    #[inline(always)]
    fn widen_upper(self, uppers: [u16; LANES]) -> Self::V {
        self.vector(uppers.map(|bits| bf16::from_bits(bits).to_f32()))
    }
    /// The upper halves of the floats, rounded to the nearest, of two to the even one.
    #[inline(always)]
    fn narrow_upper(self, v: Self::V) -> [u16; LANES] {
        let narrow = |value| bf16::from_f32(value).to_bits();
        self.to_array(v).map(narrow)
    }

    /// |a|
    fn abs(self, a: Self::V) -> Self::V;
    /// Square root, correctly rounded.
    fn sqrt(self, a: Self::V) -> Self::V;
    /// Largest integer not above a.
    fn floor(self, a: Self::V) -> Self::V;

    /// a == b (false for NaN).
    fn equal(self, a: Self::V, b: Self::V) -> Self::Mask;

    /// Bit i from lane i.
    fn bits(self, mask: Self::Mask) -> u32;
    /// The lanes whose bits are set, moved to the front in their order; the others are without meaning.
    fn compress(self, v: Self::V, bits: u32) -> Self::V;

    /// Keys of lanes 0, 1, 4, 5 and of lanes 2, 3, 6, 7.
    fn keys(self, high: Self::V, low: Self::V) -> [Self::Keys; 2];
    /// The smaller keys.
    fn keys_min(self, a: Self::Keys, b: Self::Keys) -> Self::Keys;
    /// The larger keys.
    fn keys_max(self, a: Self::Keys, b: Self::Keys) -> Self::Keys;
    /// Turns 4 rows of 4 keys into 4 columns.
    fn transpose_keys(self, rows: [Self::Keys; 4]) -> [Self::Keys; 4];
    /// High and low parts of 8 keys, in their order.
    fn key_parts(self, keys: [Self::Keys; 2]) -> (Self::V, Self::V);

    /// Sum of the lanes in a fixed order: ((0+4)+(2+6)) + ((1+5)+(3+7)).
    fn sum(self, a: Self::V) -> f32;
    /// Largest lane.
    fn max_lane(self, a: Self::V) -> f32;

    /// The same vector; the compiler computes it before it touches memory again. Keeps a tuned order of loads.
    #[inline(always)]
    fn settle(self, a: Self::V) -> Self::V {
        a
    }

    /// Splits 32 consecutive floats by 4: lane t of vector j is element 4t + j.
    ///
    /// # Safety
    /// `p` must be valid for reading 32 floats.
    unsafe fn load_split4(self, p: *const f32) -> [Self::V; 4];
    /// Undoes [`Simd::load_split4`]: element 4t + j of the 32 is lane t of vector j.
    fn merge4(self, v: [Self::V; 4]) -> [Self::V; 4];
    /// Stores the 32 floats of [`Simd::merge4`].
    ///
    /// # Safety
    /// `p` must be valid for writing 32 floats.
    #[inline(always)]
    unsafe fn store_merge4(self, p: *mut f32, v: [Self::V; 4]) {
        let parts = self.merge4(v);
        for i in 0..4 {
            // SAFETY: the caller gives 32 writable floats.
            unsafe { self.store(p.add(i * LANES), parts[i]) };
        }
    }
    /// Splits 16 consecutive floats by 2: lane t of vector j is element 2t + j.
    ///
    /// # Safety
    /// `p` must be valid for reading 16 floats.
    unsafe fn load_split2(self, p: *const f32) -> [Self::V; 2];
    /// Undoes [`Simd::load_split2`]: element 2t + j of the 16 is lane t of vector j.
    fn merge2(self, v: [Self::V; 2]) -> [Self::V; 2];
    /// Lanes 1..8 of `a` moved down by one, and `last` behind them.
    fn shift_down(self, a: Self::V, last: f32) -> Self::V;
    /// Every second lane: 0, 2, 4, 6 of `a`, then of `b`.
    fn evens(self, a: Self::V, b: Self::V) -> Self::V;
    /// Turns 8 rows of 8 into 8 columns.
    fn transpose8(self, rows: [Self::V; 8]) -> [Self::V; 8];

    /// Loads 8 integers as the nearest floats.
    ///
    /// # Safety
    /// `p` must be valid for reading 8 integers.
    #[inline(always)]
    unsafe fn load_integers(self, p: *const i32) -> Self::V {
        // SAFETY: passed on from the caller.
        let values = unsafe { p.cast::<[i32; LANES]>().read_unaligned() };
        let mut lanes = [0.0; LANES];
        for lane in 0..LANES {
            lanes[lane] = values[lane] as f32;
        }
        self.vector(lanes)
    }
    /// The nearest whole numbers, the even one of two, of lanes between -128 and 127.
    #[inline(always)]
    fn to_bytes(self, v: Self::V) -> [i8; LANES] {
        let values = self.to_array(v);
        let mut bytes = [0; LANES];
        for lane in 0..LANES {
            bytes[lane] = ((values[lane] + ROUNDER) - ROUNDER) as i8;
        }
        bytes
    }
    /// Lane i from byte i.
    #[inline(always)]
    fn widen_bytes(self, bytes: [i8; LANES]) -> Self::V {
        let mut lanes = [0.0; LANES];
        for lane in 0..LANES {
            lanes[lane] = f32::from(bytes[lane]);
        }
        self.vector(lanes)
    }
    /// [`Simd::to_bytes`] of four vectors, as 8 quads: byte j of quad t is lane t of vector j.
    #[inline(always)]
    fn to_quads(self, v: [Self::V; 4]) -> [[i8; 4]; LANES] {
        let mut quads = [[0; 4]; LANES];
        for j in 0..4 {
            let bytes = self.to_bytes(v[j]);
            for lane in 0..LANES {
                quads[lane][j] = bytes[lane];
            }
        }
        quads
    }
    /// Undoes [`Simd::to_quads`].
    #[inline(always)]
    fn widen_quads(self, quads: [[i8; 4]; LANES]) -> [Self::V; 4] {
        let mut bytes = [[0; LANES]; 4];
        for lane in 0..LANES {
            for j in 0..4 {
                bytes[j][lane] = quads[lane][j];
            }
        }
        let [a, b, c, d] = bytes;
        [
            self.widen_bytes(a),
            self.widen_bytes(b),
            self.widen_bytes(c),
            self.widen_bytes(d),
        ]
    }
}

/// Asks for the cache line at `p` to be read soon. `p` need not be valid.
#[inline(always)]
pub fn prefetch_read(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint that never faults, and SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// Asks for the cache line at `p` to be read into the second-level cache. `p` need not be valid.
#[inline(always)]
pub fn prefetch_read_l2(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint that never faults, and SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// Asks for the cache line at `p` to be owned for writing soon. `p` need not be valid.
#[inline(always)]
pub fn prefetch_write(p: *mut f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint that never faults; CPUs without PREFETCHW run it as a no-op.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(
            p.cast_const().cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

#[cfg(test)]
mod tests;
