//! Gradients of average pooling and resizing. They are a small part of any training step, so each plane is done as the reference does
//! it, on all threads.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::pool2d::Pool2dShape;
use crate::reference::gradient;
use crate::resize::{Resize, ResizeShape};
use crate::rows::for_each_block;

/// Calls `body` with runs of planes, the part of `dy` that belongs to them, and the part of `dx`.
fn for_each_planes(
    cpu: &Cpu,
    planes: usize,
    dy: &[f32],
    dx: &mut [f32],
    body: impl Fn(Range<usize>, &[f32], &mut [f32]) + Sync,
) {
    if planes == 0 {
        return;
    }
    let (in_area, out_area) = (dx.len() / planes, dy.len() / planes);
    for_each_block(cpu, planes, in_area + out_area, in_area, dx, |range, dx| {
        let dy = &dy[range.start * out_area..range.end * out_area];
        body(range, dy, dx);
    });
}

/// The pooling of some planes.
fn some_planes(shape: &Pool2dShape, planes: usize) -> Pool2dShape {
    Pool2dShape {
        batch: 1,
        channels: planes,
        ..*shape
    }
}

/// dy of each window goes to its pixels in equal shares.
pub fn avg_pool2d_gradient(
    cpu: &Cpu,
    shape: &Pool2dShape,
    count_include_pad: bool,
    dy: &[f32],
    dx: &mut [f32],
) {
    for_each_planes(
        cpu,
        shape.batch * shape.channels,
        dy,
        dx,
        |planes, dy, dx| {
            let shape = some_planes(shape, planes.len());
            gradient::avg_pool2d_gradient(&shape, count_include_pad, dy, dx);
        },
    );
}

/// dy of each bin goes to its pixels in equal shares.
pub fn adaptive_avg_pool2d_gradient(
    cpu: &Cpu,
    planes: usize,
    input: [usize; 2],
    output: [usize; 2],
    dy: &[f32],
    dx: &mut [f32],
) {
    for_each_planes(cpu, planes, dy, dx, |planes, dy, dx| {
        gradient::adaptive_avg_pool2d_gradient(planes.len(), input, output, dy, dx);
    });
}

/// Every output pixel gives its gradient to the pixels it was mixed from.
pub fn resize_gradient(
    cpu: &Cpu,
    resize: &Resize,
    shape: &ResizeShape,
    dy: &[f32],
    dx: &mut [f32],
) {
    for_each_planes(cpu, shape.planes, dy, dx, |planes, dy, dx| {
        let shape = ResizeShape {
            planes: planes.len(),
            ..*shape
        };
        gradient::resize_gradient(resize, &shape, dy, dx);
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{check, numbers, widen};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn planes_are_independent(
            batch in 0usize..3, channels in 1usize..40, height in 1usize..40, width in 1usize..40,
            kernel in 1usize..4, stride in 1usize..3, include in any::<bool>(),
        ) {
            let shape = Pool2dShape {
                batch, channels, height, width,
                kernel: [kernel; 2], stride: [stride; 2], padding: [kernel / 2; 2], ceil_mode: false,
            };
            let planes = batch * channels;
            let dy = numbers(2, planes * shape.out_height() * shape.out_width());
            let mut expected = vec![0.0; planes * height * width];
            gradient::avg_pool2d_gradient(&shape, include, &widen(&dy), &mut expected);
            check(&expected, 1e-6, |cpu, dx| avg_pool2d_gradient(cpu, &shape, include, &dy, dx));
            let (input, output) = ([height, width], [kernel, stride]);
            let dy = numbers(3, planes * kernel * stride);
            gradient::adaptive_avg_pool2d_gradient(planes, input, output, &widen(&dy), &mut expected);
            check(&expected, 1e-6, |cpu, dx| {
                adaptive_avg_pool2d_gradient(cpu, planes, input, output, &dy, dx);
            });
            let resized = ResizeShape { planes, input, output };
            gradient::resize_gradient(&Resize::BICUBIC, &resized, &widen(&dy), &mut expected);
            check(&expected, 1e-5, |cpu, dx| resize_gradient(cpu, &Resize::BICUBIC, &resized, &dy, dx));
        }
    }
}
