//! Contractions on bytes: the input as it is or quantised on the way, the output as bytes or floats.

use std::borrow::Cow;
use std::sync::MutexGuard;

use percept_graph::{Conv2d, Linear, SparseConv3d};
use percept_kernels::conv::ConvShape;
use percept_kernels::int8::{
    Addend, ByteConv, ByteDepthwise, ByteEpilogue, ByteLinear, ByteOutput, ByteScale,
    ByteSparseConv, ByteWeights, ByteWinograd, byte_conv2d, byte_depthwise_conv2d, byte_linear,
    byte_sparse_conv, byte_winograd, map_len, quantize_map, quantize_rows, row_len,
};
use percept_kernels::{Activation, Cpu, Scratch};

use super::{Prepare, conv as floats, sparse};
use crate::EngineError;
use crate::kernel::Kernel;
use crate::operands::Operands;
use crate::options::Integers;
use crate::precision::Precision;
use crate::weights::{Form, Packing, Vector, scale_rows};

/// What a layer's input and output are, and what happens between.
struct Ends {
    grid: ByteScale,
    input_is_bytes: bool,
    output: Option<ByteScale>,
    /// The residual's position, and what its bytes stand for where it is bytes.
    residual: Option<(usize, Option<f32>)>,
    activation: Activation,
}

impl Ends {
    fn new(at: &Prepare<'_>, grid: ByteScale) -> Self {
        let residual = at.residual().map(|position| {
            let form = at.operand_form(position);
            (position, form.map(|form| form.scale.scale))
        });
        Self {
            grid,
            input_is_bytes: at.operand_form(0).is_some(),
            output: at.output_form().map(|form| form.scale),
            residual,
            activation: at.activation(),
        }
    }

    /// The input as bytes, `len` of them, which `quantize` makes of floats.
    fn input<'b>(
        &self,
        io: &Operands<'b>,
        len: usize,
        staged: &'b mut MutexGuard<'_, Scratch>,
        quantize: impl FnOnce(&[f32], &mut [i8]),
    ) -> Result<&'b [i8], String> {
        if self.input_is_bytes {
            return io.read(0);
        }
        let [bytes] = staged.bytes([len]);
        quantize(io.read(0)?, bytes);
        Ok(bytes)
    }

    fn epilogue<'e>(
        &self,
        io: &Operands<'e>,
        bias: &'e Option<Vector>,
    ) -> Result<ByteEpilogue<'e>, String> {
        let residual = match self.residual {
            None => None,
            Some((position, None)) => Some(Addend::Floats(io.read(position)?)),
            Some((position, Some(scale))) => Some(Addend::Bytes(io.read(position)?, scale)),
        };
        Ok(ByteEpilogue {
            input_scale: self.grid.scale,
            bias: bias.as_ref().map(|bias| bias.as_slice()),
            residual,
            activation: self.activation,
        })
    }

    fn output<'o>(&self, io: &'o mut Operands<'_>) -> Result<ByteOutput<'o>, String> {
        Ok(match self.output {
            None => ByteOutput::Floats(io.write(0)?),
            Some(scale) => ByteOutput::Bytes(io.write(0)?, scale),
        })
    }
}

fn packing(grid: ByteScale) -> Packing {
    Packing {
        form: Form::Bytes {
            signed: grid.signed,
        },
        precision: Precision::I8,
    }
}

/// Weights as bytes, with what follows folded in: a scale for each of the output channels. Weights that were rounded to such a grid before
/// come out as the same integers.
fn quantized(weight: Cow<'_, [f32]>, scale: Option<&[f64]>, outputs: usize) -> ByteWeights {
    let width = weight.len() / outputs.max(1);
    let weight = scale_rows(weight, width.max(1), scale, |row| row);
    ByteWeights::quantize(outputs, &weight)
}

/// The name of these kernels in reports.
const NAME: &str = "int8";

/// A convolution.
pub fn conv(conv: &Conv2d, at: &mut Prepare<'_>, grid: ByteScale) -> Result<Kernel, EngineError> {
    let shape = floats::shape(conv, at.x());
    let (cpu, ends) = (at.cpu, Ends::new(at, grid));
    let outputs = shape.out_channels;
    let packing = packing(grid);
    if shape.is_depthwise() {
        let (weights, bias) = at.contraction(packing, |weight, scale| {
            ByteDepthwise::pack(&shape, &quantized(weight, scale, outputs))
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
    if at.integers == Integers::Kernels && ByteWinograd::is_faster(&shape, cpu.isa()) {
        let packing = Packing {
            form: Form::WinogradBytes,
            ..packing
        };
        let (weights, bias) = at.contraction(packing, |weight, scale| {
            ByteWinograd::pack(cpu, &shape, &quantized(weight, scale, outputs))
        })?;
        return Ok(Kernel::new(move |cpu, io| {
            let mut staged = cpu.staging();
            let x = map_input(cpu, &ends, io, &shape, &mut staged)?;
            let epilogue = ends.epilogue(io, &bias)?;
            byte_winograd(cpu, &shape, &weights, x, epilogue, ends.output(io)?);
            Ok(())
        })
        .by("int8-winograd4"));
    }
    let (weights, bias) = at.contraction(packing, |weight, scale| {
        let weights = quantized(weight, scale, outputs);
        ByteConv::pack(cpu, &shape, &weights, grid.signed)
    })?;
    Ok(Kernel::new(move |cpu, io| {
        let mut staged = cpu.staging();
        let x = map_input(cpu, &ends, io, &shape, &mut staged)?;
        let epilogue = ends.epilogue(io, &bias)?;
        byte_conv2d(cpu, &shape, &weights, x, epilogue, ends.output(io)?);
        Ok(())
    })
    .by(NAME))
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

/// A linear layer.
pub fn linear(op: &Linear, at: &mut Prepare<'_>, grid: ByteScale) -> Result<Kernel, EngineError> {
    let (inputs, outputs) = (op.in_features, op.out_features);
    let rows = at.x().iter().product::<usize>() / inputs.max(1);
    let (cpu, ends) = (at.cpu, Ends::new(at, grid));
    let (weights, bias) = at.contraction(packing(grid), |weight, scale| {
        let weight = quantized(op.as_matrix(&weight), scale, outputs);
        ByteLinear::pack(cpu, &weight, inputs, grid.signed)
    })?;
    Ok(Kernel::new(move |cpu, io| {
        let mut staged = cpu.staging();
        let x = ends.input(io, rows * row_len(inputs), &mut staged, |x, bytes| {
            quantize_rows(cpu, inputs, x, grid, bytes);
        })?;
        let epilogue = ends.epilogue(io, &bias)?;
        byte_linear(cpu, &weights, rows, x, epilogue, ends.output(io)?);
        Ok(())
    })
    .by(NAME))
}

/// A sparse convolution. Operands: features, sites, pairs, starts; then the residual.
pub fn sparse_conv(
    op: &SparseConv3d,
    at: &mut Prepare<'_>,
    grid: ByteScale,
) -> Result<Kernel, EngineError> {
    let shape = sparse::shape(op);
    let (cpu, ends) = (at.cpu, Ends::new(at, grid));
    let (in_rows, rows) = (at.x()[0], at.y().first().copied());
    let (weights, bias) = at.contraction(packing(grid), |weight, scale| {
        let weight = quantized(weight, scale, shape.out_channels);
        ByteSparseConv::pack(cpu, &shape, &weight, grid.signed)
    })?;
    let (columns, rows) = (shape.in_channels, rows.unwrap_or(0));
    Ok(Kernel::new(move |cpu, io| {
        let mut staged = cpu.staging();
        let x = ends.input(io, in_rows * row_len(columns), &mut staged, |x, bytes| {
            quantize_rows(cpu, columns, x, grid, bytes);
        })?;
        let (pairs, starts) = (io.read(2)?, io.read(3)?);
        let epilogue = ends.epilogue(io, &bias)?;
        let output = ends.output(io)?;
        byte_sparse_conv(cpu, &weights, rows, x, pairs, starts, epilogue, output);
        Ok(())
    })
    .by(NAME))
}
