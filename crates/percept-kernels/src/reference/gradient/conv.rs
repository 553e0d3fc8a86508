//! Gradients of convolutions: every multiplication of the forward pass, read two other ways.

use crate::conv::ConvShape;
use crate::reference::Real;
use crate::reference::conv::for_each_run;

/// dx = Σ weight · dy over the outputs that each input went into.
pub fn conv2d_input_gradient<T: Real>(shape: &ConvShape, dy: &[T], weight: &[T], dx: &mut [T]) {
    shape.check(Some(weight.len()), dx.len(), dy.len());
    dx.fill(T::ZERO);
    for_each_run(shape, |run| {
        let factor = weight[run.weight];
        let inputs = dx[run.input..].iter_mut().step_by(run.step);
        for (dx, dy) in inputs.zip(&dy[run.outputs()]) {
            *dx += factor * *dy;
        }
    });
}

/// dweight = Σ x · dy over the outputs that each weight went into.
pub fn conv2d_weight_gradient<T: Real>(shape: &ConvShape, x: &[T], dy: &[T], dweight: &mut [T]) {
    shape.check(Some(dweight.len()), x.len(), dy.len());
    dweight.fill(T::ZERO);
    for_each_run(shape, |run| {
        let products = run.inputs(x).zip(&dy[run.outputs()]);
        for (x, dy) in products {
            dweight[run.weight] += *x * *dy;
        }
    });
}
