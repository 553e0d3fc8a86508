//! What mathematical functions need of a vector, however long it is.

/// Arithmetic on vectors of floats.
pub trait Floats: Copy {
    /// A vector.
    type V: Copy;
    /// The result of comparing two vectors.
    type Mask: Copy;

    /// All lanes the same.
    fn splat(self, value: f32) -> Self::V;
    /// a + b
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// a - b
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// a * b
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// a / b
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a < b ? a : b, so b where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// a > b ? a : b, so b where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// a * b + c (rounded once or twice, as the instruction set has it).
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// c - a * b (rounded once or twice, as the instruction set has it).
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// 2^a for integer-valued a in -126..=127.
    fn pow2(self, a: Self::V) -> Self::V;
    /// `a * 2^n`, where `n` comes as `n + ROUNDER` and neither `a` nor the product is near the ends of the range.
    fn times_pow2(self, a: Self::V, n_plus_rounder: Self::V) -> Self::V;
    /// a < b (false for NaN).
    fn less(self, a: Self::V, b: Self::V) -> Self::Mask;
    /// Lane by lane: `mask ? yes : no`.
    fn select(self, mask: Self::Mask, yes: Self::V, no: Self::V) -> Self::V;
}
