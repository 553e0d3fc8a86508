//! Kernels whose output sizes only a run knows: active sites, rulebooks, and whatever a model brings itself.
//!
//! They give their tensors back; the program stores them once their place is planned.

use std::sync::Arc;

use percept_graph::{ActiveSites, CustomOp, DType, Graph, Node, Op, Rulebook, Tensor, TensorType};
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

    /// Computes the outputs: 4 bytes an element, as the arena holds them.
    pub fn run(&self, cpu: &Cpu, reads: &[&[f32]]) -> Result<Vec<Tensor>, String> {
        match self {
            Defining::ActiveSites(op) => {
                let window = shapes::window(&op.window);
                let sites = sparse::output_sites(&window, op.cells, as_integers(reads[0]))
                    .map_err(|error| error.to_string())?;
                Ok(vec![integers(vec![sites.len() / 4, 4], sites)])
            }
            Defining::Rulebook(op) => {
                let window = shapes::window(&op.window);
                let (sites, output_sites) = (as_integers(reads[0]), as_integers(reads[1]));
                let rows = Rulebook::BLOCK_ROWS;
                let book = sparse::rulebook(cpu, &window, op.cells, sites, output_sites, rows)
                    .map_err(|error| error.to_string())?;
                Ok(vec![
                    integers(vec![book.pairs.len() / 2, 2], book.pairs),
                    integers(vec![book.starts.len()], book.starts),
                ])
            }
            Defining::Custom {
                op,
                dims,
                inputs,
                outputs,
            } => {
                let tensors = with_numbers(dims, reads, inputs, |args| op.run(args))?;
                as_declared(tensors, outputs)
            }
        }
    }

    /// Computes the outputs where they belong, if the kernel can.
    pub fn run_into(
        &self,
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
                with_numbers(dims, reads, inputs, |args| op.run_into(args, writes))
            }
            _ => None,
        }
    }
}

/// Custom ops see every element as a number: integers are turned into floats for them. Calls `run` with what they see.
fn with_numbers<R>(
    dims: &[Vec<usize>],
    reads: &[&[f32]],
    inputs: &[DType],
    run: impl FnOnce(&[(&[usize], &[f32])]) -> R,
) -> R {
    let numbers: Vec<Option<Vec<f32>>> = reads
        .iter()
        .zip(inputs)
        .map(|(read, dtype)| (*dtype == DType::I32).then(|| numbers_of(as_integers(read))))
        .collect();
    let args: Vec<(&[usize], &[f32])> = reads
        .iter()
        .zip(&numbers)
        .zip(dims)
        .map(|((read, numbers), dims)| (dims.as_slice(), numbers.as_deref().unwrap_or(read)))
        .collect();
    run(&args)
}

/// Checks the outputs of a custom op, and turns those back that are integers.
fn as_declared(mut tensors: Vec<Tensor>, outputs: &[DType]) -> Result<Vec<Tensor>, String> {
    if tensors.len() != outputs.len() {
        let (gave, declared) = (tensors.len(), outputs.len());
        return Err(format!("gave {gave} tensors, declared {declared}"));
    }
    for (tensor, dtype) in tensors.iter_mut().zip(outputs) {
        if *dtype == DType::I32 {
            let values = tensor.data.iter().map(|&value| value as i32).collect();
            *tensor = integers(std::mem::take(&mut tensor.shape), values);
        }
    }
    Ok(tensors)
}

/// The integers that an i32 value's memory holds.
pub fn as_integers(memory: &[f32]) -> &[i32] {
    bytemuck::cast_slice(memory)
}

/// Integers as numbers, for readers that know floats only.
pub fn numbers_of(integers: &[i32]) -> Vec<f32> {
    integers.iter().map(|&value| value as f32).collect()
}

/// Integers as an i32 value's memory holds them.
pub fn in_memory(integers: Vec<i32>) -> Vec<f32> {
    bytemuck::cast_vec(integers)
}

fn integers(shape: Vec<usize>, values: Vec<i32>) -> Tensor {
    Tensor {
        shape,
        data: in_memory(values),
    }
}
