//! Files in and out: weights, images, point clouds
//!
//! Every reader takes files as hostile: sizes are checked before memory is taken, errors name the file and
//! what is wrong in it, and tell the corrupt from what is only not supported.

pub mod arrays;
mod assembled;
pub mod augment;
pub mod checkpoint;
pub mod classification;
pub mod egoexo;
pub mod error;
mod example;
pub mod images;
pub mod load_report;
pub mod loader;
pub mod masks;
mod model_weights;
pub mod names;
pub mod points;
mod prepare;
mod quantized;
pub mod random;
pub mod safetensors;
mod sample;
pub mod seeded;
mod setting;
mod sliced;
pub mod weights;
mod zip;

pub use assembled::Assembled;
pub use error::{FaultKind, FileError};
pub use example::{BatchError, Example};
pub use load_report::{LoadError, LoadReport};
pub use model_weights::{ModelWeights, ModelWeightsError};
pub use percept_store::atomic;
pub use prepare::{Prepare, SampleKey};
pub use quantized::{Dequantized, STEP};
pub use sample::{Datum, POSITION, Sample, SampleError, Samples};
pub use setting::SettingError;
pub use sliced::Sliced;

pub use weights::{MemoryWeights, TensorSource, open_weights};
pub use zip::ZipFault;
