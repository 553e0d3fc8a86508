//! Batches for training and testing, read and augmented by worker threads ahead of their use.
//!
//! What a batch holds follows from (seed, epoch, position) alone: not from the number of workers, nor from where the run
//! was begun. Workers share the pictures of a batch, so that also a small batch uses all of them.

mod plan;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use percept_graph::Tensor;
use percept_kernels::{Cpu, CpuError};
use thiserror::Error;

pub use plan::Position;

use self::plan::Plan;
use self::queue::Queue;
use crate::SettingError;
use crate::augment::Transform;
use crate::classification::ImageDataset;

/// More workers than any machine needs; above it is a typing error.
pub const MAX_WORKERS: usize = 256;

/// How batches are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderConfig {
    /// Pictures in a batch.
    pub batch: usize,
    /// Views of each picture, each transformed on its own.
    pub views: usize,
    /// The last epoch, exclusive: the loader ends before it.
    pub epochs: u64,
    /// What shuffles and augments.
    pub seed: u64,
    /// Whether each epoch has an order of its own; otherwise it is that of the dataset.
    pub shuffle: bool,
    /// Whether the rest of an epoch that fills no batch is left out.
    pub drop_last: bool,
    /// Whether a picture that cannot be read is an error; otherwise it is skipped and reported.
    pub strict: bool,
    /// Threads that read and transform.
    pub workers: usize,
    /// Batches that are made ahead of their use; they bound the memory.
    pub prefetch: usize,
}

impl Default for LoaderConfig {
    fn default() -> Self {
        Self {
            batch: 8,
            views: 1,
            epochs: 1,
            seed: 0,
            shuffle: true,
            drop_last: false,
            strict: false,
            workers: 2,
            prefetch: 3,
        }
    }
}

/// Pictures and labels, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The views, each [N, 3, H, W]; N is less than asked for where pictures were skipped.
    pub views: Vec<Tensor<'static>>,
    /// The label of each picture.
    pub labels: Vec<i32>,
    /// The place of each picture in the dataset.
    pub samples: Vec<usize>,
    /// The epoch that it belongs to.
    pub epoch: u64,
    /// Where a loader must begin to go on behind this batch.
    pub next: Position,
    /// Pictures that could not be used, since the batch before.
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

/// A picture that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Skipped {
    /// Its place in the dataset.
    pub sample: usize,
    /// Which picture, and what is wrong with it.
    pub reason: String,
}

/// Why there are no (more) batches.
#[derive(Debug, Error)]
pub enum LoaderError {
    /// There is nothing to load.
    #[error("the dataset has no images")]
    Empty,
    /// A setting that makes no sense.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// An epoch without a batch.
    #[error(
        "the dataset has {images} images, which fill no batch of {batch}, and incomplete batches are left out"
    )]
    NoBatch {
        /// Pictures in the dataset.
        images: usize,
        /// Pictures in a batch.
        batch: usize,
    },
    /// A batch that memory cannot hold.
    #[error("{prefetch} batches of {batch} images of {height}x{width} do not fit memory")]
    TooLarge {
        /// Batches ahead.
        prefetch: usize,
        /// Pictures in a batch.
        batch: usize,
        /// Height of a view.
        height: usize,
        /// Width of a view.
        width: usize,
    },
    /// A picture that cannot be used, where that is an error.
    #[error(transparent)]
    BadImage(Skipped),
    /// As many failures in a row as there are pictures.
    #[error("none of the {images} images can be used; the first: {first}")]
    NothingReadable {
        /// Pictures in the dataset.
        images: usize,
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
    images: usize,
    /// Failures that no delivered batch has told yet.
    untold: Vec<Skipped>,
    skipped_images: u64,
    is_over: bool,
}

impl Loader {
    /// Starts the workers; the first batch is the one at `from`.
    pub fn start(
        dataset: Arc<dyn ImageDataset>,
        transform: Arc<dyn Transform>,
        config: LoaderConfig,
        from: Position,
    ) -> Result<Self, LoaderError> {
        check(&config, dataset.len(), transform.size())?;
        let images = dataset.len();
        let plan = Plan::new(&config, images, from);
        let queue = Arc::new(Queue::new(dataset, transform, config, plan));
        let mut loader = Self {
            queue,
            workers: Vec::new(),
            config,
            images,
            untold: Vec::new(),
            skipped_images: 0,
            is_over: false,
        };
        for worker in 0..config.workers {
            let cpu = Cpu::new(1)?;
            let queue = Arc::clone(&loader.queue);
            let thread = thread::Builder::new().name(format!("loader-{worker}"));
            // On failure the workers that run already are stopped by dropping the loader.
            loader.workers.push(thread.spawn(move || queue.work(&cpu))?);
        }
        Ok(loader)
    }

    /// How many pictures were skipped so far, a picture once each epoch.
    pub fn skipped_images(&self) -> u64 {
        self.skipped_images
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
                return Err(LoaderError::BadImage(batch.skipped.swap_remove(0)));
            }
            self.skipped_images += batch.skipped.len() as u64;
            self.untold.append(&mut batch.skipped);
            if !batch.labels.is_empty() {
                batch.skipped = std::mem::take(&mut self.untold);
                batch.waited = waited;
                return Ok(Some(batch));
            }
            if self.untold.len() >= self.images {
                let images = self.images;
                let first = self.untold.swap_remove(0);
                return Err(LoaderError::NothingReadable { images, first });
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

fn check(config: &LoaderConfig, images: usize, size: [usize; 2]) -> Result<(), LoaderError> {
    for (setting, value) in [
        ("batch", config.batch),
        ("views", config.views),
        ("prefetch", config.prefetch),
    ] {
        SettingError::unless(value > 0, setting, value, "at least 1")?;
    }
    let is_fine = (1..=MAX_WORKERS).contains(&config.workers);
    let expected = format!("1 to {MAX_WORKERS}");
    SettingError::unless(is_fine, "workers", config.workers, expected)?;
    if images == 0 {
        return Err(LoaderError::Empty);
    }
    let batch = config.batch;
    if config.drop_last && images < batch {
        return Err(LoaderError::NoBatch { images, batch });
    }
    let [height, width] = size;
    let prefetch = config.prefetch;
    let factors = [batch.min(images), config.views, prefetch, height, width];
    let bytes = factors
        .iter()
        .try_fold(3 * size_of::<f32>(), |bytes, &factor| {
            bytes.checked_mul(factor)
        });
    if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(LoaderError::TooLarge {
            prefetch,
            batch,
            height,
            width,
        });
    }
    Ok(())
}
