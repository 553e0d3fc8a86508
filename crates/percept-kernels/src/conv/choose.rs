//! Which algorithm a convolution runs with: a pure function of the shape, from measurements.

use super::shape::{ConvAlgorithm, ConvShape, Mode};
use super::{depthwise, winograd};
use crate::isa::Isa;

/// The algorithm for a convolution. Holds [`supports`].
pub fn choose_algorithm(shape: &ConvShape, mode: Mode, _isa: Isa) -> ConvAlgorithm {
    if supports(shape, ConvAlgorithm::Pointwise) {
        ConvAlgorithm::Pointwise
    } else if shape.is_depthwise() {
        ConvAlgorithm::Depthwise
    } else if mode == Mode::Fast && supports(shape, ConvAlgorithm::Winograd4) {
        winograd_tile(shape)
    } else {
        ConvAlgorithm::ImplicitGemm
    }
}

/// Winograd, unless there are too few channels to pay for the transforms. Wide layers on small maps read more weights
/// than pixels, and F(2x2) has 2.25 times fewer of them; elsewhere F(4x4) multiplies less.
fn winograd_tile(shape: &ConvShape) -> ConvAlgorithm {
    let channels = shape.in_channels.min(shape.out_channels);
    if channels < 16 {
        ConvAlgorithm::ImplicitGemm
    } else if channels >= 512 || shape.out_height().min(shape.out_width()) < 12 {
        ConvAlgorithm::Winograd2
    } else {
        ConvAlgorithm::Winograd4
    }
}

/// Whether an algorithm can compute a convolution.
pub fn supports(shape: &ConvShape, algorithm: ConvAlgorithm) -> bool {
    match algorithm {
        ConvAlgorithm::Pointwise => shape.kernel == [1, 1] && shape.padding == [0, 0],
        ConvAlgorithm::ImplicitGemm => true,
        ConvAlgorithm::Winograd4 | ConvAlgorithm::Winograd2 => winograd::supports(shape),
        ConvAlgorithm::Depthwise => depthwise::supports(shape),
    }
}
