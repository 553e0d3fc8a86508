//! The training step is a graph like any other.
//!
//! Three rewrites make it from a network and its loss: [`Graph::in_training`] turns parameters and running statistics into
//! state, [`differentiate`] appends the backward nodes, and [`Training::graph`] the optimiser's updates. Others save memory:
//! [`Graph::recomputing`], [`Graph::keeping`] and [`Graph::with_early_updates`].
//!
//! [`Graph::in_training`]: crate::Graph::in_training
//! [`Graph::recomputing`]: crate::Graph::recomputing
//! [`Graph::keeping`]: crate::Graph::keeping
//! [`Graph::with_early_updates`]: crate::Graph::with_early_updates

mod backward;
mod differentiate;
mod kept;
mod optimise;
mod order;
mod parts;
mod phase;
mod recompute;
mod rectified;
mod state;

pub use backward::{Backward, Differentiable};
pub use differentiate::{Differentiated, differentiate};
pub use optimise::{LEARNING_RATE, MOMENTUM, Optimiser, Training};
pub use parts::{PART_SHARE, TrainingInParts};
pub use phase::StepPhase;
pub use recompute::{RecomputableModule, Recompute};
pub use state::RANDOM_COUNTER;
