//! Activation functions, as fused into kernels and on single values.

use crate::math;
use crate::simd::Floats;

/// A function applied to each element of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// x
    #[default]
    Identity,
    /// max(x, 0)
    Relu,
    /// x, or slope * x below 0
    LeakyRelu(f32),
    /// x * (1 + erf(x / sqrt 2)) / 2
    Gelu,
    /// x * sigmoid(x)
    Silu,
    /// 1 / (1 + exp(-x))
    Sigmoid,
    /// Hyperbolic tangent
    Tanh,
}

impl Activation {
    /// One value, through the `libm` crate, so the same bits on every machine.
    pub fn scalar(self, x: f32) -> f32 {
        match self {
            Activation::Identity => x,
            Activation::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Activation::LeakyRelu(slope) => {
                if x > 0.0 {
                    x
                } else {
                    slope * x
                }
            }
            Activation::Gelu => 0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2)),
            Activation::Silu => x / (1.0 + libm::expf(-x)),
            Activation::Sigmoid => 1.0 / (1.0 + libm::expf(-x)),
            Activation::Tanh => libm::tanhf(x),
        }
    }

    /// A vector of values.
    #[inline(always)]
    pub fn apply<S: Floats>(self, s: S, x: S::V) -> S::V {
        match self {
            Activation::Identity => x,
            // NaN stays NaN: `max` gives its second operand then.
            Activation::Relu => s.max(s.splat(0.0), x),
            Activation::LeakyRelu(slope) => {
                let zero = s.splat(0.0);
                s.select(s.less(zero, x), x, s.mul(s.splat(slope), x))
            }
            Activation::Gelu => {
                let erf = math::erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2)));
                let half = s.mul(x, s.splat(0.5));
                s.mul_add(half, erf, half)
            }
            Activation::Silu => math::silu(s, x),
            Activation::Sigmoid => math::sigmoid(s, x),
            Activation::Tanh => math::tanh(s, x),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Kernel};
    use crate::simd::Simd;

    struct Apply(Activation, [f32; 8]);

    impl Kernel for Apply {
        type Output = [f32; 8];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [f32; 8] {
            s.to_array(self.0.apply(s, s.vector(self.1)))
        }
    }

    #[test]
    fn known_values() {
        let near = |activation: Activation, x: f32, y: f32| {
            let got = activation.scalar(x);
            assert!(
                (got - y).abs() < 1e-6,
                "{activation:?}({x}) = {got}, expected {y}"
            );
        };
        near(Activation::Relu, -1.0, 0.0);
        near(Activation::LeakyRelu(0.1), -2.0, -0.2);
        near(Activation::Gelu, 1.0, 0.841_344_8);
        near(Activation::Silu, 1.0, 0.731_058_6);
        near(Activation::Sigmoid, -2.0, 0.119_202_92);
        near(Activation::Tanh, 0.5, 0.462_117_16);
    }

    #[test]
    fn vectors_match_scalars() {
        let x = [-90.0, -3.0, -0.5, -0.0, 0.0, 0.7, 2.0, 90.0];
        for activation in [
            Activation::Identity,
            Activation::Relu,
            Activation::LeakyRelu(0.1),
            Activation::Gelu,
            Activation::Silu,
            Activation::Sigmoid,
            Activation::Tanh,
        ] {
            for isa in Isa::available() {
                for (got, x) in isa.run(Apply(activation, x)).into_iter().zip(x) {
                    let expected = activation.scalar(x);
                    assert!(
                        (got - expected).abs() <= 2e-6 * expected.abs().max(0.1),
                        "{isa} {activation:?}({x})"
                    );
                }
            }
        }
    }
}
