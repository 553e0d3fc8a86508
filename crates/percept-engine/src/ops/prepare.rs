//! What an op decides its kernel from.

use std::borrow::Cow;
use std::sync::Arc;

use percept_graph::{Bindings, DType, Graph, Node, Operator};
use percept_kernels::{Activation, Cpu, Epilogue};

use super::activation::kernel_activation;
use crate::EngineError;
use crate::bytes::{ByteForm, ByteForms};
use crate::lowering::LoweredNode;
use crate::operands::Operands;
use crate::options::{Integers, Mode};
use crate::precision::{Precision, PrecisionPlan};
use crate::weights::{Form, Packed, Packing, Vector, Weights};

/// A node that needs a kernel, with the sizes of one plan.
pub struct Prepare<'a> {
    /// Where it will run.
    pub cpu: &'a Cpu,
    /// The graph.
    pub graph: &'a Graph,
    /// The node with what was fused into it.
    pub step: &'a LoweredNode,
    /// How exactly to compute.
    pub mode: Mode,
    /// How layers behind a quantiser are computed.
    pub integers: Integers,
    /// In which precision.
    pub precision: &'a PrecisionPlan,
    /// Values that are bytes.
    pub forms: &'a ByteForms,
    /// Shapes of the operands, parameters included where they are values.
    pub inputs: &'a [Vec<usize>],
    /// Shapes of the outputs; `None` when only a run can tell them.
    pub outputs: Option<&'a [Vec<usize>]>,
    /// Every size that is known.
    pub bindings: &'a Bindings,
    /// How often the kernel is called for a batch, each time with as many samples.
    pub turns: usize,
    /// Weights, packed when they are asked for.
    pub weights: &'a mut Weights,
}

impl<'a> Prepare<'a> {
    /// The same for a step that was fused into this one.
    pub fn of<'b>(&'b mut self, step: &'b LoweredNode) -> Prepare<'b> {
        Prepare {
            step,
            weights: &mut *self.weights,
            inputs: &[],
            outputs: None,
            ..*self
        }
    }

    /// The node.
    pub fn node(&self) -> &'a Node {
        self.graph.node(self.step.node)
    }

    /// The shape of the first operand.
    pub fn x(&self) -> &'a [usize] {
        self.inputs.first().map_or(&[], Vec::as_slice)
    }

    /// The shape of the first output.
    pub fn y(&self) -> &'a [usize] {
        let outputs = self.outputs.unwrap_or(&[]);
        outputs.first().map_or(&[], Vec::as_slice)
    }

    /// The element type of the first operand.
    pub fn dtype(&self) -> DType {
        let first = self.node().inputs.first();
        first.map_or(DType::F32, |&value| self.graph.value(value).ty.dtype)
    }

    /// Whether parameters are operands, as in training.
    pub fn parameters_are_values(&self) -> bool {
        self.node().param_values().is_some()
    }

    /// The position of the residual among the operands, when one was fused.
    pub fn residual(&self) -> Option<usize> {
        let residual = self.step.fused.residual;
        residual.map(|_| self.step.reads().count() - 1)
    }

    /// How an operand lies in memory, when it is bytes.
    pub fn operand_form(&self, position: usize) -> Option<ByteForm> {
        let value = self.step.reads().nth(position)?;
        self.forms.get(&value).copied()
    }

    /// How the first output lies in memory, when it is bytes.
    pub fn output_form(&self) -> Option<ByteForm> {
        self.forms.get(self.step.outputs.first()?).copied()
    }

    /// The activation that was fused.
    pub fn activation(&self) -> Activation {
        let fused = self.step.fused.activation;
        fused.map_or(Activation::Identity, kernel_activation)
    }

    /// The packing of this form in the planned precision, which must be one that the op has kernels for.
    pub fn packing(&self, form: Form, kernels: &[Precision]) -> Result<Packing, EngineError> {
        let node = self.node();
        let precision = self.precision.of(&node.name);
        match kernels.contains(&precision) {
            true => Ok(Packing { form, precision }),
            false => Err(EngineError::NoKernel {
                node: node.name.clone(),
                op: node.op.kind(),
                precision,
            }),
        }
    }

    /// The packed weights of a contraction, and its bias. `pack` gets the values and, where something was folded into them,
    /// the factors of the output channels.
    pub fn contraction<P: Packed>(
        &mut self,
        packing: Packing,
        pack: impl FnOnce(Cow<'_, [f32]>, Option<&[f64]>) -> P,
    ) -> Result<(Arc<P>, Option<Vector>), EngineError> {
        let (graph, step) = (self.graph, self.step);
        self.weights.contraction(graph, step, packing, pack)
    }

    /// A parameter as it is, by its position.
    pub fn vector(&mut self, position: usize) -> Result<Vector, EngineError> {
        let node = self.node();
        self.weights.vector(self.graph, node, position)
    }
}

/// What a contraction does with its finished sums: bias, residual (read, or in the output already), activation.
pub fn epilogue<'e>(
    io: &Operands<'e>,
    bias: Option<&'e [f32]>,
    residual: Option<usize>,
    activation: Activation,
) -> Result<Epilogue<'e>, String> {
    let in_place = residual.is_some_and(|position| io.is_in_place(position));
    Ok(Epilogue {
        bias,
        residual: io.read_if(residual.filter(|_| !in_place))?,
        residual_in_place: in_place,
        activation,
    })
}

/// An epilogue that only adds the bias at this position, as in training.
pub fn bias_only<'e>(io: &Operands<'e>, bias: Option<usize>) -> Result<Epilogue<'e>, String> {
    Ok(Epilogue {
        bias: io.read_if(bias)?,
        ..Epilogue::default()
    })
}
