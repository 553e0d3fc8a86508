//! Gradients by their definition.

mod activation;
mod aggregate;
mod attention;
mod conv;
mod norm;
mod pool2d;
mod resize;
mod sparse;

pub use activation::{activation_gradient, activation_slope, softmax_gradient};
pub use aggregate::aggregate_gradient;
pub use attention::packed_attention_gradient;
pub use conv::{conv2d_input_gradient, conv2d_weight_gradient};
pub use norm::{batch_norm_gradient, batch_norm_training, behind_relu, layer_norm_gradient};
pub use pool2d::{adaptive_avg_pool2d_gradient, avg_pool2d_gradient, max_pool2d_gradient};
pub use resize::resize_gradient;
pub use sparse::{sparse_input_gradient, sparse_weight_gradient};
