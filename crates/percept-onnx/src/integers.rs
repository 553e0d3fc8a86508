//! Layers in integers: which there are, what they read, and how their sums become numbers.

use percept_graph::{Node, NodeId, Op, ValueId};

use crate::lowering::{Data, Lowering};

/// A layer behind a quantiser, with the batch norm or layer scale that is folded into what its sums are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntegerLayer {
    pub(crate) node: NodeId,
    pub(crate) follower: Option<NodeId>,
}

impl Lowering<'_> {
    /// Whether a node multiplies integers. Quantisers with other than static ranges are refused where they stand.
    pub(crate) fn integer_layer(&self, node: &Node) -> Option<IntegerLayer> {
        self.graph.grids(node)?;
        let follower = self.followers.get(&node.id).copied();
        // Names stand between some.
        let follower = follower.filter(|&id| self.graph.node(id).inputs[0] == node.outputs[0]);
        Some(IntegerLayer {
            node: node.id,
            follower,
        })
    }

    /// Whether a value is an output, or read by a node that takes numbers and not the integers that stand for them.
    pub(crate) fn is_read_as_numbers(&self, value: ValueId) -> bool {
        let mut outputs = self.graph.outputs().iter();
        let mut nodes = self.graph.nodes().iter();
        outputs.any(|(_, output)| *output == value)
            || nodes.any(|node| node.inputs.contains(&value) && self.integer_layer(node).is_none())
    }

    /// Makes numbers of the sums of a layer in integers, whose channels `axes` more axes follow: `sum · factor + shift`.
    pub(crate) fn finish_sums(&mut self, layer: IntegerLayer, sums: String, axes: usize) {
        let node = self.graph.node(layer.node);
        let last = self.graph.node(layer.follower.unwrap_or(layer.node));
        let channels = match &node.op {
            Op::Conv2d(conv) => conv.out_channels,
            Op::ConvTranspose2d(op) => op.conv.out_channels,
            Op::Linear(op) => op.out_features,
            _ => unreachable!("only layers have grids"),
        };
        let mut shape = vec![1; axes + 1];
        shape[0] = channels;
        let name = format!("{}/factors", node.name);
        let factors = self.constant(&name, shape.clone(), Data::Factors(layer));
        if node.params.len() == 1 && layer.follower.is_none() {
            return self.define(last, "Mul", vec![sums, factors], vec![]);
        }
        let scaled = self.step(node, "scaled", "Mul", vec![sums, factors], vec![]);
        let name = format!("{}/shifts", node.name);
        let shifts = self.constant(&name, shape, Data::Shifts(layer));
        self.define(last, "Add", vec![scaled, shifts], vec![]);
    }

    /// Names the integers, as floats, of a value that a quantiser rounds.
    pub(crate) fn set_integers(&mut self, value: ValueId, name: String) {
        self.integers.insert(value, name);
    }

    /// The integers of a layer's weight, as floats; a matrix may be stored as [columns, rows].
    pub(crate) fn weight_integers(
        &mut self,
        node: &Node,
        shape: Vec<usize>,
        transposed: bool,
    ) -> String {
        let param = self.graph.param(node.params[0]);
        let integers = Data::Integers {
            param: node.params[0],
            grid: param.grid.expect("the weight of a quantised layer"),
            transposed,
        };
        let integers = self.constant(&format!("{}.integers", param.name), shape, integers);
        let one = self.scalar(node, "one", 1.0);
        let inputs = vec![integers, one];
        self.step(node, "weight", "DequantizeLinear", inputs, vec![])
    }
}
