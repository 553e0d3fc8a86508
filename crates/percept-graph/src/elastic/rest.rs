//! The rest of a network behind a node, as a graph of its own: what must be computed again when only what follows has changed.

use std::collections::BTreeMap;

use crate::graph::{Graph, Input, Node, NodeId, Scope, ScopeChild, Value, ValueId, ValueSource};

impl Graph {
    /// Values computed before a node that it or a later one reads, or that are outputs, by name: what the rest begins with.
    pub fn carried_into(&self, first: NodeId) -> Vec<(String, ValueId)> {
        let read = self.nodes[first.index()..].iter().flat_map(|n| &n.inputs);
        let outputs = self.outputs.iter().map(|(_, value)| value);
        let mut carried: Vec<ValueId> = read
            .chain(outputs)
            .copied()
            .filter(|&value| match self.value(value).source {
                ValueSource::Node(node, _) => node < first,
                ValueSource::Input(_) | ValueSource::State(_) => false,
            })
            .collect();
        carried.sort_unstable();
        carried.dedup();
        let named = carried.into_iter();
        named.map(|value| (self.value_name(value), value)).collect()
    }

    /// What a value is called between graphs: by the node that computes it.
    pub(crate) fn value_name(&self, value: ValueId) -> String {
        match self.value(value).source {
            ValueSource::Node(node, 0) => self.node(node).name.clone(),
            ValueSource::Node(node, place) => format!("{}#{place}", self.node(node).name),
            ValueSource::Input(place) => self.inputs[place].name.clone(),
            ValueSource::State(place) => self.states[place].name.clone(),
        }
    }

    /// The nodes from `first` on. Its inputs are all of this graph's, because sizes follow from them, and behind them what
    /// [`carried_into`](Self::carried_into) names. A graph whose parameters are state has no rest.
    pub fn rest_from(&self, first: NodeId) -> Graph {
        let carried = self.carried_into(first);
        let mut renumbered: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        let mut values: Vec<Value> = Vec::new();
        let mut keep = |value: ValueId, source: ValueSource| {
            renumbered.insert(value, ValueId(values.len()));
            values.push(Value {
                ty: self.value(value).ty.clone(),
                source,
            });
        };
        let own = self.inputs.iter();
        let own = own.map(|input| (input.name.clone(), input.value));
        let given: Vec<(String, ValueId)> = own.chain(carried).collect();
        for (place, (_, value)) in given.iter().enumerate() {
            keep(*value, ValueSource::Input(place));
        }
        let rest = &self.nodes[first.index()..];
        for (number, node) in rest.iter().enumerate() {
            for (place, value) in node.outputs.iter().enumerate() {
                keep(*value, ValueSource::Node(NodeId(number), place));
            }
        }
        let moved = |value: &ValueId| renumbered[value];
        let nodes = rest.iter().enumerate().map(|(number, node)| Node {
            id: NodeId(number),
            inputs: node.inputs.iter().map(moved).collect(),
            outputs: node.outputs.iter().map(moved).collect(),
            ..node.clone()
        });
        let scopes = self.scopes.iter().map(|scope| Scope {
            children: scope
                .children
                .iter()
                .filter_map(|child| match child {
                    ScopeChild::Node(node) => {
                        let number = node.index().checked_sub(first.index())?;
                        Some(ScopeChild::Node(NodeId(number)))
                    }
                    ScopeChild::Scope(_) => Some(*child),
                })
                .collect(),
            value: scope
                .value
                .and_then(|value| renumbered.get(&value).copied()),
            ..scope.clone()
        });
        let names = self.names.iter();
        let names = names.filter_map(|(name, v)| Some((name.clone(), *renumbered.get(v)?)));
        Graph {
            nodes: nodes.collect(),
            scopes: scopes.collect(),
            names: names.collect(),
            inputs: given
                .iter()
                .map(|(name, value)| Input {
                    name: name.clone(),
                    value: moved(value),
                })
                .collect(),
            outputs: self
                .outputs
                .iter()
                .map(|(name, value)| (name.clone(), moved(value)))
                .collect(),
            values,
            ..self.clone()
        }
    }

    /// The first node that is not the same in another configuration of this network: of another name, or with other sizes.
    pub fn first_difference(&self, other: &Graph) -> Option<NodeId> {
        let sizes = |graph: &Graph, node: &Node| {
            let types = graph.output_types(node).into_iter();
            let types = types.map(|ty| ty.shape.clone()).collect::<Vec<_>>();
            let params = node.params.iter();
            let params = params.map(|&id| graph.param(id).shape.clone());
            (types, params.collect::<Vec<_>>())
        };
        let differs = |node: &&Node| {
            let found = other.nodes.get(node.id.index());
            !found.is_some_and(|found| {
                found.name == node.name && sizes(other, found) == sizes(self, node)
            })
        };
        self.nodes.iter().find(differs).map(|node| node.id)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Builder, Choice, Dim, Graph, Linear};

    fn build(choice: &Choice) -> Graph {
        let mut b = Builder::new("Two").choosing(choice);
        let x = b.input("x", [Dim::symbol("N"), 8.into()]);
        let [first, second] = ["first", "second"].map(|axis| b.axis(axis, 4).of(8));
        let y = b.leaf("a", Linear::new(8, first), &[x]);
        let y = b.leaf("b", Linear::new(first, 8), &[y]);
        let sum = b.add("sum", x, y);
        let z = b.leaf("c", Linear::new(8, second), &[sum]);
        let z = b.leaf("d", Linear::new(second, 8), &[z]);
        let z = b.add("again", sum, z);
        b.output("z", z);
        b.finish().unwrap()
    }

    #[test]
    fn the_rest_begins_with_what_it_reads() {
        let whole = build(&Choice::whole());
        let narrow = build(&Choice::whole().with("second", 2));
        let first = narrow.first_difference(&whole).unwrap();
        assert_eq!(narrow.node(first).name, "c");
        let rest = narrow.rest_from(first);
        let names: Vec<&str> = rest.inputs().iter().map(|i| i.name.as_str()).collect();
        // The network's own input is there for its sizes.
        assert_eq!(names, ["x", "sum"]);
        let nodes: Vec<&str> = rest.nodes().iter().map(|n| n.name.as_str()).collect();
        assert_eq!(nodes, ["c", "d", "again"]);
        let sizes = [("x", vec![3, 8]), ("sum", vec![3, 8])];
        let macs = rest.total_macs(&rest.bind(&sizes).unwrap()).unwrap();
        assert_eq!(macs, 3 * 2 * 8 * 4);
        assert!(whole.first_difference(&whole).is_none());
        let other = build(&Choice::whole().with("first", 1));
        let first = other.first_difference(&whole).unwrap();
        assert_eq!(other.node(first).name, "a");
        assert!(other.carried_into(first).is_empty());
    }
}
