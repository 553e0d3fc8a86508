//! Ops that a model brings itself: matching, selection, non-maximum suppression.
//!
//! A custom op has the duties of any other op and computes on typed tensors, with the machine that the run gives it. It may
//! define symbols: when its shape rule names a symbol that no input has, the run binds it to the size that came out.

use std::any::{Any, type_name};
use std::fmt::Debug;
use std::sync::Arc;

use super::{Constant, Op, Operator};
use crate::Tensor;
use crate::training::{Backward, Differentiable};

/// What a custom op is run with besides its inputs.
///
/// Graphs know no machine: the engine hands over the one that it runs on, and the op asks for the kind it was written for.
#[derive(Clone, Copy)]
pub struct OpContext<'a> {
    machine: &'a dyn Any,
}

impl<'a> OpContext<'a> {
    /// A run on this machine: instruction set, threads, working memory.
    pub fn new<M: Any>(machine: &'a M) -> Self {
        Self { machine }
    }

    /// The machine, when it is an `M`.
    pub fn machine<M: Any>(&self) -> Result<&'a M, String> {
        let machine = self.machine.downcast_ref();
        machine.ok_or_else(|| format!("runs on a {} only", type_name::<M>()))
    }
}

/// What a cache did so far, and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// What was asked for and was there.
    pub hits: u64,
    /// What was asked for and had to be made.
    pub misses: u64,
    /// Of the hits, those that came from disk.
    pub from_disk: u64,
    /// What is held in memory.
    pub entries: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// An op outside the built-in families.
pub trait CustomOp: Operator + Debug + Send + Sync {
    /// Computes the outputs; the message of an error names what was wrong with the inputs.
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String>;

    /// Computes f32 outputs whose sizes the inputs tell where they belong, which saves large outputs a copy; `None` when the
    /// op only [runs](CustomOp::run).
    fn run_into(
        &self,
        _context: &OpContext<'_>,
        _inputs: &[Tensor<'_>],
        _outputs: &mut [&mut [f32]],
    ) -> Option<Result<(), String>> {
        None
    }

    /// The op that gives the gradients of this op's floating-point inputs, in their order, without the
    /// [constants](CustomOp::constants). It reads this op's inputs, its outputs and the gradients of its floating-point
    /// outputs, in this order. Without one the op cannot be trained through.
    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        None
    }

    /// What the op keeps from run to run, if it keeps anything, and what that was good for.
    fn cache(&self) -> Option<CacheCounters> {
        None
    }

    /// Positions of floating-point inputs that no gradient flows to: what was cached or detached before.
    fn constants(&self) -> &[usize] {
        &[]
    }
}

impl Differentiable for Arc<dyn CustomOp> {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let gradient = self.gradient().ok_or("the op has no rule for it")?;
        let mut operands: Vec<_> = (0..back.input_count()).map(|i| back.input(i)).collect();
        operands.extend((0..back.output_count()).map(|i| back.output(i)));
        for i in 0..back.output_count() {
            if !back.is_float(back.output(i)) {
                continue;
            }
            let dy = back.output_gradient(i).unwrap_or_else(|| {
                let shape = back.shape(back.output(i));
                back.call("grad_zero", Constant { value: 0.0, shape }, &[])
            });
            operands.push(dy);
        }
        let gradients = back.call_many("grad", Op::Custom(gradient), &operands);
        let smooth = |&i: &usize| back.is_float(back.input(i)) && !self.constants().contains(&i);
        let floats: Vec<usize> = (0..back.input_count()).filter(smooth).collect();
        if floats.len() != gradients.len() {
            let (gave, needed) = (gradients.len(), floats.len());
            return Err(format!(
                "its rule gives {gave} gradients for {needed} inputs"
            ));
        }
        for (position, gradient) in floats.into_iter().zip(gradients) {
            back.give(position, gradient);
        }
        Ok(())
    }
}
