//! A network in integers, as a rewrite: a quantiser in front of layers, and grids for their weights.

use crate::graph::{Graph, Node, NodeId, ScopeChild, Value, ValueId, ValueSource};
use crate::ops::FakeQuantize;
use crate::{InputGrid, WeightGrid};

impl Graph {
    /// The same network with the first operand of some nodes rounded to a grid, and their first parameter said to lie on one.
    /// Nodes that read one value by one grid share a quantiser. Every value keeps its id.
    pub fn quantized(mut self, grids: impl Fn(&Node) -> Option<(WeightGrid, InputGrid)>) -> Self {
        let mut known: Vec<(ValueId, InputGrid, ValueId)> = Vec::new();
        let mut nodes: Vec<Node> = Vec::with_capacity(self.nodes.len());
        // Where each old node comes to stand, and the quantiser that was put in front of it.
        let mut places: Vec<(NodeId, Option<NodeId>)> = Vec::with_capacity(self.nodes.len());
        for mut node in std::mem::take(&mut self.nodes) {
            let mut quantizer = None;
            if let (Some((weight, input)), Some(&x), Some(&param)) =
                (grids(&node), node.inputs.first(), node.params.first())
            {
                self.params[param.index()].grid = Some(weight);
                let shared = known
                    .iter()
                    .find(|(of, grid, _)| (*of, *grid) == (x, input));
                let rounded = match shared {
                    Some((_, _, rounded)) => *rounded,
                    None => {
                        let id = NodeId(nodes.len());
                        let rounded = ValueId(self.values.len());
                        let ty = self.values[x.index()].ty.clone();
                        // The source is renumbered below with those of old nodes, so it stays an input until then.
                        self.values.push(Value {
                            ty,
                            source: ValueSource::Input(usize::MAX),
                        });
                        nodes.push(Node {
                            id,
                            name: format!("{}.{INPUT_QUANTIZER}", node.name),
                            op: FakeQuantize { grid: input }.into(),
                            inputs: vec![x],
                            outputs: vec![rounded],
                            params: Vec::new(),
                            scope: node.scope,
                            is_module: false,
                        });
                        quantizer = Some(id);
                        known.push((x, input, rounded));
                        rounded
                    }
                };
                node.inputs[0] = rounded;
            }
            let id = NodeId(nodes.len());
            places.push((id, quantizer));
            node.id = id;
            nodes.push(node);
        }
        for node in &nodes {
            for (position, output) in node.outputs.iter().enumerate() {
                self.values[output.index()].source = ValueSource::Node(node.id, position);
            }
        }
        for scope in &mut self.scopes {
            let children = std::mem::take(&mut scope.children);
            scope.children = children
                .into_iter()
                .flat_map(|child| match child {
                    ScopeChild::Node(old) => {
                        let (id, quantizer) = places[old.index()];
                        [quantizer, Some(id)].map(|id| id.map(ScopeChild::Node))
                    }
                    scope => [Some(scope), None],
                })
                .flatten()
                .collect();
        }
        self.nodes = nodes;
        self
    }

    /// The grid that a node's input was rounded to, by a quantiser in front of it.
    pub fn input_grid(&self, node: &Node) -> Option<InputGrid> {
        let &x = node.inputs.first()?;
        let ValueSource::Node(id, _) = self.value(x).source else {
            return None;
        };
        match &self.node(id).op {
            crate::Op::FakeQuantize(quantizer) => Some(quantizer.grid),
            _ => None,
        }
    }

    /// The grids of a node's weights and input, where it was quantised.
    pub fn grids(&self, node: &Node) -> Option<(WeightGrid, InputGrid)> {
        let weight = self.param(*node.params.first()?).grid?;
        Some((weight, self.input_grid(node)?))
    }
}

/// The last part of a quantiser's name, behind that of the layer.
pub const INPUT_QUANTIZER: &str = "input_quantizer";

#[cfg(test)]
mod tests {
    use crate::{Builder, Conv2d, Dim, Per};

    use super::*;

    fn network() -> Graph {
        let mut b = Builder::new("Layers");
        let x = b.input("x", [1, 4, 8, 8].map(Dim::from));
        let x = b.conv2d("first", x, Conv2d::new(4, 4, 3).padding(1));
        let x = b.relu("relu", x);
        let left = b.conv2d("left", x, Conv2d::new(4, 2, 1));
        let right = b.conv2d("right", x, Conv2d::new(4, 2, 1));
        b.output("left", left);
        b.output("right", right);
        b.finish().unwrap()
    }

    #[test]
    fn readers_of_one_value_share_a_quantiser_and_the_rest_stays() {
        let plain = network();
        let weight = WeightGrid {
            bits: 8,
            per: Per::Channel,
        };
        let grids = (weight, InputGrid::dynamic(8));
        let graph = plain
            .clone()
            .quantized(|node| (node.name != "first").then_some(grids));
        let names: Vec<&str> = graph
            .nodes()
            .iter()
            .map(|node| node.name.as_str())
            .collect();
        assert_eq!(
            names,
            ["first", "relu", "left.input_quantizer", "left", "right"]
        );
        for (position, node) in graph.nodes().iter().enumerate() {
            assert_eq!(node.id.index(), position);
            for (at, &output) in node.outputs.iter().enumerate() {
                assert_eq!(graph.value(output).source, ValueSource::Node(node.id, at));
            }
        }
        assert_eq!(graph.outputs(), plain.outputs());
        assert_eq!(graph.scope(graph.nodes()[0].scope).children.len(), 5);
        let quantized: Vec<bool> = graph
            .nodes()
            .iter()
            .map(|n| graph.grids(n).is_some())
            .collect();
        assert_eq!(quantized, [false, false, false, true, true]);
        // 1 byte a weight, 4 a scale, and the bias as it was.
        let bytes = |name: &str| {
            graph
                .params()
                .iter()
                .find(|p| p.name == name)
                .unwrap()
                .bytes()
        };
        assert_eq!((bytes("left.weight"), bytes("left.bias")), (8 + 2 * 4, 8));
        assert_eq!(bytes("first.weight"), 4 * 4 * 9 * 4);
    }
}
