//! Slopes of activations, and the gradient of softmax.

use crate::activation::Activation;
use crate::reference::{Real, activate};

/// The slope of an activation, from its output for ReLU, sigmoid and tanh and from its input for GELU and SiLU; a leaky ReLU
/// may give either.
pub fn activation_slope<T: Real>(activation: Activation, saved: T) -> T {
    let half = T::from_f64(0.5);
    match activation {
        Activation::Identity => T::ONE,
        Activation::Relu if saved > T::ZERO => T::ONE,
        Activation::Relu => T::ZERO,
        Activation::LeakyRelu(_) if saved > T::ZERO => T::ONE,
        Activation::LeakyRelu(slope) => T::from_f64(f64::from(slope)),
        Activation::Sigmoid => saved * (T::ONE - saved),
        Activation::Tanh => T::ONE - saved * saved,
        Activation::Silu => {
            let gate = activate(Activation::Sigmoid, saved);
            gate * (T::ONE + saved * (T::ONE - gate))
        }
        Activation::Gelu => {
            let below = half * (T::ONE + (saved * T::from_f64(0.5f64.sqrt())).erf());
            let root = T::from_f64(1.0 / (2.0 * std::f64::consts::PI).sqrt());
            below + saved * root * (-half * saved * saved).exp()
        }
    }
}

/// dx = dy times the slope.
pub fn activation_gradient<T: Real>(activation: Activation, saved: &[T], dy: &[T], dx: &mut [T]) {
    for ((&saved, &dy), dx) in saved.iter().zip(dy).zip(dx) {
        *dx = dy * activation_slope(activation, saved);
    }
}

/// dx = y (dy - Σ dy y) over each row of `width` numbers.
pub fn softmax_gradient<T: Real>(width: usize, y: &[T], dy: &[T], dx: &mut [T]) {
    let rows = y
        .chunks_exact(width.max(1))
        .zip(dy.chunks_exact(width.max(1)));
    for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(width.max(1))) {
        let mean: T = y.iter().zip(dy).map(|(&y, &dy)| y * dy).sum();
        for ((&y, &dy), dx) in y.iter().zip(dy).zip(dx) {
            *dx = y * (dy - mean);
        }
    }
}
