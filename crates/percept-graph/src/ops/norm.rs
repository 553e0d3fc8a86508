//! Normalisations.
//!
//! `BatchNorm` (inference): y = (x - running_mean) / sqrt(running_var + eps) · weight + bias, a channel (axis 1) at a time.
//! `LayerNorm`: the same with mean and variance of each row of the last axis.

use super::{BatchNormGradient, LayerNormGradient, Operator, one};
use crate::graph::ValueId;
use crate::training::{Backward, Differentiable};
use crate::{Cost, Dim, Initializer, ParamSpec, TensorType};

/// Batch normalisation over axis 1, with running statistics.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct BatchNorm {
    pub channels: usize,
    pub eps: f32,
    pub momentum: f32,
    /// Axes of what it normalises, as in PyTorch's names: 1 for rows, 2 for maps.
    pub dims: usize,
}

impl BatchNorm {
    /// PyTorch's defaults: eps 1e-5, momentum 0.1.
    pub fn new(channels: usize) -> Self {
        Self {
            channels,
            eps: 1e-5,
            momentum: 0.1,
            dims: 2,
        }
    }

    /// Of rows [N, C]: PyTorch's BatchNorm1d.
    pub fn rows(channels: usize) -> Self {
        Self {
            dims: 1,
            ..Self::new(channels)
        }
    }
}

impl Operator for BatchNorm {
    fn kind(&self) -> &'static str {
        "BatchNorm"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = one(inputs)?;
        if x.shape.get(1) != Some(&Dim::from(self.channels)) {
            return Err(format!("{} channels on axis 1", self.channels));
        }
        Ok(vec![x.clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 2)
    }

    fn describe(&self) -> String {
        format!(
            "BatchNorm{}d({}, eps={}, momentum={}, affine=True, track_running_stats=True)",
            self.dims,
            self.channels,
            python_float(self.eps),
            python_float(self.momentum)
        )
    }

    fn params(&self) -> Vec<ParamSpec> {
        let shape = [self.channels];
        vec![
            ParamSpec::new("weight", shape, Initializer::Ones),
            ParamSpec::new("bias", shape, Initializer::Zeros),
            ParamSpec::buffer("running_mean", shape, Initializer::Zeros),
            ParamSpec::buffer("running_var", shape, Initializer::Ones),
        ]
    }
}

/// Layer normalisation of the last axis.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct LayerNorm {
    pub features: usize,
    pub eps: f32,
}

impl Operator for LayerNorm {
    fn kind(&self) -> &'static str {
        "LayerNorm"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = one(inputs)?;
        if x.shape.last() != Some(&Dim::from(self.features)) {
            return Err(format!("a last axis of {}", self.features));
        }
        Ok(vec![x.clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // Sum; subtract, square and sum; subtract, scale, multiply and add.
        Cost::elementwise(inputs[0].elements(), 8)
    }

    fn describe(&self) -> String {
        format!(
            "LayerNorm(({},), eps={}, elementwise_affine=True)",
            self.features,
            python_float(self.eps)
        )
    }

    fn params(&self) -> Vec<ParamSpec> {
        vec![
            ParamSpec::new("weight", [self.features], Initializer::Ones),
            ParamSpec::new("bias", [self.features], Initializer::Zeros),
        ]
    }
}

/// A float as Python prints it: `1e-05`, `0.001`.
fn python_float(value: f32) -> String {
    if value != 0.0 && value.abs() < 1e-4 {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text
            .split_once("e-")
            .expect("a small number has a negative exponent");
        return format!("{mantissa}e-{exponent:0>2}");
    }
    value.to_string()
}

/// With frozen statistics.
impl Differentiable for BatchNorm {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (x, weight, dy) = (back.input(0), back.input(1), back.dy()?);
        if back.wants(3) || back.wants(4) {
            return Err("running statistics are measured, not trained".to_owned());
        }
        let gradient = BatchNormGradient {
            norm: self.clone(),
            batch_statistics: false,
            rectified: false,
        };
        let inputs = [x, dy, weight, back.input(3), back.input(4)];
        let gradients = back.call_many("grad", gradient, &inputs);
        give_first(back, &gradients);
        Ok(())
    }
}

impl Differentiable for LayerNorm {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let gradient = LayerNormGradient { norm: self.clone() };
        let inputs = [back.input(0), back.dy()?, back.input(1)];
        let gradients = back.call_many("grad", gradient, &inputs);
        give_first(back, &gradients);
        Ok(())
    }
}

/// Gives the gradients of the first inputs: x, weight, bias.
pub(super) fn give_first(back: &mut Backward<'_>, gradients: &[ValueId]) {
    for (position, &gradient) in gradients.iter().enumerate() {
        back.give(position, gradient);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_like_pytorch() {
        let norm = BatchNorm::new(64).describe();
        assert_eq!(
            norm,
            "BatchNorm2d(64, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)"
        );
        let norm = LayerNorm {
            features: 768,
            eps: 1e-6,
        }
        .describe();
        assert_eq!(
            norm,
            "LayerNorm((768,), eps=1e-06, elementwise_affine=True)"
        );
        assert_eq!(python_float(0.001), "0.001");
    }

    #[test]
    fn axes_are_checked() {
        let map = TensorType::f32([1, 8, 4, 4].map(Dim::from));
        assert!(BatchNorm::new(8).infer(&[&map]).is_ok());
        assert!(BatchNorm::new(4).infer(&[&map]).is_err());
        assert!(
            LayerNorm {
                features: 4,
                eps: 1e-6
            }
            .infer(&[&map])
            .is_ok()
        );
        assert!(
            LayerNorm {
                features: 8,
                eps: 1e-6
            }
            .infer(&[&map])
            .is_err()
        );
    }
}
