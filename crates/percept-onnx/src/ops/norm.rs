//! Normalisation.

use percept_graph::{BatchNorm, LayerNorm, Node};

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
