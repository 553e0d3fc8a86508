//! From a graph and weights to answers: passes, buffer plan, execution, probes.
//!
//! [`Program`] is the fast engine; [`run_reference`] runs the same graph on slow, readable kernels in f32 or f64.

mod bytes;
mod empty;
mod error;
mod execute;
mod join;
mod kernel;
mod lowering;
mod operands;
mod ops;
mod options;
mod outputs;
mod passes;
mod per_run;
mod plan;
mod precision;
mod probe;
mod profile;
mod program;
mod recalibrate;
mod reference;
mod schedule;
mod segment;
mod simulate;
mod slices;
mod state;
mod sums;
mod train_step;
mod weights;

pub use error::EngineError;
pub use options::{Empty, Integers, Memory, Mode, Options};
pub use outputs::Outputs;
pub use per_run::PerRun;
pub use precision::{LayerPrecision, Precision, PrecisionPlan, Quantization, is_contraction};
pub use probe::{Observe, Recording, Run, StepTime};
pub use profile::{
    Holder, MemoryAtPeak, MemoryEstimate, StepInfo, estimate_memory, require_memory,
};
pub use program::{Preparation, Program};
pub use recalibrate::{Recalibration, Statistics};
pub use reference::{RealTensor, constant_value, run_reference};
pub use simulate::RoundedWeights;
pub use sums::{SumScale, followers};
pub use train_step::TrainStep;
