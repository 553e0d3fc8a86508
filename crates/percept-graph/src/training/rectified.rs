//! The gradient of a ReLU behind a batch norm, within the norm's own: the norm's input tells what the ReLU let through, so the way
//! back reads one value instead of two, and passes over the gradient once less.

use std::collections::BTreeSet;

use crate::graph::{Graph, NodeId, ValueId, ValueSource};
use crate::ops::{Activation, ActivationGradient, Op};

impl Graph {
    /// The same training step with the gradients of batch norms and of the ReLUs behind them in one.
    pub(super) fn with_rectified_norms(mut self) -> Self {
        let readers = self.readers();
        let mut gone = BTreeSet::new();
        let mut nodes = self.nodes.clone();
        for node in &mut nodes {
            let Op::BatchNormGradient(gradient) = &mut node.op else {
                continue;
            };
            let Some(slope) = self.source(node.inputs[1]) else {
                continue;
            };
            let slope = &self.nodes[slope.0];
            let is_relu = matches!(
                slope.op,
                Op::ActivationGradient(ActivationGradient {
                    activation: Activation::Relu
                })
            );
            if !is_relu || readers[slope.outputs[0].0].len() > 1 {
                continue;
            }
            if let Some(bias) = self.bias_of_rectified(slope.inputs[0], node.inputs[0]) {
                gradient.rectified = true;
                node.inputs[1] = slope.inputs[1];
                node.inputs.push(bias);
                gone.insert(slope.id);
            }
        }
        nodes.retain(|node| !gone.contains(&node.id));
        self.set_nodes(nodes);
        self
    }

    /// The bias of the batch norm of `x` that `y` is the ReLU of.
    fn bias_of_rectified(&self, y: ValueId, x: ValueId) -> Option<ValueId> {
        let relu = &self.nodes[self.source(y)?.0];
        let norm = &self.nodes[self.source(*relu.inputs.first()?)?.0];
        let is_norm = matches!(norm.op, Op::BatchNormTraining(_)) && norm.inputs[0] == x;
        let is_relu = matches!(relu.op, Op::Activation(Activation::Relu));
        (is_relu && is_norm).then(|| norm.inputs[2])
    }

    fn source(&self, value: ValueId) -> Option<NodeId> {
        match self.value(value).source {
            ValueSource::Node(id, _) => Some(id),
            _ => None,
        }
    }
}
