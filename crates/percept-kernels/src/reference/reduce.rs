//! Reductions over any axes.

use super::Real;
use crate::reduce::ReduceOp;
use crate::strides::{Odometer, contiguous_strides};

/// Reduces `axes` of x (`dims`); y has the kept axes in their order.
pub fn reduce<T: Real>(op: ReduceOp, dims: &[usize], axes: &[usize], x: &[T], y: &mut [T]) {
    let kept: Vec<usize> = (0..dims.len())
        .filter(|axis| !axes.contains(axis))
        .collect();
    let strides = contiguous_strides(dims);
    let pick = |axes: &[usize]| -> (Vec<usize>, Vec<usize>) {
        axes.iter().map(|&axis| (dims[axis], strides[axis])).unzip()
    };
    let (outer_dims, outer_strides) = pick(&kept);
    let (inner_dims, inner_strides) = pick(axes);
    for (y, start) in y.iter_mut().zip(Odometer::new(&outer_dims, &outer_strides)) {
        let values: Vec<T> = Odometer::new(&inner_dims, &inner_strides)
            .map(|offset| x[start + offset])
            .collect();
        *y = reduce_values(op, &values);
    }
}

fn reduce_values<T: Real>(op: ReduceOp, values: &[T]) -> T {
    let count = T::from_usize(values.len());
    let sum = || values.iter().copied().sum::<T>();
    match op {
        ReduceOp::Sum => sum(),
        ReduceOp::Mean => sum() / count,
        ReduceOp::Max => values
            .iter()
            .fold(T::NEG_INFINITY, |max, &v| max.maximum(v)),
        ReduceOp::Min => values.iter().fold(T::INFINITY, |min, &v| min.minimum(v)),
        ReduceOp::Variance { correction } => {
            let mean = sum() / count;
            let squares = values.iter().map(|&v| (v - mean) * (v - mean)).sum::<T>();
            squares / T::from_f64(values.len() as f64 - f64::from(correction))
        }
    }
}
