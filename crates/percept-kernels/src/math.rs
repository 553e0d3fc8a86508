//! Transcendental functions on vectors.
//!
//! Minimax polynomials and rationals of our own (Remez, in exact arithmetic), so results do not depend on a system's maths
//! library. The errors stated are the largest found over a dense sweep of the range, on both instruction sets.

use std::f32::consts::{FRAC_2_SQRT_PI, LN_2, LOG2_E};

use crate::simd::{Floats, ROUNDER};

/// ln 2 in two parts; the first has few bits, so that its product with a whole number is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// (2^x - 1) / x for x between -0.5 and 0.5: coefficients of a polynomial, lowest first.
pub(crate) const EXP2_SLOPE: [f32; 6] = [
    LN_2,
    0.240_226_48,
    0.055_503_324,
    0.009_618_436,
    0.001_339_885_2,
    1.535_36e-4,
];

/// 2^x for x between -0.5 and 0.5: coefficients of a polynomial, lowest first.
pub(crate) const EXP2_UP_TO_0: [f32; 6] = [
    1.000_000_1,
    0.693_146_97,
    0.240_221_2,
    0.055_507_133,
    0.009_675_542,
    0.001_327_647_2,
];

/// Evaluates a polynomial, lowest coefficient first, by Horner's rule.
#[inline(always)]
fn polynomial<S: Floats, const N: usize>(s: S, x: S::V, coefficients: [f32; N]) -> S::V {
    let mut sum = s.splat(coefficients[N - 1]);
    for i in (0..N - 1).rev() {
        sum = s.mul_add(sum, x, s.splat(coefficients[i]));
    }
    sum
}

/// 2^x within 1.5e-7 relative; 0 below -126.5 and infinity from 127.5 on.
#[inline(always)]
pub fn exp2<S: Floats>(s: S, x: S::V) -> S::V {
    exp2_below_128(s, s.min(s.splat(128.0), x))
}

/// [`exp2`] without the check for overflow.
#[inline(always)]
pub(crate) fn exp2_below_128<S: Floats>(s: S, x: S::V) -> S::V {
    // `max` and `min` give the second operand for NaN, so NaN passes through. 2^-127 comes out of `pow2` as 0.
    let x = s.max(s.splat(-127.0), x);
    let whole = s.round(x);
    let part = s.sub(x, whole);
    let slope = polynomial(s, part, EXP2_SLOPE);
    s.mul(s.mul_add(part, slope, s.splat(1.0)), s.pow2(whole))
}

/// 2^x of x up to 0 within 2.2e-7 relative, for a softmax: what is below -120 gives 2^-120.
#[inline(always)]
pub(crate) fn exp2_up_to_0<S: Floats>(s: S, x: S::V) -> S::V {
    // NaN passes through: as in `exp2_below_128`.
    let x = s.max(s.splat(-120.0), x);
    let whole = s.add(x, s.splat(ROUNDER));
    let part = s.sub(x, s.sub(whole, s.splat(ROUNDER)));
    let curve = polynomial(s, part, EXP2_UP_TO_0);
    s.times_pow2(curve, whole)
}

/// e^x within 1.5e-7 relative; 0 below -87.68 and infinity from 88.38 on.
#[inline(always)]
pub fn exp<S: Floats>(s: S, x: S::V) -> S::V {
    let x = s.min(s.splat(89.0), s.max(s.splat(-88.0), x));
    let whole = s.round(s.mul(x, s.splat(LOG2_E)));
    let part = s.neg_mul_add(whole, s.splat(LN_2_HIGH), x);
    let part = s.neg_mul_add(whole, s.splat(LN_2_LOW), part);
    let curve = polynomial(
        s,
        part,
        [
            0.499_999_94,
            0.166_665_2,
            0.041_668_347,
            0.008_368_71,
            0.001_381_672_7,
        ],
    );
    let sum = s.mul_add(s.mul(part, part), curve, part);
    s.mul(s.add(sum, s.splat(1.0)), s.pow2(whole))
}

/// The error function within 5e-7 relative.
#[inline(always)]
pub fn erf<S: Floats>(s: S, x: S::V) -> S::V {
    /// From here on, erf rounds to 1.
    const SATURATION: f32 = 3.92;
    let square = s.mul(x, x);
    let top = polynomial(
        s,
        square,
        [
            FRAC_2_SQRT_PI,
            0.190_407_29,
            0.052_748_838,
            0.003_765_654,
            2.848_838_6e-4,
            2.050_088_8e-6,
        ],
    );
    let bottom = polynomial(
        s,
        square,
        [
            1.0,
            0.502_076_8,
            0.114_109_46,
            0.014_969_29,
            0.001_162_545,
            3.809_174_9e-5,
        ],
    );
    let inside = s.div(s.mul(x, top), bottom);
    saturate(s, x, SATURATION, inside)
}

/// The hyperbolic tangent within 5e-7 relative.
#[inline(always)]
pub fn tanh<S: Floats>(s: S, x: S::V) -> S::V {
    /// From here on, tanh rounds to 1.
    const SATURATION: f32 = 9.01;
    let square = s.mul(x, x);
    let top = polynomial(
        s,
        square,
        [
            1.0,
            0.130_835_83,
            0.003_103_478,
            1.114_927_5e-5,
            -2.020_456_6e-8,
            5.267_845_5e-11,
            -8.462_318e-14,
        ],
    );
    let bottom = polynomial(s, square, [1.0, 0.464_169_1, 0.024_493_277, 2.545_447_3e-4]);
    let inside = s.div(s.mul(x, top), bottom);
    saturate(s, x, SATURATION, inside)
}

/// 1 / (1 + e^-x) within 3e-7 relative; from -87 down the value at -87, 1.6e-38.
#[inline(always)]
pub fn sigmoid<S: Floats>(s: S, x: S::V) -> S::V {
    s.div(s.splat(1.0), one_plus_exp_minus(s, at_least_minus_87(s, x)))
}

/// x / (1 + e^-x) within 3e-7 relative; from -87 down the value at -87, -1.4e-36.
#[inline(always)]
pub fn silu<S: Floats>(s: S, x: S::V) -> S::V {
    let x = at_least_minus_87(s, x);
    s.div(x, one_plus_exp_minus(s, x))
}

/// `max` gives the second operand for NaN, so NaN passes through.
#[inline(always)]
fn at_least_minus_87<S: Floats>(s: S, x: S::V) -> S::V {
    s.max(s.splat(-87.0), x)
}

/// 1 + e^-x for x from -87 on. As short as can be: it is applied to every output of a network with SiLU.
#[inline(always)]
fn one_plus_exp_minus<S: Floats>(s: S, x: S::V) -> S::V {
    let x = s.min(s.splat(87.0), x);
    let shifted = s.mul_add(x, s.splat(-LOG2_E), s.splat(ROUNDER));
    let whole = s.sub(shifted, s.splat(ROUNDER));
    // x + whole * ln 2, which is in two parts as in `exp`.
    let part = s.mul_add(whole, s.splat(LN_2_HIGH), x);
    let part = s.mul_add(whole, s.splat(LN_2_LOW), part);
    let curve = polynomial(
        s,
        part,
        [
            1.000_000_1,
            -0.999_999_7,
            0.499_988_94,
            -0.166_675_75,
            0.041_915_383,
            -0.008_297_655,
        ],
    );
    s.add(s.times_pow2(curve, shifted), s.splat(1.0))
}

/// Exactly -1 and 1 beyond the bound: an approximation that is off by one ulp there would leak |x| * 6e-8 into GELU.
#[inline(always)]
fn saturate<S: Floats>(s: S, x: S::V, bound: f32, inside: S::V) -> S::V {
    let above = s.select(s.less(s.splat(bound), x), s.splat(1.0), inside);
    s.select(s.less(x, s.splat(-bound)), s.splat(-1.0), above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Kernel};
    use crate::simd::Simd;

    #[derive(Clone, Copy, Debug)]
    enum Function {
        Exp2,
        Exp,
        Erf,
        Tanh,
        Sigmoid,
        Silu,
    }

    type Exact = fn(f64) -> f64;

    struct Evaluate(Function, [f32; 8]);

    impl Kernel for Evaluate {
        type Output = [f32; 8];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [f32; 8] {
            let x = s.read(&self.1);
            s.to_array(match self.0 {
                Function::Exp2 => exp2(s, x),
                Function::Exp => exp(s, x),
                Function::Erf => erf(s, x),
                Function::Tanh => tanh(s, x),
                Function::Sigmoid => sigmoid(s, x),
                Function::Silu => silu(s, x),
            })
        }
    }

    /// The largest relative error over a sweep of `range` with both signs of tiny numbers included.
    fn worst(isa: Isa, function: Function, exact: Exact, from: f32, to: f32) -> (f64, f32) {
        const STEPS: usize = 200_000;
        let mut worst = (0.0, 0.0);
        for step in (0..STEPS).step_by(8) {
            let x: [f32; 8] =
                std::array::from_fn(|i| from + (to - from) * ((step + i) as f32 / STEPS as f32));
            for (x, y) in x.into_iter().zip(isa.run(Evaluate(function, x))) {
                let expected = exact(f64::from(x));
                let error = ((f64::from(y) - expected) / expected.abs().max(1e-37)).abs();
                if error > worst.0 {
                    worst = (error, x);
                }
            }
        }
        worst
    }

    #[test]
    fn errors_stay_within_what_the_documentation_says() {
        let cases: [(Function, Exact, f32, f32, f64); 9] = [
            (Function::Exp2, libm::exp2, -126.0, 127.0, 1.5e-7),
            (Function::Exp, libm::exp, -87.0, 88.0, 1.5e-7),
            (Function::Exp, libm::exp, -1.0, 1.0, 1.5e-7),
            (Function::Erf, libm::erf, -5.0, 5.0, 5e-7),
            (Function::Erf, libm::erf, 1e-6, 1e-3, 5e-7),
            (Function::Tanh, libm::tanh, -10.0, 10.0, 5e-7),
            (Function::Tanh, libm::tanh, 1e-6, 1e-3, 5e-7),
            (
                Function::Sigmoid,
                |x| 1.0 / (1.0 + libm::exp(-x)),
                -87.0,
                87.0,
                3e-7,
            ),
            (
                Function::Silu,
                |x| x / (1.0 + libm::exp(-x)),
                -87.0,
                87.0,
                3e-7,
            ),
        ];
        for isa in Isa::available() {
            for (function, exact, from, to, bound) in cases {
                let (error, at) = worst(isa, function, exact, from, to);
                assert!(
                    error <= bound,
                    "{isa} {function:?} is off by {error:e} at {at}"
                );
            }
        }
    }

    #[test]
    fn limits_and_nan() {
        let inf = f32::INFINITY;
        let x = [f32::NAN, -inf, inf, -1e30, 1e30, 0.0, -150.0, 150.0];
        let cases = [
            (
                Function::Exp2,
                [f32::NAN, 0.0, inf, 0.0, inf, 1.0, 0.0, inf],
            ),
            (Function::Exp, [f32::NAN, 0.0, inf, 0.0, inf, 1.0, 0.0, inf]),
            (
                Function::Erf,
                [f32::NAN, -1.0, 1.0, -1.0, 1.0, 0.0, -1.0, 1.0],
            ),
            (
                Function::Tanh,
                [f32::NAN, -1.0, 1.0, -1.0, 1.0, 0.0, -1.0, 1.0],
            ),
            (
                Function::Sigmoid,
                [f32::NAN, 0.0, 1.0, 0.0, 1.0, 0.5, 0.0, 1.0],
            ),
            (
                Function::Silu,
                [f32::NAN, 0.0, inf, 0.0, 1e30, 0.0, 0.0, 150.0],
            ),
        ];
        for isa in Isa::available() {
            for (function, expected) in cases {
                let got = isa.run(Evaluate(function, x));
                let same = |(a, b): (&f32, &f32)| {
                    a == b || a.is_nan() && b.is_nan() || (a - b).abs() < 1e-35
                };
                assert!(
                    got.iter().zip(&expected).all(same),
                    "{isa} {function:?}: {got:?}"
                );
            }
        }
    }
}
