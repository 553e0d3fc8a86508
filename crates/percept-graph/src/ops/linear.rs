//! Matrix products.
//!
//! `Linear`: y = x Wᵀ + b on the last axis, weight [out, in], or stored as a convolution of single points stores it.
//! `MatMul`: batched product of two values.

use std::borrow::Cow;

use super::{Operator, one};
use crate::graph::ValueId;
use crate::training::{Backward, Differentiable};
use crate::{Cost, Dim, Initializer, ParamSpec, TensorType};

/// As which module a public network stores a linear map of each point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinearWeight {
    /// `Linear`: [out, in].
    #[default]
    Matrix,
    /// A 1x1 `Conv2d`: [out, in, 1, 1].
    Pointwise,
    /// A 1x1 `ConvTranspose2d`: [in, out, 1, 1].
    PointwiseTransposed,
}

/// Affine map of the last axis, [.., in] -> [.., out].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Linear {
    pub in_features: usize,
    pub out_features: usize,
    pub bias: bool,
    pub weight: LinearWeight,
}

impl Linear {
    /// With a bias.
    pub fn new(in_features: usize, out_features: usize) -> Self {
        Self {
            in_features,
            out_features,
            bias: true,
            weight: LinearWeight::Matrix,
        }
    }

    /// With its weight stored like this.
    pub fn stored(self, weight: LinearWeight) -> Self {
        Self { weight, ..self }
    }

    /// Whether the weight is stored [in, out].
    pub fn is_transposed(&self) -> bool {
        self.weight == LinearWeight::PointwiseTransposed
    }

    /// The weight [out, in] of values as they are stored.
    pub fn as_matrix<'a, T: Copy>(&self, stored: &'a [T]) -> Cow<'a, [T]> {
        if !self.is_transposed() {
            return Cow::Borrowed(stored);
        }
        let (inputs, outputs) = (self.in_features, self.out_features);
        let turned = (0..stored.len()).map(|at| stored[at % inputs * outputs + at / inputs]);
        Cow::Owned(turned.collect())
    }

    /// The shape that the weight is stored in.
    fn weight_shape(&self) -> Vec<usize> {
        let (inputs, outputs) = (self.in_features, self.out_features);
        match self.weight {
            LinearWeight::Matrix => vec![outputs, inputs],
            LinearWeight::Pointwise => vec![outputs, inputs, 1, 1],
            LinearWeight::PointwiseTransposed => vec![inputs, outputs, 1, 1],
        }
    }
}

impl Operator for Linear {
    fn kind(&self) -> &'static str {
        "Linear"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = one(inputs)?;
        if x.shape.last() != Some(&Dim::from(self.in_features)) {
            return Err(format!("a last axis of {}", self.in_features));
        }
        let mut y = x.clone();
        *y.shape.last_mut().expect("checked above") = self.out_features.into();
        Ok(vec![y])
    }

    fn cost(&self, _: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        Cost::macs(outputs[0].elements() * self.in_features)
    }

    fn describe(&self) -> String {
        let (inputs, outputs) = (self.in_features, self.out_features);
        let bias = if self.bias { "True" } else { "False" };
        let module = match self.weight {
            LinearWeight::Matrix => {
                return format!(
                    "Linear(in_features={inputs}, out_features={outputs}, bias={bias})"
                );
            }
            LinearWeight::Pointwise => "Conv2d",
            LinearWeight::PointwiseTransposed => "ConvTranspose2d",
        };
        let bias = if self.bias { "" } else { ", bias=False" };
        format!("{module}({inputs}, {outputs}, kernel_size=(1, 1), stride=(1, 1){bias})")
    }

    fn params(&self) -> Vec<ParamSpec> {
        let shape = self.weight_shape();
        // PyTorch takes the second axis for the fan-in, of a transposed convolution too.
        let init = Initializer::FanIn(shape[1]);
        let mut params = vec![ParamSpec::new("weight", shape, init)];
        if self.bias {
            params.push(ParamSpec::new("bias", [self.out_features], init));
        }
        params
    }
}

/// Batched matrix product [.., M, K] x [.., K, N] -> [.., M, N]; either operand may be read transposed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MatMul {
    pub transpose_a: bool,
    pub transpose_b: bool,
}

impl MatMul {
    /// (rows, columns) of an operand as it is read.
    fn sides(operand: &TensorType, transposed: bool) -> Option<(Dim, Dim)> {
        match operand.shape.as_slice() {
            [.., a, b] if transposed => Some((b.clone(), a.clone())),
            [.., a, b] => Some((a.clone(), b.clone())),
            _ => None,
        }
    }
}

impl Operator for MatMul {
    fn kind(&self) -> &'static str {
        "MatMul"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let expected =
            || "two operands [.., M, K] and [.., K, N] with the same leading axes".to_owned();
        let [a, b] = inputs else {
            return Err(expected());
        };
        let (m, k) = Self::sides(a, self.transpose_a).ok_or_else(expected)?;
        let (k2, n) = Self::sides(b, self.transpose_b).ok_or_else(expected)?;
        let batch = &a.shape[..a.shape.len() - 2];
        if k != k2 || *batch != b.shape[..b.shape.len() - 2] {
            return Err(expected());
        }
        let shape = batch.iter().cloned().chain([m, n]).collect();
        Ok(vec![TensorType {
            dtype: a.dtype,
            shape,
        }])
    }

    fn cost(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        let (_, k) = Self::sides(inputs[0], self.transpose_a).expect("shape rule has passed");
        Cost::macs(outputs[0].elements() * k)
    }

    fn describe(&self) -> String {
        "MatMul()".to_owned()
    }
}

/// dx = dy W, dW = dyᵀ x, db = the sum of dy, with the leading axes as one. A weight stored [in, out] is read, and its gradient
/// made, the other way round.
impl Differentiable for Linear {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (x, weight, dy) = (back.input(0), back.input(1), back.dy()?);
        let (shape, stored) = (back.shape(x), back.shape(weight));
        let rows: Dim = shape[..shape.len() - 1].iter().product();
        let flat = vec![rows.clone(), self.out_features.into()];
        let dy = back.reshape("grad_flat", dy, flat);
        if back.wants(0) {
            let matrix = back.reshape("weight_matrix", weight, stored[..2].to_vec());
            let product = MatMul {
                transpose_b: self.is_transposed(),
                ..MatMul::default()
            };
            let dx = back.call("grad_input", product, &[dy, matrix]);
            let dx = back.reshape("grad_input_shape", dx, shape);
            back.give(0, dx);
        }
        if back.wants(1) {
            let x = back.reshape("input_flat", x, vec![rows, self.in_features.into()]);
            let product = MatMul {
                transpose_a: true,
                ..MatMul::default()
            };
            let operands = match self.is_transposed() {
                false => [dy, x],
                true => [x, dy],
            };
            let dw = back.call("grad_weight", product, &operands);
            let dw = back.reshape("grad_weight_shape", dw, stored);
            back.give(1, dw);
        }
        if self.bias && back.wants(2) {
            let db = back.sum_away("grad_bias", dy, vec![0]);
            back.give(2, db);
        }
        Ok(())
    }
}

/// dA = dC Bᵀ and dB = Aᵀ dC, each operand read as it was stored.
impl Differentiable for MatMul {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (a, b, dy) = (back.input(0), back.input(1), back.dy()?);
        let product = |back: &mut Backward<'_>, suffix: &str, sides: [(ValueId, bool); 2]| {
            let [(left, transpose_a), (right, transpose_b)] = sides;
            let op = MatMul {
                transpose_a,
                transpose_b,
            };
            back.call(suffix, op, &[left, right])
        };
        if back.wants(0) {
            let sides = match self.transpose_a {
                false => [(dy, false), (b, !self.transpose_b)],
                true => [(b, self.transpose_b), (dy, true)],
            };
            let da = product(back, "grad_a", sides);
            back.give(0, da);
        }
        if back.wants(1) {
            let sides = match self.transpose_b {
                false => [(a, !self.transpose_a), (dy, false)],
                true => [(dy, true), (a, self.transpose_a)],
            };
            let db = product(back, "grad_b", sides);
            back.give(1, db);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Amount;

    #[test]
    fn linear_maps_the_last_axis_only() {
        let x = TensorType::f32([Dim::symbol("N"), Dim::from(5), Dim::from(16)]);
        let linear = Linear::new(16, 4);
        let y = &linear.infer(&[&x]).unwrap()[0];
        assert_eq!(y.to_string(), "f32 [N, 5, 4]");
        assert_eq!(
            linear.cost(&[&x], &[y]).macs,
            Amount::Known(Dim::symbol("N") * (5 * 4 * 16))
        );
        assert!(Linear::new(8, 4).infer(&[&x]).is_err());
    }

    #[test]
    fn matmul_contracts_the_inner_axes() {
        let a = TensorType::f32([2, 3, 5].map(Dim::from));
        let b = TensorType::f32([2, 7, 5].map(Dim::from));
        let product = MatMul {
            transpose_b: true,
            ..MatMul::default()
        };
        let y = &product.infer(&[&a, &b]).unwrap()[0];
        assert_eq!(y.to_string(), "f32 [2, 3, 7]");
        assert_eq!(
            product.cost(&[&a, &b], &[y]).macs,
            Amount::Known(Dim::from(2 * 3 * 7 * 5))
        );
        assert!(MatMul::default().infer(&[&a, &b]).is_err());
    }
}
