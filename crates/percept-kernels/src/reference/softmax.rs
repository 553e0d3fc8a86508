//! Softmax over the last axis.

use super::Real;

/// y = exp(x - max) / sum(exp(x - max)) over each row of `width` numbers.
pub fn softmax<T: Real>(width: usize, x: &[T], y: &mut [T]) {
    for_each_row(width, x, y, |x, max, sum| (x - max).exp() / sum);
}

/// y = x - max - ln(sum(exp(x - max))) over each row of `width` numbers.
pub fn log_softmax<T: Real>(width: usize, x: &[T], y: &mut [T]) {
    for_each_row(width, x, y, |x, max, sum| x - max - sum.ln());
}

fn for_each_row<T: Real>(width: usize, x: &[T], y: &mut [T], value: impl Fn(T, T, T) -> T) {
    assert_eq!(x.len(), y.len(), "x and y must be equally long");
    if width == 0 {
        return;
    }
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        let max = x.iter().fold(T::NEG_INFINITY, |max, &v| max.maximum(v));
        let sum = x.iter().map(|&v| (v - max).exp()).sum::<T>();
        for (&x, y) in x.iter().zip(y) {
            *y = value(x, max, sum);
        }
    }
}
