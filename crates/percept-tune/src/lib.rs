//! What shrinks networks and speeds them up: observed ranges, plans of precisions, weights as integers, and what each layer
//! gains and loses.
//!
//! A way to integers has four steps. [`Calibration`] watches the inputs of all layers on samples and keeps histograms. A
//! [`Recipe`] makes a [`PrecisionPlan`](percept_engine::PrecisionPlan) of them, with ranges by a [`Calibrator`].
//! [`write_quantized`] writes the integers, their steps and the plan as one file. [`sensitivity`] tells what each layer is worth
//! and [`within_budget`] takes the layers that gain most for what they cost.

mod budget;
mod calibration;
mod calibrator;
mod error;
mod histogram;
mod noise;
mod recipe;
mod sensitivity;
mod stored;
mod times;

pub use budget::{Budget, Spent, within_budget};
pub use calibration::Calibration;
pub use calibrator::Calibrator;
pub use error::TuneError;
pub use histogram::Histogram;
pub use noise::{Noise, noise_of};
pub use recipe::{Layers, Recipe, Scheme};
pub use sensitivity::{LayerSensitivity, Subject, outlier_advice, sensitivity};
pub use stored::{PLAN_KEY, StoredPlan, write_quantized};
pub use times::BothMs;
