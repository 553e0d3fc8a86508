//! Gradients of pooling.

use std::ops::Range;

use crate::pool2d::{Pool2dShape, adaptive_window};
use crate::reference::Real;

/// dy of each window goes to its first largest pixel, or to the first that is not a number.
pub fn max_pool2d_gradient<T: Real>(shape: &Pool2dShape, x: &[T], dy: &[T], dx: &mut [T]) {
    dx.fill(T::ZERO);
    for_each_window(shape, |output, plane, rows, columns| {
        let mut best: Option<(usize, T)> = None;
        for i in rows {
            let start = (plane * shape.height + i) * shape.width;
            for (at, &value) in (start..)
                .zip(&x[start..start + shape.width])
                .take(columns.end)
                .skip(columns.start)
            {
                let wins = match best {
                    None => true,
                    Some((_, most)) => value > most || value.is_nan() && !most.is_nan(),
                };
                if wins {
                    best = Some((at, value));
                }
            }
        }
        if let Some((best, _)) = best {
            dx[best] += dy[output];
        }
    });
}

/// dy of each window goes to its pixels in equal shares.
pub fn avg_pool2d_gradient<T: Real>(
    shape: &Pool2dShape,
    count_include_pad: bool,
    dy: &[T],
    dx: &mut [T],
) {
    dx.fill(T::ZERO);
    let (out_height, out_width) = (shape.out_height(), shape.out_width());
    for_each_window(shape, |output, plane, rows, columns| {
        let count = if count_include_pad {
            let row = shape.row_window(output / out_width % out_height);
            row.padded_len * shape.column_window(output % out_width).padded_len
        } else {
            rows.len() * columns.len()
        };
        let share = dy[output] / T::from_usize(count);
        for i in rows {
            for j in columns.clone() {
                dx[(plane * shape.height + i) * shape.width + j] += share;
            }
        }
    });
}

/// Calls `visit(output, plane, rows, columns)` for every window.
fn for_each_window(
    shape: &Pool2dShape,
    mut visit: impl FnMut(usize, usize, Range<usize>, Range<usize>),
) {
    let (out_height, out_width) = (shape.out_height(), shape.out_width());
    for output in 0..shape.batch * shape.channels * out_height * out_width {
        let rows = shape.row_window(output / out_width % out_height).inside();
        let columns = shape.column_window(output % out_width).inside();
        visit(output, output / (out_width * out_height), rows, columns);
    }
}

/// dy of each bin goes to its pixels in equal shares.
pub fn adaptive_avg_pool2d_gradient<T: Real>(
    planes: usize,
    input: [usize; 2],
    output: [usize; 2],
    dy: &[T],
    dx: &mut [T],
) {
    dx.fill(T::ZERO);
    for plane in 0..planes {
        for i in 0..output[0] {
            for j in 0..output[1] {
                let rows = adaptive_window(i, input[0], output[0]);
                let columns = adaptive_window(j, input[1], output[1]);
                let count = T::from_usize(rows.len() * columns.len());
                let share = dy[(plane * output[0] + i) * output[1] + j] / count;
                for row in rows {
                    for column in columns.clone() {
                        dx[(plane * input[0] + row) * input[1] + column] += share;
                    }
                }
            }
        }
    }
}
