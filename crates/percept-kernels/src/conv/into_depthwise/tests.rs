use proptest::prelude::*;

use super::*;
use crate::reference;
use crate::testing::{check, numbers, widen};

fn compare(shapes: &ConvIntoDepthwise, bias: bool, activations: [Activation; 2]) {
    let ConvIntoDepthwise { first, second, .. } = shapes;
    let x = numbers(1, first.in_len());
    let weights = [
        numbers(2, first.weight_len()),
        numbers(3, second.weight_len()),
    ];
    let biases = [4, 5].map(|seed| bias.then(|| numbers(seed, second.out_channels)));
    let mut between = vec![0.0; first.out_len()];
    let mut expected = vec![0.0; second.out_len()];
    let wide = biases.clone().map(|bias| bias.map(|bias| widen(&bias)));
    reference::conv2d(
        first,
        &widen(&x),
        &widen(&weights[0]),
        wide[0].as_deref(),
        &mut between,
    );
    between
        .iter_mut()
        .for_each(|value| *value = reference::activate(activations[0], *value));
    reference::conv2d(
        second,
        &between,
        &widen(&weights[1]),
        wide[1].as_deref(),
        &mut expected,
    );
    expected
        .iter_mut()
        .for_each(|value| *value = reference::activate(activations[1], *value));
    let finish = [0, 1].map(|i| Finish {
        bias: biases[i].as_deref(),
        activation: activations[i],
    });
    let packed = (
        &shapes.pack_first(&weights[0]),
        &PackedDepthwise::pack(second, &weights[1]),
    );
    check(&between, 1e-5, |cpu, y| {
        y.copy_from_slice(&conv2d_before_depthwise(
            cpu, shapes, packed.0, &x, finish[0],
        ));
    });
    check(&expected, 1e-5, |cpu, y| {
        conv2d_into_depthwise(cpu, shapes, packed, &x, finish, y);
    });
}

fn conv(
    batch: usize,
    channels: [usize; 2],
    size: [usize; 2],
    kernel: usize,
    stride: usize,
    padding: usize,
) -> ConvShape {
    ConvShape {
        batch,
        in_channels: channels[0],
        height: size[0],
        width: size[1],
        out_channels: channels[1],
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [padding; 2],
        dilation: [1, 1],
        groups: 1,
    }
}

fn depthwise_behind(first: &ConvShape, kernel: usize, stride: usize, padding: usize) -> ConvShape {
    let channels = first.out_channels;
    let size = [first.out_height(), first.out_width()];
    ConvShape {
        groups: channels,
        ..conv(first.batch, [channels; 2], size, kernel, stride, padding)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn equals_both_in_turn(
        (batch, inputs, channels) in (0usize..4, 1usize..20, 2usize..70),
        size in [1usize..20, 1usize..34],
        (kernel, stride, padding) in (prop::sample::select(vec![3usize, 5]), 1usize..3, 0usize..4),
        stem in any::<bool>(),
        (stem_kernel, stem_stride, stem_padding) in (1usize..5, 1usize..3, 0usize..3),
        bias in any::<bool>(),
        activations in [0usize..4, 0usize..4],
    ) {
        let first = match stem {
            true => conv(batch, [inputs.min(4), channels], size, stem_kernel, stem_stride, stem_padding),
            false => conv(batch, [inputs, channels], size, 1, 1, 0),
        };
        let second = depthwise_behind(&first, kernel, stride, padding);
        let shapes = ConvIntoDepthwise::new(first, second).expect("a kernel for both");
        let all = [Activation::Identity, Activation::Relu, Activation::Silu, Activation::Gelu];
        compare(&shapes, bias, activations.map(|i| all[i]));
    }
}

#[test]
fn several_bands_and_blocks() {
    for (channels, kernel, stride) in [(33, 3, 1), (80, 5, 2), (20, 5, 1)] {
        let first = conv(1, [24, channels], [40, 37], 1, 1, 0);
        let second = depthwise_behind(&first, kernel, stride, kernel / 2);
        let shapes = ConvIntoDepthwise::new(first, second).expect("a kernel for both");
        assert!(shapes.bands().count() > 1);
        compare(&shapes, true, [Activation::Silu; 2]);
    }
}

#[test]
fn other_layers_have_no_kernel() {
    let first = conv(1, [8, 16], [9, 9], 1, 1, 0);
    let behind = |kernel, stride| depthwise_behind(&first, kernel, stride, 1);
    assert!(ConvIntoDepthwise::new(first, behind(3, 1)).is_some());
    assert!(ConvIntoDepthwise::new(first, behind(7, 1)).is_none());
    assert!(ConvIntoDepthwise::new(first, behind(3, 3)).is_none());
    let dense = ConvShape {
        groups: 1,
        ..behind(3, 1)
    };
    assert!(ConvIntoDepthwise::new(first, dense).is_none());
    let wide = conv(1, [8, 16], [9, 9], 3, 1, 1);
    assert!(ConvIntoDepthwise::new(wide, depthwise_behind(&wide, 3, 1, 1)).is_none());
    let other = ConvShape {
        height: 8,
        ..behind(3, 1)
    };
    assert!(ConvIntoDepthwise::new(first, other).is_none());
}
