//! Gradients of activations and of softmax, from what the forward pass left.

use super::{Activation, Operator, behind_the_loss};
use crate::{Cost, TensorType};

/// dx = dy · f'(x). Inputs: x, or y where it tells f' as well, which may be kept in 16 bits, and dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActivationGradient {
    /// Of what.
    pub activation: Activation,
}

impl ActivationGradient {
    /// Whether the slope follows from y = f(x), so that x need not be kept.
    pub fn reads_output(&self) -> bool {
        match self.activation {
            Activation::Relu | Activation::Sigmoid | Activation::Tanh => true,
            // The sign of y is the sign of x, unless the slope turns it.
            Activation::LeakyRelu { slope } => slope > 0.0,
            Activation::Gelu | Activation::Silu => false,
        }
    }
}

impl Operator for ActivationGradient {
    fn kind(&self) -> &'static str {
        match self.activation {
            Activation::Relu => "ReLUGradient",
            Activation::LeakyRelu { .. } => "LeakyReLUGradient",
            Activation::Gelu => "GELUGradient",
            Activation::Silu => "SiLUGradient",
            Activation::Sigmoid => "SigmoidGradient",
            Activation::Tanh => "TanhGradient",
        }
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [saved, dy] => same_pair(&[&saved.widened(), *dy]),
            _ => same_pair(inputs),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        let per_element = match self.activation {
            Activation::Relu | Activation::LeakyRelu { .. } => 2,
            Activation::Sigmoid | Activation::Tanh => 3,
            Activation::Gelu | Activation::Silu => 8,
        };
        Cost::elementwise(inputs[0].elements(), per_element)
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.activation.describe())
    }
}

/// dx = y (dy - Σ dy y) for each row. Inputs: y, dy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftmaxGradient;

impl Operator for SoftmaxGradient {
    fn kind(&self) -> &'static str {
        "SoftmaxGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        same_pair(inputs)
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 4)
    }

    fn describe(&self) -> String {
        "Softmax(dim=-1).gradient".to_owned()
    }
}

behind_the_loss!(ActivationGradient, SoftmaxGradient);

/// Two inputs of one type, which is the output's too.
fn same_pair(inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
    match inputs {
        [saved, dy] if saved == dy => Ok(vec![(*dy).clone()]),
        _ => Err("a value and a gradient of its shape".to_owned()),
    }
}
