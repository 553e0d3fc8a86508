//! One kernel call with everything decided: shapes, algorithm, packed weights.

mod run;

use std::ops::Range;
use std::sync::Arc;

use percept_graph::{Graph, Op};
use percept_kernels::attention::AttentionShape;
use percept_kernels::conv::{
    ConvAlgorithm, ConvShape, ConvTransposeShape, PackedConv, PackedConvTranspose, choose_algorithm,
};
use percept_kernels::elementwise::BinaryOp;
use percept_kernels::gemm::{MatmulShape, PackedLinear};
use percept_kernels::norm::ChannelShape;
use percept_kernels::pool2d::Pool2dShape;
use percept_kernels::reduce::ReduceOp;
use percept_kernels::resize::{Resize, ResizeShape};
use percept_kernels::sparse::{DenseShape, PackedSparseConv};
use percept_kernels::{Activation, Cpu};

use crate::defining::Defining;
use crate::lowering::Step;
use crate::options::Mode;
use crate::prepare::{Vector, Weights};
use crate::training::{Sizes, TrainingKernel};
use crate::{EngineError, shapes};

pub use run::epilogue;

/// A kernel and its arguments, except for the tensors that flow through.
pub enum Kernel {
    Conv {
        shape: ConvShape,
        weights: Arc<PackedConv>,
        bias: Option<Vector>,
        activation: Activation,
        scaled: bool,
    },
    ConvTranspose {
        shape: ConvTransposeShape,
        weights: Arc<PackedConvTranspose>,
        bias: Option<Vector>,
        activation: Activation,
    },
    Linear {
        weights: Arc<PackedLinear>,
        bias: Option<Vector>,
        activation: Activation,
    },
    MatMul(MatmulShape),
    Attention(AttentionShape),
    BatchNorm {
        shape: ChannelShape,
        scale: Vector,
        shift: Vector,
    },
    LayerNorm {
        weight: Vector,
        bias: Vector,
        eps: f32,
    },
    Activation(Activation),
    Softmax {
        width: usize,
    },
    MaxPool(Pool2dShape),
    AvgPool {
        shape: Pool2dShape,
        count_include_pad: bool,
    },
    AdaptiveAvgPool {
        planes: usize,
        input: [usize; 2],
        output: [usize; 2],
    },
    Binary {
        op: BinaryOp,
        a: Vec<usize>,
        b: Vec<usize>,
    },
    Scale {
        dims: Vec<usize>,
        factors: Vector,
    },
    Reduce {
        op: ReduceOp,
        dims: Vec<usize>,
        axes: Vec<usize>,
    },
    Resize {
        how: Resize,
        shape: ResizeShape,
    },
    Copy,
    Permute {
        dims: Vec<usize>,
        order: Vec<usize>,
    },
    Expand {
        from: Vec<usize>,
        to: Vec<usize>,
    },
    Slice {
        dims: Vec<usize>,
        ranges: Vec<Range<usize>>,
    },
    Concat {
        outer: usize,
    },
    Parameter(Vector),
    SparseConv {
        weights: Arc<PackedSparseConv>,
        bias: Option<Vector>,
        activation: Activation,
    },
    ToDense(DenseShape),
    Defining(Defining),
    /// Part of training: may have several outputs.
    Training(TrainingKernel),
    /// A concatenation whose inputs were written where they belong.
    Joined,
}

impl Kernel {
    /// Decides the kernel of a step for these input and output sizes, packing weights when they are not packed yet.
    pub fn prepare(
        cpu: &Cpu,
        graph: &Graph,
        step: &Step,
        mode: Mode,
        weights: &mut Weights,
        sizes: &Sizes<'_>,
    ) -> Result<Kernel, EngineError> {
        let node = graph.node(step.node);
        let training = || {
            let activation = step.fused.activation;
            let kernel = TrainingKernel::prepare(cpu, node, activation, mode, sizes)?;
            Ok::<_, EngineError>(Kernel::Training(kernel))
        };
        if node.param_values().is_some() {
            return training();
        }
        let inputs = sizes.inputs;
        let output = sizes.outputs.first().map_or(&[][..], Vec::as_slice);
        let activation = step
            .fused
            .activation
            .map_or(Activation::Identity, shapes::activation);
        let x = || inputs[0].as_slice();
        Ok(match &node.op {
            Op::Conv2d(conv) => {
                let shape = shapes::conv(conv, x());
                let scaled = step.fused.input_scale.is_some();
                // Only the pointwise kernel scales its input, and the pass that fused the scale saw a pointwise convolution.
                let algorithm = if scaled {
                    ConvAlgorithm::Pointwise
                } else {
                    choose_algorithm(&shape, mode, cpu.isa())
                };
                let (weights, bias) = weights.conv(cpu, graph, step, conv, &shape, algorithm)?;
                Kernel::Conv {
                    shape,
                    weights,
                    bias,
                    activation,
                    scaled,
                }
            }
            Op::ConvTranspose2d(op) => {
                let shape = shapes::conv_transpose(op, x());
                if let Some(shape) = shape.as_pointwise() {
                    let (weights, bias) =
                        weights.pointwise_transposed(cpu, graph, step, op, &shape)?;
                    Kernel::Conv {
                        shape,
                        weights,
                        bias,
                        activation,
                        scaled: false,
                    }
                } else {
                    let (weights, bias) = weights.conv_transpose(graph, step, op, &shape)?;
                    Kernel::ConvTranspose {
                        shape,
                        weights,
                        bias,
                        activation,
                    }
                }
            }
            Op::Linear(op) => {
                let (weights, bias) = weights.linear(cpu, graph, step, op)?;
                Kernel::Linear {
                    weights,
                    bias,
                    activation,
                }
            }
            Op::MatMul(op) => Kernel::MatMul(shapes::matmul(op, x(), &inputs[1])),
            Op::Attention(op) => Kernel::Attention(shapes::attention(op, x())),
            Op::BatchNorm(op) => {
                let [scale, shift] = weights.batch_norm(graph, node, op)?;
                Kernel::BatchNorm {
                    shape: shapes::channels(x()),
                    scale,
                    shift,
                }
            }
            Op::LayerNorm(op) => {
                let (weight, bias) = (
                    weights.vector(graph, node, 0)?,
                    weights.vector(graph, node, 1)?,
                );
                Kernel::LayerNorm {
                    weight,
                    bias,
                    eps: op.eps,
                }
            }
            Op::Activation(op) => Kernel::Activation(shapes::activation(*op)),
            Op::Softmax(_) => Kernel::Softmax {
                width: x().last().copied().unwrap_or(1),
            },
            Op::MaxPool2d(op) => Kernel::MaxPool(shapes::max_pool(op, x())),
            Op::AvgPool2d(op) => Kernel::AvgPool {
                shape: shapes::avg_pool(op, x()),
                count_include_pad: op.count_include_pad,
            },
            Op::AdaptiveAvgPool2d(op) => {
                let x = x();
                Kernel::AdaptiveAvgPool {
                    planes: x[0] * x[1],
                    input: [x[2], x[3]],
                    output: op.output,
                }
            }
            Op::Binary(op) => Kernel::Binary {
                op: shapes::binary(op.kind),
                a: x().to_vec(),
                b: inputs[1].clone(),
            },
            Op::LayerScale(_) => Kernel::Scale {
                dims: x().to_vec(),
                factors: weights.vector(graph, node, 0)?,
            },
            Op::Reduce(op) => Kernel::Reduce {
                op: shapes::reduce(op.kind),
                dims: x().to_vec(),
                axes: op.axes.clone(),
            },
            Op::Resize(op) => match shapes::resize(op, x(), output) {
                Some((how, shape)) => Kernel::Resize { how, shape },
                None => Kernel::Copy,
            },
            Op::Reshape(_) | Op::Dropout(_) => Kernel::Copy,
            Op::Permute(op) => Kernel::Permute {
                dims: x().to_vec(),
                order: op.order.clone(),
            },
            Op::Expand(_) => Kernel::Expand {
                from: x().to_vec(),
                to: output.to_vec(),
            },
            Op::Slice(op) => {
                let mut ranges: Vec<Range<usize>> = x().iter().map(|&side| 0..side).collect();
                ranges[op.axis] = op.start..op.start + output[op.axis];
                Kernel::Slice {
                    dims: x().to_vec(),
                    ranges,
                }
            }
            Op::Concat(op) => Kernel::Concat {
                outer: x()[..op.axis].iter().product(),
            },
            Op::ParameterValue(_) => Kernel::Parameter(weights.vector(graph, node, 0)?),
            Op::SparseConv3d(op) => {
                let (weights, bias) = weights.sparse_conv(graph, step, op)?;
                Kernel::SparseConv {
                    weights,
                    bias,
                    activation,
                }
            }
            Op::SparseToDense(op) => Kernel::ToDense(shapes::dense(op, x(), &inputs[2])),
            Op::ActiveSites(_) | Op::Rulebook(_) | Op::Custom(_) => {
                let kernel = Defining::of(graph, node, inputs);
                Kernel::Defining(kernel.expect("these define sizes"))
            }
            Op::ActivationGradient(_)
            | Op::AdamW(_)
            | Op::AdaptiveAvgPool2dGradient(_)
            | Op::Affine(_)
            | Op::AttentionGradient(_)
            | Op::AvgPool2dGradient(_)
            | Op::BatchNormGradient(_)
            | Op::BatchNormTraining(_)
            | Op::ClipFactor(_)
            | Op::Constant(_)
            | Op::Conv2dInputGradient(_)
            | Op::Conv2dWeightGradient(_)
            | Op::CrossEntropy(_)
            | Op::CrossEntropyGradient(_)
            | Op::DenseToSparse(_)
            | Op::Gather(_)
            | Op::LayerNormGradient(_)
            | Op::MaxPool2dGradient(_)
            | Op::Pad(_)
            | Op::RandomDropout(_)
            | Op::ResizeGradient(_)
            | Op::ScatterAdd(_)
            | Op::Sgd(_)
            | Op::SoftmaxGradient(_)
            | Op::SparseConv3dInputGradient(_)
            | Op::SparseConv3dWeightGradient(_) => training()?,
        })
    }

    /// How the work is done, for reports: a convolution's algorithm, or nothing to say.
    pub fn algorithm(&self) -> Option<ConvAlgorithm> {
        match self {
            Kernel::Conv { weights, .. } => Some(weights.algorithm()),
            _ => None,
        }
    }
}
