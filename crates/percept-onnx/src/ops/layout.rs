//! Ops that move data, pick rows of it, or make it.

use percept_graph::{
    Concat, Constant, DType, Expand, Gather, Node, Pad, ParameterValue, Permute, Reshape,
    ScatterAdd, Slice,
};

use super::{Done, Names, ToOnnx, ints};
use crate::lowering::Lowering;
use crate::schema::Attribute::{Int, Text};
use crate::schema::type_code;

impl ToOnnx for Reshape {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        let shape = l.shape(node.outputs[0])?;
        inputs.push(l.integers(node, "shape", shape));
        // A size of 0 is 0, not "as in the input".
        l.define(node, "Reshape", inputs, vec![("allowzero", Int(1))]);
        Ok(())
    }
}

impl ToOnnx for Permute {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let order = ints(self.order.iter().copied());
        l.define(node, "Transpose", inputs, vec![("perm", order)]);
        Ok(())
    }
}

impl ToOnnx for Concat {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let axis = vec![("axis", Int(self.axis as i64))];
        l.define(node, "Concat", inputs, axis);
        Ok(())
    }
}

impl ToOnnx for Slice {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        let (start, length) = (self.start.eval(l.bindings)?, self.length.eval(l.bindings)?);
        inputs.push(l.integers(node, "starts", [start]));
        inputs.push(l.integers(node, "ends", [start + length]));
        inputs.push(l.integers(node, "axes", [self.axis]));
        l.define(node, "Slice", inputs, vec![]);
        Ok(())
    }
}

impl ToOnnx for Expand {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        let shape = l.shape(node.outputs[0])?;
        inputs.push(l.integers(node, "shape", shape));
        l.define(node, "Expand", inputs, vec![]);
        Ok(())
    }
}

impl ToOnnx for Pad {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        let pads = [self.before.eval(l.bindings)?, self.after.eval(l.bindings)?];
        inputs.push(l.integers(node, "pads", pads));
        // An empty name leaves the value out: zeros.
        inputs.push(String::new());
        inputs.push(l.integers(node, "axes", [self.axis]));
        l.define(node, "Pad", inputs, vec![]);
        Ok(())
    }
}

impl ToOnnx for Gather {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        l.define(node, "Gather", inputs, vec![("axis", Int(0))]);
        Ok(())
    }
}

/// Sums scattered into zeros.
impl ToOnnx for ScatterAdd {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let (rows, shape) = (l.shape(node.inputs[1])?, l.shape(node.outputs[0])?);
        let zeros = l.filled(node, "zeros", 0.0, shape);
        let to = vec![("to", Int(type_code(DType::I64)))];
        let wide = l.step(node, "indices", "Cast", vec![inputs[1].clone()], to);
        let column = l.integers(node, "column", [rows[0], 1]);
        let column = l.step(node, "rows", "Reshape", vec![wide, column], vec![]);
        let operands = vec![zeros, column, inputs[0].clone()];
        l.define(
            node,
            "ScatterND",
            operands,
            vec![("reduction", Text("add"))],
        );
        Ok(())
    }
}

impl ToOnnx for ParameterValue {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, _: Names) -> Done {
        let name = l.weight(node, 0);
        l.alias(node.outputs[0], name);
        Ok(())
    }
}

impl ToOnnx for Constant {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, _: Names) -> Done {
        let shape = l.shape(node.outputs[0])?;
        let name = l.filled(node, "value", self.value, shape);
        l.alias(node.outputs[0], name);
        Ok(())
    }
}
