//! Which algorithm a convolution runs with: a pure function of the shape, from measurements.

use super::shape::{ConvAlgorithm, ConvShape, Mode};
use crate::isa::Isa;

/// The algorithm for a convolution. Holds [`supports`].
pub fn choose_algorithm(shape: &ConvShape, _mode: Mode, _isa: Isa) -> ConvAlgorithm {
    if supports(shape, ConvAlgorithm::Pointwise) {
        ConvAlgorithm::Pointwise
    } else {
        ConvAlgorithm::ImplicitGemm
    }
}

/// Whether an algorithm can compute a convolution.
pub fn supports(shape: &ConvShape, algorithm: ConvAlgorithm) -> bool {
    match algorithm {
        ConvAlgorithm::Pointwise => shape.kernel == [1, 1] && shape.padding == [0, 0],
        ConvAlgorithm::ImplicitGemm => true,
        ConvAlgorithm::Winograd4 | ConvAlgorithm::Winograd2 | ConvAlgorithm::Depthwise => false,
    }
}
