//! The training step is a graph like any other.
//!
//! Three rewrites make it from a network and its loss: [`Graph::in_training`] turns parameters and running statistics into
//! state, [`differentiate`] appends the backward nodes, and [`Training::graph`] the optimiser's updates.

mod backward;
mod differentiate;
mod optimise;
mod parts;
mod phase;
mod state;

pub use backward::{Backward, Differentiable};
pub use differentiate::{Differentiated, differentiate};
pub use optimise::{LEARNING_RATE, MOMENTUM, Optimiser, Training};
pub use parts::{PART_SHARE, TrainingInParts};
pub use phase::StepPhase;
pub use state::RANDOM_COUNTER;
