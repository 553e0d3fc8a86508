//! The order of a step's nodes: new ones between the old, and updates as early as they can be.

use std::collections::BTreeMap;

use super::StepPhase;
use crate::graph::{Graph, Node, NodeId, ScopeChild, ValueId, ValueSource};
use crate::ops::Op;

impl Graph {
    /// Has these nodes, in this order. The ids of new ones are above those of all others; values keep their ids.
    pub(crate) fn set_nodes(&mut self, mut nodes: Vec<Node>) {
        let mut renumbered = BTreeMap::new();
        for (position, node) in nodes.iter_mut().enumerate() {
            let id = NodeId(position);
            renumbered.insert(std::mem::replace(&mut node.id, id), id);
            for (output, value) in node.outputs.iter().enumerate() {
                self.values[value.0].source = ValueSource::Node(id, output);
            }
        }
        for scope in &mut self.scopes {
            scope.children.retain_mut(|child| match child {
                ScopeChild::Node(id) => renumbered.get(id).map(|&new| *id = new).is_some(),
                ScopeChild::Scope(_) => true,
            });
        }
        for (_, &id) in renumbered.range(NodeId(self.nodes.len())..) {
            let scope = nodes[id.0].scope;
            self.scopes[scope.0].children.push(ScopeChild::Node(id));
        }
        self.nodes = nodes;
    }

    /// How many nodes of a training step come before the way back; all of a graph that has none.
    pub(crate) fn forward_count(&self) -> usize {
        let is_back = |node: &Node| StepPhase::of_node(&node.name).0 == StepPhase::Backward;
        let first = self.nodes.iter().position(is_back);
        first.unwrap_or(self.nodes.len())
    }

    /// The same step whose updates come as soon as they can: behind what they read, and behind the last reader of what they
    /// change. So a gradient dies soon. One that is clipped by the norm of all of them has to wait for all.
    pub fn with_early_updates(mut self) -> Self {
        let readers = self.readers();
        // Behind which other node an update comes.
        let mut behind: Vec<usize> = (0..self.nodes.len()).collect();
        for (index, node) in self.nodes.iter().enumerate() {
            if StepPhase::of_node(&node.name).0 != StepPhase::Update {
                continue;
            }
            let inputs = node.inputs.iter();
            let last = inputs.map(|&input| match self.value(input).source {
                ValueSource::Node(id, _) => behind[id.0],
                ValueSource::State(_) => self.last_reader(&readers, input, index).unwrap_or(0),
                ValueSource::Input(_) => 0,
            });
            behind[index] = last.max().unwrap_or(0);
        }
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        // A node of the way itself is behind none but itself, and its own number is smaller than that of its updates.
        order.sort_by_key(|&index| (behind[index], index));
        let nodes = order.iter().map(|&index| self.nodes[index].clone());
        let nodes = nodes.collect();
        self.set_nodes(nodes);
        self
    }

    /// Which nodes read each value.
    pub(crate) fn readers(&self) -> Vec<Vec<usize>> {
        let mut readers = vec![Vec::new(); self.values.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for input in &node.inputs {
                readers[input.0].push(index);
            }
        }
        readers
    }

    /// The last node that reads a value, also by another name, but for `updater`.
    fn last_reader(&self, readers: &[Vec<usize>], value: ValueId, updater: usize) -> Option<usize> {
        let others = readers[value.0].iter().filter(|&&reader| reader != updater);
        let last = others.filter_map(|&reader| match &self.nodes[reader].op {
            Op::Reshape(_) | Op::Dropout(_) | Op::ParameterValue(_) => {
                let by_name = self.last_reader(readers, self.nodes[reader].outputs[0], updater);
                by_name.max(Some(reader))
            }
            _ => Some(reader),
        });
        last.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activation, Builder, Dim, Optimiser, Reduce, ReduceKind, Sgd, Training};

    fn step(clip_norm: Option<f32>) -> Graph {
        let mut b = Builder::new("Net");
        let x = b.input("x", [Dim::symbol("N"), 3.into()]);
        let y = b.linear("first", x, 3, 3);
        let y = b.leaf("act", Activation::Relu, &[y]);
        let y = b.linear("second", y, 3, 2);
        let (kind, axes) = (ReduceKind::Mean, vec![0, 1]);
        let loss = b.call("loss", Reduce { kind, axes }, &[y]);
        b.output("loss", loss);
        let optimiser = Optimiser::Sgd(Sgd::default());
        let training = Training {
            optimiser,
            clip_norm,
        };
        let graph = training.graph(b.finish().unwrap(), "loss", |_| true);
        graph.unwrap().with_early_updates()
    }

    #[test]
    fn an_update_follows_its_gradient_and_the_last_reader_of_its_weight() {
        let graph = step(None);
        let position = |name: &str| {
            let found = graph.nodes().iter().position(|node| node.name == name);
            found.unwrap_or_else(|| panic!("no node {name}"))
        };
        let update = position("optimiser.second.weight");
        assert!(
            update > position("second.grad_input"),
            "it reads the weight"
        );
        assert!(update > position("second.grad_weight"));
        assert!(update < position("first.grad_weight"), "it does not wait");
        for (index, node) in graph.nodes().iter().enumerate() {
            assert_eq!(node.id.index(), index);
            for (output, &value) in node.outputs.iter().enumerate() {
                assert_eq!(
                    graph.value(value).source,
                    ValueSource::Node(node.id, output)
                );
            }
            let known = node
                .inputs
                .iter()
                .all(|&value| match graph.value(value).source {
                    ValueSource::Node(id, _) => id < node.id,
                    _ => true,
                });
            assert!(known, "{} reads what is not there yet", node.name);
        }
    }

    #[test]
    fn clipping_waits_for_every_gradient() {
        let graph = step(Some(1.0));
        let names: Vec<&str> = graph.nodes().iter().map(|n| n.name.as_str()).collect();
        let clip = names.iter().position(|name| *name == "optimiser.clip");
        let after = &names[clip.unwrap() + 1..];
        assert_eq!(after.len(), 4, "{after:?}");
        assert!(after.iter().all(|name| name.starts_with("optimiser.")));
    }
}
