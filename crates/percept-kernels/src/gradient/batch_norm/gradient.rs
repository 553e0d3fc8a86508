//! The gradient of batch normalisation, channel by channel.

use super::{Planes, rows, scale};
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::kept::Kept;
use crate::norm::ChannelShape;
use crate::simd::{LANES, Simd};

/// What the gradient of a batch norm reads and writes besides x, dy and dx.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct BatchNormGradient<'a> {
    pub eps: f32,
    /// Whether mean and variance came from x itself.
    pub batch_statistics: bool,
    /// The norm's beta where a ReLU stands behind it, so that dy is the ReLU's.
    pub rectified: Option<&'a [f32]>,
    pub gamma: &'a [f32],
    pub mean: &'a [f32],
    pub variance: &'a [f32],
    pub dgamma: &'a mut [f32],
    pub dbeta: &'a mut [f32],
}

/// dx, dgamma and dbeta of a batch norm of [batch, channels, area]; `dx` holds dy before.
pub fn batch_norm_gradient<K: Kept>(
    cpu: &Cpu,
    shape: &ChannelShape,
    norm: BatchNormGradient<'_>,
    x: &[K],
    dx: &mut [f32],
) {
    assert_eq!(x.len(), shape.len(), "length of x");
    assert_eq!(dx.len(), shape.len(), "length of dx");
    let (gamma, mean, variance) = (norm.gamma, norm.mean, norm.variance);
    let vectors = [
        gamma.len(),
        mean.len(),
        variance.len(),
        norm.dgamma.len(),
        norm.dbeta.len(),
    ];
    assert!(vectors == [shape.channels; 5], "one number a channel");
    let beta = norm.rectified;
    assert!(
        beta.is_none_or(|beta| beta.len() == shape.channels),
        "one number a channel"
    );
    if x.is_empty() {
        norm.dgamma.fill(0.0);
        norm.dbeta.fill(0.0);
        return;
    }
    if shape.area == 1 {
        return rows::gradient(cpu, shape, norm, x, dx);
    }
    let [dgamma, dbeta] = [norm.dgamma, norm.dbeta].map(SharedMut::new);
    let dx = SharedMut::new(dx);
    cpu.parallel(shape.channels, &|c, _| {
        let planes = Planes { shape, channel: c };
        let centre = mean[c];
        let gate = beta.map(|beta| Gate {
            scale: scale(gamma[c], variance[c], norm.eps),
            shift: beta[c],
        });
        let [total, product] = cpu.isa().run(Sums {
            planes,
            x,
            centre,
            gate,
            dx: &dx,
        });
        let inverse = 1.0 / (f64::from(variance[c]) + f64::from(norm.eps)).sqrt();
        let slope = product * inverse;
        // SAFETY: each channel has its own numbers.
        unsafe {
            dgamma.slice(c..c + 1)[0] = slope as f32;
            dbeta.slice(c..c + 1)[0] = total as f32;
        }
        let factor = f64::from(gamma[c]) * inverse;
        let (shared, leaning) = match norm.batch_statistics {
            true => (total / planes.count(), slope * inverse / planes.count()),
            false => (0.0, 0.0),
        };
        cpu.isa().run(Combine {
            planes,
            x,
            centre,
            gate,
            scale: factor as f32,
            shared: shared as f32,
            leaning: leaning as f32,
            dx: &dx,
        });
    });
}

/// What a ReLU behind a norm lets through: dy where y = (x - centre) · scale + shift is above zero.
#[derive(Clone, Copy)]
struct Gate {
    scale: f32,
    shift: f32,
}

impl Gate {
    /// dy as the norm gets it; `away` is x - centre. Where there is no gate, as it is.
    #[inline(always)]
    fn pass<S: Simd>(gate: Option<Gate>, s: S, away: S::V, dy: S::V) -> S::V {
        let Some(Gate { scale, shift }) = gate else {
            return dy;
        };
        let y = s.mul_add(away, s.splat(scale), s.splat(shift));
        let (zero, one) = (s.splat(0.0), s.splat(1.0));
        s.mul(dy, s.select(s.less(zero, y), one, zero))
    }
}

/// Σ dy and Σ dy (x - centre), with dy in `dx`.
struct Sums<'a, K> {
    planes: Planes<'a>,
    x: &'a [K],
    centre: f32,
    gate: Option<Gate>,
    dx: &'a SharedMut<'a, f32>,
}

impl<K: Kept> Kernel for Sums<'_, K> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f64; 2] {
        // A constant in each arm: the choice is made here once and not for each vector.
        match self.gate {
            None => self.sums(s, None),
            Some(gate) => self.sums(s, Some(gate)),
        }
    }
}

impl<K: Kept> Sums<'_, K> {
    #[inline(always)]
    fn sums<S: Simd>(&self, s: S, gate: Option<Gate>) -> [f64; 2] {
        const STEP: usize = 4 * LANES;
        let centre = s.splat(self.centre);
        let (mut total, mut product) = (0.0, 0.0);
        for sample in 0..self.planes.shape.batch {
            let range = self.planes.range(sample);
            // SAFETY: each channel has its own planes.
            let dy: &[f32] = unsafe { self.dx.slice(range.clone()) };
            let x = &self.x[range];
            let mut sums = [s.splat(0.0); 4];
            let mut products = [s.splat(0.0); 4];
            let whole = x.len() / STEP * STEP;
            for start in (0..whole).step_by(STEP) {
                for i in 0..4 {
                    let at = start + i * LANES;
                    let away = s.sub(K::read(s, &x[at..]), centre);
                    let dy = Gate::pass(gate, s, away, s.read(&dy[at..]));
                    sums[i] = s.add(sums[i], dy);
                    products[i] = s.mul_add(dy, away, products[i]);
                }
            }
            let tails = dy[whole..].chunks(LANES).zip(x[whole..].chunks(LANES));
            for (i, (dy, x)) in tails.enumerate() {
                // Lanes past the end have dy = 0.
                let away = s.sub(K::read(s, x), centre);
                let dy = Gate::pass(gate, s, away, s.read(dy));
                sums[i] = s.add(sums[i], dy);
                products[i] = s.mul_add(dy, away, products[i]);
            }
            let four = |v: [S::V; 4]| s.sum(s.add(s.add(v[0], v[2]), s.add(v[1], v[3])));
            total += f64::from(four(sums));
            product += f64::from(four(products));
        }
        [total, product]
    }
}

/// dx = scale · (dy - shared - (x - centre) · leaning).
struct Combine<'a, K> {
    planes: Planes<'a>,
    x: &'a [K],
    centre: f32,
    gate: Option<Gate>,
    scale: f32,
    shared: f32,
    leaning: f32,
    dx: &'a SharedMut<'a, f32>,
}

impl<K: Kept> Kernel for Combine<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.gate {
            None => self.combine(s, None),
            Some(gate) => self.combine(s, Some(gate)),
        }
    }
}

impl<K: Kept> Combine<'_, K> {
    #[inline(always)]
    fn combine<S: Simd>(&self, s: S, gate: Option<Gate>) {
        let (centre, scale) = (s.splat(self.centre), s.splat(self.scale));
        let (shared, leaning) = (s.splat(self.shared), s.splat(self.leaning));
        for sample in 0..self.planes.shape.batch {
            let range = self.planes.range(sample);
            // SAFETY: each channel has its own planes.
            let dx = unsafe { self.dx.slice(range.clone()) };
            for (x, dx) in self.x[range].chunks(LANES).zip(dx.chunks_mut(LANES)) {
                let away = s.sub(K::read(s, x), centre);
                let dy = Gate::pass(gate, s, away, s.read(dx));
                let rest = s.neg_mul_add(away, leaning, s.sub(dy, shared));
                s.write(dx, s.mul(rest, scale));
            }
        }
    }
}
