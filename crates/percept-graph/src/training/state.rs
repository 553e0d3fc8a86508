//! Parameters, running statistics and random counters as state: what a network must be before it can learn.

use crate::elastic::{Part, Slicing, statistics_of_part};
use crate::graph::{Graph, Input, State, StateKind, Value, ValueId, ValueSource, WholeState};
use crate::graph::{Node, NodeId, ScopeId};
use crate::ops::{BatchNormTraining, Op, Operator, RandomDropout, Reshape, Slice};
use crate::{Dim, GraphError, TensorType};

/// The input of a training graph with dropout: a seed and a step, from which every random number follows.
pub const RANDOM_COUNTER: &str = "random_counter";

impl Graph {
    /// The same network as a part of a wider one: in training its parameters are read out of the wider one's, whose gradients
    /// are zero outside of the part. Its running statistics are its own, because they are other ones in every part: they are
    /// called [`statistics_of_part`].
    pub fn as_part_of(mut self, whole: &Graph) -> Result<Self, GraphError> {
        let slicing = Slicing::between(whole, &self)?;
        for param in &mut self.params {
            param.part = slicing.part(&param.name).cloned();
            if let Some(wide) = whole.params.iter().find(|wide| wide.name == param.name) {
                param.init = wide.init;
            }
        }
        self.part_label = self.level_label();
        Ok(self)
    }

    /// The same network with its parameters and buffers as state that nodes read as values. Every value keeps its id.
    pub fn with_state(mut self) -> Self {
        if self.nodes.iter().all(|node| node.params.is_empty()) {
            return self;
        }
        let mut value_of = Vec::new();
        let mut parts: Vec<(String, ValueId, Part)> = Vec::new();
        for param in &self.params {
            let value = ValueId(self.values.len());
            let shape = param.part.as_ref().map_or(&param.shape, |part| &part.whole);
            self.values.push(Value {
                ty: TensorType::f32(shape.iter().map(|&size| Dim::from(size))),
                source: ValueSource::State(self.states.len()),
            });
            if let Some(part) = &param.part {
                parts.push((param.name.clone(), value, part.clone()));
            }
            self.states.push(State {
                name: param.name.clone(),
                kind: match param.trainable {
                    true => StateKind::Parameter,
                    false => StateKind::Buffer,
                },
                value,
                next: param.next.unwrap_or(value),
                begins_as: None,
            });
            value_of.push(value);
        }
        let cuts = self.prepend_cuts(&parts);
        for value in &mut value_of {
            let cut = parts
                .iter()
                .zip(&cuts)
                .find(|((_, whole, _), _)| whole == value);
            if let Some((_, cut)) = cut {
                *value = *cut;
            }
        }
        for node in &mut self.nodes {
            let params = std::mem::take(&mut node.params);
            let values = params.iter().map(|param| value_of[param.index()]);
            node.inputs.extend(values);
        }
        self
    }

    /// Puts nodes in front of all others that cut parts out of whole parameters; gives the values of the parts.
    fn prepend_cuts(&mut self, parts: &[(String, ValueId, Part)]) -> Vec<ValueId> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut cut_values = Vec::new();
        for (name, whole, part) in parts {
            let mut value = *whole;
            for (number, op) in cutting(part).into_iter().enumerate() {
                let ty = op.infer(&[&self.values[value.index()].ty]);
                let ty = ty.expect("a part lies within its whole").remove(0);
                let id = NodeId(self.nodes.len() + nodes.len());
                let made = ValueId(self.values.len());
                self.values.push(Value {
                    ty,
                    source: ValueSource::Node(id, 0),
                });
                nodes.push(Node {
                    id,
                    name: format!("{name}.part_{number}"),
                    op,
                    inputs: vec![value],
                    outputs: vec![made],
                    params: Vec::new(),
                    scope: ScopeId(0),
                    is_module: false,
                });
                value = made;
            }
            cut_values.push(value);
        }
        nodes.extend(self.nodes.iter().cloned());
        self.set_nodes(nodes);
        cut_values
    }

    /// The network as it trains: parameters are state, batch norms take the batch's statistics, dropouts drop.
    pub fn in_training(self) -> Self {
        self.partly_in_training(|_| true)
    }

    /// The network as a part of it trains. `trains` hears the names of running statistics and of dropouts: batch norms and
    /// dropouts of the rest do what they do in inference.
    pub fn partly_in_training(self, trains: impl Fn(&str) -> bool) -> Self {
        self.with_batch_statistics(&trains).with_dropout(&trains)
    }

    /// The same network, stateful, whose batch norms take the batch's statistics and move the running ones.
    fn with_batch_statistics(self, trains: impl Fn(&str) -> bool) -> Self {
        let mut graph = self.with_state();
        for index in 0..graph.nodes.len() {
            let Op::BatchNorm(norm) = graph.nodes[index].op.clone() else {
                continue;
            };
            let statistics = graph.nodes[index].inputs.last();
            let statistics = statistics.map(|value| graph.values[value.index()].source);
            if let Some(ValueSource::State(position)) = statistics
                && !trains(&graph.states[position].name)
            {
                continue;
            }
            let statistics = TensorType::f32([Dim::from(norm.channels)]);
            graph.nodes[index].op = BatchNormTraining { norm }.into();
            let added: Vec<ValueId> = (1..5)
                .map(|position| graph.add_output(index, position, &statistics))
                .collect();
            let first = graph.nodes[index].inputs.len() - 2;
            for (operand, next) in [(first, added[2]), (first + 1, added[3])] {
                let position = graph.statistics(index, operand);
                graph.states[position].next = next;
            }
        }
        graph
    }

    /// The state that holds the running statistics of a batch norm's operand: the network's, or a part's own, which is made here.
    fn statistics(&mut self, node: usize, operand: usize) -> usize {
        let read = self.nodes[node].inputs[operand];
        let Some(label) = self.part_label.clone() else {
            let ValueSource::State(position) = self.values[read.index()].source else {
                unreachable!("running statistics are state")
            };
            return position;
        };
        let suffix = ["running_mean", "running_var"][operand + 2 - self.nodes[node].inputs.len()];
        let name = format!("{}.{suffix}", self.nodes[node].name);
        let part = self.params.iter().find(|param| param.name == name);
        let part = part.and_then(|param| param.part.clone());
        let (position, value) = (self.states.len(), ValueId(self.values.len()));
        self.values.push(Value {
            ty: self.values[read.index()].ty.clone(),
            source: ValueSource::State(position),
        });
        self.nodes[node].inputs[operand] = value;
        self.states.push(State {
            name: statistics_of_part(&name, &label),
            kind: StateKind::Buffer,
            value,
            next: value,
            begins_as: Some(WholeState { name, part }),
        });
        position
    }

    /// The same network whose dropouts drop, by the random numbers of [`RANDOM_COUNTER`].
    fn with_dropout(mut self, trains: impl Fn(&str) -> bool) -> Self {
        for index in 0..self.nodes.len() {
            if let Op::Dropout(dropout) = self.nodes[index].op
                && dropout.p > 0.0
                && trains(&self.nodes[index].name)
            {
                let counter = self.random_counter();
                let node = &mut self.nodes[index];
                node.op = RandomDropout::named(dropout.p, &node.name).into();
                node.inputs.push(counter);
            }
        }
        self
    }

    fn add_output(&mut self, node: usize, position: usize, ty: &TensorType) -> ValueId {
        let value = ValueId(self.values.len());
        self.values.push(Value {
            ty: ty.clone(),
            source: ValueSource::Node(self.nodes[node].id, position),
        });
        self.nodes[node].outputs.push(value);
        value
    }

    /// The input that random numbers follow from, made when first asked for.
    fn random_counter(&mut self) -> ValueId {
        if let Some(input) = self.inputs.iter().find(|i| i.name == RANDOM_COUNTER) {
            return input.value;
        }
        let value = ValueId(self.values.len());
        self.values.push(Value {
            ty: TensorType::i32([Dim::from(2)]),
            source: ValueSource::Input(self.inputs.len()),
        });
        self.inputs.push(Input {
            name: RANDOM_COUNTER.to_owned(),
            value,
        });
        value
    }
}

/// The ops that cut a part out of its whole: one axis for each factor, a slice of those that are cut, and the part's shape.
fn cutting(part: &Part) -> Vec<Op> {
    let dims = |sizes: &[usize]| sizes.iter().map(|&size| Dim::from(size)).collect();
    let whole: Vec<usize> = part.factors().iter().map(|[whole, _]| *whole).collect();
    let kept: Vec<usize> = part.factors().iter().map(|[_, kept]| *kept).collect();
    let mut ops: Vec<Op> = Vec::new();
    if whole != part.whole {
        ops.push(
            Reshape {
                shape: dims(&whole),
            }
            .into(),
        );
    }
    for (axis, (whole, kept)) in whole.iter().zip(&kept).enumerate() {
        if whole != kept {
            let (start, length) = (Dim::from(0), Dim::from(*kept));
            ops.push(
                Slice {
                    axis,
                    start,
                    length,
                }
                .into(),
            );
        }
    }
    if kept != part.narrow {
        ops.push(
            Reshape {
                shape: dims(&part.narrow),
            }
            .into(),
        );
    }
    ops
}
