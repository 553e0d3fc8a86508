//! Checkpoints: everything that decides the next step, in one safetensors file.
//!
//! A [`Snapshot`] is the state in memory; a [`CheckpointFolder`] holds its files, each written beside its place, brought
//! to the disk and renamed, so that a file that exists is whole; a [`CheckpointWriter`] writes them while the run goes on.

mod error;
mod folder;
mod snapshot;
#[cfg(test)]
mod tests;
mod writer;

pub use error::CheckpointError;
pub use folder::{CheckpointFolder, Damaged, Resumed, latest};
pub use snapshot::{Best, RunState, Snapshot};
pub use writer::CheckpointWriter;
