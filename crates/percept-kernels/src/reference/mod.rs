//! Slow, readable references for every kernel, generic over f32 and f64.
//!
//! They say what a kernel computes in the fewest words, take the same shape types as the fast
//! kernel, and are what its property tests compare with. They also run whole graphs in f64.

mod aggregate;
mod attention;
mod boxes;
mod conv;
mod elementwise;
pub mod gradient;
mod loss;
mod matmul;
mod norm;
mod optimiser;
mod pool2d;
mod real;
mod reduce;
mod resize;
mod softmax;
mod sparse;
mod voxelize;

pub use aggregate::aggregate;
#[cfg(test)]
pub(crate) use aggregate::aggregate_point;
pub use attention::attention;
pub use boxes::{iou_bev, suppress};
pub use conv::{conv_transpose2d, conv2d};
pub use elementwise::{activate, binary, unary};
pub use loss::{cross_entropy, cross_entropy_gradient};
pub use matmul::{linear, matmul};
pub use norm::{batch_norm, group_norm, layer_norm, rms_norm};
pub use optimiser::{adam_w, sgd};
pub use pool2d::{adaptive_avg_pool2d, avg_pool2d, global_avg_pool, max_pool2d};
pub use real::Real;
pub use reduce::reduce;
pub use resize::resize;
pub use softmax::{log_softmax, softmax};
pub use sparse::{sparse_conv, sparse_output_sites, sparse_pairs};
pub use voxelize::voxelize;
