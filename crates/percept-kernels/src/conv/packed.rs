//! Packed weights, and the convolution that dispatches on how they are packed.

use super::choose::supports;
use super::depthwise::depthwise_conv2d;
use super::filters::Filters;
use super::implicit::{self, ImplicitWeights};
use super::narrow;
use super::pixels;
use super::shape::{ConvAlgorithm, ConvShape};
use super::winograd::{self, WinogradWeights};
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::gemm::pixels::PackedChannels;

/// The weights of a convolution, packed once for one algorithm.
///
/// They depend on channels, kernel and groups only: the same weights serve every batch, height, width and stride that the
/// algorithm supports.
#[derive(Debug)]
pub struct PackedConv {
    algorithm: ConvAlgorithm,
    channels: ChannelPart,
    weights: Weights,
}

/// The part of a shape that packed weights depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChannelPart {
    in_channels: usize,
    out_channels: usize,
    kernel: [usize; 2],
    groups: usize,
}

impl ChannelPart {
    fn of(shape: &ConvShape) -> ChannelPart {
        let ConvShape {
            in_channels,
            out_channels,
            kernel,
            groups,
            ..
        } = *shape;
        ChannelPart {
            in_channels,
            out_channels,
            kernel,
            groups,
        }
    }
}

#[derive(Debug)]
enum Weights {
    Implicit(ImplicitWeights),
    Winograd(WinogradWeights),
    Depthwise(Vec<f32>),
    Narrow(Vec<f32>),
    Pixels(PackedChannels),
}

impl PackedConv {
    /// Packs OIHW weights.
    ///
    /// # Panics
    /// When the algorithm does not support the shape.
    pub fn pack(
        cpu: &Cpu,
        shape: &ConvShape,
        algorithm: ConvAlgorithm,
        weight_oihw: &[f32],
    ) -> PackedConv {
        shape.check(Some(weight_oihw.len()), shape.in_len(), shape.out_len());
        PackedConv::pack_filters(cpu, shape, algorithm, &Filters::oihw(shape, weight_oihw))
    }

    /// Packs filters from where they lie.
    pub(crate) fn pack_filters(
        cpu: &Cpu,
        shape: &ConvShape,
        algorithm: ConvAlgorithm,
        filters: &Filters<'_>,
    ) -> PackedConv {
        filters.check(shape);
        assert!(
            supports(shape, algorithm),
            "{algorithm} does not support {shape:?}"
        );
        let weights = match algorithm {
            ConvAlgorithm::Pointwise | ConvAlgorithm::ImplicitGemm => {
                Weights::Implicit(ImplicitWeights::pack(cpu, shape, filters))
            }
            ConvAlgorithm::Winograd4
            | ConvAlgorithm::Winograd2
            | ConvAlgorithm::WinogradStride2
            | ConvAlgorithm::WinogradStem => {
                Weights::Winograd(winograd::pack(cpu, shape, algorithm, filters))
            }
            ConvAlgorithm::Depthwise => Weights::Depthwise(filters.to_oihw(shape)),
            ConvAlgorithm::Narrow => Weights::Narrow(narrow::pack(shape, &filters.to_oihw(shape))),
            ConvAlgorithm::Pixels => Weights::Pixels(PackedChannels::pack(
                shape.out_channels,
                shape.in_channels * shape.taps(),
                &filters.to_oihw(shape),
            )),
        };
        PackedConv {
            algorithm,
            channels: ChannelPart::of(shape),
            weights,
        }
    }

    /// The algorithm that they are packed for.
    pub fn algorithm(&self) -> ConvAlgorithm {
        self.algorithm
    }

    /// Whether the residual may already be in the output.
    pub fn takes_residual_in_place(&self) -> bool {
        match &self.weights {
            Weights::Implicit(_) | Weights::Winograd(_) | Weights::Pixels(_) => true,
            Weights::Depthwise(_) | Weights::Narrow(_) => false,
        }
    }

    /// Computes a part of the output only: Winograd's tiles, or panels of pixels of an implicit product, given by their
    /// ascending numbers. The others stay as they are.
    pub(super) fn conv2d_part(
        &self,
        cpu: &Cpu,
        shape: &ConvShape,
        x: &[f32],
        epilogue: Epilogue<'_>,
        list: &[u32],
        y: &mut [f32],
    ) {
        match &self.weights {
            Weights::Winograd(packed) => {
                winograd::conv2d(cpu, shape, packed, x, epilogue, Some(list), y);
            }
            Weights::Implicit(packed) => {
                implicit::conv2d(cpu, shape, packed, x, None, epilogue, Some(list), y);
            }
            _ => panic!("{} has no parts to skip", self.algorithm),
        }
    }

    /// Gives the memory to those that are packed next: for weights that serve once.
    pub fn give_back(self, cpu: &Cpu) {
        match self.weights {
            Weights::Implicit(weights) => weights.give_back(cpu),
            Weights::Winograd(weights) => weights.give_back(cpu),
            Weights::Depthwise(_) | Weights::Narrow(_) | Weights::Pixels(_) => {}
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        match &self.weights {
            Weights::Implicit(weights) => weights.bytes(),
            Weights::Winograd(weights) => weights.bytes(),
            Weights::Depthwise(weights) | Weights::Narrow(weights) => size_of_val(&weights[..]),
            Weights::Pixels(weights) => weights.bytes(),
        }
    }
}

/// `y = activation(conv(x * input_scale) + bias + residual)`, NCHW in and out.
///
/// `input_scale` holds a factor for each (sample, input channel), a squeeze-excite gate; only
/// [`ConvAlgorithm::Pointwise`], [`ConvAlgorithm::Pixels`] and [`ConvAlgorithm::ImplicitGemm`] take one.
pub fn conv2d(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &PackedConv,
    x: &[f32],
    input_scale: Option<&[f32]>,
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    shape.check(None, x.len(), y.len());
    assert_eq!(
        ChannelPart::of(shape),
        weights.channels,
        "the weights were packed for other channels"
    );
    assert!(
        supports(shape, weights.algorithm),
        "{} does not support {shape:?}",
        weights.algorithm
    );
    epilogue.check(shape.out_channels, y.len());
    if let Some(scale) = input_scale {
        assert_eq!(
            scale.len(),
            shape.batch * shape.in_channels,
            "length of the input scale"
        );
        assert!(
            matches!(weights.weights, Weights::Implicit(_) | Weights::Pixels(_)),
            "{} takes no input scale",
            weights.algorithm
        );
    }
    if y.is_empty() {
        return;
    }
    assert!(shape.in_channels > 0, "a convolution has input channels");
    match &weights.weights {
        Weights::Implicit(packed) => {
            implicit::conv2d(cpu, shape, packed, x, input_scale, epilogue, None, y)
        }
        Weights::Winograd(packed) => winograd::conv2d(cpu, shape, packed, x, epilogue, None, y),
        Weights::Depthwise(weight) => depthwise_conv2d(cpu, shape, weight, x, epilogue, None, y),
        Weights::Pixels(packed) => pixels::conv2d(cpu, shape, packed, x, input_scale, epilogue, y),
        Weights::Narrow(weights) => {
            epilogue.check_apart();
            narrow::conv2d(cpu, shape, weights, x, epilogue, y)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::Activation;
    use crate::conv::{Mode, choose_algorithm, choose_for_kept_weights};
    use crate::isa::Isa;
    use crate::reference;
    use crate::testing::{check, numbers, residual_in_place, widen};
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    struct Extras {
        bias: bool,
        residual: bool,
        scale: bool,
        activation: Activation,
    }

    fn compare(shape: &ConvShape, extras: Extras) {
        let (x, weight) = (numbers(1, shape.in_len()), numbers(2, shape.weight_len()));
        let bias = extras.bias.then(|| numbers(3, shape.out_channels));
        let residual = extras.residual.then(|| numbers(4, shape.out_len()));
        let scale = extras
            .scale
            .then(|| numbers(5, shape.batch * shape.in_channels));
        let mut scaled = widen(&x);
        if let Some(scale) = &scale {
            for (x, &scale) in scaled.chunks_exact_mut(shape.in_pixels().max(1)).zip(scale) {
                x.iter_mut().for_each(|x| *x *= f64::from(scale));
            }
        }
        let mut expected = vec![0.0; shape.out_len()];
        let wide_bias = bias.as_deref().map(widen);
        reference::conv2d(
            shape,
            &scaled,
            &widen(&weight),
            wide_bias.as_deref(),
            &mut expected,
        );
        for (index, y) in expected.iter_mut().enumerate() {
            *y += residual
                .as_ref()
                .map_or(0.0, |residual| f64::from(residual[index]));
            *y = reference::activate(extras.activation, *y);
        }
        let epilogue = Epilogue {
            bias: bias.as_deref(),
            residual: residual.as_deref(),
            residual_in_place: false,
            activation: extras.activation,
        };
        for algorithm in [
            ConvAlgorithm::Pointwise,
            ConvAlgorithm::Pixels,
            ConvAlgorithm::ImplicitGemm,
            ConvAlgorithm::Narrow,
        ] {
            let takes_scale = algorithm != ConvAlgorithm::Narrow;
            if supports(shape, algorithm) && (takes_scale || !extras.scale) {
                let run = |cpu: &Cpu, epilogue, y: &mut [f32]| {
                    let weights = PackedConv::pack(cpu, shape, algorithm, &weight);
                    conv2d(cpu, shape, &weights, &x, scale.as_deref(), epilogue, y);
                };
                check(&expected, 1e-5, |cpu, y| run(cpu, epilogue, y));
                if algorithm != ConvAlgorithm::Narrow {
                    check(&expected, 1e-5, |cpu, y| {
                        run(cpu, residual_in_place(epilogue, y), y)
                    });
                }
            }
        }
    }

    fn pair(range: std::ops::Range<usize>) -> impl Strategy<Value = [usize; 2]> {
        [range.clone(), range]
    }

    fn shapes() -> impl Strategy<Value = ConvShape> {
        let sizes = (
            0usize..4,
            1usize..6,
            1usize..8,
            0usize..14,
            0usize..14,
            1usize..4,
        );
        let kernel = prop_oneof![Just([1, 1]), pair(1..5)];
        (sizes, kernel, pair(1..4), pair(0..3), pair(1..3)).prop_map(
            |(
                (batch, group_in, group_out, height, width, groups),
                kernel,
                stride,
                padding,
                dilation,
            )| ConvShape {
                batch,
                in_channels: group_in * groups,
                height,
                width,
                out_channels: group_out * groups,
                kernel,
                stride,
                padding: if kernel == [1, 1] { [0, 0] } else { padding },
                dilation,
                groups,
            },
        )
    }

    fn extras() -> impl Strategy<Value = Extras> {
        let activation = prop_oneof![
            Just(Activation::Identity),
            Just(Activation::Relu),
            Just(Activation::Silu)
        ];
        (any::<bool>(), any::<bool>(), any::<bool>(), activation).prop_map(
            |(bias, residual, scale, activation)| Extras {
                bias,
                residual,
                scale,
                activation,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(80))]
        #[test]
        fn equals_the_reference(shape in shapes(), extras in extras()) {
            compare(&shape, extras);
        }

        #[test]
        fn few_output_channels(
            shape in shapes(),
            out_channels in 1usize..5,
            width in 20usize..60,
            extras in extras(),
        ) {
            let shape = ConvShape {
                out_channels,
                width,
                stride: [1, 1],
                dilation: [1, 1],
                groups: 1,
                ..shape
            };
            compare(&shape, Extras { scale: false, ..extras });
        }

        #[test]
        fn the_chosen_algorithm_is_supported(shape in shapes()) {
            for mode in [Mode::Exact, Mode::Fast] {
                for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
                    prop_assert!(supports(&shape, choose_algorithm(&shape, mode, isa)));
                    prop_assert!(supports(&shape, choose_for_kept_weights(&shape, mode, isa)));
                }
            }
        }
    }

    #[test]
    fn several_blocks_on_every_axis() {
        let extras = Extras {
            bias: true,
            residual: true,
            scale: false,
            activation: Activation::Relu,
        };
        let shape = ConvShape {
            batch: 3,
            in_channels: 50,
            height: 23,
            width: 21,
            out_channels: 70,
            kernel: [3, 3],
            stride: [2, 2],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 1,
        };
        compare(&shape, extras);
        // Rows of whole tiles, several passes over the depth.
        for width in [14, 28] {
            compare(&ConvShape { width, ..shape }, extras);
        }
        compare(
            &ConvShape {
                in_channels: 400,
                out_channels: 150,
                kernel: [1, 1],
                stride: [1, 1],
                padding: [0, 0],
                ..shape
            },
            Extras {
                scale: true,
                ..extras
            },
        );
        compare(
            &ConvShape {
                in_channels: 3,
                height: 28,
                width: 42,
                kernel: [14, 14],
                stride: [14, 14],
                padding: [0, 0],
                ..shape
            },
            extras,
        );
    }

    #[test]
    fn pixels_that_full_panels_leave_over() {
        for (batch, width, in_channels, activation) in [
            (1, 25, 300, Activation::Silu),
            (1, 26, 7, Activation::Relu),
            (3, 17, 301, Activation::Identity),
            (2, 2, 64, Activation::Relu),
        ] {
            let shape = ConvShape {
                batch,
                in_channels,
                height: 1,
                width,
                out_channels: 37,
                kernel: [1, 1],
                stride: [1, 1],
                padding: [0, 0],
                dilation: [1, 1],
                groups: 1,
            };
            let extras = Extras {
                bias: true,
                residual: true,
                scale: true,
                activation,
            };
            compare(&shape, extras);
            compare(
                &ConvShape {
                    kernel: [1, 3],
                    padding: [0, 1],
                    ..shape
                },
                extras,
            );
        }
    }
}
