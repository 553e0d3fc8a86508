//! Where the batches of a run come from: its samples, in the order that the lesson wants.

use std::sync::Arc;

use percept_data::Samples;
use percept_data::loader::{Batch, EpochPlan, Loader, LoaderConfig, Order, Position};
use percept_models::lesson::{Epoch, Lesson};

use crate::evaluate::Pupil;
use crate::stepper::Stepper;
use crate::{EvaluationOptions, TrainConfig, TrainError};

/// The batches of a run, from any position.
pub struct Batches {
    samples: Arc<dyn Samples>,
    lesson: Arc<dyn Lesson>,
    config: LoaderConfig,
}

impl Batches {
    /// Of these samples, as the lesson takes them. A strict run stops at a sample that cannot be used.
    pub fn new(
        lesson: Arc<dyn Lesson>,
        config: &TrainConfig,
        samples: Arc<dyn Samples>,
        strict: bool,
        workers: usize,
    ) -> Self {
        let config = LoaderConfig {
            batch: config.batch,
            parts: config.parts,
            epochs: config.epochs,
            seed: config.seed,
            order: Order::Shuffled,
            // The statistics of a very small batch would do harm; where there is no whole one, it must do.
            drop_last: lesson.epoch_len(samples.len()) >= config.batch,
            strict,
            workers,
            ..LoaderConfig::default()
        };
        Self {
            samples,
            lesson,
            config,
        }
    }

    /// Starts workers that read ahead; the first batch is the one at `from`. Where the lesson plans its epochs, the one at
    /// `from` was begun with this `plan`, if it was begun.
    pub fn start(
        &self,
        from: Position,
        plan: Option<Arc<EpochPlan>>,
    ) -> Result<BatchStream<'_>, TrainError> {
        let mut stream = BatchStream {
            batches: self,
            loader: None,
            plan: plan.filter(|_| from.samples > 0),
            position: from,
        };
        match (self.lesson.plans(), stream.plan.clone()) {
            (false, _) => stream.loader = Some(self.loader(self.config.clone(), from)?),
            (true, Some(plan)) => stream.loader = Some(self.planned(plan, from)?),
            (true, None) => {}
        }
        Ok(stream)
    }

    /// The network as it is, for a plan to ask about the samples that it trains with.
    fn pupil<'a>(&'a self, stepper: &'a mut Stepper) -> Pupil<'a> {
        Pupil {
            stepper,
            lesson: &*self.lesson,
            training: &self.samples,
            options: EvaluationOptions {
                batch: self.config.batch.min(self.lesson.judged_at_once()),
                threads: self.config.workers,
                strict: self.config.strict,
            },
        }
    }

    fn loader(&self, config: LoaderConfig, from: Position) -> Result<Loader, TrainError> {
        let preparation = self.lesson.preparation();
        let samples = Arc::clone(&self.samples);
        Ok(Loader::start(samples, preparation, config, from)?)
    }

    /// One epoch.
    fn planned(&self, plan: Arc<EpochPlan>, from: Position) -> Result<Loader, TrainError> {
        let config = LoaderConfig {
            epochs: from.epoch.saturating_add(1).min(self.config.epochs),
            order: Order::Planned(plan),
            ..self.config.clone()
        };
        self.loader(config, from)
    }
}

/// Batches on their way.
pub struct BatchStream<'a> {
    batches: &'a Batches,
    /// The workers; none before the first epoch that is planned.
    loader: Option<Loader>,
    /// The plan of the epoch under way.
    plan: Option<Arc<EpochPlan>>,
    /// Where the next batch begins.
    position: Position,
}

impl BatchStream<'_> {
    /// The next batch; none when all epochs are done. A plan for the next epoch may ask the network.
    pub(crate) fn next(&mut self, stepper: &mut Stepper) -> Result<Option<Batch>, TrainError> {
        loop {
            if let Some(loader) = &mut self.loader {
                if let Some(batch) = loader.next().transpose()? {
                    self.position = batch.next;
                    return Ok(Some(batch));
                }
                if !self.batches.lesson.plans() {
                    return Ok(None);
                }
                // Also where the last batch held nothing but samples that could not be used.
                if self.position.samples > 0 {
                    self.position = Position {
                        epoch: self.position.epoch + 1,
                        samples: 0,
                    };
                }
            }
            if self.position.epoch >= self.batches.config.epochs {
                return Ok(None);
            }
            let epoch = Epoch {
                seed: self.batches.config.seed,
                number: self.position.epoch,
            };
            let mut pupil = self.batches.pupil(stepper);
            let plan = Arc::new(self.batches.lesson.plan(epoch, &mut pupil)?);
            if plan.is_empty() {
                return Err(TrainError::EmptyPlan {
                    epoch: epoch.number,
                });
            }
            self.loader = Some(self.batches.planned(Arc::clone(&plan), self.position)?);
            self.plan = Some(plan);
        }
    }

    /// The plan of an epoch that is under way and not over: what a checkpoint must keep.
    pub(crate) fn plan_under_way(&self) -> Option<&EpochPlan> {
        self.plan.as_deref().filter(|_| self.position.samples > 0)
    }
}
