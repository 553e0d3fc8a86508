//! Kernels whose output sizes only a run knows: active sites, rulebooks, and whatever a model brings itself.
//!
//! They give their tensors back; the program stores them once their place is planned.

use std::sync::Arc;

use percept_graph::{
    ActiveSites, CustomOp, DType, Graph, Node, Op, OpContext, Rulebook, Tensor, TensorError,
    TensorType,
};
use percept_kernels::{Cpu, sparse};

use crate::shapes;

/// A kernel that defines sizes.
pub enum Defining {
    ActiveSites(ActiveSites),
    Rulebook(Rulebook),
    Custom {
        op: Arc<dyn CustomOp>,
        dims: Vec<Vec<usize>>,
        inputs: Vec<DType>,
        outputs: Vec<DType>,
    },
}

impl Defining {
    /// The kernel of a node that defines sizes, for inputs of these sizes; `None` for other nodes.
    pub fn of(graph: &Graph, node: &Node, dims: &[Vec<usize>]) -> Option<Self> {
        let dtypes = |types: Vec<&TensorType>| types.iter().map(|ty| ty.dtype).collect();
        Some(match &node.op {
            Op::ActiveSites(op) => Defining::ActiveSites(op.clone()),
            Op::Rulebook(op) => Defining::Rulebook(op.clone()),
            Op::Custom(op) => Defining::Custom {
                op: Arc::clone(op),
                dims: dims.to_vec(),
                inputs: dtypes(graph.input_types(node)),
                outputs: dtypes(graph.output_types(node)),
            },
            _ => return None,
        })
    }

    /// Computes the outputs.
    pub fn run(&self, cpu: &Cpu, reads: &[&[f32]]) -> Result<Vec<Tensor<'static>>, String> {
        match self {
            Defining::ActiveSites(op) => {
                let window = shapes::window(&op.window);
                let sites = sparse::output_sites(&window, op.cells, as_integers(reads[0]))
                    .map_err(|error| error.to_string())?;
                Ok(vec![Tensor::from_values([sites.len() / 4, 4], sites)?])
            }
            Defining::Rulebook(op) => {
                let window = shapes::window(&op.window);
                let (sites, output_sites) = (as_integers(reads[0]), as_integers(reads[1]));
                let rows = Rulebook::BLOCK_ROWS;
                let book = sparse::rulebook(cpu, &window, op.cells, sites, output_sites, rows)
                    .map_err(|error| error.to_string())?;
                Ok(vec![
                    Tensor::from_values([book.pairs.len() / 2, 2], book.pairs)?,
                    Tensor::from_values([book.starts.len()], book.starts)?,
                ])
            }
            Defining::Custom {
                op,
                dims,
                inputs,
                outputs,
            } => {
                let args = tensors(dims, reads, inputs)?;
                let tensors = op.run(&OpContext::new(cpu), &args)?;
                let types: Vec<DType> = tensors.iter().map(Tensor::dtype).collect();
                match types == *outputs {
                    true => Ok(tensors),
                    false => Err(format!("gave {types:?}, declared {outputs:?}")),
                }
            }
        }
    }

    /// Computes the outputs where they belong, if the kernel can.
    pub fn run_into(
        &self,
        cpu: &Cpu,
        reads: &[&[f32]],
        writes: &mut [&mut [f32]],
    ) -> Option<Result<(), String>> {
        match self {
            Defining::Custom {
                op,
                dims,
                inputs,
                outputs,
            } if outputs.len() == writes.len() && outputs.iter().all(|o| *o == DType::F32) => {
                match tensors(dims, reads, inputs) {
                    Ok(args) => op.run_into(&OpContext::new(cpu), &args, writes),
                    Err(error) => Some(Err(error.to_string())),
                }
            }
            _ => None,
        }
    }
}

/// The operands of a custom op, lent.
fn tensors<'a>(
    dims: &[Vec<usize>],
    reads: &[&'a [f32]],
    types: &[DType],
) -> Result<Vec<Tensor<'a>>, TensorError> {
    let operands = dims.iter().zip(reads).zip(types);
    operands
        .map(|((dims, read), dtype)| {
            Tensor::new(*dtype, dims.clone(), bytemuck::cast_slice::<f32, u8>(read))
        })
        .collect()
}

/// The integers that an i32 value's memory holds.
pub fn as_integers(memory: &[f32]) -> &[i32] {
    bytemuck::cast_slice(memory)
}
