//! A training run, from its settings to its last checkpoint.

mod begin;
mod culprit;
mod events;
mod run;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use percept_data::loader::{Batch, Position};
use percept_samples::training::TrainData;

pub use begin::settings_of;
pub use events::{Event, StepReport};

use self::run::Run;
use crate::checkpoint::{Best, RunState};
use crate::{Batches, Evaluated, EvaluationOptions, Learner, RunLength, TrainConfig, TrainError};

/// Where a run writes and how it is run; none of it changes what it learns.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The folder of checkpoints, of `metrics.jsonl` and of `curves.svg`.
    pub folder: PathBuf,
    /// Go on with the run that is there. Without it, one that is there is an error.
    pub resume: bool,
    /// Whether a sample that cannot be used stops the run.
    pub strict: bool,
    /// Threads of the network, and as many to read samples.
    pub threads: usize,
    /// Whether the log goes to TensorBoard's event files too.
    pub tensorboard: bool,
}

/// A run that can begin.
pub struct Trainer {
    learner: Learner,
    config: TrainConfig,
    data: TrainData,
    batches: Batches,
    options: RunOptions,
    length: RunLength,
}

/// Why a run ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All epochs are done.
    Complete,
    /// Nothing got better for long enough.
    OutOfPatience,
    /// Somebody asked it to stop; it can be resumed.
    Stopped,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Why it ended.
    pub ending: Ending,
    /// Steps that are done, those of earlier processes included.
    pub steps: u64,
    /// The best evaluation.
    pub best: Option<Best>,
    /// The last evaluation of this process.
    pub last: Option<Evaluated>,
    /// Training samples that could not be used, each counted once an epoch.
    pub skipped: u64,
    /// The newest checkpoint.
    pub checkpoint: PathBuf,
    /// How long this process took.
    pub took: Duration,
    /// Bytes that its steps held: values, parameters, statistics, moments and working memory.
    pub step_bytes: usize,
}

/// Where a run stands.
struct Progress {
    step: u64,
    position: Position,
    best: Option<Best>,
    /// Evaluations since the best one.
    unimproved: u64,
    evaluated_at: Option<u64>,
    last: Option<Evaluated>,
}

impl Trainer {
    /// Runs to the end, or until `stop` is set: then the step that is under way is finished and saved.
    pub fn run(
        &self,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Finished, TrainError> {
        let begun = Instant::now();
        let mut run = Run::begin(self, on_event)?;
        let mut ending = self.out_of_patience(run.progress());
        while ending.is_none() {
            let Some(batch) = run.next_batch(on_event)? else {
                break;
            };
            run.step(&batch, on_event)?;
            if self.is_evaluation_due(&batch) {
                run.evaluate(batch.epoch, on_event)?;
            }
            ending = match stop.load(Ordering::SeqCst) {
                true => Some(Ending::Stopped),
                false => self.out_of_patience(run.progress()),
            };
            run.save_if_due(ending.is_some())?;
        }
        if ending.is_none() && run.has_unseen_end() {
            // The last batch of the run held nothing but broken samples, so nobody saw the epoch end.
            run.evaluate(self.config.epochs.saturating_sub(1), on_event)?;
            run.save_if_due(true)?;
        }
        run.finish(ending.unwrap_or(Ending::Complete), begun)
    }

    fn is_evaluation_due(&self, batch: &Batch) -> bool {
        let epochs = batch.next.epoch;
        let is_last = epochs >= self.config.epochs;
        batch.ends_epoch() && (is_last || epochs.is_multiple_of(self.config.evaluate_every))
    }

    fn out_of_patience(&self, progress: &Progress) -> Option<Ending> {
        let patience = self.config.patience?;
        (progress.unimproved >= patience).then_some(Ending::OutOfPatience)
    }

    fn is_checkpoint_due(&self, progress: &Progress, saved_at: Instant) -> bool {
        let config = &self.config.checkpoint;
        let step = progress.step;
        let seconds = saved_at.elapsed().as_secs_f64();
        progress.evaluated_at == Some(step)
            || config
                .every_steps
                .is_some_and(|steps| step.is_multiple_of(steps))
            || config.every_seconds.is_some_and(|every| seconds >= every)
    }

    fn evaluation(&self) -> EvaluationOptions {
        EvaluationOptions {
            batch: self.config.batch.min(self.learner.lesson.judged_at_once()),
            threads: self.options.threads,
            strict: self.options.strict,
        }
    }

    /// What a checkpoint says about the run.
    fn state(&self, progress: &Progress) -> RunState {
        RunState {
            model: self.learner.describe(),
            config: self.identity(),
            optimiser: serde_json::json!(self.config.optimiser),
            schedule: self.config.schedule,
            seed: self.config.seed,
            step: progress.step,
            position: progress.position,
            best: progress.best,
            unimproved: progress.unimproved,
        }
    }
}

impl Progress {
    /// Goes on behind a checkpoint, or begins.
    fn behind(state: Option<&RunState>) -> Self {
        Self {
            step: state.map_or(0, |state| state.step),
            position: state.map_or_else(Position::default, |state| state.position),
            best: state.and_then(|state| state.best),
            unimproved: state.map_or(0, |state| state.unimproved),
            evaluated_at: None,
            last: None,
        }
    }

    /// Takes in an evaluation, and says whether it is the best so far.
    fn judge(&mut self, evaluated: &Evaluated) -> bool {
        let metric = evaluated.decisive();
        let best = self.best.map(|best| best.metric);
        let is_best = best.is_none_or(|best| evaluated.goal.is_better(metric, best));
        if is_best {
            let step = self.step;
            self.best = Some(Best { step, metric });
            self.unimproved = 0;
        } else {
            self.unimproved += 1;
        }
        self.evaluated_at = Some(self.step);
        is_best
    }
}
