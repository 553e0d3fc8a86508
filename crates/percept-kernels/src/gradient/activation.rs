//! Gradients of activations and of softmax.

use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::kept::Kept;
use crate::math;
use crate::rows::{BLOCK_LEN, for_each_row_block};
use crate::simd::{LANES, Simd};

/// dx = dy times the slope, which follows from the activation's output (ReLU, sigmoid, tanh), its input (GELU, SiLU), or either
/// (leaky ReLU).
pub fn activation_gradient(
    cpu: &Cpu,
    activation: Activation,
    saved: &[f32],
    dy: &[f32],
    dx: &mut [f32],
) {
    assert_eq!(dy.len(), dx.len(), "dy and dx must be equally long");
    dx.copy_from_slice(dy);
    activation_gradient_in_place(cpu, activation, saved, dx);
}

/// The same with dy already in `dx`.
pub fn activation_gradient_in_place<K: Kept>(
    cpu: &Cpu,
    activation: Activation,
    saved: &[K],
    dx: &mut [f32],
) {
    let len = dx.len();
    assert_eq!(saved.len(), len, "saved and dx must be equally long");
    let dx = SharedMut::new(dx);
    cpu.parallel(len.div_ceil(BLOCK_LEN), &|block, _| {
        let range = block * BLOCK_LEN..len.min((block + 1) * BLOCK_LEN);
        // SAFETY: blocks are disjoint.
        let dx = unsafe { dx.slice(range.clone()) };
        cpu.isa().run(Slopes {
            activation,
            saved: &saved[range],
            dx,
        });
    });
}

struct Slopes<'a, K> {
    activation: Activation,
    saved: &'a [K],
    dx: &'a mut [f32],
}

impl<K: Kept> Kernel for Slopes<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // A constant in each arm: the choice is made here once and not for each vector.
        match self.activation {
            Activation::Identity => {}
            Activation::Relu => self.multiply(s, Activation::Relu),
            Activation::LeakyRelu(slope) => self.multiply(s, Activation::LeakyRelu(slope)),
            Activation::Gelu => self.multiply(s, Activation::Gelu),
            Activation::Silu => self.multiply(s, Activation::Silu),
            Activation::Sigmoid => self.multiply(s, Activation::Sigmoid),
            Activation::Tanh => self.multiply(s, Activation::Tanh),
        }
    }
}

impl<K: Kept> Slopes<'_, K> {
    #[inline(always)]
    fn multiply<S: Simd>(self, s: S, activation: Activation) {
        for (saved, dx) in self.saved.chunks(LANES).zip(self.dx.chunks_mut(LANES)) {
            let slope = slope(s, activation, K::read(s, saved));
            s.write(dx, s.mul(s.read(dx), slope));
        }
    }
}

#[inline(always)]
fn slope<S: Simd>(s: S, activation: Activation, saved: S::V) -> S::V {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    match activation {
        Activation::Identity => one,
        Activation::Relu => s.select(s.less(zero, saved), one, zero),
        Activation::LeakyRelu(slope) => s.select(s.less(zero, saved), one, s.splat(slope)),
        Activation::Sigmoid => s.neg_mul_add(saved, saved, saved),
        Activation::Tanh => s.neg_mul_add(saved, saved, one),
        Activation::Silu => {
            let gate = Activation::Sigmoid.apply(s, saved);
            s.mul(gate, s.mul_add(saved, s.sub(one, gate), one))
        }
        Activation::Gelu => {
            let half = s.splat(0.5);
            let root = s.splat(std::f32::consts::FRAC_1_SQRT_2);
            let below = s.mul_add(half, math::erf(s, s.mul(saved, root)), half);
            // 1 / sqrt(2 pi), the height of the bell.
            let height = s.splat(0.398_942_3);
            let square = s.mul(s.mul(saved, saved), s.splat(-0.5));
            s.mul_add(s.mul(saved, height), math::exp(s, square), below)
        }
    }
}

/// dx = y (dy - Σ dy y) over each row of `width` numbers.
pub fn softmax_gradient(cpu: &Cpu, width: usize, y: &[f32], dy: &[f32], dx: &mut [f32]) {
    assert_eq!(dy.len(), y.len(), "y and dy must be equally long");
    for_each_row_block(cpu, width.max(1), y, dx, |first, y, dx| {
        cpu.isa().run(SoftmaxRows {
            width,
            y,
            dy: &dy[first * width..][..y.len()],
            dx,
        });
    });
}

struct SoftmaxRows<'a> {
    width: usize,
    y: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl Kernel for SoftmaxRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self
            .y
            .chunks_exact(self.width)
            .zip(self.dy.chunks_exact(self.width));
        for ((y, dy), dx) in rows.zip(self.dx.chunks_exact_mut(self.width)) {
            let mut sum = s.splat(0.0);
            for (y, dy) in y.chunks(LANES).zip(dy.chunks(LANES)) {
                sum = s.mul_add(s.read(y), s.read(dy), sum);
            }
            let mean = s.splat(s.sum(sum));
            let vectors = y.chunks(LANES).zip(dy.chunks(LANES));
            for ((y, dy), dx) in vectors.zip(dx.chunks_mut(LANES)) {
                s.write(dx, s.mul(s.read(y), s.sub(s.read(dy), mean)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference::gradient;
    use crate::testing::{check, numbers, widen};

    const ACTIVATIONS: [Activation; 7] = [
        Activation::Identity,
        Activation::Relu,
        Activation::LeakyRelu(0.1),
        Activation::Gelu,
        Activation::Silu,
        Activation::Sigmoid,
        Activation::Tanh,
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn slopes(len in 0usize..300, activation in prop::sample::select(&ACTIVATIONS[..])) {
            let saved: Vec<_> = numbers(1, len).iter().map(|v| v * 9.0).collect();
            let dy = numbers(2, len);
            let mut expected = vec![0.0; len];
            gradient::activation_gradient(activation, &widen(&saved), &widen(&dy), &mut expected);
            check(&expected, 2e-6, |cpu, dx| activation_gradient(cpu, activation, &saved, &dy, dx));
        }

        #[test]
        fn rows(rows in 0usize..40, width in 1usize..100) {
            let (y, dy) = (numbers(1, rows * width), numbers(2, rows * width));
            let mut expected = vec![0.0; y.len()];
            gradient::softmax_gradient(width, &widen(&y), &widen(&dy), &mut expected);
            check(&expected, 1e-5, |cpu, dx| softmax_gradient(cpu, width, &y, &dy, dx));
        }
    }
}
