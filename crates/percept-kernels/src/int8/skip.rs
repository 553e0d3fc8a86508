//! Convolutions on bytes that compute only the parts of a map whose input holds something.
//!
//! As for floats ([`crate::conv::conv2d_settled`]): cells that nothing reaches are set to the layer's answer to the empty map. A quad
//! is as wide as a float, so answers are kept and copied as floats are.

use super::conv::{ByteConv, byte_conv2d_part};
use super::finish::{ByteEpilogue, ByteOutput};
use super::winograd::{ByteWinograd, byte_winograd_part};
use crate::conv::{CellMask, ConvShape, Coverage, EmptyResponse};
use crate::cpu::Cpu;

/// Weights on bytes that can leave out parts of a map.
#[derive(Clone, Copy, Debug)]
pub enum ByteMapWeights<'a> {
    /// By runs of pixels.
    Direct(&'a ByteConv),
    /// By tiles.
    Winograd(&'a ByteWinograd),
}

/// A convolution where `reached` is set, and the answer to the empty map elsewhere. Returns the share that was computed.
///
/// `empty` is that of the output as it lies in memory: quads of bytes as floats of the same bits, a channel for each quad.
pub fn byte_conv2d_settled(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: ByteMapWeights<'_>,
    x: &[i8],
    epilogue: ByteEpilogue<'_>,
    reached: &CellMask,
    empty: &EmptyResponse,
    coverage: Coverage,
    mut output: ByteOutput<'_>,
) -> f64 {
    let size = [shape.batch, shape.out_height(), shape.out_width()];
    assert_eq!(reached.size(), size, "size of the mask");
    let (list, total) = match weights {
        ByteMapWeights::Direct(weights) => (reached.runs(weights.run_len()), weights.runs(shape)),
        ByteMapWeights::Winograd(_) => (
            reached.tiles(ByteWinograd::TILE),
            ByteWinograd::tiles(shape),
        ),
    };
    let list = (coverage == Coverage::Reached && list.len() < total).then_some(list);
    let part = list.as_deref();
    match weights {
        ByteMapWeights::Direct(weights) => {
            byte_conv2d_part(cpu, shape, weights, x, epilogue, output.again(), part);
        }
        ByteMapWeights::Winograd(weights) => {
            byte_winograd_part(cpu, shape, weights, x, epilogue, output.again(), part);
        }
    }
    match output {
        ByteOutput::Floats(y) => empty.settle(cpu, reached, shape.out_channels, y),
        ByteOutput::Bytes(y, _) => {
            let quads = shape.out_channels.div_ceil(4);
            empty.settle(cpu, reached, quads, bytemuck::cast_slice_mut(y));
        }
    }
    part.map_or(1.0, |list| list.len() as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::Activation;
    use crate::conv::{BorderAxis, seal_interior};
    use crate::int8::{ByteScale, ByteWeights, Rounding, byte_conv2d, map_len};
    use crate::isa::Isa;
    use crate::testing::numbers;
    use proptest::prelude::*;

    const STEP: ByteScale = ByteScale {
        scale: 0.01,
        signed: false,
    };

    struct Layer {
        direct: ByteConv,
        winograd: ByteWinograd,
        bias: Vec<f32>,
        as_bytes: bool,
    }

    impl Layer {
        fn epilogue(&self) -> ByteEpilogue<'_> {
            ByteEpilogue {
                input_scale: STEP.scale,
                bias: Some(&self.bias),
                residual: None,
                activation: Activation::Relu,
                rounding: Rounding::Fused,
            }
        }

        fn weights(&self, tiled: bool) -> ByteMapWeights<'_> {
            match tiled {
                true => ByteMapWeights::Winograd(&self.winograd),
                false => ByteMapWeights::Direct(&self.direct),
            }
        }

        /// An output, as the bits of floats, that `fill` writes.
        fn output(&self, shape: &ConvShape, fill: impl FnOnce(ByteOutput<'_>)) -> Vec<f32> {
            let quads = map_len(shape.batch, shape.out_channels, shape.out_pixels()) / 4;
            let len = if self.as_bytes {
                quads
            } else {
                shape.out_len()
            };
            let mut y = vec![f32::NAN; len];
            match self.as_bytes {
                true => fill(ByteOutput::Bytes(bytemuck::cast_slice_mut(&mut y), STEP)),
                false => fill(ByteOutput::Floats(&mut y)),
            }
            y
        }

        /// The answer to nothing, found on a map of the real size.
        fn empty(&self, cpu: &Cpu, shape: &ConvShape, tiled: bool) -> EmptyResponse {
            let one = ConvShape { batch: 1, ..*shape };
            let size = [shape.out_height(), shape.out_width()];
            let x = vec![0.0f32; map_len(1, one.in_channels, one.in_pixels()) / 4];
            let x = bytemuck::cast_slice(&x);
            let axes = size.map(|side| BorderAxis::new(side, 1, 1));
            let mut y = self.output(&one, |output| match self.weights(tiled) {
                ByteMapWeights::Direct(weights) => {
                    byte_conv2d_part(cpu, &one, weights, x, self.epilogue(), output, None);
                }
                ByteMapWeights::Winograd(weights) => {
                    byte_winograd_part(cpu, &one, weights, x, self.epilogue(), output, None);
                }
            });
            seal_interior(size, axes, &mut y);
            EmptyResponse::of_sealed(size, axes, &y)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Leaving parts out changes no bit; directly, nor does knowing nothing of all this.
        #[test]
        fn skipping_changes_no_bit(
            (batch, height, width) in (1usize..3, 5usize..40, 5usize..70),
            (inputs, outputs) in (1usize..9, 1usize..9),
            cells in prop::collection::vec((0usize..2, 0usize..40, 0usize..70), 0..5),
            as_bytes in any::<bool>(),
        ) {
            let shape = ConvShape {
                batch, in_channels: inputs, height, width, out_channels: outputs,
                kernel: [3; 2], stride: [1; 2], padding: [1; 2], dilation: [1; 2], groups: 1,
            };
            let mut occupied = CellMask::new(batch, height, width);
            let mut x = vec![0.0f32; map_len(batch, inputs, height * width) / 4];
            for (sample, row, column) in cells {
                let (sample, row, column) = (sample % batch, row % height, column % width);
                occupied.set(sample, row, column);
                for channel in 0..inputs {
                    let quad = (sample * inputs.div_ceil(4) + channel / 4) * height * width + row * width + column;
                    bytemuck::cast_slice_mut::<f32, i8>(&mut x)[4 * quad + channel % 4] = 100 - 7 * channel as i8;
                }
            }
            let x: &[i8] = bytemuck::cast_slice(&x);
            let reached = occupied.through_conv(&shape);
            let integers = ByteWeights::quantize(outputs, &numbers(5, shape.weight_len()));
            for isa in Isa::available_for_bytes() {
                for threads in 1..3 {
                    let cpu = Cpu::with_isa(threads, isa).unwrap();
                    let layer = Layer {
                        direct: ByteConv::pack(&cpu, &shape, &integers, false),
                        winograd: ByteWinograd::pack(&cpu, &shape, &integers),
                        bias: numbers(6, outputs),
                        as_bytes,
                    };
                    let bits = |y: Vec<f32>| y.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                    for tiled in [false, true] {
                        let empty = layer.empty(&cpu, &shape, tiled);
                        let [skipped, all] = [Coverage::Reached, Coverage::All].map(|coverage| {
                            bits(layer.output(&shape, |output| {
                                let share = byte_conv2d_settled(
                                    &cpu, &shape, layer.weights(tiled), x, layer.epilogue(), &reached, &empty, coverage, output,
                                );
                                assert!(share <= 1.0);
                            }))
                        });
                        prop_assert_eq!(&skipped, &all);
                        if !tiled {
                            let plain = layer.output(&shape, |output| {
                                byte_conv2d(&cpu, &shape, &layer.direct, x, layer.epilogue(), output);
                            });
                            prop_assert_eq!(&skipped, &bits(plain));
                        }
                    }
                }
            }
        }
    }
}
