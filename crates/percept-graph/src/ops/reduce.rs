//! Reductions over axes: sum, mean, maximum, minimum. Reduced axes stay with size 1.

use super::{Affine, BinaryKind, Expand, Operator, one};
use crate::training::{Backward, Differentiable};
use crate::{Cost, Dim, TensorType};

/// Which reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ReduceKind {
    Sum,
    Mean,
    Max,
    Min,
}

/// Reduces `axes` (ascending) to size 1.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Reduce {
    pub kind: ReduceKind,
    pub axes: Vec<usize>,
}

impl Operator for Reduce {
    fn kind(&self) -> &'static str {
        match self.kind {
            ReduceKind::Sum => "Sum",
            ReduceKind::Mean => "Mean",
            ReduceKind::Max => "ReduceMax",
            ReduceKind::Min => "ReduceMin",
        }
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let mut y = one(inputs)?.clone();
        if !self.axes.is_sorted_by(|a, b| a < b)
            || self.axes.iter().any(|&axis| axis >= y.shape.len())
        {
            return Err(format!(
                "ascending axes within the rank, not {:?}",
                self.axes
            ));
        }
        for &axis in &self.axes {
            y.shape[axis] = Dim::from(1);
        }
        Ok(vec![y])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 1)
    }

    fn describe(&self) -> String {
        format!("{}(axes={:?})", Operator::kind(self), self.axes)
    }
}

/// Sums and means spread dy; a maximum gives it to those that have it, in equal shares.
impl Differentiable for Reduce {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (x, dy) = (back.input(0), back.dy()?);
        let shape = back.shape(x);
        let dx = match self.kind {
            ReduceKind::Sum => back.call("grad", Expand { shape }, &[dy]),
            ReduceKind::Mean => {
                let count = self.axes.iter().map(|&axis| &shape[axis]).product();
                let share = back.call("grad_share", Affine::divided(count), &[dy]);
                back.call("grad", Expand { shape }, &[share])
            }
            ReduceKind::Max | ReduceKind::Min => {
                let y = back.output(0);
                let has_it = back.binary("grad_mask", BinaryKind::Equal, x, y);
                let sum = Reduce {
                    kind: ReduceKind::Sum,
                    axes: self.axes.clone(),
                };
                let count = back.call("grad_count", sum, &[has_it]);
                let share = back.binary("grad_share", BinaryKind::Div, dy, count);
                back.binary("grad", BinaryKind::Mul, has_it, share)
            }
        };
        back.give(0, dx);
        Ok(())
    }
}
