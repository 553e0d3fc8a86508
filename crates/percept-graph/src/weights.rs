//! Where the values of parameters come from. Weights are a separate map, never part of the graph.

use std::borrow::Cow;

use thiserror::Error;

/// Why a weight cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WeightError {
    #[error("the weights have no tensor `{name}`")]
    Missing { name: String },
    #[error("tensor `{name}` has shape {got:?}, expected {expected:?}")]
    WrongShape {
        name: String,
        expected: Vec<usize>,
        got: Vec<usize>,
    },
    #[error("tensor `{name}` cannot be read: {reason}")]
    Unreadable { name: String, reason: String },
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
