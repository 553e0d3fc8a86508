//! Builds a graph, module by module, so that a network reads like its paper.
//!
//! The first error sticks and comes out of [`Builder::finish`]: builders need no `?` on every line.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{
    Graph, Input, Node, NodeId, ParamId, Parameter, Requirement, Scope, ScopeChild, ScopeId, State,
    StateKind, Value, ValueId, ValueSource,
};
use crate::ops::*;
use crate::{Dim, GraphError, Initializer, TensorType};

/// A graph under construction.
pub struct Builder {
    graph: Graph,
    current: ScopeId,
    taken: BTreeSet<String>,
    error: Option<GraphError>,
}

/// Where a node stands.
struct Place {
    name: String,
    scope: ScopeId,
    is_module: bool,
}

impl Builder {
    /// An empty graph whose root module has this class name.
    pub fn new(class: &str) -> Self {
        let root = Scope {
            path: String::new(),
            class: class.to_owned(),
            parent: None,
            children: Vec::new(),
            value: None,
        };
        let graph = Graph {
            nodes: Vec::new(),
            values: Vec::new(),
            params: Vec::new(),
            scopes: vec![root],
            inputs: Vec::new(),
            states: Vec::new(),
            outputs: Vec::new(),
            names: BTreeMap::new(),
            requirements: Vec::new(),
        };
        Self {
            graph,
            current: ScopeId(0),
            taken: BTreeSet::new(),
            error: None,
        }
    }

    /// Goes on where a finished graph ended: to put a loss behind a network, for instance.
    pub fn resume(graph: Graph) -> Self {
        let nodes = graph.nodes.iter().map(|node| node.name.clone());
        let scopes = graph.scopes.iter().map(|scope| scope.path.clone());
        let params = graph.params.iter().map(|param| param.name.clone());
        Self {
            taken: nodes.chain(scopes).chain(params).collect(),
            graph,
            current: ScopeId(0),
            error: None,
        }
    }

    /// Declares an f32 input.
    pub fn input(&mut self, name: &str, shape: impl IntoIterator<Item = Dim>) -> ValueId {
        self.input_of(name, TensorType::f32(shape))
    }

    /// Declares an i32 input: labels, rows, counters.
    pub fn integer_input(&mut self, name: &str, shape: impl IntoIterator<Item = Dim>) -> ValueId {
        self.input_of(name, TensorType::i32(shape))
    }

    fn input_of(&mut self, name: &str, ty: TensorType) -> ValueId {
        let value = self.add_value(ty, ValueSource::Input(self.graph.inputs.len()));
        self.graph.inputs.push(Input {
            name: name.to_owned(),
            value,
        });
        value
    }

    /// Says what the size of an input's axis must satisfy.
    pub fn require(
        &mut self,
        input: &str,
        axis: usize,
        what: &str,
        multiple_of: usize,
        at_least: usize,
    ) {
        let (input, what) = (input.to_owned(), what.to_owned());
        self.graph.requirements.push(Requirement {
            input,
            axis,
            what,
            multiple_of,
            at_least,
        });
    }

    /// Names an output of the graph.
    pub fn output(&mut self, name: &str, value: ValueId) {
        if self
            .graph
            .outputs
            .iter()
            .any(|(existing, _)| existing == name)
        {
            self.fail(GraphError::DuplicateName {
                name: name.to_owned(),
            });
        }
        self.graph.outputs.push((name.to_owned(), value));
    }

    /// Gives a value a name of its own, for taps and references.
    pub fn name(&mut self, name: &str, value: ValueId) -> ValueId {
        let path = self.path_of(name);
        self.graph.names.insert(path, value);
        value
    }

    /// A module that contains others; its value is what `body` returns.
    pub fn module(
        &mut self,
        name: &str,
        class: &str,
        body: impl FnOnce(&mut Self) -> ValueId,
    ) -> ValueId {
        let path = self.claim(name);
        let id = ScopeId(self.graph.scopes.len());
        let parent = Some(self.current);
        self.graph.scopes.push(Scope {
            path,
            class: class.to_owned(),
            parent,
            children: Vec::new(),
            value: None,
        });
        self.graph.scopes[self.current.0]
            .children
            .push(ScopeChild::Scope(id));
        let outer = std::mem::replace(&mut self.current, id);
        let value = body(self);
        self.current = outer;
        self.graph.scopes[id.0].value = Some(value);
        value
    }

    /// A leaf module of the public network.
    pub fn leaf(&mut self, name: &str, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.add_node(name, op.into(), inputs, true)[0]
    }

    /// A functional op: an operation that is no module of the public network.
    pub fn call(&mut self, name: &str, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.add_node(name, op.into(), inputs, false)[0]
    }

    /// A functional op with several outputs.
    pub fn call_many(&mut self, name: &str, op: impl Into<Op>, inputs: &[ValueId]) -> Vec<ValueId> {
        self.add_node(name, op.into(), inputs, false)
    }

    /// Declares a parameter that the public state dict has but that no node reads, such as DINOv2's `mask_token`
    /// in inference: it counts, loads and saves like any other.
    pub fn unread_parameter(&mut self, name: &str, shape: &[usize]) {
        self.unread(name, shape, true);
    }

    /// Declares a buffer that the public state dict has but that no node reads.
    pub fn unread_buffer(&mut self, name: &str, shape: &[usize]) {
        self.unread(name, shape, false);
    }

    fn unread(&mut self, name: &str, shape: &[usize], trainable: bool) {
        let name = self.claim(name);
        self.graph.params.push(Parameter {
            name,
            shape: shape.to_vec(),
            init: Initializer::Zeros,
            trainable,
            next: None,
        });
    }

    /// Says what a [`Builder::buffer`] becomes after each training step.
    pub fn buffer_becomes(&mut self, buffer: ValueId, next: ValueId) {
        let ValueSource::Node(id, _) = self.graph.value(buffer).source else {
            unreachable!("a buffer is the output of a node")
        };
        for param in self.graph.nodes[id.0].params.clone() {
            self.graph.params[param.0].next = Some(next);
        }
    }

    /// The shape of a value, in symbols.
    pub fn shape(&self, value: ValueId) -> Vec<Dim> {
        self.graph.value(value).ty.shape.clone()
    }

    /// The finished graph, or the first error.
    pub fn finish(mut self) -> Result<Graph, GraphError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.graph.scopes[0].value = self.graph.outputs.first().map(|(_, value)| *value);
        Ok(self.graph)
    }

    fn path_of(&self, name: &str) -> String {
        match self.graph.scope(self.current).path.as_str() {
            "" => name.to_owned(),
            scope => format!("{scope}.{name}"),
        }
    }

    fn claim(&mut self, name: &str) -> String {
        let path = self.path_of(name);
        if !self.taken.insert(path.clone()) {
            self.fail(GraphError::DuplicateName { name: path.clone() });
        }
        path
    }

    fn fail(&mut self, error: GraphError) {
        self.error.get_or_insert(error);
    }

    fn add_value(&mut self, ty: TensorType, source: ValueSource) -> ValueId {
        self.graph.values.push(Value { ty, source });
        ValueId(self.graph.values.len() - 1)
    }

    /// Adds a node; the outputs are never empty, even after an error.
    fn add_node(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[ValueId],
        is_module: bool,
    ) -> Vec<ValueId> {
        let (name, reused) = self.claim_call(self.path_of(name));
        let params = self.declare(&name, &op);
        let place = Place {
            name,
            scope: self.current,
            is_module: is_module && !reused,
        };
        self.insert_node(place, op, inputs, params)
    }

    /// Adds a node to any scope, by its full name; `params` are the values of the op's parameters. Of a name that is taken,
    /// the calls count up.
    pub(crate) fn append(
        &mut self,
        scope: ScopeId,
        name: &str,
        op: Op,
        inputs: &[ValueId],
        params: &[ValueId],
    ) -> Vec<ValueId> {
        let place = Place {
            name: self.claim_call(name.to_owned()).0,
            scope,
            is_module: false,
        };
        let declared = op.params();
        let fits = declared.len() == params.len()
            && declared.iter().zip(params).all(|(spec, &value)| {
                let sizes = spec.shape.iter().map(|&size| Dim::from(size));
                sizes.eq(self.graph.value(value).ty.shape.iter().cloned())
            });
        if !fits {
            self.fail(GraphError::BadConfig {
                node: place.name.clone(),
                message: "the values given for its parameters have other shapes".to_owned(),
            });
        }
        let outputs = self.insert_node(place, op, inputs, Vec::new());
        let node = self.graph.nodes.last_mut().expect("just added");
        node.inputs.extend(params);
        outputs
    }

    /// Adds state that enters with this type; it leaves as it came until [`Builder::leave`] says otherwise.
    pub(crate) fn add_state(&mut self, name: &str, kind: StateKind, ty: TensorType) -> ValueId {
        let value = self.add_value(ty, ValueSource::State(self.graph.states.len()));
        let (name, next) = (name.to_owned(), value);
        self.graph.states.push(State {
            name,
            kind,
            value,
            next,
        });
        value
    }

    /// Says as what a state leaves.
    pub(crate) fn leave(&mut self, state: ValueId, next: ValueId) {
        match self.graph.value(state).source {
            ValueSource::State(position) => self.graph.states[position].next = next,
            _ => unreachable!("only state leaves"),
        }
    }

    /// The graph so far.
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    fn insert_node(
        &mut self,
        place: Place,
        op: Op,
        inputs: &[ValueId],
        params: Vec<ParamId>,
    ) -> Vec<ValueId> {
        let Place {
            name,
            scope,
            is_module,
        } = place;
        let types: Vec<&TensorType> = inputs
            .iter()
            .map(|&value| &self.graph.value(value).ty)
            .collect();
        let outputs = match op.infer(&types) {
            Ok(outputs) => outputs,
            Err(expected) => {
                let got: Vec<String> = types.iter().map(|ty| ty.to_string()).collect();
                let (node, op, got) = (name.clone(), op.kind(), got.join(" and "));
                let rank_unknown = types
                    .first()
                    .map_or_else(|| TensorType::f32([]), |ty| (*ty).clone());
                self.fail(GraphError::WrongInput {
                    node,
                    op,
                    expected,
                    got,
                });
                vec![rank_unknown]
            }
        };
        let id = NodeId(self.graph.nodes.len());
        let outputs: Vec<ValueId> = outputs
            .into_iter()
            .enumerate()
            .map(|(i, ty)| self.add_value(ty, ValueSource::Node(id, i)))
            .collect();
        self.graph.nodes.push(Node {
            id,
            name,
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            params,
            scope,
            is_module,
        });
        self.graph.scopes[scope.0]
            .children
            .push(ScopeChild::Node(id));
        outputs
    }

    /// The name of a call. A module that is called again (`relu`) is no second module: its calls count up
    /// (`relu`, `relu_2`, ..), as do functional ops.
    fn claim_call(&mut self, path: String) -> (String, bool) {
        if self.taken.insert(path.clone()) {
            return (path, false);
        }
        let again = (2..)
            .map(|n| format!("{path}_{n}"))
            .find(|candidate| !self.taken.contains(candidate));
        let again = again.expect("the counter is unbounded");
        self.taken.insert(again.clone());
        (again, true)
    }

    fn declare(&mut self, node: &str, op: &Op) -> Vec<ParamId> {
        let mut ids = Vec::new();
        for spec in op.params() {
            // A parameter used as a value is the node itself (`cls_token`), not a member of it.
            let name = match op {
                Op::ParameterValue(_) => node.to_owned(),
                _ => format!("{node}.{}", spec.name),
            };
            if self.graph.params.iter().any(|param| param.name == name) {
                self.fail(GraphError::DuplicateName { name: name.clone() });
            }
            ids.push(ParamId(self.graph.params.len()));
            let (shape, init, trainable) = (spec.shape, spec.init, spec.trainable);
            self.graph.params.push(Parameter {
                name,
                shape,
                init,
                trainable,
                next: None,
            });
        }
        ids
    }
}

/// Short forms for the ops that networks use on every line.
impl Builder {
    /// Convolution.
    pub fn conv2d(&mut self, name: &str, x: ValueId, conv: Conv2d) -> ValueId {
        self.leaf(name, conv, &[x])
    }
    /// Batch normalisation.
    pub fn batch_norm(&mut self, name: &str, x: ValueId, norm: BatchNorm) -> ValueId {
        self.leaf(name, norm, &[x])
    }
    /// Layer normalisation of the last axis.
    pub fn layer_norm(&mut self, name: &str, x: ValueId, features: usize, eps: f32) -> ValueId {
        self.leaf(name, LayerNorm { features, eps }, &[x])
    }
    /// Linear layer.
    pub fn linear(
        &mut self,
        name: &str,
        x: ValueId,
        in_features: usize,
        out_features: usize,
    ) -> ValueId {
        self.leaf(name, Linear::new(in_features, out_features), &[x])
    }
    /// ReLU.
    pub fn relu(&mut self, name: &str, x: ValueId) -> ValueId {
        self.leaf(name, Activation::Relu, &[x])
    }
    /// a + b.
    pub fn add(&mut self, name: &str, a: ValueId, b: ValueId) -> ValueId {
        self.call(
            name,
            Binary {
                kind: BinaryKind::Add,
            },
            &[a, b],
        )
    }
    /// a · b.
    pub fn mul(&mut self, name: &str, a: ValueId, b: ValueId) -> ValueId {
        self.call(
            name,
            Binary {
                kind: BinaryKind::Mul,
            },
            &[a, b],
        )
    }
    /// The same elements under another shape.
    pub fn reshape(
        &mut self,
        name: &str,
        x: ValueId,
        shape: impl IntoIterator<Item = Dim>,
    ) -> ValueId {
        self.call(
            name,
            Reshape {
                shape: shape.into_iter().collect(),
            },
            &[x],
        )
    }
    /// All axes from `axis` on become one.
    pub fn flatten(&mut self, name: &str, x: ValueId, axis: usize) -> ValueId {
        let shape = self.shape(x);
        let (kept, merged) = shape.split_at(axis.min(shape.len()));
        let merged: Dim = merged.iter().product();
        self.reshape(name, x, kept.iter().cloned().chain([merged]))
    }
    /// Axes in another order.
    pub fn permute(&mut self, name: &str, x: ValueId, order: &[usize]) -> ValueId {
        self.call(
            name,
            Permute {
                order: order.to_vec(),
            },
            &[x],
        )
    }
    /// `length` elements from `start` along an axis.
    pub fn slice(
        &mut self,
        name: &str,
        x: ValueId,
        axis: usize,
        start: usize,
        length: impl Into<Dim>,
    ) -> ValueId {
        self.call(
            name,
            Slice {
                axis,
                start,
                length: length.into(),
            },
            &[x],
        )
    }
    /// Values one after the other along an axis.
    pub fn concat(&mut self, name: &str, values: &[ValueId], axis: usize) -> ValueId {
        self.call(name, Concat { axis }, values)
    }
    /// A parameter as a value.
    pub fn parameter(&mut self, name: &'static str, shape: &[usize]) -> ValueId {
        self.call(
            name,
            ParameterValue {
                name,
                shape: shape.to_vec(),
                init: Initializer::Normal(0.02),
                trainable: true,
            },
            &[],
        )
    }
    /// A buffer as a value: saved with the parameters, but moved by [`Builder::buffer_becomes`] instead of gradients.
    pub fn buffer(&mut self, name: &'static str, shape: &[usize], init: Initializer) -> ValueId {
        self.call(
            name,
            ParameterValue {
                name,
                shape: shape.to_vec(),
                init,
                trainable: false,
            },
            &[],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module_tree;

    fn block() -> Result<Graph, GraphError> {
        let mut b = Builder::new("Net");
        let x = b.input(
            "image",
            [
                Dim::symbol("N"),
                4.into(),
                Dim::symbol("H"),
                Dim::symbol("W"),
            ],
        );
        b.require("image", 2, "height", 2, 4);
        let x = b.module("layer1", "Sequential", |b| {
            b.module("0", "Block", |b| {
                let y = b.conv2d("conv1", x, Conv2d::new(4, 4, 3).padding(1).no_bias());
                let y = b.batch_norm("bn1", y, BatchNorm::new(4));
                let y = b.relu("relu", y);
                let y = b.add("add", y, x);
                b.relu("relu", y)
            })
        });
        b.output("features", x);
        b.finish()
    }

    #[test]
    fn names_are_state_dict_paths() {
        let graph = block().unwrap();
        let names: Vec<&str> = graph.params().iter().map(|p| p.name.as_str()).collect();
        let bn =
            ["weight", "bias", "running_mean", "running_var"].map(|n| format!("layer1.0.bn1.{n}"));
        assert_eq!(names[0], "layer1.0.conv1.weight");
        assert_eq!(names[1..], bn);
        assert_eq!(graph.parameter_count(), 4 * 4 * 9 + 8);
        let nodes: Vec<&str> = graph.nodes().iter().map(|n| n.name.as_str()).collect();
        assert_eq!(
            nodes[2..],
            ["layer1.0.relu", "layer1.0.add", "layer1.0.relu_2"]
        );
        assert_eq!(graph.find("layer1.0"), graph.find("features"));
        assert!(graph.find("layer1.1").is_err());
    }

    #[test]
    fn an_unread_parameter_counts_but_belongs_to_no_node() {
        let mut b = Builder::new("Net");
        let x = b.input("x", [Dim::symbol("N"), 4.into()]);
        b.unread_parameter("mask_token", &[1, 4]);
        let y = b.linear("fc", x, 4, 2);
        b.output("y", y);
        let graph = b.finish().unwrap();
        assert_eq!(graph.params()[0].name, "mask_token");
        assert_eq!(graph.parameter_count(), 4 + 4 * 2 + 2);
        assert!(
            graph
                .nodes()
                .iter()
                .all(|node| node.params.iter().all(|p| p.index() != 0))
        );
    }

    #[test]
    fn the_tree_shows_modules_only() {
        let tree = module_tree(&block().unwrap());
        assert!(tree.contains("(relu): ReLU(inplace=True)\n"), "{tree}");
        assert!(
            !tree.contains("(add)") && !tree.contains("relu_2"),
            "{tree}"
        );
    }

    #[test]
    fn sizes_are_checked_when_bound() {
        let graph = block().unwrap();
        let bind = |shape: [usize; 4]| graph.bind(&[("image", shape.to_vec())]);
        assert!(bind([1, 4, 8, 7]).is_ok());
        assert!(matches!(
            bind([1, 3, 8, 7]),
            Err(GraphError::InputShape { .. })
        ));
        assert!(matches!(
            bind([1, 4, 9, 7]),
            Err(GraphError::NotAMultiple { nearest: 10, .. })
        ));
        assert!(matches!(
            bind([1, 4, 2, 7]),
            Err(GraphError::TooSmall { .. })
        ));
        assert!(matches!(
            graph.bind(&[]),
            Err(GraphError::MissingInput { .. })
        ));
        assert!(matches!(
            graph.bind(&[("im", vec![])]),
            Err(GraphError::UnknownInput { .. })
        ));
    }

    #[test]
    fn the_first_error_sticks() {
        let mut b = Builder::new("Net");
        let x = b.input("image", [1, 3, 8, 8].map(Dim::from));
        let x = b.conv2d("conv1", x, Conv2d::new(4, 4, 3));
        let x = b.conv2d("conv2", x, Conv2d::new(9, 4, 3));
        b.output("y", x);
        let error = b.finish().unwrap_err().to_string();
        assert_eq!(
            error,
            "conv1: Conv2d takes a map [N, 4, H, W], got f32 [1, 3, 8, 8]"
        );
    }
}
