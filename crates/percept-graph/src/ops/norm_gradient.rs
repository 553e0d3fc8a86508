//! Batch normalisation with the batch's own statistics, and the gradients of normalisations.
//!
//! With x̂ = (x - mean) / sqrt(variance + eps) over a channel's M values: dbias = Σ dy, dweight = Σ dy x̂, and
//! dx = weight / sqrt(variance + eps) · (dy - dbias / M - x̂ dweight / M); with frozen statistics the last two terms are not.

use super::norm::give_first;
use super::{BatchNorm, LayerNorm, Operator, behind_the_loss};
use crate::training::{Backward, Differentiable};
use crate::{Cost, Dim, TensorType};

/// Batch normalisation in training. Parameters as [`BatchNorm`]; outputs: y, the batch's mean and (biased) variance, and the
/// running statistics moved by `momentum` towards the mean and the unbiased variance.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormTraining {
    /// The inference form.
    pub norm: BatchNorm,
}

impl Operator for BatchNormTraining {
    fn kind(&self) -> &'static str {
        "BatchNormTraining"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let y = self.norm.infer(inputs)?;
        let statistics = TensorType::f32([Dim::from(self.norm.channels)]);
        Ok(y.into_iter()
            .chain(std::iter::repeat_n(statistics, 4))
            .collect())
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // Sum; subtract, square and sum; multiply and add.
        Cost::elementwise(inputs[0].elements(), 6)
    }

    fn describe(&self) -> String {
        self.norm.describe()
    }

    fn params(&self) -> Vec<crate::ParamSpec> {
        self.norm.params()
    }
}

impl Differentiable for BatchNormTraining {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        if (1..5).any(|output| back.output_gradient(output).is_some()) {
            return Err("the loss reads its statistics".to_owned());
        }
        let gradient = BatchNormGradient {
            norm: self.norm.clone(),
            batch_statistics: true,
            rectified: false,
        };
        let (mean, variance) = (back.output(1), back.output(2));
        let inputs = [back.input(0), back.dy()?, back.input(1), mean, variance];
        let gradients = back.call_many("grad", gradient, &inputs);
        give_first(back, &gradients);
        Ok(())
    }
}

/// A batch norm in training once more, on the way back: by the statistics that the batch had, so that nothing moves twice.
/// Inputs: x, weight, bias, mean, variance. x may be kept in 16 bits.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormAgain {
    /// The inference form.
    pub norm: BatchNorm,
}

impl Operator for BatchNormAgain {
    fn kind(&self) -> &'static str {
        "BatchNormAgain"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let vector = TensorType::f32([Dim::from(self.norm.channels)]);
        match inputs {
            [x, vectors @ ..] if vectors.len() == 4 && vectors.iter().all(|v| **v == vector) => {
                self.norm.infer(&[&x.widened()])
            }
            _ => Err("x, weight, bias, mean and variance".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 3)
    }

    fn describe(&self) -> String {
        format!("{}.again", self.norm.describe())
    }
}

/// dx, dweight and dbias of a batch norm. Inputs: x, dy, weight, mean, variance; and the bias, where a ReLU stands behind the norm.
/// x may be kept in 16 bits.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormGradient {
    /// Of what.
    pub norm: BatchNorm,
    /// Whether mean and variance came from x itself.
    pub batch_statistics: bool,
    /// Whether dy is that of a ReLU behind the norm: x tells what it let through.
    pub rectified: bool,
}

impl Operator for BatchNormGradient {
    fn kind(&self) -> &'static str {
        "BatchNormGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let wanted = match self.rectified {
            true => "x, dy, weight, mean, variance and bias",
            false => "x, dy, weight, mean and variance",
        };
        let [x, dy, vectors @ ..] = inputs else {
            return Err(wanted.to_owned());
        };
        let x = x.widened();
        self.norm.infer(&[&x])?;
        let vector = TensorType::f32([Dim::from(self.norm.channels)]);
        let count = 3 + usize::from(self.rectified);
        if x != **dy || vectors.len() != count || vectors.iter().any(|v| **v != vector) {
            return Err(wanted.to_owned());
        }
        Ok(vec![x, vector.clone(), vector])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // Two sums, of dy and of dy (x - mean); then dx from x and dy.
        Cost::elementwise(inputs[0].elements(), 8)
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.norm.describe())
    }
}

/// dx, dweight and dbias of a layer norm. Inputs: x, dy, weight.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormGradient {
    /// Of what.
    pub norm: LayerNorm,
}

impl Operator for LayerNormGradient {
    fn kind(&self) -> &'static str {
        "LayerNormGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let vector = TensorType::f32([Dim::from(self.norm.features)]);
        match inputs {
            [x, dy, weight] if x == dy && **weight == vector => {
                self.norm.infer(&[*x])?;
                Ok(vec![(*x).clone(), vector.clone(), vector])
            }
            _ => Err("x, dy and weight".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 16)
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.norm.describe())
    }
}

behind_the_loss!(BatchNormAgain, BatchNormGradient, LayerNormGradient);
