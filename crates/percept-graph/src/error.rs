//! What can be wrong with a graph or with the sizes given to it.

use thiserror::Error;

/// An error in building or reading a graph.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum GraphError {
    #[error("{node}: {op} takes {expected}, got {got}")]
    WrongInput {
        node: String,
        op: &'static str,
        expected: String,
        got: String,
    },
    #[error("{node}: {message}")]
    BadConfig { node: String, message: String },
    #[error("{node}: {op} has no gradient here: {reason}")]
    NotDifferentiable {
        node: String,
        op: &'static str,
        reason: String,
    },
    #[error("a loss is one number, and `{value}` is {got}")]
    NotALoss { value: String, got: String },
    #[error("`{name}` is no part of a parameter of the whole network")]
    NotAPart { name: String },
    #[error("no axis is named `{name}`; there are {known}")]
    UnknownAxis { name: String, known: String },
    #[error("{axis}: level {level}, expected 1 to {levels}")]
    BadLevel {
        axis: String,
        level: usize,
        levels: usize,
    },
    #[error("the name `{name}` is used twice in the graph")]
    DuplicateName { name: String },
    #[error("input `{input}` has shape {got:?}, expected [{expected}]")]
    InputShape {
        input: String,
        expected: String,
        got: Vec<usize>,
    },
    #[error(
        "input `{input}`: {what} is {got}, which must be a multiple of {multiple_of}; the nearest legal size is {nearest}"
    )]
    NotAMultiple {
        input: String,
        what: String,
        got: usize,
        multiple_of: usize,
        nearest: usize,
    },
    #[error("input `{input}`: {what} is {got}, the smallest this network can take is {at_least}")]
    TooSmall {
        input: String,
        what: String,
        got: usize,
        at_least: usize,
    },
    #[error("no input is named `{name}`; the inputs are {known}")]
    UnknownInput { name: String, known: String },
    #[error("input `{name}` is missing")]
    MissingInput { name: String },
    #[error("no output or scope is named `{name}`")]
    UnknownScope { name: String },
    #[error("the scope `{name}` has no single output value")]
    ScopeWithoutValue { name: String },
    #[error("symbol `{symbol}` has no value")]
    UnboundSymbol { symbol: String },
    #[error("symbol `{symbol}` is {first} in one input and {second} in another")]
    ConflictingSymbol {
        symbol: String,
        first: usize,
        second: usize,
    },
    #[error("the input is too small for this network: size `{size}` would be {value}")]
    NegativeSize { size: String, value: i64 },
    #[error("size `{size}` is too large to count")]
    SizeOverflow { size: String },
}
