//! Rows of length one, with their gradient.

use percept_graph::{Normalize, NormalizeGradient};
use percept_kernels::normalize::{self, reference};
use percept_kernels::reference::Real;

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// The length of a row, at least 1: an empty row belongs to an empty tensor.
fn width(dims: &[usize]) -> usize {
    dims.last().copied().unwrap_or(1).max(1)
}

impl Execute for Normalize {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (width, eps) = (width(at.x()), self.eps);
        Ok(Kernel::new(move |cpu, io| {
            normalize::normalize(cpu, width, eps, io.read(0)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let eps = T::from_f64(f64::from(self.eps));
        reference::normalize(width(run.dims()), eps, run.x(), run.y());
        Ok(())
    }
}

impl Execute for NormalizeGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (width, eps) = (width(at.x()), self.norm.eps);
        Ok(Kernel::new(move |cpu, io| {
            let (x, dy) = (io.read(0)?, io.read(1)?);
            normalize::normalize_gradient(cpu, width, eps, x, dy, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let eps = T::from_f64(f64::from(self.norm.eps));
        let (width, x, dy) = (width(run.dims()), run.x(), run.arg(1));
        reference::normalize_gradient(width, eps, x, dy, run.y());
        Ok(())
    }
}
