//! Batch normalisation in training, channel by channel: what one channel has in all samples mostly stays in the second-level
//! cache from the statistics to the normalisation.

mod gradient;
mod kept;
mod rows;
#[cfg(test)]
mod tests;

use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::kept::Kept;
use crate::norm::ChannelShape;
use crate::rows::{square_sum, sum};
use crate::simd::{LANES, Simd};
use kept::KeepingLine;

pub use gradient::{BatchNormGradient, batch_norm_gradient};
pub use kept::{Keeps, keep_rectified};

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
        rows::training(cpu, shape, &mut norm, x, y);
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
        return rows::again(cpu, shape, norm, x, y);
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
