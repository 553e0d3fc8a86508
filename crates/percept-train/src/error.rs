use std::path::PathBuf;

use percept_data::SettingError;
use percept_data::loader::LoaderError;
use percept_engine::EngineError;
use percept_graph::GraphError;
use percept_kernels::CpuError;
use percept_models::LessonError;
use thiserror::Error;

use crate::{CheckpointError, MetricsError};

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
    /// The lesson refused the data or the answers.
    #[error(transparent)]
    Lesson(#[from] LessonError),
    /// A module to freeze that the network does not have.
    #[error("freeze: no parameter is in `{module}`{}", did_you_mean(.nearest))]
    UnknownModule {
        /// The module.
        module: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// A module to compute again that the network does not have.
    #[error("recompute: the network has no module `{module}`{}", did_you_mean(.nearest))]
    UnknownRecomputed {
        /// The module.
        module: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// Less memory than a step can do with.
    #[error("max_memory: a step cannot do with {}: computing again all that can be, it still takes {}", mebibytes(*.limit), mebibytes(*.least))]
    MemoryLimit {
        /// What it may take.
        limit: u64,
        /// What it takes at least.
        least: u64,
    },
    /// Everything is frozen.
    #[error("freeze: nothing is left to train")]
    AllFrozen,
    /// A lesson that plans an epoch without samples.
    #[error("epoch {epoch} is planned without samples")]
    EmptyPlan {
        /// The epoch, from 0.
        epoch: u64,
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

fn did_you_mean(nearest: &Option<String>) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => String::new(),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}
