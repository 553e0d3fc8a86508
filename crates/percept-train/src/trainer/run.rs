//! A run under way: everything that lives from its first step to its last.

use std::sync::Arc;
use std::time::Instant;

use percept_data::loader::Batch;
use percept_graph::Tensor;

use super::events::{Event, Pace};
use super::{Ending, Finished, Progress, Trainer};
use crate::batches::BatchStream;
use crate::checkpoint::{CheckpointFolder, CheckpointWriter, Snapshot};
use crate::curves::write_curves;
use crate::stepper::{StepInputs, StepOutcome, Stepper};
use crate::{EventFile, MetricsLog, Phase, Record, StepReport, TrainError, evaluate, read_metrics};

/// The log of a run, in its folder.
const LOG: &str = "metrics.jsonl";

pub(super) struct Run<'t> {
    trainer: &'t Trainer,
    stepper: Stepper,
    progress: Progress,
    stream: BatchStream<'t>,
    log: MetricsLog,
    events: Option<EventFile>,
    /// None once it was asked to finish.
    writer: Option<CheckpointWriter>,
    pace: Pace,
    saved_at: Instant,
    skipped: u64,
}

impl<'t> Run<'t> {
    /// Goes on behind the last checkpoint where the run is resumed.
    pub(super) fn begin(
        trainer: &'t Trainer,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Self, TrainError> {
        let (folder, snapshot) = trainer.open_folder(on_event)?;
        let mut stepper = trainer.first_stepper()?;
        if let Some(fitted) = stepper.fitted() {
            on_event(Event::Fitted(fitted));
        }
        let progress = Progress::behind(snapshot.as_ref().map(|snapshot| &snapshot.state));
        let mut plan = None;
        if let Some(snapshot) = snapshot {
            stepper.restore(&snapshot.tensors)?;
            plan = snapshot.plan.map(Arc::new);
        }
        let path = trainer.options.folder.join(LOG);
        let log = MetricsLog::resume(&path, progress.step)?;
        let events = match trainer.options.tensorboard {
            true => Some(EventFile::begin(
                &trainer.options.folder,
                &read_metrics(&path)?,
            )?),
            false => None,
        };
        let stream = trainer.batches.start(progress.position, plan)?;
        Ok(Self {
            trainer,
            stepper,
            stream,
            log,
            events,
            writer: Some(CheckpointWriter::start(folder)?),
            pace: Pace::begin(progress.step, &trainer.length),
            progress,
            saved_at: Instant::now(),
            skipped: 0,
        })
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The next batch; tells of samples that could not be used.
    pub(super) fn next_batch(
        &mut self,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<Batch>, TrainError> {
        let batch = self.stream.next(&mut self.stepper)?;
        for sample in batch.iter().flat_map(|batch| &batch.skipped) {
            self.skipped += 1;
            on_event(Event::Skipped(sample));
        }
        Ok(batch)
    }

    /// Learns from a batch.
    pub(super) fn step(
        &mut self,
        batch: &Batch,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let done = self.progress.step;
        let schedule = &self.trainer.config.schedule;
        let inputs = StepInputs::behind(done, schedule, &self.trainer.length);
        let outcome = self.stepper.run(batch, inputs, None)?;
        self.progress.step += 1;
        self.progress.position = batch.next;
        if !outcome.loss.is_finite() {
            let writer = self.writer.take();
            return Err(self.trainer.not_finite(writer, self.progress.step));
        }
        let report = self
            .pace
            .step(&self.progress, batch, outcome.loss, inputs.rate);
        self.note(&record(&report, &outcome))?;
        on_event(Event::Step {
            report: &report,
            figures: &outcome.figures,
        });
        Ok(())
    }

    /// Judges the network as it is.
    pub(super) fn evaluate(
        &mut self,
        epoch: u64,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let weights = Arc::new(self.stepper.parameters()?);
        let testing = Arc::clone(&self.trainer.data.testing);
        let lesson = &*self.trainer.learner.lesson;
        let options = self.trainer.evaluation();
        let evaluated = evaluate(lesson, weights, testing, &options, |_| ())?;
        let is_best = self.progress.judge(&evaluated);
        let figures = evaluated.figures.iter();
        let figures = figures.map(|figure| (figure.key, figure.value.as_f64()));
        let values = figures.chain([
            ("samples", evaluated.samples as f64),
            ("seconds", evaluated.took.as_secs_f64()),
        ]);
        let record = Record::new(self.progress.step, epoch, Phase::Eval, values);
        self.note(&record)?;
        self.draw_curves()?;
        on_event(Event::Evaluated {
            epoch,
            evaluated: &evaluated,
            is_best,
        });
        self.progress.last = Some(evaluated);
        Ok(())
    }

    /// Logs a record, wherever there is a log.
    fn note(&mut self, record: &Record) -> Result<(), TrainError> {
        self.log.append(record)?;
        if let Some(events) = &mut self.events {
            events.append(record)?;
        }
        Ok(())
    }

    /// Draws the whole log.
    fn draw_curves(&self) -> Result<(), TrainError> {
        let (learner, folder) = (&self.trainer.learner, &self.trainer.options.folder);
        let graphs = learner.lesson.graphs();
        let terms: Vec<&str> = graphs
            .iter()
            .flat_map(|graph| graph.terms.clone())
            .collect();
        let records = read_metrics(&folder.join(LOG))?;
        write_curves(folder, &learner.card.network, &terms, &records)?;
        Ok(())
    }

    /// Whether there were steps behind which nothing was judged.
    pub(super) fn has_unseen_end(&self) -> bool {
        let step = self.progress.step;
        step > self.pace.first_step() && self.progress.evaluated_at != Some(step)
    }

    /// Hands the state of the run to the writer, where it is time to, or where it must be.
    pub(super) fn save_if_due(&mut self, must: bool) -> Result<(), TrainError> {
        if !must
            && !self
                .trainer
                .is_checkpoint_due(&self.progress, self.saved_at)
        {
            return Ok(());
        }
        self.log.sync()?;
        let tensors = self.stepper.state()?;
        let broken = tensors.iter().find(|(_, tensor)| !is_finite(tensor));
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        if let Some((name, _)) = broken {
            let folder = &self.trainer.options.folder;
            let checkpoint = writer.last_written();
            return Err(TrainError::NotFinite {
                step: self.progress.step,
                culprit: format!("{name} moved out of all bounds"),
                checkpoint: checkpoint.map(|step| CheckpointFolder::path_in(folder, step)),
            });
        }
        writer.save(Snapshot {
            state: self.trainer.state(&self.progress),
            card: Some(self.trainer.learner.card.clone()),
            plan: self.stream.plan_under_way().cloned(),
            tensors,
        })?;
        self.saved_at = Instant::now();
        Ok(())
    }

    /// Waits until everything is on the disk.
    pub(super) fn finish(mut self, ending: Ending, begun: Instant) -> Result<Finished, TrainError> {
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        // Also the steps behind the last evaluation.
        self.draw_curves()?;
        let folder = &self.trainer.options.folder;
        Ok(Finished {
            ending,
            steps: self.progress.step,
            best: self.progress.best,
            last: self.progress.last,
            skipped: self.skipped,
            checkpoint: CheckpointFolder::path_in(folder, self.progress.step),
            took: begun.elapsed(),
            step_bytes: self.stepper.program().held_bytes(),
        })
    }
}

/// Whether all numbers of a tensor are numbers.
pub(super) fn is_finite(tensor: &Tensor<'_>) -> bool {
    tensor.to_f32().iter().all(|value| value.is_finite())
}

fn record(report: &StepReport, outcome: &StepOutcome) -> Record {
    let values = [
        ("loss", report.loss),
        ("rate", report.rate),
        ("samples_per_second", report.samples_per_second),
        ("waiting_share", report.waiting_share),
    ];
    let figures = outcome.figures.iter().map(|(&name, &value)| (name, value));
    let values = values.into_iter().chain(figures);
    Record::new(report.step, report.epoch, Phase::Train, values)
}
