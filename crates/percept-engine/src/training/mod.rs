//! Training on the fast engine: kernels of training graphs, and the step that owns the state.

mod forward;
mod gradient;
mod kernel;
mod step;
mod update;

pub use kernel::{Sizes, TrainingKernel};
pub use step::TrainStep;
