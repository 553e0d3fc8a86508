//! One kernel call with everything decided: shapes, algorithm, packed weights.

use std::ops::Range;
use std::sync::Arc;

use percept_graph::{Graph, Op};
use percept_kernels::attention::{AttentionShape, packed_attention};
use percept_kernels::conv::{
    ConvAlgorithm, ConvShape, ConvTransposeShape, PackedConv, PackedConvTranspose,
    choose_algorithm, conv_transpose2d, conv2d,
};
use percept_kernels::elementwise::{self, BinaryOp};
use percept_kernels::gemm::{MatmulShape, PackedLinear, linear, matmul};
use percept_kernels::layout;
use percept_kernels::norm::{self, ChannelShape};
use percept_kernels::pool2d::{self, Pool2dShape};
use percept_kernels::reduce::{self, ReduceOp};
use percept_kernels::resize::{self, Resize, ResizeShape};
use percept_kernels::sparse::{DenseShape, PackedSparseConv, sparse_conv, to_dense};
use percept_kernels::{Activation, Cpu, Epilogue, softmax};

use crate::defining::{Defining, as_integers};
use crate::lowering::Step;
use crate::options::Mode;
use crate::prepare::{Vector, Weights};
use crate::training::{Sizes, TrainingKernel};
use crate::{EngineError, shapes};

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

    /// Which operand of `step` the output may overwrite, when that operand dies here.
    pub fn in_place_operand(&self, step: &Step) -> Option<usize> {
        match self {
            Kernel::Conv { weights, .. } if !weights.takes_residual_in_place() => None,
            // The residual is read last.
            Kernel::Conv { .. } | Kernel::Linear { .. } => {
                step.fused.residual.map(|_| step.reads().count() - 1)
            }
            Kernel::Training(kernel) => kernel.in_place_operand(),
            Kernel::Activation(_) | Kernel::Scale { .. } => Some(0),
            Kernel::Binary { a, b, .. } if broadcasts_into(b, a) => Some(0),
            Kernel::Binary {
                op: BinaryOp::Add | BinaryOp::Mul,
                a,
                b,
            } if broadcasts_into(a, b) => Some(1),
            _ => None,
        }
    }

    /// Runs on tensors: `reads` in the order of [`Step::reads`], one output.
    pub fn run(&self, cpu: &Cpu, reads: &[&[f32]], y: &mut [f32]) {
        match self {
            Kernel::Conv {
                shape,
                weights,
                bias,
                activation,
                scaled,
            } => {
                let scale = scaled.then(|| reads[1]);
                let residual = reads.get(1 + usize::from(*scaled));
                let epilogue = epilogue(bias, residual, *activation);
                conv2d(cpu, shape, weights, reads[0], scale, epilogue, y);
            }
            Kernel::ConvTranspose {
                shape,
                weights,
                bias,
                activation,
            } => {
                conv_transpose2d(
                    cpu,
                    shape,
                    weights,
                    reads[0],
                    epilogue(bias, None, *activation),
                    y,
                );
            }
            Kernel::Linear {
                weights,
                bias,
                activation,
            } => {
                linear(
                    cpu,
                    weights,
                    reads[0],
                    epilogue(bias, reads.get(1), *activation),
                    y,
                );
            }
            Kernel::MatMul(shape) => matmul(cpu, shape, reads[0], reads[1], y),
            Kernel::Attention(shape) => packed_attention(cpu, shape, reads[0], y),
            Kernel::BatchNorm {
                shape,
                scale,
                shift,
            } => norm::batch_norm(cpu, shape, reads[0], scale, shift, y),
            Kernel::LayerNorm { weight, bias, eps } => {
                norm::layer_norm(cpu, reads[0], weight, bias, *eps, y)
            }
            Kernel::Activation(activation) => elementwise::unary(cpu, *activation, reads[0], y),
            Kernel::Softmax { width } => softmax::softmax(cpu, *width, reads[0], y),
            Kernel::MaxPool(shape) => pool2d::max_pool2d(cpu, shape, reads[0], y),
            Kernel::AvgPool {
                shape,
                count_include_pad,
            } => {
                pool2d::avg_pool2d(cpu, shape, *count_include_pad, reads[0], y);
            }
            Kernel::AdaptiveAvgPool {
                planes,
                input,
                output,
            } => {
                pool2d::adaptive_avg_pool2d(cpu, *planes, *input, *output, reads[0], y);
            }
            Kernel::Binary { op, a, b } => {
                elementwise::binary(cpu, *op, reads[0], a, reads[1], b, y)
            }
            Kernel::Scale { dims, factors } => {
                elementwise::binary(
                    cpu,
                    BinaryOp::Mul,
                    reads[0],
                    dims,
                    factors,
                    &[factors.len()],
                    y,
                );
            }
            Kernel::Reduce { op, dims, axes } => reduce::reduce(cpu, *op, dims, axes, reads[0], y),
            Kernel::Resize { how, shape } => resize::resize(cpu, how, shape, reads[0], y),
            Kernel::Copy => y.copy_from_slice(reads[0]),
            Kernel::Permute { dims, order } => layout::permute(cpu, dims, order, reads[0], y),
            Kernel::Expand { from, to } => layout::expand(cpu, from, to, reads[0], y),
            Kernel::Slice { dims, ranges } => layout::slice(cpu, dims, ranges, reads[0], y),
            Kernel::Concat { outer } => layout::concat(cpu, *outer, reads, y),
            Kernel::Parameter(values) => y.copy_from_slice(values),
            Kernel::SparseConv {
                weights,
                bias,
                activation,
            } => {
                let [x, _, pairs, starts, residual @ ..] = reads else {
                    unreachable!("the graph checked the inputs")
                };
                let epilogue = epilogue(bias, residual.first(), *activation);
                let (pairs, starts) = (as_integers(pairs), as_integers(starts));
                sparse_conv(cpu, weights, x, pairs, starts, epilogue, y);
            }
            Kernel::ToDense(shape) => to_dense(cpu, shape, as_integers(reads[1]), reads[0], y),
            Kernel::Joined => {}
            Kernel::Defining(_) | Kernel::Training(_) => {
                unreachable!("the program runs these: they may fail or have several outputs")
            }
        }
    }

    /// Runs with the in-place operand already in `y`; `reads` has the others.
    pub fn run_in_place(&self, cpu: &Cpu, reads: &[&[f32]], y: &mut [f32]) {
        match self {
            Kernel::Conv {
                shape,
                weights,
                bias,
                activation,
                scaled,
            } => {
                let scale = scaled.then(|| reads[1]);
                let epilogue = epilogue_in_place(bias, *activation);
                conv2d(cpu, shape, weights, reads[0], scale, epilogue, y);
            }
            Kernel::Linear {
                weights,
                bias,
                activation,
            } => {
                let epilogue = epilogue_in_place(bias, *activation);
                linear(cpu, weights, reads[0], epilogue, y);
            }
            Kernel::Activation(activation) => elementwise::unary_in_place(cpu, *activation, y),
            Kernel::Scale { dims, factors } => {
                elementwise::binary_in_place(
                    cpu,
                    BinaryOp::Mul,
                    y,
                    dims,
                    factors,
                    &[factors.len()],
                );
            }
            // The operand in `y` is the one with the output's shape; for the commutative ops it may be the second.
            Kernel::Binary { op, a, b } if broadcasts_into(b, a) => {
                elementwise::binary_in_place(cpu, *op, y, a, reads[0], b);
            }
            Kernel::Binary { op, a, b } => {
                elementwise::binary_in_place(cpu, *op, y, b, reads[0], a)
            }
            _ => unreachable!("only kernels with an in-place operand are planned in place"),
        }
    }
}

/// What a contraction does with its finished sums.
pub fn epilogue<'a>(
    bias: &'a Option<Vector>,
    residual: Option<&&'a [f32]>,
    activation: Activation,
) -> Epilogue<'a> {
    Epilogue {
        bias: bias.as_deref(),
        residual: residual.copied(),
        residual_in_place: false,
        activation,
    }
}

/// The same, with the residual already in the output.
pub fn epilogue_in_place(bias: &Option<Vector>, activation: Activation) -> Epilogue<'_> {
    Epilogue {
        residual_in_place: true,
        ..epilogue(bias, None, activation)
    }
}

/// Whether broadcasting `small` to `big` leaves the shape of `big`.
fn broadcasts_into(small: &[usize], big: &[usize]) -> bool {
    percept_kernels::strides::broadcast_dims(small, big).as_deref() == Some(big)
}
