//! The gradients of sparse convolution, over the rulebooks of the forward pass, and the way back from a dense map.

use percept_graph::{DenseToSparse, SparseConv3dInputGradient, SparseConv3dWeightGradient};
use percept_kernels::gradient;
use percept_kernels::reference::{self, Real};
use percept_kernels::sparse::{self, DenseShape, Rulebook};

use super::reference::index;
use super::sparse::{pairs, shape};
use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;
use crate::operands::Operands;

/// The rulebook whose pairs and starts are these operands.
fn rulebook(io: &Operands<'_>, pairs: usize, starts: usize) -> Result<Rulebook, String> {
    Ok(Rulebook {
        pairs: io.read(pairs)?.to_vec(),
        starts: io.read(starts)?.to_vec(),
    })
}

impl Execute for SparseConv3dInputGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, rows) = (shape(&self.conv), at.y()[0]);
        Ok(Kernel::new(move |cpu, io| {
            let (dy, weight, book) = (io.read(0)?, io.read(3)?, rulebook(io, 1, 2)?);
            let turned = sparse::transposed_rulebook(&book, shape.taps, rows, shape.block_rows);
            sparse::input_gradient(cpu, &shape, weight, dy, &turned, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let shape = shape(&self.conv);
        let pairs = pairs(&shape, run.arg(1), run.arg(2));
        let (dy, weight) = (run.x(), run.arg(3));
        reference::gradient::sparse_input_gradient(&shape, pairs, weight, dy, run.y());
        Ok(())
    }
}

impl Execute for SparseConv3dWeightGradient {
    fn prepare(&self, _: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let shape = shape(&self.conv);
        Ok(Kernel::new(move |cpu, io| {
            let (x, dy, book) = (io.read(0)?, io.read(1)?, rulebook(io, 2, 3)?);
            sparse::weight_gradient(cpu, &shape, x, dy, &book, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let shape = shape(&self.conv);
        let pairs = pairs(&shape, run.arg(2), run.arg(3));
        let (x, dy) = (run.x(), run.arg(1));
        reference::gradient::sparse_weight_gradient(&shape, pairs, x, dy, run.y());
        Ok(())
    }
}

impl Execute for DenseToSparse {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let shape = DenseShape {
            samples: at.x()[0],
            channels: at.y()[1],
            cells: self.cells,
        };
        Ok(Kernel::new(move |cpu, io| {
            let (map, sites) = (io.read(0)?, io.read(1)?);
            gradient::dense_to_sparse(cpu, &shape, sites, map, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let [depth, height, width] = self.cells;
        let (x, sites, channels) = (run.x(), run.arg(1), run.shape()[1]);
        let y = run.y();
        for (row, site) in sites.chunks_exact(4).enumerate() {
            let [n, z, i, j] = [0, 1, 2, 3].map(|axis| index(site[axis]));
            for c in 0..channels {
                let plane = (n * channels + c) * depth + z;
                y[row * channels + c] = x[(plane * height + i) * width + j];
            }
        }
        Ok(())
    }
}
