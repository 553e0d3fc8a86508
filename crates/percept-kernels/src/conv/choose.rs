//! Which algorithm a convolution runs with: a pure function of the shape, from measurements.

use super::shape::{ConvAlgorithm, ConvShape, Mode};
use super::{depthwise, narrow, pixels, winograd};
use crate::isa::Isa;

/// The algorithm for a convolution. Holds [`supports`].
pub fn choose_algorithm(shape: &ConvShape, mode: Mode, _isa: Isa) -> ConvAlgorithm {
    if supports(shape, ConvAlgorithm::Pointwise) {
        ConvAlgorithm::Pointwise
    } else if shape.is_depthwise() {
        ConvAlgorithm::Depthwise
    } else if supports(shape, ConvAlgorithm::Narrow) {
        ConvAlgorithm::Narrow
    } else if mode == Mode::Fast {
        winograd_tile(shape)
    } else {
        ConvAlgorithm::ImplicitGemm
    }
}

/// The algorithm for a convolution whose weights are packed once and kept, and which may scale its input if it is pointwise.
///
/// Pixels that are read where they lie save the gathering, which is most where few outputs share it. Measured with AVX-512 on one thread:
/// 32 to 16 channels on 112x112 0.08 ms against 0.15, 672 to 112 on 14x14 0.118 against 0.142, 256 to 64 on 56x56 0.38 against 0.49, 320
/// to 1280 on 7x7 0.166 against 0.180; but 64 to 256 on 56x56 0.456 against 0.427, because outputs are turned on their way. Inside of ResNet-50 weights come from memory, which panels ask for early: 2048 to 512 on 7x7 takes 0.58 to 0.65 against 0.59,
/// 512 to 2048 0.65 against 0.56, 256 to 1024 on 14x14 0.48 against 0.46. Narrower vectors have too few registers for it.
/// Of larger maps, parts may be skipped, which gathered panels can.
pub fn choose_for_kept_weights(shape: &ConvShape, mode: Mode, isa: Isa) -> ConvAlgorithm {
    let pixels = shape.in_pixels();
    let pays = shape.out_channels <= shape.in_channels || pixels <= 64;
    let kept_near = shape.weight_len() <= 3 << 18;
    if isa == Isa::Avx512 && pixels::supports(shape) && pays && kept_near && pixels <= 1 << 14 {
        ConvAlgorithm::Pixels
    } else {
        choose_algorithm(shape, mode, isa)
    }
}

/// Winograd where it can be, unless there are too few channels to pay for the transforms.
///
/// F(4x4) multiplies least where its tiles fill registers. With few tiles the weights are what is read, and F(2x2) has
/// 2.25 times fewer of them; wide layers (37 MB of F(4x4) weights from 512 to 512 channels) need more tiles to be worth it.
/// Measured on one thread: 256 channels on 14x14 1.07 ms against 1.45 (F4, F2), 512 on 7x7 4.0 against 1.9, the same for
/// a batch of 8 9.0 against 13.9, on 4x132 3.8 against 4.9 (with AVX-512), and for a batch of 6 on 8x22 17.4 against 27.6.
///
/// With stride two, weights grow ninefold. Measured likewise with AVX-512, against the implicit product: 64 to 128 channels on 32x88, a batch
/// of 6, 7.5 ms against 12.0, 128 to 128 on 28x28 0.81 against 1.13, 256 to 256 on 14x14 0.90 against 1.07 (too few tiles to be
/// sure of it), 512 to 512 on 7x7 3.6 against 1.1, a batch of 8 7.2 against 9.0, which 85 MB of weights are too much for. A stem on
/// 112x112 0.6 against 1.3.
fn winograd_tile(shape: &ConvShape) -> ConvAlgorithm {
    let channels = shape.in_channels.min(shape.out_channels);
    let tiles = shape.batch * shape.out_height().div_ceil(4) * shape.out_width().div_ceil(4);
    if supports(shape, ConvAlgorithm::WinogradStem) && shape.out_channels >= 16 && tiles >= 24 {
        ConvAlgorithm::WinogradStem
    } else if channels < 16 {
        ConvAlgorithm::ImplicitGemm
    } else if supports(shape, ConvAlgorithm::WinogradStride2)
        && tiles >= if channels < 512 { 24 } else { 64 }
    {
        ConvAlgorithm::WinogradStride2
    } else if !supports(shape, ConvAlgorithm::Winograd4) {
        ConvAlgorithm::ImplicitGemm
    } else if tiles < if channels < 512 { 16 } else { 24 } {
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
        ConvAlgorithm::Winograd4
        | ConvAlgorithm::Winograd2
        | ConvAlgorithm::WinogradStride2
        | ConvAlgorithm::WinogradStem => winograd::supports(shape, algorithm),
        ConvAlgorithm::Depthwise => depthwise::supports(shape),
        ConvAlgorithm::Narrow => narrow::supports(shape),
        ConvAlgorithm::Pixels => pixels::supports(shape),
    }
}
