//! The gradient of layer normalisation.

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::{square_sum, sum};
use crate::simd::{LANES, Simd};

/// Rows of a block: its part of dgamma and dbeta is summed before it joins the others.
const ROWS: usize = 32;

/// dx, dgamma and dbeta of a layer norm over rows of `gamma.len()` numbers.
pub fn layer_norm_gradient(
    cpu: &Cpu,
    eps: f32,
    x: &[f32],
    dy: &[f32],
    gamma: &[f32],
    dx: &mut [f32],
    dgamma: &mut [f32],
    dbeta: &mut [f32],
) {
    let width = gamma.len();
    assert!(
        width > 0 && x.len().is_multiple_of(width),
        "whole rows of {width}"
    );
    assert!(
        dy.len() == x.len() && dx.len() == x.len(),
        "x, dy and dx must be equally long"
    );
    assert!(
        dgamma.len() == width && dbeta.len() == width,
        "gradients as long as gamma"
    );
    let rows = x.len() / width;
    let blocks = rows.div_ceil(ROWS);
    let mut shared = cpu.shared_scratch();
    let [parts] = shared.floats([blocks * 2 * width]);
    {
        let (dx, parts) = (SharedMut::new(dx), SharedMut::new(&mut *parts));
        cpu.parallel(blocks, &|block, _| {
            let range = block * ROWS * width..rows.min((block + 1) * ROWS) * width;
            // SAFETY: each block has its own rows and its own part of the sums.
            let (dx, part) = unsafe {
                let part = block * 2 * width..(block + 1) * 2 * width;
                (dx.slice(range.clone()), parts.slice(part))
            };
            cpu.isa().run(Rows {
                eps,
                x: &x[range.clone()],
                dy: &dy[range],
                gamma,
                dx,
                part,
            });
        });
    }
    for (i, (dgamma, dbeta)) in dgamma.iter_mut().zip(dbeta).enumerate() {
        let total = |start: usize| {
            let parts = (0..blocks).map(|block| f64::from(parts[block * 2 * width + start + i]));
            parts.sum::<f64>() as f32
        };
        *dgamma = total(0);
        *dbeta = total(width);
    }
}

struct Rows<'a> {
    eps: f32,
    x: &'a [f32],
    dy: &'a [f32],
    gamma: &'a [f32],
    dx: &'a mut [f32],
    /// dgamma, then dbeta.
    part: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.gamma.len();
        self.part.fill(0.0);
        let (dgamma, dbeta) = self.part.split_at_mut(width);
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        for ((x, dy), dx) in rows.zip(self.dx.chunks_exact_mut(width)) {
            let mean = sum(s, x) / width as f32;
            let variance = square_sum(s, x, mean) / width as f32;
            let (mean, inverse) = (s.splat(mean), s.splat(1.0 / (variance + self.eps).sqrt()));
            let (mut total, mut lean) = (s.splat(0.0), s.splat(0.0));
            for start in (0..width).step_by(LANES) {
                let dy = s.read(&dy[start..]);
                let normal = s.mul(s.sub(s.read(&x[start..]), mean), inverse);
                let scaled = s.mul(dy, s.read(&self.gamma[start..]));
                total = s.add(total, scaled);
                lean = s.mul_add(scaled, normal, lean);
                let slope = s.mul_add(dy, normal, s.read(&dgamma[start..]));
                s.write(&mut dgamma[start..], slope);
                let sum = s.add(s.read(&dbeta[start..]), dy);
                s.write(&mut dbeta[start..], sum);
            }
            let total = s.splat(s.sum(total) / width as f32);
            let lean = s.splat(s.sum(lean) / width as f32);
            for start in (0..width).step_by(LANES) {
                let normal = s.mul(s.sub(s.read(&x[start..]), mean), inverse);
                let scaled = s.mul(s.read(&dy[start..]), s.read(&self.gamma[start..]));
                let rest = s.neg_mul_add(normal, lean, s.sub(scaled, total));
                s.write(&mut dx[start..], s.mul(inverse, rest));
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn equals_the_reference(rows in 0usize..80, width in 1usize..70) {
            let (x, dy, gamma) = (numbers(1, rows * width), numbers(2, rows * width), numbers(3, width));
            let mut dx = vec![0.0; x.len()];
            let [mut dgamma, mut dbeta] = [(); 2].map(|()| vec![0.0; width]);
            let wide = [&x, &dy, &gamma].map(|v| widen(v));
            gradient::layer_norm_gradient(1e-2, &wide[0], &wide[1], &wide[2], &mut dx, &mut dgamma, &mut dbeta);
            let expected: Vec<f64> = dx.into_iter().chain(dgamma).chain(dbeta).collect();
            check(&expected, 2e-5, |cpu, all| {
                let (dx, rest) = all.split_at_mut(x.len());
                let (dgamma, dbeta) = rest.split_at_mut(width);
                layer_norm_gradient(cpu, 1e-2, &x, &dy, &gamma, dx, dgamma, dbeta);
            });
        }
    }
}
