//! Rows by number, and their adjoint.
//!
//! `Gather`: y[k] = x[indices[k]]. `ScatterAdd`: y[r] = Σ of x[k] over the k with indices[k] = r.

use super::Operator;
use crate::training::{Backward, Differentiable};
use crate::{Cost, DType, Dim, TensorType};

/// Rows of x [R, ..] by indices i32 [K] within R: [K, ..].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather;

impl Operator for Gather {
    fn kind(&self) -> &'static str {
        "Gather"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let (x, indices) = rows_and_indices(inputs)?;
        let mut y = x.clone();
        y.shape[0] = indices.shape[0].clone();
        Ok(vec![y])
    }

    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }

    fn describe(&self) -> String {
        "Gather()".to_owned()
    }
}

/// Rows x [K, ..] added up at indices i32 [K]: [rows, ..].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ScatterAdd {
    pub rows: Dim,
}

impl Operator for ScatterAdd {
    fn kind(&self) -> &'static str {
        "ScatterAdd"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let (x, indices) = rows_and_indices(inputs)?;
        if x.shape[0] != indices.shape[0] {
            return Err("one index a row".to_owned());
        }
        let mut y = x.clone();
        y.shape[0] = self.rows.clone();
        Ok(vec![y])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 1)
    }

    fn describe(&self) -> String {
        format!("ScatterAdd(rows={})", self.rows)
    }
}

impl Differentiable for Gather {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (indices, dy) = (back.input(1), back.dy()?);
        let rows = back.shape(back.input(0))[0].clone();
        let dx = back.call("grad", ScatterAdd { rows }, &[dy, indices]);
        back.give(0, dx);
        Ok(())
    }
}

impl Differentiable for ScatterAdd {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (indices, dy) = (back.input(1), back.dy()?);
        let dx = back.call("grad", Gather, &[dy, indices]);
        back.give(0, dx);
        Ok(())
    }
}

fn rows_and_indices<'a>(
    inputs: &[&'a TensorType],
) -> Result<(&'a TensorType, &'a TensorType), String> {
    match inputs {
        [x, indices]
            if !x.shape.is_empty() && indices.dtype == DType::I32 && indices.shape.len() == 1 =>
        {
            Ok((x, indices))
        }
        _ => Err("rows [R, ..] and indices i32 [K]".to_owned()),
    }
}
