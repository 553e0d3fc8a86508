//! Transposed convolution: a pointwise one where it computes the same.

use std::borrow::Cow;
use std::sync::Arc;

use percept_graph::ConvTranspose2d;
use percept_kernels::conv::{
    CellMask, ConvAlgorithm, ConvTransposeShape, PackedConv, PackedConvTranspose, conv_transpose2d,
};
use percept_kernels::reference::{self, Real};
use percept_kernels::{Activation, Cpu, Epilogue};

use super::conv::ConvCall;
use super::prepare::bias_only;
use super::{Execute, Prepare, Reference, integers};
use crate::EngineError;
use crate::empty::{Extent, MapLayer, OnMap, SmallMap};
use crate::kernel::Kernel;
use crate::precision::Precision;
use crate::weights::{Form, Vector, scale_rows};

/// The kernels' form of a transposed convolution on an input [N, C, H, W].
pub fn shape(op: &ConvTranspose2d, x: &[usize]) -> ConvTransposeShape {
    ConvTransposeShape {
        batch: x[0],
        in_channels: op.conv.in_channels,
        height: x[2],
        width: x[3],
        out_channels: op.conv.out_channels,
        kernel: op.conv.kernel,
        stride: op.conv.stride,
        padding: op.conv.padding,
        output_padding: op.output_padding,
        dilation: op.conv.dilation,
        groups: op.conv.groups,
    }
}

/// Weights [in, out of the group, taps] with their output channels scaled.
fn scaled<'a>(
    op: &ConvTranspose2d,
    weight: Cow<'a, [f32]>,
    scale: Option<&[f64]>,
) -> Cow<'a, [f32]> {
    let conv = &op.conv;
    let taps = conv.kernel[0] * conv.kernel[1];
    let group_out = conv.out_channels / conv.groups;
    let group_in = conv.in_channels / conv.groups;
    scale_rows(weight, taps, scale, |row| {
        let (input, output) = (row / group_out, row % group_out);
        input / group_in * group_out + output
    })
}

impl Execute for ConvTranspose2d {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        if let Some(grid) = at.step.fused.input_bytes {
            return integers::conv_transpose(self, at, grid);
        }
        let (cpu, shape) = (at.cpu, shape(self, at.x()));
        if at.parameters_are_values() {
            let bias = self.conv.bias.then_some(2);
            return Ok(Kernel::new(move |cpu, io| {
                let packed = PackedConvTranspose::pack(&shape, io.read(1)?);
                let epilogue = bias_only(io, bias)?;
                conv_transpose2d(cpu, &shape, &packed, io.read(0)?, epilogue, io.write(0)?);
                Ok(())
            }));
        }
        let activation = at.activation();
        if let Some(shape) = shape.as_pointwise() {
            let algorithm = ConvAlgorithm::Pointwise;
            let packing = at.packing(Form::Conv(algorithm), &[Precision::F32])?;
            let (weights, bias) = at.contraction(packing, |weight, scale| {
                let weight = scaled(self, weight, scale);
                let [inputs, outputs] = [shape.in_channels, shape.out_channels];
                let turned: Vec<f32> = (0..inputs * outputs)
                    .map(|at| weight[at % inputs * outputs + at / inputs])
                    .collect();
                PackedConv::pack(cpu, &shape, algorithm, &turned)
            })?;
            let call = ConvCall {
                shape,
                weights,
                bias,
                activation,
                scaled: false,
                residual: None,
                max_pool: None,
            };
            return Ok(call.into_kernel());
        }
        let packing = at.packing(Form::Transposed, &[Precision::F32])?;
        let (weights, bias) = at.contraction(packing, |weight, scale| {
            PackedConvTranspose::pack(&shape, &scaled(self, weight, scale))
        })?;
        let call = Arc::new(TransposedCall {
            shape,
            weights,
            bias,
            activation,
        });
        let on_map = OnMap::Layer(Arc::clone(&call) as _);
        let kernel = Kernel::new(move |cpu, io| {
            let (shape, x) = (&call.shape, io.read(0)?);
            conv_transpose2d(cpu, shape, &call.weights, x, call.epilogue(), io.write(0)?);
            Ok(())
        });
        Ok(kernel.on_map(on_map))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (shape, bias) = (shape(self, run.dims()), run.param_if(self.conv.bias, 1));
        reference::conv_transpose2d(&shape, run.x(), &run.params[0], bias, run.y());
        Ok(())
    }
}

struct TransposedCall {
    shape: ConvTransposeShape,
    weights: Arc<PackedConvTranspose>,
    bias: Option<Vector>,
    activation: Activation,
}

impl TransposedCall {
    fn epilogue(&self) -> Epilogue<'_> {
        Epilogue {
            bias: self.bias.as_ref().map(|bias| bias.as_slice()),
            activation: self.activation,
            ..Epilogue::default()
        }
    }
}

/// How far borders are felt behind a transposed convolution.
pub fn extent(shape: &ConvTransposeShape, before: Extent) -> Extent {
    let scale = (before.scale / shape.stride[0].min(shape.stride[1])).max(1);
    let marks = (0..2).map(|axis| shape.dilation[axis] * (shape.kernel[axis] - 1));
    Extent {
        scale,
        reach: before.reach + marks.max().unwrap_or(0) * scale,
        period: before.period * shape.stride[0].max(shape.stride[1]),
    }
}

impl MapLayer for TransposedCall {
    fn extent(&self, before: Extent) -> Extent {
        extent(&self.shape, before)
    }

    fn small(&self, cpu: &Cpu, inputs: &[&SmallMap]) -> SmallMap {
        let [height, width] = inputs[0].size;
        let shape = ConvTransposeShape {
            batch: 1,
            height,
            width,
            ..self.shape
        };
        let mut data = vec![0.0; shape.out_len()];
        let x = &inputs[0].data;
        conv_transpose2d(cpu, &shape, &self.weights, x, self.epilogue(), &mut data);
        SmallMap {
            size: [shape.out_height(), shape.out_width()],
            data,
        }
    }

    fn reached(&self, inputs: &[&CellMask]) -> CellMask {
        inputs[0].through_conv_transpose(&self.shape)
    }
}
