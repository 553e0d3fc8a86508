//! Pooling of NCHW maps.

use super::Real;
use crate::pool2d::{Pool2dShape, adaptive_window};

/// The largest number of each window; padding never wins.
pub fn max_pool2d<T: Real>(shape: &Pool2dShape, x: &[T], y: &mut [T]) {
    for_each_output(shape, y, |plane, rows, columns| {
        let mut max = T::NEG_INFINITY;
        for i in rows.inside() {
            for j in columns.inside() {
                max = max.maximum(x[(plane * shape.height + i) * shape.width + j]);
            }
        }
        max
    });
}

/// The mean of each window, dividing by the part of the window that lies inside the map or, with
/// `count_include_pad`, inside the padded map.
pub fn avg_pool2d<T: Real>(shape: &Pool2dShape, count_include_pad: bool, x: &[T], y: &mut [T]) {
    for_each_output(shape, y, |plane, rows, columns| {
        let mut sum = T::ZERO;
        for i in rows.inside() {
            for j in columns.inside() {
                sum += x[(plane * shape.height + i) * shape.width + j];
            }
        }
        let count = if count_include_pad {
            rows.padded_len * columns.padded_len
        } else {
            rows.inside().len() * columns.inside().len()
        };
        sum / T::from_usize(count)
    });
}

fn for_each_output<T>(
    shape: &Pool2dShape,
    y: &mut [T],
    mut value: impl FnMut(usize, crate::pool2d::Window, crate::pool2d::Window) -> T,
) {
    let (out_height, out_width) = (shape.out_height(), shape.out_width());
    for (index, y) in y.iter_mut().enumerate() {
        let (row, column) = (index / out_width % out_height, index % out_width);
        let plane = index / (out_width * out_height);
        *y = value(plane, shape.row_window(row), shape.column_window(column));
    }
}

/// The mean of each plane of `area` numbers.
pub fn global_avg_pool<T: Real>(area: usize, x: &[T], y: &mut [T]) {
    for (plane, y) in y.iter_mut().enumerate() {
        *y = x[plane * area..][..area].iter().copied().sum::<T>() / T::from_usize(area);
    }
}

/// Means of `output` windows that cover the `input` map as evenly as whole pixels can.
pub fn adaptive_avg_pool2d<T: Real>(
    planes: usize,
    input: [usize; 2],
    output: [usize; 2],
    x: &[T],
    y: &mut [T],
) {
    for plane in 0..planes {
        for i in 0..output[0] {
            for j in 0..output[1] {
                let rows = adaptive_window(i, input[0], output[0]);
                let columns = adaptive_window(j, input[1], output[1]);
                let count = T::from_usize(rows.len() * columns.len());
                let mut sum = T::ZERO;
                for row in rows {
                    for column in columns.clone() {
                        sum += x[(plane * input[0] + row) * input[1] + column];
                    }
                }
                y[(plane * output[0] + i) * output[1] + j] = sum / count;
            }
        }
    }
}
