//! Values that wait for the way back in 16 bits.
//!
//! A value is rounded behind its last reader in front of the loss and read again behind it: by gradients that take it as it is
//! ([`reads_narrow`]), or through a cast right before its reader. All arithmetic stays in f32, gradients are f32, and so no loss
//! needs to be scaled: what is rounded are activations alone. What a ReLU lets through stays the same ([`RectifiedCast`]). Values whose digits decide something stay as they are: what a pool or
//! a maximum chose from, what a loss or an op of a network's own reads, indices, statistics, and what is small.

use std::collections::BTreeMap;

use super::StepPhase;
use crate::graph::{Graph, Node, NodeId, Value, ValueId, ValueSource};
use crate::ops::{BatchNorm, Binary, BinaryKind, Cast, Op, RectifiedCast};
use crate::{DType, Dim};

/// A value with at most so many numbers for each sample is small.
const SMALL: i64 = 1 << 13;

impl Graph {
    /// The same training step, whose way back finds large values as `dtype`.
    pub fn keeping(mut self, dtype: DType) -> Self {
        let forward = self.forward_count();
        let readers = self.readers();
        let mut kept = Vec::new();
        for value in self.kept(forward) {
            let behind = readers[value.0].iter().filter(|&&reader| reader >= forward);
            let bears = behind
                .clone()
                .all(|&reader| self.bears_rounding(&readers, reader));
            if bears && self.is_large(value) {
                kept.push(value);
            }
        }
        let mut narrowed: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        // The casts behind each node of the way to the loss.
        let mut casts: BTreeMap<usize, Vec<Node>> = BTreeMap::new();
        let mut new = NewNodes {
            next_id: self.nodes.len(),
            taken: BTreeMap::new(),
        };
        for value in kept {
            let before = readers[value.0].iter().filter(|&&reader| reader < forward);
            let ValueSource::Node(maker, _) = self.value(value).source else {
                continue;
            };
            let last = before.copied().max().unwrap_or(maker.0);
            let name = format!("{}.kept", self.node(maker).name);
            let mut cast = new.cast(&mut self, maker, name, value, dtype);
            if let Some((norm, operands)) = self.rectified_norm_of(&readers, value) {
                cast.op = RectifiedCast { norm, dtype }.into();
                cast.inputs.extend(operands);
            }
            narrowed.insert(value, cast.outputs[0]);
            casts.entry(last).or_default().push(cast);
        }
        let mut nodes = Vec::new();
        for (index, mut node) in self.nodes.clone().into_iter().enumerate() {
            if index < forward {
                nodes.push(node);
                nodes.extend(casts.remove(&index).unwrap_or_default());
                continue;
            }
            let mut wide: BTreeMap<ValueId, ValueId> = BTreeMap::new();
            for position in 0..node.inputs.len() {
                let value = node.inputs[position];
                let Some(&narrow) = narrowed.get(&value) else {
                    continue;
                };
                if reads_narrow(&node.op, position) {
                    node.inputs[position] = narrow;
                    continue;
                }
                node.inputs[position] = *wide.entry(value).or_insert_with(|| {
                    let layer = StepPhase::of_node(&node.name).1;
                    let name = format!("{layer}.grad_kept");
                    let cast = new.cast(&mut self, node.id, name, narrow, DType::F32);
                    let made = cast.outputs[0];
                    nodes.push(cast);
                    made
                });
            }
            nodes.push(node);
        }
        self.set_nodes(nodes);
        self
    }

    /// The batch norm of a value that has a ReLU behind it, with its weight, bias, mean and variance.
    fn rectified_norm_of(
        &self,
        readers: &[Vec<usize>],
        value: ValueId,
    ) -> Option<(BatchNorm, [ValueId; 4])> {
        let readers = || readers[value.0].iter().map(|&reader| &self.nodes[reader]);
        let is_rectified =
            |node: &Node| matches!(&node.op, Op::BatchNormGradient(g) if g.rectified);
        if !readers().any(is_rectified) {
            return None;
        }
        readers().find_map(|node| match &node.op {
            Op::BatchNormTraining(training) => {
                let [weight, bias] = [node.inputs[1], node.inputs[2]];
                let operands = [weight, bias, node.outputs[1], node.outputs[2]];
                Some((training.norm.clone(), operands))
            }
            _ => None,
        })
    }

    /// Whether a node of the way back does with a rounded value.
    fn bears_rounding(&self, readers: &[Vec<usize>], reader: usize) -> bool {
        let node = &self.nodes[reader];
        match &node.op {
            Op::ActivationGradient(_)
            | Op::AttentionGradient(_)
            | Op::BatchNormGradient(_)
            | Op::Conv2d(_)
            | Op::Conv2dWeightGradient(_)
            | Op::LayerNormGradient(_)
            | Op::Linear(_)
            | Op::MatMul(_)
            | Op::SparseConv3dWeightGradient(_) => true,
            Op::Binary(Binary { kind }) => *kind == BinaryKind::Mul,
            // What is made of it must bear it too.
            Op::Activation(_)
            | Op::Affine(_)
            | Op::BatchNormAgain(_)
            | Op::LayerNorm(_)
            | Op::Permute(_)
            | Op::RandomDropout(_)
            | Op::Reshape(_) => {
                let mut next = readers[node.outputs[0].0].iter();
                next.all(|&next| self.bears_rounding(readers, next))
            }
            _ => false,
        }
    }

    fn is_large(&self, value: ValueId) -> bool {
        let ty = &self.value(value).ty;
        let samples = Dim::symbol("N");
        let each: Dim = ty.shape.iter().filter(|dim| **dim != samples).product();
        let is_small = each.as_const().is_some_and(|each| each <= SMALL);
        ty.dtype == DType::F32 && !is_small
    }
}

/// Whether an op has kernels that read this operand in 16 bits.
fn reads_narrow(op: &Op, operand: usize) -> bool {
    let reads = matches!(
        op,
        Op::ActivationGradient(_) | Op::BatchNormAgain(_) | Op::BatchNormGradient(_)
    );
    reads && operand == 0
}

/// Casts that are on their way into a graph.
struct NewNodes {
    next_id: usize,
    /// How often each name was given.
    taken: BTreeMap<String, usize>,
}

impl NewNodes {
    /// A cast beside another node.
    fn cast(
        &mut self,
        graph: &mut Graph,
        beside: NodeId,
        name: String,
        value: ValueId,
        dtype: DType,
    ) -> Node {
        let count = self.taken.entry(name.clone()).or_insert(0);
        *count += 1;
        let name = match *count {
            1 => name,
            count => format!("{name}_{count}"),
        };
        let made = ValueId(graph.values.len());
        let id = NodeId(self.next_id);
        self.next_id += 1;
        let mut ty = graph.value(value).ty.clone();
        ty.dtype = dtype;
        let source = ValueSource::Node(id, 0);
        graph.values.push(Value { ty, source });
        Node {
            id,
            name,
            op: Cast { dtype }.into(),
            inputs: vec![value],
            outputs: vec![made],
            params: Vec::new(),
            scope: graph.node(beside).scope,
            is_module: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BatchNorm, Builder, Conv2d, CrossEntropy, MaxPool2d, Optimiser, Recompute, Reduce,
        ReduceKind, Sgd, Training,
    };

    fn step() -> Graph {
        let mut b = Builder::new("Net");
        let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
        let x = b.input("image", [n.clone(), 3.into(), h, w]);
        let x = b.conv2d("stem", x, Conv2d::new(3, 4, 3).padding(1).no_bias());
        let x = b.batch_norm("stem_bn", x, BatchNorm::new(4));
        let x = b.relu("stem_relu", x);
        let pool = MaxPool2d {
            kernel: 2,
            stride: 2,
            padding: 0,
        };
        let x = b.leaf("pool", pool, &[x]);
        let y = b.conv2d("conv", x, Conv2d::new(4, 4, 3).padding(1).no_bias());
        let y = b.batch_norm("bn", y, BatchNorm::new(4));
        let y = b.relu("relu", y);
        let y = b.conv2d("last", y, Conv2d::new(4, 4, 1));
        let (kind, axes) = (ReduceKind::Mean, vec![2, 3]);
        let y = b.call("mean", Reduce { kind, axes }, &[y]);
        let y = b.flatten("flatten", y, 1);
        let y = b.linear("head", y, 4, 2);
        let labels = b.integer_input("labels", [n]);
        let loss = b.call("loss", CrossEntropy { smoothing: 0.0 }, &[y, labels]);
        b.output("loss", loss);
        let training = Training {
            optimiser: Optimiser::Sgd(Sgd::default()),
            clip_norm: None,
        };
        let graph = training.graph(b.finish().unwrap(), "loss", |_| true);
        graph.unwrap()
    }

    fn rounded(graph: &Graph) -> Vec<&str> {
        let names = graph.nodes().iter().map(|node| node.name.as_str());
        names
            .filter_map(|name| name.strip_suffix(".kept"))
            .collect()
    }

    #[test]
    fn large_values_are_rounded_and_those_whose_digits_decide_are_not() {
        let graph = step().keeping(DType::F16);
        // Not the input of the pool, whose gradient asks which was the largest; not the head's, which is small.
        assert_eq!(rounded(&graph), ["stem", "pool", "conv", "relu"]);
        let back: Vec<&str> = graph
            .nodes()
            .iter()
            .map(|node| node.name.as_str())
            .filter(|name| name.contains(".grad_kept"))
            .collect();
        assert_eq!(back, ["last.grad_kept", "conv.grad_kept"]);
        let narrow = |name: &str| {
            let node = graph.nodes().iter().find(|node| node.name == name).unwrap();
            graph.value(node.inputs[0]).ty.dtype
        };
        assert_eq!(narrow("bn.grad"), DType::F16);
        assert_eq!(narrow("last.grad_weight"), DType::F32);
        let casts = graph
            .nodes()
            .iter()
            .position(|node| node.name == "conv.kept");
        let norm = graph.nodes().iter().position(|node| node.name == "bn");
        assert_eq!(
            casts,
            norm.map(|norm| norm + 1),
            "f32 ends with its last reader"
        );
    }

    #[test]
    fn what_is_computed_again_for_a_pool_is_not_made_of_rounded_values() {
        let what = Recompute {
            elementwise: true,
            ..Recompute::default()
        };
        let graph = step().recomputing(&what).unwrap().keeping(DType::BF16);
        assert_eq!(rounded(&graph), ["pool", "conv"]);
    }
}
