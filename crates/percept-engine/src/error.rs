//! What can go wrong between a graph and its answer.

use percept_graph::{DType, GraphError, TensorError, WeightError};
use percept_kernels::{ArenaError, CpuError};
use thiserror::Error;

use crate::precision::Precision;

/// An error of the engine.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum EngineError {
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Weight(#[from] WeightError),
    #[error(transparent)]
    Cpu(#[from] CpuError),
    #[error("input `{input}` holds {got} elements, expected {expected}")]
    InputType {
        input: String,
        expected: DType,
        got: DType,
    },
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error("the graph has no state `{name}`")]
    UnknownState { name: String },
    #[error("state `{name}` has shape {expected:?}, got {got:?}")]
    StateShape {
        name: String,
        expected: Vec<usize>,
        got: Vec<usize>,
    },
    /// A node refused the data, or has no kernel for its type.
    #[error("{node}: {message}")]
    Node { node: String, message: String },
    #[error("{node}: {op} has no kernel in {precision}")]
    NoKernel {
        node: String,
        op: &'static str,
        precision: Precision,
    },
    #[error("the plan of precisions names `{scope}`, and the network has no such scope")]
    UnknownScope { scope: String },
    #[error("the plan of precisions asks `{scope}` for {problem}")]
    BadGrid { scope: String, problem: String },
    #[error(
        "an input of this size needs {needed_bytes} bytes for one run; the machine has {limit_bytes} available"
    )]
    TooLarge { needed_bytes: u64, limit_bytes: u64 },
    /// The buffer plan contradicts itself: a bug of ours.
    #[error("{node}: the buffer plan is broken: {source}")]
    Plan { node: String, source: ArenaError },
}
