//! Batch norms in training against their slow references.

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
