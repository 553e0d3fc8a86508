//! How a graph is to be run.

pub use percept_kernels::conv::Mode;

/// What becomes of intermediate values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Buffers are freed at their last use, reused, and written in place.
    #[default]
    Frugal,
    /// Every intermediate keeps a buffer of its own.
    Keep,
}

/// Options of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Options {
    pub mode: Mode,
    pub memory: Memory,
}
