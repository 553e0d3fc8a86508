//! Elementwise operations.

use super::Real;
use crate::activation::Activation;
use crate::elementwise::BinaryOp;
use crate::strides::{Odometer, broadcast_dims, broadcast_strides};

/// The activation of one number.
pub fn activate<T: Real>(activation: Activation, x: T) -> T {
    let half = T::from_f64(0.5);
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.maximum(T::ZERO),
        Activation::LeakyRelu(slope) => {
            if x < T::ZERO {
                x * T::from_f64(f64::from(slope))
            } else {
                x
            }
        }
        Activation::Gelu => {
            half * x * (T::ONE + (x * T::from_f64(std::f64::consts::FRAC_1_SQRT_2)).erf())
        }
        Activation::Silu => x / (T::ONE + (-x).exp()),
        Activation::Sigmoid => T::ONE / (T::ONE + (-x).exp()),
        Activation::Tanh => x.tanh(),
    }
}

/// y = activation(x).
pub fn unary<T: Real>(activation: Activation, x: &[T], y: &mut [T]) {
    assert_eq!(x.len(), y.len(), "x and y must be equally long");
    for (&x, y) in x.iter().zip(y) {
        *y = activate(activation, x);
    }
}

/// y = a op b, with both operands broadcast to a common shape as NumPy does.
pub fn binary<T: Real>(
    op: BinaryOp,
    a: &[T],
    a_dims: &[usize],
    b: &[T],
    b_dims: &[usize],
    y: &mut [T],
) {
    let dims = broadcast_dims(a_dims, b_dims).expect("the shapes broadcast");
    let a_offsets = Odometer::new(&dims, &broadcast_strides(a_dims, &dims));
    let b_offsets = Odometer::new(&dims, &broadcast_strides(b_dims, &dims));
    for ((y, i), j) in y.iter_mut().zip(a_offsets).zip(b_offsets) {
        let (a, b) = (a[i], b[j]);
        *y = match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
            BinaryOp::Max => a.maximum(b),
            BinaryOp::Min => a.minimum(b),
            BinaryOp::Greater if a > b => T::ONE,
            BinaryOp::Equal if a == b => T::ONE,
            BinaryOp::Greater | BinaryOp::Equal => T::ZERO,
        };
    }
}
