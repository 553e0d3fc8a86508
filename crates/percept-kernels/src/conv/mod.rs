//! 2D convolutions on NCHW tensors.

mod shape;

pub use shape::{ConvAlgorithm, ConvShape, Mode};
