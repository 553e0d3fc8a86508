//! Matrix products.

use super::Real;

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
