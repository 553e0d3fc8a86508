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
pub fn choose_for_kept_weights(shape: &ConvShape, mode: Mode, isa: Isa) -> ConvAlgorithm {
    // Narrower vectors have too few registers for it.
    let pays = isa.has_wide_floats() && pixels::supports(shape) && pixels_pay(shape);
    if pays {
        ConvAlgorithm::Pixels
    } else {
        choose_algorithm(shape, mode, isa)
    }
}

/// Pixels that are spread over channels save the gathering, which is most where few outputs share it.
///
/// Measured with AVX-512 on one thread: 32 to 16 channels on 112x112 0.08 ms against 0.15, 672 to 112 on 14x14 0.118 against 0.142, 256
/// to 64 on 56x56 0.38 against 0.49, 320 to 1280 on 7x7 0.166 against 0.180; but 64 to 256 on 56x56 0.456 against 0.427, because outputs
/// are turned on their way. With weights that come from memory, as inside of ResNet-50: 2048 to 512 on 7x7 0.45 against 0.46 (on two threads
/// 0.23 against 0.29), 512 to 2048 0.50 against 0.43, 256 to 1024 on 14x14 0.44 against 0.42. Of larger maps, parts may be skipped, which
/// gathered panels can.
///
/// With stride two, against gathered panels and Winograd: 128 to 128 channels on 28x28 0.92 ms, 1.12 and 0.93 (0.52, 0.58 and 0.67 on two
/// threads; a batch of 8 7.4, 8.9 and 6.0), 256 to 256 on 14x14 0.90, 1.13 and 1.19 (a batch of 8 7.2, 8.4 and 8.0), 512 to 512 on 7x7
/// 0.97, 1.17 and 3.7 (a batch of 8 7.6, 8.8 and 7.2). Rows must be whole tiles.
fn pixels_pay(shape: &ConvShape) -> bool {
    let pixels = shape.in_pixels();
    if shape.kernel == [1, 1] {
        let near = shape.weight_len() <= 3 << 18;
        let few = shape.out_channels <= shape.in_channels || pixels <= 64 && near;
        return shape.stride == [1, 1] && few && pixels <= 1 << 14;
    }
    let whole = [7, 8]
        .iter()
        .any(|&tile| shape.out_width().is_multiple_of(tile));
    shape.stride == [2, 2] && whole && tiles(shape) < shape.in_channels.min(shape.out_channels) / 2
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
    let tiles = tiles(shape);
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

/// Tiles of 4x4 outputs.
fn tiles(shape: &ConvShape) -> usize {
    shape.batch * shape.out_height().div_ceil(4) * shape.out_width().div_ceil(4)
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
