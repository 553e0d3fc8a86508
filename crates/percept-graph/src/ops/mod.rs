//! The ops, one file a family. A family's file holds what it computes, its configuration, its shape
//! rule, its cost, its gradient and its tests; gradients with a kernel of their own have a file beside it. Letters: N batch, C channels, H W map, T tokens, D width, K kernel.

mod activation;
mod activation_gradient;
mod attention;
mod cast;
mod conv;
mod conv_gradient;
mod custom;
mod elementwise;
mod fake_quantize;
mod gather;
mod layout;
mod linear;
mod loss;
mod norm;
mod norm_gradient;
mod normalize;
mod optimiser;
mod points;
mod pool;
mod pool_gradient;
mod random;
mod reduce;
mod resize;
mod source;
mod sparse;
mod sparse_gradient;

pub use activation::{Activation, Softmax};
pub use activation_gradient::{ActivationGradient, SoftmaxGradient};
pub use attention::{Attention, AttentionGradient};
pub use cast::{Cast, RectifiedCast};
pub use conv::{Conv2d, ConvTranspose2d};
pub use conv_gradient::{Conv2dInputGradient, Conv2dWeightGradient};
pub use custom::{CacheCounters, CustomOp, OpContext};
pub use elementwise::{Affine, Binary, BinaryKind, Dropout, LayerScale};
pub use fake_quantize::FakeQuantize;
pub use gather::{Gather, ScatterAdd};
pub use layout::{Concat, Expand, Pad, Permute, Reshape, Slice};
pub use linear::{Linear, LinearWeight, MatMul};
pub use loss::{CrossEntropy, CrossEntropyGradient};
pub use norm::{BatchNorm, LayerNorm};
pub use norm_gradient::{BatchNormAgain, BatchNormGradient, BatchNormTraining, LayerNormGradient};
pub use normalize::{Normalize, NormalizeGradient};
pub use optimiser::{AdamW, ClipFactor, Sgd};
pub use points::Knn;
pub use pool::{AdaptiveAvgPool2d, AvgPool2d, MaxPool2d};
pub use pool_gradient::{AdaptiveAvgPool2dGradient, AvgPool2dGradient, MaxPool2dGradient};
pub use random::RandomDropout;
pub use reduce::{Reduce, ReduceKind};
pub use resize::{Resize, ResizeGradient, ResizeMode, ResizeScale};
pub use source::{Constant, ParameterValue};
pub use sparse::{ActiveSites, Rulebook, SparseConv3d, SparseToDense, Window3d};
pub use sparse_gradient::{DenseToSparse, SparseConv3dInputGradient, SparseConv3dWeightGradient};

use std::sync::Arc;

use crate::training::{Backward, Differentiable};
use crate::{Cost, Dim, ParamSpec, TensorType};

/// The duties of every op. There are no defaults for the first four: an op without a shape rule or a
/// cost does not compile.
pub trait Operator {
    /// The family's name, as tables show it.
    fn kind(&self) -> &'static str;

    /// The types of the outputs, or what the op expected instead of these inputs.
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String>;

    /// What it costs.
    fn cost(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Cost;

    /// How PyTorch would print the module.
    fn describe(&self) -> String;

    /// Parameters and buffers, in state-dict order.
    fn params(&self) -> Vec<ParamSpec> {
        Vec::new()
    }
}

macro_rules! op_enum {
    ($d:tt inference: $($family:ident),*; training: $($trained:ident),* $(,)?) => {
        /// What a node computes.
        #[derive(Clone, Debug)]
        #[allow(missing_docs)]
        pub enum Op { $($family($family),)* $($trained($trained),)* Custom(Arc<dyn CustomOp>) }

        $(impl From<$family> for Op {
            fn from(op: $family) -> Op { Op::$family(op) }
        })*
        $(impl From<$trained> for Op {
            fn from(op: $trained) -> Op { Op::$trained(op) }
        })*

        impl Op {
            fn operator(&self) -> &dyn Operator {
                match self {
                    $(Op::$family(op) => op,)*
                    $(Op::$trained(op) => op,)*
                    Op::Custom(op) => &**op,
                }
            }

            fn differentiable(&self) -> &dyn Differentiable {
                match self {
                    $(Op::$family(op) => op,)*
                    $(Op::$trained(op) => op,)*
                    Op::Custom(op) => op,
                }
            }
        }

        /// Evaluates an expression on the op inside an [`Op`], whichever it is: `with_op!(&node.op, op => op.duty())`. So
        /// another crate gives each op a duty by a trait, and the compiler asks for it when an op is added here. With a second
        /// arm, ops that only training graphs have need no such duty:
        /// `with_op!(&node.op, op => op.duty(), training => otherwise)`.
        #[macro_export]
        macro_rules! with_op {
            ($d op:expr, $d it:ident => $d body:expr) => {
                match $d op {
                    $($crate::Op::$family($d it) => $d body,)*
                    $($crate::Op::$trained($d it) => $d body,)*
                    $crate::Op::Custom($d it) => $d body,
                }
            };
            ($d op:expr, $d it:ident => $d body:expr, training => $d otherwise:expr) => {
                match $d op {
                    $($crate::Op::$family($d it) => $d body,)*
                    $crate::Op::Custom($d it) => $d body,
                    $($crate::Op::$trained(_) => $d otherwise,)*
                }
            };
        }
    };
}

op_enum!($
    inference:
    Activation,
    ActiveSites,
    AdaptiveAvgPool2d,
    Affine,
    Attention,
    AvgPool2d,
    BatchNorm,
    Binary,
    Concat,
    Constant,
    Conv2d,
    ConvTranspose2d,
    Dropout,
    Expand,
    FakeQuantize,
    Gather,
    Knn,
    LayerNorm,
    LayerScale,
    Linear,
    MatMul,
    MaxPool2d,
    Normalize,
    Pad,
    ParameterValue,
    Permute,
    Reduce,
    Reshape,
    Resize,
    Rulebook,
    ScatterAdd,
    Slice,
    Softmax,
    SparseConv3d,
    SparseToDense;
    training:
    ActivationGradient,
    AdamW,
    AdaptiveAvgPool2dGradient,
    AttentionGradient,
    AvgPool2dGradient,
    BatchNormAgain,
    BatchNormGradient,
    BatchNormTraining,
    Cast,
    ClipFactor,
    Conv2dInputGradient,
    Conv2dWeightGradient,
    CrossEntropy,
    CrossEntropyGradient,
    DenseToSparse,
    LayerNormGradient,
    MaxPool2dGradient,
    NormalizeGradient,
    RandomDropout,
    RectifiedCast,
    ResizeGradient,
    Sgd,
    SoftmaxGradient,
    SparseConv3dInputGradient,
    SparseConv3dWeightGradient,
);

impl Operator for Op {
    fn kind(&self) -> &'static str {
        self.operator().kind()
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.operator().infer(inputs)
    }
    fn cost(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        self.operator().cost(inputs, outputs)
    }
    fn describe(&self) -> String {
        self.operator().describe()
    }
    fn params(&self) -> Vec<ParamSpec> {
        self.operator().params()
    }
}

impl Differentiable for Op {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        self.differentiable().vector_jacobian(back)
    }
}

/// Ops that choose: what they give is piecewise constant, so no gradient flows through them.
macro_rules! selections {
    ($($op:ty),* $(,)?) => {$(
        impl $crate::training::Differentiable for $op {
            fn vector_jacobian(&self, _: &mut $crate::training::Backward<'_>) -> Result<(), String> {
                Ok(())
            }
        }
    )*};
}
use selections;

/// Ops that stand behind the loss: gradients and updates, which nothing here differentiates again.
macro_rules! behind_the_loss {
    ($($op:ty),* $(,)?) => {$(
        impl $crate::training::Differentiable for $op {
            fn vector_jacobian(&self, _: &mut $crate::training::Backward<'_>) -> Result<(), String> {
                Err("it belongs to the backward pass, which is differentiated once".to_owned())
            }
        }
    )*};
}
use behind_the_loss;

/// The single input of a unary op.
fn one<'a>(inputs: &[&'a TensorType]) -> Result<&'a TensorType, String> {
    match inputs {
        [input] => Ok(input),
        _ => Err(format!("one input, not {}", inputs.len())),
    }
}

/// The single input of an op that takes a map [N, C, H, W] with this many channels (any, when `None`).
fn one_map<'a>(
    inputs: &[&'a TensorType],
    channels: Option<usize>,
) -> Result<&'a TensorType, String> {
    let input = one(inputs)?;
    let fits = input.shape.len() == 4
        && channels.is_none_or(|channels| input.shape[1] == Dim::from(channels));
    match (fits, channels) {
        (true, _) => Ok(input),
        (false, Some(channels)) => Err(format!("a map [N, {channels}, H, W]")),
        (false, None) => Err("a map [N, C, H, W]".to_owned()),
    }
}

/// Writes a pair as PyTorch does: `(3, 3)`.
fn pair(values: [usize; 2]) -> String {
    format!("({}, {})", values[0], values[1])
}

/// The size of a sliding window's output: floor((size + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.
fn window_output(size: &Dim, kernel: usize, stride: usize, padding: usize, dilation: usize) -> Dim {
    let span = dilation * (kernel - 1) + 1;
    (size.clone() + 2 * padding - span).floor_div(stride as i64) + 1
}
