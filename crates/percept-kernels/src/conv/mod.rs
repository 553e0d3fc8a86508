//! 2D convolutions on NCHW tensors.

mod choose;
mod gather;
mod implicit;
mod packed;
mod shape;
mod transpose_shape;

pub use choose::{choose_algorithm, supports};
pub use packed::{PackedConv, conv2d};
pub use shape::{ConvAlgorithm, ConvShape, Mode};
pub use transpose_shape::ConvTransposeShape;
