//! What of a network follows from data and frozen parameters alone, cut off so that it can be computed once and kept.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{
    Graph, Input, Node, NodeId, ParamId, Parameter, Requirement, Scope, ScopeChild, ScopeId, Value,
    ValueId, ValueSource,
};
use crate::ops::Op;
use crate::{Dim, TensorType};

/// A network in two: what is frozen, and the rest. Run one behind the other they give what the network gives, bit by bit.
#[derive(Clone, Debug)]
pub struct FrozenCut {
    /// What is computed once: pieces that share no input, each on its own.
    pub pieces: Vec<FrozenPiece>,
    /// Takes what the pieces give, by the names of their outputs, and all other inputs of the network.
    pub rest: Graph,
    /// Inputs of `rest` that hold no numbers: their shapes tell sizes of inputs that only the pieces read.
    pub sizes: Vec<SizeInput>,
}

/// Nodes that follow from some inputs and frozen parameters.
#[derive(Clone, Debug)]
pub struct FrozenPiece {
    /// From those inputs to the values at the cut.
    pub graph: Graph,
}

/// An input without numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeInput {
    /// Its name in the rest.
    pub name: String,
    /// The input of the network whose sizes it tells.
    pub of: String,
    /// The axes of that input that it has; a last axis of length 0 follows.
    pub axes: Vec<usize>,
}

impl SizeInput {
    /// Its shape for an input of this shape.
    pub fn shape(&self, of: &[usize]) -> Vec<usize> {
        let sizes = self.axes.iter().map(|&axis| of[axis]);
        sizes.chain([0]).collect()
    }
}

impl FrozenPiece {
    /// What it computes, whatever its nodes and inputs are called: pieces with the same text and the same parameters give the
    /// same numbers for the same inputs.
    pub fn signature(&self) -> String {
        let graph = &self.graph;
        let mut text = String::new();
        for input in graph.inputs() {
            text += &format!("input {:?}\n", graph.value(input.value).ty.dtype);
        }
        for node in graph.nodes() {
            let inputs: Vec<usize> = node.inputs.iter().map(|value| value.index()).collect();
            let params = node.params.iter().map(|&param| &graph.param(param).name);
            let params: Vec<&String> = params.collect();
            text += &format!("{:?} {inputs:?} {params:?}\n", node.op);
        }
        let outputs = graph.outputs().iter().map(|(_, value)| value.index());
        text += &format!("output {:?}\n", outputs.collect::<Vec<_>>());
        // Sizes are named after the input; what counts is which are equal.
        symbols_by_order(graph, text)
    }
}

/// A text with the symbols of a graph's inputs called by their order.
fn symbols_by_order(graph: &Graph, text: String) -> String {
    let mut symbols: Vec<String> = Vec::new();
    for input in graph.inputs() {
        for dim in &graph.value(input.value).ty.shape {
            if let Some(symbol) = dim.as_symbol()
                && !symbols.iter().any(|known| **known == **symbol)
            {
                symbols.push(symbol.to_string());
            }
        }
    }
    let mut renamed = String::with_capacity(text.len());
    let mut word = String::new();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    for c in text.chars().chain(['\n']) {
        if is_part(c) {
            word.push(c);
            continue;
        }
        match symbols.iter().position(|symbol| *symbol == word) {
            Some(number) => renamed += &format!("%{number}"),
            None => renamed += &word,
        }
        word.clear();
        renamed.push(c);
    }
    renamed
}

/// What a value follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// Frozen parameters, and these recurring inputs.
    Frozen(BTreeSet<usize>),
    Other,
}

impl Graph {
    /// Cuts off the largest part that follows from `recurring` inputs and from parameters that do not train, and in which nothing
    /// is random; none where nothing of both is left to cut. Parameters must not be state yet.
    pub fn cut_frozen(
        &self,
        recurring: &[&str],
        trains: impl Fn(&str) -> bool,
    ) -> Option<FrozenCut> {
        if !self.states.is_empty() {
            return None;
        }
        let origins = self.origins(recurring, &trains);
        let data = |value: ValueId| match &origins[value.0] {
            Origin::Frozen(inputs) if !inputs.is_empty() => Some(inputs),
            _ => None,
        };
        let is_done = |node: &Node| data(node.outputs[0]).is_some();
        // Values that something outside reads.
        let read_outside = self.nodes.iter().filter(|node| !is_done(node));
        let read_outside = read_outside.flat_map(|node| node.inputs.iter().copied());
        let outputs = self.outputs.iter().map(|(_, value)| *value);
        let at_cut: BTreeSet<ValueId> = read_outside
            .chain(outputs)
            .filter(|&value| data(value).is_some())
            .filter(|&value| matches!(self.values[value.0].source, ValueSource::Node(..)))
            .collect();
        let mut by_inputs: BTreeMap<&BTreeSet<usize>, Vec<ValueId>> = BTreeMap::new();
        for &value in &at_cut {
            by_inputs.entry(data(value)?).or_default().push(value);
        }
        if by_inputs.is_empty() {
            return None;
        }
        let pieces = by_inputs.iter().map(|(inputs, values)| FrozenPiece {
            graph: self.piece(inputs, values),
        });
        let pieces: Vec<FrozenPiece> = pieces.collect();
        let (rest, sizes) = self.rest(&at_cut, &trains);
        Some(FrozenCut {
            pieces,
            rest,
            sizes,
        })
    }

    fn origins(&self, recurring: &[&str], trains: impl Fn(&str) -> bool) -> Vec<Origin> {
        let mut origins = vec![Origin::Other; self.values.len()];
        for (number, input) in self.inputs.iter().enumerate() {
            if recurring.contains(&input.name.as_str()) {
                origins[input.value.0] = Origin::Frozen(BTreeSet::from([number]));
            }
        }
        for node in &self.nodes {
            let moves = node.params.iter().any(|&id| trains(&self.param(id).name));
            let drops = matches!(&node.op, Op::Dropout(op) if op.p > 0.0) && trains(&node.name);
            let mut inputs = BTreeSet::new();
            let frozen = node.inputs.iter().all(|value| match &origins[value.0] {
                Origin::Frozen(of) => {
                    inputs.extend(of);
                    true
                }
                Origin::Other => false,
            });
            if frozen && !moves && !drops {
                for output in &node.outputs {
                    origins[output.0] = Origin::Frozen(inputs.clone());
                }
            }
        }
        origins
    }

    /// The nodes that some values follow from, up to values that need no node.
    fn behind(&self, wanted: &[ValueId], given: &BTreeSet<ValueId>) -> Vec<bool> {
        let mut kept = vec![false; self.nodes.len()];
        let mut open = wanted.to_vec();
        while let Some(value) = open.pop() {
            if given.contains(&value) {
                continue;
            }
            if let ValueSource::Node(node, _) = self.values[value.0].source
                && !std::mem::replace(&mut kept[node.0], true)
            {
                open.extend(&self.nodes[node.0].inputs);
            }
        }
        kept
    }

    fn piece(&self, inputs: &BTreeSet<usize>, values: &[ValueId]) -> Graph {
        let kept = self.behind(values, &BTreeSet::new());
        let inputs = inputs.iter().map(|&number| {
            let input = &self.inputs[number];
            let ty = self.value(input.value).ty.clone();
            (input.name.clone(), Some(input.value), ty)
        });
        let outputs = values.iter().map(|&value| (self.value_name(value), value));
        self.subgraph(&kept, inputs.collect(), outputs.collect(), |_| false)
    }

    fn rest(
        &self,
        at_cut: &BTreeSet<ValueId>,
        trains: impl Fn(&str) -> bool,
    ) -> (Graph, Vec<SizeInput>) {
        let wanted: Vec<ValueId> = self.outputs.iter().map(|(_, value)| *value).collect();
        let next = self.params.iter().filter_map(|param| param.next);
        let wanted: Vec<ValueId> = wanted.into_iter().chain(next).collect();
        let kept = self.behind(&wanted, at_cut);
        let mut read: BTreeSet<ValueId> = wanted.iter().copied().collect();
        let nodes = self.nodes.iter().filter(|node| kept[node.id.0]);
        read.extend(nodes.flat_map(|node| node.inputs.iter().copied()));
        let (stays, goes): (Vec<&Input>, Vec<&Input>) = self
            .inputs
            .iter()
            .partition(|input| read.contains(&input.value));
        let symbols_of = |input: &Input| {
            let shape = self.value(input.value).ty.shape.iter();
            shape.map(Dim::as_symbol).collect::<Vec<_>>()
        };
        let mut bound: BTreeSet<_> = stays.iter().flat_map(|i| symbols_of(i)).flatten().collect();
        let (mut sizes, mut inputs) = (Vec::new(), Vec::new());
        for input in goes {
            let missing = symbols_of(input).into_iter().enumerate();
            let missing = missing.filter_map(|(axis, symbol)| Some((axis, symbol?)));
            let missing: Vec<usize> = missing
                .filter(|(_, symbol)| bound.insert(symbol))
                .map(|(axis, _)| axis)
                .collect();
            if missing.is_empty() {
                continue;
            }
            // Samples follow each other along the first axis.
            let axes: BTreeSet<usize> = missing.into_iter().chain([0]).collect();
            let size = SizeInput {
                name: format!("{}.size", input.name),
                of: input.name.clone(),
                axes: axes.into_iter().collect(),
            };
            let shape = &self.value(input.value).ty.shape;
            let dims = size.axes.iter().map(|&axis| shape[axis].clone());
            let ty = TensorType::f32(dims.chain([Dim::from(0)]));
            inputs.push((size.name.clone(), None, ty));
            sizes.push(size);
        }
        // Sizes come first: the shapes of what follows are made of them.
        let at_cut = at_cut.iter().filter(|value| read.contains(value));
        inputs.extend(at_cut.map(|&value| {
            let ty = self.value(value).ty.clone();
            (self.value_name(value), Some(value), ty)
        }));
        inputs.extend(stays.into_iter().map(|input| {
            let ty = self.value(input.value).ty.clone();
            (input.name.clone(), Some(input.value), ty)
        }));
        let unread = |param: &Parameter| trains(&param.name);
        let outputs = self.outputs.clone();
        (self.subgraph(&kept, inputs, outputs, unread), sizes)
    }

    /// Some of the nodes as a graph of its own. Parameters that none of them reads stay where `keeps_unread` says so.
    fn subgraph(
        &self,
        kept: &[bool],
        inputs: Vec<(String, Option<ValueId>, TensorType)>,
        outputs: Vec<(String, ValueId)>,
        keeps_unread: impl Fn(&Parameter) -> bool,
    ) -> Graph {
        let mut values: Vec<Value> = Vec::new();
        let mut new_value: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        let mut new_inputs = Vec::new();
        for (number, (name, old, ty)) in inputs.into_iter().enumerate() {
            let value = ValueId(values.len());
            new_value.extend(old.map(|old| (old, value)));
            let source = ValueSource::Input(number);
            values.push(Value { ty, source });
            new_inputs.push(Input { name, value });
        }
        let mine: Vec<&Node> = self.nodes.iter().filter(|node| kept[node.id.0]).collect();
        let read_params: BTreeSet<ParamId> = mine.iter().flat_map(|n| n.params.clone()).collect();
        let all_read: BTreeSet<ParamId> =
            self.nodes.iter().flat_map(|n| n.params.clone()).collect();
        let stays = |id: &ParamId| {
            read_params.contains(id) || (!all_read.contains(id) && keeps_unread(self.param(*id)))
        };
        let params: Vec<ParamId> = (0..self.params.len()).map(ParamId).filter(stays).collect();
        let new_param: BTreeMap<ParamId, ParamId> = params
            .iter()
            .enumerate()
            .map(|(n, &id)| (id, ParamId(n)))
            .collect();
        let (scopes, new_scope) = self.scopes_of(&mine);

        let mut nodes = Vec::new();
        let mut new_node = BTreeMap::new();
        for node in mine {
            let id = NodeId(nodes.len());
            new_node.insert(node.id, id);
            let outputs = node.outputs.iter().enumerate().map(|(place, old)| {
                let value = ValueId(values.len());
                // What comes from elsewhere is not made again.
                new_value.entry(*old).or_insert(value);
                let source = ValueSource::Node(id, place);
                let ty = self.value(*old).ty.clone();
                values.push(Value { ty, source });
                value
            });
            let outputs = outputs.collect();
            nodes.push(Node {
                id,
                inputs: node.inputs.iter().map(|value| new_value[value]).collect(),
                outputs,
                params: node.params.iter().map(|param| new_param[param]).collect(),
                scope: new_scope[&node.scope],
                ..node.clone()
            });
        }
        let params = params.iter().map(|&id| Parameter {
            next: self
                .param(id)
                .next
                .and_then(|next| new_value.get(&next).copied()),
            ..self.param(id).clone()
        });
        let has_input = |r: &&Requirement| new_inputs.iter().any(|input| input.name == r.input);
        let known =
            |(name, value): (&String, &ValueId)| Some((name.clone(), *new_value.get(value)?));
        let outputs: Vec<(String, ValueId)> = outputs
            .into_iter()
            .map(|(name, value)| (name, new_value[&value]))
            .collect();
        let mut scopes: Vec<Scope> = scopes
            .into_iter()
            .map(|scope| {
                let children = scope.children.iter().filter_map(|child| match child {
                    ScopeChild::Node(id) => new_node.get(id).copied().map(ScopeChild::Node),
                    ScopeChild::Scope(id) => new_scope.get(id).copied().map(ScopeChild::Scope),
                });
                Scope {
                    children: children.collect(),
                    parent: scope
                        .parent
                        .and_then(|parent| new_scope.get(&parent).copied()),
                    value: scope.value.and_then(|value| new_value.get(&value).copied()),
                    ..scope.clone()
                }
            })
            .collect();
        scopes[0].value = outputs.first().map(|(_, value)| *value);
        Graph {
            params: params.collect(),
            requirements: self
                .requirements
                .iter()
                .filter(has_input)
                .cloned()
                .collect(),
            names: self.names.iter().filter_map(known).collect(),
            nodes,
            values,
            scopes,
            inputs: new_inputs,
            states: Vec::new(),
            outputs,
            axes: self.axes.clone(),
            part_label: self.part_label.clone(),
        }
    }

    /// The scopes that hold some of these nodes, and their new numbers. The root is always there.
    fn scopes_of(&self, nodes: &[&Node]) -> (Vec<&Scope>, BTreeMap<ScopeId, ScopeId>) {
        let mut kept = BTreeSet::from([ScopeId(0)]);
        for node in nodes {
            let mut scope = Some(node.scope);
            while let Some(id) = scope.filter(|id| kept.insert(*id)) {
                scope = self.scope(id).parent;
            }
        }
        let numbers = kept.iter().enumerate();
        let new = numbers.map(|(number, &id)| (id, ScopeId(number))).collect();
        (kept.iter().map(|&id| self.scope(id)).collect(), new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Dropout, GraphError};

    /// Two pictures through one frozen backbone; a head that trains.
    fn network(drop: f32) -> Result<Graph, GraphError> {
        let mut b = Builder::new("Net");
        let side = |name: &str| Dim::symbol(name);
        let left = b.input("left", [side("N"), side("L"), 4.into()]);
        let right = b.input("right", [side("N"), side("R"), 4.into()]);
        let weights = b.input("weights", [side("N"), side("M"), side("L")]);
        let backbone = |b: &mut Builder, x| {
            let x = b.linear("fc", x, 4, 6);
            b.relu("relu", x)
        };
        let left = b.module("backbone", "Backbone", |b| backbone(b, left));
        let right = b.module_again("backbone", "Backbone", |b| backbone(b, right));
        let right = b.call("drop", Dropout { p: drop }, &[right]);
        let pooled = b.call("pooled", crate::MatMul::default(), &[weights, left]);
        let a = b.linear("head", pooled, 6, 2);
        let c = b.linear("tail", right, 6, 2);
        b.output("a", a);
        b.output("c", c);
        b.finish()
    }

    fn names<T>(of: &[T], name: impl Fn(&T) -> &String) -> Vec<&str> {
        of.iter().map(|one| name(one).as_str()).collect()
    }

    fn is_trained(name: &str) -> bool {
        !name.starts_with("backbone")
    }

    #[test]
    fn what_follows_from_recurring_inputs_and_frozen_parameters_is_cut_off() {
        let graph = network(0.0).unwrap();
        let cut = graph.cut_frozen(&["left", "right"], is_trained).unwrap();
        let [left, right] = &cut.pieces[..] else {
            panic!("a piece for each picture")
        };
        assert_eq!(names(left.graph.inputs(), |i| &i.name), ["left"]);
        assert_eq!(
            names(left.graph.params(), |p| &p.name),
            ["backbone.fc.weight", "backbone.fc.bias"]
        );
        assert_eq!(names(left.graph.outputs(), |o| &o.0), ["backbone.relu"]);
        assert_eq!(names(right.graph.outputs(), |o| &o.0), ["drop"]);
        let inputs = names(cut.rest.inputs(), |i| &i.name);
        assert_eq!(inputs, ["right.size", "backbone.relu", "drop", "weights"]);
        let params = names(cut.rest.params(), |p| &p.name);
        assert_eq!(
            params,
            ["head.weight", "head.bias", "tail.weight", "tail.bias"]
        );
        assert_eq!(cut.sizes[0].shape(&[3, 9, 4]), [3, 9, 0]);
        let shapes = [
            ("right.size", vec![2, 5, 0]),
            ("backbone.relu", vec![2, 7, 6]),
            ("drop", vec![2, 5, 6]),
            ("weights", vec![2, 3, 7]),
        ];
        assert!(cut.rest.bind(&shapes).is_ok());
    }

    #[test]
    fn pieces_that_compute_the_same_have_one_signature() {
        let graph = network(0.5).unwrap();
        let cut = graph.cut_frozen(&["left", "right"], is_trained).unwrap();
        let [left, right] = [0, 1].map(|piece: usize| cut.pieces[piece].signature());
        assert_eq!(left, right);
        assert!(left.contains("backbone.fc.bias") && !left.contains("left"));
        let other = graph.cut_frozen(&["left"], |name| name != "backbone.fc.weight");
        assert!(other.is_none());
    }

    #[test]
    fn random_and_trained_nodes_stay_and_nothing_is_no_cut() {
        let graph = network(0.5).unwrap();
        let cut = graph.cut_frozen(&["left", "right"], is_trained).unwrap();
        let outputs: Vec<&str> = cut
            .pieces
            .iter()
            .map(|p| p.graph.outputs()[0].0.as_str())
            .collect();
        assert_eq!(outputs, ["backbone.relu", "backbone_2.relu"]);
        assert!(graph.cut_frozen(&["left", "right"], |_| true).is_none());
        assert!(graph.cut_frozen(&[], is_trained).is_none());
        // With every input known to come again, the pooling is frozen too.
        let all = graph
            .cut_frozen(&["left", "right", "weights"], is_trained)
            .unwrap();
        assert!(names(all.rest.inputs(), |i| &i.name).contains(&"pooled"));
    }
}
