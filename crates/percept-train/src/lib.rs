//! What a training run keeps: checkpoints that outlive any kill, a log of metrics, schedules, and scores.
//!
//! A run that is stopped at any moment goes on from its last checkpoint to the same bits: everything that decides the
//! next step stands in a [`Snapshot`], random numbers are functions of counters, and the log is rewound with the run.

pub mod checkpoint;
mod evaluation;
mod metrics;
mod schedule;
mod scores;

pub use checkpoint::{CheckpointError, CheckpointFolder, CheckpointWriter, RunState, Snapshot};
pub use evaluation::Evaluation;
pub use metrics::{MetricsError, MetricsLog, Phase, Record, read_metrics};
pub use schedule::{Decay, RunLength, Schedule};
pub use scores::{ClassScore, Confusion, Scores, ScoresError};
