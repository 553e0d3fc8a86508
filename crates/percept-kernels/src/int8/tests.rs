//! Whole layers against plain integer sums: the same bytes and the same floats, on every instruction set and thread count.

use proptest::prelude::*;

use super::*;
use crate::activation::Activation;
use crate::conv::ConvShape;
use crate::cpu::Cpu;
use crate::isa::Isa;
use crate::pool2d::Pool2dShape;
use crate::sparse::SparseConvShape;
use crate::testing::numbers;

/// Bytes that start where a float may.
struct Aligned {
    memory: Vec<f32>,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let memory = vec![0.0; len.div_ceil(4)];
        Aligned { memory, len }
    }

    fn bytes(&self) -> &[i8] {
        &bytemuck::cast_slice(&self.memory)[..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [i8] {
        &mut bytemuck::cast_slice_mut(&mut self.memory)[..self.len]
    }
}

/// Numbers of a layer's input, as bytes in their plain order.
fn input(seed: u64, len: usize, signed: bool) -> Vec<i8> {
    let scale = ByteScale::reaching(0.8, signed);
    let numbers = numbers(seed, len);
    numbers.into_iter().map(|x| scale.quantize(x)).collect()
}

/// Maps from NCHW to quads.
fn to_quads([batch, channels, pixels]: [usize; 3], x: &[i8]) -> Aligned {
    let mut quads = Aligned::new(map_len(batch, channels, pixels));
    for (index, &q) in x.iter().enumerate() {
        let (plane, pixel) = (index / pixels, index % pixels);
        let (sample, channel) = (plane / channels, plane % channels);
        let place = (sample * channels.div_ceil(4) + channel / 4) * pixels + pixel;
        quads.bytes_mut()[4 * place + channel % 4] = q;
    }
    quads
}

/// Rows filled up to whole quads.
fn to_rows(columns: usize, x: &[i8]) -> Aligned {
    let rows = x.len() / columns.max(1);
    let mut padded = Aligned::new(rows * row_len(columns));
    for (index, &q) in x.iter().enumerate() {
        padded.bytes_mut()[index / columns * row_len(columns) + index % columns] = q;
    }
    padded
}

/// What a layer does behind its sums.
#[derive(Clone, Copy, Debug)]
struct Extras {
    bias: bool,
    residual: bool,
    activation: Activation,
    signed: bool,
    bounded: bool,
}

fn extras() -> impl Strategy<Value = Extras> {
    let activation = prop_oneof![
        Just(Activation::Identity),
        Just(Activation::Relu),
        Just(Activation::LeakyRelu(0.1))
    ];
    let flags = any::<[bool; 4]>();
    (flags, activation).prop_map(|([bias, residual, signed, bounded], activation)| Extras {
        bias,
        residual,
        activation,
        signed,
        bounded,
    })
}

fn quantized(extras: &Extras, rows: usize, order: &QuadOrder) -> ByteWeights {
    let weights = numbers(2, rows * order.len());
    match extras.bounded {
        true => ByteWeights::quantize_bounded(rows, &weights, order),
        false => ByteWeights::quantize(rows, &weights),
    }
}

const INPUT_SCALE: f32 = 0.031;
const RESIDUAL_SCALE: f32 = 0.02;

/// Runs a layer on every instruction set and thread count, with results as floats and as bytes, and with residuals of both
/// kinds, against sums computed plainly. `place` says where element i stands among the bytes, `channel` which it is of.
fn check(
    extras: &Extras,
    sums: &[i32],
    scales: &[f32],
    byte_len: usize,
    place: impl Fn(usize) -> usize,
    channel: impl Fn(usize) -> usize,
    layer: impl Fn(&Cpu, ByteEpilogue<'_>, ByteOutput<'_>),
) {
    let bias = extras.bias.then(|| numbers(3, scales.len()));
    let float_residual = numbers(4, sums.len());
    let mut byte_residual = Aligned::new(byte_len);
    for (index, &q) in input(5, sums.len(), true).iter().enumerate() {
        byte_residual.bytes_mut()[place(index)] = q;
    }
    let output_scale = ByteScale {
        scale: 0.05,
        signed: extras.activation != Activation::Relu,
    };
    let both = [Rounding::Fused, Rounding::Each];
    for (bytes, rounding) in [false, true]
        .into_iter()
        .flat_map(|bytes| both.map(|rounding| (bytes, rounding)))
    {
        let added = |index: usize| match (extras.residual, bytes) {
            (false, _) => None,
            (true, false) => Some((float_residual[index], 1.0)),
            (true, true) => {
                let added = f32::from(byte_residual.bytes()[place(index)]);
                Some((added, RESIDUAL_SCALE))
            }
        };
        let add_product = |a: f32, b: f32, c: f32| match rounding {
            Rounding::Fused => a.mul_add(b, c),
            Rounding::Each => a * b + c,
        };
        let expected = |unit: f32| -> Vec<f32> {
            let finished = sums.iter().enumerate().map(|(index, &sum)| {
                let channel = channel(index);
                let bias = bias.as_ref().map_or(0.0, |bias| bias[channel]);
                let factor = scales[channel] * INPUT_SCALE * unit;
                let value = add_product(sum as f32, factor, bias * unit);
                let value = match added(index) {
                    Some((added, scale)) => add_product(added, scale * unit, value),
                    None => value,
                };
                extras.activation.scalar(value)
            });
            finished.collect()
        };
        let floats_expected = expected(1.0);
        let is_straight = !matches!(extras.activation, Activation::LeakyRelu(_));
        let bytes_expected: Vec<i8> = match (rounding, is_straight) {
            // Counted in steps all the way.
            (Rounding::Fused, true) => {
                let steps = expected(1.0 / output_scale.scale).into_iter();
                let step = ByteScale {
                    scale: 1.0,
                    ..output_scale
                };
                steps.map(|steps| step.quantize(steps)).collect()
            }
            _ => {
                let values = floats_expected.iter();
                values.map(|&value| output_scale.quantize(value)).collect()
            }
        };
        let epilogue = ByteEpilogue {
            input_scale: INPUT_SCALE,
            bias: bias.as_deref(),
            residual: extras.residual.then(|| match bytes {
                false => Addend::Floats(&float_residual),
                true => Addend::Bytes(byte_residual.bytes(), RESIDUAL_SCALE),
            }),
            activation: extras.activation,
            rounding,
        };
        for isa in Isa::available_for_bytes() {
            for threads in [1, 2, 3] {
                let cpu = Cpu::with_isa(threads, isa).unwrap();
                let mut floats = vec![f32::NAN; sums.len()];
                layer(&cpu, epilogue, ByteOutput::Floats(&mut floats));
                assert_eq!(
                    floats, floats_expected,
                    "{isa}, {threads} threads, {extras:?}"
                );
                let mut quads = Aligned::new(byte_len);
                let output = ByteOutput::Bytes(quads.bytes_mut(), output_scale);
                layer(&cpu, epilogue, output);
                for (index, &wanted) in bytes_expected.iter().enumerate() {
                    assert_eq!(
                        quads.bytes()[place(index)],
                        wanted,
                        "{isa}, {threads} threads, {extras:?} at {index}"
                    );
                }
            }
        }
    }
}

fn conv_sums(shape: &ConvShape, x: &[i8], weights: &[i8]) -> Vec<i32> {
    let (height, width) = (shape.out_height(), shape.out_width());
    let mut sums = vec![0; shape.out_len()];
    for (index, sum) in sums.iter_mut().enumerate() {
        let (plane, pixel) = (index / (height * width), index % (height * width));
        let (sample, output) = (plane / shape.out_channels, plane % shape.out_channels);
        let group = output / shape.group_out();
        for channel in 0..shape.group_in() {
            for tap in 0..shape.taps() {
                let at = |axis: usize, out: usize, tap: usize| {
                    (out * shape.stride[axis] + tap * shape.dilation[axis])
                        .wrapping_sub(shape.padding[axis])
                };
                let row = at(0, pixel / width, tap / shape.kernel[1]);
                let column = at(1, pixel % width, tap % shape.kernel[1]);
                if row >= shape.height || column >= shape.width {
                    continue;
                }
                let plane = sample * shape.in_channels + group * shape.group_in() + channel;
                let x = x[(plane * shape.height + row) * shape.width + column];
                let w = weights[(output * shape.group_in() + channel) * shape.taps() + tap];
                *sum += i32::from(x) * i32::from(w);
            }
        }
    }
    sums
}

fn check_conv(shape: &ConvShape, extras: &Extras) {
    let order = QuadOrder::maps(shape.group_in(), shape.taps());
    let weights = quantized(extras, shape.out_channels, &order);
    let x = input(1, shape.in_len(), extras.signed);
    let sums = conv_sums(shape, &x, &weights.values);
    let quads = to_quads([shape.batch, shape.in_channels, shape.in_pixels()], &x);
    let (channels, pixels) = (shape.out_channels, shape.out_pixels());
    let place = |index: usize| {
        let (plane, pixel) = (index / pixels, index % pixels);
        let (sample, channel) = (plane / channels, plane % channels);
        4 * ((sample * channels.div_ceil(4) + channel / 4) * pixels + pixel) + channel % 4
    };
    let byte_len = map_len(shape.batch, channels, pixels);
    check(
        extras,
        &sums,
        &weights.scales,
        byte_len,
        place,
        |index| index / pixels % channels,
        |cpu, epilogue, output| {
            if shape.is_depthwise() {
                let packed = ByteDepthwise::pack(shape, &weights);
                byte_depthwise_conv2d(cpu, shape, &packed, quads.bytes(), epilogue, output);
            } else {
                let packed = ByteConv::pack(cpu, shape, &weights, extras.signed);
                byte_conv2d(cpu, shape, &packed, quads.bytes(), epilogue, output);
            }
        },
    );
}

fn shapes() -> impl Strategy<Value = ConvShape> {
    let pair = |range: std::ops::Range<usize>| [range.clone(), range];
    (
        (0usize..3, 1usize..3, 1usize..11, 1usize..11),
        pair(0..14),
        (pair(1..4), pair(1..3), pair(0..3), pair(1..3)),
    )
        .prop_map(
            |(
                (batch, groups, inputs, outputs),
                [height, width],
                (kernel, stride, padding, dilation),
            )| {
                // Groups are whole quads.
                let unit = if groups == 1 { 1 } else { 4 * groups };
                ConvShape {
                    batch,
                    in_channels: inputs * unit,
                    height,
                    width,
                    out_channels: outputs * unit,
                    kernel,
                    stride,
                    padding,
                    dilation,
                    groups,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn convolutions_equal_integer_sums(shape in shapes(), extras in extras()) {
        check_conv(&shape, &extras);
    }

    /// Enough quads for gathering under masks.
    #[test]
    fn convolutions_of_many_channels_equal_integer_sums(shape in shapes(), extras in extras()) {
        let in_channels = 32 * shape.groups + shape.in_channels;
        check_conv(&ConvShape { in_channels, ..shape }, &extras);
    }

    #[test]
    fn depthwise_convolutions_equal_integer_sums(shape in shapes(), channels in 2usize..10, extras in extras()) {
        let shape = ConvShape { in_channels: channels, out_channels: channels, groups: channels, ..shape };
        check_conv(&shape, &extras);
    }

    #[test]
    fn linear_layers_equal_integer_sums(
        rows in 0usize..20, inputs in 1usize..40, outputs in 1usize..50, extras in extras(),
    ) {
        check_linear(rows, inputs, outputs, &extras);
    }
}

#[test]
fn convolutions_of_several_blocks() {
    let extras = |signed, bounded| Extras {
        bias: true,
        residual: true,
        activation: Activation::Relu,
        signed,
        bounded,
    };
    let shape = ConvShape {
        batch: 1,
        in_channels: 70,
        height: 37,
        width: 41,
        out_channels: 33,
        kernel: [3, 3],
        stride: [1, 1],
        padding: [1, 1],
        dilation: [1, 1],
        groups: 1,
    };
    check_conv(&shape, &extras(false, true));
    check_conv(
        &ConvShape {
            height: 7,
            width: 7,
            out_channels: 130,
            ..shape
        },
        &extras(true, false),
    );
    check_conv(
        &ConvShape {
            kernel: [1, 1],
            padding: [0, 0],
            stride: [2, 2],
            ..shape
        },
        &extras(false, false),
    );
    check_linear(110, 300, 150, &extras(true, false));
}

fn check_linear(rows: usize, inputs: usize, outputs: usize, extras: &Extras) {
    let order = QuadOrder::rows(inputs, 1);
    let weights = quantized(extras, outputs, &order);
    let x = input(1, rows * inputs, extras.signed);
    let mut sums = Vec::new();
    for row in x.chunks_exact(inputs) {
        for weights in weights.values.chunks_exact(inputs) {
            let products = row.iter().zip(weights);
            sums.push(products.map(|(&x, &w)| i32::from(x) * i32::from(w)).sum());
        }
    }
    let padded = to_rows(inputs, &x);
    check(
        extras,
        &sums,
        &weights.scales,
        rows * row_len(outputs),
        |index| index / outputs * row_len(outputs) + index % outputs,
        |index| index % outputs,
        |cpu, epilogue, output| {
            let packed = ByteLinear::pack(cpu, &weights, inputs, extras.signed);
            byte_linear(cpu, &packed, rows, padded.bytes(), epilogue, output);
        },
    );
}

/// F(4x4) against direct convolution: far below a step of its operands, on maps of any size.
fn check_winograd(shape: &ConvShape, extras: &Extras) {
    let order = QuadOrder::maps(shape.in_channels, 9);
    let weights = quantized(extras, shape.out_channels, &order);
    let x = input(1, shape.in_len(), extras.signed);
    let quads = to_quads([shape.batch, shape.in_channels, shape.in_pixels()], &x);
    let bias = numbers(3, shape.out_channels);
    let residual = numbers(4, shape.out_len());
    let byte_len = map_len(shape.batch, shape.out_channels, shape.out_pixels());
    let byte_residual = Aligned::new(byte_len);
    let epilogue = |residual| ByteEpilogue {
        input_scale: INPUT_SCALE,
        bias: extras.bias.then_some(&bias[..]),
        residual,
        activation: extras.activation,
        rounding: Rounding::Fused,
    };
    let scale = ByteScale::reaching(9.0, true);
    let mut first: Option<(Vec<f32>, Vec<i8>)> = None;
    for isa in Isa::available_for_bytes() {
        for threads in [1, 2] {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            let direct = ByteConv::pack(&cpu, shape, &weights, extras.signed);
            let packed = ByteWinograd::pack(&cpu, shape, &weights);
            let floats = Some(Addend::Floats(&residual)).filter(|_| extras.residual);
            let bytes = Some(Addend::Bytes(byte_residual.bytes(), 1.0)).filter(|_| extras.residual);
            let mut expected = vec![0.0; shape.out_len()];
            let output = ByteOutput::Floats(&mut expected);
            byte_conv2d(
                &cpu,
                shape,
                &direct,
                quads.bytes(),
                epilogue(floats),
                output,
            );
            let mut got = vec![f32::NAN; shape.out_len()];
            let output = ByteOutput::Floats(&mut got);
            byte_winograd(
                &cpu,
                shape,
                &packed,
                quads.bytes(),
                epilogue(floats),
                output,
            );
            for (got, expected) in got.iter().zip(&expected) {
                // Less than a step of the bytes below.
                let near = (got - expected).abs() < 9.0 / 127.0;
                assert!(near, "{isa}: {got} for {expected}");
            }
            let mut exact = Aligned::new(byte_len);
            let output = ByteOutput::Bytes(exact.bytes_mut(), scale);
            byte_conv2d(&cpu, shape, &direct, quads.bytes(), epilogue(bytes), output);
            let mut steps = Aligned::new(byte_len);
            let output = ByteOutput::Bytes(steps.bytes_mut(), scale);
            byte_winograd(&cpu, shape, &packed, quads.bytes(), epilogue(bytes), output);
            for (got, expected) in steps.bytes().iter().zip(exact.bytes()) {
                assert!(got.abs_diff(*expected) <= 1, "{isa}: {got} for {expected}");
            }
            // The same bits everywhere: nothing is fused behind the integers.
            let (floats, bytes) = first.get_or_insert((got.clone(), steps.bytes().to_vec()));
            assert_eq!((&got, steps.bytes()), (&*floats, &bytes[..]), "{isa}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn winograd_is_near_direct_convolution(
        (batch, height, width) in (0usize..3, 0usize..14, 0usize..23),
        (in_channels, out_channels) in (1usize..20, 1usize..20),
        padding in prop::array::uniform2(0usize..3),
        extras in extras(),
    ) {
        let shape = ConvShape {
            batch, in_channels, height, width, out_channels,
            kernel: [3, 3], stride: [1, 1], padding, dilation: [1, 1], groups: 1,
        };
        check_winograd(&shape, &extras);
    }

    #[test]
    fn sparse_convolutions_equal_integer_sums(
        (in_rows, rows) in (1usize..12, 0usize..30),
        (in_channels, out_channels) in (1usize..20, 1usize..40),
        extras in extras(),
    ) {
        let shape = SparseConvShape { in_channels, out_channels, taps: 3, block_rows: 8 };
        let order = QuadOrder::rows(in_channels, shape.taps);
        let weights = quantized(&extras, out_channels, &order);
        let x = input(1, in_rows * in_channels, extras.signed);
        let (mut pairs, mut starts) = (Vec::new(), vec![0]);
        let mut sums = vec![0; rows * out_channels];
        for block in 0..rows.div_ceil(8) {
            for tap in 0..shape.taps {
                for row in block * 8..(block * 8 + 8).min(rows) {
                    // Two of three rows meet the tap.
                    if (row + tap) % 3 == 0 {
                        continue;
                    }
                    let from = (row * 5 + tap) % in_rows;
                    pairs.extend([row as i32, from as i32]);
                    for output in 0..out_channels {
                        for channel in 0..in_channels {
                            let weight = weights.values[(output * 3 + tap) * in_channels + channel];
                            sums[row * out_channels + output] +=
                                i32::from(weight) * i32::from(x[from * in_channels + channel]);
                        }
                    }
                }
                starts.push((pairs.len() / 2) as i32);
            }
        }
        let padded = to_rows(in_channels, &x);
        check(
            &extras,
            &sums,
            &weights.scales,
            rows * row_len(out_channels),
            |index| index / out_channels * row_len(out_channels) + index % out_channels,
            |index| index % out_channels,
            |cpu, epilogue, output| {
                let packed = ByteSparseConv::pack(cpu, &shape, &weights, extras.signed);
                byte_sparse_conv(cpu, &packed, rows, padded.bytes(), &pairs, &starts, epilogue, output);
            },
        );
    }

    #[test]
    fn maps_and_rows_come_back(batch in 0usize..3, channels in 1usize..10, pixels in 0usize..30, signed in any::<bool>()) {
        let x = numbers(7, batch * channels * pixels);
        let scale = ByteScale { scale: 0.011, signed };
        let bytes: Vec<i8> = x.iter().map(|&x| scale.quantize(x)).collect();
        let floats: Vec<f32> = bytes.iter().map(|&q| f32::from(q) * scale.scale).collect();
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let size = [batch, channels, pixels];
            let expected = to_quads(size, &bytes);
            let mut quads = Aligned::new(expected.len);
            quantize_map(&cpu, size, &x, scale, quads.bytes_mut());
            prop_assert_eq!(quads.bytes(), expected.bytes());
            let mut back = vec![f32::NAN; x.len()];
            dequantize_map(&cpu, size, quads.bytes(), scale.scale, &mut back);
            prop_assert_eq!(&back, &floats);
            let expected = to_rows(channels, &bytes);
            let mut rows = Aligned::new(expected.len);
            quantize_rows(&cpu, channels, &x, scale, rows.bytes_mut());
            prop_assert_eq!(rows.bytes(), expected.bytes());
            let mut back = vec![f32::NAN; x.len()];
            dequantize_rows(&cpu, channels, rows.bytes(), scale.scale, &mut back);
            prop_assert_eq!(&back, &floats);
        }
    }
}

#[test]
fn the_bound_is_kept_and_costs_little() {
    let order = QuadOrder::maps(64, 9);
    let weights = numbers(9, 32 * order.len());
    let (plain, bounded) = (
        ByteWeights::quantize(32, &weights),
        ByteWeights::quantize_bounded(32, &weights, &order),
    );
    assert_eq!(plain.operands(&order, false), tile::Operands::Positive);
    assert_eq!(bounded.operands(&order, false), tile::Operands::Bounded);
    for (plain, bounded) in plain.scales.iter().zip(&bounded.scales) {
        // Evenly spread weights are the worst case: nearly twice as coarse.
        assert!(bounded >= plain && *bounded < 2.0 * plain);
    }
    // Ties to even, as the library rounds.
    let halves: Vec<f32> = (-254..=254).map(|half| half as f32 / 2.0).collect();
    let rounded = ByteWeights::on_grids(vec![1.0], &halves).values;
    for (rounded, half) in rounded.into_iter().zip(halves) {
        assert_eq!(f32::from(rounded), half.round_ties_even());
    }
    let constant = ByteWeights::quantize(1, &[0.0; 4]);
    assert_eq!((constant.scales, constant.values), (vec![1.0], vec![0; 4]));
}

proptest! {
    #[test]
    fn max_pooling_commutes_with_quantising(
        (batch, channels, height, width) in (0usize..3, 1usize..7, 0usize..12, 0usize..40),
        (kernel, stride, padding) in (1usize..5, 1usize..5, 0usize..3),
        ceil_mode in any::<bool>(),
    ) {
        let shape = Pool2dShape {
            batch, channels, height, width,
            kernel: [kernel; 2], stride: [stride; 2], padding: [padding.min(kernel / 2); 2], ceil_mode,
        };
        let x = input(8, batch * channels * height * width, true);
        let floats: Vec<f32> = x.iter().map(|&q| f32::from(q)).collect();
        let pixels = shape.out_height() * shape.out_width();
        let mut expected = vec![0.0; batch * channels * pixels];
        crate::pool2d::max_pool2d(&Cpu::new(2).unwrap(), &shape, &floats, &mut expected);
        let expected: Vec<i8> = expected.into_iter().map(|x| x as i8).collect();
        let x = to_quads([batch, channels, height * width], &x);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let mut got = Aligned::new(map_len(batch, channels, pixels));
            max_pool_quads(&cpu, &shape, x.bytes(), got.bytes_mut());
            // The channels that fill the last quad up are nobody's.
            for sample in 0..batch {
                for channel in 0..channels {
                    for pixel in 0..pixels {
                        let quad = (sample * channels.div_ceil(4) + channel / 4) * pixels + pixel;
                        let at = (sample * channels + channel) * pixels + pixel;
                        prop_assert_eq!(got.bytes()[4 * quad + channel % 4], expected[at]);
                    }
                }
            }
        }
    }
}

#[test]
fn what_has_no_byte_is_cut_off() {
    let scale = ByteScale::reaching(1.0, true);
    let unsigned = ByteScale::reaching(1.0, false);
    assert_eq!(
        [-9.0, 9.0, f32::NAN].map(|x| scale.quantize(x)),
        [-127, 127, -127]
    );
    assert_eq!(
        [-9.0, 9.0, f32::NAN].map(|x| unsigned.quantize(x)),
        [0, 127, 0]
    );
    assert_eq!(ByteScale::reaching(0.0, true).quantize(0.3), 38);
}

/// Results that no integer of 32 bits holds, and those that are no numbers, on every way from sums to bytes.
#[test]
fn results_beyond_all_integers_are_cut_off() {
    let shape = ConvShape {
        batch: 3,
        in_channels: 8,
        height: 7,
        width: 7,
        out_channels: 12,
        kernel: [1, 1],
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
        groups: 1,
    };
    let weights = ByteWeights::quantize(12, &[1.0; 96]);
    let x = to_quads([3, 8, 49], &[1; 3 * 8 * 49]);
    let step = ByteScale {
        scale: 1.0,
        signed: true,
    };
    let sum = 8.0 * 127.0 * weights.scales[0];
    for isa in Isa::available_for_bytes() {
        let cpu = Cpu::with_isa(1, isa).unwrap();
        let packed = ByteConv::pack(&cpu, &shape, &weights, false);
        let cases = [
            (100.0 / sum, 0.0, 100),
            (1e30 / sum, 0.0, 127),
            (-1e30 / sum, 0.0, -127),
            (1.0 / sum, 1e12, 127),
            (1.0 / sum, -1e12, -127),
            (1.0 / sum, f32::NAN, -127),
            (f32::NAN, 0.0, -127),
        ];
        for (input_scale, bias, expected) in cases {
            let epilogue = ByteEpilogue {
                input_scale,
                bias: Some(&[bias; 12]),
                residual: None,
                activation: Activation::Identity,
                rounding: Rounding::Fused,
            };
            let mut y = Aligned::new(map_len(3, 12, 49));
            let output = ByteOutput::Bytes(y.bytes_mut(), step);
            byte_conv2d(&cpu, &shape, &packed, x.bytes(), epilogue, output);
            assert_eq!(y.bytes(), vec![expected; 3 * 12 * 49], "{isa}, {bias}");
        }
    }
}
