//! Batches for training and testing, read and prepared by worker threads ahead of their use.
//!
//! What a batch holds follows from (seed, epoch, position) alone: not from the number of workers, nor from where the run
//! was begun. Workers share the samples of a batch, so that also a small batch uses all of them.

mod plan;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use percept_kernels::{Cpu, CpuError};
use thiserror::Error;

pub use plan::{EpochPlan, Order, Position};

use self::plan::Plan;
use self::queue::Queue;
use crate::{BatchError, Example, Prepare, Samples, SettingError};

/// More workers than any machine needs; above it is a typing error.
pub const MAX_WORKERS: usize = 256;

/// More batches ahead than anybody waits for.
pub const MAX_PREFETCH: usize = 1024;

/// How batches are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderConfig {
    /// Samples in a batch; where some belong together, groups of them.
    pub batch: usize,
    /// Parts that a batch is cut into, to be worked through one after the other.
    pub parts: usize,
    /// The last epoch, exclusive: the loader ends before it.
    pub epochs: u64,
    /// What shuffles and augments.
    pub seed: u64,
    /// In which order samples come.
    pub order: Order,
    /// Whether the rest of an epoch that fills no batch is left out.
    pub drop_last: bool,
    /// Whether a sample that cannot be used is an error; otherwise it is skipped and reported.
    pub strict: bool,
    /// Threads that read and prepare.
    pub workers: usize,
    /// Batches that are made ahead of their use; they bound the memory.
    pub prefetch: usize,
}

impl Default for LoaderConfig {
    fn default() -> Self {
        Self {
            batch: 8,
            parts: 1,
            epochs: 1,
            seed: 0,
            order: Order::Shuffled,
            drop_last: false,
            strict: false,
            workers: 2,
            prefetch: 3,
        }
    }
}

impl LoaderConfig {
    /// How many samples, or groups, an epoch has over a dataset of this many samples.
    fn epoch_len(&self, dataset: usize) -> usize {
        match &self.order {
            Order::Planned(plan) => plan.len(),
            _ => dataset,
        }
    }
}

/// The input of a network that is told which samples belong together: i32 [groups], how many samples each group has.
pub const GROUPS: &str = "groups";

/// Examples, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The examples as one; several where a batch comes in parts. Those of a plan with groups have [`GROUPS`] too.
    pub parts: Vec<Example>,
    /// The place of each sample in the dataset; fewer than asked for where some were skipped.
    pub samples: Vec<usize>,
    /// The epoch that it belongs to.
    pub epoch: u64,
    /// Where a loader must begin to go on behind this batch.
    pub next: Position,
    /// Samples that could not be used, since the batch before.
    pub skipped: Vec<Skipped>,
    /// How long the consumer waited for this batch.
    pub waited: Duration,
}

impl Batch {
    /// Whether it is the last one of its epoch.
    pub fn ends_epoch(&self) -> bool {
        self.next.epoch > self.epoch
    }
}

/// A sample that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Skipped {
    /// Its place in the dataset.
    pub sample: usize,
    /// Which sample, and what is wrong with it.
    pub reason: String,
}

/// Why there are no (more) batches.
#[derive(Debug, Error)]
pub enum LoaderError {
    /// There is nothing to load.
    #[error("the dataset is empty")]
    Empty,
    /// A setting that makes no sense.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// An epoch without a batch.
    #[error(
        "an epoch of {samples} samples fills no batch of {batch}, and incomplete batches are left out"
    )]
    NoBatch {
        /// Samples, or groups of them, in an epoch.
        samples: usize,
        /// As many in a batch.
        batch: usize,
    },
    /// A sample that a plan names and the dataset does not have.
    #[error("sample {sample} is planned, of a dataset of {samples}")]
    NoSample {
        /// Its place.
        sample: usize,
        /// Samples of the dataset.
        samples: usize,
    },
    /// Examples that make no batch.
    #[error("{error} ({names})")]
    Batch {
        /// What does not go together.
        error: BatchError,
        /// The samples.
        names: String,
    },
    /// A sample that cannot be used, where that is an error.
    #[error(transparent)]
    BadSample(Skipped),
    /// As many failures in a row as there are samples.
    #[error("none of the {samples} samples can be used; the first: {first}")]
    NothingReadable {
        /// Samples in the dataset.
        samples: usize,
        /// The first failure.
        first: Skipped,
    },
    /// A worker panicked.
    #[error("a loader thread panicked (a bug)")]
    WorkerDied,
    /// A worker could not be started.
    #[error("cannot start a loader thread: {0}")]
    Spawn(#[from] std::io::Error),
    /// A worker's instruction set.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

/// An iterator over batches, in order, that worker threads fill ahead. Dropping it stops and joins them.
pub struct Loader {
    queue: Arc<Queue>,
    workers: Vec<JoinHandle<()>>,
    config: LoaderConfig,
    samples: usize,
    /// Failures that no delivered batch has told yet.
    untold: Vec<Skipped>,
    skipped: u64,
    is_over: bool,
}

impl Loader {
    /// Starts the workers; the first batch is the one at `from`.
    pub fn start(
        dataset: Arc<dyn Samples>,
        preparation: Arc<dyn Prepare>,
        config: LoaderConfig,
        from: Position,
    ) -> Result<Self, LoaderError> {
        let samples = dataset.len();
        check(&config, samples)?;
        let plan = Plan::new(&config, samples, from);
        let queue = Arc::new(Queue::new(dataset, preparation, config.clone(), plan));
        let workers = config.workers;
        let mut loader = Self {
            queue,
            workers: Vec::new(),
            config,
            samples,
            untold: Vec::new(),
            skipped: 0,
            is_over: false,
        };
        for worker in 0..workers {
            let cpu = Cpu::new(1)?;
            let queue = Arc::clone(&loader.queue);
            let thread = thread::Builder::new().name(format!("loader-{worker}"));
            // On failure the workers that run already are stopped by dropping the loader.
            loader.workers.push(thread.spawn(move || queue.work(&cpu))?);
        }
        Ok(loader)
    }

    /// How many samples were skipped so far, a sample once in each epoch.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn next_batch(&mut self) -> Result<Option<Batch>, LoaderError> {
        let mut waited = Duration::ZERO;
        loop {
            let (batch, wait) = self.queue.take()?;
            waited += wait;
            let Some(mut batch) = batch else {
                return Ok(None);
            };
            if self.config.strict && !batch.skipped.is_empty() {
                return Err(LoaderError::BadSample(batch.skipped.swap_remove(0)));
            }
            self.skipped += batch.skipped.len() as u64;
            self.untold.append(&mut batch.skipped);
            if !batch.samples.is_empty() {
                batch.skipped = std::mem::take(&mut self.untold);
                batch.waited = waited;
                return Ok(Some(batch));
            }
            if self.untold.len() >= self.samples {
                let samples = self.samples;
                let first = self.untold.swap_remove(0);
                return Err(LoaderError::NothingReadable { samples, first });
            }
        }
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let batch = self.next_batch().transpose();
        self.is_over = !matches!(batch, Some(Ok(_)));
        batch
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.queue.stop();
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so already.
            let _ = worker.join();
        }
    }
}

fn check(config: &LoaderConfig, samples: usize) -> Result<(), LoaderError> {
    for (setting, value, most) in [
        ("batch", config.batch, usize::MAX),
        ("parts", config.parts, usize::MAX),
        ("prefetch", config.prefetch, MAX_PREFETCH),
        ("workers", config.workers, MAX_WORKERS),
    ] {
        let expected = match most {
            usize::MAX => "at least 1".to_owned(),
            most => format!("1 to {most}"),
        };
        let is_fine = (1..=most).contains(&value);
        SettingError::unless(is_fine, setting, value, expected)?;
    }
    if samples == 0 {
        return Err(LoaderError::Empty);
    }
    if let Order::Planned(plan) = &config.order
        && let Some(&sample) = plan.samples().iter().find(|&&sample| sample >= samples)
    {
        return Err(LoaderError::NoSample { sample, samples });
    }
    let (batch, samples) = (config.batch, config.epoch_len(samples));
    if config.drop_last && samples < batch {
        return Err(LoaderError::NoBatch { samples, batch });
    }
    Ok(())
}
