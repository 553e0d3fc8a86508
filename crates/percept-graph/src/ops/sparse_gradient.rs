//! Gradients of sparse convolutions, over the rulebook of the forward pass.
//!
//! dx[i] = Σ over pairs (o, i) of weight[:, tap, :]ᵀ · dy[o]; dw[:, tap, :] = Σ over pairs of dy[o] ⊗ x[i].

use super::sparse::check_sites;
use super::{Operator, SparseConv3d, behind_the_loss};
use crate::{Cost, Dim, TensorType};

/// dx of a sparse convolution. Inputs: dy [O, K], pairs, starts, weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseConv3dInputGradient {
    /// Of what.
    pub conv: SparseConv3d,
    /// Rows of x.
    pub rows: Dim,
}

impl Operator for SparseConv3dInputGradient {
    fn kind(&self) -> &'static str {
        "SparseConv3dInputGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [dy, _, _, weight]
                if dy.shape.get(1) == Some(&Dim::from(self.conv.out_channels))
                    && **weight == weight_type(&self.conv) =>
            {
                let shape = [self.rows.clone(), self.conv.in_channels.into()];
                Ok(vec![TensorType::f32(shape)])
            }
            _ => Err("dy, pairs, starts and weight".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        pair_cost(&self.conv, inputs[1])
    }

    fn describe(&self) -> String {
        format!("{}.input_gradient", self.conv.describe())
    }
}

/// dw of a sparse convolution. Inputs: x [S, C], dy [O, K], pairs, starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseConv3dWeightGradient {
    /// Of what.
    pub conv: SparseConv3d,
}

impl Operator for SparseConv3dWeightGradient {
    fn kind(&self) -> &'static str {
        "SparseConv3dWeightGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [x, dy, _, _]
                if x.shape.get(1) == Some(&Dim::from(self.conv.in_channels))
                    && dy.shape.get(1) == Some(&Dim::from(self.conv.out_channels)) =>
            {
                Ok(vec![weight_type(&self.conv)])
            }
            _ => Err("x, dy, pairs and starts".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        pair_cost(&self.conv, inputs[2])
    }

    fn describe(&self) -> String {
        format!("{}.weight_gradient", self.conv.describe())
    }
}

/// The features of sites in a dense map whose channels hold the heights: the adjoint of `SparseToDense`.
/// Inputs: map [N, C · D, H, W], sites [S, 4]. Output: [S, C].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenseToSparse {
    /// The grid that the sites lie in, z y x.
    pub cells: [usize; 3],
}

impl Operator for DenseToSparse {
    fn kind(&self) -> &'static str {
        "DenseToSparse"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [map, sites] = inputs else {
            return Err("a map and sites".to_owned());
        };
        check_sites(sites)?;
        let channels = match map.shape.as_slice() {
            [_, channels, ..] if self.cells[0] > 0 => channels.floor_div(self.cells[0] as i64),
            _ => return Err("a map [N, C · D, H, W]".to_owned()),
        };
        Ok(vec![TensorType::f32([sites.shape[0].clone(), channels])])
    }

    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }

    fn describe(&self) -> String {
        let [depth, height, width] = self.cells;
        format!("DenseToSparse({depth}, {height}, {width})")
    }
}

behind_the_loss!(
    SparseConv3dInputGradient,
    SparseConv3dWeightGradient,
    DenseToSparse
);

fn weight_type(conv: &SparseConv3d) -> TensorType {
    let [z, y, x] = conv.window.kernel;
    TensorType::f32([conv.out_channels, z, y, x, conv.in_channels].map(Dim::from))
}

fn pair_cost(conv: &SparseConv3d, pairs: &TensorType) -> Cost {
    Cost::macs(pairs.shape[0].clone() * (conv.in_channels * conv.out_channels))
}
