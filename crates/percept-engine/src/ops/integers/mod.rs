//! Contractions on bytes: the input as it is or quantised on the way, the output as bytes or floats.

mod maps;

use std::sync::MutexGuard;

use percept_graph::{Graph, Linear, Node, Per, SparseConv3d, WeightGrid};
use percept_kernels::int8::{
    Addend, ByteEpilogue, ByteLinear, ByteOutput, ByteScale, ByteSparseConv, ByteWeights, Rounding,
    byte_linear, byte_sparse_conv, quantize_rows, row_len,
};
use percept_kernels::{Activation, Scratch};

use super::{Prepare, sparse};
use crate::EngineError;
use crate::kernel::Kernel;
use crate::operands::Operands;
use crate::options::Integers;
use crate::precision::Precision;
use crate::weights::{Form, Packing, Vector};

pub use maps::{conv, conv_transpose};

/// What a layer's input and output are, and what happens between.
struct Ends {
    grid: ByteScale,
    input_is_bytes: bool,
    output: Option<ByteScale>,
    /// The residual's position, and what its bytes stand for where it is bytes.
    residual: Option<(usize, Option<f32>)>,
    activation: Activation,
    rounding: Rounding,
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
            rounding: match at.integers {
                Integers::Exact => Rounding::Each,
                _ => Rounding::Fused,
            },
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
        Ok(self.epilogue_of(residual, bias))
    }

    fn epilogue_of<'e>(
        &self,
        residual: Option<Addend<'e>>,
        bias: &'e Option<Vector>,
    ) -> ByteEpilogue<'e> {
        ByteEpilogue {
            input_scale: self.grid.scale,
            bias: bias.as_ref().map(|bias| bias.as_slice()),
            residual,
            activation: self.activation,
            rounding: self.rounding,
        }
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

/// The integers of weights that lie on their grid, row by row, with what follows folded into what a step stands for: a factor for
/// each of the output channels.
fn quantized(
    weight: &[f32],
    grid: WeightGrid,
    scale: Option<&[f64]>,
    outputs: usize,
) -> ByteWeights {
    let mut weights = ByteWeights::on_grids(row_steps(weight, grid, outputs), weight);
    follow(&mut weights.scales, scale);
    weights
}

/// What one step of each row of weights stands for; 1 where all of them are zero.
pub fn row_steps(weight: &[f32], grid: WeightGrid, outputs: usize) -> Vec<f32> {
    let width = (weight.len() / outputs.max(1)).max(1);
    let steps = grid.steps(weight, &[outputs, width]).into_iter();
    let steps: Vec<f32> = steps
        .map(|step| if step > 0.0 { step } else { 1.0 })
        .collect();
    match grid.per {
        Per::Channel => steps,
        Per::Tensor => steps.repeat(outputs),
    }
}

/// Folds factors of the output channels into what steps stand for.
pub fn follow(steps: &mut [f32], factors: Option<&[f64]>) {
    for (step, factor) in steps.iter_mut().zip(factors.unwrap_or(&[])) {
        *step = (f64::from(*step) * factor) as f32;
    }
}

/// The grid of a layer's weights.
fn weight_grid(graph: &Graph, node: &Node) -> WeightGrid {
    let grids = graph.grids(node);
    grids.map_or(WeightGrid::BYTES, |(weight, _)| weight)
}

/// The name of these kernels in reports.
const NAME: &str = "int8";

/// A linear layer.
pub fn linear(op: &Linear, at: &mut Prepare<'_>, grid: ByteScale) -> Result<Kernel, EngineError> {
    let (inputs, outputs) = (op.in_features, op.out_features);
    let rows = at.x().iter().product::<usize>() / inputs.max(1);
    let (cpu, ends, weight_grid) = (
        at.cpu,
        Ends::new(at, grid),
        weight_grid(at.graph, at.node()),
    );
    let (weights, bias) = at.contraction(packing(grid), |weight, scale| {
        let weight = quantized(&op.as_matrix(&weight), weight_grid, scale, outputs);
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
    let (cpu, ends, weight_grid) = (
        at.cpu,
        Ends::new(at, grid),
        weight_grid(at.graph, at.node()),
    );
    let (in_rows, rows) = (at.x()[0], at.y().first().copied());
    let (weights, bias) = at.contraction(packing(grid), |weight, scale| {
        let weight = quantized(&weight, weight_grid, scale, shape.out_channels);
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
