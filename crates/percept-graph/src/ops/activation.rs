//! Activations, element by element, and softmax over the last axis.
//!
//! ReLU max(x, 0); LeakyReLU x or slope·x; GELU x·Φ(x) with erf; SiLU x·σ(x); sigmoid; tanh.
//! Softmax: exp(x - max) / Σ exp(x - max).

use super::{ActivationGradient, Operator, SoftmaxGradient, one};
use crate::training::{Backward, Differentiable};
use crate::{Cost, TensorType};

/// An elementwise activation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Activation {
    Relu,
    LeakyRelu { slope: f32 },
    Gelu,
    Silu,
    Sigmoid,
    Tanh,
}

impl Operator for Activation {
    fn kind(&self) -> &'static str {
        match self {
            Activation::Relu => "ReLU",
            Activation::LeakyRelu { .. } => "LeakyReLU",
            Activation::Gelu => "GELU",
            Activation::Silu => "SiLU",
            Activation::Sigmoid => "Sigmoid",
            Activation::Tanh => "Tanh",
        }
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![one(inputs)?.clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        let per_element = match self {
            Activation::Relu => 1,
            Activation::LeakyRelu { .. } => 2,
            Activation::Sigmoid | Activation::Tanh => 3,
            Activation::Gelu | Activation::Silu => 4,
        };
        Cost::elementwise(inputs[0].elements(), per_element)
    }

    fn describe(&self) -> String {
        match self {
            Activation::Relu => "ReLU(inplace=True)".to_owned(),
            Activation::LeakyRelu { slope } => format!("LeakyReLU(negative_slope={slope})"),
            Activation::Gelu => "GELU(approximate='none')".to_owned(),
            Activation::Silu => "SiLU(inplace=True)".to_owned(),
            Activation::Sigmoid => "Sigmoid()".to_owned(),
            Activation::Tanh => "Tanh()".to_owned(),
        }
    }
}

/// Softmax over the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax;

impl Operator for Softmax {
    fn kind(&self) -> &'static str {
        "Softmax"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = one(inputs)?;
        if x.shape.is_empty() {
            return Err("at least one axis".to_owned());
        }
        Ok(vec![x.clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // Maximum, subtract, exponential, sum, divide.
        Cost::elementwise(inputs[0].elements(), 5)
    }

    fn describe(&self) -> String {
        "Softmax(dim=-1)".to_owned()
    }
}

impl Differentiable for Activation {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let gradient = ActivationGradient { activation: *self };
        let saved = match gradient.reads_output() {
            true => back.output(0),
            false => back.input(0),
        };
        let dy = back.dy()?;
        let dx = back.call("grad", gradient, &[saved, dy]);
        back.give(0, dx);
        Ok(())
    }
}

impl Differentiable for Softmax {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (y, dy) = (back.output(0), back.dy()?);
        let dx = back.call("grad", SoftmaxGradient, &[y, dy]);
        back.give(0, dx);
        Ok(())
    }
}
