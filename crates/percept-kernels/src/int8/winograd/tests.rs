//! Sums that cannot overflow, for the input that aligns every term; and the control that does.

use super::weights::{largest_input, nearest, step};
use super::*;
use crate::int8::{Rounding, map_len};
use crate::testing::numbers;

/// The largest sum that any input can bring at a position, with weights rounded by this step.
fn largest_sum(values: &[f64], step: f64, position: usize) -> f64 {
    let words = values.iter().map(|v| (v / step).round().abs());
    words.sum::<f64>() * largest_input(position) as f64
}

#[test]
fn no_input_overflows() {
    for channels in [1, 16, 300, 2048] {
        let values: Vec<f64> = numbers(1, channels).into_iter().map(f64::from).collect();
        for position in [0, 7, 21, 35] {
            let step = step(&values, largest_input(position));
            assert!(values.iter().all(|v| (v / step).round().abs() <= 32_767.0));
            let sum = largest_sum(&values, step, position);
            assert!(sum <= f64::from(i32::MAX), "{channels} channels: {sum}");
            // Nearly all of the range is used, or all of the words' bits.
            let fine = values.iter().any(|v| (v / step).abs() > 32_000.0);
            assert!(fine || sum > 0.95 * f64::from(i32::MAX));
        }
        // The control: all bits of words, whatever the sums.
        if channels >= 300 {
            let coarse = 1.0 / 32_767.0;
            assert!(largest_sum(&values, coarse, 0) > f64::from(i32::MAX));
        }
    }
    assert_eq!(step(&[0.0, 0.0], 100), 1.0);
}

#[test]
fn the_nearest_whole_number_is_that_of_the_library() {
    for quarters in -140_000..=140_000 {
        let value = f64::from(quarters) / 4.0;
        for value in [value.next_down(), value, value.next_up()] {
            assert_eq!(f64::from(nearest(value)), value.round(), "{value}");
        }
    }
}

/// Inputs that are largest wherever the transform wants them to be, in one channel after the other.
#[test]
fn an_input_that_aligns_every_term_is_near_direct_convolution() {
    let channels = 256;
    let shape = ConvShape {
        batch: 1,
        in_channels: channels,
        height: 6,
        width: 6,
        out_channels: 4,
        kernel: [3, 3],
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
        groups: 1,
    };
    let cpu = Cpu::new(1).unwrap();
    // B^T has the signs + 0 - 0 + 0 in its first row: what is largest at position 0, for weights of one sign.
    let signs = [1i8, 1, -1, 1, 1, 1];
    let weights = ByteWeights {
        values: vec![127; shape.weight_len()],
        scales: vec![1.0; 4],
    };
    let mut x = vec![0.0f32; map_len(1, channels, 36) / 4];
    let bytes: &mut [i8] = bytemuck::cast_slice_mut(&mut x);
    for (index, byte) in bytes.iter_mut().enumerate() {
        let pixel = index / 4 % 36;
        *byte = 127 * signs[pixel / 6] * signs[pixel % 6];
    }
    let epilogue = ByteEpilogue {
        input_scale: 1.0,
        bias: None,
        residual: None,
        activation: crate::Activation::Identity,
        rounding: Rounding::Fused,
    };
    let x: &[i8] = bytemuck::cast_slice(&x);
    let (mut got, mut expected) = (vec![0.0; 64], vec![0.0; 64]);
    let packed = ByteWinograd::pack(&cpu, &shape, &weights);
    byte_winograd(
        &cpu,
        &shape,
        &packed,
        x,
        epilogue,
        ByteOutput::Floats(&mut got),
    );
    let direct = super::super::ByteConv::pack(&cpu, &shape, &weights, true);
    let output = ByteOutput::Floats(&mut expected);
    super::super::byte_conv2d(&cpu, &shape, &direct, x, epilogue, output);
    let largest = expected.iter().fold(0.0f32, |a, b| a.max(b.abs()));
    for (got, expected) in got.iter().zip(&expected) {
        assert!(
            (got - expected).abs() < 5e-3 * largest,
            "{got} for {expected}"
        );
    }
}
