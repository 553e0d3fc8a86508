//! Optimisers: how state follows gradients. g is the gradient times the clip factor, where there is one.
//!
//! `Sgd`: g += decay · w; v = momentum · v + g; w -= rate · (v, or g + momentum · v with Nesterov's momentum).
//! `AdamW`: w -= rate · decay · w; m = β₁ m + (1 - β₁) g; v = β₂ v + (1 - β₂) g²; with t the steps so far,
//! w -= rate / (1 - β₁ᵗ) · m / (sqrt(v / (1 - β₂ᵗ)) + eps). β₁ may be given anew at every step.
//! `ClipFactor`: min(1, max_norm / (‖all gradients‖ + 1e-6)).

use super::{Operator, behind_the_loss};
use crate::{Cost, Dim, TensorType};

/// Stochastic gradient descent. Inputs: weight, gradient, velocity (with momentum), learning rate, clip factor (or not).
/// Outputs: weight, velocity (with momentum).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Sgd {
    pub momentum: f32,
    pub weight_decay: f32,
    pub nesterov: bool,
}

impl Operator for Sgd {
    fn kind(&self) -> &'static str {
        "SGD"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let moments = usize::from(self.momentum != 0.0);
        updated(inputs, moments, 1)
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 6)
    }

    fn describe(&self) -> String {
        let Self {
            momentum,
            weight_decay,
            nesterov,
        } = self;
        format!("SGD(momentum={momentum}, weight_decay={weight_decay}, nesterov={nesterov})")
    }
}

/// Adam with decoupled weight decay. Inputs: weight, gradient, first and second moment, learning rate, steps, momentum (where
/// it is given), clip factor (or not). Outputs: weight, first and second moment.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct AdamW {
    pub betas: [f32; 2],
    pub eps: f32,
    pub weight_decay: f32,
    /// Whether each step brings its own β₁, as a one-cycle schedule does.
    pub given_momentum: bool,
}

/// PyTorch's defaults.
impl Default for AdamW {
    fn default() -> Self {
        Self {
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.01,
            given_momentum: false,
        }
    }
}

impl Operator for AdamW {
    fn kind(&self) -> &'static str {
        "AdamW"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        updated(inputs, 2, 2 + usize::from(self.given_momentum))
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 14)
    }

    fn describe(&self) -> String {
        let Self {
            betas,
            eps,
            weight_decay,
            given_momentum,
        } = self;
        let given = if *given_momentum {
            ", given_momentum"
        } else {
            ""
        };
        format!("AdamW(betas={betas:?}, eps={eps}, weight_decay={weight_decay}{given})")
    }
}

/// What gradients are multiplied with so that their common norm stays below a bound. Inputs: all gradients. Output: a number.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct ClipFactor {
    pub max_norm: f32,
}

impl Operator for ClipFactor {
    fn kind(&self) -> &'static str {
        "ClipFactor"
    }

    fn infer(&self, _: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![TensorType::f32([])])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        let elements: Dim = inputs.iter().map(|ty| ty.elements()).sum();
        Cost::elementwise(elements, 2)
    }

    fn describe(&self) -> String {
        format!("ClipFactor(max_norm={})", self.max_norm)
    }
}

behind_the_loss!(Sgd, AdamW, ClipFactor);

/// Weight, gradient and moments of one shape, then numbers: as many as needed and perhaps a clip factor.
fn updated(
    inputs: &[&TensorType],
    moments: usize,
    numbers: usize,
) -> Result<Vec<TensorType>, String> {
    let expected = || format!("weight, gradient, {moments} moments and {numbers} numbers");
    let tensors = 2 + moments;
    let rest = inputs.get(tensors..).ok_or_else(expected)?;
    let alike = inputs[1..tensors].iter().all(|ty| **ty == *inputs[0]);
    let counted = rest.len() == numbers || rest.len() == numbers + 1;
    if !alike || !counted || rest.iter().any(|ty| !ty.shape.is_empty()) {
        return Err(expected());
    }
    Ok(vec![inputs[0].clone(); 1 + moments])
}
