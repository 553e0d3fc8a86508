//! Sparse 3D convolution on active sites.
//!
//! A sparse tensor is a matrix of features, one row a site, and the sites themselves: `[batch, z, y, x]` rows of i32,
//! strictly ascending. A *rulebook* lists which input row meets which output row at which tap of the kernel; it depends on
//! the sites only, so that layers of one resolution share it. The convolution then gathers, multiplies and adds, block of
//! output rows by block of output rows: no two threads ever write the same row, and the order of sums is fixed.

mod conv;
mod dense;
mod gradient;
mod rulebook;
mod sites;
mod weight_gradient;

pub use conv::{PackedSparseConv, SparseConvShape, sparse_conv};
pub use dense::{DenseShape, to_dense};
pub use gradient::{InputPairs, input_gradient, transposed_rulebook};
pub use rulebook::{Rulebook, rulebook};
pub use sites::output_sites;
pub use weight_gradient::weight_gradient;

use thiserror::Error;

/// A sparse convolution's geometry, z y x: output site o reads input sites o · stride - padding + tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Taps along each axis.
    pub kernel: [usize; 3],
    /// Distance between the windows of neighbouring outputs.
    pub stride: [usize; 3],
    /// Empty sites in front of the first.
    pub padding: [usize; 3],
}

impl Window {
    /// Number of taps.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Sites of the output along each axis; none where the kernel does not fit.
    pub fn output_cells(&self, cells: [usize; 3]) -> [usize; 3] {
        std::array::from_fn(|axis| {
            let free = (cells[axis] + 2 * self.padding[axis]).checked_sub(self.kernel[axis]);
            free.map_or(0, |free| free / self.stride[axis] + 1)
        })
    }
}

/// What can be wrong with sites that came from outside.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SparseError {
    #[error("site {row} is {site:?}, outside a grid of {cells:?} (z, y, x)")]
    Outside {
        row: usize,
        site: [i32; 4],
        cells: [usize; 3],
    },
    #[error("site {row} is {site:?}, which does not come after the one before it")]
    Unsorted { row: usize, site: [i32; 4] },
    #[error("{samples} samples of {cells:?} (z, y, x) are more sites than can be numbered")]
    TooLarge { samples: usize, cells: [usize; 3] },
}

#[cfg(test)]
mod tests;
