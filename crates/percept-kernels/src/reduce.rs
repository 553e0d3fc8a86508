//! Reductions over any axes.

/// What a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The mean.
    Mean,
    /// The largest number.
    Max,
    /// The smallest number.
    Min,
    /// The variance, dividing by count - correction (0: population, 1: unbiased).
    Variance {
        /// What is subtracted from the count.
        correction: u32,
    },
}
