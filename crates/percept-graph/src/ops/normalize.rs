//! Rows of length one, as descriptors are compared: y = x / max(‖x‖, eps) over the last axis.

use super::{Operator, behind_the_loss, one};
use crate::training::{Backward, Differentiable};
use crate::{Cost, TensorType};

/// x / max(‖x‖, eps) over the last axis.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Normalize {
    pub eps: f32,
}

impl Default for Normalize {
    /// As PyTorch's `functional.normalize`.
    fn default() -> Self {
        Self { eps: 1e-12 }
    }
}

impl Operator for Normalize {
    fn kind(&self) -> &'static str {
        "Normalize"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = one(inputs)?;
        if x.shape.is_empty() {
            return Err("at least one axis".to_owned());
        }
        Ok(vec![x.clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // Square, sum, divide.
        Cost::elementwise(inputs[0].elements(), 3)
    }

    fn describe(&self) -> String {
        format!("Normalize(dim=-1, eps={})", self.eps)
    }
}

impl Differentiable for Normalize {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (x, dy) = (back.input(0), back.dy()?);
        let dx = back.call("grad", NormalizeGradient { norm: *self }, &[x, dy]);
        back.give(0, dx);
        Ok(())
    }
}

/// dx = (dy - x (x·dy) / ‖x‖²) / ‖x‖; dy / eps for rows no longer than eps. Inputs: x, dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormalizeGradient {
    /// Whose.
    pub norm: Normalize,
}

impl Operator for NormalizeGradient {
    fn kind(&self) -> &'static str {
        "NormalizeGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [x, dy] if x == dy => Ok(vec![(*dy).clone()]),
            _ => Err("a value and a gradient of its shape".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 7)
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.norm.describe())
    }
}

behind_the_loss!(NormalizeGradient);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dim;

    #[test]
    fn the_shape_stays_and_a_number_has_no_rows() {
        let x = TensorType::f32([Dim::symbol("N"), Dim::from(256)]);
        let op = Normalize::default();
        assert_eq!(op.infer(&[&x]).unwrap()[0], x);
        assert!(op.infer(&[&TensorType::f32([])]).is_err());
        assert!(op.infer(&[&x, &x]).is_err());
        let gradient = NormalizeGradient { norm: op };
        assert!(gradient.infer(&[&x, &TensorType::f32([])]).is_err());
        assert_eq!(op.describe(), "Normalize(dim=-1, eps=0.000000000001)");
    }
}
