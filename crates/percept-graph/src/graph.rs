//! The graph: nodes in execution order, values, parameters, and the scopes that name them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::elastic::{Axis, Part};
use crate::ops::{Op, Operator};
use crate::{
    Bindings, Cost, Dim, GraphError, Initializer, TensorType, WeightError, WeightGrid, WeightSource,
};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) usize);
        impl $name {
            /// Position in the graph's list.
            pub fn index(self) -> usize { self.0 }
        }
    )*};
}

ids!(
    /// A node.
    NodeId,
    /// A value.
    ValueId,
    /// A parameter.
    ParamId,
    /// A scope.
    ScopeId
);

/// One op applied to values.
#[derive(Clone, Debug)]
pub struct Node {
    /// Position in execution order.
    pub id: NodeId,
    /// Full name: the public module path, or a stable functional name (`layer1.0.add`).
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// Values that it reads. Where parameters are state, they follow the op's own operands.
    pub inputs: Vec<ValueId>,
    /// Values that it defines.
    pub outputs: Vec<ValueId>,
    /// Parameters that it declares, in state-dict order; none where parameters are state.
    pub params: Vec<ParamId>,
    /// The scope it stands in.
    pub scope: ScopeId,
    /// True for a module of the public network, false for a functional op.
    pub is_module: bool,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// Input of the graph, by position.
    Input(usize),
    /// Output of a node, by position.
    Node(NodeId, usize),
    /// State as it enters, by position.
    State(usize),
}

/// A tensor that flows through the graph.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Value {
    pub ty: TensorType,
    pub source: ValueSource,
}

/// A named parameter or buffer.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Public state-dict name.
    pub name: String,
    /// Sizes.
    pub shape: Vec<usize>,
    /// How it starts in training.
    pub init: Initializer,
    /// False for buffers.
    pub trainable: bool,
    /// For a buffer that training moves: the value that it becomes.
    pub next: Option<ValueId>,
    /// The grid of integers that its values lie on, where it was quantised.
    pub grid: Option<WeightGrid>,
    /// The factors of each size, where one is a product that an elastic axis cuts within; else none.
    pub(crate) factors: Option<Vec<Vec<usize>>>,
    /// The part of a larger parameter that it is, where training moves the larger one.
    pub(crate) part: Option<Part>,
}

impl Parameter {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
    /// The factors of its sizes, one behind the other.
    pub(crate) fn factors(&self) -> Vec<usize> {
        match &self.factors {
            Some(factors) => factors.concat(),
            None => self.shape.clone(),
        }
    }
    /// Bytes as f32, or of its integers and their scales.
    pub fn bytes(&self) -> u64 {
        let elements = self.elements() as u64;
        match self.grid {
            None => 4 * elements,
            Some(grid) => elements + 4 * (elements / grid.group(&self.shape) as u64),
        }
    }
}

/// An input of the graph.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Input {
    pub name: String,
    pub value: ValueId,
}

/// What a state is to training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// A trainable parameter: starts as the weights have it.
    Parameter,
    /// A buffer such as a running mean: starts as the weights have it.
    Buffer,
    /// What an optimiser remembers: starts at zero.
    Moment,
}

/// A tensor that outlives a run: it enters as `value` and leaves as `next`, which the next run finds.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct State {
    pub name: String,
    pub kind: StateKind,
    pub value: ValueId,
    /// `value` itself where nothing changes it.
    pub next: ValueId,
    /// What it begins as where weights do not have it.
    pub begins_as: Option<WholeState>,
}

/// The state of a whole network that a part's own begins as.
#[derive(Clone, Debug)]
pub struct WholeState {
    pub(crate) name: String,
    /// None where the part has all of it.
    pub(crate) part: Option<Part>,
}

impl State {
    /// What weights say that it begins as.
    pub fn read<'w>(
        &self,
        weights: &'w dyn WeightSource,
        shape: &[usize],
    ) -> Result<Cow<'w, [f32]>, WeightError> {
        let own = weights.read(&self.name, shape);
        match (&self.begins_as, own) {
            (Some(WholeState { name, part }), Err(WeightError::Missing { .. })) => match part {
                Some(part) => Ok(part.take(&weights.read(name, &part.whole)?).into()),
                None => weights.read(name, shape),
            },
            (_, own) => own,
        }
    }
}

/// What an input's size must satisfy.
#[derive(Clone, Debug)]
pub struct Requirement {
    /// Name of the input.
    pub input: String,
    /// Its axis.
    pub axis: usize,
    /// The axis in words, such as `height`.
    pub what: String,
    /// The size must be a multiple of this.
    pub multiple_of: usize,
    /// And at least this.
    pub at_least: usize,
}

/// A child of a scope, in order of appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ScopeChild {
    Scope(ScopeId),
    Node(NodeId),
}

/// A module of the public network that contains others.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Full path, empty for the root.
    pub path: String,
    /// Class name as PyTorch prints it.
    pub class: String,
    /// Enclosing scope; `None` for the root.
    pub parent: Option<ScopeId>,
    /// Modules and functional ops inside.
    pub children: Vec<ScopeChild>,
    /// The module's output.
    pub value: Option<ValueId>,
}

/// A network.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) values: Vec<Value>,
    pub(crate) params: Vec<Parameter>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) states: Vec<State>,
    pub(crate) outputs: Vec<(String, ValueId)>,
    pub(crate) names: BTreeMap<String, ValueId>,
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) axes: Vec<Axis>,
    /// Where it is trained as a part of another: what its own running statistics are called.
    pub(crate) part_label: Option<String>,
}

impl Graph {
    /// Nodes in execution order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }
    /// All values.
    pub fn values(&self) -> &[Value] {
        &self.values
    }
    /// A value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }
    /// Every value's id.
    pub fn value_ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len()).map(ValueId)
    }
    /// Parameters and buffers in state-dict order.
    pub fn params(&self) -> &[Parameter] {
        &self.params
    }
    /// A parameter.
    pub fn param(&self, id: ParamId) -> &Parameter {
        &self.params[id.0]
    }
    /// Scopes; the first is the root.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }
    /// A scope.
    pub fn scope(&self, id: ScopeId) -> &Scope {
        &self.scopes[id.0]
    }
    /// Inputs.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }
    /// What outlives a run; nothing in an inference graph.
    pub fn states(&self) -> &[State] {
        &self.states
    }
    /// The state of this name.
    pub fn state(&self, name: &str) -> Option<&State> {
        self.states.iter().find(|state| state.name == name)
    }
    /// Named outputs.
    pub fn outputs(&self) -> &[(String, ValueId)] {
        &self.outputs
    }
    /// What input sizes must satisfy.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The widths that can be chosen, with the levels that this graph has.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Number of trainable parameters: what people mean by the size of a network.
    pub fn parameter_count(&self) -> usize {
        self.params
            .iter()
            .filter(|p| p.trainable)
            .map(Parameter::elements)
            .sum()
    }

    /// Finds a value by output name, given name, scope path or node name, with the nearest name when there is none.
    pub fn find(&self, name: &str) -> Result<ValueId, GraphError> {
        if let Some((_, value)) = self.outputs.iter().find(|(output, _)| output == name) {
            return Ok(*value);
        }
        if let Some(value) = self.names.get(name) {
            return Ok(*value);
        }
        if let Some(node) = self.nodes.iter().find(|node| node.name == name) {
            return Ok(node.outputs[0]);
        }
        match self.scopes.iter().find(|scope| scope.path == name) {
            Some(scope) => scope.value.ok_or_else(|| GraphError::ScopeWithoutValue {
                name: name.to_owned(),
            }),
            None => Err(GraphError::UnknownScope {
                name: name.to_owned(),
            }),
        }
    }

    /// Every name that [`Graph::find`] knows.
    pub fn findable_names(&self) -> Vec<&str> {
        let scopes = self
            .scopes
            .iter()
            .filter(|scope| scope.value.is_some() && !scope.path.is_empty());
        let mut names: Vec<&str> = self.outputs.iter().map(|(name, _)| name.as_str()).collect();
        names.extend(self.names.keys().map(String::as_str));
        names.extend(scopes.map(|scope| scope.path.as_str()));
        names.extend(self.nodes.iter().map(|node| node.name.as_str()));
        names
    }

    /// The same graph with this value as one more output, so that every reader and rewrite keeps it.
    pub fn with_output(mut self, name: &str, value: ValueId) -> Self {
        self.outputs.push((name.to_owned(), value));
        self
    }

    /// Symbol values from the shapes of all inputs, checked against what the network can take.
    pub fn bind(&self, shapes: &[(&str, Vec<usize>)]) -> Result<Bindings, GraphError> {
        let bindings = self.bind_symbols(shapes)?;
        self.check_sizes(&bindings)?;
        Ok(bindings)
    }

    /// Symbol values from the shapes of all inputs. Whether the network can take them is [`Graph::check_sizes`]'s to say, which looks
    /// at every value: who runs a network again and again asks when sizes are new.
    pub fn bind_symbols(&self, shapes: &[(&str, Vec<usize>)]) -> Result<Bindings, GraphError> {
        for (name, _) in shapes {
            if !self.inputs.iter().any(|input| input.name == *name) {
                let known: Vec<&str> = self
                    .inputs
                    .iter()
                    .map(|input| input.name.as_str())
                    .collect();
                return Err(GraphError::UnknownInput {
                    name: (*name).to_owned(),
                    known: known.join(", "),
                });
            }
        }
        let mut bindings = Bindings::new();
        for input in &self.inputs {
            let given = shapes.iter().find(|(name, _)| *name == input.name);
            let (_, shape) = given.ok_or_else(|| GraphError::MissingInput {
                name: input.name.clone(),
            })?;
            self.bind_input(input, shape, &mut bindings)?;
        }
        Ok(bindings)
    }

    /// Whether no size inside of the network vanishes or falls below zero.
    pub fn check_sizes(&self, bindings: &Bindings) -> Result<(), GraphError> {
        let mut taken = self
            .inputs
            .iter()
            .flat_map(|input| &self.value(input.value).ty.shape);
        let is_empty = taken.any(|dim| dim.eval(bindings) == Ok(0));
        for dim in self.values.iter().flat_map(|value| &value.ty.shape) {
            match dim.eval(bindings) {
                // Nothing in, nothing out; but a network whose inner sizes vanish cannot take the input.
                Ok(0) if !is_empty => {
                    return Err(GraphError::NegativeSize {
                        size: dim.to_string(),
                        value: 0,
                    });
                }
                // A size that a run defines is not known yet.
                Ok(_) | Err(GraphError::UnboundSymbol { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    fn bind_input(
        &self,
        input: &Input,
        shape: &[usize],
        bindings: &mut Bindings,
    ) -> Result<(), GraphError> {
        let ty = &self.value(input.value).ty;
        let mismatch = || GraphError::InputShape {
            input: input.name.clone(),
            expected: ty
                .shape
                .iter()
                .map(Dim::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            got: shape.to_vec(),
        };
        if shape.len() != ty.shape.len() {
            return Err(mismatch());
        }
        for (dim, &size) in ty.shape.iter().zip(shape) {
            match dim.as_symbol() {
                Some(symbol) => {
                    let first = *bindings.entry(symbol.clone()).or_insert(size);
                    if first != size {
                        let symbol = symbol.to_string();
                        return Err(GraphError::ConflictingSymbol {
                            symbol,
                            first,
                            second: size,
                        });
                    }
                }
                // A constant, or a size that the inputs before this one have settled.
                None if dim.eval(bindings) == Ok(size) => {}
                None => return Err(mismatch()),
            }
        }
        self.requirements
            .iter()
            .filter(|r| r.input == input.name)
            .try_for_each(|r| r.check(shape[r.axis]))
    }

    /// The shape of a value for these symbol values.
    pub fn value_shape(
        &self,
        value: ValueId,
        bindings: &Bindings,
    ) -> Result<Vec<usize>, GraphError> {
        self.value(value).ty.eval(bindings)
    }

    /// The bytes of a value for these symbol values; 0 while a run has yet to define its size.
    pub fn value_bytes(&self, value: ValueId, bindings: &Bindings) -> Result<u64, GraphError> {
        let ty = &self.value(value).ty;
        match ty.elements().eval(bindings) {
            Ok(elements) => Ok(elements as u64 * ty.dtype.size_bytes() as u64),
            Err(GraphError::UnboundSymbol { .. }) => Ok(0),
            Err(other) => Err(other),
        }
    }

    /// The types that a node reads.
    pub fn input_types(&self, node: &Node) -> Vec<&TensorType> {
        node.inputs
            .iter()
            .map(|&value| &self.value(value).ty)
            .collect()
    }

    /// The types that a node defines.
    pub fn output_types(&self, node: &Node) -> Vec<&TensorType> {
        node.outputs
            .iter()
            .map(|&value| &self.value(value).ty)
            .collect()
    }

    /// The cost of a node in symbols.
    pub fn symbolic_cost(&self, node: &Node) -> Cost {
        node.op
            .cost(&self.input_types(node), &self.output_types(node))
    }
}

impl Node {
    /// The values of the op's parameters, where they are state; `None` where the node declares them.
    pub fn param_values(&self) -> Option<&[ValueId]> {
        let count = self.op.params().len();
        (self.params.is_empty() && count > 0)
            .then(|| self.inputs.len().checked_sub(count))
            .flatten()
            .map(|start| &self.inputs[start..])
    }
}

impl Requirement {
    fn check(&self, got: usize) -> Result<(), GraphError> {
        let (input, what) = (self.input.clone(), self.what.clone());
        if got < self.at_least {
            return Err(GraphError::TooSmall {
                input,
                what,
                got,
                at_least: self.at_least,
            });
        }
        if !got.is_multiple_of(self.multiple_of) {
            let below = got / self.multiple_of * self.multiple_of;
            let above = below + self.multiple_of;
            let nearest = if got - below < above - got && below >= self.at_least {
                below
            } else {
                above
            };
            return Err(GraphError::NotAMultiple {
                input,
                what,
                got,
                multiple_of: self.multiple_of,
                nearest,
            });
        }
        Ok(())
    }
}
