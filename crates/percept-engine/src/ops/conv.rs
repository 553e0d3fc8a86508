//! Convolution: by the algorithm that its sizes choose, on weights packed once, or packed anew where they change.

use std::sync::Arc;

use percept_graph::{Conv2d, Op};
use percept_kernels::conv::{
    CellMask, ConvShape, PackedConv, can_skip, choose_algorithm, choose_for_kept_weights, conv2d,
    conv2d_max_pooled, conv2d_settled,
};
use percept_kernels::pool2d::Pool2dShape;
use percept_kernels::reference::{self, Real};
use percept_kernels::{Activation, Cpu, Epilogue};

use super::prepare::{bias_only, epilogue};
use super::{Execute, Prepare, Reference, conv_depthwise, integers, pool};
use crate::EngineError;
use crate::empty::{Extent, MapLayer, OnMap, Settled, SmallMap};
use crate::kernel::Kernel;
use crate::operands::Operands;
use crate::precision::Precision;
use crate::weights::{Form, Vector, scale_rows};

/// The kernels' form of a convolution on an input [N, C, H, W].
pub fn shape(conv: &Conv2d, x: &[usize]) -> ConvShape {
    ConvShape {
        batch: x[0],
        in_channels: conv.in_channels,
        height: x[2],
        width: x[3],
        out_channels: conv.out_channels,
        kernel: conv.kernel,
        stride: conv.stride,
        padding: conv.padding,
        dilation: conv.dilation,
        groups: conv.groups,
    }
}

impl Execute for Conv2d {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        if let Some(grid) = at.step.fused.input_bytes {
            return integers::conv(self, at, grid);
        }
        let graph = at.graph;
        if let Some(behind) = &at.step.fused.depthwise
            && let Op::Conv2d(second) = &graph.node(behind.node).op
        {
            return conv_depthwise::prepare(self, second, behind, at);
        }
        let shape = shape(self, at.x());
        let scaled = at.step.fused.input_scale.is_some();
        // Kernels for pointwise convolutions scale their input, and the pass that fused the scale saw one.
        let choose = match at.parameters_are_values() {
            true => choose_algorithm,
            false => choose_for_kept_weights,
        };
        let algorithm = choose(&shape, at.mode, at.cpu.isa());
        let packing = at.packing(Form::Conv(algorithm), &[Precision::F32])?;
        if at.parameters_are_values() {
            let bias = self.bias.then_some(2);
            return Ok(Kernel::new(move |cpu, io| {
                let packed = PackedConv::pack(cpu, &shape, algorithm, io.read(1)?);
                let epilogue = bias_only(io, bias)?;
                conv2d(
                    cpu,
                    &shape,
                    &packed,
                    io.read(0)?,
                    None,
                    epilogue,
                    io.write(0)?,
                );
                packed.give_back(cpu);
                Ok(())
            }));
        }
        let cpu = at.cpu;
        let per_channel = self.in_channels / self.groups * self.kernel[0] * self.kernel[1];
        let (weights, bias) = at.contraction(packing, |weight, scale| {
            let weight = scale_rows(weight, per_channel, scale, |row| row);
            PackedConv::pack(cpu, &shape, algorithm, &weight)
        })?;
        let call = ConvCall {
            shape,
            weights,
            bias,
            activation: at.activation(),
            scaled,
            residual: at.residual(),
            max_pool: at.step.fused.max_pool.as_ref().map(|op| {
                let map = [
                    shape.batch,
                    shape.out_channels,
                    shape.out_height(),
                    shape.out_width(),
                ];
                pool::max_pool(op, &map)
            }),
        };
        Ok(call.into_kernel())
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (shape, bias) = (shape(self, run.dims()), run.param_if(self.bias, 1));
        reference::conv2d(&shape, run.x(), &run.params[0], bias, run.y());
        Ok(())
    }
}

/// A convolution with packed weights and what is fused into it.
pub struct ConvCall {
    pub shape: ConvShape,
    pub weights: Arc<PackedConv>,
    pub bias: Option<Vector>,
    pub activation: Activation,
    /// Whether factors of the input's channels are the second operand.
    pub scaled: bool,
    /// The residual's position among the operands.
    pub residual: Option<usize>,
    /// A pooling of the output.
    pub max_pool: Option<Pool2dShape>,
}

impl ConvCall {
    /// As a kernel.
    pub fn into_kernel(self) -> Kernel {
        // The residual is read last.
        let in_place = self.weights.takes_residual_in_place();
        let in_place = self.residual.filter(|_| in_place);
        let algorithm = self.weights.algorithm();
        let call = Arc::new(self);
        let on_map =
            (!call.scaled && call.max_pool.is_none()).then(|| OnMap::Layer(Arc::clone(&call) as _));
        let kernel = Kernel::new(move |cpu, io| {
            let (x, scale) = (io.read(0)?, io.read_if(call.scaled.then_some(1))?);
            let (shape, weights) = (&call.shape, &call.weights);
            let (epilogue, y) = (call.epilogue(io)?, io.write(0)?);
            match &call.max_pool {
                Some(pool) => conv2d_max_pooled(cpu, shape, weights, x, epilogue, pool, y),
                None => conv2d(cpu, shape, weights, x, scale, epilogue, y),
            }
            Ok(())
        });
        kernel.in_place(in_place).by(algorithm).on_map(on_map)
    }

    fn epilogue<'e>(&'e self, io: &Operands<'e>) -> Result<Epilogue<'e>, String> {
        let bias = self.bias.as_ref().map(|bias| bias.as_slice());
        epilogue(io, bias, self.residual, self.activation)
    }
}

/// How far borders are felt behind a convolution.
pub fn extent(shape: &ConvShape, before: Extent) -> Extent {
    let felt = (0..2).map(|axis| {
        let span = shape.dilation[axis] * (shape.kernel[axis] - 1);
        let padding = shape.padding[axis];
        padding.max(span.saturating_sub(padding))
    });
    let stride = shape.stride[0].max(shape.stride[1]);
    Extent {
        reach: before.reach + felt.max().unwrap_or(0) * before.scale,
        scale: before.scale * stride,
        period: before.period.div_ceil(stride),
    }
}

impl MapLayer for ConvCall {
    fn extent(&self, before: Extent) -> Extent {
        extent(&self.shape, before)
    }

    fn small(&self, cpu: &Cpu, inputs: &[&SmallMap]) -> SmallMap {
        let shape = self.shape.on_one_map(inputs[0].size);
        let epilogue = Epilogue {
            bias: self.bias.as_ref().map(|bias| bias.as_slice()),
            residual: self.residual.map(|at| inputs[at].data.as_slice()),
            residual_in_place: false,
            activation: self.activation,
        };
        let mut data = vec![0.0; shape.out_len()];
        let x = &inputs[0].data;
        conv2d(cpu, &shape, &self.weights, x, None, epilogue, &mut data);
        SmallMap {
            size: [shape.out_height(), shape.out_width()],
            data,
        }
    }

    fn reached(&self, inputs: &[&CellMask]) -> CellMask {
        let mut mask = inputs[0].through_conv(&self.shape);
        if let Some(residual) = self.residual {
            mask.unite(inputs[residual]);
        }
        mask
    }

    fn skips(&self) -> bool {
        can_skip(&self.weights)
    }

    fn settle(&self, cpu: &Cpu, io: &mut Operands<'_>, known: &Settled<'_>) -> Result<f64, String> {
        let Settled {
            reached,
            empty,
            coverage,
        } = *known;
        let (x, epilogue, weights) = (io.read(0)?, self.epilogue(io)?, &self.weights);
        let (shape, y) = (&self.shape, io.write(0)?);
        Ok(conv2d_settled(
            cpu, shape, weights, x, epilogue, reached, empty, coverage, y,
        ))
    }
}
