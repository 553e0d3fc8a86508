//! What an op's gradient rule sees and gives.

use crate::graph::{Node, ValueId};
use crate::ops::{Binary, BinaryKind, Op, Reduce, ReduceKind, Reshape};
use crate::{Builder, Dim};

/// The duty of every op in training: its vector-Jacobian product.
pub trait Differentiable {
    /// Gives the gradients of the inputs that [`Backward::wants`], as nodes behind the gradients of the outputs. An error
    /// says why there is none. A selection gives nothing: its output is piecewise constant.
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String>;
}

/// One node on the way back: the gradients of its outputs are known, those of its inputs are wanted.
pub struct Backward<'a> {
    pub(super) builder: &'a mut Builder,
    pub(super) node: &'a Node,
    pub(super) output_gradients: &'a [Option<ValueId>],
    pub(super) wanted: Vec<bool>,
    pub(super) given: Vec<Option<ValueId>>,
}

impl Backward<'_> {
    /// An input of the node; its parameters follow its operands.
    pub fn input(&self, position: usize) -> ValueId {
        self.node.inputs[position]
    }

    /// An output of the node.
    pub fn output(&self, position: usize) -> ValueId {
        self.node.outputs[position]
    }

    /// How many inputs the node has.
    pub fn input_count(&self) -> usize {
        self.node.inputs.len()
    }

    /// How many outputs the node has.
    pub fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// The shape of a value.
    pub fn shape(&self, value: ValueId) -> Vec<Dim> {
        self.builder.shape(value)
    }

    /// Whether a value is made of numbers that a small change makes sense for.
    pub fn is_float(&self, value: ValueId) -> bool {
        self.builder.graph().value(value).ty.dtype.is_float()
    }

    /// The gradient of an output, when the loss depends on it.
    pub fn output_gradient(&self, position: usize) -> Option<ValueId> {
        self.output_gradients[position]
    }

    /// The gradient of the first output.
    pub fn dy(&self) -> Result<ValueId, String> {
        self.output_gradients[0]
            .ok_or_else(|| "the loss reads its statistics, not its output".to_owned())
    }

    /// Whether the gradient of an input is asked for.
    pub fn wants(&self, position: usize) -> bool {
        self.wanted.get(position).copied().unwrap_or(false)
    }

    /// Adds a node named after this one, with a suffix.
    pub fn call(&mut self, suffix: &str, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.call_many(suffix, op, inputs)[0]
    }

    /// Adds a node with several outputs.
    pub fn call_many(
        &mut self,
        suffix: &str,
        op: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Vec<ValueId> {
        self.call_with(suffix, op, inputs, &[])
    }

    /// Adds a node whose parameters are these values.
    pub fn call_with(
        &mut self,
        suffix: &str,
        op: impl Into<Op>,
        inputs: &[ValueId],
        params: &[ValueId],
    ) -> Vec<ValueId> {
        let name = format!("{}.{suffix}", self.node.name);
        self.builder
            .append(self.node.scope, &name, op.into(), inputs, params)
    }

    /// a ∘ b.
    pub fn binary(&mut self, suffix: &str, kind: BinaryKind, a: ValueId, b: ValueId) -> ValueId {
        self.call(suffix, Binary { kind }, &[a, b])
    }

    /// The same elements under another shape; the value itself when it has the shape.
    pub fn reshape(&mut self, suffix: &str, value: ValueId, shape: Vec<Dim>) -> ValueId {
        if self.shape(value) == shape {
            return value;
        }
        self.call(suffix, Reshape { shape }, &[value])
    }

    /// The sum over axes, which go.
    pub fn sum_away(&mut self, suffix: &str, value: ValueId, axes: Vec<usize>) -> ValueId {
        let shape = self.shape(value);
        let kept = (0..shape.len()).filter(|axis| !axes.contains(axis));
        let kept: Vec<Dim> = kept.map(|axis| shape[axis].clone()).collect();
        let kind = ReduceKind::Sum;
        let sum = self.call(suffix, Reduce { kind, axes }, &[value]);
        self.reshape(suffix, sum, kept)
    }

    /// Sums what broadcasting repeated: the adjoint of broadcasting from `shape`.
    pub fn unbroadcast(&mut self, suffix: &str, gradient: ValueId, shape: Vec<Dim>) -> ValueId {
        let wide = self.shape(gradient);
        let missing = wide.len() - shape.len();
        let repeated = |axis: usize| axis < missing || shape[axis - missing] != wide[axis];
        let axes: Vec<usize> = (0..wide.len()).filter(|&axis| repeated(axis)).collect();
        if axes.is_empty() {
            return gradient;
        }
        let kind = ReduceKind::Sum;
        let sum = self.call(suffix, Reduce { kind, axes }, &[gradient]);
        self.reshape(suffix, sum, shape)
    }

    /// Gives the gradient of an input.
    pub fn give(&mut self, position: usize, gradient: ValueId) {
        self.given[position] = Some(gradient);
    }
}
