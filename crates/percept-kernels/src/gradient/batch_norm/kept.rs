//! The input of a batch norm with a ReLU behind it, as it waits in 16 bits for the backward pass.
//!
//! Rounded to the nearest number, an input close to the ReLU's corner would fall on its other side, and gradients would pass that
//! must not, or the other way round: one value in some thousands, but each with its whole gradient. Such a value is rounded away from
//! the corner instead: to the number on its other side.

use super::rows::affine;
use super::{BatchNormAgain, Line, Planes, scale};
use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::kept::{self, Kept};
use crate::norm::ChannelShape;
use crate::rows::for_each_block;
use crate::simd::{LANES, Simd};

/// Rounds x such that the ReLU behind the norm lets the same values through.
pub fn keep_rectified<K: Kept>(
    cpu: &Cpu,
    shape: &ChannelShape,
    norm: BatchNormAgain<'_>,
    x: &[f32],
    kept: &mut [K],
) {
    assert_eq!(x.len(), shape.len(), "length of x");
    assert_eq!(kept.len(), shape.len(), "length of what is kept");
    let channels = shape.channels;
    let vectors = [norm.gamma, norm.beta, norm.mean, norm.variance];
    assert!(
        vectors.iter().all(|v| v.len() == channels),
        "one number a channel"
    );
    if x.is_empty() {
        return;
    }
    if shape.area == 1 {
        let (scale, shift) = affine(norm.gamma, norm.beta, norm.mean, norm.variance, norm.eps);
        return for_each_block(cpu, shape.batch, channels, channels, kept, |rows, kept| {
            let x = &x[rows.start * channels..rows.end * channels];
            cpu.isa().run(Rows {
                scale: &scale,
                shift: &shift,
                x,
                kept,
            });
        });
    }
    let kept = SharedMut::new(kept);
    cpu.parallel(channels, &|c, _| {
        cpu.isa().run(Channel {
            planes: Planes { shape, channel: c },
            centre: norm.mean[c],
            scale: scale(norm.gamma[c], norm.variance[c], norm.eps),
            shift: norm.beta[c],
            x,
            kept: &kept,
        });
    });
}

/// What a batch norm leaves for the backward pass besides its statistics.
#[derive(Debug)]
pub struct Keeps<'a, K> {
    /// Its input; where a ReLU follows, such that it lets the same through.
    pub x: Option<&'a mut [K]>,
    /// Its output, behind the ReLU where one follows.
    pub y: Option<&'a mut [K]>,
}

impl<K> Default for Keeps<'_, K> {
    fn default() -> Self {
        Self { x: None, y: None }
    }
}

impl<'a, K: Kept> Keeps<'a, K> {
    /// As all threads write to it; none where nothing is left.
    pub(super) fn shared(self, shape: &ChannelShape) -> Option<SharedKeeps<'a, K>> {
        let share = |kept: &'a mut [K]| {
            assert_eq!(kept.len(), shape.len(), "length of what is kept");
            SharedMut::new(kept)
        };
        let (x, y) = (self.x.map(share), self.y.map(share));
        (x.is_some() || y.is_some()).then_some(SharedKeeps { x, y })
    }

    /// Rows, once they are normalised.
    pub(super) fn rows(
        self,
        cpu: &Cpu,
        shape: &ChannelShape,
        norm: BatchNormAgain<'_>,
        x: &[f32],
        y: &[f32],
    ) {
        match self.x {
            Some(kept) if norm.rectified => keep_rectified(cpu, shape, norm, x, kept),
            Some(kept) => kept::convert(cpu, x, kept),
            None => {}
        }
        if let Some(kept) = self.y {
            kept::convert(cpu, y, kept);
        }
    }
}

/// [`Keeps`] of all channels.
pub(super) struct SharedKeeps<'a, K> {
    x: Option<SharedMut<'a, K>>,
    y: Option<SharedMut<'a, K>>,
}

/// A channel that is normalised and kept while it is in the cache.
pub(super) struct KeepingLine<'a, K> {
    pub(super) line: Line<'a, f32>,
    pub(super) keeps: &'a SharedKeeps<'a, K>,
}

impl<K: Kept> Kernel for KeepingLine<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Line {
            planes,
            rectified,
            x: values,
            ..
        } = self.line;
        let relu = Behind {
            centre: s.splat(self.line.centre),
            scale: s.splat(self.line.scale),
            shift: s.splat(self.line.shift),
        };
        for sample in 0..planes.shape.batch {
            let range = planes.range(sample);
            let x = &values[range.clone()];
            // SAFETY: each channel has its own planes.
            let y = unsafe { self.line.y.slice(range.clone()) };
            for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
                let away = s.sub(s.read(x), relu.centre);
                let value = s.mul_add(away, relu.scale, relu.shift);
                let value = match rectified {
                    true => Activation::Relu.apply(s, value),
                    false => value,
                };
                s.write(y, value);
            }
            if let Some(kept) = &self.keeps.x {
                // SAFETY: each channel has its own planes.
                let kept = unsafe { kept.slice(range.clone()) };
                for (x, kept) in x.chunks(LANES).zip(kept.chunks_mut(LANES)) {
                    match rectified {
                        true => keep(s, x, kept, relu),
                        false => K::write(s, kept, s.read(x)),
                    }
                }
            }
            if let Some(kept) = &self.keeps.y {
                // SAFETY: each channel has its own planes.
                let kept = unsafe { kept.slice(range) };
                for (y, kept) in y.chunks(LANES).zip(kept.chunks_mut(LANES)) {
                    K::write(s, kept, s.read(y));
                }
            }
        }
    }
}

/// What a ReLU behind a norm gets of x: (x - centre) · scale + shift.
#[derive(Clone, Copy)]
struct Behind<V> {
    centre: V,
    scale: V,
    shift: V,
}

impl<V: Copy> Behind<V> {
    /// The lanes that pass.
    #[inline(always)]
    fn passes<S: Simd<V = V>>(self, s: S, x: V) -> u32 {
        let y = s.mul_add(s.sub(x, self.centre), self.scale, self.shift);
        s.bits(s.less(s.splat(0.0), y))
    }
}

/// Keeps up to 8 numbers. No closures here: they would not be compiled for the instruction set.
#[inline(always)]
fn keep<K: Kept, S: Simd>(s: S, x: &[f32], kept: &mut [K], relu: Behind<S::V>) {
    let value = s.read(x);
    K::write(s, kept, value);
    let fallen = relu.passes(s, value) ^ relu.passes(s, K::read(s, kept));
    if fallen != 0 {
        step_back(fallen, x, kept);
    }
}

/// Rounds these lanes to their other side.
#[cold]
fn step_back<K: Kept>(fallen: u32, x: &[f32], kept: &mut [K]) {
    for (lane, (kept, &x)) in kept.iter_mut().zip(x).take(LANES).enumerate() {
        if fallen >> lane & 1 == 1 {
            *kept = kept.towards(x);
        }
    }
}

/// One channel of all samples.
struct Channel<'a, K> {
    planes: Planes<'a>,
    centre: f32,
    scale: f32,
    shift: f32,
    x: &'a [f32],
    kept: &'a SharedMut<'a, K>,
}

impl<K: Kept> Kernel for Channel<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let relu = Behind {
            centre: s.splat(self.centre),
            scale: s.splat(self.scale),
            shift: s.splat(self.shift),
        };
        for sample in 0..self.planes.shape.batch {
            let range = self.planes.range(sample);
            // SAFETY: each channel has its own planes.
            let kept = unsafe { self.kept.slice(range.clone()) };
            for (x, kept) in self.x[range].chunks(LANES).zip(kept.chunks_mut(LANES)) {
                keep(s, x, kept, relu);
            }
        }
    }
}

/// Rows of all channels.
struct Rows<'a, K> {
    scale: &'a [f32],
    shift: &'a [f32],
    x: &'a [f32],
    kept: &'a mut [K],
}

impl<K: Kept> Kernel for Rows<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.scale.len();
        let rows = self.x.chunks_exact(width);
        for (x, kept) in rows.zip(self.kept.chunks_exact_mut(width)) {
            for start in (0..width).step_by(LANES) {
                let relu = Behind {
                    centre: s.splat(0.0),
                    scale: s.read(&self.scale[start..]),
                    shift: s.read(&self.shift[start..]),
                };
                keep(s, &x[start..], &mut kept[start..], relu);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;
    use crate::gradient::{BatchNormTraining, batch_norm_again, batch_norm_training_keeping};
    use crate::kept::{convert, reference};
    use crate::testing::{check, numbers};

    fn keeps_what_passes<K: Kept>(shape: &ChannelShape, seed: u64) {
        let channels = shape.channels;
        let (gamma, beta) = (numbers(seed, channels), numbers(seed + 1, channels));
        let (mean, variance) = (numbers(seed + 2, channels), vec![0.5; channels]);
        // On and beside the corners of the ReLUs, where rounding may fall to the other side.
        let x: Vec<f32> = (numbers(seed + 3, shape.len()).iter().enumerate())
            .map(|(i, away)| {
                let c = i / shape.area % channels;
                let corner = mean[c] - beta[c] * (0.5f32 + 1e-3).sqrt() / gamma[c];
                corner * (1.0 + away * 1e-3)
            })
            .collect();
        let norm = BatchNormAgain {
            eps: 1e-3,
            rectified: true,
            gamma: &gamma,
            beta: &beta,
            mean: &mean,
            variance: &variance,
        };
        let one = Cpu::with_isa(1, crate::Isa::Portable).unwrap();
        let mut y = vec![0.0; x.len()];
        batch_norm_again(&one, shape, norm, &x, &mut y);
        let expected: Vec<f64> = (x.iter().enumerate())
            .map(|(i, &x)| {
                let near = reference::rounded::<K, f32>(x);
                let mut at = vec![x; shape.len()];
                at[i] = near;
                let mut other = vec![0.0; at.len()];
                batch_norm_again(&one, shape, norm, &at, &mut other);
                let falls = (other[i] > 0.0) != (y[i] > 0.0);
                let passes = |value: f32| (value == near && falls) != (y[i] > 0.0);
                f64::from(reference::rounded_within::<K, f32>(x, passes))
            })
            .collect();
        // Instruction sets round the norm itself differently; a number beside the corner may be either neighbour.
        check(&expected, 1e-2, |cpu, back| {
            let mut kept = vec![K::default(); x.len()];
            keep_rectified(cpu, shape, norm, &x, &mut kept);
            convert(cpu, &kept, back);
            let [mut before, mut after] = [(); 2].map(|()| vec![0.0; x.len()]);
            batch_norm_again(cpu, shape, norm, &x, &mut before);
            batch_norm_again(cpu, shape, norm, &kept, &mut after);
            let passed = |y: &[f32]| y.iter().map(|&y| y > 0.0).collect::<Vec<_>>();
            assert_eq!(passed(&before), passed(&after), "{}", cpu.isa());
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn the_same_values_pass(
            batch in 0usize..4, channels in 1usize..12, area in prop_oneof![Just(1usize), 1usize..40], seed in 0u64..1000,
        ) {
            let shape = ChannelShape { batch, channels, area };
            keeps_what_passes::<f16>(&shape, seed);
            keeps_what_passes::<bf16>(&shape, seed);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn a_norm_leaves_what_a_pass_of_its_own_would(
            batch in 2usize..6, channels in 1usize..12, area in prop_oneof![Just(1usize), 1usize..40], rectified in any::<bool>(),
        ) {
            let shape = ChannelShape { batch, channels, area };
            let (x, gamma, beta) = (numbers(1, shape.len()), numbers(2, channels), numbers(3, channels));
            for isa in crate::Isa::available() {
                let cpu = Cpu::with_isa(2, isa).unwrap();
                let [mut mean, mut variance, mut a, mut b] = [(); 4].map(|()| vec![0.0; channels]);
                let [mut kept_x, mut kept_y, mut expected] = [(); 3].map(|()| vec![f16::ZERO; x.len()]);
                let [mut y, mut again] = [(); 2].map(|()| vec![0.0; x.len()]);
                let norm = BatchNormTraining {
                    eps: 1e-5, momentum: 0.1, rectified, gamma: &gamma, beta: &beta,
                    mean: &mut mean, variance: &mut variance, running_mean: &mut a, running_variance: &mut b,
                };
                let keeps = Keeps { x: Some(&mut kept_x[..]), y: Some(&mut kept_y[..]) };
                batch_norm_training_keeping(&cpu, &shape, norm, keeps, &x, &mut y);
                let norm = BatchNormAgain { eps: 1e-5, rectified, gamma: &gamma, beta: &beta, mean: &mean, variance: &variance };
                batch_norm_again(&cpu, &shape, norm, &x, &mut again);
                prop_assert_eq!(&y, &again);
                convert(&cpu, &y, &mut expected);
                prop_assert_eq!(&kept_y, &expected);
                match rectified {
                    true => keep_rectified(&cpu, &shape, norm, &x, &mut expected),
                    false => convert(&cpu, &x, &mut expected),
                }
                prop_assert_eq!(&kept_x, &expected);
            }
        }
    }

    #[test]
    fn rounding_to_the_nearest_would_fall() {
        let shape = ChannelShape {
            batch: 1,
            channels: 1,
            area: 4000,
        };
        let x: Vec<f32> = numbers(1, 4000).iter().map(|v| 1.0 + v * 1e-3).collect();
        let norm = BatchNormAgain {
            eps: 0.0,
            rectified: true,
            gamma: &[1.0],
            beta: &[0.0],
            mean: &[1.000_2],
            variance: &[1.0],
        };
        let cpu = Cpu::new(1).unwrap();
        let passed = |kept: &[f16]| {
            let mut y = vec![0.0; x.len()];
            batch_norm_again(&cpu, &shape, norm, kept, &mut y);
            y.iter().filter(|y| **y > 0.0).count()
        };
        let [mut nearest, mut kept] = [(); 2].map(|()| vec![f16::ZERO; x.len()]);
        convert(&cpu, &x, &mut nearest);
        keep_rectified(&cpu, &shape, norm, &x, &mut kept);
        let expected = x.iter().filter(|x| **x > 1.000_2).count();
        assert_ne!(passed(&nearest), expected, "the case is one");
        assert_eq!(passed(&kept), expected);
    }
}
