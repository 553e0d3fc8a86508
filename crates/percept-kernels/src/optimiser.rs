//! Optimisers: parameters and moments move in place.

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::{BLOCK_LEN, square_sum};
use crate::simd::{LANES, Simd};

/// The numbers of one step of stochastic gradient descent.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct SgdStep {
    pub rate: f64,
    pub momentum: f64,
    pub weight_decay: f64,
    pub nesterov: bool,
    /// What gradients are multiplied with.
    pub clip: f64,
}

/// The numbers of one step of Adam with decoupled weight decay.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct AdamWStep {
    pub rate: f64,
    pub betas: [f64; 2],
    pub eps: f64,
    pub weight_decay: f64,
    /// Steps so far, this one included.
    pub count: f64,
    /// What gradients are multiplied with.
    pub clip: f64,
}

impl AdamWStep {
    /// How far the moments have come from their start at zero: 1 - βᵗ.
    pub fn corrections(&self) -> [f64; 2] {
        self.betas.map(|beta| 1.0 - libm::pow(beta, self.count))
    }
}

/// Moves weights (and, with momentum, the velocity) by one step.
pub fn sgd(
    cpu: &Cpu,
    step: &SgdStep,
    gradient: &[f32],
    weight: &mut [f32],
    velocity: Option<&mut [f32]>,
) {
    let len = weight.len();
    assert_eq!(gradient.len(), len, "length of the gradient");
    let weight = SharedMut::new(weight);
    let velocity = velocity.map(|velocity| {
        assert_eq!(velocity.len(), len, "length of the velocity");
        SharedMut::new(velocity)
    });
    cpu.parallel(len.div_ceil(BLOCK_LEN), &|block, _| {
        let range = block * BLOCK_LEN..len.min((block + 1) * BLOCK_LEN);
        // SAFETY: blocks are disjoint.
        let weight = unsafe { weight.slice(range.clone()) };
        let velocity = velocity.as_ref().map(|velocity| {
            // SAFETY: blocks are disjoint.
            unsafe { velocity.slice(range.clone()) }
        });
        cpu.isa().run(SgdBlock {
            step,
            gradient: &gradient[range],
            weight,
            velocity,
        });
    });
}

struct SgdBlock<'a> {
    step: &'a SgdStep,
    gradient: &'a [f32],
    weight: &'a mut [f32],
    velocity: Option<&'a mut [f32]>,
}

impl Kernel for SgdBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let splat = |value: f64| s.splat(value as f32);
        let (rate, momentum) = (splat(self.step.rate), splat(self.step.momentum));
        let (decay, clip) = (splat(self.step.weight_decay), splat(self.step.clip));
        for start in (0..self.weight.len()).step_by(LANES) {
            let w = s.read(&self.weight[start..]);
            let mut g = s.mul_add(decay, w, s.mul(s.read(&self.gradient[start..]), clip));
            if let Some(velocity) = &mut self.velocity {
                let v = s.mul_add(momentum, s.read(&velocity[start..]), g);
                s.write(&mut velocity[start..], v);
                g = if self.step.nesterov {
                    s.mul_add(momentum, v, g)
                } else {
                    v
                };
            }
            s.write(&mut self.weight[start..], s.neg_mul_add(rate, g, w));
        }
    }
}

/// Moves weights and both moments by one step.
pub fn adam_w(
    cpu: &Cpu,
    step: &AdamWStep,
    gradient: &[f32],
    weight: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    let len = weight.len();
    assert!(
        [gradient.len(), first.len(), second.len()] == [len; 3],
        "gradient and moments are as long as the weights"
    );
    let moving = [weight, first, second].map(SharedMut::new);
    cpu.parallel(len.div_ceil(BLOCK_LEN), &|block, _| {
        let range = block * BLOCK_LEN..len.min((block + 1) * BLOCK_LEN);
        // SAFETY: blocks are disjoint.
        let [weight, first, second] = moving
            .each_ref()
            .map(|values| unsafe { values.slice(range.clone()) });
        cpu.isa().run(AdamWBlock {
            step,
            gradient: &gradient[range],
            weight,
            first,
            second,
        });
    });
}

struct AdamWBlock<'a> {
    step: &'a AdamWStep,
    gradient: &'a [f32],
    weight: &'a mut [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Kernel for AdamWBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let step = self.step;
        let [beta1, beta2] = step.betas.map(|beta| s.splat(beta as f32));
        let [rest1, rest2] = step.betas.map(|beta| s.splat((1.0 - beta) as f32));
        let [correction1, correction2] = step.corrections();
        let decay = s.splat((step.rate * step.weight_decay) as f32);
        let rate = s.splat((step.rate / correction1) as f32);
        let correction2 = s.splat((1.0 / correction2) as f32);
        let (eps, clip) = (s.splat(step.eps as f32), s.splat(step.clip as f32));
        for start in (0..self.weight.len()).step_by(LANES) {
            let g = s.mul(s.read(&self.gradient[start..]), clip);
            let m = s.mul_add(rest1, g, s.mul(beta1, s.read(&self.first[start..])));
            let v = s.read(&self.second[start..]);
            let v = s.mul_add(s.mul(rest2, g), g, s.mul(beta2, v));
            s.write(&mut self.first[start..], m);
            s.write(&mut self.second[start..], v);
            let w = s.read(&self.weight[start..]);
            let w = s.neg_mul_add(decay, w, w);
            let size = s.add(s.sqrt(s.mul(v, correction2)), eps);
            let w = s.neg_mul_add(rate, s.div(m, size), w);
            s.write(&mut self.weight[start..], w);
        }
    }
}

/// min(1, max_norm / (‖values‖ + 1e-6)) over all of these values: fixed blocks, summed in f64 in their order.
pub fn clip_factor(cpu: &Cpu, max_norm: f64, values: &[&[f32]]) -> f64 {
    let blocks: Vec<&[f32]> = values.iter().flat_map(|v| v.chunks(BLOCK_LEN)).collect();
    let mut sums = vec![0.0f64; blocks.len()];
    let target = SharedMut::new(&mut sums);
    cpu.parallel(blocks.len(), &|block, _| {
        let sum = cpu.isa().run(SquareSum { x: blocks[block] });
        // SAFETY: each block has its own sum.
        unsafe { target.slice(block..block + 1) }.fill(f64::from(sum));
    });
    let norm = sums.iter().sum::<f64>().sqrt();
    // NaN stays: a broken gradient must not look clipped.
    let factor = max_norm / (norm + 1e-6);
    if factor > 1.0 { 1.0 } else { factor }
}

struct SquareSum<'a> {
    x: &'a [f32],
}

impl Kernel for SquareSum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        square_sum(s, self.x, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference;
    use crate::testing::{check, numbers, widen};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn descent(len in 0usize..70, momentum in any::<bool>(), nesterov in any::<bool>()) {
            let step = SgdStep { rate: 0.1, momentum: 0.9, weight_decay: 0.01, nesterov, clip: 0.5 };
            let (g, w, v) = (numbers(1, len), numbers(2, len), numbers(3, len));
            let (mut wide_w, mut wide_v) = (widen(&w), widen(&v));
            reference::sgd(&step, &widen(&g), &mut wide_w, momentum.then_some(&mut wide_v[..]));
            for (expected, takes_weight) in [(&wide_w, true), (&wide_v, false)] {
                check(expected, 1e-6, |cpu, y| {
                    let (mut w, mut v) = (w.clone(), v.clone());
                    sgd(cpu, &step, &g, &mut w, momentum.then_some(&mut v[..]));
                    y.copy_from_slice(if takes_weight { &w } else { &v });
                });
            }
        }

        #[test]
        fn adam(len in 0usize..70, count in 1u32..100) {
            let count = f64::from(count);
            let step = AdamWStep {
                rate: 1e-2, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.1, count, clip: 2.0,
            };
            let (g, w, m) = (numbers(1, len), numbers(2, len), numbers(3, len));
            let v: Vec<f32> = numbers(4, len).iter().map(|v| v * v).collect();
            let mut wide = [&w, &m, &v].map(|values| widen(values));
            let [wide_w, wide_m, wide_v] = &mut wide;
            reference::adam_w(&step, &widen(&g), wide_w, wide_m, wide_v);
            for (i, expected) in wide.iter().enumerate() {
                check(expected, 1e-5, |cpu, y| {
                    let mut moving = [w.clone(), m.clone(), v.clone()];
                    let [w, m, v] = &mut moving;
                    adam_w(cpu, &step, &g, w, m, v);
                    y.copy_from_slice(&moving[i]);
                });
            }
        }
    }

    #[test]
    fn long_gradients_are_clipped_together() {
        let (a, b) = (numbers(1, 3 * BLOCK_LEN + 5), numbers(2, 7));
        let norm = widen(&a)
            .iter()
            .chain(&widen(&b))
            .map(|v| v * v)
            .sum::<f64>()
            .sqrt();
        for (max_norm, expected) in [(1.0, 1.0 / (norm + 1e-6)), (1e6, 1.0)] {
            check(&[expected], 1e-6, |cpu, y| {
                y[0] = clip_factor(cpu, max_norm, &[&a, &b]) as f32;
            });
        }
        let cpu = Cpu::new(1).unwrap();
        assert!(clip_factor(&cpu, 1.0, &[&[f32::NAN]]).is_nan());
        assert_eq!(clip_factor(&cpu, 1.0, &[]), 1.0);
    }
}
