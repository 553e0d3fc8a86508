//! Builds a graph, module by module, so that a network reads like its paper.
//!
//! The first error sticks and comes out of [`Builder::finish`]: builders need no `?` on every line.

mod short_forms;

use std::collections::{BTreeMap, BTreeSet};

use crate::elastic::{Axis, Choice, Level};
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
    choice: Choice,
    /// Modules that are called again: the path of such a call, and the path of the first.
    again: Vec<(String, String)>,
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
            axes: Vec::new(),
            part_label: None,
        };
        Self {
            graph,
            current: ScopeId(0),
            taken: BTreeSet::new(),
            choice: Choice::whole(),
            again: Vec::new(),
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
            again: Vec::new(),
            graph,
            current: ScopeId(0),
            choice: Choice::whole(),
            error: None,
        }
    }

    /// The same graph to be, with these levels of its elastic axes.
    pub fn choosing(self, choice: &Choice) -> Self {
        Self {
            choice: choice.clone(),
            ..self
        }
    }

    /// An elastic axis: a width that a [`Choice`] settles. Layers that ask for the same name share it.
    pub fn axis(&mut self, name: &str, levels: usize) -> Level {
        let level = self.choice.level(name).unwrap_or(levels);
        if level == 0 || level > levels {
            self.fail(GraphError::BadLevel {
                axis: name.to_owned(),
                level,
                levels,
            });
            return Level {
                level: levels,
                levels,
            };
        }
        if !self.graph.axes.iter().any(|axis| axis.name == name) {
            self.graph.axes.push(Axis {
                name: name.to_owned(),
                levels,
                level,
            });
        }
        Level { level, levels }
    }

    /// Declares an f32 input.
    pub fn input(&mut self, name: &str, shape: impl IntoIterator<Item = Dim>) -> ValueId {
        self.input_of(name, TensorType::f32(shape))
    }

    /// Declares an i32 input: labels, rows, counters.
    pub fn integer_input(&mut self, name: &str, shape: impl IntoIterator<Item = Dim>) -> ValueId {
        self.input_of(name, TensorType::i32(shape))
    }

    /// Declares an input of any type.
    pub fn input_of(&mut self, name: &str, ty: TensorType) -> ValueId {
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
        self.scope(path, class, body)
    }

    /// A module that is called again, with the parameters of its first call. Its nodes count up: `backbone_2`.
    pub fn module_again(
        &mut self,
        name: &str,
        class: &str,
        body: impl FnOnce(&mut Self) -> ValueId,
    ) -> ValueId {
        let first = self.path_of(name);
        let (path, reused) = self.claim_call(first.clone());
        if !reused {
            let message = "it was not called before".to_owned();
            self.fail(GraphError::BadConfig {
                node: path.clone(),
                message,
            });
        }
        self.again.push((path.clone(), first));
        let value = self.scope(path, class, body);
        self.again.pop();
        value
    }

    fn scope(
        &mut self,
        path: String,
        class: &str,
        body: impl FnOnce(&mut Self) -> ValueId,
    ) -> ValueId {
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
        let path = self.claim(name);
        let name = self.first_path(&path);
        if name != path {
            return;
        }
        self.graph.params.push(Parameter {
            name,
            shape: shape.to_vec(),
            init: Initializer::Zeros,
            trainable,
            next: None,
            grid: None,
            factors: None,
            part: None,
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

    /// Lets a parameter of the layer behind `value` start training otherwise than its kind does: the bias of a rare class, for
    /// instance.
    pub fn starts_as(&mut self, value: ValueId, parameter: &str, init: Initializer) {
        let ValueSource::Node(id, _) = self.graph.value(value).source else {
            return;
        };
        let Graph { nodes, params, .. } = &mut self.graph;
        let own = nodes[id.0].params.iter().map(|param| param.0);
        for index in own {
            let last = params[index].name.rsplit('.').next();
            if last == Some(parameter) {
                params[index].init = init;
            }
        }
    }

    /// Says which products the sizes of a parameter are that is used as a value, so that an elastic axis may cut within one.
    pub fn in_factors(&mut self, value: ValueId, factors: &[&[usize]]) {
        let ValueSource::Node(id, _) = self.graph.value(value).source else {
            return;
        };
        let factors: Vec<Vec<usize>> = factors.iter().map(|size| size.to_vec()).collect();
        let Graph { nodes, params, .. } = &mut self.graph;
        for param in &nodes[id.0].params {
            let param = &mut params[param.0];
            let sizes = factors.iter().map(|size| size.iter().product::<usize>());
            debug_assert!(sizes.eq(param.shape.iter().copied()), "{}", param.name);
            param.factors = Some(factors.clone());
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
        let axes = &self.graph.axes;
        for (name, _) in self.choice.axes() {
            if !axes.iter().any(|axis| axis.name == name) {
                let known: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
                return Err(GraphError::UnknownAxis {
                    name: name.to_owned(),
                    known: known.join(", "),
                });
            }
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
        let path = self.path_of(name);
        let (name, reused) = self.claim_call(path.clone());
        let first = self.first_path(&path);
        let params = match reused || first != path {
            true => self.declared(&first, &op),
            false => self.declare(&path, &op),
        };
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
            begins_as: None,
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

    /// The path of the first call of what is called again.
    fn first_path(&self, path: &str) -> String {
        let calls = self.again.iter().rev();
        calls.fold(path.to_owned(), |path, (again, first)| {
            match path.strip_prefix(again.as_str()) {
                Some(rest) if rest.is_empty() || rest.starts_with('.') => format!("{first}{rest}"),
                _ => path,
            }
        })
    }

    /// The parameters of the first call of a node, which further calls share.
    fn declared(&mut self, node: &str, op: &Op) -> Vec<ParamId> {
        let mut ids = Vec::new();
        for spec in op.params() {
            let name = parameter_name(node, op, spec.name);
            let mut known = self.graph.params.iter();
            match known.position(|param| param.name == name && param.shape == spec.shape) {
                Some(position) => ids.push(ParamId(position)),
                None => {
                    let message = format!("its first call had no {name} of this shape");
                    let node = node.to_owned();
                    self.fail(GraphError::BadConfig { node, message });
                }
            }
        }
        ids
    }

    fn declare(&mut self, node: &str, op: &Op) -> Vec<ParamId> {
        let mut ids = Vec::new();
        for spec in op.params() {
            let name = parameter_name(node, op, spec.name);
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
                grid: None,
                factors: None,
                part: None,
            });
        }
        ids
    }
}

/// The state-dict name of a node's parameter. One that is used as a value is the node itself (`cls_token`), not a member of it.
fn parameter_name(node: &str, op: &Op, member: &str) -> String {
    match op {
        Op::ParameterValue(_) => node.to_owned(),
        _ => format!("{node}.{member}"),
    }
}

#[cfg(test)]
mod tests;
