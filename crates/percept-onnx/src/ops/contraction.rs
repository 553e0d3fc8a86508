//! Convolutions, linear layers, products and attention.

use percept_graph::{Attention, Conv2d, ConvTranspose2d, Linear, LinearWeight, MatMul, Node, Per};

use super::{Done, Names, ToOnnx, ints, pads};
use crate::lowering::{Lowering, unsupported};
use crate::schema::Attribute::{self, Int};

fn conv_attributes(conv: &Conv2d) -> Vec<(&'static str, Attribute)> {
    vec![
        ("kernel_shape", ints(conv.kernel)),
        ("strides", ints(conv.stride)),
        ("pads", pads(conv.padding)),
        ("dilations", ints(conv.dilation)),
        ("group", Int(conv.groups as i64)),
    ]
}

/// A convolution along rows stays one on maps of height 1.
impl ToOnnx for Conv2d {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        if let Some(layer) = l.integer_layer(node) {
            inputs.push(l.weight_integers(node, self.kernel_shape().into(), false));
            let sums = l.step(node, "sums", "Conv", inputs, conv_attributes(self));
            l.finish_sums(layer, sums, 2);
            return Ok(());
        }
        inputs.push(l.shaped_weight(node, self.kernel_shape()));
        inputs.extend((1..node.params.len()).map(|i| l.weight(node, i)));
        l.define(node, "Conv", inputs, conv_attributes(self));
        Ok(())
    }
}

impl ToOnnx for ConvTranspose2d {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        let mut attributes = conv_attributes(&self.conv);
        attributes.push(("output_padding", ints(self.output_padding)));
        if let Some(layer) = l.integer_layer(node) {
            let weight = l.graph.param(node.params[0]);
            let (shape, per) = (weight.shape.clone(), weight.grid.map(|grid| grid.per));
            // Sums run over input channels: where each has a scale of its own, weights are numbers.
            inputs.push(match per {
                Some(Per::Tensor) => l.weight_integers(node, shape, false),
                _ => l.weight(node, 0),
            });
            let sums = l.step(node, "sums", "ConvTranspose", inputs, attributes);
            l.finish_sums(layer, sums, 2);
            return Ok(());
        }
        inputs.extend((0..node.params.len()).map(|i| l.weight(node, i)));
        l.define(node, "ConvTranspose", inputs, attributes);
        Ok(())
    }
}

/// Gemm takes matrices only; for more axes MatMul broadcasts a weight that is stored as [in, out].
impl ToOnnx for Linear {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, mut inputs: Names) -> Done {
        if self.weight != LinearWeight::Matrix {
            return Err(unsupported(node, "its weight is stored as a convolution's"));
        }
        if let Some(layer) = l.integer_layer(node) {
            inputs.push(l.weight_integers(node, vec![self.in_features, self.out_features], true));
            let sums = l.step(node, "sums", "MatMul", inputs, vec![]);
            l.finish_sums(layer, sums, 0);
            return Ok(());
        }
        let has_bias = node.params.len() == 2;
        if l.shape(node.inputs[0])?.len() == 2 {
            inputs.extend((0..node.params.len()).map(|i| l.weight(node, i)));
            l.define(node, "Gemm", inputs, vec![("transB", Int(1))]);
            return Ok(());
        }
        inputs.push(l.transposed_weight(node));
        if has_bias {
            let product = l.step(node, "product", "MatMul", inputs, vec![]);
            let bias = l.weight(node, 1);
            l.define(node, "Add", vec![product, bias], vec![]);
        } else {
            l.define(node, "MatMul", inputs, vec![]);
        }
        Ok(())
    }
}

impl ToOnnx for MatMul {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let transposed = [(self.transpose_a, "a"), (self.transpose_b, "b")];
        let mut operands = Vec::new();
        for (index, (name, (transpose, suffix))) in inputs.into_iter().zip(transposed).enumerate() {
            operands.push(if transpose {
                let rank = l.shape(node.inputs[index])?.len();
                let order = ints((0..rank - 2).chain([rank - 1, rank - 2]));
                l.step(node, suffix, "Transpose", vec![name], vec![("perm", order)])
            } else {
                name
            });
        }
        l.define(node, "MatMul", operands, vec![]);
        Ok(())
    }
}

/// softmax(q kᵀ · scale) v on heads [N, heads, T, D / heads].
impl ToOnnx for Attention {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let [n, t, _] = l
            .shape(node.inputs[0])?
            .try_into()
            .expect("the shape rule has passed");
        let parts = ["q", "k", "v"].map(|part| format!("{}/{part}", node.name));
        let split = format!("{}/split", node.name);
        l.push(
            split,
            "Split",
            inputs,
            parts.to_vec(),
            vec![("axis", Int(2)), ("num_outputs", Int(3))],
        );
        let heads_shape = l.integers(node, "heads_shape", [n, t, self.heads, self.head_width()]);
        let orders = [
            ("q", [0, 2, 1, 3]),
            ("k", [0, 2, 3, 1]),
            ("v", [0, 2, 1, 3]),
        ];
        let mut heads = Vec::new();
        for (part, (name, order)) in parts.into_iter().zip(orders) {
            let inputs = vec![part, heads_shape.clone()];
            let split = l.step(node, &format!("{name}_heads"), "Reshape", inputs, vec![]);
            let perm = vec![("perm", ints(order))];
            heads.push(l.step(
                node,
                &format!("{name}_ready"),
                "Transpose",
                vec![split],
                perm,
            ));
        }
        let [q, k, v] = heads.try_into().expect("three parts");
        let scale = l.scalar(node, "scale", 1.0 / (self.head_width() as f32).sqrt());
        let q = l.step(node, "q_scaled", "Mul", vec![q, scale], vec![]);
        let scores = l.step(node, "scores", "MatMul", vec![q, k], vec![]);
        let weights = l.step(
            node,
            "weights",
            "Softmax",
            vec![scores],
            vec![("axis", Int(-1))],
        );
        let mixed = l.step(node, "mixed", "MatMul", vec![weights, v], vec![]);
        let perm = vec![("perm", ints([0, 2, 1, 3]))];
        let tokens = l.step(node, "tokens", "Transpose", vec![mixed], perm);
        let shape = l.integers(node, "shape", [n, t, self.width]);
        l.define(node, "Reshape", vec![tokens, shape], vec![]);
        Ok(())
    }
}
