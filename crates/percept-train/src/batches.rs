//! Where the batches of a run come from: its pictures, augmented.

use std::sync::Arc;

use percept_data::augment::{Augment, Normalise, Transform};
use percept_data::classification::ImageDataset;
use percept_data::loader::{Loader, LoaderConfig, Position};
use percept_models::preprocess::{IMAGENET_MEAN, IMAGENET_STD};

use crate::{Learner, TrainConfig, TrainError};

/// The batches of a run, from any position.
pub struct Batches {
    pictures: Arc<dyn ImageDataset>,
    transform: Arc<dyn Transform>,
    config: LoaderConfig,
}

impl Batches {
    /// Of these pictures, as the learner takes them. A strict run stops at a picture that cannot be read.
    pub fn new(
        learner: &Learner,
        config: &TrainConfig,
        pictures: Arc<dyn ImageDataset>,
        strict: bool,
        workers: usize,
    ) -> Result<Self, TrainError> {
        let normalise = Normalise {
            mean: IMAGENET_MEAN,
            std: IMAGENET_STD,
        };
        let transform = Augment::new(config.augment, learner.size, normalise)?;
        let config = LoaderConfig {
            batch: config.batch,
            views: learner.views.len(),
            epochs: config.epochs,
            seed: config.seed,
            shuffle: true,
            // The statistics of a very small batch would do harm; where there is no whole one, it must do.
            drop_last: pictures.len() >= config.batch,
            strict,
            workers,
            ..LoaderConfig::default()
        };
        Ok(Self {
            pictures,
            transform: Arc::new(transform),
            config,
        })
    }

    /// Starts workers that read ahead; the first batch is the one at `from`.
    pub fn start(&self, from: Position) -> Result<Loader, TrainError> {
        let (pictures, transform) = (Arc::clone(&self.pictures), Arc::clone(&self.transform));
        Ok(Loader::start(pictures, transform, self.config, from)?)
    }
}
