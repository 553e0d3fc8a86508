//! Gradients: what training needs besides the forward kernels.
//!
//! As everywhere, work is cut into blocks that depend on shapes only, and every sum has a fixed order.

mod activation;
mod attention;
mod batch_norm;
mod conv_columns;
mod conv_input;
mod conv_weight;
mod conv_weight_depthwise;
mod conv_window;
mod dense;
mod layer_norm;
mod max_pool;
mod planes;
#[cfg(test)]
mod testing;

pub use activation::{activation_gradient, activation_gradient_in_place, softmax_gradient};
pub use attention::packed_attention_gradient;
pub use batch_norm::{
    BatchNormAgain, BatchNormGradient, BatchNormTraining, Keeps, batch_norm_again,
    batch_norm_gradient, batch_norm_training, batch_norm_training_keeping, keep_rectified,
};
pub use conv_input::conv2d_input_gradient;
pub use conv_weight::conv2d_weight_gradient;
pub use dense::dense_to_sparse;
pub use layer_norm::layer_norm_gradient;
pub use max_pool::max_pool2d_gradient;
pub use planes::{adaptive_avg_pool2d_gradient, avg_pool2d_gradient, resize_gradient};
