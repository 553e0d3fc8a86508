//! Training, from settings to a trained classifier: the [`Trainer`], and what a run keeps: checkpoints that outlive any
//! kill, a log of metrics, schedules, and scores.
//!
//! A run that is stopped at any moment goes on from its last checkpoint to the same bits: everything that decides the
//! next step stands in a [`Snapshot`], random numbers are functions of counters, and the log is rewound with the run.

mod batches;
pub mod checkpoint;
mod config;
mod data;
mod error;
mod evaluate;
mod evaluation;
mod learner;
mod metrics;
mod optimiser;
mod parameters;
mod probe;
mod schedule;
mod scores;
mod step;
mod trainer;

pub use batches::Batches;
pub use checkpoint::{CheckpointError, CheckpointFolder, CheckpointWriter, RunState, Snapshot};
pub use config::{CheckpointConfig, ConfigError, TrainConfig};
pub use data::{BirdsSettings, DataConfig, DataError, TrainData};
pub use error::TrainError;
pub use evaluate::{Evaluated, EvaluationOptions, evaluate};
pub use evaluation::Evaluation;
pub use learner::{Learner, LearnerError};
pub use metrics::{MetricsError, MetricsLog, Phase, Record, read_metrics};
pub use optimiser::OptimiserConfig;
pub use parameters::{InitialParameters, LearnedParameters};
pub use probe::{Probe, noise};
pub use schedule::{Decay, RunLength, Schedule};
pub use scores::{ClassScore, Confusion, Scores, ScoresError};
pub use trainer::{Ending, Event, Finished, RunOptions, StepReport, Trainer, settings_of};
