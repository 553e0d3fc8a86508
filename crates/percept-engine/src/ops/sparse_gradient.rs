//! The gradients of sparse convolution, over the rulebooks of the forward pass, and the way back from a dense map.

use percept_graph::{
    DenseToSparse, SparseConv3d, SparseConv3dInputGradient, SparseConv3dWeightGradient, Window3d,
};
use percept_kernels::gradient;
use percept_kernels::reference::{self, Real};
use percept_kernels::sparse::{self, DenseShape, InputPairs, SparseConvShape};

use super::reference::index;
use super::sparse::{pairs, shape};
use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// Whether every site reads the sites around it, and is read by them at the opposite taps.
fn reads_both_ways(conv: &SparseConv3d) -> bool {
    let Window3d {
        kernel,
        stride,
        padding,
    } = conv.window;
    let is_centred = (0..3).all(|axis| kernel[axis] == 2 * padding[axis] + 1);
    conv.submanifold && stride == [1; 3] && is_centred
}

impl Execute for SparseConv3dInputGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, rows) = (shape(&self.conv), at.y()[0]);
        let both_ways = reads_both_ways(&self.conv);
        Ok(Kernel::new(move |cpu, io| {
            let (dy, weight) = (io.read(0)?, io.read(3)?);
            let (pairs, starts) = (io.read(1)?, io.read(2)?);
            let SparseConvShape {
                taps, block_rows, ..
            } = shape;
            let turned = (!both_ways)
                .then(|| sparse::transposed_rulebook(pairs, starts, taps, rows, block_rows));
            let pairs = match &turned {
                Some(turned) => InputPairs::Transposed(turned),
                None => InputPairs::Opposite(pairs, starts),
            };
            sparse::input_gradient(cpu, &shape, weight, dy, &pairs, io.write(0)?);
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
            let (x, dy, pairs, starts) = (io.read(0)?, io.read(1)?, io.read(2)?, io.read(3)?);
            sparse::weight_gradient(cpu, &shape, x, dy, pairs, starts, io.write(0)?);
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
