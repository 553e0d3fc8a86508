//! Where the values of parameters come from. Weights are a separate map, never part of the graph.

use std::borrow::Cow;
use std::error::Error;

use thiserror::Error;

use crate::TensorError;

/// A tensor that a source could not give.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum WeightError {
    #[error("no tensor named `{name}` in the weights ({weights})")]
    Missing {
        name: String,
        /// The description of the source.
        weights: String,
    },
    #[error("tensor `{name}` has shape {got:?}, expected {expected:?}")]
    WrongShape {
        name: String,
        expected: Vec<usize>,
        got: Vec<usize>,
    },
    /// The tensor contradicts itself.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// What is behind the source is broken or not supported: a file, for instance.
    #[error(transparent)]
    Source(Box<dyn Error + Send + Sync>),
}

/// A source of named tensors: a file, a generator, or a map in memory.
pub trait WeightSource: Send + Sync {
    /// The values of tensor `name`, row-major, checked to have this shape. May borrow from a mapped file.
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError>;

    /// Says that `name` was packed elsewhere and its memory may be given back; it can still be read again.
    fn release(&self, name: &str) {
        let _ = name;
    }

    /// One phrase for reports, such as `seeded, accuracy means nothing` or a file's name.
    fn describe(&self) -> String;
}
