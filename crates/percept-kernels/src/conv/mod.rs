//! 2D convolutions on NCHW tensors.

mod cells;
mod choose;
mod depthwise;
mod empty_response;
mod filters;
pub(crate) mod gather;
mod implicit;
mod into_depthwise;
mod narrow;
mod packed;
mod patches;
mod pixels;
mod pooled;
mod shape;
mod skip;
mod small_map;
mod transpose_shape;
mod transposed;
pub(crate) mod winograd;

pub use crate::gemm::pixels::PackedChannels;
pub use cells::CellMask;
pub use choose::{choose_algorithm, choose_for_kept_weights, supports};
pub use depthwise::depthwise_conv2d;
pub use empty_response::{BorderAxis, EmptyResponse, seal_interior};
pub(crate) use filters::Filters;
pub use into_depthwise::{
    ConvIntoDepthwise, Finish, PackedDepthwise, conv2d_before_depthwise, conv2d_into_depthwise,
};
pub use packed::{PackedConv, conv2d};
pub use pooled::conv2d_max_pooled;
pub use shape::{ConvAlgorithm, ConvShape, Mode};
pub use skip::{Coverage, can_skip, conv2d_settled};
pub use transpose_shape::ConvTransposeShape;
pub use transposed::{PackedConvTranspose, conv_transpose2d};
