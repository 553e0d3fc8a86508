//! Rows of length one, with their gradient.

use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::{for_each_row_block, square_sum};
use crate::simd::{LANES, Simd};

/// y = x / max(‖x‖, eps) over each row of `width` numbers.
pub fn normalize(cpu: &Cpu, width: usize, eps: f32, x: &[f32], y: &mut [f32]) {
    for_each_row_block(cpu, width, x, y, |_, x, y| {
        cpu.isa().run(Rows { width, eps, x, y });
    });
}

struct Rows<'a> {
    width: usize,
    eps: f32,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.x.chunks_exact(self.width);
        for (x, y) in rows.zip(self.y.chunks_exact_mut(self.width)) {
            let length = s.splat(square_sum(s, x, 0.0).sqrt().max(self.eps));
            for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
                s.write(y, s.div(s.read(x), length));
            }
        }
    }
}

/// dx = (dy - x (x·dy) / ‖x‖²) / ‖x‖ over each row; dy / eps where the row is no longer than eps.
pub fn normalize_gradient(
    cpu: &Cpu,
    width: usize,
    eps: f32,
    x: &[f32],
    dy: &[f32],
    dx: &mut [f32],
) {
    assert_eq!(dy.len(), x.len(), "x and dy must be equally long");
    for_each_row_block(cpu, width, x, dx, |first, x, dx| {
        let dy = &dy[first * width..][..x.len()];
        cpu.isa().run(GradientRows {
            width,
            eps,
            x,
            dy,
            dx,
        });
    });
}

struct GradientRows<'a> {
    width: usize,
    eps: f32,
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl Kernel for GradientRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.x.chunks_exact(self.width);
        let rows = rows.zip(self.dy.chunks_exact(self.width));
        for ((x, dy), dx) in rows.zip(self.dx.chunks_exact_mut(self.width)) {
            let square = square_sum(s, x, 0.0);
            let length = square.sqrt();
            let mut along = s.splat(0.0);
            for (x, dy) in x.chunks(LANES).zip(dy.chunks(LANES)) {
                along = s.mul_add(s.read(x), s.read(dy), along);
            }
            let along = match length > self.eps {
                true => s.splat(s.sum(along) / square),
                false => s.splat(0.0),
            };
            let length = s.splat(length.max(self.eps));
            let vectors = x.chunks(LANES).zip(dy.chunks(LANES));
            for ((x, dy), dx) in vectors.zip(dx.chunks_mut(LANES)) {
                let across = s.neg_mul_add(s.read(x), along, s.read(dy));
                s.write(dx, s.div(across, length));
            }
        }
    }
}

/// The same, slow and readable.
pub mod reference {
    use crate::reference::Real;

    fn length<T: Real>(x: &[T]) -> T {
        x.iter().map(|&x| x * x).sum::<T>().sqrt()
    }

    /// y = x / max(‖x‖, eps) over each row.
    pub fn normalize<T: Real>(width: usize, eps: T, x: &[T], y: &mut [T]) {
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let length = length(x).maximum(eps);
            for (&x, y) in x.iter().zip(y) {
                *y = x / length;
            }
        }
    }

    /// dx = (dy - x (x·dy) / ‖x‖²) / ‖x‖ over each row; dy / eps where the row is no longer than eps.
    pub fn normalize_gradient<T: Real>(width: usize, eps: T, x: &[T], dy: &[T], dx: &mut [T]) {
        let rows = x.chunks_exact(width).zip(dy.chunks_exact(width));
        for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(width)) {
            let length = length(x);
            let dot = x.iter().zip(dy).map(|(&x, &dy)| x * dy).sum::<T>();
            for ((&x, &dy), dx) in x.iter().zip(dy).zip(dx) {
                *dx = match length > eps {
                    true => (dy - x * dot / (length * length)) / length,
                    false => dy / eps,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{check, numbers, widen};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn rows(rows in 0usize..40, width in 1usize..300, eps in prop::sample::select(vec![1e-6f32, 2.0])) {
            let (x, dy) = (numbers(1, rows * width), numbers(2, rows * width));
            let (wide, eps64) = (widen(&x), f64::from(eps));
            let mut expected = vec![0.0; x.len()];
            reference::normalize(width, eps64, &wide, &mut expected);
            check(&expected, 1e-6, |cpu, y| normalize(cpu, width, eps, &x, y));
            reference::normalize_gradient(width, eps64, &wide, &widen(&dy), &mut expected);
            check(&expected, 1e-5, |cpu, dx| normalize_gradient(cpu, width, eps, &x, &dy, dx));
        }
    }

    #[test]
    fn a_row_of_zeros_stays_zero_and_its_gradient_is_finite() {
        check(&[0.0; 5], 0.0, |cpu, y| {
            normalize(cpu, 5, 1e-3, &[0.0; 5], y)
        });
        check(&[2e3; 5], 1e-6, |cpu, dx| {
            normalize_gradient(cpu, 5, 1e-3, &[0.0; 5], &[2.0; 5], dx);
        });
    }
}
