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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::{Interpolation, Sampling};

    /// What PyTorch 2 makes of a 5 x 6 map in f64.
    #[test]
    fn equals_pytorch() {
        let aligned = Resize::new(Interpolation::Bilinear, Sampling::AlignCorners);
        let cases: [(Resize, [usize; 2], &[f64]); 7] = [
            (
                Resize::BICUBIC,
                [3, 4],
                &[
                    0.291237628,
                    0.402924948,
                    0.683725954,
                    0.241376816,
                    0.363146552,
                    0.885641164,
                    0.114358836,
                    0.636853448,
                    0.758623184,
                    0.316274046,
                    0.621163594,
                    0.178814456,
                ],
            ),
            (
                Resize::BICUBIC.with_step([5.0 / 3.1, 6.0 / 4.1]),
                [3, 4],
                &[
                    0.26330034,
                    0.415361683,
                    0.71462414,
                    0.240919691,
                    0.363811842,
                    0.87118325,
                    0.107279004,
                    0.610157994,
                    0.788677881,
                    0.322748391,
                    0.662748995,
                    0.206157398,
                ],
            ),
            (
                Resize::ANTIALIASED_BICUBIC,
                [3, 4],
                &[
                    0.37431777,
                    0.49169676,
                    0.568802629,
                    0.273955517,
                    0.566213281,
                    0.614880921,
                    0.383694527,
                    0.458171456,
                    0.726044483,
                    0.431197371,
                    0.530685146,
                    0.242560497,
                ],
            ),
            (
                Resize::ANTIALIASED_BILINEAR,
                [3, 4],
                &[
                    0.384236453,
                    0.485495348,
                    0.550629447,
                    0.288793103,
                    0.552681992,
                    0.59088974,
                    0.40911026,
                    0.447318008,
                    0.711206897,
                    0.449370553,
                    0.514504652,
                    0.25862069,
                ],
            ),
            (
                Resize::BILINEAR,
                [7, 4],
                &[
                    0.068965517,
                    0.482758621,
                    0.646551724,
                    0.310344828,
                    0.443349754,
                    0.428571429,
                    0.592364532,
                    0.256157635,
                    0.625615764,
                    0.503694581,
                    0.45320197,
                    0.331280788,
                    0.379310345,
                    0.793103448,
                    0.206896552,
                    0.620689655,
                    0.668719212,
                    0.54679803,
                    0.496305419,
                    0.374384236,
                    0.743842365,
                    0.407635468,
                    0.571428571,
                    0.235221675,
                    0.689655172,
                    0.353448276,
                    0.517241379,
                    0.181034483,
                ],
            ),
            (
                aligned,
                [3, 4],
                &[
                    0.0,
                    0.459770115,
                    0.586206897,
                    0.379310345,
                    0.310344828,
                    0.770114943,
                    0.229885057,
                    0.689655172,
                    0.620689655,
                    0.413793103,
                    0.540229885,
                    0.0,
                ],
            ),
            (
                Resize::NEAREST,
                [7, 4],
                &[
                    0.0,
                    0.275862069,
                    0.827586207,
                    0.103448276,
                    0.0,
                    0.275862069,
                    0.827586207,
                    0.103448276,
                    0.655172414,
                    0.931034483,
                    0.482758621,
                    0.75862069,
                    0.310344828,
                    0.586206897,
                    0.137931034,
                    0.413793103,
                    0.310344828,
                    0.586206897,
                    0.137931034,
                    0.413793103,
                    0.965517241,
                    0.24137931,
                    0.793103448,
                    0.068965517,
                    0.620689655,
                    0.896551724,
                    0.448275862,
                    0.724137931,
                ],
            ),
        ];
        let x: Vec<f64> = (0..30).map(|i| f64::from(i * 37 % 29) / 29.0).collect();
        for (config, output, expected) in cases {
            let shape = ResizeShape {
                planes: 1,
                input: [5, 6],
                output,
            };
            let mut y = vec![0.0; shape.out_len()];
            resize(&config, &shape, &x, &mut y);
            for (got, expected) in y.iter().zip(expected) {
                assert!(
                    (got - expected).abs() < 2e-9,
                    "{config:?}: {got} instead of {expected}"
                );
            }
        }
    }
}
