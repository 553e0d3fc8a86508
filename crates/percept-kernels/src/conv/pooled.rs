//! A convolution whose output is pooled at once: only one sample's map is ever made, and it is pooled while it is in the caches.

use super::packed::{PackedConv, conv2d};
use super::shape::ConvShape;
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::pool2d::{Pool2dShape, max_pool2d_by_rows};

/// `y = max_pool(activation(conv(x) + bias))`: the bits of both, one after the other, on each sample alone.
///
/// # Panics
/// When a residual is to be added, or a size does not fit.
pub fn conv2d_max_pooled(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &PackedConv,
    x: &[f32],
    epilogue: Epilogue<'_>,
    pool: &Pool2dShape,
    y: &mut [f32],
) {
    assert!(
        epilogue.residual.is_none() && !epilogue.residual_in_place,
        "a pooled map takes no residual"
    );
    assert_eq!(
        [
            shape.batch,
            shape.out_channels,
            shape.out_height(),
            shape.out_width()
        ],
        [pool.batch, pool.channels, pool.height, pool.width],
        "size of the map to pool"
    );
    let (one, pool_one) = (
        shape.on_one_map([shape.height, shape.width]),
        Pool2dShape { batch: 1, ..*pool },
    );
    let pooled = pool.channels * pool.out_height() * pool.out_width();
    assert_eq!(x.len(), shape.in_len(), "length of the input");
    assert_eq!(y.len(), shape.batch * pooled, "length of the output");
    let mut staging = cpu.staging();
    let [map] = staging.floats([one.out_len()]);
    for sample in 0..shape.batch {
        let x = &x[sample * one.in_len()..][..one.in_len()];
        conv2d(cpu, &one, weights, x, None, epilogue, map);
        max_pool2d_by_rows(cpu, &pool_one, map, &mut y[sample * pooled..][..pooled]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::activation::Activation;
    use crate::conv::{ConvAlgorithm, supports};
    use crate::pool2d::max_pool2d;
    use crate::testing::numbers;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn has_the_bits_of_both_in_turn(
            batch in 0usize..4,
            size in [7usize..40, 7usize..60],
            channels in [1usize..5, 1usize..9],
            taps in prop::sample::select(vec![3usize, 7]),
            window in 1usize..4,
        ) {
            let shape = ConvShape {
                batch,
                in_channels: channels[0],
                out_channels: channels[1],
                height: size[0],
                width: size[1],
                kernel: [taps; 2],
                stride: [2, 2],
                padding: [taps / 2; 2],
                dilation: [1, 1],
                groups: 1,
            };
            let pool = Pool2dShape {
                batch,
                channels: shape.out_channels,
                height: shape.out_height(),
                width: shape.out_width(),
                kernel: [window; 2],
                stride: [2; 2],
                padding: [window / 2; 2],
                ceil_mode: false,
            };
            let (x, weight) = (numbers(1, shape.in_len()), numbers(2, shape.weight_len()));
            let bias = numbers(3, shape.out_channels);
            let epilogue = Epilogue {
                bias: Some(&bias),
                activation: Activation::Relu,
                ..Epilogue::default()
            };
            let cpu = Cpu::new(2).unwrap();
            let algorithms =
                [ConvAlgorithm::ImplicitGemm, ConvAlgorithm::WinogradStride2, ConvAlgorithm::WinogradStem];
            for algorithm in algorithms.into_iter().filter(|&algorithm| supports(&shape, algorithm)) {
                let weights = PackedConv::pack(&cpu, &shape, algorithm, &weight);
                let (one, pool_one) = (ConvShape { batch: 1, ..shape }, Pool2dShape { batch: 1, ..pool });
                let mut map = vec![f32::NAN; one.out_len()];
                let pooled = pool.channels * pool.out_height() * pool.out_width();
                let [mut expected, mut y] = [vec![f32::NAN; batch * pooled], vec![f32::NAN; batch * pooled]];
                for (x, expected) in x.chunks_exact(one.in_len()).zip(expected.chunks_exact_mut(pooled)) {
                    conv2d(&cpu, &one, &weights, x, None, epilogue, &mut map);
                    max_pool2d(&cpu, &pool_one, &map, expected);
                }
                conv2d_max_pooled(&cpu, &shape, &weights, &x, epilogue, &pool, &mut y);
                prop_assert_eq!(y, expected);
            }
        }
    }
}
