//! Neighbours in clouds of points.
//!
//! `Knn`: y[p] = the rows of the k points nearest to p in its cloud, p itself among them, nearest first; of equally near points
//! the one with the smaller row comes first. Letters: P points of all clouds, N clouds, K neighbours.

use super::{Operator, selections};
use crate::{Amount, Cost, DType, Dim, TensorType};

/// Rows of the nearest points: points [P, 3] of clouds that follow each other, and how many points each has, i32 [N], to
/// i32 [P, K]. A cloud of fewer than K points fills its lists up with the point itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Knn {
    pub k: usize,
}

impl Operator for Knn {
    fn kind(&self) -> &'static str {
        "Knn"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [points, counts]
                if points.shape.len() == 2
                    && points.shape[1] == Dim::from(3)
                    && points.dtype != DType::I32
                    && counts.shape.len() == 1
                    && counts.dtype == DType::I32 =>
            {
                Ok(vec![TensorType::i32([
                    points.shape[0].clone(),
                    self.k.into(),
                ])])
            }
            _ => Err("points [P, 3] and counts i32 [N]".to_owned()),
        }
    }

    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        // How many distances a search computes is the data's matter.
        Cost {
            macs: Amount::zero(),
            other_ops: Amount::Unknown,
        }
    }

    fn describe(&self) -> String {
        format!("Knn(k={})", self.k)
    }
}

selections!(Knn);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_a_row_for_each_point() {
        let p = Dim::symbol("P");
        let points = TensorType::f32([p.clone(), 3.into()]);
        let counts = TensorType::i32([Dim::symbol("N")]);
        let knn = Knn { k: 16 };
        assert_eq!(
            knn.infer(&[&points, &counts]).unwrap(),
            [TensorType::i32([p.clone(), 16.into()])]
        );
        assert_eq!(knn.cost(&[], &[]).other_ops, Amount::Unknown);
        assert_eq!(knn.describe(), "Knn(k=16)");
        let flat = TensorType::f32([p, 2.into()]);
        for bad in [&[&points][..], &[&flat, &counts], &[&counts, &points]] {
            assert_eq!(
                knn.infer(bad).unwrap_err(),
                "points [P, 3] and counts i32 [N]"
            );
        }
    }
}
