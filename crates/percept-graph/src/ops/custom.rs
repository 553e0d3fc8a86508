//! Ops that a model brings itself: matching, selection, non-maximum suppression.
//!
//! A custom op has the duties of any other op and computes on plain tensors. It may define symbols: when
//! its shape rule names a symbol that no input has, the run binds it to the size that came out.

use std::fmt::Debug;

use super::Operator;
use crate::Tensor;

/// An op outside the built-in families.
pub trait CustomOp: Operator + Debug + Send + Sync {
    /// This op as a plain operator.
    fn as_operator(&self) -> &dyn Operator;

    /// Computes the outputs; the message of an error names what was wrong with the inputs.
    fn run(&self, inputs: &[(&[usize], &[f32])]) -> Result<Vec<Tensor>, String>;
}
