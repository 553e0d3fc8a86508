//! Resizing, pixel by pixel.

use super::Real;
use crate::resize::{Resize, ResizeShape, Taps};

/// Resizes each plane: every output pixel is the weighted sum of the input pixels under its taps.
pub fn resize<T: Real>(resize: &Resize, shape: &ResizeShape, x: &[T], y: &mut [T]) {
    let rows = Taps::of_axis(resize, shape, 0);
    let columns = Taps::of_axis(resize, shape, 1);
    let [height, width] = shape.input;
    let mut y = y.iter_mut();
    for plane in 0..shape.planes {
        for row in &rows {
            for column in &columns {
                let mut sum = T::ZERO;
                for (i, row_weight) in row.weights.iter().enumerate() {
                    for (j, column_weight) in column.weights.iter().enumerate() {
                        let pixel = x[(plane * height + row.start + i) * width + column.start + j];
                        sum += pixel * T::from_f64(row_weight * column_weight);
                    }
                }
                *y.next()
                    .expect("y has planes * out_height * out_width numbers") = sum;
            }
        }
    }
}
