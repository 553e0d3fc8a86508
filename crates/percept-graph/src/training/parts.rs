//! A step cut in two, for a batch that is worked through in parts: gradients that add up, and one update by their sums.

use super::differentiate;
use super::optimise::Training;
use crate::graph::{Graph, ScopeId, State, StateKind};
use crate::ops::{Binary, BinaryKind};
use crate::{Builder, GraphError};

/// The input that weighs a part: its share of the batch.
pub const PART_SHARE: &str = "part_share";

/// The two graphs of a step in parts.
#[derive(Clone, Debug)]
pub struct TrainingInParts {
    /// Has the graph's own inputs and outputs, and the input [`PART_SHARE`]. A run adds the gradients of a part, by its share,
    /// to the state `NAME.gradient` of every parameter that trains.
    pub gradients: Graph,
    /// Takes these sums as inputs of the same names, and [`LEARNING_RATE`](super::LEARNING_RATE), and moves the parameters, which are state of both.
    pub update: Graph,
}

impl Training {
    /// The step of [`Training::graph`], in two.
    pub fn in_parts(
        &self,
        graph: Graph,
        loss: &str,
        trains: impl Fn(&str) -> bool,
    ) -> Result<TrainingInParts, GraphError> {
        let graph = graph.partly_in_training(&trains);
        let loss = graph.find(loss)?;
        let moving: Vec<State> = graph
            .states()
            .iter()
            .filter(|state| state.kind == StateKind::Parameter && trains(&state.name))
            .cloned()
            .collect();
        let wrt: Vec<_> = moving.iter().map(|state| state.value).collect();

        let mut b = Builder::resume(graph);
        let share = b.input(PART_SHARE, []);
        let multiply = Binary {
            kind: BinaryKind::Mul,
        };
        let weighed = b.append(
            ScopeId(0),
            "optimiser.weigh",
            multiply.into(),
            &[loss, share],
            &[],
        )[0];
        let differentiated = differentiate(b.finish()?, weighed, &wrt)?;
        let mut b = Builder::resume(differentiated.graph.with_rectified_norms());
        let mut learning = Vec::new();
        for state in moving {
            let Some(&gradient) = differentiated.gradients.get(&state.value) else {
                continue;
            };
            let ty = b.graph().value(state.value).ty.clone();
            let name = format!("{}.gradient", state.name);
            let sum = b.add_state(&name, StateKind::Moment, ty.clone());
            let add = Binary {
                kind: BinaryKind::Add,
            };
            let name = format!("optimiser.{name}");
            let next = b.append(ScopeId(0), &name, add.into(), &[sum, gradient], &[])[0];
            b.leave(sum, next);
            learning.push((state.name, ty));
        }
        let gradients = b.finish()?;

        let mut b = Builder::new("Update");
        let numbers = self.numbers(&mut b);
        let mut pairs = Vec::new();
        for (name, ty) in learning {
            let gradient = b.input(&format!("{name}.gradient"), ty.shape.clone());
            pairs.push((b.add_state(&name, StateKind::Parameter, ty), gradient));
        }
        self.update_all(&mut b, &pairs, numbers);
        let update = b.finish()?;
        Ok(TrainingInParts { gradients, update })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdamW, Dim, LEARNING_RATE, Optimiser, Reduce, ReduceKind};

    #[test]
    fn sums_and_parameters_are_known_by_the_same_names_on_both_sides() {
        let mut b = Builder::new("Net");
        let x = b.input("x", [Dim::symbol("N"), 3.into()]);
        let y = b.linear("fc", x, 3, 2);
        let (kind, axes) = (ReduceKind::Mean, vec![0, 1]);
        let loss = b.call("loss", Reduce { kind, axes }, &[y]);
        b.output("loss", loss);
        let training = Training {
            optimiser: Optimiser::AdamW(AdamW::default()),
            clip_norm: Some(1.0),
        };
        let halves = training.in_parts(b.finish().unwrap(), "loss", |name| name != "fc.bias");
        let TrainingInParts { gradients, update } = halves.unwrap();
        let moving = |graph: &Graph| -> Vec<String> {
            let states = graph
                .states()
                .iter()
                .filter(|state| state.next != state.value);
            states.map(|state| state.name.clone()).collect()
        };
        assert_eq!(moving(&gradients), ["fc.weight.gradient"]);
        let inputs: Vec<&str> = update.inputs().iter().map(|i| i.name.as_str()).collect();
        assert_eq!(inputs, [LEARNING_RATE, "fc.weight.gradient"]);
        let expected = [
            "fc.weight",
            "optimiser.steps",
            "fc.weight.first_moment",
            "fc.weight.second_moment",
        ];
        assert_eq!(moving(&update), expected);
        let inputs: Vec<&str> = gradients.inputs().iter().map(|i| i.name.as_str()).collect();
        assert_eq!(inputs, ["x", PART_SHARE]);
    }
}
