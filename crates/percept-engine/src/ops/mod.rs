//! How each op is executed, one file per family.
//!
//! A family's file has what the engine must know of its ops: the shapes that kernels take, the fast kernel, what it may
//! overwrite, and the slow reference. [`with_op!`] asks for all of it: an op that is added to the graph does not compile
//! before it has its [`Execute`].

mod activation;
mod attention;
mod cast;
mod conv;
mod conv_depthwise;
mod conv_gradient;
mod conv_transpose;
mod custom;
mod elementwise;
mod fake_quantize;
mod gather;
pub mod integers;
mod layout;
mod linear;
mod loss;
mod norm;
mod norm_gradient;
mod normalize;
mod optimiser;
mod points;
mod pool;
mod prepare;
mod random;
mod reduce;
mod reference;
mod resize;
mod source;
mod sparse;
mod sparse_gradient;

use percept_graph::{Op, with_op};
use percept_kernels::reference::Real;

use crate::EngineError;
use crate::kernel::Kernel;

pub use conv_depthwise::has_kernel as has_depthwise_kernel;
pub use prepare::Prepare;
pub use reference::Reference;

/// What the engine asks of an op.
pub trait Execute {
    /// Its kernel for the sizes of one plan: shapes settled, algorithm chosen, weights packed.
    ///
    /// Where parameters are state, they are operands behind the others, and new in every run.
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError>;

    /// Computes it slowly, in f32 or f64. The message of an error says what was wrong with the data.
    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String>;

    /// Outputs that start as an operand and are changed in place: (output, operand).
    fn updates(&self) -> &'static [(usize, usize)] {
        &[]
    }
}

impl Execute for Op {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        with_op!(self, op => op.prepare(at))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        with_op!(self, op => op.reference(run))
    }

    fn updates(&self) -> &'static [(usize, usize)] {
        with_op!(self, op => op.updates())
    }
}
