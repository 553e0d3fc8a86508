//! Sparse convolution: sites, rulebooks, features by rulebook, and the way to a dense map.

use percept_graph::{ActiveSites, Rulebook, SparseConv3d, SparseToDense, Tensor, Window3d};
use percept_kernels::Cpu;
use percept_kernels::reference::Real;
use percept_kernels::sparse::{
    self, DenseShape, PackedSparseConv, SparseConvShape, Window, sparse_conv, to_dense,
};

use super::prepare::{bias_only, epilogue};
use super::reference::index;
use super::{Execute, Prepare, Reference, integers};
use crate::EngineError;
use crate::empty::OnMap;
use crate::kernel::Kernel;
use crate::precision::Precision;
use crate::weights::{Form, scale_rows};

fn window(window: &Window3d) -> Window {
    Window {
        kernel: window.kernel,
        stride: window.stride,
        padding: window.padding,
    }
}

/// The kernels' form of a sparse convolution.
pub fn shape(op: &SparseConv3d) -> SparseConvShape {
    SparseConvShape {
        in_channels: op.in_channels,
        out_channels: op.out_channels,
        taps: op.window.taps(),
        block_rows: Rulebook::BLOCK_ROWS,
    }
}

/// The pairs of a rulebook on the reference engine, as (output row, input row, tap).
pub fn pairs<'a, T: Real>(
    shape: &SparseConvShape,
    pairs: &'a [T],
    starts: &'a [T],
) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
    let taps = shape.taps;
    let group_of = |pair: usize| starts.partition_point(|start| index(*start) <= pair) - 1;
    pairs
        .chunks_exact(2)
        .enumerate()
        .map(move |(pair, rows)| (index(rows[0]), index(rows[1]), group_of(pair) % taps))
}

fn active_sites(
    op: &ActiveSites,
    cpu: &Cpu,
    args: &[Tensor<'_>],
) -> Result<Vec<Tensor<'static>>, String> {
    let sites = args[0].values()?;
    let sites = sparse::output_sites(cpu, &window(&op.window), op.cells, sites);
    let sites = sites.map_err(|error| error.to_string())?;
    Ok(vec![Tensor::from_values([sites.len() / 4, 4], sites)?])
}

impl Execute for ActiveSites {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (op, shapes) = (self.clone(), at.inputs.to_vec());
        Ok(Kernel::defining(move |cpu, io| {
            active_sites(&op, cpu, &io.tensors(&shapes)?)
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        run.define(|cpu, args| active_sites(self, cpu, args))
    }
}

fn rulebook(op: &Rulebook, cpu: &Cpu, args: &[Tensor<'_>]) -> Result<Vec<Tensor<'static>>, String> {
    let (sites, output_sites) = (args[0].values()?, args[1].values()?);
    let (window, rows) = (window(&op.window), Rulebook::BLOCK_ROWS);
    let book = sparse::rulebook(cpu, &window, op.cells, sites, output_sites, rows);
    let book = book.map_err(|error| error.to_string())?;
    Ok(vec![
        Tensor::from_values([book.pairs.len() / 2, 2], book.pairs)?,
        Tensor::from_values([book.starts.len()], book.starts)?,
    ])
}

impl Execute for Rulebook {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (op, shapes) = (self.clone(), at.inputs.to_vec());
        Ok(Kernel::defining(move |cpu, io| {
            rulebook(&op, cpu, &io.tensors(&shapes)?)
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        run.define(|cpu, args| rulebook(self, cpu, args))
    }
}

/// Operands: features, sites, pairs, starts; then parameters where they are values, or the residual.
impl Execute for SparseConv3d {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        if let Some(grid) = at.step.fused.input_bytes {
            return integers::sparse_conv(self, at, grid);
        }
        let shape = shape(self);
        let packing = at.packing(Form::Sparse, &[Precision::F32])?;
        if at.parameters_are_values() {
            let bias = self.bias.then_some(5);
            return Ok(Kernel::new(move |cpu, io| {
                let packed = PackedSparseConv::pack(&shape, io.read(4)?);
                let (x, pairs, starts) = (io.read(0)?, io.read(2)?, io.read(3)?);
                let epilogue = bias_only(io, bias)?;
                sparse_conv(cpu, &packed, x, pairs, starts, epilogue, io.write(0)?);
                Ok(())
            }));
        }
        let width = self.window.taps() * self.in_channels;
        let (weights, bias) = at.contraction(packing, |weight, scale| {
            let weight = scale_rows(weight, width, scale, |row| row);
            PackedSparseConv::pack(&shape, &weight)
        })?;
        let (residual, activation) = (at.residual(), at.activation());
        Ok(Kernel::new(move |cpu, io| {
            let (x, pairs, starts) = (io.read(0)?, io.read(2)?, io.read(3)?);
            let bias = bias.as_ref().map(|bias| bias.as_slice());
            let epilogue = epilogue(io, bias, residual, activation)?;
            sparse_conv(cpu, &weights, x, pairs, starts, epilogue, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (inputs, outputs, taps) = (self.in_channels, self.out_channels, self.window.taps());
        let (x, weight) = (run.x(), &run.params[0]);
        let pairs = pairs(&shape(self), run.arg(2), run.arg(3));
        let bias = run.param_if(self.bias, 1);
        let y = run.y();
        if let Some(bias) = bias {
            for (at, y) in y.iter_mut().enumerate() {
                *y = bias[at % outputs];
            }
        }
        for (to, from, tap) in pairs {
            for k in 0..outputs {
                for c in 0..inputs {
                    let w = weight[(k * taps + tap) * inputs + c];
                    y[to * outputs + k] += w * x[from * inputs + c];
                }
            }
        }
        Ok(())
    }
}

impl Execute for SparseToDense {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let shape = DenseShape {
            samples: at.inputs[2][0],
            channels: at.x()[1],
            cells: self.cells,
        };
        let kernel = Kernel::new(move |cpu, io| {
            to_dense(cpu, &shape, io.read(1)?, io.read(0)?, io.write(0)?);
            Ok(())
        });
        Ok(kernel.on_map(OnMap::Origin(shape)))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let [depth, height, width] = self.cells;
        let (x, channels, sites) = (run.x(), run.dims()[1], run.arg(1));
        let y = run.y();
        for (site, x) in sites.chunks_exact(4).zip(x.chunks_exact(channels)) {
            let [n, z, row, column] = [0, 1, 2, 3].map(|axis| index(site[axis]));
            for (c, &x) in x.iter().enumerate() {
                let plane = (n * channels + c) * depth + z;
                y[(plane * height + row) * width + column] = x;
            }
        }
        Ok(())
    }
}
