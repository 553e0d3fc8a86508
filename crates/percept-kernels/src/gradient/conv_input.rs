//! The gradient of a convolution by its input: the adjoint applied to dy.
//!
//! With stride 1 the adjoint is a convolution itself, of dy with the kernel turned around, so that every fast algorithm
//! serves; with strides it is a matrix product and a sum. Strided layers in groups are transposed convolutions, whose weights
//! have the very same layout.

use super::conv_columns;
use crate::conv::{
    ConvShape, ConvTransposeShape, Filters, Mode, PackedConv, PackedConvTranspose,
    choose_algorithm, conv_transpose2d, conv2d,
};
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;

/// dx [batch, in_channels, height, width] = adjoint(dy) + residual, with OIHW weights.
pub fn conv2d_input_gradient(
    cpu: &Cpu,
    shape: &ConvShape,
    mode: Mode,
    dy: &[f32],
    weight: &[f32],
    residual: Option<&[f32]>,
    dx: &mut [f32],
) {
    shape.check(Some(weight.len()), dx.len(), dy.len());
    let epilogue = Epilogue {
        residual,
        ..Epilogue::default()
    };
    if dy.is_empty() {
        match residual {
            Some(residual) => dx.copy_from_slice(residual),
            None => dx.fill(0.0),
        }
    } else if let Some(turned) = as_convolution(shape) {
        // The kernel turned around: inputs for outputs, and each tap for its opposite.
        let filters = Filters::turned(shape, weight, (0..shape.taps()).rev().collect());
        let algorithm = choose_algorithm(&turned, mode, cpu.isa());
        let packed = PackedConv::pack_filters(cpu, &turned, algorithm, &filters);
        conv2d(cpu, &turned, &packed, dy, None, epilogue, dx);
        packed.give_back(cpu);
    } else if shape.groups == 1 {
        conv_columns::input_gradient(cpu, shape, dy, weight, residual, dx);
    } else {
        let transposed = as_transposed(shape);
        let packed = PackedConvTranspose::pack(&transposed, weight);
        conv_transpose2d(cpu, &transposed, &packed, dy, epilogue, dx);
    }
}

/// The convolution of dy that gives dx, when there is one.
fn as_convolution(shape: &ConvShape) -> Option<ConvShape> {
    let mut padding = [0; 2];
    for axis in 0..2 {
        let span = shape.dilation[axis] * (shape.kernel[axis] - 1);
        padding[axis] = span.checked_sub(shape.padding[axis])?;
    }
    (shape.stride == [1, 1]).then_some(ConvShape {
        in_channels: shape.out_channels,
        height: shape.out_height(),
        width: shape.out_width(),
        out_channels: shape.in_channels,
        padding,
        ..*shape
    })
}

/// The transposed convolution of dy that gives dx.
fn as_transposed(shape: &ConvShape) -> ConvTransposeShape {
    let cut = ConvTransposeShape {
        batch: shape.batch,
        in_channels: shape.out_channels,
        height: shape.out_height(),
        width: shape.out_width(),
        out_channels: shape.in_channels,
        kernel: shape.kernel,
        stride: shape.stride,
        padding: [0, 0],
        output_padding: [0, 0],
        dilation: shape.dilation,
        groups: shape.groups,
    };
    // Rows and columns at the end that no window reached, because the stride stepped over them.
    let rest = |size: usize, axis: usize, uncut: usize| size + 2 * shape.padding[axis] - uncut;
    ConvTransposeShape {
        padding: shape.padding,
        output_padding: [
            rest(shape.height, 0, cut.out_height()),
            rest(shape.width, 1, cut.out_width()),
        ],
        ..cut
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::conv_shapes;
    use super::*;
    use crate::reference::gradient;
    use crate::testing::{check, numbers, widen};

    fn compare(shape: &ConvShape, mode: Mode, with_residual: bool, tolerance: f64) {
        let (dy, weight) = (numbers(1, shape.out_len()), numbers(2, shape.weight_len()));
        let residual = with_residual.then(|| numbers(3, shape.in_len()));
        let mut expected = vec![0.0; shape.in_len()];
        gradient::conv2d_input_gradient(shape, &widen(&dy), &widen(&weight), &mut expected);
        for (index, value) in expected.iter_mut().enumerate() {
            *value += residual.as_ref().map_or(0.0, |r| f64::from(r[index]));
        }
        let residual = residual.as_deref();
        check(&expected, tolerance, |cpu, dx| {
            conv2d_input_gradient(cpu, shape, mode, &dy, &weight, residual, dx);
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn equals_the_reference(shape in conv_shapes(), residual in any::<bool>()) {
            compare(&shape, Mode::Exact, residual, 1e-5);
        }
    }

    #[test]
    fn a_winograd_layer() {
        let shape = ConvShape {
            batch: 2,
            in_channels: 20,
            height: 17,
            width: 15,
            out_channels: 24,
            kernel: [3, 3],
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 1,
        };
        compare(&shape, Mode::Fast, true, 1e-3);
        compare(
            &ConvShape {
                stride: [2, 2],
                ..shape
            },
            Mode::Fast,
            true,
            1e-5,
        );
    }
}
