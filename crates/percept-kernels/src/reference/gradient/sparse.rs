//! Gradients of sparse convolutions, pair by pair.

use crate::reference::Real;
use crate::sparse::SparseConvShape;

/// dx[input] += weight[.., tap, ..]ᵀ dy[output] for every pair (output, input, tap).
pub fn sparse_input_gradient<T: Real>(
    shape: &SparseConvShape,
    pairs: impl Iterator<Item = (usize, usize, usize)>,
    weight: &[T],
    dy: &[T],
    dx: &mut [T],
) {
    let (inputs, outputs) = (shape.in_channels, shape.out_channels);
    dx.fill(T::ZERO);
    for (output, input, tap) in pairs {
        for k in 0..outputs {
            for c in 0..inputs {
                let w = weight[(k * shape.taps + tap) * inputs + c];
                dx[input * inputs + c] += w * dy[output * outputs + k];
            }
        }
    }
}

/// dweight[.., tap, ..] += dy[output] ⊗ x[input] for every pair (output, input, tap).
pub fn sparse_weight_gradient<T: Real>(
    shape: &SparseConvShape,
    pairs: impl Iterator<Item = (usize, usize, usize)>,
    x: &[T],
    dy: &[T],
    dweight: &mut [T],
) {
    let (inputs, outputs) = (shape.in_channels, shape.out_channels);
    dweight.fill(T::ZERO);
    for (output, input, tap) in pairs {
        for k in 0..outputs {
            for c in 0..inputs {
                let at = (k * shape.taps + tap) * inputs + c;
                dweight[at] += dy[output * outputs + k] * x[input * inputs + c];
            }
        }
    }
}
