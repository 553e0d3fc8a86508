//! Forward ops of a training graph: layers whose parameters are tensors that change from run to run, and what only training has.

use percept_graph::{Activation, Linear, Op};
use percept_kernels::conv::{
    ConvAlgorithm, ConvShape, ConvTransposeShape, PackedConv, PackedConvTranspose,
    choose_algorithm, conv_transpose2d, conv2d,
};
use percept_kernels::gemm::{PackedLinear, linear};
use percept_kernels::gradient::{BatchNormTraining, batch_norm_training};
use percept_kernels::norm::{self, ChannelShape, fold_batch_norm};
use percept_kernels::random::{Stream, dropout_in_place};
use percept_kernels::sparse::{PackedSparseConv, SparseConvShape, sparse_conv};
use percept_kernels::{Cpu, Epilogue, elementwise, layout, reference};

use super::kernel::Sizes;
use crate::EngineError;
use crate::defining::as_integers;
use crate::options::Mode;
use crate::shapes;

/// A forward kernel. Contractions pack their weights in every run: the weights are new in every run.
pub enum Forward {
    Conv {
        shape: ConvShape,
        algorithm: ConvAlgorithm,
    },
    ConvTranspose(ConvTransposeShape),
    Linear(Linear),
    LayerNorm {
        eps: f32,
    },
    /// With running statistics.
    FrozenBatchNorm {
        shape: ChannelShape,
        eps: f32,
    },
    BatchNorm {
        shape: ChannelShape,
        eps: f32,
        momentum: f32,
        rectified: bool,
    },
    Scale {
        dims: Vec<usize>,
    },
    SparseConv(SparseConvShape),
    Dropout {
        p: f32,
        stream: u64,
    },
    CrossEntropy {
        smoothing: f32,
        classes: usize,
    },
    Gather {
        width: usize,
    },
    ScatterAdd {
        width: usize,
    },
    Affine {
        scale: f32,
        shift: f32,
    },
    Constant(f32),
    Pad {
        dims: Vec<usize>,
        before: Vec<usize>,
        after: Vec<usize>,
    },
}

impl Forward {
    /// The kernel of an op; `None` for others.
    pub fn prepare(
        cpu: &Cpu,
        op: &Op,
        activation: Option<Activation>,
        mode: Mode,
        sizes: &Sizes<'_>,
    ) -> Result<Option<Self>, EngineError> {
        let x = || sizes.inputs[0].as_slice();
        let row_width = |shape: &[usize]| shape[1..].iter().product();
        Ok(Some(match op {
            Op::Conv2d(op) => {
                let shape = shapes::conv(op, x());
                let algorithm = choose_algorithm(&shape, mode, cpu.isa());
                Self::Conv { shape, algorithm }
            }
            Op::ConvTranspose2d(op) => Self::ConvTranspose(shapes::conv_transpose(op, x())),
            Op::Linear(op) => Self::Linear(op.clone()),
            Op::LayerNorm(op) => Self::LayerNorm { eps: op.eps },
            Op::BatchNorm(op) => Self::FrozenBatchNorm {
                shape: shapes::channels(x()),
                eps: op.eps,
            },
            Op::BatchNormTraining(op) => Self::BatchNorm {
                shape: shapes::channels(x()),
                eps: op.norm.eps,
                momentum: op.norm.momentum,
                rectified: activation == Some(Activation::Relu),
            },
            Op::LayerScale(_) => Self::Scale { dims: x().to_vec() },
            Op::SparseConv3d(op) => Self::SparseConv(shapes::sparse_conv(op)),
            Op::RandomDropout(op) => Self::Dropout {
                p: op.p,
                stream: op.stream,
            },
            Op::CrossEntropy(op) => Self::CrossEntropy {
                smoothing: op.smoothing,
                classes: x()[1],
            },
            Op::Gather(_) => Self::Gather {
                width: row_width(x()),
            },
            Op::ScatterAdd(_) => Self::ScatterAdd {
                width: row_width(x()),
            },
            Op::Affine(op) => Self::Affine {
                scale: (f64::from(op.scale) / op.divisor.eval(sizes.bindings)? as f64) as f32,
                shift: op.shift,
            },
            Op::Constant(op) => Self::Constant(op.value),
            Op::Pad(op) => {
                let rank = x().len();
                let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
                before[op.axis] = op.before;
                after[op.axis] = sizes.outputs[0][op.axis] - op.before - x()[op.axis];
                Self::Pad {
                    dims: x().to_vec(),
                    before,
                    after,
                }
            }
            _ => return Ok(None),
        }))
    }

    /// Which operand the output may overwrite.
    pub fn in_place_operand(&self) -> Option<usize> {
        matches!(
            self,
            Self::Dropout { .. } | Self::Affine { .. } | Self::Scale { .. }
        )
        .then_some(0)
    }

    /// Runs; an error names what was wrong with the data.
    pub fn run(
        &self,
        cpu: &Cpu,
        reads: &[&[f32]],
        writes: &mut [&mut [f32]],
    ) -> Result<(), String> {
        let with_bias = |position: usize| Epilogue {
            bias: reads.get(position).copied(),
            ..Epilogue::default()
        };
        match self {
            Self::Conv { shape, algorithm } => {
                let packed = PackedConv::pack(cpu, shape, *algorithm, reads[1]);
                conv2d(cpu, shape, &packed, reads[0], None, with_bias(2), writes[0]);
                packed.give_back(cpu);
            }
            Self::ConvTranspose(shape) => {
                let packed = PackedConvTranspose::pack(shape, reads[1]);
                conv_transpose2d(cpu, shape, &packed, reads[0], with_bias(2), writes[0]);
            }
            Self::Linear(op) => {
                let weight = op.as_matrix(reads[1]);
                let packed = PackedLinear::pack(cpu, &weight, op.out_features, op.in_features);
                linear(cpu, &packed, reads[0], with_bias(2), writes[0]);
            }
            Self::LayerNorm { eps } => {
                norm::layer_norm(cpu, reads[0], reads[1], reads[2], *eps, writes[0]);
            }
            Self::FrozenBatchNorm { shape, eps } => {
                let [x, gamma, beta, mean, variance] = reads else {
                    unreachable!("the graph checked the inputs")
                };
                let eps = f64::from(*eps);
                let (scale, shift) = fold_batch_norm(gamma, beta, mean, variance, eps);
                let [scale, shift] =
                    [scale, shift].map(|v| v.into_iter().map(|v| v as f32).collect::<Vec<_>>());
                norm::batch_norm(cpu, shape, x, &scale, &shift, writes[0]);
            }
            Self::BatchNorm {
                shape,
                eps,
                momentum,
                rectified,
            } => {
                let ([x, gamma, beta], [y, mean, variance, running_mean, running_variance]) =
                    (reads, writes)
                else {
                    unreachable!("the graph checked the inputs")
                };
                let norm = BatchNormTraining {
                    eps: *eps,
                    momentum: *momentum,
                    rectified: *rectified,
                    gamma,
                    beta,
                    mean,
                    variance,
                    running_mean,
                    running_variance,
                };
                batch_norm_training(cpu, shape, norm, x, y);
            }
            Self::Scale { dims } => {
                let (factors, op) = (reads[0], elementwise::BinaryOp::Mul);
                let width = [factors.len()];
                elementwise::binary_in_place(cpu, op, writes[0], dims, factors, &width);
            }
            Self::SparseConv(shape) => {
                let packed = PackedSparseConv::pack(shape, reads[4]);
                let (pairs, starts) = (as_integers(reads[2]), as_integers(reads[3]));
                sparse_conv(
                    cpu,
                    &packed,
                    reads[0],
                    pairs,
                    starts,
                    with_bias(5),
                    writes[0],
                );
            }
            Self::Dropout { p, stream } => {
                let &[seed, step] = as_integers(reads[0]) else {
                    unreachable!("the graph checked the counters")
                };
                dropout_in_place(cpu, Stream::new(seed, step, *stream), *p, writes[0]);
            }
            Self::CrossEntropy { smoothing, classes } => {
                let labels = rows_below(reads[1], *classes)?;
                let logits: Vec<f64> = reads[0].iter().map(|&v| f64::from(v)).collect();
                let smoothing = f64::from(*smoothing);
                let loss = reference::cross_entropy(smoothing, *classes, &logits, &labels);
                writes[0][0] = loss as f32;
            }
            Self::Gather { width } => {
                let rows = rows_below(reads[1], reads[0].len() / (*width).max(1))?;
                layout::gather_rows(cpu, *width, reads[0], &rows, writes[0]);
            }
            Self::ScatterAdd { width } => {
                let rows = rows_below(reads[1], writes[0].len() / (*width).max(1))?;
                writes[0].fill(0.0);
                for (row, x) in rows.into_iter().zip(reads[0].chunks_exact((*width).max(1))) {
                    for (y, &x) in writes[0][row * width..].iter_mut().zip(x) {
                        *y += x;
                    }
                }
            }
            Self::Affine { scale, shift } => {
                for value in writes[0].iter_mut() {
                    *value = *value * scale + shift;
                }
            }
            Self::Constant(value) => writes[0].fill(*value),
            Self::Pad {
                dims,
                before,
                after,
            } => layout::pad(cpu, dims, before, after, 0.0, reads[0], writes[0]),
        }
        Ok(())
    }
}

/// Indices from the data, which must be below `limit`.
fn rows_below(memory: &[f32], limit: usize) -> Result<Vec<usize>, String> {
    let in_range = |&index: &i32| {
        let row = usize::try_from(index).ok().filter(|&row| row < limit);
        row.ok_or_else(|| format!("index {index} is outside 0..{limit}"))
    };
    as_integers(memory).iter().map(in_range).collect()
}
