//! Convolutions of NCHW maps.

use super::Real;
use crate::conv::{ConvShape, ConvTransposeShape};

/// Cross-correlation of x [batch, in_channels, height, width] with OIHW weights, plus a bias per output channel.
pub fn conv2d<T: Real>(shape: &ConvShape, x: &[T], weight: &[T], bias: Option<&[T]>, y: &mut [T]) {
    shape.check(Some(weight.len()), x.len(), y.len());
    let (group_in, group_out) = (shape.group_in(), shape.group_out());
    let [kernel_height, kernel_width] = shape.kernel;
    let mut y = y.iter_mut();
    for sample in 0..shape.batch {
        for out_channel in 0..shape.out_channels {
            let first_channel = out_channel / group_out * group_in;
            let start = bias.map_or(T::ZERO, |bias| bias[out_channel]);
            for out_row in 0..shape.out_height() {
                for out_column in 0..shape.out_width() {
                    let mut sum = start;
                    for channel in 0..group_in {
                        let plane = sample * shape.in_channels + first_channel + channel;
                        for i in 0..kernel_height {
                            let Some(row) = input_index(shape, 0, out_row, i) else {
                                continue;
                            };
                            for j in 0..kernel_width {
                                let Some(column) = input_index(shape, 1, out_column, j) else {
                                    continue;
                                };
                                let tap = ((out_channel * group_in + channel) * kernel_height + i)
                                    * kernel_width
                                    + j;
                                sum += weight[tap]
                                    * x[(plane * shape.height + row) * shape.width + column];
                            }
                        }
                    }
                    *y.next().expect("lengths were checked") = sum;
                }
            }
        }
    }
}

/// The input row (axis 0) or column (axis 1) under a kernel tap, unless it is padding.
fn input_index(shape: &ConvShape, axis: usize, out: usize, tap: usize) -> Option<usize> {
    let size = [shape.height, shape.width][axis];
    let padded = out * shape.stride[axis] + tap * shape.dilation[axis];
    padded
        .checked_sub(shape.padding[axis])
        .filter(|&index| index < size)
}

/// Each input pixel marks the output with the kernel: the transpose of [`conv2d`], plus a bias per output channel.
pub fn conv_transpose2d<T: Real>(
    shape: &ConvTransposeShape,
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    shape.check(Some(weight.len()), x.len(), y.len());
    let (out_height, out_width) = (shape.out_height(), shape.out_width());
    if y.is_empty() {
        return;
    }
    for (plane, y) in y.chunks_exact_mut(out_height * out_width).enumerate() {
        y.fill(bias.map_or(T::ZERO, |bias| bias[plane % shape.out_channels]));
    }
    let [kernel_height, kernel_width] = shape.kernel;
    let (group_in, group_out) = (
        shape.in_channels / shape.groups,
        shape.out_channels / shape.groups,
    );
    let mut x = x.iter();
    for plane in 0..shape.batch * shape.in_channels {
        let (sample, channel) = (plane / shape.in_channels, plane % shape.in_channels);
        let first_out = sample * shape.out_channels + channel / group_in * group_out;
        for row in 0..shape.height {
            for column in 0..shape.width {
                let &x = x.next().expect("lengths were checked");
                for out_channel in 0..group_out {
                    for i in 0..kernel_height {
                        let Some(out_row) = marked(shape, 0, row, i, out_height) else {
                            continue;
                        };
                        for j in 0..kernel_width {
                            let Some(out_column) = marked(shape, 1, column, j, out_width) else {
                                continue;
                            };
                            let out = (first_out + out_channel) * out_height + out_row;
                            let tap = (channel * group_out + out_channel) * kernel_height + i;
                            y[out * out_width + out_column] += x * weight[tap * kernel_width + j];
                        }
                    }
                }
            }
        }
    }
}

/// The output row (axis 0) or column (axis 1) that a kernel tap marks, unless it is cut off.
fn marked(
    shape: &ConvTransposeShape,
    axis: usize,
    index: usize,
    tap: usize,
    size: usize,
) -> Option<usize> {
    let uncut = index * shape.stride[axis] + tap * shape.dilation[axis];
    uncut
        .checked_sub(shape.padding[axis])
        .filter(|&out| out < size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{numbers, widen};

    #[test]
    fn a_padded_strided_edge_detector() {
        let shape = ConvShape {
            batch: 1,
            in_channels: 1,
            height: 3,
            width: 3,
            out_channels: 1,
            kernel: [2, 2],
            stride: [2, 2],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 1,
        };
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        let mut y = [0.0; 4];
        conv2d(
            &shape,
            &x,
            &[1.0, 10.0, 100.0, 1000.0],
            Some(&[0.5]),
            &mut y,
        );
        assert_eq!(y, [1000.5, 3200.5, 7040.5, 9865.5]);
    }

    /// <conv(x), y> = <x, conv_transpose(y)> defines the transpose.
    #[test]
    fn the_transpose_is_adjoint() {
        let forward = ConvShape {
            batch: 2,
            in_channels: 4,
            height: 7,
            width: 6,
            out_channels: 6,
            kernel: [3, 2],
            stride: [2, 3],
            padding: [1, 0],
            dilation: [1, 2],
            groups: 2,
        };
        let back = ConvTransposeShape {
            batch: 2,
            in_channels: 6,
            height: forward.out_height(),
            width: forward.out_width(),
            out_channels: 4,
            kernel: [3, 2],
            stride: [2, 3],
            padding: [1, 0],
            output_padding: [0, 0],
            dilation: [1, 2],
            groups: 2,
        };
        let back = ConvTransposeShape {
            output_padding: [7 - back.out_height(), 6 - back.out_width()],
            ..back
        };
        let x = widen(&numbers(1, forward.in_len()));
        let y = widen(&numbers(2, forward.out_len()));
        let weight = widen(&numbers(3, forward.weight_len()));
        let (mut conv_x, mut back_y) = (vec![0.0; y.len()], vec![0.0; x.len()]);
        conv2d(&forward, &x, &weight, None, &mut conv_x);
        conv_transpose2d(&back, &y, &weight, None, &mut back_y);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        assert!((dot(&conv_x, &y) - dot(&x, &back_y)).abs() < 1e-12);
    }
}
