//! A classifier on pictures that it does not train on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use percept_data::classification::ImageDataset;
use percept_data::loader::{Loader, LoaderConfig, Position, Skipped};
use percept_engine::{Options, Program};
use percept_graph::WeightSource;
use percept_kernels::Cpu;

use crate::{Evaluation, Learner, Scores, TrainError};

/// How an evaluation is run; none of it changes its answer.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationOptions {
    /// Pictures at once.
    pub batch: usize,
    /// Threads of the network, and as many to read pictures.
    pub threads: usize,
    /// Whether a picture that cannot be read is an error.
    pub strict: bool,
}

/// What an evaluation found.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// How the answers were.
    pub scores: Scores,
    /// Pictures that could not be used.
    pub skipped: Vec<Skipped>,
    /// How long it took.
    pub took: Duration,
}

/// Runs a learner's network over all pictures of a dataset. `on_batch` hears how many are done.
pub fn evaluate(
    learner: &Learner,
    weights: Arc<dyn WeightSource>,
    dataset: Arc<dyn ImageDataset>,
    options: &EvaluationOptions,
    mut on_batch: impl FnMut(u64),
) -> Result<Evaluated, TrainError> {
    let begun = Instant::now();
    let classes = dataset.classes().len();
    let transform = Evaluation {
        preprocess: learner.preprocess,
        size: learner.size,
    };
    let config = LoaderConfig {
        batch: options.batch,
        shuffle: false,
        strict: options.strict,
        workers: options.threads,
        ..LoaderConfig::default()
    };
    let loader = Loader::start(dataset, Arc::new(transform), config, Position::default())?;
    let graph = learner.inference.clone();
    let mut program = Program::new(
        graph,
        weights,
        Cpu::new(options.threads)?,
        Options::default(),
    );
    let mut scores = Scores::new(classes);
    let mut skipped = Vec::new();
    for batch in loader {
        let mut batch = batch?;
        skipped.append(&mut batch.skipped);
        let inputs: Vec<_> = learner
            .views
            .iter()
            .map(String::as_str)
            .zip(&batch.views)
            .collect();
        let outputs = program.run(&inputs)?;
        let logits = outputs.get("logits").map(|logits| logits.to_f32());
        let logits = logits.unwrap_or_default();
        let found = logits.len() / batch.labels.len().max(1);
        if found != classes {
            let outputs = found;
            return Err(TrainError::Classes { outputs, classes });
        }
        scores.add(&logits, &batch.labels)?;
        on_batch(scores.images());
    }
    Ok(Evaluated {
        scores,
        skipped,
        took: begun.elapsed(),
    })
}
