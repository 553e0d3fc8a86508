//! Writes a graph with its weights as an ONNX file (opset 18), for fixed input sizes.
//!
//! The file is streamed: its structure is small and comes first, then each weight is read, written and released,
//! so memory stays bounded by the largest tensor.

mod constants;
mod integers;
mod lowering;
mod ops;
mod protobuf;
mod schema;

use std::io::{self, Write};

use percept_engine::{EngineError, SumScale, constant_value};
use percept_graph::{Bindings, Graph, GraphError, WeightError, WeightSource};
use thiserror::Error;

use lowering::{Data, Declared, Initializer, Lowered};
use protobuf::Message;
use schema::field;

/// Why a graph cannot be exported.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum ExportError {
    #[error("{node}: {op} has no ONNX form here: {reason}")]
    Unsupported {
        node: String,
        op: &'static str,
        reason: String,
    },
    #[error("the ONNX file would have {bytes} bytes, and an ONNX file ends at {limit}")]
    TooLarge { bytes: u64, limit: u64 },
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Weights(#[from] WeightError),
    #[error(transparent)]
    Constant(#[from] EngineError),
    #[error("the ONNX file cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Exported {
    pub nodes: usize,
    pub initializers: usize,
    pub bytes: u64,
}

/// Protobuf readers refuse messages of 2 GiB and more.
const LARGEST_FILE: u64 = i32::MAX as u64;

/// Writes the graph for these input sizes, with inputs, outputs and weights under their names in the graph.
///
/// Nothing is written when the graph cannot be exported; an unreadable weight is noticed on the way.
pub fn export(
    graph: &Graph,
    bindings: &Bindings,
    weights: &dyn WeightSource,
    writer: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let lowered = lowering::lower(graph, bindings)?;
    let structure = structure(graph, &lowered);
    let headers: Vec<Message> = lowered
        .initializers
        .iter()
        .map(initializer_header)
        .collect();
    let tensors = headers.iter().zip(&lowered.initializers);
    let tensor_bytes: u64 = tensors
        .map(|(h, i)| h.as_bytes().len() as u64 + i.data_bytes())
        .sum();
    let graph_bytes = structure.as_bytes().len() as u64 + tensor_bytes;
    let start = schema::model_header().announce(field::MODEL_GRAPH, graph_bytes);
    let bytes = start.as_bytes().len() as u64 + graph_bytes;
    if bytes > LARGEST_FILE {
        let limit = LARGEST_FILE;
        return Err(ExportError::TooLarge { bytes, limit });
    }

    writer.write_all(start.as_bytes())?;
    writer.write_all(structure.as_bytes())?;
    for (header, initializer) in headers.iter().zip(&lowered.initializers) {
        writer.write_all(header.as_bytes())?;
        write_data(graph, bindings, weights, initializer, writer)?;
    }
    writer.flush()?;
    Ok(Exported {
        nodes: lowered.nodes.len(),
        initializers: lowered.initializers.len(),
        bytes,
    })
}

/// The GraphProto without its initializers.
fn structure(graph: &Graph, lowered: &Lowered) -> Message {
    let class = &graph.scopes()[0].class;
    let message = Message::new().text(field::GRAPH_NAME, class);
    let nodes = lowered.nodes.iter();
    let message = nodes.fold(message, |m, node| {
        m.message(field::GRAPH_NODE, &node.message())
    });
    let values = |message: Message, field: u64, values: &[Declared]| {
        values.iter().fold(message, |m, (name, dtype, shape)| {
            m.message(field, &schema::value_info(name, *dtype, shape))
        })
    };
    let message = values(message, field::GRAPH_INPUT, &lowered.inputs);
    values(message, field::GRAPH_OUTPUT, &lowered.outputs)
}

/// Everything of an initializer's field but its data.
fn initializer_header(initializer: &Initializer) -> Message {
    let (name, shape) = (&initializer.name, &initializer.shape);
    let bytes = initializer.data_bytes();
    let tensor = schema::tensor_header(name, initializer.dtype(), shape, bytes);
    let length = tensor.as_bytes().len() as u64 + bytes;
    Message::new()
        .announce(field::GRAPH_INITIALIZER, length)
        .followed_by(&tensor)
}

fn write_data(
    graph: &Graph,
    bindings: &Bindings,
    weights: &dyn WeightSource,
    initializer: &Initializer,
    writer: &mut dyn Write,
) -> Result<(), ExportError> {
    match &initializer.data {
        Data::Weight(id) => {
            let param = graph.param(*id);
            write_f32(
                writer,
                weights.read(&param.name, &param.shape)?.iter().copied(),
            )?;
            weights.release(&param.name);
        }
        Data::TransposedWeight(id) => {
            let param = graph.param(*id);
            let values = weights.read(&param.name, &param.shape)?;
            write_transposed(writer, &values, param.shape[1])?;
            weights.release(&param.name);
        }
        Data::Integers {
            param,
            grid,
            transposed,
        } => {
            let param = graph.param(*param);
            let values = weights.read(&param.name, &param.shape)?;
            let integers = grid.integers(&values, &param.shape);
            let columns = param.shape.last().copied().unwrap_or(1).max(1);
            let integers = match transposed {
                false => integers,
                true => (0..integers.len())
                    .map(|at| {
                        let rows = integers.len() / columns;
                        integers[at % rows * columns + at / rows]
                    })
                    .collect(),
            };
            let bytes: Vec<u8> = integers.iter().map(|&q| q as u8).collect();
            writer.write_all(&bytes)?;
            weights.release(&param.name);
        }
        Data::Steps(param, grid) => {
            let param = graph.param(*param);
            let values = weights.read(&param.name, &param.shape)?;
            // A channel of zeros has no step, which ONNX does not know: any will do.
            let steps = grid.steps(&values, &param.shape).into_iter();
            write_f32(
                writer,
                steps.map(|step| if step > 0.0 { step } else { 1.0 }),
            )?;
        }
        Data::Factors(layer) | Data::Shifts(layer) => {
            let scale = SumScale::of(graph, weights, layer.node, layer.follower)?;
            let scale = scale.expect("a layer with a static range");
            write_f32(
                writer,
                match &initializer.data {
                    Data::Factors(_) => scale.factors,
                    _ => scale.shifts.expect("a layer with something to add"),
                }
                .into_iter(),
            )?;
        }
        Data::Zero(_) => writer.write_all(&[0])?,
        Data::Folded(node) => {
            let value = constant_value(graph, bindings, weights, *node)?;
            let value = value.expect("only constants are folded");
            write_f32(writer, value.data.into_iter())?;
        }
        Data::F32(values) => write_f32(writer, values.iter().copied())?,
        Data::I64(values) => {
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            writer.write_all(&bytes)?;
        }
    }
    Ok(())
}

/// ONNX stores little-endian numbers, whatever the machine has.
fn write_f32(writer: &mut dyn Write, mut values: impl Iterator<Item = f32>) -> io::Result<()> {
    const BATCH: usize = 1 << 14;
    let mut bytes = Vec::with_capacity(4 * BATCH);
    loop {
        bytes.clear();
        bytes.extend(values.by_ref().take(BATCH).flat_map(f32::to_le_bytes));
        if bytes.is_empty() {
            return Ok(());
        }
        writer.write_all(&bytes)?;
    }
}

/// A matrix column by column.
fn write_transposed(writer: &mut dyn Write, matrix: &[f32], columns: usize) -> io::Result<()> {
    // A block of columns a pass reads whole cache lines of the matrix.
    const BLOCK: usize = 16;
    let rows = matrix.len() / columns;
    for first in (0..columns).step_by(BLOCK) {
        let width = BLOCK.min(columns - first);
        let mut block = vec![0.0; width * rows];
        for (r, row) in matrix.chunks_exact(columns).enumerate() {
            for (c, &value) in row[first..first + width].iter().enumerate() {
                block[c * rows + r] = value;
            }
        }
        write_f32(writer, block.into_iter())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
