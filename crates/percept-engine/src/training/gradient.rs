//! Backward ops on the fast kernels.

use percept_graph::Op;
use percept_kernels::attention::AttentionShape;
use percept_kernels::conv::ConvShape;
use percept_kernels::gradient::{self, BatchNormGradient};
use percept_kernels::norm::ChannelShape;
use percept_kernels::pool2d::Pool2dShape;
use percept_kernels::resize::{Resize, ResizeShape};
use percept_kernels::sparse::{self, DenseShape, Rulebook, SparseConvShape};
use percept_kernels::{Activation, Cpu, reference};

use super::kernel::Sizes;
use crate::defining::as_integers;
use crate::options::Mode;
use crate::shapes;

/// A backward kernel.
pub enum Gradient {
    Activation(Activation),
    Softmax {
        width: usize,
    },
    Attention(AttentionShape),
    ConvInput {
        shape: ConvShape,
        mode: Mode,
    },
    ConvWeight {
        shape: ConvShape,
        mode: Mode,
    },
    BatchNorm {
        shape: ChannelShape,
        eps: f32,
        batch_statistics: bool,
    },
    LayerNorm {
        eps: f32,
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
    Resize(Option<(Resize, ResizeShape)>),
    SparseInput {
        shape: SparseConvShape,
        rows: usize,
    },
    SparseWeight(SparseConvShape),
    DenseToSparse(DenseShape),
    CrossEntropy {
        smoothing: f32,
        classes: usize,
    },
}

impl Gradient {
    /// The kernel of an op; `None` for others.
    pub fn prepare(op: &Op, mode: Mode, sizes: &Sizes<'_>) -> Option<Self> {
        let x = || sizes.inputs[0].as_slice();
        let y = || sizes.outputs[0].as_slice();
        Some(match op {
            Op::ActivationGradient(op) => Self::Activation(shapes::activation(op.activation)),
            Op::SoftmaxGradient(_) => Self::Softmax {
                width: x().last().copied().unwrap_or(1),
            },
            Op::AttentionGradient(op) => Self::Attention(shapes::attention(&op.attention, x())),
            Op::Conv2dInputGradient(op) => Self::ConvInput {
                shape: shapes::conv(&op.conv, y()),
                mode,
            },
            Op::Conv2dWeightGradient(op) => Self::ConvWeight {
                shape: shapes::conv(&op.conv, x()),
                mode,
            },
            Op::BatchNormGradient(op) => Self::BatchNorm {
                shape: shapes::channels(x()),
                eps: op.norm.eps,
                batch_statistics: op.batch_statistics,
            },
            Op::LayerNormGradient(op) => Self::LayerNorm { eps: op.norm.eps },
            Op::MaxPool2dGradient(op) => Self::MaxPool(shapes::max_pool(&op.pool, x())),
            Op::AvgPool2dGradient(op) => Self::AvgPool {
                shape: shapes::avg_pool(&op.pool, y()),
                count_include_pad: op.pool.count_include_pad,
            },
            Op::AdaptiveAvgPool2dGradient(_) => Self::AdaptiveAvgPool {
                planes: x()[0] * x()[1],
                input: [y()[2], y()[3]],
                output: [x()[2], x()[3]],
            },
            Op::ResizeGradient(op) => Self::Resize(shapes::resize(&op.resize, y(), x())),
            Op::SparseConv3dInputGradient(op) => Self::SparseInput {
                shape: shapes::sparse_conv(&op.conv),
                rows: y()[0],
            },
            Op::SparseConv3dWeightGradient(op) => Self::SparseWeight(shapes::sparse_conv(&op.conv)),
            Op::DenseToSparse(op) => Self::DenseToSparse(DenseShape {
                samples: x()[0],
                channels: y()[1],
                cells: op.cells,
            }),
            Op::CrossEntropyGradient(op) => Self::CrossEntropy {
                smoothing: op.loss.smoothing,
                classes: x()[1],
            },
            _ => return None,
        })
    }

    /// Which operand the first output may overwrite: dy, where dx has its shape.
    pub fn in_place_operand(&self) -> Option<usize> {
        matches!(self, Self::Activation(_) | Self::BatchNorm { .. }).then_some(1)
    }

    /// Runs.
    pub fn run(&self, cpu: &Cpu, reads: &[&[f32]], writes: &mut [&mut [f32]]) {
        match self {
            Self::Activation(activation) => {
                gradient::activation_gradient_in_place(cpu, *activation, reads[0], writes[0]);
            }
            Self::Softmax { width } => {
                gradient::softmax_gradient(cpu, *width, reads[0], reads[1], writes[0]);
            }
            Self::Attention(shape) => {
                gradient::packed_attention_gradient(cpu, shape, reads[0], reads[2], writes[0]);
            }
            Self::ConvInput { shape, mode } => {
                let residual = reads.get(2).copied();
                let (dy, weight) = (reads[0], reads[1]);
                gradient::conv2d_input_gradient(cpu, shape, *mode, dy, weight, residual, writes[0]);
            }
            Self::ConvWeight { shape, mode } => {
                gradient::conv2d_weight_gradient(cpu, shape, *mode, reads[0], reads[1], writes[0]);
            }
            Self::BatchNorm {
                shape,
                eps,
                batch_statistics,
            } => {
                let ([x, gamma, mean, variance], [dx, dgamma, dbeta]) = (reads, writes) else {
                    unreachable!("the graph checked the inputs")
                };
                let norm = BatchNormGradient {
                    eps: *eps,
                    batch_statistics: *batch_statistics,
                    gamma,
                    mean,
                    variance,
                    dgamma,
                    dbeta,
                };
                gradient::batch_norm_gradient(cpu, shape, norm, x, dx);
            }
            Self::LayerNorm { eps } => {
                let ([x, dy, gamma], [dx, dgamma, dbeta]) = (reads, writes) else {
                    unreachable!("the graph checked the inputs")
                };
                gradient::layer_norm_gradient(cpu, *eps, x, dy, gamma, dx, dgamma, dbeta);
            }
            Self::MaxPool(shape) => {
                gradient::max_pool2d_gradient(cpu, shape, reads[0], reads[1], writes[0]);
            }
            Self::AvgPool {
                shape,
                count_include_pad,
            } => {
                gradient::avg_pool2d_gradient(cpu, shape, *count_include_pad, reads[0], writes[0]);
            }
            Self::AdaptiveAvgPool {
                planes,
                input,
                output,
            } => {
                let (dy, dx) = (reads[0], &mut *writes[0]);
                gradient::adaptive_avg_pool2d_gradient(cpu, *planes, *input, *output, dy, dx);
            }
            Self::Resize(Some((how, shape))) => {
                gradient::resize_gradient(cpu, how, shape, reads[0], writes[0]);
            }
            Self::Resize(None) => writes[0].copy_from_slice(reads[0]),
            Self::SparseInput { shape, rows } => {
                let [dy, pairs, starts, weight] = reads else {
                    unreachable!("the graph checked the inputs")
                };
                let book = rulebook(pairs, starts);
                let turned =
                    sparse::transposed_rulebook(&book, shape.taps, *rows, shape.block_rows);
                sparse::input_gradient(cpu, shape, weight, dy, &turned, writes[0]);
            }
            Self::SparseWeight(shape) => {
                let book = rulebook(reads[2], reads[3]);
                sparse::weight_gradient(cpu, shape, reads[0], reads[1], &book, writes[0]);
            }
            Self::DenseToSparse(shape) => {
                gradient::dense_to_sparse(cpu, shape, as_integers(reads[1]), reads[0], writes[0]);
            }
            Self::CrossEntropy { smoothing, classes } => {
                // The forward pass has checked the labels.
                let labels: Vec<usize> =
                    as_integers(reads[1]).iter().map(|&l| l as usize).collect();
                let logits: Vec<f64> = reads[0].iter().map(|&v| f64::from(v)).collect();
                let mut dlogits = vec![0.0; logits.len()];
                reference::cross_entropy_gradient(
                    f64::from(*smoothing),
                    *classes,
                    &logits,
                    &labels,
                    f64::from(reads[2][0]),
                    &mut dlogits,
                );
                for (to, from) in writes[0].iter_mut().zip(dlogits) {
                    *to = from as f32;
                }
            }
        }
    }
}

fn rulebook(pairs: &[f32], starts: &[f32]) -> Rulebook {
    Rulebook {
        pairs: as_integers(pairs).to_vec(),
        starts: as_integers(starts).to_vec(),
    }
}
