//! Batch normalisation in training, channel by channel: what one channel has in all samples mostly stays in the second-level
//! cache from the statistics to the normalisation.

use super::batch_norm_kept::{KeepingLine, Keeps};
use super::batch_norm_rows;
use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::kept::Kept;
use crate::norm::ChannelShape;
use crate::rows::{square_sum, sum};
use crate::simd::{LANES, Simd};

/// What a batch norm in training reads and writes besides x and y.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct BatchNormTraining<'a> {
    pub eps: f32,
    pub momentum: f32,
    /// Whether a ReLU follows.
    pub rectified: bool,
    pub gamma: &'a [f32],
    pub beta: &'a [f32],
    /// The batch's statistics.
    pub mean: &'a mut [f32],
    /// Without Bessel's correction.
    pub variance: &'a mut [f32],
    /// Moved towards the mean.
    pub running_mean: &'a mut [f32],
    /// Moved towards the variance with Bessel's correction.
    pub running_variance: &'a mut [f32],
}

/// y = (x - mean) / sqrt(variance + eps) · gamma + beta with the statistics of each channel of [batch, channels, area].
pub fn batch_norm_training(
    cpu: &Cpu,
    shape: &ChannelShape,
    norm: BatchNormTraining<'_>,
    x: &[f32],
    y: &mut [f32],
) {
    batch_norm_training_keeping::<f32>(cpu, shape, norm, Keeps::default(), x, y);
}

/// The same, which also leaves x and y as they wait for the backward pass.
pub fn batch_norm_training_keeping<K: Kept>(
    cpu: &Cpu,
    shape: &ChannelShape,
    mut norm: BatchNormTraining<'_>,
    keeps: Keeps<'_, K>,
    x: &[f32],
    y: &mut [f32],
) {
    assert_eq!(x.len(), shape.len(), "length of x");
    assert_eq!(y.len(), shape.len(), "length of y");
    let vectors = [norm.gamma.len(), norm.beta.len(), norm.mean.len()];
    let moving = [
        norm.variance.len(),
        norm.running_mean.len(),
        norm.running_variance.len(),
    ];
    assert!(
        vectors
            .iter()
            .chain(&moving)
            .all(|&len| len == shape.channels),
        "one number a channel"
    );
    if x.is_empty() {
        return;
    }
    if shape.area == 1 {
        batch_norm_rows::training(cpu, shape, &mut norm, x, y);
        return keeps.rows(cpu, shape, norm.again(), x, y);
    }
    let [mean, variance] = [&mut *norm.mean, &mut *norm.variance].map(SharedMut::new);
    let (gamma, beta, eps) = (norm.gamma, norm.beta, norm.eps);
    let y = SharedMut::new(y);
    let keeps = keeps.shared(shape);
    cpu.parallel(shape.channels, &|c, _| {
        let planes = Planes { shape, channel: c };
        let (m, v) = cpu.isa().run(Statistics { planes, x });
        let (m, v) = (m as f32, v as f32);
        // SAFETY: each channel has its own numbers.
        unsafe {
            mean.slice(c..c + 1)[0] = m;
            variance.slice(c..c + 1)[0] = v;
        }
        // By the statistics as they are kept: whoever normalises again gets the same bits.
        let line = Line {
            planes,
            x,
            centre: m,
            scale: scale(gamma[c], v, eps),
            shift: beta[c],
            rectified: norm.rectified,
            y: &y,
        };
        match &keeps {
            Some(keeps) => cpu.isa().run(KeepingLine { line, keeps }),
            None => cpu.isa().run(line),
        }
    });
    norm.move_running(shape.batch * shape.area);
}

/// gamma / sqrt(variance + eps).
pub(super) fn scale(gamma: f32, variance: f32, eps: f32) -> f32 {
    (f64::from(gamma) / (f64::from(variance) + f64::from(eps)).sqrt()) as f32
}

/// What a batch norm that is computed again reads besides x.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct BatchNormAgain<'a> {
    pub eps: f32,
    /// Whether a ReLU follows.
    pub rectified: bool,
    pub gamma: &'a [f32],
    pub beta: &'a [f32],
    /// The statistics that the batch had.
    pub mean: &'a [f32],
    pub variance: &'a [f32],
}

/// What [`batch_norm_training`] gave for the same x: the same bits.
pub fn batch_norm_again<K: Kept>(
    cpu: &Cpu,
    shape: &ChannelShape,
    norm: BatchNormAgain<'_>,
    x: &[K],
    y: &mut [f32],
) {
    assert_eq!(x.len(), shape.len(), "length of x");
    assert_eq!(y.len(), shape.len(), "length of y");
    let vectors = [norm.gamma, norm.beta, norm.mean, norm.variance];
    assert!(
        vectors.iter().all(|v| v.len() == shape.channels),
        "one number a channel"
    );
    if x.is_empty() {
        return;
    }
    if shape.area == 1 {
        return batch_norm_rows::again(cpu, shape, norm, x, y);
    }
    let y = SharedMut::new(y);
    cpu.parallel(shape.channels, &|c, _| {
        cpu.isa().run(Line {
            planes: Planes { shape, channel: c },
            x,
            centre: norm.mean[c],
            scale: scale(norm.gamma[c], norm.variance[c], norm.eps),
            shift: norm.beta[c],
            rectified: norm.rectified,
            y: &y,
        });
    });
}

impl BatchNormTraining<'_> {
    /// The same norm by the statistics that it has found.
    pub(super) fn again(&self) -> BatchNormAgain<'_> {
        BatchNormAgain {
            eps: self.eps,
            rectified: self.rectified,
            gamma: self.gamma,
            beta: self.beta,
            mean: self.mean,
            variance: self.variance,
        }
    }

    /// Moves the running statistics towards those of a batch of `count` values a channel.
    pub(super) fn move_running(&mut self, count: usize) {
        let momentum = f64::from(self.momentum);
        let moved =
            |from: f32, to: f64| ((1.0 - momentum) * f64::from(from) + momentum * to) as f32;
        let unbiased = count as f64 / (count as f64 - 1.0);
        for (running, &mean) in self.running_mean.iter_mut().zip(&*self.mean) {
            *running = moved(*running, f64::from(mean));
        }
        for (running, &variance) in self.running_variance.iter_mut().zip(&*self.variance) {
            *running = moved(*running, f64::from(variance) * unbiased);
        }
    }
}

/// The numbers of one channel: a run of `area` in each sample.
#[derive(Clone, Copy)]
pub(super) struct Planes<'a> {
    pub(super) shape: &'a ChannelShape,
    pub(super) channel: usize,
}

impl Planes<'_> {
    #[inline(always)]
    pub(super) fn range(&self, sample: usize) -> std::ops::Range<usize> {
        let start = (sample * self.shape.channels + self.channel) * self.shape.area;
        start..start + self.shape.area
    }

    #[inline(always)]
    fn count(&self) -> f64 {
        (self.shape.batch * self.shape.area) as f64
    }
}

/// Mean and variance: short runs in f32, the runs in f64.
struct Statistics<'a> {
    planes: Planes<'a>,
    x: &'a [f32],
}

impl Kernel for Statistics<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f64, f64) {
        let (planes, x) = (self.planes, self.x);
        let mut total = 0.0;
        for sample in 0..planes.shape.batch {
            total += f64::from(sum(s, &x[planes.range(sample)]));
        }
        let mean = total / planes.count();
        let centre = mean as f32;
        let mut squares = 0.0;
        for sample in 0..planes.shape.batch {
            squares += f64::from(square_sum(s, &x[planes.range(sample)], centre));
        }
        // The squares are those around the rounded mean.
        let off = mean - f64::from(centre);
        (mean, squares / planes.count() - off * off)
    }
}

/// y = (x - centre) · scale + shift: subtracting first keeps the digits of values that lie close together, far from zero.
pub(super) struct Line<'a, K> {
    pub(super) planes: Planes<'a>,
    pub(super) x: &'a [K],
    pub(super) centre: f32,
    pub(super) scale: f32,
    pub(super) shift: f32,
    pub(super) rectified: bool,
    pub(super) y: &'a SharedMut<'a, f32>,
}

impl<K: Kept> Kernel for Line<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (scale, shift) = (s.splat(self.scale), s.splat(self.shift));
        let centre = s.splat(self.centre);
        for sample in 0..self.planes.shape.batch {
            let range = self.planes.range(sample);
            // SAFETY: each channel has its own planes.
            let y = unsafe { self.y.slice(range.clone()) };
            for (x, y) in self.x[range].chunks(LANES).zip(y.chunks_mut(LANES)) {
                let value = s.mul_add(s.sub(K::read(s, x), centre), scale, shift);
                let value = match self.rectified {
                    true => Activation::Relu.apply(s, value),
                    false => value,
                };
                s.write(y, value);
            }
        }
    }
}

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
        return batch_norm_rows::gradient(cpu, shape, norm, x, dx);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference::gradient;
    use crate::testing::{check, numbers, widen};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn forward(
            batch in 2usize..40, channels in 1usize..5, area in prop_oneof![Just(1usize), 2usize..90], offset in -3f32..3.0, rectified in any::<bool>(),
        ) {
            let shape = ChannelShape { batch, channels, area };
            let x: Vec<f32> = numbers(1, shape.len()).iter().map(|v| v + offset).collect();
            let (gamma, beta) = (numbers(2, channels), numbers(3, channels));
            let (running, moved) = (numbers(4, channels), numbers(5, channels));
            let mut y = vec![0.0; x.len()];
            let [mut mean, mut variance] = [(); 2].map(|()| vec![0.0; channels]);
            let wide = [&x, &gamma, &beta].map(|v| widen(v));
            gradient::batch_norm_training(&shape, 1e-5, &wide[0], &wide[1], &wide[2], &mut y, &mut mean, &mut variance);
            if rectified {
                y.iter_mut().for_each(|y| *y = y.max(0.0));
            }
            let count = (batch * area) as f64;
            let next = |old: f32, new: f64| 0.9 * f64::from(old) + 0.1 * new;
            let next_mean = running.iter().zip(&mean).map(|(&old, &new)| next(old, new));
            let next_variance = moved.iter().zip(&variance).map(|(&old, &new)| next(old, new * count / (count - 1.0)));
            let expected: Vec<f64> = y.iter().chain(&mean).chain(&variance).copied()
                .chain(next_mean).chain(next_variance).collect();
            check(&expected, 2e-4, |cpu, all| {
                let (y, rest) = all.split_at_mut(x.len());
                let (mean, rest) = rest.split_at_mut(channels);
                let (variance, rest) = rest.split_at_mut(channels);
                let (running_mean, running_variance) = rest.split_at_mut(channels);
                running_mean.copy_from_slice(&running);
                running_variance.copy_from_slice(&moved);
                let norm = BatchNormTraining {
                    eps: 1e-5, momentum: 0.1, rectified, gamma: &gamma, beta: &beta,
                    mean, variance, running_mean, running_variance,
                };
                batch_norm_training(cpu, &shape, norm, &x, y);
            });
        }

        #[test]
        fn backward(
            batch in 0usize..40, channels in 1usize..20, area in prop_oneof![Just(1usize), 1usize..90],
            batch_statistics in any::<bool>(), rectified in any::<bool>(),
        ) {
            let shape = ChannelShape { batch, channels, area };
            let (x, dy) = (numbers(1, shape.len()), numbers(2, shape.len()));
            let (gamma, mean) = (numbers(3, channels), numbers(4, channels));
            let variance: Vec<f32> = numbers(5, channels).iter().map(|v| v * v + 0.1).collect();
            let beta = numbers(6, channels);
            let gate = rectified.then_some(beta.as_slice());
            let mut dx = vec![0.0; x.len()];
            let [mut dgamma, mut dbeta] = [(); 2].map(|()| vec![0.0; channels]);
            let mut wide = [&x, &dy, &gamma, &mean, &variance].map(|v| widen(v));
            if rectified {
                let [x, dy, gamma, mean, variance] = &mut wide;
                gradient::behind_relu(&shape, 1e-3, x, gamma, &widen(&beta), mean, variance, dy);
            }
            gradient::batch_norm_gradient(
                &shape, 1e-3, batch_statistics, &wide[0], &wide[1], &wide[2], &wide[3], &wide[4],
                &mut dx, &mut dgamma, &mut dbeta,
            );
            let expected: Vec<f64> = dx.into_iter().chain(dgamma).chain(dbeta).collect();
            check(&expected, 2e-5, |cpu, all| {
                let (dx, rest) = all.split_at_mut(x.len());
                let (dgamma, dbeta) = rest.split_at_mut(channels);
                dx.copy_from_slice(&dy);
                let norm = BatchNormGradient {
                    eps: 1e-3, batch_statistics, rectified: gate, gamma: &gamma, mean: &mean, variance: &variance, dgamma, dbeta,
                };
                batch_norm_gradient(cpu, &shape, norm, &x, dx);
            });
        }

        #[test]
        fn again_gives_the_same_bits(
            batch in 0usize..20, channels in 1usize..20, area in prop_oneof![Just(1usize), 1usize..90], rectified in any::<bool>(),
        ) {
            let shape = ChannelShape { batch, channels, area };
            let (x, gamma, beta) = (numbers(1, shape.len()), numbers(2, channels), numbers(3, channels));
            for isa in crate::Isa::available() {
                for threads in [1, 2, 3] {
                    let cpu = Cpu::with_isa(threads, isa).unwrap();
                    let [mut mean, mut variance, mut a, mut b] = [(); 4].map(|()| vec![0.0; channels]);
                    let [mut first, mut second] = [(); 2].map(|()| vec![0.0; x.len()]);
                    let norm = BatchNormTraining {
                        eps: 1e-5, momentum: 0.1, rectified, gamma: &gamma, beta: &beta,
                        mean: &mut mean, variance: &mut variance, running_mean: &mut a, running_variance: &mut b,
                    };
                    batch_norm_training(&cpu, &shape, norm, &x, &mut first);
                    let norm = BatchNormAgain {
                        eps: 1e-5, rectified, gamma: &gamma, beta: &beta, mean: &mean, variance: &variance,
                    };
                    batch_norm_again(&cpu, &shape, norm, &x, &mut second);
                    let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
                    prop_assert_eq!(bits(&first), bits(&second), "{} {}", isa, threads);
                }
            }
        }

        #[test]
        fn kept_values_are_read_as_what_they_are(
            batch in 1usize..9, channels in 1usize..20, area in prop_oneof![Just(1usize), 1usize..90], rectified in any::<bool>(),
        ) {
            let shape = ChannelShape { batch, channels, area };
            let (dy, gamma, beta) = (numbers(2, shape.len()), numbers(3, channels), numbers(4, channels));
            let (mean, variance) = (numbers(5, channels), vec![0.3; channels]);
            for isa in crate::Isa::available() {
                let cpu = Cpu::with_isa(2, isa).unwrap();
                let mut kept = vec![half::f16::ZERO; shape.len()];
                crate::kept::convert(&cpu, &numbers(1, shape.len()), &mut kept);
                let mut x = vec![0.0f32; shape.len()];
                crate::kept::convert(&cpu, &kept, &mut x);
                let results = [false, true].map(|wide| {
                    let (mut y, mut dx) = (vec![0.0; x.len()], dy.clone());
                    let [mut dgamma, mut dbeta] = [(); 2].map(|()| vec![0.0; channels]);
                    let again = BatchNormAgain {
                        eps: 1e-3, rectified, gamma: &gamma, beta: &beta, mean: &mean, variance: &variance,
                    };
                    let norm = BatchNormGradient {
                        eps: 1e-3, batch_statistics: true, rectified: rectified.then_some(&beta[..]), gamma: &gamma,
                        mean: &mean, variance: &variance, dgamma: &mut dgamma, dbeta: &mut dbeta,
                    };
                    match wide {
                        true => {
                            batch_norm_again(&cpu, &shape, again, &x, &mut y);
                            batch_norm_gradient(&cpu, &shape, norm, &x, &mut dx);
                        }
                        false => {
                            batch_norm_again(&cpu, &shape, again, &kept, &mut y);
                            batch_norm_gradient(&cpu, &shape, norm, &kept, &mut dx);
                        }
                    }
                    [y, dx, dgamma, dbeta].concat().iter().map(|v| v.to_bits()).collect::<Vec<_>>()
                });
                prop_assert_eq!(&results[0], &results[1], "{}", isa);
            }
        }
    }
}
