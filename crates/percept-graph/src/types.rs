//! Tensor types and declared parameters.

use std::fmt;

use crate::{Bindings, DType, Dim, GraphError};

/// The type of a dense tensor: element type and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<Dim>,
}

impl TensorType {
    /// A dense f32 tensor.
    pub fn f32(shape: impl IntoIterator<Item = Dim>) -> Self {
        Self::new(DType::F32, shape)
    }

    /// A dense i32 tensor: sites, rows, indices.
    pub fn i32(shape: impl IntoIterator<Item = Dim>) -> Self {
        Self::new(DType::I32, shape)
    }

    /// A dense tensor.
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = Dim>) -> Self {
        Self {
            dtype,
            shape: shape.into_iter().collect(),
        }
    }

    /// The type of its numbers as f32, where they are floats of 16 bits.
    pub(crate) fn widened(&self) -> Self {
        match self.dtype {
            DType::F16 | DType::BF16 => Self::f32(self.shape.clone()),
            _ => self.clone(),
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> Dim {
        self.shape.iter().product()
    }

    /// The shape for these symbol values.
    pub fn eval(&self, bindings: &Bindings) -> Result<Vec<usize>, GraphError> {
        self.shape.iter().map(|dim| dim.eval(bindings)).collect()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.shape.iter().map(Dim::to_string).collect();
        write!(f, "{} [{}]", self.dtype, dims.join(", "))
    }
}

/// How a parameter starts when nothing is loaded and training begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initializer {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// Uniform in ± sqrt(1 / fan_in): PyTorch's default for convolutions and linear layers.
    FanIn(usize),
    /// Normal with this standard deviation.
    Normal(f32),
    /// All this value.
    Constant(f32),
}

/// A parameter or buffer that an op declares, by its name within the op (`weight`, `running_mean`).
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Last component of the public name.
    pub name: &'static str,
    /// Constant sizes, outermost first.
    pub shape: Vec<usize>,
    /// How it starts.
    pub init: Initializer,
    /// False for buffers such as running statistics: they are saved but get no gradient.
    pub trainable: bool,
}

impl ParamSpec {
    /// A trainable parameter.
    pub fn new(name: &'static str, shape: impl Into<Vec<usize>>, init: Initializer) -> Self {
        Self {
            name,
            shape: shape.into(),
            init,
            trainable: true,
        }
    }

    /// A buffer: part of the state dict, not trained.
    pub fn buffer(name: &'static str, shape: impl Into<Vec<usize>>, init: Initializer) -> Self {
        Self {
            trainable: false,
            ..Self::new(name, shape, init)
        }
    }
}
