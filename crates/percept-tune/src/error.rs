//! What can go wrong on the way to integers.

use percept_data::FileError;
use percept_engine::EngineError;
use percept_graph::WeightError;
use thiserror::Error;

/// An error of tuning.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum TuneError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Weights(#[from] WeightError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{sample}: {count} numbers that {layer} would multiply are NaN or infinite")]
    NotANumber {
        sample: String,
        layer: String,
        count: u64,
    },
    #[error("nothing was calibrated on: there are no samples")]
    NoSamples,
    #[error("{layer} was never reached in calibration, so its range is not known")]
    NotCalibrated { layer: String },
    #[error("{file}: no calibration of percept: {reason}")]
    NoCalibration { file: String, reason: String },
    #[error("{file}: its plan of precisions is damaged: {reason}")]
    DamagedPlan { file: String, reason: String },
    #[error("the calibration is of `{found}`, not of `{asked}`")]
    OtherNetwork { found: String, asked: String },
    /// A network could not be judged by its metric.
    #[error(transparent)]
    Judged(Box<dyn std::error::Error + Send + Sync>),
    #[error("the network has no layer that could be quantised")]
    NoLayers,
}
