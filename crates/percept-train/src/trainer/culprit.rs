//! Where a loss that is no number comes from: the run is repeated from its last checkpoint and watched.

use std::sync::Arc;

use percept_data::loader::{Batch, Position};
use percept_engine::{Memory, Options, TrainStep};
use percept_graph::{RANDOM_COUNTER, Tensor, ValueId, differentiate};
use percept_kernels::Cpu;

use super::Trainer;
use crate::TrainError;
use crate::checkpoint::{CheckpointWriter, Snapshot, latest};
use crate::step::{Step, StepInputs, part_inputs, random_counter};

impl Trainer {
    /// The error of a step whose loss is not finite.
    pub(super) fn not_finite(&self, writer: CheckpointWriter, step: u64) -> TrainError {
        let good = writer.finish().and_then(|_| latest(&self.options.folder));
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
        let mut step = self.first_step()?;
        let (mut done, mut position) = (0, Position::default());
        if let Some(snapshot) = snapshot {
            step.restore(&snapshot.tensors)?;
            (done, position) = (snapshot.state.step, snapshot.state.position);
        }
        for batch in self.batches.start(position)? {
            let batch = batch?;
            if done + 1 == failing {
                return self.watch(&mut step, &batch, done);
            }
            let rate = self.config.schedule.rate_at(done, &self.length);
            step.run(&batch, StepInputs { done, rate }, None)?;
            done += 1;
        }
        Ok("it did not happen again".to_owned())
    }

    /// The first thing that is not finite: a parameter as the step finds it, or a node's output.
    fn watch(&self, step: &mut Step, batch: &Batch, done: u64) -> Result<String, TrainError> {
        let state = step.state()?;
        let broken = state.iter().find(|(_, tensor)| !is_finite(tensor));
        if let Some((name, _)) = broken {
            return Ok(format!("{name}, as step {done} left it"));
        }
        let graph = self.learner.training.clone().in_training();
        let loss = graph.find(&self.learner.loss)?;
        let states: Vec<ValueId> = graph.states().iter().map(|state| state.value).collect();
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
        let weights = Arc::new(step.parameters()?);
        let cpu = Cpu::new(self.options.threads)?;
        let mut watched = TrainStep::new(graph, weights, cpu, options)?;
        let images = batch.labels.len();
        let most = images.div_ceil(self.config.parts).max(1);
        for (part, begin) in (0..images).step_by(most).enumerate() {
            let mut inputs = part_inputs(
                &self.learner.views,
                batch,
                begin..(begin + most).min(images),
            )
            .map_err(percept_engine::EngineError::from)?;
            let counter = done * self.config.parts as u64 + part as u64;
            let has_dropout = watched.program().graph().inputs();
            if has_dropout.iter().any(|input| input.name == RANDOM_COUNTER) {
                let counter = random_counter(self.config.seed, counter);
                inputs.push((RANDOM_COUNTER.to_owned(), counter));
            }
            if let Some((name, _)) = inputs.iter().find(|(_, tensor)| !is_finite(tensor)) {
                return Ok(format!("the input `{name}`"));
            }
            let given: Vec<(&str, &Tensor<'_>)> = inputs
                .iter()
                .map(|(name, tensor)| (name.as_str(), tensor))
                .collect();
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

fn is_finite(tensor: &Tensor<'_>) -> bool {
    tensor.to_f32().iter().all(|value| value.is_finite())
}
