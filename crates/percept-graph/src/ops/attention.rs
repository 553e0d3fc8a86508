//! Multi-head self-attention on a packed projection.
//!
//! Input [N, T, 3·D], read as (N, T, 3, heads, D / heads): queries, keys and values of each token.
//! Output [N, T, D]: softmax(q kᵀ / sqrt(D / heads)) v, heads side by side.

use super::{Operator, behind_the_loss, one};
use crate::training::{Backward, Differentiable};
use crate::{Amount, Cost, TensorType};

/// softmax(q kᵀ · scale) v for each head, without parameters of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Attention {
    pub heads: usize,
    /// Width of the output, D.
    pub width: usize,
}

impl Attention {
    /// Width of a head.
    pub fn head_width(&self) -> usize {
        self.width / self.heads
    }
}

impl Operator for Attention {
    fn kind(&self) -> &'static str {
        "Attention"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let qkv = one(inputs)?;
        if self.heads == 0 || !self.width.is_multiple_of(self.heads) {
            return Err(format!(
                "a width ({}) that {} heads divide",
                self.width, self.heads
            ));
        }
        match qkv.shape.as_slice() {
            [n, t, packed] if packed.as_const() == Some(3 * self.width as i64) => {
                let shape = vec![n.clone(), t.clone(), self.width.into()];
                Ok(vec![TensorType {
                    dtype: qkv.dtype,
                    shape,
                }])
            }
            _ => Err(format!("a packed projection [N, T, {}]", 3 * self.width)),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        let [n, t, _] = inputs[0].shape.as_slice() else {
            unreachable!("shape rule has passed")
        };
        let pairs = n * &(t * t);
        // q kᵀ and the weighted sum of v each take D multiply-adds a token pair; softmax is on top.
        Cost {
            macs: (pairs.clone() * (2 * self.width)).into(),
            other_ops: (pairs * (5 * self.heads)).into(),
        }
    }

    fn describe(&self) -> String {
        format!("Attention(heads={}, width={})", self.heads, self.width)
    }
}

/// The gradient of [`Attention`] by its packed projection. Inputs: projection, output, gradient of the output. The weights
/// of the tokens are computed again: keeping them would take T² numbers a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionGradient {
    /// Of what.
    pub attention: Attention,
}

impl Operator for AttentionGradient {
    fn kind(&self) -> &'static str {
        "AttentionGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let expected = "a projection, the attention's output and its gradient";
        let [qkv, y, dy] = inputs else {
            return Err(expected.to_owned());
        };
        let output = self.attention.infer(&[*qkv])?;
        match **y == output[0] && y == dy {
            true => Ok(vec![(*qkv).clone()]),
            false => Err(expected.to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        let [n, t, _] = inputs[0].shape.as_slice() else {
            unreachable!("shape rule has passed")
        };
        let pairs = n * &(t * t);
        // q kᵀ again, and one product for each of dv, the weights' gradient, dq and dk.
        Cost {
            macs: Amount::from(pairs.clone() * (5 * self.attention.width)),
            other_ops: (pairs * (8 * self.attention.heads)).into(),
        }
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.attention.describe())
    }
}

impl Differentiable for Attention {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let gradient = AttentionGradient {
            attention: self.clone(),
        };
        let inputs = [back.input(0), back.output(0), back.dy()?];
        let dx = back.call("grad", gradient, &inputs);
        back.give(0, dx);
        Ok(())
    }
}

behind_the_loss!(AttentionGradient);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dim;

    #[test]
    fn both_products_are_counted() {
        let qkv = TensorType::f32([1, 10, 3 * 48].map(Dim::from));
        let attention = Attention {
            heads: 4,
            width: 48,
        };
        let out = &attention.infer(&[&qkv]).unwrap()[0];
        assert_eq!(out.to_string(), "f32 [1, 10, 48]");
        assert_eq!(
            attention.cost(&[&qkv], &[out]).macs,
            Amount::Known(Dim::from(2 * 10 * 10 * 48))
        );
        assert!(
            Attention {
                heads: 5,
                width: 48
            }
            .infer(&[&qkv])
            .is_err()
        );
    }
}
