//! A training step to be measured: no folder, no evaluation, no checkpoints, and parameters that stay as they are.

use std::sync::Arc;
use std::time::Duration;

use percept_data::loader::{Batch, Position};
use percept_data::seeded::{Family, seeded_values};
use percept_engine::{EngineError, Program, Recording};
use percept_graph::Tensor;

use crate::parameters::InitialParameters;
use crate::step::{Step, StepInputs};
use crate::{Learner, TrainConfig, TrainError};

/// A learner's step that can be repeated at will.
pub struct Probe(Step);

impl Probe {
    /// The whole step, never in parts.
    pub fn new(
        learner: &Learner,
        config: &TrainConfig,
        threads: usize,
    ) -> Result<Self, TrainError> {
        let weights = InitialParameters::new(&learner.training, config.seed);
        let whole = TrainConfig {
            parts: 1,
            ..config.clone()
        };
        Step::new(learner, &whole, Arc::new(weights), threads).map(Self)
    }

    /// One step. The learning rate is zero: a step costs the same wherever the parameters are.
    pub fn run(
        &mut self,
        batch: &Batch,
        recording: Option<&mut Recording>,
    ) -> Result<(), EngineError> {
        let first = StepInputs { done: 0, rate: 0.0 };
        self.0.run(batch, first, recording).map(|_| ())
    }

    /// What runs the step.
    pub fn program(&self) -> &Program {
        self.0.program()
    }
}

/// A batch of noise in memory, a class after the other.
pub fn noise(learner: &Learner, images: usize, classes: usize) -> Batch {
    let [height, width] = learner.size;
    let shape = vec![images, 3, height, width];
    let view = |name: &String| {
        let values = seeded_values(Family::Vision, &format!("input.{name}"), &shape);
        Tensor::from_values(shape.clone(), values).expect("as many values as the shape says")
    };
    let label = |image: usize| (image % classes.max(1)) as i32;
    Batch {
        views: learner.views.iter().map(view).collect(),
        labels: (0..images).map(label).collect(),
        samples: (0..images).collect(),
        epoch: 0,
        next: Position::default(),
        skipped: Vec::new(),
        waited: Duration::ZERO,
    }
}
