//! The number types that references compute in.

use std::fmt::{Debug, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// f32 or f64. Transcendentals come from the `libm` crate: the same bits on every machine.
pub trait Real:
    Copy
    + Debug
    + Display
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + Sum
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Minus infinity, where a maximum starts.
    const NEG_INFINITY: Self;
    /// Plus infinity, where a minimum starts.
    const INFINITY: Self;

    /// Rounds an f64 to this type.
    fn from_f64(value: f64) -> Self;
    /// Widens to f64, exactly.
    fn to_f64(self) -> f64;
    /// e to the power of self.
    fn exp(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// Square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;

    /// A count as a number.
    fn from_usize(value: usize) -> Self {
        Self::from_f64(value as f64)
    }

    /// The larger of two numbers; NaN when either is, as PyTorch has it.
    fn maximum(self, other: Self) -> Self {
        if self > other || self.is_nan() {
            self
        } else {
            other
        }
    }

    /// The smaller of two numbers; NaN when either is, as PyTorch has it.
    fn minimum(self, other: Self) -> Self {
        if self < other || self.is_nan() {
            self
        } else {
            other
        }
    }

    /// Whether this is not a number.
    fn is_nan(self) -> bool {
        self.partial_cmp(&self).is_none()
    }
}

macro_rules! impl_real {
    ($type:ident, $exp:ident, $ln:ident, $sqrt:ident, $erf:ident, $tanh:ident) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = $type::NEG_INFINITY;
            const INFINITY: Self = $type::INFINITY;

            fn from_f64(value: f64) -> Self {
                value as $type
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn exp(self) -> Self {
                libm::$exp(self)
            }
            fn ln(self) -> Self {
                libm::$ln(self)
            }
            fn sqrt(self) -> Self {
                libm::$sqrt(self)
            }
            fn erf(self) -> Self {
                libm::$erf(self)
            }
            fn tanh(self) -> Self {
                libm::$tanh(self)
            }
        }
    };
}

impl_real!(f32, expf, logf, sqrtf, erff, tanhf);
impl_real!(f64, exp, log, sqrt, erf, tanh);
