//! Matrix products.

use super::Real;
use crate::gemm::MatmulShape;

/// y [rows, outputs] = x [rows, inputs] times the transpose of weight [outputs, inputs], plus a bias per output.
pub fn linear<T: Real>(
    [rows, inputs, outputs]: [usize; 3],
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    assert_eq!(x.len(), rows * inputs, "x is [rows, inputs]");
    assert_eq!(
        weight.len(),
        outputs * inputs,
        "weight is [outputs, inputs]"
    );
    assert_eq!(y.len(), rows * outputs, "y is [rows, outputs]");
    for row in 0..rows {
        for output in 0..outputs {
            let (x, weight) = (
                &x[row * inputs..][..inputs],
                &weight[output * inputs..][..inputs],
            );
            let product = x.iter().zip(weight).map(|(&x, &w)| x * w).sum::<T>();
            y[row * outputs + output] = product + bias.map_or(T::ZERO, |bias| bias[output]);
        }
    }
}

/// y [batch, m, n] = a [batch, m, k] times b [batch, k, n], either stored transposed if the shape says so.
pub fn matmul<T: Real>(shape: &MatmulShape, a: &[T], b: &[T], y: &mut [T]) {
    let MatmulShape { batch, m, k, n, .. } = *shape;
    assert_eq!(a.len(), batch * m * k, "a is [batch, m, k]");
    assert_eq!(b.len(), batch * k * n, "b is [batch, k, n]");
    assert_eq!(y.len(), batch * m * n, "y is [batch, m, n]");
    for (index, y) in y.iter_mut().enumerate() {
        let (item, i, j) = (index / (m * n), index / n % m, index % n);
        let product = |p: usize| {
            let a_at = if shape.transpose_a {
                p * m + i
            } else {
                i * k + p
            };
            let b_at = if shape.transpose_b {
                j * k + p
            } else {
                p * n + j
            };
            a[item * m * k + a_at] * b[item * k * n + b_at]
        };
        *y = (0..k).map(product).sum::<T>();
    }
}
