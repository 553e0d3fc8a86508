//! The language of percept: a network is a [`Graph`].
//!
//! This crate holds what can be said about a network without running it: its nodes and their names
//! (the public state-dict paths), its shapes (arithmetic on symbols), its parameters, its cost, and
//! how to print it. It has no kernels.
//!
//! ```
//! use percept_graph::{Builder, Conv2d, Dim};
//!
//! let mut b = Builder::new("Tiny");
//! let image = b.input("image", [Dim::symbol("N"), Dim::from(3), Dim::symbol("H"), Dim::symbol("W")]);
//! let x = b.conv2d("conv1", image, Conv2d::new(3, 8, 3).stride(2).padding(1));
//! let x = b.relu("relu", x);
//! b.output("features", x);
//! let graph = b.finish()?;
//!
//! let sizes = graph.bind(&[("image", vec![1, 3, 32, 32])])?;
//! assert_eq!(graph.value_shape(x, &sizes)?, [1, 8, 16, 16]);
//! assert_eq!(graph.parameter_count(), 8 * 3 * 9 + 8);
//! # Ok::<(), percept_graph::GraphError>(())
//! ```

mod builder;
mod cost;
mod dim;
mod dtype;
mod elastic;
mod error;
mod frozen;
mod graph;
mod grid;
mod ops;
mod printing;
mod quantized;
mod tensor;
mod training;
mod types;
mod weights;

pub use builder::Builder;
pub use cost::{Amount, Cost, NodeCost, OpTotals};
pub use dim::{Bindings, Dim};
pub use dtype::{DType, Element};
pub use elastic::{
    Axis, Choice, Level, PART_SEPARATOR, Part, PartWeights, Price, PriceList, Scored, Scoring,
    Searched, Slicing, Unit,
};
pub use error::GraphError;
pub use frozen::{FrozenCut, FrozenPiece, SizeInput};
pub use graph::{
    Graph, Input, Node, NodeId, ParamId, Parameter, Requirement, Scope, ScopeChild, ScopeId, State,
    StateKind, Value, ValueId, ValueSource, WholeState,
};
pub use grid::{Amax, InputGrid, Per, Quantizer, Sign, WeightGrid, largest_magnitude};
pub use ops::*;
pub use printing::{StorageRow, module_tree, storage_rows, storage_table};
pub use quantized::INPUT_QUANTIZER;
pub use tensor::{Tensor, TensorError, byte_length, element_count};
pub use training::{
    Backward, Differentiable, Differentiated, LEARNING_RATE, MOMENTUM, Optimiser, PART_SHARE,
    RANDOM_COUNTER, RecomputableModule, Recompute, StepPhase, Training, TrainingInParts,
    differentiate,
};
pub use types::{Initializer, ParamSpec, TensorType};
pub use weights::{WeightError, WeightSource};
