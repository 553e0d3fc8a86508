//! Running a kernel: into an output of its own, or onto the operand that dies there.

use percept_kernels::attention::packed_attention;
use percept_kernels::conv::{conv_transpose2d, conv2d};
use percept_kernels::elementwise::{self, BinaryOp};
use percept_kernels::gemm::{linear, matmul};
use percept_kernels::sparse::{sparse_conv, to_dense};
use percept_kernels::{Activation, Cpu, Epilogue, layout, norm, pool2d, reduce, resize, softmax};

use super::Kernel;
use crate::defining::as_integers;
use crate::lowering::Step;
use crate::prepare::Vector;

impl Kernel {
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
            Kernel::Conv { .. } | Kernel::Linear { .. } => self.contract(cpu, reads, false, y),
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
                    epilogue(bias, None, false, *activation),
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
                let epilogue = epilogue(bias, residual.first(), false, *activation);
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
            Kernel::Conv { .. } | Kernel::Linear { .. } => self.contract(cpu, reads, true, y),
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

    /// Runs a convolution or a linear layer; the residual is read last, or is in `y`.
    fn contract(&self, cpu: &Cpu, reads: &[&[f32]], in_place: bool, y: &mut [f32]) {
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
                let epilogue = epilogue(bias, residual, in_place, *activation);
                conv2d(cpu, shape, weights, reads[0], scale, epilogue, y);
            }
            Kernel::Linear {
                weights,
                bias,
                activation,
            } => {
                let epilogue = epilogue(bias, reads.get(1), in_place, *activation);
                linear(cpu, weights, reads[0], epilogue, y);
            }
            _ => unreachable!("only these two add a residual where it lies"),
        }
    }
}

/// What a contraction does with its finished sums; a residual in place is in the output and not read.
pub fn epilogue<'a>(
    bias: &'a Option<Vector>,
    residual: Option<&&'a [f32]>,
    in_place: bool,
    activation: Activation,
) -> Epilogue<'a> {
    Epilogue {
        bias: bias.as_deref(),
        residual: residual.copied(),
        residual_in_place: in_place,
        activation,
    }
}

/// Whether broadcasting `small` to `big` leaves the shape of `big`.
fn broadcasts_into(small: &[usize], big: &[usize]) -> bool {
    percept_kernels::strides::broadcast_dims(small, big).as_deref() == Some(big)
}
