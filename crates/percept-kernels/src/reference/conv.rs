//! Convolutions of NCHW maps.

use super::Real;
use crate::conv::ConvShape;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
