//! Training, from settings to a trained network: the [`Trainer`], and what a run keeps: checkpoints that outlive any
//! kill, a log of metrics, schedules.
//!
//! A run that is stopped at any moment goes on from its last checkpoint to the same bits: everything that decides the
//! next step stands in a [`Snapshot`], random numbers are functions of counters, and the log is rewound with the run.

mod batches;
pub mod checkpoint;
mod config;
mod curves;
mod error;
mod evaluate;
pub mod features;
mod frozen;
mod learner;
mod metrics;
mod optimiser;
mod parameters;
mod probe;
mod saving;
mod schedule;
mod stepper;
mod tensorboard;
mod trainer;

pub use batches::{BatchStream, Batches};
pub use checkpoint::{CheckpointError, CheckpointFolder, CheckpointWriter, RunState, Snapshot};
pub use config::{CheckpointConfig, ConfigError, TrainConfig};
pub use error::TrainError;
pub use evaluate::{Evaluated, EvaluationOptions, evaluate, evaluate_by, evaluate_graph, run_over};
pub use frozen::Frozen;
pub use learner::Learner;
pub use metrics::{MetricsError, MetricsLog, Phase, Record, read_metrics};
pub use optimiser::OptimiserConfig;
pub use parameters::{InitialParameters, LearnedParameters};
pub use probe::{Probe, batch_of};
pub use saving::{AUTO, Activations, ByteLimit, ELEMENTWISE, Fitted, Recomputed};
pub use schedule::{Decay, RunLength, Schedule};
pub use tensorboard::EventFile;
pub use trainer::{Ending, Event, Finished, RunOptions, StepReport, Trainer, settings_of};
