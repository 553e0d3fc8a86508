//! Rows by number, and their adjoint.

use percept_graph::{Gather, ScatterAdd};
use percept_kernels::layout;
use percept_kernels::reference::Real;

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;
use crate::operands::by_width;

/// Elements of a row [.., width].
fn row_width(dims: &[usize]) -> usize {
    dims.get(1..).unwrap_or(&[]).iter().product()
}

/// Indices from the data, which must be below `limit`.
pub fn rows_below(indices: &[i32], limit: usize) -> Result<Vec<usize>, String> {
    let in_range = |&index: &i32| {
        let row = usize::try_from(index).ok().filter(|&row| row < limit);
        row.ok_or_else(|| format!("index {index} is outside 0..{limit}"))
    };
    indices.iter().map(in_range).collect()
}

/// The same, of numbers on the reference engine.
pub fn real_rows_below<T: Real>(indices: &[T], limit: usize) -> Result<Vec<usize>, String> {
    let in_range = |&value: &T| {
        let row = value.to_f64();
        let fits = (0.0..limit as f64).contains(&row);
        fits.then_some(row as usize)
            .ok_or_else(|| format!("index {row} is outside 0..{limit}"))
    };
    indices.iter().map(in_range).collect()
}

impl Execute for Gather {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (dtype, width) = (at.dtype(), row_width(at.x()));
        let count = at.x().first().copied().unwrap_or(0);
        Ok(Kernel::new(move |cpu, io| {
            let rows = rows_below(io.read(1)?, count)?;
            by_width!(dtype, W => {
                let (x, y) = (io.read_bits::<W>(0)?, io.write_bits(0)?);
                layout::gather_rows(cpu, width, x, &rows, y);
            });
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (x, width) = (run.x(), row_width(run.shape()));
        let rows = real_rows_below(run.arg(1), run.dims()[0])?;
        for (row, y) in rows.into_iter().zip(run.y().chunks_exact_mut(width.max(1))) {
            y.copy_from_slice(&x[row * width..][..width]);
        }
        Ok(())
    }
}

impl Execute for ScatterAdd {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (count, width) = (at.y()[0], row_width(at.x()));
        Ok(Kernel::new(move |_, io| {
            let (x, rows) = (io.read::<f32>(0)?, rows_below(io.read(1)?, count)?);
            let y = io.write::<f32>(0)?;
            y.fill(0.0);
            for (row, x) in rows.into_iter().zip(x.chunks_exact(width.max(1))) {
                for (y, &x) in y[row * width..].iter_mut().zip(x) {
                    *y += x;
                }
            }
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (x, width) = (run.x(), row_width(run.shape()));
        let rows = real_rows_below(run.arg(1), run.shape()[0])?;
        for (row, x) in rows.into_iter().zip(x.chunks_exact(width.max(1))) {
            for (y, &x) in run.y()[row * width..].iter_mut().zip(x) {
                *y += x;
            }
        }
        Ok(())
    }
}
