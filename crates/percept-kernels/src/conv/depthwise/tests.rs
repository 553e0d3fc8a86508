//! Depthwise kernels against the reference in f64.

use proptest::prelude::*;

use super::*;
use crate::reference;
use crate::testing::{self, numbers, widen};

fn check(shape: &ConvShape, activation: Activation, residual: bool) {
    let x = numbers(1, shape.in_len());
    let weight = numbers(2, shape.weight_len());
    let bias = numbers(3, shape.out_channels);
    let residual_values = numbers(4, shape.out_len());
    let residual = residual.then_some(&residual_values[..]);
    let epilogue = Epilogue {
        bias: Some(&bias),
        residual,
        residual_in_place: false,
        activation,
    };
    let mut expected = vec![0.0; shape.out_len()];
    reference::conv2d(
        shape,
        &widen(&x),
        &widen(&weight),
        Some(&widen(&bias)),
        &mut expected,
    );
    for (index, value) in expected.iter_mut().enumerate() {
        let residual = residual.map_or(0.0, |residual| f64::from(residual[index]));
        *value = f64::from(activation.scalar((*value + residual) as f32));
    }
    testing::check(&expected, 1e-5, |cpu, y| {
        depthwise_conv2d(cpu, shape, &weight, &x, epilogue, None, y)
    });
    let pixels = shape.out_pixels();
    let sums: Vec<f64> = if pixels == 0 {
        vec![0.0; shape.batch * shape.out_channels]
    } else {
        expected
            .chunks(pixels)
            .map(|plane| plane.iter().sum())
            .collect()
    };
    testing::check(&sums, 1e-3, |cpu, sums| {
        let mut y = vec![0.0; shape.out_len()];
        depthwise_conv2d(cpu, shape, &weight, &x, epilogue, Some(sums), &mut y);
    });
}

fn square(
    batch: usize,
    channels: usize,
    size: [usize; 2],
    kernel: usize,
    stride: usize,
) -> ConvShape {
    ConvShape {
        batch,
        in_channels: channels,
        height: size[0],
        width: size[1],
        out_channels: channels,
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [kernel / 2; 2],
        dilation: [1, 1],
        groups: channels,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn fast_kernels(
        batch in 0usize..3,
        channels in 1usize..5,
        size in [1usize..60, 1usize..60],
        padding in [0usize..4, 0usize..4],
        five: bool,
        two: bool,
        residual: bool,
    ) {
        let shape = square(batch, channels, size, if five { 5 } else { 3 }, 1 + usize::from(two));
        check(&ConvShape { padding, ..shape }, Activation::Silu, residual);
    }

    #[test]
    fn any_kernel(
        channels in 2usize..4,
        size in [1usize..30, 1usize..40],
        kernel in [1usize..7, 1usize..7],
        stride in [1usize..5, 1usize..5],
        padding in [0usize..5, 0usize..5],
        dilation in [1usize..4, 1usize..4],
    ) {
        let shape = square(1, channels, size, 1, 1);
        check(&ConvShape { kernel, stride, padding, dilation, ..shape }, Activation::Identity, false);
    }
}

#[test]
fn maps_of_efficientnet() {
    for (size, kernel, stride) in [
        (112, 3, 1),
        (112, 3, 2),
        (56, 5, 2),
        (28, 5, 1),
        (14, 3, 1),
        (14, 5, 2),
        (7, 5, 1),
    ] {
        check(
            &square(2, 3, [size; 2], kernel, stride),
            Activation::Silu,
            false,
        );
        check(
            &square(1, 2, [size; 2], kernel, stride),
            Activation::Relu,
            true,
        );
    }
}
