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

/// What becomes of the parts of a map that no sparse site reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Empty {
    /// They are copied from the network's answer to an empty map.
    #[default]
    Skip,
    /// They are computed all the same, and then set to that answer: the same bits as [`Empty::Skip`], for comparison.
    Compute,
    /// Nothing is known about them. Winograd's rounding differs from the two above in the last bits.
    Ignore,
}

/// How layers behind a quantiser are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Integers {
    /// By kernels on bytes, as fast as they can. Where a value is bytes for a layer, it is those bytes as a residual too.
    #[default]
    Kernels,
    /// By kernels on bytes whose integer sums are those of direct convolution, with residuals as floats: what the
    /// simulation computes, but for the order of roundings.
    Exact,
    /// By kernels on floats, on numbers moved to the grid.
    Simulate,
}

/// Options of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Options {
    pub mode: Mode,
    pub memory: Memory,
    pub empty: Empty,
    pub integers: Integers,
}
