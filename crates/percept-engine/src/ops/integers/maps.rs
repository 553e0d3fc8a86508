//! Convolutions of maps on bytes, and what is known of them where maps are empty.

use std::borrow::Cow;
use std::sync::{Arc, MutexGuard};

use percept_graph::{Conv2d, ConvTranspose2d, Op};
use percept_kernels::conv::{CellMask, ConvShape, ConvTransposeShape};
use percept_kernels::int8::{
    Addend, ByteConv, ByteDepthwise, ByteEpilogue, ByteMapWeights, ByteOutput, ByteScale, ByteTerm,
    ByteWinograd, byte_conv2d, byte_conv2d_settled, byte_conv2d_sum, byte_depthwise_conv2d,
    byte_winograd, map_len, quantize_map, spread_taps,
};
use percept_kernels::{Cpu, Scratch};

use super::{Ends, NAME, packing, quantized, weight_grid};
use crate::EngineError;
use crate::empty::{Extent, MapLayer, OnMap, Settled, SmallMap};
use crate::kernel::Kernel;
use crate::lowering::LoweredNode;
use crate::operands::Operands;
use crate::ops::{Prepare, conv as floats, conv_transpose as transposed};
use crate::options::Integers;
use crate::weights::{Form, Packing, Vector};

/// A convolution.
pub fn conv(conv: &Conv2d, at: &mut Prepare<'_>, grid: ByteScale) -> Result<Kernel, EngineError> {
    let shape = floats::shape(conv, at.x());
    let (cpu, ends, weight_grid) = (
        at.cpu,
        Ends::new(at, grid),
        weight_grid(at.graph, at.node()),
    );
    let outputs = shape.out_channels;
    let packing = packing(grid);
    if shape.is_depthwise() {
        let (weights, bias) = at.contraction(packing, |weight, scale| {
            ByteDepthwise::pack(&shape, &quantized(&weight, weight_grid, scale, outputs))
        })?;
        return Ok(Kernel::new(move |cpu, io| {
            let mut staged = cpu.staging();
            let x = map_input(cpu, &ends, io, &shape, &mut staged)?;
            let epilogue = ends.epilogue(io, &bias)?;
            byte_depthwise_conv2d(cpu, &shape, &weights, x, epilogue, ends.output(io)?);
            Ok(())
        })
        .by(NAME));
    }
    if let Some(shortcut) = &at.step.fused.shortcut {
        return conv_with_shortcut(&shape, at, grid, shortcut);
    }
    // By the whole batch, so that slices of it have the same bits.
    let batch = shape.repeated(at.turns);
    let (weights, bias) =
        if at.integers == Integers::Kernels && ByteWinograd::is_faster(&batch, cpu.isa()) {
            let packing = Packing {
                form: Form::WinogradBytes,
                ..packing
            };
            let (weights, bias) = at.contraction(packing, |weight, scale| {
                let weights = quantized(&weight, weight_grid, scale, outputs);
                ByteWinograd::pack(cpu, &shape, &weights)
            })?;
            (MapWeights::Winograd(weights), bias)
        } else {
            let (weights, bias) = at.contraction(packing, |weight, scale| {
                let weights = quantized(&weight, weight_grid, scale, outputs);
                ByteConv::pack(cpu, &shape, &weights, grid.signed)
            })?;
            (MapWeights::Direct(weights), bias)
        };
    Ok(ByteConvCall {
        shape,
        weights,
        bias,
        ends,
    }
    .into_kernel())
}

/// A pointwise convolution of bytes, with another one added, whose input is the last operand.
fn conv_with_shortcut(
    shape: &ConvShape,
    at: &mut Prepare<'_>,
    grid: ByteScale,
    shortcut: &LoweredNode,
) -> Result<Kernel, EngineError> {
    let (cpu, shape, ends) = (at.cpu, *shape, Ends::new(at, grid));
    let (position, node) = (at.step.reads().count() - 1, at.graph.node(shortcut.node));
    let (Op::Conv2d(conv), Some(second_grid)) = (&node.op, shortcut.fused.input_bytes) else {
        unreachable!("the pass takes convolutions on bytes only");
    };
    let second_shape = ConvShape {
        in_channels: conv.in_channels,
        height: shape.out_height(),
        width: shape.out_width(),
        stride: [1; 2],
        ..shape
    };
    let mut term = |step: &LoweredNode, shape: &ConvShape, grid: ByteScale| {
        let weight_grid = weight_grid(at.graph, at.graph.node(step.node));
        let pack = |weight: Cow<'_, [f32]>, scale: Option<&[f64]>| {
            let weights = quantized(&weight, weight_grid, scale, shape.out_channels);
            ByteConv::pack(cpu, shape, &weights, grid.signed)
        };
        at.weights.contraction(at.graph, step, packing(grid), pack)
    };
    let (weights, bias) = term(at.step, &shape, grid)?;
    let (second_weights, second_bias) = term(shortcut, &second_shape, second_grid)?;
    Ok(Kernel::new(move |cpu, io| {
        let epilogue = ends.epilogue(io, &bias)?;
        let second = ByteTerm {
            shape: &second_shape,
            weights: &second_weights,
            x: io.read(position)?,
            input_scale: second_grid.scale,
            bias: second_bias.as_ref().map(|bias| bias.as_slice()),
        };
        let x = io.read(0)?;
        byte_conv2d_sum(cpu, &shape, &weights, x, second, epilogue, ends.output(io)?);
        Ok(())
    })
    .by(NAME))
}

/// A transposed convolution whose marks do not overlap: a pointwise one with a row of outputs for each tap, whose results are
/// spread. Taps of one pixel come out together, so nothing is gathered twice.
pub fn conv_transpose(
    op: &ConvTranspose2d,
    at: &mut Prepare<'_>,
    grid: ByteScale,
) -> Result<Kernel, EngineError> {
    let conv = &op.conv;
    let [inputs, outputs] = [conv.in_channels, conv.out_channels];
    let taps = conv.kernel[0] * conv.kernel[1];
    let shape = ConvShape {
        batch: at.x()[0],
        in_channels: inputs,
        height: at.x()[2],
        width: at.x()[3],
        out_channels: taps * outputs,
        kernel: [1; 2],
        stride: [1; 2],
        padding: [0; 2],
        dilation: [1; 2],
        groups: 1,
    };
    let (cpu, ends, weight_grid) = (
        at.cpu,
        Ends::new(at, grid),
        weight_grid(at.graph, at.node()),
    );
    let (weights, bias) = at.contraction(packing(grid), |weight, scale| {
        // [in, out, tap] to [tap, out, in].
        let turned: Vec<f32> = (0..taps * outputs * inputs)
            .map(|at| {
                let (input, row) = (at % inputs, at / inputs);
                weight[(input * outputs + row % outputs) * taps + row / outputs]
            })
            .collect();
        let scale = scale.map(|scale| scale.repeat(taps));
        let weights = quantized(&turned, weight_grid, scale.as_deref(), taps * outputs);
        ByteConv::pack(cpu, &shape, &weights, grid.signed)
    })?;
    let bias = bias.map(|bias| Arc::new(bias.as_slice().repeat(taps)));
    let call = ByteConvCall {
        shape,
        weights: MapWeights::Direct(weights),
        bias,
        ends,
    };
    if taps == 1 {
        return Ok(call.into_kernel());
    }
    let call = Arc::new(ByteTransposedCall {
        pointwise: call,
        shape: transposed::shape(op, at.x()),
    });
    let on_map = OnMap::Layer(Arc::clone(&call) as _);
    Ok(Kernel::new(move |cpu, io| call.run(cpu, io))
        .by(NAME)
        .on_map(on_map))
}

/// The weights of a convolution of maps.
enum MapWeights {
    Direct(Arc<ByteConv>),
    Winograd(Arc<ByteWinograd>),
}

impl MapWeights {
    fn borrowed(&self) -> ByteMapWeights<'_> {
        match self {
            MapWeights::Direct(weights) => ByteMapWeights::Direct(weights),
            MapWeights::Winograd(weights) => ByteMapWeights::Winograd(weights),
        }
    }
}

/// A convolution of maps with packed weights.
struct ByteConvCall {
    shape: ConvShape,
    weights: MapWeights,
    bias: Option<Vector>,
    ends: Ends,
}

impl ByteConvCall {
    fn into_kernel(self) -> Kernel {
        let name = match self.weights {
            MapWeights::Direct(_) => NAME,
            MapWeights::Winograd(_) => "int8-winograd4",
        };
        let call = Arc::new(self);
        let on_map = OnMap::Layer(Arc::clone(&call) as _);
        let kernel = Kernel::new(move |cpu, io| {
            let mut staged = cpu.staging();
            let x = map_input(cpu, &call.ends, io, &call.shape, &mut staged)?;
            let epilogue = call.ends.epilogue(io, &call.bias)?;
            call.compute(cpu, &call.shape, x, epilogue, call.ends.output(io)?);
            Ok(())
        });
        kernel.by(name).on_map(on_map)
    }

    fn compute(
        &self,
        cpu: &Cpu,
        shape: &ConvShape,
        x: &[i8],
        epilogue: ByteEpilogue<'_>,
        output: ByteOutput<'_>,
    ) {
        match &self.weights {
            MapWeights::Direct(weights) => byte_conv2d(cpu, shape, weights, x, epilogue, output),
            MapWeights::Winograd(weights) => {
                byte_winograd(cpu, shape, weights, x, epilogue, output);
            }
        }
    }
}

impl MapLayer for ByteConvCall {
    fn extent(&self, before: Extent) -> Extent {
        floats::extent(&self.shape, before)
    }

    /// Small maps lie in memory as large ones do: bytes as quads of the bits of floats.
    fn small(&self, cpu: &Cpu, inputs: &[&SmallMap]) -> SmallMap {
        let shape = self.shape.on_one_map(inputs[0].size);
        let (ends, size) = (&self.ends, [1, shape.in_channels, shape.in_pixels()]);
        let mut staged = Vec::new();
        let x: &[i8] = match ends.input_is_bytes {
            true => bytemuck::cast_slice(&inputs[0].data),
            false => {
                staged.resize(map_len(1, size[1], size[2]), 0);
                quantize_map(cpu, size, &inputs[0].data, ends.grid, &mut staged);
                &staged
            }
        };
        let residual = ends.residual.map(|(position, scale)| {
            let data = inputs[position].data.as_slice();
            match scale {
                None => Addend::Floats(data),
                Some(scale) => Addend::Bytes(bytemuck::cast_slice(data), scale),
            }
        });
        let epilogue = ends.epilogue_of(residual, &self.bias);
        let elements = match ends.output {
            None => shape.out_len(),
            Some(_) => map_len(1, shape.out_channels, shape.out_pixels()) / 4,
        };
        let mut data = vec![0.0; elements];
        let output = match ends.output {
            None => ByteOutput::Floats(&mut data),
            Some(scale) => ByteOutput::Bytes(bytemuck::cast_slice_mut(&mut data), scale),
        };
        self.compute(cpu, &shape, x, epilogue, output);
        SmallMap {
            size: [shape.out_height(), shape.out_width()],
            data,
        }
    }

    fn reached(&self, inputs: &[&CellMask]) -> CellMask {
        let mut mask = inputs[0].through_conv(&self.shape);
        if let Some((residual, _)) = self.ends.residual {
            mask.unite(inputs[residual]);
        }
        mask
    }

    fn skips(&self) -> bool {
        true
    }

    fn settle(&self, cpu: &Cpu, io: &mut Operands<'_>, known: &Settled<'_>) -> Result<f64, String> {
        let Settled {
            reached,
            empty,
            coverage,
        } = *known;
        let mut staged = cpu.staging();
        let x = map_input(cpu, &self.ends, io, &self.shape, &mut staged)?;
        let epilogue = self.ends.epilogue(io, &self.bias)?;
        let (weights, output) = (self.weights.borrowed(), self.ends.output(io)?);
        Ok(byte_conv2d_settled(
            cpu,
            &self.shape,
            weights,
            x,
            epilogue,
            reached,
            empty,
            coverage,
            output,
        ))
    }
}

/// A transposed convolution as a pointwise one whose results are spread.
struct ByteTransposedCall {
    pointwise: ByteConvCall,
    shape: ConvTransposeShape,
}

impl ByteTransposedCall {
    fn run(&self, cpu: &Cpu, io: &mut Operands<'_>) -> Result<(), String> {
        let ByteConvCall { shape, ends, .. } = &self.pointwise;
        let size = [shape.batch, shape.in_channels, shape.in_pixels()];
        let staged_len = match ends.input_is_bytes {
            true => 0,
            false => map_len(size[0], size[1], size[2]),
        };
        let mut staging = cpu.staging();
        let [staged, apart] = staging.bytes([staged_len, self.out_bytes(shape)]);
        let x = match ends.input_is_bytes {
            true => io.read(0)?,
            false => {
                quantize_map(cpu, size, io.read(0)?, ends.grid, staged);
                &*staged
            }
        };
        let epilogue = ends.epilogue(io, &self.pointwise.bias)?;
        let apart = bytemuck::cast_slice_mut(apart);
        let y = match ends.output {
            None => io.write::<f32>(0)?,
            Some(_) => bytemuck::cast_slice_mut(io.write::<i8>(0)?),
        };
        self.compute(cpu, shape, x, epilogue, apart, y);
        Ok(())
    }

    /// Memory of the output: floats, or quads, which are as wide.
    fn out_bytes(&self, shape: &ConvShape) -> usize {
        let planes = match self.pointwise.ends.output {
            None => shape.out_channels,
            Some(_) => shape.out_channels / 4,
        };
        4 * shape.batch * planes * shape.out_pixels()
    }

    /// Multiplies, with taps apart from each other, and spreads them.
    fn compute(
        &self,
        cpu: &Cpu,
        shape: &ConvShape,
        x: &[i8],
        epilogue: ByteEpilogue<'_>,
        apart: &mut [f32],
        y: &mut [f32],
    ) {
        let output = match self.pointwise.ends.output {
            None => ByteOutput::Floats(apart),
            Some(scale) => ByteOutput::Bytes(bytemuck::cast_slice_mut(apart), scale),
        };
        self.pointwise.compute(cpu, shape, x, epilogue, output);
        let cells = shape.batch * shape.out_pixels() * self.shape.kernel.iter().product::<usize>();
        let planes = y.len() / cells.max(1);
        let size = [shape.batch, planes, shape.height, shape.width];
        spread_taps(cpu, size, self.shape.kernel, apart, y);
    }
}

impl MapLayer for ByteTransposedCall {
    fn extent(&self, before: Extent) -> Extent {
        transposed::extent(&self.shape, before)
    }

    fn small(&self, cpu: &Cpu, inputs: &[&SmallMap]) -> SmallMap {
        let apart = self.pointwise.small(cpu, inputs);
        let [rows, columns] = self.shape.kernel;
        let [height, width] = apart.size;
        let planes = apart.data.len() / (rows * columns * height * width).max(1);
        let mut data = vec![0.0; apart.data.len()];
        let size = [1, planes, height, width];
        spread_taps(cpu, size, [rows, columns], &apart.data, &mut data);
        SmallMap {
            size: [height * rows, width * columns],
            data,
        }
    }

    fn reached(&self, inputs: &[&CellMask]) -> CellMask {
        inputs[0].through_conv_transpose(&self.shape)
    }
}

fn map_input<'b>(
    cpu: &Cpu,
    ends: &Ends,
    io: &Operands<'b>,
    shape: &ConvShape,
    staged: &'b mut MutexGuard<'_, Scratch>,
) -> Result<&'b [i8], String> {
    let size = [shape.batch, shape.in_channels, shape.in_pixels()];
    let [batch, channels, pixels] = size;
    ends.input(io, map_len(batch, channels, pixels), staged, |x, bytes| {
        quantize_map(cpu, size, x, ends.grid, bytes);
    })
}
