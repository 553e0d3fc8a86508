//! Where a loss that is no number comes from: the run is repeated from its last checkpoint and watched.

use std::sync::Arc;

use percept_data::loader::{Batch, Position};
use percept_engine::{Memory, Options, TrainStep};
use percept_graph::{RANDOM_COUNTER, Tensor, ValueId, differentiate};
use percept_kernels::Cpu;

use super::Trainer;
use super::run::is_finite;
use crate::TrainError;
use crate::checkpoint::{CheckpointWriter, Snapshot, latest};
use crate::stepper::{StepInputs, Stepper, random_counter};

impl Trainer {
    /// The error of a step whose loss is not finite.
    pub(super) fn not_finite(&self, writer: Option<CheckpointWriter>, step: u64) -> TrainError {
        let written = writer.map_or(Ok(()), |writer| writer.finish().map(|_| ()));
        let good = written.and_then(|()| latest(&self.options.folder));
        let (checkpoint, snapshot) = match good {
            Ok(found) => found.snapshot.unzip(),
            Err(error) => return error.into(),
        };
        let culprit = self.find_culprit(snapshot.as_ref(), step);
        TrainError::NotFinite {
            step,
            culprit: culprit
                .unwrap_or_else(|error| format!("where it began is not known: {error}")),
            checkpoint,
        }
    }

    /// Repeats the steps from the snapshot to the one before `failing`, and watches that one.
    fn find_culprit(
        &self,
        snapshot: Option<&Snapshot>,
        failing: u64,
    ) -> Result<String, TrainError> {
        let mut stepper = self.first_stepper()?;
        let (mut done, mut position, mut plan) = (0, Position::default(), None);
        if let Some(snapshot) = snapshot {
            stepper.restore(&snapshot.tensors)?;
            (done, position) = (snapshot.state.step, snapshot.state.position);
            plan = snapshot.plan.clone().map(Arc::new);
        }
        let mut batches = self.batches.start(position, plan)?;
        while let Some(batch) = batches.next(&mut stepper)? {
            if done + 1 == failing {
                return self.watch(&mut stepper, &batch, done);
            }
            let inputs = StepInputs::behind(done, &self.config.schedule, &self.length);
            stepper.run(&batch, inputs, None)?;
            done += 1;
        }
        Ok("it did not happen again".to_owned())
    }

    /// The first thing that is not finite: a parameter as the step finds it, or a node's output.
    fn watch(&self, stepper: &mut Stepper, batch: &Batch, done: u64) -> Result<String, TrainError> {
        let state = stepper.state()?;
        let broken = state.iter().find(|(_, tensor)| !is_finite(tensor));
        if let Some((name, _)) = broken {
            return Ok(format!("{name}, as step {done} left it"));
        }
        let lesson = &self.learner.lesson;
        let chosen = lesson.choose(self.config.seed, done);
        let learned_by = lesson.graphs().swap_remove(chosen);
        let trains = |name: &str| self.config.freeze.trains(name);
        let graph = learned_by.graph.partly_in_training(trains);
        let loss = graph.find(learned_by.loss)?;
        let moving = graph.states().iter().filter(|state| trains(&state.name));
        let states: Vec<ValueId> = moving.map(|state| state.value).collect();
        let mut graph = differentiate(graph, loss, &states)?.graph;
        for node in graph.nodes().to_vec() {
            for (position, &value) in node.outputs.iter().enumerate() {
                if graph.value(value).ty.dtype.is_float() {
                    graph = graph.with_output(&format!("{position} {}", node.name), value);
                }
            }
        }
        let options = Options {
            memory: Memory::Keep,
            ..Options::default()
        };
        let weights = Arc::new(stepper.parameters()?);
        let cpu = Cpu::new(self.options.threads)?;
        let mut watched = TrainStep::new(graph, weights, cpu, options)?;
        let wanted = watched.program().graph().inputs().to_vec();
        for (number, part) in (0..).zip(&batch.parts) {
            let counter = done * self.config.parts as u64 + number;
            let counter = random_counter(self.config.seed, counter);
            let given: Vec<(&str, &Tensor<'_>)> = wanted
                .iter()
                .filter_map(|input| match input.name.as_str() {
                    RANDOM_COUNTER => Some((RANDOM_COUNTER, &counter)),
                    name => Some((name, part.get(name)?)),
                })
                .collect();
            if let Some((name, _)) = given.iter().find(|(_, tensor)| !is_finite(tensor)) {
                return Ok(format!("the input `{name}`"));
            }
            let outputs = watched.step(&given)?;
            let broken = outputs
                .iter()
                .find(|(name, tensor)| name.contains(' ') && !is_finite(tensor));
            if let Some((_, node)) = broken.and_then(|(name, _)| name.split_once(' ')) {
                return Ok(format!("the first layer to give such numbers is {node}"));
            }
        }
        Ok("no layer gives such numbers when it is watched".to_owned())
    }
}
