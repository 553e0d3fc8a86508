//! The ops, one file a family. A family's file holds what it computes, its configuration, its shape
//! rule, its cost and its tests. Letters: N batch, C channels, H W map, T tokens, D width, K kernel.

mod activation;
mod attention;
mod conv;
mod custom;
mod elementwise;
mod layout;
mod linear;
mod norm;
mod pool;
mod reduce;
mod resize;
mod source;
mod sparse;

pub use activation::{Activation, Softmax};
pub use attention::Attention;
pub use conv::{Conv2d, ConvTranspose2d};
pub use custom::CustomOp;
pub use elementwise::{Binary, BinaryKind, Dropout, LayerScale};
pub use layout::{Concat, Expand, Permute, Reshape, Slice};
pub use linear::{Linear, MatMul};
pub use norm::{BatchNorm, LayerNorm};
pub use pool::{AdaptiveAvgPool2d, AvgPool2d, MaxPool2d};
pub use reduce::{Reduce, ReduceKind};
pub use resize::{Resize, ResizeMode, ResizeScale};
pub use source::ParameterValue;
pub use sparse::{ActiveSites, Rulebook, SparseConv3d, SparseToDense, Window3d};

use std::sync::Arc;

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
    ($($family:ident),* $(,)?) => {
        /// What a node computes.
        #[derive(Clone, Debug)]
        #[allow(missing_docs)]
        pub enum Op { $($family($family),)* Custom(Arc<dyn CustomOp>) }

        $(impl From<$family> for Op {
            fn from(op: $family) -> Op { Op::$family(op) }
        })*

        impl Op {
            fn operator(&self) -> &dyn Operator {
                match self {
                    $(Op::$family(op) => op,)*
                    Op::Custom(op) => op.as_operator(),
                }
            }
        }
    };
}

op_enum!(
    Activation,
    ActiveSites,
    AdaptiveAvgPool2d,
    Attention,
    AvgPool2d,
    BatchNorm,
    Binary,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Dropout,
    Expand,
    LayerNorm,
    LayerScale,
    Linear,
    MatMul,
    MaxPool2d,
    ParameterValue,
    Permute,
    Reduce,
    Reshape,
    Resize,
    Rulebook,
    Slice,
    Softmax,
    SparseConv3d,
    SparseToDense,
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
