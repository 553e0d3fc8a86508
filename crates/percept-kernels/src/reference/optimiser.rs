//! Optimisers, number by number.

use super::Real;
use crate::optimiser::{AdamWStep, SgdStep};

/// One step of stochastic gradient descent; without a velocity there is no momentum.
pub fn sgd<T: Real>(
    step: &SgdStep,
    gradient: &[T],
    weight: &mut [T],
    mut velocity: Option<&mut [T]>,
) {
    let [rate, momentum, decay, clip] =
        [step.rate, step.momentum, step.weight_decay, step.clip].map(T::from_f64);
    for (i, w) in weight.iter_mut().enumerate() {
        let mut g = gradient[i] * clip + decay * *w;
        if let Some(velocity) = &mut velocity {
            velocity[i] = momentum * velocity[i] + g;
            g = match step.nesterov {
                true => g + momentum * velocity[i],
                false => velocity[i],
            };
        }
        *w = *w - rate * g;
    }
}

/// One step of Adam with decoupled weight decay.
pub fn adam_w<T: Real>(
    step: &AdamWStep,
    gradient: &[T],
    weight: &mut [T],
    first: &mut [T],
    second: &mut [T],
) {
    let [beta1, beta2] = step.betas.map(T::from_f64);
    let [correction1, correction2] = step.corrections().map(T::from_f64);
    let [rate, eps, decay, clip] =
        [step.rate, step.eps, step.weight_decay, step.clip].map(T::from_f64);
    for (i, w) in weight.iter_mut().enumerate() {
        let g = gradient[i] * clip;
        first[i] = beta1 * first[i] + (T::ONE - beta1) * g;
        second[i] = beta2 * second[i] + (T::ONE - beta2) * g * g;
        let decayed = *w - rate * decay * *w;
        let size = (second[i] / correction2).sqrt() + eps;
        *w = decayed - rate / correction1 * first[i] / size;
    }
}
