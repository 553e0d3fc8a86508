//! From a graph to ONNX nodes: which values live, what they are called, and which constants they need.

use std::collections::{BTreeMap, BTreeSet};

use percept_graph::{
    Bindings, DType, Graph, NodeId, Op, ParamId, Per, Sign, ValueId, ValueSource, WeightGrid,
};

use percept_engine::followers;

use crate::integers::IntegerLayer;
use crate::schema::{
    Attribute::{self, Int},
    Node,
};
use crate::{ExportError, constants, ops};

/// Where the data of an initializer comes from. Weights are read only when they are written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Weight(ParamId),
    /// A matrix [rows, columns] stored as [columns, rows].
    TransposedWeight(ParamId),
    /// A weight as the integers of its grid; a matrix may be stored as [columns, rows].
    Integers {
        param: ParamId,
        grid: WeightGrid,
        transposed: bool,
    },
    /// What one integer of each group of weights stands for.
    Steps(ParamId, WeightGrid),
    /// What a layer in integers multiplies its sums by, one factor for each output channel.
    Factors(IntegerLayer),
    /// What it adds then.
    Shifts(IntegerLayer),
    /// The zero of quantised numbers, signed or not.
    Zero(Sign),
    Folded(NodeId),
    F32(Vec<f32>),
    I64(Vec<i64>),
}

/// A named constant of the ONNX graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Initializer {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Data,
}

impl Initializer {
    pub(crate) fn dtype(&self) -> DType {
        match self.data {
            Data::I64(_) => DType::I64,
            Data::Integers { .. } | Data::Zero(Sign::Signed) => DType::I8,
            Data::Zero(Sign::NonNegative) => DType::U8,
            _ => DType::F32,
        }
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        let elements: u64 = self.shape.iter().map(|&size| size as u64).product();
        elements * self.dtype().size_bytes() as u64
    }
}

/// A graph as ONNX sees it, without the data of its weights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lowered {
    pub(crate) nodes: Vec<Node>,
    pub(crate) initializers: Vec<Initializer>,
    pub(crate) inputs: Vec<Declared>,
    pub(crate) outputs: Vec<Declared>,
}

/// An input or output: its name, its element type and its shape.
pub(crate) type Declared = (String, DType, Vec<usize>);

/// Lowers every node that an output needs.
pub(crate) fn lower(graph: &Graph, bindings: &Bindings) -> Result<Lowered, ExportError> {
    let mut lowering = Lowering {
        graph,
        bindings,
        lowered: Lowered::default(),
        names: BTreeMap::new(),
        integers: BTreeMap::new(),
        taken: BTreeSet::new(),
        followers: followers(graph),
    };
    lowering
        .taken
        .extend(graph.outputs().iter().map(|(name, _)| name.clone()));
    for input in graph.inputs() {
        let shape = graph.value_shape(input.value, bindings)?;
        let name = lowering.unique(&input.name);
        lowering.names.insert(input.value, name.clone());
        let dtype = graph.value(input.value).ty.dtype;
        lowering.lowered.inputs.push((name, dtype, shape));
    }
    let live = live_nodes(graph);
    for node in graph.nodes().iter().filter(|node| live.contains(&node.id)) {
        if lowering.is_defined(node) {
            continue;
        }
        if constants::is_folded(graph, node) {
            let shape = graph.value_shape(node.outputs[0], bindings)?;
            let name = lowering.constant(&node.name, shape, Data::Folded(node.id));
            lowering.names.insert(node.outputs[0], name);
        } else {
            ops::lower_node(&mut lowering, node)?;
        }
    }
    for (name, value) in graph.outputs() {
        let shape = graph.value_shape(*value, bindings)?;
        // Inputs, parameters, and values that are an output already do not carry this output's name.
        if lowering.names[value] != *name {
            let source = lowering.names[value].clone();
            lowering.push(
                name.clone(),
                "Identity",
                vec![source],
                vec![name.clone()],
                vec![],
            );
        }
        let dtype = graph.value(*value).ty.dtype;
        lowering.lowered.outputs.push((name.clone(), dtype, shape));
    }
    Ok(lowering.lowered)
}

/// The nodes that outputs need, when folded nodes need nothing.
fn live_nodes(graph: &Graph) -> BTreeSet<NodeId> {
    let mut live = BTreeSet::new();
    let mut wanted: Vec<ValueId> = graph.outputs().iter().map(|(_, value)| *value).collect();
    while let Some(value) = wanted.pop() {
        if let ValueSource::Node(id, _) = graph.value(value).source
            && live.insert(id)
        {
            let node = graph.node(id);
            if !constants::is_folded(graph, node) {
                wanted.extend(&node.inputs);
            }
        }
    }
    live
}

/// A lowering under way.
pub(crate) struct Lowering<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) bindings: &'a Bindings,
    lowered: Lowered,
    names: BTreeMap<ValueId, String>,
    /// The integers of quantised values.
    pub(crate) integers: BTreeMap<ValueId, String>,
    taken: BTreeSet<String>,
    /// Nodes that are folded into the quantised layers in front of them, by those layers.
    pub(crate) followers: BTreeMap<NodeId, NodeId>,
}

impl Lowering<'_> {
    /// The sizes of a value.
    pub(crate) fn shape(&self, value: ValueId) -> Result<Vec<usize>, ExportError> {
        Ok(self.graph.value_shape(value, self.bindings)?)
    }

    /// The ONNX names of a node's inputs.
    pub(crate) fn input_names(&self, node: &percept_graph::Node) -> Vec<String> {
        let takes_integers = self.integer_layer(node).is_some();
        let name = |value: &ValueId| match self.integers.get(value) {
            Some(integers) if takes_integers => integers.clone(),
            _ => self.names[value].clone(),
        };
        node.inputs.iter().map(name).collect()
    }

    /// Whether a layer defined the value of a node that follows it.
    fn is_defined(&self, node: &percept_graph::Node) -> bool {
        self.names.contains_key(&node.outputs[0])
    }

    /// Lets a value go by the name of an existing one.
    pub(crate) fn alias(&mut self, value: ValueId, name: String) {
        self.names.insert(value, name);
    }

    /// A node that defines the first output of `node`.
    pub(crate) fn define(
        &mut self,
        node: &percept_graph::Node,
        op: &'static str,
        inputs: Vec<String>,
        attributes: Vec<(&'static str, Attribute)>,
    ) {
        let value = node.outputs[0];
        let outputs = self.graph.outputs();
        let output = outputs.iter().find(|(_, output)| *output == value);
        let name = match output {
            Some((name, _)) => name.clone(),
            None => self.unique(&node.name),
        };
        self.names.insert(value, name.clone());
        self.push(node.name.clone(), op, inputs, vec![name], attributes);
    }

    /// A node on the way to the value of `node`; returns the name of what it defines.
    pub(crate) fn step(
        &mut self,
        node: &percept_graph::Node,
        suffix: &str,
        op: &'static str,
        inputs: Vec<String>,
        attributes: Vec<(&'static str, Attribute)>,
    ) -> String {
        let name = self.unique(&format!("{}/{suffix}", node.name));
        self.push(name.clone(), op, inputs, vec![name.clone()], attributes);
        name
    }

    /// A node with any outputs.
    pub(crate) fn push(
        &mut self,
        name: String,
        op: &'static str,
        inputs: Vec<String>,
        outputs: Vec<String>,
        attributes: Vec<(&'static str, Attribute)>,
    ) {
        self.lowered.nodes.push(Node {
            name,
            op,
            inputs,
            outputs,
            attributes,
        });
    }

    /// The parameter at this position of a node, stored under its public name.
    pub(crate) fn weight(&mut self, node: &percept_graph::Node, index: usize) -> String {
        let id = node.params[index];
        let shape = self.graph.param(id).shape.clone();
        self.stored(id, shape, false)
    }

    /// A parameter under this shape: floats, or the integers of its grid and what they stand for.
    fn stored(&mut self, id: ParamId, shape: Vec<usize>, transposed: bool) -> String {
        let param = self.graph.param(id);
        let (name, own_shape) = (param.name.clone(), param.shape.clone());
        let Some(grid) = param.grid else {
            return match transposed {
                false => self.constant(&name, shape, Data::Weight(id)),
                true => {
                    let name = format!("{name}.transposed");
                    self.constant(&name, shape, Data::TransposedWeight(id))
                }
            };
        };
        let integers = Data::Integers {
            param: id,
            grid,
            transposed,
        };
        let (steps, axis) = match grid.per {
            Per::Tensor => (vec![], vec![]),
            Per::Channel => {
                let axis = if transposed { own_shape.len() - 1 } else { 0 };
                (vec![own_shape[0]], vec![("axis", Int(axis as i64))])
            }
        };
        let integers = self.constant(&format!("{name}.integers"), shape, integers);
        let steps = self.constant(&format!("{name}.steps"), steps, Data::Steps(id, grid));
        let name = self.unique(&name);
        let (inputs, outputs) = (vec![integers, steps], vec![name.clone()]);
        self.push(name.clone(), "DequantizeLinear", inputs, outputs, axis);
        name
    }

    /// The zero point of quantised numbers.
    pub(crate) fn zero_point(&mut self, node: &percept_graph::Node, sign: Sign) -> String {
        let name = format!("{}/zero", node.name);
        self.constant(&name, vec![], Data::Zero(sign))
    }

    /// The first parameter of a node, under another shape.
    pub(crate) fn shaped_weight(
        &mut self,
        node: &percept_graph::Node,
        shape: impl Into<Vec<usize>>,
    ) -> String {
        self.stored(node.params[0], shape.into(), false)
    }

    /// The first parameter of a node, a matrix, stored transposed.
    pub(crate) fn transposed_weight(&mut self, node: &percept_graph::Node) -> String {
        let id = node.params[0];
        let shape = self.graph.param(id).shape.iter().rev().copied().collect();
        self.stored(id, shape, true)
    }

    /// A number.
    pub(crate) fn scalar(
        &mut self,
        node: &percept_graph::Node,
        suffix: &str,
        value: f32,
    ) -> String {
        let name = format!("{}/{suffix}", node.name);
        self.constant(&name, vec![], Data::F32(vec![value]))
    }

    /// A number at every place of a shape.
    pub(crate) fn filled(
        &mut self,
        node: &percept_graph::Node,
        suffix: &str,
        value: f32,
        shape: Vec<usize>,
    ) -> String {
        let number = self.scalar(node, &format!("{suffix}_number"), value);
        let shape = self.integers(node, &format!("{suffix}_shape"), shape);
        self.step(node, suffix, "Expand", vec![number, shape], vec![])
    }

    /// A list of integers, such as a shape or axes.
    pub(crate) fn integers(
        &mut self,
        node: &percept_graph::Node,
        suffix: &str,
        values: impl IntoIterator<Item = usize>,
    ) -> String {
        let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
        let name = format!("{}/{suffix}", node.name);
        self.constant(&name, vec![values.len()], Data::I64(values))
    }

    pub(crate) fn constant(&mut self, name: &str, shape: Vec<usize>, data: Data) -> String {
        let name = self.unique(name);
        self.lowered.initializers.push(Initializer {
            name: name.clone(),
            shape,
            data,
        });
        name
    }

    fn unique(&mut self, name: &str) -> String {
        let numbered = (2..).map(|n| format!("{name}_{n}"));
        let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
        let free = candidates.find(|candidate| !self.taken.contains(candidate));
        let free = free.expect("the counter is unbounded");
        self.taken.insert(free.clone());
        free
    }
}

/// An op that ONNX cannot express.
pub(crate) fn unsupported(node: &percept_graph::Node, reason: impl Into<String>) -> ExportError {
    ExportError::Unsupported {
        node: node.name.clone(),
        op: kind(&node.op),
        reason: reason.into(),
    }
}

fn kind(op: &Op) -> &'static str {
    percept_graph::Operator::kind(op)
}
