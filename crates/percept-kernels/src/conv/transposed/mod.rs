//! Transposed convolutions: each input pixel leaves a mark of the kernel's size in the output.

mod doubling;
mod marks;

use super::transpose_shape::ConvTransposeShape;
use crate::aligned::AlignedBuf;
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;

/// The weights of a transposed convolution, packed for the way it is computed.
#[derive(Debug)]
pub struct PackedConvTranspose {
    weights: Weights,
    channels: [usize; 2],
    kernel: [usize; 2],
    groups: usize,
}

#[derive(Debug)]
enum Weights {
    /// 2x2 with stride 2: marks that fill the output without overlap.
    Doubling(AlignedBuf),
    /// Anything else.
    Marks(AlignedBuf),
}

impl PackedConvTranspose {
    /// Packs weights [in_channels, out_channels / groups, kernel height, kernel width].
    pub fn pack(shape: &ConvTransposeShape, weight: &[f32]) -> PackedConvTranspose {
        shape.check(Some(weight.len()), shape.in_len(), shape.out_len());
        let weights = if doubling::supports(shape) {
            Weights::Doubling(marks::pack(shape, weight))
        } else {
            Weights::Marks(marks::pack(shape, weight))
        };
        PackedConvTranspose {
            weights,
            channels: [shape.in_channels, shape.out_channels],
            kernel: shape.kernel,
            groups: shape.groups,
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        match &self.weights {
            Weights::Doubling(weights) | Weights::Marks(weights) => weights.len(),
        }
    }
}

/// `y = activation(conv_transpose(x) + bias + residual)`, NCHW in and out.
pub fn conv_transpose2d(
    cpu: &Cpu,
    shape: &ConvTransposeShape,
    packed: &PackedConvTranspose,
    x: &[f32],
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    shape.check(None, x.len(), y.len());
    epilogue.check(shape.out_channels, y.len());
    epilogue.check_apart();
    assert_eq!(
        (packed.channels, packed.kernel, packed.groups),
        (
            [shape.in_channels, shape.out_channels],
            shape.kernel,
            shape.groups
        ),
        "channels, kernel and groups of the packed weights"
    );
    if y.is_empty() {
        return;
    }
    match &packed.weights {
        Weights::Doubling(weights) => {
            assert!(
                doubling::supports(shape),
                "the weights were packed for stride 2"
            );
            doubling::conv_transpose2d(cpu, shape, weights.floats(), x, epilogue, y);
        }
        Weights::Marks(weights) => {
            marks::conv_transpose2d(cpu, shape, weights.floats(), x, epilogue, y);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::ops::Range;

    use super::*;
    use crate::activation::Activation;
    use crate::reference;
    use crate::testing::{check, numbers, widen};

    fn compare(shape: &ConvTransposeShape) {
        let (x, weight) = (numbers(1, shape.in_len()), numbers(2, shape.weight_len()));
        let (bias, residual) = (numbers(3, shape.out_channels), numbers(4, shape.out_len()));
        let activation = Activation::LeakyRelu(0.1);
        let mut expected = vec![0.0; shape.out_len()];
        reference::conv_transpose2d(
            shape,
            &widen(&x),
            &widen(&weight),
            Some(&widen(&bias)),
            &mut expected,
        );
        for (y, &residual) in expected.iter_mut().zip(&residual) {
            *y = reference::activate(activation, *y + f64::from(residual));
        }
        let epilogue = Epilogue {
            bias: Some(&bias),
            residual: Some(&residual),
            residual_in_place: false,
            activation,
        };
        check(&expected, 1e-5, |cpu, y| {
            let weights = PackedConvTranspose::pack(shape, &weight);
            conv_transpose2d(cpu, shape, &weights, &x, epilogue, y)
        });
    }

    fn pair(range: Range<usize>) -> impl Strategy<Value = [usize; 2]> {
        [range.clone(), range]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn equals_the_reference(
            batch in 0usize..3,
            group_in in 1usize..9,
            group_out in 1usize..7,
            groups in 1usize..3,
            size in pair(1..12),
            kernel in pair(1..5),
            stride in pair(1..4),
            dilation in pair(1..3),
            padding in pair(0..2),
        ) {
            compare(&ConvTransposeShape {
                batch,
                in_channels: group_in * groups,
                height: size[0],
                width: size[1],
                out_channels: group_out * groups,
                kernel,
                stride,
                padding,
                output_padding: [0, stride[1] - 1],
                dilation,
                groups,
            });
        }
    }

    #[test]
    fn doubling_a_map_and_keeping_its_size() {
        for side in [1, 2] {
            for width in [3, 13, 24, 31, 50] {
                compare(&ConvTransposeShape {
                    batch: 2,
                    in_channels: 20,
                    height: 9,
                    width,
                    out_channels: 70,
                    kernel: [side; 2],
                    stride: [side; 2],
                    padding: [0, 0],
                    output_padding: [0, 0],
                    dilation: [1, 1],
                    groups: 1,
                });
            }
        }
    }
}
