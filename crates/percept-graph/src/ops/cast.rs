//! Numbers in another float type: how values wait for the backward pass.

use super::{BatchNorm, Operator, behind_the_loss, one};
use crate::{Cost, DType, Dim, TensorType};

/// y = x, rounded to the nearest number of a type; what is too large for it becomes its largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    /// f32, f16 or bf16.
    pub dtype: DType,
}

impl Operator for Cast {
    fn kind(&self) -> &'static str {
        "Cast"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = one(inputs)?;
        let is_known = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        match is_known(x.dtype) && is_known(self.dtype) {
            true => Ok(vec![TensorType::new(self.dtype, x.shape.clone())]),
            false => Err("f32, f16 or bf16".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 1)
    }

    fn describe(&self) -> String {
        format!("to({})", self.dtype)
    }
}

/// The input of a batch norm, rounded such that the ReLU behind the norm lets the same values through: gradients follow the same
/// ways. Inputs: x, weight, bias, mean, variance.
#[derive(Clone, Debug, PartialEq)]
pub struct RectifiedCast {
    /// The inference form of the norm.
    pub norm: BatchNorm,
    /// f16 or bf16.
    pub dtype: DType,
}

impl Operator for RectifiedCast {
    fn kind(&self) -> &'static str {
        "RectifiedCast"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let vector = TensorType::f32([Dim::from(self.norm.channels)]);
        match inputs {
            [x, vectors @ ..] if vectors.len() == 4 && vectors.iter().all(|v| **v == vector) => {
                self.norm.infer(&[*x])?;
                Cast { dtype: self.dtype }.infer(&[*x])
            }
            _ => Err("x, weight, bias, mean and variance".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 8)
    }

    fn describe(&self) -> String {
        format!("to({})", self.dtype)
    }
}

behind_the_loss!(Cast, RectifiedCast);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_become_other_floats() {
        let x = TensorType::f32([Dim::symbol("N"), 3.into()]);
        let half = Cast { dtype: DType::F16 }.infer(&[&x]).unwrap();
        assert_eq!(half, [TensorType::new(DType::F16, x.shape.clone())]);
        let back = Cast { dtype: DType::F32 };
        assert_eq!(back.infer(&[&half[0]]).unwrap(), [x]);
        let indices = TensorType::i32([3.into()]);
        assert!(back.infer(&[&indices]).is_err());
    }
}
