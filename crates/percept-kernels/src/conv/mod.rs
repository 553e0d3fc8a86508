//! 2D convolutions on NCHW tensors.

mod choose;
mod depthwise;
mod gather;
mod implicit;
mod narrow;
mod packed;
mod shape;
mod transpose_shape;
mod transposed;
mod winograd;

pub use choose::{choose_algorithm, supports};
pub use depthwise::depthwise_conv2d;
pub use packed::{PackedConv, conv2d};
pub use shape::{ConvAlgorithm, ConvShape, Mode};
pub use transpose_shape::ConvTransposeShape;
pub use transposed::{PackedConvTranspose, conv_transpose2d};
