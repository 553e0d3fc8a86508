//! Reductions over axes: sum, mean, maximum, minimum. Reduced axes stay with size 1.

use super::{Operator, one};
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
