//! Contractions on bytes: 8-bit activations times 8-bit weights, summed in 32 bits, finished to bytes or floats.
//!
//! An activation q stands for q · scale ([`ByteScale`]): -127..=127, or 0..=127 behind a ReLU; there is no zero point. A weight has
//! a scale for each output channel. Maps lie in *quads* `[N][C / 4][H][W][4]`: four channels of a pixel side by side, the last
//! quad filled up with zeros, because that is what the instructions of every CPU multiply, and what four rows of weights give.
//! A quad is as wide as a float, so maps are gathered as maps of floats are. Rows lie one after the other, each filled up to
//! whole quads.
//!
//! Integer sums are the same on every instruction set and thread count. What follows them is computed in floats without fused
//! steps, so that straight activations give the same bytes everywhere.

mod conv;
mod depthwise;
mod finish;
#[cfg(target_arch = "x86_64")]
mod gather;
mod linear;
mod map;
mod pool;
mod scale;
mod skip;
mod sparse;
mod term;
mod tile;
mod transposed;
mod weights;
mod winograd;

#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use crate::isa::Isa;

pub use conv::{ByteConv, ByteTerm, byte_conv2d, byte_conv2d_sum};
pub use depthwise::{ByteDepthwise, byte_depthwise_conv2d};
pub use finish::{Addend, ByteEpilogue, ByteOutput, Rounding};
pub use linear::{ByteLinear, byte_linear};
pub use map::{dequantize_map, dequantize_rows, map_len, quantize_map, quantize_rows, row_len};
pub use pool::max_pool_quads;
pub use scale::ByteScale;
pub use skip::{ByteMapWeights, byte_conv2d_settled};
pub use sparse::{ByteSparseConv, byte_sparse_conv};
pub use tile::QUAD_LIMIT;
#[cfg(target_arch = "x86_64")]
pub(crate) use tile::has_matrix_tiles;
pub(crate) use tile::{ROW_OUTPUTS, ROW_TILE};
pub use transposed::spread_taps;
pub use weights::{ByteWeights, QuadOrder};
pub use winograd::{ByteWinograd, byte_winograd};

/// Whether kernels on bytes take vectors of 512 bits.
#[cfg(target_arch = "x86_64")]
fn has_wide(isa: Isa) -> bool {
    isa.has_byte_dots()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni")
}
