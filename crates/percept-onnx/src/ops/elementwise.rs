//! Activations, arithmetic on elements, and reductions.

use percept_graph::{
    Activation, Affine, Binary, BinaryKind, DType, Dropout, LayerScale, Node, Reduce, ReduceKind,
    Softmax,
};

use super::{Done, Names, ToOnnx};
use crate::lowering::Lowering;
use crate::schema::Attribute::{Float, Int};
use crate::schema::type_code;

impl ToOnnx for Activation {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        match *self {
            Activation::Relu => l.define(node, "Relu", inputs, vec![]),
            Activation::LeakyRelu { slope } => {
                l.define(node, "LeakyRelu", inputs, vec![("alpha", Float(slope))]);
            }
            Activation::Sigmoid => l.define(node, "Sigmoid", inputs, vec![]),
            Activation::Tanh => l.define(node, "Tanh", inputs, vec![]),
            Activation::Silu => {
                let gate = l.step(node, "sigmoid", "Sigmoid", inputs.clone(), vec![]);
                l.define(node, "Mul", [inputs, vec![gate]].concat(), vec![]);
            }
            // x · (1 + erf(x / √2)) / 2: in this order engines recognise and fuse it.
            Activation::Gelu => {
                let x = inputs[0].clone();
                let root = l.scalar(node, "sqrt2", std::f32::consts::SQRT_2);
                let one = l.scalar(node, "one", 1.0);
                let half = l.scalar(node, "half", 0.5);
                let scaled = l.step(node, "scaled", "Div", vec![x.clone(), root], vec![]);
                let erf = l.step(node, "erf", "Erf", vec![scaled], vec![]);
                let shifted = l.step(node, "shifted", "Add", vec![erf, one], vec![]);
                let product = l.step(node, "product", "Mul", vec![x, shifted], vec![]);
                l.define(node, "Mul", vec![product, half], vec![]);
            }
        }
        Ok(())
    }
}

impl ToOnnx for Softmax {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        l.define(node, "Softmax", inputs, vec![("axis", Int(-1))]);
        Ok(())
    }
}

impl ToOnnx for Binary {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let name = match self.kind {
            BinaryKind::Add => "Add",
            BinaryKind::Sub => "Sub",
            BinaryKind::Mul => "Mul",
            BinaryKind::Div => "Div",
            BinaryKind::Max => "Max",
            BinaryKind::Min => "Min",
            BinaryKind::Greater => "Greater",
            BinaryKind::Equal => "Equal",
        };
        if matches!(self.kind, BinaryKind::Greater | BinaryKind::Equal) {
            // ONNX compares to truths, a graph to the numbers 0 and 1.
            let truth = l.step(node, "truth", name, inputs, vec![]);
            let number = vec![("to", Int(type_code(DType::F32)))];
            l.define(node, "Cast", vec![truth], number);
        } else {
            l.define(node, name, inputs, vec![]);
        }
        Ok(())
    }
}

impl ToOnnx for LayerScale {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        inputs.push(l.weight(node, 0));
        l.define(node, "Mul", inputs, vec![]);
        Ok(())
    }
}

/// x · scale / divisor + shift.
impl ToOnnx for Affine {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        let divisor = self.divisor.eval(l.bindings)? as f64;
        let scale = (f64::from(self.scale) / divisor) as f32;
        inputs.push(l.scalar(node, "scale", scale));
        let scaled = l.step(node, "scaled", "Mul", inputs, vec![]);
        let shift = l.scalar(node, "shift", self.shift);
        l.define(node, "Add", vec![scaled, shift], vec![]);
        Ok(())
    }
}

impl ToOnnx for Dropout {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        l.alias(node.outputs[0], inputs.remove(0));
        Ok(())
    }
}

impl ToOnnx for Reduce {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        let name = match self.kind {
            ReduceKind::Sum => "ReduceSum",
            ReduceKind::Mean => "ReduceMean",
            ReduceKind::Max => "ReduceMax",
            ReduceKind::Min => "ReduceMin",
        };
        inputs.push(l.integers(node, "axes", self.axes.iter().copied()));
        // No axes means none here, but all in ONNX.
        let attributes = vec![("keepdims", Int(1)), ("noop_with_empty_axes", Int(1))];
        l.define(node, name, inputs, attributes);
        Ok(())
    }
}
