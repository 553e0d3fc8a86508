//! The two gradients of a convolution.

use percept_graph::{Conv2dInputGradient, Conv2dWeightGradient};
use percept_kernels::gradient;
use percept_kernels::reference::{self, Real};

use super::conv::shape;
use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

impl Execute for Conv2dInputGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, mode, residual) = (shape(&self.conv, at.y()), at.mode, at.residual());
        Ok(Kernel::new(move |cpu, io| {
            let (dy, weight, residual) = (io.read(0)?, io.read(1)?, io.read_if(residual)?);
            let dx = io.write(0)?;
            gradient::conv2d_input_gradient(cpu, &shape, mode, dy, weight, residual, dx);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let shape = shape(&self.conv, run.shape());
        reference::gradient::conv2d_input_gradient(&shape, run.x(), run.arg(1), run.y());
        Ok(())
    }
}

impl Execute for Conv2dWeightGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, mode) = (shape(&self.conv, at.x()), at.mode);
        Ok(Kernel::new(move |cpu, io| {
            let (x, dy) = (io.read(0)?, io.read(1)?);
            gradient::conv2d_weight_gradient(cpu, &shape, mode, x, dy, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let shape = shape(&self.conv, run.dims());
        reference::gradient::conv2d_weight_gradient(&shape, run.x(), run.arg(1), run.y());
        Ok(())
    }
}
