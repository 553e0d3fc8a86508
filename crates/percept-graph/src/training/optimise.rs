//! The whole training step: loss, gradients, clipping, and the optimiser's updates of the state.

use super::differentiate;
use crate::graph::{Graph, ScopeId, State, StateKind, ValueId};
use crate::ops::{AdamW, Affine, ClipFactor, Op, Sgd};
use crate::{Builder, GraphError, TensorType};

/// The input that the updates scale their steps with.
pub const LEARNING_RATE: &str = "learning_rate";

/// The input with the momentum of a step, where the [`Optimiser`] is [given](AdamW::given_momentum) one.
pub const MOMENTUM: &str = "momentum";

/// How parameters follow their gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Optimiser {
    Sgd(Sgd),
    AdamW(AdamW),
}

/// What becomes of a network and its loss in one training step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// The updates.
    pub optimiser: Optimiser,
    /// Gradients whose common norm is larger are scaled down to it.
    pub clip_norm: Option<f32>,
}

/// What every update reads beside its own tensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    rate: ValueId,
    momentum: Option<ValueId>,
}

impl Training {
    /// The training step of a graph whose output `loss` is to fall. `trains` says by their names which parameters and running
    /// statistics move, and which dropouts drop.
    ///
    /// The step has the graph's own inputs and outputs and one more input, [`LEARNING_RATE`]; with dropout another one,
    /// [`RANDOM_COUNTER`](super::RANDOM_COUNTER), and with an optimiser that is given its momentum [`MOMENTUM`].
    pub fn graph(
        &self,
        graph: Graph,
        loss: &str,
        trains: impl Fn(&str) -> bool,
    ) -> Result<Graph, GraphError> {
        let graph = graph.partly_in_training(&trains);
        let loss = graph.find(loss)?;
        let moving = |state: &&State| state.kind == StateKind::Parameter && trains(&state.name);
        let wrt: Vec<ValueId> = graph
            .states()
            .iter()
            .filter(moving)
            .map(|s| s.value)
            .collect();
        let differentiated = differentiate(graph, loss, &wrt)?;
        let gradients = differentiated.gradients;
        let mut b = Builder::resume(differentiated.graph.with_rectified_norms());
        let numbers = self.numbers(&mut b);
        let pair = |&weight: &ValueId| Some((weight, *gradients.get(&weight)?));
        let pairs: Vec<_> = wrt.iter().filter_map(pair).collect();
        self.update_all(&mut b, &pairs, numbers);
        b.finish()
    }

    /// The inputs that every update reads.
    pub(super) fn numbers(&self, b: &mut Builder) -> Numbers {
        let rate = b.input(LEARNING_RATE, []);
        let is_given = matches!(self.optimiser, Optimiser::AdamW(adam) if adam.given_momentum);
        let momentum = is_given.then(|| b.input(MOMENTUM, []));
        Numbers { rate, momentum }
    }

    /// Moves parameters by their gradients, given as (parameter, gradient).
    pub(super) fn update_all(
        &self,
        b: &mut Builder,
        pairs: &[(ValueId, ValueId)],
        numbers: Numbers,
    ) {
        let all: Vec<ValueId> = pairs.iter().map(|&(_, gradient)| gradient).collect();
        let clip = self.clip_norm.map(|max_norm| {
            let op = ClipFactor { max_norm };
            b.append(ScopeId(0), "optimiser.clip", op.into(), &all, &[])[0]
        });
        let count = match self.optimiser {
            Optimiser::Sgd(_) => None,
            Optimiser::AdamW(_) => Some(step_count(b)),
        };
        for &(weight, gradient) in pairs {
            let Numbers { rate, momentum } = numbers;
            let numbers = [Some(rate), count, momentum, clip];
            self.update(b, weight, gradient, numbers.into_iter().flatten());
        }
    }

    /// Moves one parameter. Operands: weight, gradient, moments, and then the numbers that there are.
    fn update(
        &self,
        b: &mut Builder,
        weight: ValueId,
        gradient: ValueId,
        numbers: impl Iterator<Item = ValueId>,
    ) {
        let name = name_of(b.graph(), weight);
        let ty = b.graph().value(weight).ty.clone();
        let (op, moments): (Op, &[&str]) = match self.optimiser {
            Optimiser::Sgd(sgd) if sgd.momentum == 0.0 => (sgd.into(), &[]),
            Optimiser::Sgd(sgd) => (sgd.into(), &["velocity"]),
            Optimiser::AdamW(adam) => (adam.into(), &["first_moment", "second_moment"]),
        };
        let mut moving = vec![weight];
        for moment in moments {
            let moment = format!("{name}.{moment}");
            moving.push(b.add_state(&moment, StateKind::Moment, ty.clone()));
        }
        let operands: Vec<ValueId> = [weight, gradient]
            .into_iter()
            .chain(moving[1..].iter().copied())
            .chain(numbers)
            .collect();
        let moved = b.append(ScopeId(0), &format!("optimiser.{name}"), op, &operands, &[]);
        for (state, next) in moving.into_iter().zip(moved) {
            b.leave(state, next);
        }
    }
}

fn name_of(graph: &Graph, state: ValueId) -> String {
    let found = graph.states().iter().find(|s| s.value == state);
    found.map_or_else(String::new, |state| state.name.clone())
}

/// How many steps there have been, this one included.
fn step_count(b: &mut Builder) -> ValueId {
    let before = b.add_state("optimiser.steps", StateKind::Moment, TensorType::f32([]));
    let one_more = Affine::scaled(1.0).shifted(1.0);
    let count = b.append(
        ScopeId(0),
        "optimiser.count",
        one_more.into(),
        &[before],
        &[],
    )[0];
    b.leave(before, count);
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dim, Reduce, ReduceKind};

    fn step(optimiser: Optimiser, clip_norm: Option<f32>) -> Graph {
        let mut b = Builder::new("Net");
        let x = b.input("x", [Dim::symbol("N"), 3.into()]);
        let y = b.linear("fc", x, 3, 2);
        let kind = ReduceKind::Mean;
        let loss = b.call(
            "loss",
            Reduce {
                kind,
                axes: vec![0, 1],
            },
            &[y],
        );
        b.output("loss", loss);
        let training = Training {
            optimiser,
            clip_norm,
        };
        training
            .graph(b.finish().unwrap(), "loss", |name| name != "fc.bias")
            .unwrap()
    }

    #[test]
    fn what_trains_leaves_changed() {
        let graph = step(Optimiser::AdamW(AdamW::default()), Some(1.0));
        let names: Vec<(&str, bool)> = graph
            .states()
            .iter()
            .map(|state| (state.name.as_str(), state.next != state.value))
            .collect();
        assert_eq!(
            names,
            [
                ("fc.weight", true),
                ("fc.bias", false),
                ("optimiser.steps", true),
                ("fc.weight.first_moment", true),
                ("fc.weight.second_moment", true),
            ]
        );
        let inputs: Vec<&str> = graph.inputs().iter().map(|i| i.name.as_str()).collect();
        assert_eq!(inputs, ["x", LEARNING_RATE]);
    }

    #[test]
    fn momentum_that_is_given_is_an_input() {
        let given = AdamW {
            given_momentum: true,
            ..AdamW::default()
        };
        let graph = step(Optimiser::AdamW(given), Some(1.0));
        let inputs: Vec<&str> = graph.inputs().iter().map(|i| i.name.as_str()).collect();
        assert_eq!(inputs, ["x", LEARNING_RATE, MOMENTUM]);
    }

    #[test]
    fn plain_descent_remembers_nothing() {
        let graph = step(Optimiser::Sgd(Sgd::default()), None);
        assert!(graph.states().iter().all(|s| s.kind != StateKind::Moment));
        let momentum = Sgd {
            momentum: 0.9,
            ..Sgd::default()
        };
        let graph = step(Optimiser::Sgd(momentum), None);
        assert!(graph.state("fc.weight.velocity").is_some());
    }
}
