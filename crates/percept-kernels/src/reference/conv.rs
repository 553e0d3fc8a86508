//! Convolutions of NCHW maps.

use std::ops::Range;

use super::Real;
use crate::conv::{ConvShape, ConvTransposeShape};

/// Multiplications of a convolution that share a weight and lie side by side in an output row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Positions of the weight, of the first output, and of the first input.
    pub weight: usize,
    pub output: usize,
    pub input: usize,
    /// From one input to the next; outputs follow each other.
    pub step: usize,
    pub len: usize,
}

impl Run {
    pub(super) fn outputs(&self) -> Range<usize> {
        self.output..self.output + self.len
    }

    /// The inputs of x, as many as there are outputs.
    pub(super) fn inputs<'x, T>(&self, x: &'x [T]) -> impl Iterator<Item = &'x T> {
        x[self.input..].iter().step_by(self.step).take(self.len)
    }
}

/// Visits all multiplications of a convolution; those of one output come in the order of the weights.
pub(super) fn for_each_run(shape: &ConvShape, mut visit: impl FnMut(Run)) {
    let (group_in, group_out) = (shape.group_in(), shape.group_out());
    let (out_height, out_width) = (shape.out_height(), shape.out_width());
    let [kernel_height, kernel_width] = shape.kernel;
    let inside = |axis: usize| -> Vec<Range<usize>> {
        let taps = 0..shape.kernel[axis];
        taps.map(|tap| outputs_inside(shape, axis, tap)).collect()
    };
    let (rows, columns) = (inside(0), inside(1));
    for plane in 0..shape.batch * shape.out_channels {
        let (sample, out_channel) = (plane / shape.out_channels, plane % shape.out_channels);
        let first_channel = sample * shape.in_channels + out_channel / group_out * group_in;
        for tap in 0..group_in * kernel_height * kernel_width {
            let channel = first_channel + tap / (kernel_height * kernel_width);
            let [i, j] = [tap / kernel_width % kernel_height, tap % kernel_width];
            let columns = &columns[j];
            if columns.is_empty() {
                continue;
            }
            let column = columns.start * shape.stride[1] + j * shape.dilation[1] - shape.padding[1];
            for out_row in rows[i].clone() {
                let row = out_row * shape.stride[0] + i * shape.dilation[0] - shape.padding[0];
                visit(Run {
                    weight: out_channel * group_in * kernel_height * kernel_width + tap,
                    output: (plane * out_height + out_row) * out_width + columns.start,
                    input: (channel * shape.height + row) * shape.width + column,
                    step: shape.stride[1],
                    len: columns.len(),
                });
            }
        }
    }
}

/// The output rows (axis 0) or columns (axis 1) for which a kernel tap lies on the input and not on padding.
fn outputs_inside(shape: &ConvShape, axis: usize, tap: usize) -> Range<usize> {
    let (size, outputs) = match axis {
        0 => (shape.height, shape.out_height()),
        _ => (shape.width, shape.out_width()),
    };
    let (tap, padding) = (tap * shape.dilation[axis], shape.padding[axis]);
    let first_at_or_above = |index: usize| {
        (index + padding)
            .saturating_sub(tap)
            .div_ceil(shape.stride[axis])
            .min(outputs)
    };
    first_at_or_above(0)..first_at_or_above(size)
}

/// Cross-correlation of x [batch, in_channels, height, width] with OIHW weights, plus a bias per output channel.
pub fn conv2d<T: Real>(shape: &ConvShape, x: &[T], weight: &[T], bias: Option<&[T]>, y: &mut [T]) {
    shape.check(Some(weight.len()), x.len(), y.len());
    let plane = (shape.out_height() * shape.out_width()).max(1);
    for (number, y) in y.chunks_exact_mut(plane).enumerate() {
        y.fill(bias.map_or(T::ZERO, |bias| bias[number % shape.out_channels]));
    }
    for_each_run(shape, |run| {
        let factor = weight[run.weight];
        for (y, x) in y[run.outputs()].iter_mut().zip(run.inputs(x)) {
            *y += factor * *x;
        }
    });
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
