//! Four floats: half of a portable vector.

#[cfg(any(test, not(target_arch = "x86_64")))]
mod array;
#[cfg(target_arch = "x86_64")]
mod sse2;

#[cfg(any(test, not(target_arch = "x86_64")))]
pub use array::Array4;

/// The four floats of this CPU's smallest vector. SSE2 is part of every x86-64, and the compiler takes a quarter of the time
/// for it that it needs to find vectors in arrays.
#[cfg(target_arch = "x86_64")]
pub(super) type Native4 = std::arch::x86_64::__m128;
/// The four floats of this CPU's smallest vector.
#[cfg(not(target_arch = "x86_64"))]
pub(super) type Native4 = Array4;

/// Arithmetic on four floats that every CPU of an architecture has. What an operation means stands at [`Simd`](super::Simd).
pub trait Quad: Copy + Send + Sync + 'static {
    /// The result of comparing.
    type Mask: Copy;
    /// Two keys of 64 bits: a float that is not negative above the bits of another one that is not.
    type Pair: Copy;

    /// All lanes the same.
    fn splat(value: f32) -> Self;
    /// Lane i from element i.
    fn new(values: [f32; 4]) -> Self;
    /// Element i from lane i.
    fn to_array(self) -> [f32; 4];
    /// Loads 4 floats; no alignment needed.
    ///
    /// # Safety
    /// `p` must be valid for reading 4 floats.
    unsafe fn load(p: *const f32) -> Self;
    /// Stores 4 floats; no alignment needed.
    ///
    /// # Safety
    /// `p` must be valid for writing 4 floats.
    unsafe fn store(self, p: *mut f32);

    /// self + b
    fn add(self, b: Self) -> Self;
    /// self - b
    fn sub(self, b: Self) -> Self;
    /// self * b
    fn mul(self, b: Self) -> Self;
    /// self / b
    fn div(self, b: Self) -> Self;
    /// self < b ? self : b
    fn min(self, b: Self) -> Self;
    /// self > b ? self : b
    fn max(self, b: Self) -> Self;
    /// |self|
    fn abs(self) -> Self;
    /// Square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// 2^self for integers.
    fn pow2(self) -> Self;
    /// self * 2^n, where n comes as n + ROUNDER.
    fn times_pow2(self, n_plus_rounder: Self) -> Self;
    /// Largest integers not above self.
    #[inline(always)]
    fn floor(self) -> Self {
        let [a, b, c, d] = self.to_array();
        Self::new([a.floor(), b.floor(), c.floor(), d.floor()])
    }
    /// Nearest integers, ties to even.
    #[inline(always)]
    fn round(self) -> Self {
        let [a, b, c, d] = self.to_array();
        let round = f32::round_ties_even;
        Self::new([round(a), round(b), round(c), round(d)])
    }

    /// self < b
    fn less(self, b: Self) -> Self::Mask;
    /// self == b
    fn equal(self, b: Self) -> Self::Mask;
    /// mask ? yes : no
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// Bit i from lane i.
    fn bits(mask: Self::Mask) -> u32;

    /// Lanes 0 and 2 of both.
    fn evens(self, b: Self) -> Self;
    /// Lanes 1 and 3 of both.
    fn odds(self, b: Self) -> Self;
    /// Lanes 0, 0, 1, 1 of both by turns, and lanes 2, 2, 3, 3.
    fn interleave(self, b: Self) -> [Self; 2];
    /// Turns 4 rows of 4 into 4 columns.
    fn transpose(rows: [Self; 4]) -> [Self; 4];

    /// Keys of lanes 0 and 1, and of lanes 2 and 3.
    fn keys(high: Self, low: Self) -> [Self::Pair; 2];
    /// The smaller keys.
    fn keys_min(a: Self::Pair, b: Self::Pair) -> Self::Pair;
    /// The larger keys.
    fn keys_max(a: Self::Pair, b: Self::Pair) -> Self::Pair;
    /// Turns 2 rows of 2 keys into 2 columns.
    fn transpose_keys(a: Self::Pair, b: Self::Pair) -> [Self::Pair; 2];
    /// High and low parts of 4 keys.
    fn key_parts(a: Self::Pair, b: Self::Pair) -> (Self, Self);
}
