//! Winograd against a plain convolution in f64.

use proptest::prelude::*;

use super::*;
use crate::activation::Activation;
use crate::conv::Filters;
use crate::reference;
use crate::testing::{self, numbers, widen};

fn shape(batch: usize, channels: [usize; 2], size: [usize; 2], padding: [usize; 2]) -> ConvShape {
    ConvShape {
        batch,
        in_channels: channels[0],
        out_channels: channels[1],
        height: size[0],
        width: size[1],
        kernel: [3, 3],
        stride: [1, 1],
        padding,
        dilation: [1, 1],
        groups: 1,
    }
}

/// A convolution of stride two.
fn strided(shape: ConvShape, taps: usize) -> ConvShape {
    ConvShape {
        kernel: [taps; 2],
        stride: [2, 2],
        ..shape
    }
}

/// All tiles that fit against the reference in f64.
fn check(shape: &ConvShape, activation: Activation, bias: bool, residual: bool) {
    let x = numbers(1, shape.in_len());
    // Outputs of unit scale, as in a network.
    let depth = (shape.taps() * shape.in_channels.max(1)) as f32;
    let scale = (depth / 3.0).sqrt().recip();
    let weight: Vec<f32> = numbers(2, shape.weight_len())
        .iter()
        .map(|w| w * scale)
        .collect();
    let (bias_values, residual_values) =
        (numbers(3, shape.out_channels), numbers(4, shape.out_len()));
    let epilogue = Epilogue {
        bias: bias.then_some(&bias_values[..]),
        residual: residual.then_some(&residual_values[..]),
        residual_in_place: false,
        activation,
    };
    let mut expected = vec![0.0; shape.out_len()];
    let bias = epilogue.bias.map(widen);
    reference::conv2d(
        shape,
        &widen(&x),
        &widen(&weight),
        bias.as_deref(),
        &mut expected,
    );
    for (index, value) in expected.iter_mut().enumerate() {
        let residual = epilogue
            .residual
            .map_or(0.0, |residual| f64::from(residual[index]));
        *value = f64::from(activation.scalar((*value + residual) as f32));
    }
    let filters = Filters::oihw(shape, &weight);
    for (algorithm, tolerance) in [
        (ConvAlgorithm::Winograd4, 1e-4),
        (ConvAlgorithm::Winograd2, 1e-5),
        (ConvAlgorithm::WinogradStride2, 1e-4),
        (ConvAlgorithm::WinogradStem, 1e-4),
    ] {
        if !supports(shape, algorithm) {
            continue;
        }
        let run = |cpu: &Cpu, epilogue: Epilogue, y: &mut [f32]| {
            let weights = pack(cpu, shape, algorithm, &filters);
            conv2d(cpu, shape, &weights, &x, epilogue, None, y);
        };
        testing::check(&expected, tolerance, |cpu, y| run(cpu, epilogue, y));
        testing::check(&expected, tolerance, |cpu, y| {
            run(cpu, testing::residual_in_place(epilogue, y), y)
        });
    }
}

fn activation() -> impl Strategy<Value = Activation> {
    prop_oneof![
        Just(Activation::Identity),
        Just(Activation::Relu),
        Just(Activation::LeakyRelu(0.1)),
        Just(Activation::Silu),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn matches_the_reference(
        batch in 0usize..4,
        channels in [1usize..11, 1usize..14],
        size in [1usize..40, 1usize..75],
        padding in [0usize..3, 0usize..3],
        activation in activation(),
        bias: bool,
        residual: bool,
    ) {
        check(&shape(batch, channels, size, padding), activation, bias, residual);
    }

    #[test]
    fn strided_ones_match_the_reference(
        batch in 0usize..4,
        channels in [1usize..11, 1usize..14],
        size in [1usize..60, 1usize..150],
        padding in [0usize..7, 0usize..7],
        seven: bool,
        activation in activation(),
        bias: bool,
        residual: bool,
    ) {
        let (taps, most) = if seven { (7, 6) } else { (3, 2) };
        let shape = shape(batch, channels, size, padding.map(|padding| padding.min(most)));
        check(&strided(shape, taps), activation, bias, residual);
    }
}

#[test]
fn maps_of_real_networks() {
    check(
        &shape(1, [64, 20], [14, 14], [1, 1]),
        Activation::Relu,
        true,
        true,
    );
    check(
        &shape(3, [37, 12], [7, 7], [1, 1]),
        Activation::Relu,
        true,
        false,
    );
    check(
        &shape(1, [16, 10], [56, 56], [1, 1]),
        Activation::Silu,
        true,
        false,
    );
    check(
        &shape(1, [5, 6], [61, 180], [1, 1]),
        Activation::Identity,
        false,
        true,
    );
    check(
        &strided(shape(1, [3, 64], [224, 224], [3, 3]), 7),
        Activation::Relu,
        true,
        false,
    );
    check(
        &strided(shape(2, [70, 72], [56, 57], [1, 1]), 3),
        Activation::Relu,
        true,
        true,
    );
}

#[test]
fn no_input_channels_leave_the_bias() {
    check(
        &shape(1, [0, 5], [9, 9], [1, 1]),
        Activation::Identity,
        true,
        false,
    );
}

#[test]
#[should_panic(expected = "packed weights")]
fn weights_of_other_channels_are_refused() {
    let cpu = Cpu::new(1).unwrap();
    let one = shape(1, [1, 1], [4, 4], [1, 1]);
    let filters = Filters::oihw(&one, &[0.0; 9]);
    let weights = pack(&cpu, &one, ConvAlgorithm::Winograd2, &filters);
    let two = shape(1, [1, 2], [4, 4], [1, 1]);
    conv2d(
        &cpu,
        &two,
        &weights,
        &[0.0; 16],
        Epilogue::default(),
        None,
        &mut [0.0; 32],
    );
}
