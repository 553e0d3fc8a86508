//! Multi-head self-attention on a packed projection.
//!
//! Input [N, T, 3·D], read as (N, T, 3, heads, D / heads): queries, keys and values of each token.
//! Output [N, T, D]: softmax(q kᵀ / sqrt(D / heads)) v, heads side by side.

use super::{Operator, one};
use crate::{Cost, TensorType};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Amount, Dim};

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
