use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use percept_data::loader::{Batch, Skipped};

use super::Progress;
use crate::checkpoint::Damaged;
use crate::{Evaluated, Fitted, RunLength};

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum Event<'a> {
    /// It goes on behind this step.
    Resumed {
        /// Steps that are done.
        step: u64,
    },
    /// It computes values again to stay within its memory.
    Fitted(&'a Fitted),
    /// A newer checkpoint cannot be used, and was set aside.
    Damaged(&'a Damaged),
    /// A step is done.
    Step {
        /// How it went.
        report: &'a StepReport,
        /// The terms of the loss, and what the lesson observed.
        figures: &'a BTreeMap<&'static str, f64>,
    },
    /// A training sample could not be used.
    Skipped(&'a Skipped),
    /// The network was tested.
    Evaluated {
        /// The epoch that just ended, from 0.
        epoch: u64,
        /// What was found.
        evaluated: &'a Evaluated,
        /// Whether it is the best so far.
        is_best: bool,
    },
}

/// One step, for people who watch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Steps that are done.
    pub step: u64,
    /// Steps of the whole run.
    pub steps: u64,
    /// The epoch of the step, from 0.
    pub epoch: u64,
    /// Epochs of the whole run.
    pub epochs: u64,
    /// What is to fall.
    pub loss: f64,
    /// The learning rate.
    pub rate: f64,
    /// Samples of this step by its time.
    pub samples_per_second: f64,
    /// The share of the step that waited for data.
    pub waiting_share: f64,
    /// How long the rest of the run will take, evaluations included.
    pub remaining: Duration,
}

/// How fast a run goes.
pub(super) struct Pace {
    begun: Instant,
    first_step: u64,
    last: Instant,
    length: RunLength,
}

impl Pace {
    pub(super) fn begin(first_step: u64, length: &RunLength) -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            first_step,
            last: now,
            length: *length,
        }
    }

    pub(super) fn first_step(&self) -> u64 {
        self.first_step
    }

    pub(super) fn step(
        &mut self,
        progress: &Progress,
        batch: &Batch,
        loss: f64,
        rate: f64,
    ) -> StepReport {
        let now = Instant::now();
        let seconds = now.duration_since(self.last).as_secs_f64().max(1e-9);
        self.last = now;
        let steps = self.length.steps_per_epoch * self.length.epochs;
        let done = (progress.step - self.first_step) as f64;
        let left = steps.saturating_sub(progress.step) as f64;
        StepReport {
            step: progress.step,
            steps,
            epoch: batch.epoch,
            epochs: self.length.epochs,
            loss,
            rate,
            samples_per_second: batch.samples.len() as f64 / seconds,
            waiting_share: (batch.waited.as_secs_f64() / seconds).min(1.0),
            remaining: self.begun.elapsed().mul_f64(left / done.max(1.0)),
        }
    }
}
