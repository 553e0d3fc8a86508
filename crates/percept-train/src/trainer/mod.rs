//! A training run, from its settings to its last checkpoint.

mod begin;
mod culprit;
mod events;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use percept_data::loader::{Batch, Position};

pub use begin::settings_of;
pub use events::{Event, StepReport};

use self::events::Pace;
use crate::checkpoint::{Best, CheckpointFolder, CheckpointWriter, RunState, Snapshot};
use crate::step::{Step, StepInputs, StepOutcome};
use crate::{
    Batches, Evaluated, EvaluationOptions, Learner, MetricsLog, Phase, Record, RunLength,
    TrainConfig, TrainData, TrainError, evaluate,
};

/// Where a run writes and how it is run; none of it changes what it learns.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The folder of checkpoints and of `metrics.jsonl`.
    pub folder: PathBuf,
    /// Go on with the run that is there. Without it, one that is there is an error.
    pub resume: bool,
    /// Whether a picture that cannot be read stops the run.
    pub strict: bool,
    /// Threads of the network, and as many to read pictures.
    pub threads: usize,
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
    /// Training pictures that could not be read, each counted once an epoch.
    pub skipped: u64,
    /// The newest checkpoint.
    pub checkpoint: PathBuf,
    /// How long this process took.
    pub took: Duration,
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
        let (folder, snapshot) = self.open_folder(on_event)?;
        let mut step = self.first_step()?;
        let mut progress = Progress::behind(snapshot.as_ref().map(|snapshot| &snapshot.state));
        if let Some(snapshot) = &snapshot {
            step.restore(&snapshot.tensors)?;
        }
        drop(snapshot);
        let path = self.options.folder.join("metrics.jsonl");
        let mut log = MetricsLog::resume(&path, progress.step)?;
        let mut loader = self.batches.start(progress.position)?;
        let writer = CheckpointWriter::start(folder)?;
        let mut pace = Pace::begin(progress.step, &self.length);
        let mut saved_at = Instant::now();
        let mut skipped = 0;

        let mut ending = self
            .is_out_of_patience(&progress)
            .then_some(Ending::OutOfPatience);
        while ending.is_none() {
            let Some(batch) = loader.next().transpose()? else {
                break;
            };
            for picture in &batch.skipped {
                skipped += 1;
                on_event(Event::Skipped(picture));
            }
            let rate = self.config.schedule.rate_at(progress.step, &self.length);
            let done = progress.step;
            let outcome = step.run(&batch, StepInputs { done, rate }, None)?;
            progress.step += 1;
            progress.position = batch.next;
            if !outcome.loss.is_finite() {
                return Err(self.not_finite(writer, progress.step));
            }
            let report = pace.step(&progress, &batch, &outcome, rate);
            log.append(&record(&report, &outcome))?;
            on_event(Event::Step(&report));

            if self.is_evaluation_due(&batch) {
                self.evaluate(&mut step, &mut progress, &mut log, batch.epoch, on_event)?;
            }
            ending = if stop.load(Ordering::SeqCst) {
                Some(Ending::Stopped)
            } else {
                self.is_out_of_patience(&progress)
                    .then_some(Ending::OutOfPatience)
            };
            if ending.is_some() || self.is_checkpoint_due(&progress, saved_at) {
                self.save(&writer, &mut step, &progress, &mut log)?;
                saved_at = Instant::now();
            }
        }
        let is_new = progress.step > pace.first_step();
        if ending.is_none() && is_new && progress.evaluated_at != Some(progress.step) {
            // The last batch of the run held nothing but broken pictures, so nobody saw the epoch end.
            let epoch = self.config.epochs.saturating_sub(1);
            self.evaluate(&mut step, &mut progress, &mut log, epoch, on_event)?;
            self.save(&writer, &mut step, &progress, &mut log)?;
        }
        writer.finish()?;
        Ok(Finished {
            ending: ending.unwrap_or(Ending::Complete),
            steps: progress.step,
            best: progress.best,
            last: progress.last,
            skipped,
            checkpoint: CheckpointFolder::path_in(&self.options.folder, progress.step),
            took: begun.elapsed(),
        })
    }

    fn is_evaluation_due(&self, batch: &Batch) -> bool {
        let epochs = batch.next.epoch;
        let is_last = epochs >= self.config.epochs;
        batch.ends_epoch() && (is_last || epochs.is_multiple_of(self.config.evaluate_every))
    }

    fn is_out_of_patience(&self, progress: &Progress) -> bool {
        let patience = self.config.patience;
        patience.is_some_and(|patience| progress.unimproved >= patience)
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

    fn evaluate(
        &self,
        step: &mut Step,
        progress: &mut Progress,
        log: &mut MetricsLog,
        epoch: u64,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let options = EvaluationOptions {
            batch: self.config.batch,
            threads: self.options.threads,
            strict: self.options.strict,
        };
        let weights = Arc::new(step.parameters()?);
        let testing = Arc::clone(&self.data.testing);
        let evaluated = evaluate(&self.learner, weights, testing, &options, |_| ())?;
        let top1 = evaluated.scores.top1().unwrap_or(f64::NAN);
        let is_better = progress.best.is_none_or(|best| top1 > best.metric);
        if is_better {
            let (step, metric) = (progress.step, top1);
            progress.best = Some(Best { step, metric });
            progress.unimproved = 0;
        } else {
            progress.unimproved += 1;
        }
        progress.evaluated_at = Some(progress.step);
        let values = [
            ("top1", top1),
            ("top5", evaluated.scores.top5().unwrap_or(f64::NAN)),
            ("images", evaluated.scores.images() as f64),
            ("seconds", evaluated.took.as_secs_f64()),
        ];
        log.append(&Record::new(progress.step, epoch, Phase::Eval, values))?;
        on_event(Event::Evaluated {
            epoch,
            evaluated: &evaluated,
            is_best: is_better,
        });
        progress.last = Some(evaluated);
        Ok(())
    }

    /// Hands the state of the run to the writer, if it is worth keeping.
    fn save(
        &self,
        writer: &CheckpointWriter,
        step: &mut Step,
        progress: &Progress,
        log: &mut MetricsLog,
    ) -> Result<(), TrainError> {
        log.sync()?;
        let tensors = step.state()?;
        let is_finite =
            |tensor: &percept_graph::Tensor<'_>| tensor.to_f32().iter().all(|v| v.is_finite());
        if let Some((name, _)) = tensors.iter().find(|(_, tensor)| !is_finite(tensor)) {
            let checkpoint = writer.last_written();
            return Err(TrainError::NotFinite {
                step: progress.step,
                culprit: format!("{name} moved out of all bounds"),
                checkpoint: checkpoint
                    .map(|step| CheckpointFolder::path_in(&self.options.folder, step)),
            });
        }
        let state = RunState {
            model: self.learner.model.clone(),
            config: self.identity(),
            optimiser: serde_json::json!(self.config.optimiser),
            schedule: self.config.schedule,
            seed: self.config.seed,
            step: progress.step,
            position: progress.position,
            best: progress.best,
            unimproved: progress.unimproved,
        };
        Ok(writer.save(Snapshot { state, tensors })?)
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
}

fn record(report: &StepReport, outcome: &StepOutcome) -> Record {
    let metrics = outcome
        .metrics
        .iter()
        .map(|(name, &value)| (name.as_str(), value));
    let accuracy = outcome.accuracy.map(|accuracy| ("accuracy", accuracy));
    let values = [
        ("loss", report.loss),
        ("rate", report.rate),
        ("images_per_second", report.images_per_second),
        ("waiting_share", report.waiting_share),
    ];
    let values = values.into_iter().chain(accuracy).chain(metrics);
    Record::new(report.step, report.epoch, Phase::Train, values)
}
