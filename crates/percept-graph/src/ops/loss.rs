//! Losses: one number that is to fall.
//!
//! `CrossEntropy`: the mean over n of -Σ over c of q[n, c] · log softmax(logits[n])[c], where the target q gives 1 - smoothing
//! to the label and spreads the smoothing over all classes, the label included (as PyTorch does).

use super::{Operator, behind_the_loss};
use crate::training::{Backward, Differentiable};
use crate::{Cost, DType, TensorType};

/// Cross-entropy of logits [N, C] with labels i32 [N] below C: a number.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct CrossEntropy {
    pub smoothing: f32,
}

impl Operator for CrossEntropy {
    fn kind(&self) -> &'static str {
        "CrossEntropy"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [logits, labels] if are_scored(logits, labels) => Ok(vec![TensorType::f32([])]),
            _ => Err("logits [N, C] and labels i32 [N]".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 5)
    }

    fn describe(&self) -> String {
        format!("CrossEntropyLoss(label_smoothing={})", self.smoothing)
    }
}

/// dlogits = dloss / N · (softmax(logits) - q). Inputs: logits, labels, dloss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropyGradient {
    /// Of what.
    pub loss: CrossEntropy,
}

impl Operator for CrossEntropyGradient {
    fn kind(&self) -> &'static str {
        "CrossEntropyGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [logits, labels, loss] if are_scored(logits, labels) && loss.shape.is_empty() => {
                Ok(vec![(*logits).clone()])
            }
            _ => Err("logits [N, C], labels i32 [N] and the gradient of the loss".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 7)
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.loss.describe())
    }
}

impl Differentiable for CrossEntropy {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let gradient = CrossEntropyGradient { loss: *self };
        let inputs = [back.input(0), back.input(1), back.dy()?];
        let dx = back.call("grad_logits", gradient, &inputs);
        back.give(0, dx);
        Ok(())
    }
}

behind_the_loss!(CrossEntropyGradient);

fn are_scored(logits: &TensorType, labels: &TensorType) -> bool {
    logits.shape.len() == 2 && labels.dtype == DType::I32 && labels.shape == logits.shape[..1]
}
