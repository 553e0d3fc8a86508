//! A training step to be measured: no folder, no evaluation, no checkpoints, and parameters that stay as they are.

use std::sync::Arc;
use std::time::Duration;

use percept_data::Example;
use percept_data::loader::{Batch, Position};
use percept_engine::{Program, Recording};

use crate::parameters::InitialParameters;
use crate::stepper::{StepInputs, Stepper};
use crate::{BatchStream, Fitted, Learner, RunState, Snapshot, TrainConfig, TrainError};

/// A learner's step that can be repeated at will.
pub struct Probe(Stepper);

impl Probe {
    /// The whole step, never in parts.
    pub fn new(
        learner: &Learner,
        config: &TrainConfig,
        threads: usize,
    ) -> Result<Self, TrainError> {
        let weights = InitialParameters::of(learner, config.seed);
        let whole = TrainConfig {
            parts: 1,
            ..config.clone()
        };
        Stepper::new(learner, &whole, Arc::new(weights), threads).map(Self)
    }

    /// One step. The learning rate is zero: a step costs the same wherever the parameters are.
    pub fn run(
        &mut self,
        batch: &Batch,
        recording: Option<&mut Recording>,
    ) -> Result<(), TrainError> {
        let first = StepInputs {
            done: 0,
            rate: 0.0,
            momentum: 0.0,
        };
        self.0.run(batch, first, recording).map(|_| ())
    }

    /// The next of some batches; a plan may ask the network as it is.
    pub fn next_batch(
        &mut self,
        batches: &mut BatchStream<'_>,
    ) -> Result<Option<Batch>, TrainError> {
        batches.next(&mut self.0)
    }

    /// A checkpoint of it.
    pub fn snapshot(
        &mut self,
        learner: &Learner,
        config: &TrainConfig,
    ) -> Result<Snapshot, TrainError> {
        Ok(Snapshot {
            state: RunState {
                model: learner.describe(),
                config: serde_json::Value::Null,
                optimiser: serde_json::Value::Null,
                schedule: config.schedule,
                seed: config.seed,
                step: 0,
                position: Position::default(),
                best: None,
                unimproved: 0,
            },
            card: Some(learner.card.clone()),
            plan: None,
            tensors: self.0.state()?,
        })
    }

    /// What a limit of memory led to, where there is one.
    pub fn fitted(&self) -> Option<&Fitted> {
        self.0.fitted()
    }

    /// What runs the step.
    pub fn program(&self) -> &Program {
        self.0.program()
    }
}

/// Examples as a batch, to be measured.
pub fn batch_of(examples: Example) -> Batch {
    Batch {
        samples: (0..examples.samples).collect(),
        parts: vec![examples],
        epoch: 0,
        next: Position::default(),
        skipped: Vec::new(),
        waited: Duration::ZERO,
    }
}
