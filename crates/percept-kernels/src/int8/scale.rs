//! What a byte stands for.

use crate::simd::Simd;

/// The largest magnitude of a quantised number.
pub(super) const LARGEST: f32 = 127.0;

/// A byte q stands for q · scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ByteScale {
    /// The value of one step, positive.
    pub scale: f32,
    /// Whether bytes go from -127 to 127, else from 0 to 127.
    pub signed: bool,
}

impl ByteScale {
    /// Bytes that reach to `amax`, which may be 0: then everything is 0.
    pub fn reaching(amax: f32, signed: bool) -> ByteScale {
        let amax = if amax > 0.0 { amax } else { 1.0 };
        ByteScale {
            scale: amax / LARGEST,
            signed,
        }
    }

    /// The smallest byte, as a float.
    pub(super) fn lowest(self) -> f32 {
        if self.signed { -LARGEST } else { 0.0 }
    }

    /// The byte of a number: the nearest one, the even one of two; the smallest one for NaN.
    pub fn quantize(self, x: f32) -> i8 {
        let steps = (x * self.per_unit()).max(self.lowest()).min(LARGEST);
        steps.round_ties_even() as i8
    }

    /// Steps to the unit.
    pub(super) fn per_unit(self) -> f32 {
        1.0 / self.scale
    }

    /// For vectors.
    #[inline(always)]
    pub(super) fn steps<S: Simd>(self, s: S) -> Steps<S> {
        Steps::new(s, self.per_unit(), self.lowest())
    }
}

/// The way from numbers to bytes, in vectors.
#[derive(Clone, Copy)]
pub(super) struct Steps<S: Simd> {
    per_unit: S::V,
    lowest: S::V,
}

impl<S: Simd> Steps<S> {
    #[inline(always)]
    pub(super) fn new(s: S, per_unit: f32, lowest: f32) -> Self {
        let [per_unit, lowest] = [per_unit, lowest].map(|x| s.splat(x));
        Steps { per_unit, lowest }
    }

    /// Numbers in steps, cut off at the ends but not rounded yet.
    #[inline(always)]
    pub(super) fn of(self, s: S, x: S::V) -> S::V {
        self.cut_off(s, s.mul(x, self.per_unit))
    }

    /// Steps, cut off at the ends.
    #[inline(always)]
    pub(super) fn cut_off(self, s: S, steps: S::V) -> S::V {
        // `max` and `min` give their second operand where the first is NaN.
        s.min(s.max(steps, self.lowest), s.splat(LARGEST))
    }
}
