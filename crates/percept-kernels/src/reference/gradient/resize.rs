//! The adjoint of resizing.

use crate::reference::Real;
use crate::resize::{Resize, ResizeShape, Taps};

/// Every output pixel gives its gradient to the pixels under its taps, by their weights.
pub fn resize_gradient<T: Real>(resize: &Resize, shape: &ResizeShape, dy: &[T], dx: &mut [T]) {
    let rows = Taps::of_axis(resize, shape, 0);
    let columns = Taps::of_axis(resize, shape, 1);
    let [height, width] = shape.input;
    dx.fill(T::ZERO);
    let mut dy = dy.iter();
    for plane in 0..shape.planes {
        for row in &rows {
            for column in &columns {
                let &dy = dy.next().expect("dy has as many numbers as the output");
                for (i, row_weight) in row.weights.iter().enumerate() {
                    for (j, column_weight) in column.weights.iter().enumerate() {
                        let at = (plane * height + row.start + i) * width + column.start + j;
                        dx[at] += dy * T::from_f64(row_weight * column_weight);
                    }
                }
            }
        }
    }
}
