use std::path::PathBuf;

use percept_data::SettingError;
use percept_data::loader::LoaderError;
use percept_engine::EngineError;
use percept_graph::GraphError;
use percept_kernels::CpuError;
use thiserror::Error;

use crate::{CheckpointError, MetricsError, ScoresError};

/// Why a run stopped before its end. Checkpoints that were written stay.
#[derive(Debug, Error)]
pub enum TrainError {
    /// A checkpoint could not be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The log of metrics could not be read or written.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// There is no (more) data.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The network cannot be trained.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A setting makes no sense.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The threads.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The network does not have the classes of the data.
    #[error(transparent)]
    Scores(#[from] ScoresError),
    /// A network for another number of classes.
    #[error("the network has {outputs} classes, the data {classes}")]
    Classes {
        /// Of the network.
        outputs: usize,
        /// Of the data.
        classes: usize,
    },
    /// A new run where there is one already.
    #[error("{}: there is a run already, at step {step}", path.display())]
    RunExists {
        /// The folder of its checkpoints.
        path: PathBuf,
        /// How far it is.
        step: u64,
    },
    /// A run cannot go on with other settings or other data: it would be neither the old run nor a new one.
    #[error("{}: the run was begun with {key} {was}, not {now}", path.display())]
    OtherRun {
        /// Its checkpoint.
        path: PathBuf,
        /// The first setting that differs.
        key: String,
        /// As it was.
        was: String,
        /// As it was asked for now.
        now: String,
    },
    /// A number that is none.
    #[error("step {step}: the loss is not finite: {culprit}; {}", last_good(.checkpoint))]
    NotFinite {
        /// The step, counted from 1.
        step: u64,
        /// Where it began: the first node, in the order of the step, whose output is not finite.
        culprit: String,
        /// The last checkpoint, whose numbers are all finite.
        checkpoint: Option<PathBuf>,
    },
}

fn last_good(checkpoint: &Option<PathBuf>) -> String {
    match checkpoint {
        Some(path) => format!("the last good checkpoint is {}", path.display()),
        None => "there is no checkpoint before it".to_owned(),
    }
}
