//! Softmax over the last axis.

use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::math::exp;
use crate::rows::{for_each_row_block, sum};
use crate::simd::{LANES, Simd};

/// y = exp(x - max) / sum(exp(x - max)) over each row of `width` numbers.
pub fn softmax(cpu: &Cpu, width: usize, x: &[f32], y: &mut [f32]) {
    for_each_row_block(cpu, width, x, y, |_, x, y| {
        cpu.isa().run(SoftmaxRows {
            width,
            x,
            y,
            log: false,
        });
    });
}

/// y = x - max - ln(sum(exp(x - max))) over each row of `width` numbers.
pub fn log_softmax(cpu: &Cpu, width: usize, x: &[f32], y: &mut [f32]) {
    for_each_row_block(cpu, width, x, y, |_, x, y| {
        cpu.isa().run(SoftmaxRows {
            width,
            x,
            y,
            log: true,
        });
    });
}

struct SoftmaxRows<'a> {
    width: usize,
    x: &'a [f32],
    y: &'a mut [f32],
    log: bool,
}

impl Kernel for SoftmaxRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, y) in self
            .x
            .chunks_exact(self.width)
            .zip(self.y.chunks_exact_mut(self.width))
        {
            let max = largest(s, x);
            let max_lanes = s.splat(max);
            for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
                s.write(y, exp(s, s.sub(s.read(x), max_lanes)));
            }
            let total = sum(s, y);
            if self.log {
                let shift = s.splat(libm::logf(total));
                for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
                    s.write(y, s.sub(s.sub(s.read(x), max_lanes), shift));
                }
            } else {
                let factor = s.splat(1.0 / total);
                for y in y.chunks_mut(LANES) {
                    s.write(y, s.mul(s.read(y), factor));
                }
            }
        }
    }
}

/// The largest number of a row that is not empty.
#[inline(always)]
pub(crate) fn largest<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut max = s.splat(x[0]);
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        max = s.max(s.read(chunk), max);
    }
    chunks
        .remainder()
        .iter()
        .fold(s.max_lane(max), |max, &value| max.max(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference;
    use crate::testing::{check, numbers, widen};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn rows(rows in 0usize..20, width in 1usize..2000, spread in 0.1f32..60.0) {
            let x: Vec<f32> = numbers(1, rows * width).iter().map(|v| v * spread).collect();
            let wide = widen(&x);
            let mut expected = vec![0.0; x.len()];
            reference::softmax(width, &wide, &mut expected);
            check(&expected, 5e-7, |cpu, y| softmax(cpu, width, &x, y));
            reference::log_softmax(width, &wide, &mut expected);
            check(&expected, 1e-6, |cpu, y| log_softmax(cpu, width, &x, y));
        }
    }

    #[test]
    fn impossible_classes_get_nothing() {
        let x = [f32::NEG_INFINITY, 1.0, 1.0];
        check(&[0.0, 0.5, 0.5], 1e-7, |cpu, y| softmax(cpu, 3, &x, y));
    }
}
