//! Normalisation.

use percept_graph::{BatchNorm, LayerNorm, Node, Normalize};

use super::{Done, Names, ToOnnx};
use crate::lowering::Lowering;
use crate::schema::Attribute::{Float, Int};

impl ToOnnx for BatchNorm {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        inputs.extend((0..4).map(|i| l.weight(node, i)));
        let attributes = vec![("epsilon", Float(self.eps))];
        l.define(node, "BatchNormalization", inputs, attributes);
        Ok(())
    }
}

impl ToOnnx for LayerNorm {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        inputs.extend((0..2).map(|i| l.weight(node, i)));
        let attributes = vec![("axis", Int(-1)), ("epsilon", Float(self.eps))];
        l.define(node, "LayerNormalization", inputs, attributes);
        Ok(())
    }
}

/// x / max(‖x‖, eps): ONNX's LpNormalization has no eps.
impl ToOnnx for Normalize {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let axis = l.shape(node.inputs[0])?.len() - 1;
        let operands = vec![inputs[0].clone(), l.integers(node, "axes", [axis])];
        let keep = vec![("keepdims", Int(1))];
        let length = l.step(node, "length", "ReduceL2", operands, keep);
        let eps = l.scalar(node, "eps", self.eps);
        let length = l.step(node, "at_least", "Max", vec![length, eps], vec![]);
        l.define(node, "Div", vec![inputs[0].clone(), length], vec![]);
        Ok(())
    }
}
