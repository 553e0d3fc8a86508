//! A convolution that a depthwise one follows, in one kernel: the map between them is never made.

use std::sync::Arc;

use percept_graph::Conv2d;
use percept_kernels::conv::{
    ConvIntoDepthwise, Finish, PackedChannels, PackedDepthwise, conv2d_before_depthwise,
    conv2d_into_depthwise,
};
use percept_kernels::{Activation, Cpu};

use super::Prepare;
use super::conv::shape;
use crate::EngineError;
use crate::kernel::Kernel;
use crate::lowering::LoweredNode;
use crate::precision::Precision;
use crate::weights::{Form, Vector, scale_rows};

/// The kernel's form of both, on an input [N, C, H, W].
fn both(first: &Conv2d, second: &Conv2d, x: &[usize]) -> Option<ConvIntoDepthwise> {
    let first = shape(first, x);
    let map = [
        first.batch,
        first.out_channels,
        first.out_height(),
        first.out_width(),
    ];
    ConvIntoDepthwise::new(first, shape(second, &map))
}

/// Whether there is a kernel for both, which does not depend on the size of the input.
pub fn has_kernel(first: &Conv2d, second: &Conv2d) -> bool {
    let size = 4 * (first.kernel[0].max(first.kernel[1]) + second.kernel[0].max(second.kernel[1]));
    both(first, second, &[1, first.in_channels, size, size]).is_some()
}

/// The kernel of a step that absorbed the depthwise step behind it.
pub fn prepare(
    first: &Conv2d,
    second: &Conv2d,
    behind: &LoweredNode,
    at: &mut Prepare<'_>,
) -> Result<Kernel, EngineError> {
    let shapes = both(first, second, at.x()).expect("the pass saw a kernel for both");
    let packing = at.packing(Form::Expansion, &[Precision::F32])?;
    let (expansion, first_bias) = at.contraction(packing, |weight, scale| {
        let per_channel = first.in_channels * first.kernel[0] * first.kernel[1];
        let weight = scale_rows(weight, per_channel, scale, |row| row);
        shapes.pack_first(&weight)
    })?;
    let first_activation = at.activation();
    let mut at = at.of(behind);
    let packing = at.packing(Form::Depthwise, &[Precision::F32])?;
    let (depthwise, second_bias) = at.contraction(packing, |weight, scale| {
        let weight = scale_rows(weight, second.kernel[0] * second.kernel[1], scale, |row| {
            row
        });
        PackedDepthwise::pack(shapes.depthwise(), &weight)
    })?;
    let call = Arc::new(Call {
        shapes,
        expansion,
        depthwise,
        bias: [first_bias, second_bias],
        activations: [first_activation, at.activation()],
    });
    let observed = Arc::clone(&call);
    let kernel = Kernel::new(move |cpu, io| {
        call.run(cpu, io.read(0)?, io.write(0)?);
        Ok(())
    });
    Ok(kernel
        .by("into-depthwise")
        .showing(move |cpu, x| observed.between(cpu, x)))
}

/// Both convolutions with packed weights.
struct Call {
    shapes: ConvIntoDepthwise,
    expansion: Arc<PackedChannels>,
    depthwise: Arc<PackedDepthwise>,
    bias: [Option<Vector>; 2],
    activations: [Activation; 2],
}

impl Call {
    fn finish(&self) -> [Finish<'_>; 2] {
        [0, 1].map(|i| Finish {
            bias: self.bias[i].as_ref().map(|bias| bias.as_slice()),
            activation: self.activations[i],
        })
    }

    fn run(&self, cpu: &Cpu, x: &[f32], y: &mut [f32]) {
        let packed = (&*self.expansion, &*self.depthwise);
        conv2d_into_depthwise(cpu, &self.shapes, packed, x, self.finish(), y);
    }

    /// What the depthwise convolution multiplies.
    fn between(&self, cpu: &Cpu, x: &[f32]) -> Vec<f32> {
        let [finish, _] = self.finish();
        conv2d_before_depthwise(cpu, &self.shapes, &self.expansion, x, finish)
    }
}
