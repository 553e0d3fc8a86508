//! Gradients of convolutions: every multiplication of the forward pass, read two other ways.

use crate::conv::ConvShape;
use crate::reference::Real;

/// Calls `visit(output, weight, input)` with the positions of every multiplication of a convolution.
fn for_each_product(shape: &ConvShape, mut visit: impl FnMut(usize, usize, usize)) {
    let [kernel_height, kernel_width] = shape.kernel;
    let (out_height, out_width) = (shape.out_height(), shape.out_width());
    let inside = |axis: usize, out: usize, tap: usize| {
        let padded = out * shape.stride[axis] + tap * shape.dilation[axis];
        let size = [shape.height, shape.width][axis];
        padded
            .checked_sub(shape.padding[axis])
            .filter(|&at| at < size)
    };
    for output in 0..shape.out_len() {
        let (j, i) = (output % out_width, output / out_width % out_height);
        let plane = output / (out_width * out_height);
        let (sample, k) = (plane / shape.out_channels, plane % shape.out_channels);
        let first = k / shape.group_out() * shape.group_in();
        for c in 0..shape.group_in() {
            for tap in 0..shape.taps() {
                let (u, v) = (tap / kernel_width, tap % kernel_width);
                let (Some(row), Some(column)) = (inside(0, i, u), inside(1, j, v)) else {
                    continue;
                };
                let plane = sample * shape.in_channels + first + c;
                let weight = ((k * shape.group_in() + c) * kernel_height + u) * kernel_width + v;
                let input = (plane * shape.height + row) * shape.width + column;
                visit(output, weight, input);
            }
        }
    }
}

/// dx = Σ weight · dy over the outputs that each input went into.
pub fn conv2d_input_gradient<T: Real>(shape: &ConvShape, dy: &[T], weight: &[T], dx: &mut [T]) {
    shape.check(Some(weight.len()), dx.len(), dy.len());
    dx.fill(T::ZERO);
    for_each_product(shape, |y, w, x| dx[x] += weight[w] * dy[y]);
}

/// dweight = Σ x · dy over the outputs that each weight went into.
pub fn conv2d_weight_gradient<T: Real>(shape: &ConvShape, x: &[T], dy: &[T], dweight: &mut [T]) {
    shape.check(Some(dweight.len()), x.len(), dy.len());
    dweight.fill(T::ZERO);
    for_each_product(shape, |y, w, input| dweight[w] += x[input] * dy[y]);
}
