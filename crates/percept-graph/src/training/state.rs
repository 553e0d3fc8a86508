//! Parameters, running statistics and random counters as state: what a network must be before it can learn.

use crate::graph::{Graph, Input, State, StateKind, Value, ValueId, ValueSource};
use crate::ops::{BatchNormTraining, Op, RandomDropout};
use crate::{Dim, TensorType};

/// The input of a training graph with dropout: a seed and a step, from which every random number follows.
pub const RANDOM_COUNTER: &str = "random_counter";

impl Graph {
    /// The same network with its parameters and buffers as state that nodes read as values. Every value keeps its id.
    pub fn with_state(mut self) -> Self {
        if self.nodes.iter().all(|node| node.params.is_empty()) {
            return self;
        }
        let mut value_of = Vec::new();
        for param in &self.params {
            let value = ValueId(self.values.len());
            self.values.push(Value {
                ty: TensorType::f32(param.shape.iter().map(|&size| Dim::from(size))),
                source: ValueSource::State(self.states.len()),
            });
            self.states.push(State {
                name: param.name.clone(),
                kind: match param.trainable {
                    true => StateKind::Parameter,
                    false => StateKind::Buffer,
                },
                value,
                next: param.next.unwrap_or(value),
            });
            value_of.push(value);
        }
        for node in &mut self.nodes {
            let params = std::mem::take(&mut node.params);
            let values = params.iter().map(|param| value_of[param.index()]);
            node.inputs.extend(values);
        }
        self
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
            let &[.., mean, variance] = &graph.nodes[index].inputs[..] else {
                unreachable!("a batch norm has running statistics")
            };
            for (state, next) in [(mean, added[2]), (variance, added[3])] {
                if let ValueSource::State(position) = graph.values[state.index()].source {
                    graph.states[position].next = next;
                }
            }
        }
        graph
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
