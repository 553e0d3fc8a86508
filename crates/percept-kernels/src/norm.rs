//! Normalisations.

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::{for_each_row_block, square_sum, sum};
use crate::simd::{LANES, Simd};

/// A tensor seen as [batch, channels, area]: NCHW maps have area = height * width, rows have area 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelShape {
    /// Samples.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Numbers of one channel of one sample.
    pub area: usize,
}

impl ChannelShape {
    /// How many numbers the tensor has.
    pub fn len(&self) -> usize {
        self.batch * self.channels * self.area
    }

    /// Whether the tensor has no numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How channels are grouped, and what keeps the division finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Groups; divides the channels.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f64,
}

/// y = (x - mean) / sqrt(variance + eps) * gamma + beta over each row of `gamma.len()` numbers.
pub fn layer_norm(cpu: &Cpu, x: &[f32], gamma: &[f32], beta: &[f32], eps: f32, y: &mut [f32]) {
    assert_eq!(
        gamma.len(),
        beta.len(),
        "gamma and beta must be equally long"
    );
    for_each_row_block(cpu, gamma.len(), x, y, |_, x, y| {
        cpu.isa().run(NormaliseRows {
            x,
            gamma,
            beta: Some(beta),
            eps,
            y,
        });
    });
}

/// y = x / sqrt(mean(x^2) + eps) * gamma over each row of `gamma.len()` numbers.
pub fn rms_norm(cpu: &Cpu, x: &[f32], gamma: &[f32], eps: f32, y: &mut [f32]) {
    for_each_row_block(cpu, gamma.len(), x, y, |_, x, y| {
        cpu.isa().run(NormaliseRows {
            x,
            gamma,
            beta: None,
            eps,
            y,
        });
    });
}

/// LayerNorm of rows or, without a beta, RMSNorm, which has no mean either.
struct NormaliseRows<'a> {
    x: &'a [f32],
    gamma: &'a [f32],
    beta: Option<&'a [f32]>,
    eps: f32,
    y: &'a mut [f32],
}

impl Kernel for NormaliseRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.gamma.len();
        for (x, y) in self
            .x
            .chunks_exact(width)
            .zip(self.y.chunks_exact_mut(width))
        {
            let mean = if self.beta.is_some() {
                sum(s, x) / width as f32
            } else {
                0.0
            };
            let variance = square_sum(s, x, mean) / width as f32;
            let inverse = s.splat(1.0 / (variance + self.eps).sqrt());
            let mean = s.splat(mean);
            for start in (0..width).step_by(LANES) {
                let scale = s.mul(s.read(&self.gamma[start..]), inverse);
                let shift = match self.beta {
                    Some(beta) => s.read(&beta[start..]),
                    None => s.splat(0.0),
                };
                let centred = s.sub(s.read(&x[start..]), mean);
                s.write(&mut y[start..], s.mul_add(centred, scale, shift));
            }
        }
    }
}

/// The scale and shift that a BatchNorm with running statistics amounts to, computed in f64.
pub fn fold_batch_norm(
    gamma: &[f32],
    beta: &[f32],
    mean: &[f32],
    variance: &[f32],
    eps: f64,
) -> (Vec<f64>, Vec<f64>) {
    let channels = gamma.len();
    assert!(
        [beta, mean, variance]
            .iter()
            .all(|values| values.len() == channels),
        "gamma, beta, mean and variance must be equally long"
    );
    let wide = |values: &[f32], channel: usize| f64::from(values[channel]);
    (0..channels)
        .map(|channel| {
            let scale = wide(gamma, channel) / (wide(variance, channel) + eps).sqrt();
            let shift = wide(beta, channel) - wide(mean, channel) * scale;
            (scale, shift)
        })
        .unzip()
}

/// Inference BatchNorm: y = x * scale\[c\] + shift\[c\] on [batch, channels, area].
pub fn batch_norm(
    cpu: &Cpu,
    shape: &ChannelShape,
    x: &[f32],
    scale: &[f32],
    shift: &[f32],
    y: &mut [f32],
) {
    shape.check(x, scale, shift, y);
    if shape.area == 1 {
        // Channels run along the rows, so that they fill vectors.
        for_each_row_block(cpu, shape.channels, x, y, |_, x, y| {
            cpu.isa().run(ScaleRows { x, scale, shift, y });
        });
        return;
    }
    for_each_row_block(cpu, shape.area, x, y, |first, x, y| {
        let planes = x
            .chunks_exact(shape.area)
            .zip(y.chunks_exact_mut(shape.area));
        for (plane, (x, y)) in (first..).zip(planes) {
            let channel = plane % shape.channels;
            cpu.isa().run(ScalePlane {
                x,
                scale: scale[channel],
                shift: shift[channel],
                y,
            });
        }
    });
}

/// Normalises each group of channels of each sample, then scales and shifts each channel.
pub fn group_norm(
    cpu: &Cpu,
    shape: &ChannelShape,
    norm: GroupNorm,
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    y: &mut [f32],
) {
    shape.check(x, gamma, beta, y);
    let GroupNorm { groups, eps } = norm;
    assert!(
        groups > 0 && shape.channels.is_multiple_of(groups),
        "{} channels do not divide into {groups} groups",
        shape.channels
    );
    let group_channels = shape.channels / groups;
    let group_len = group_channels * shape.area;
    let y = SharedMut::new(y);
    cpu.parallel(
        if shape.is_empty() {
            0
        } else {
            shape.batch * groups
        },
        &|group, _| {
            let range = group * group_len..(group + 1) * group_len;
            let x = &x[range.clone()];
            let (mean, variance) = cpu.isa().run(Moments { x });
            let inverse = 1.0 / (f64::from(variance) + eps).sqrt();
            // SAFETY: each block writes its own group.
            let y = unsafe { y.slice(range) };
            let planes = x
                .chunks_exact(shape.area)
                .zip(y.chunks_exact_mut(shape.area));
            for (i, (x, y)) in planes.enumerate() {
                let channel = group % groups * group_channels + i;
                let scale = f64::from(gamma[channel]) * inverse;
                let shift = f64::from(beta[channel]) - f64::from(mean) * scale;
                cpu.isa().run(ScalePlane {
                    x,
                    scale: scale as f32,
                    shift: shift as f32,
                    y,
                });
            }
        },
    );
}

impl ChannelShape {
    fn check(&self, x: &[f32], scale: &[f32], shift: &[f32], y: &[f32]) {
        assert_eq!(x.len(), self.len(), "length of x");
        assert_eq!(y.len(), self.len(), "length of y");
        assert_eq!(scale.len(), self.channels, "one scale per channel");
        assert_eq!(shift.len(), self.channels, "one shift per channel");
    }
}

struct ScaleRows<'a> {
    x: &'a [f32],
    scale: &'a [f32],
    shift: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for ScaleRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.scale.len();
        for (x, y) in self
            .x
            .chunks_exact(width)
            .zip(self.y.chunks_exact_mut(width))
        {
            for start in (0..width).step_by(LANES) {
                let (scale, shift) = (s.read(&self.scale[start..]), s.read(&self.shift[start..]));
                s.write(
                    &mut y[start..],
                    s.mul_add(s.read(&x[start..]), scale, shift),
                );
            }
        }
    }
}

struct ScalePlane<'a> {
    x: &'a [f32],
    scale: f32,
    shift: f32,
    y: &'a mut [f32],
}

impl Kernel for ScalePlane<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (scale, shift) = (s.splat(self.scale), s.splat(self.shift));
        for (x, y) in self.x.chunks(LANES).zip(self.y.chunks_mut(LANES)) {
            s.write(y, s.mul_add(s.read(x), scale, shift));
        }
    }
}

struct Moments<'a> {
    x: &'a [f32],
}

impl Kernel for Moments<'_> {
    type Output = (f32, f32);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, f32) {
        let count = self.x.len() as f32;
        let mean = sum(s, self.x) / count;
        (mean, square_sum(s, self.x, mean) / count)
    }
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
        fn rows(rows in 0usize..40, width in 1usize..100, offset in -30f32..30.0) {
            let x: Vec<f32> = numbers(1, rows * width).iter().map(|v| v + offset).collect();
            let (gamma, beta) = (numbers(2, width), numbers(3, width));
            let mut expected = vec![0.0; x.len()];
            let wide = [&x, &gamma, &beta].map(|v| widen(v));
            reference::layer_norm(&wide[0], &wide[1], &wide[2], 1e-3, &mut expected);
            check(&expected, 1e-4, |cpu, y| layer_norm(cpu, &x, &gamma, &beta, 1e-3, y));
            reference::rms_norm(&wide[0], &wide[1], 1e-3, &mut expected);
            check(&expected, 2e-6, |cpu, y| rms_norm(cpu, &x, &gamma, 1e-3, y));
        }

        #[test]
        fn channels(batch in 0usize..3, groups in 1usize..4, each in 1usize..5, area in 0usize..40) {
            let shape = ChannelShape { batch, channels: groups * each, area };
            let x = numbers(1, shape.len());
            let (scale, shift) = (numbers(2, shape.channels), numbers(3, shape.channels));
            let mut expected = vec![0.0; x.len()];
            let wide = [&x, &scale, &shift].map(|v| widen(v));
            reference::batch_norm(&shape, &wide[0], &wide[1], &wide[2], &mut expected);
            check(&expected, 1e-6, |cpu, y| batch_norm(cpu, &shape, &x, &scale, &shift, y));
            let norm = GroupNorm { groups, eps: 1e-3 };
            reference::group_norm(&shape, norm, &wide[0], &wide[1], &wide[2], &mut expected);
            check(&expected, 1e-5, |cpu, y| group_norm(cpu, &shape, norm, &x, &scale, &shift, y));
        }
    }

    #[test]
    fn a_vision_transformers_layer_norm_is_accurate() {
        let x: Vec<f32> = numbers(1, 20 * 768)
            .iter()
            .map(|v| v * 10.0 + 3.0)
            .collect();
        let (gamma, beta) = (numbers(2, 768), numbers(3, 768));
        let mut expected = vec![0.0; x.len()];
        let wide = [&x, &gamma, &beta].map(|v| widen(v));
        reference::layer_norm(&wide[0], &wide[1], &wide[2], 1e-6, &mut expected);
        check(&expected, 6e-7, |cpu, y| {
            layer_norm(cpu, &x, &gamma, &beta, 1e-6, y)
        });
    }

    #[test]
    fn a_folded_batch_norm_is_the_same_line() {
        let (scale, shift) = fold_batch_norm(&[2.0], &[1.0], &[3.0], &[3.0], 1.0);
        assert_eq!((scale, shift), (vec![1.0], vec![-2.0]));
    }
}
