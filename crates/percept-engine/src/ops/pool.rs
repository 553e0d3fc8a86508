//! Pooling with its gradients.

use percept_graph::{
    AdaptiveAvgPool2d, AdaptiveAvgPool2dGradient, AvgPool2d, AvgPool2dGradient, MaxPool2d,
    MaxPool2dGradient,
};
use percept_kernels::gradient;
use percept_kernels::int8::max_pool_quads;
use percept_kernels::pool2d::{self, Pool2dShape};
use percept_kernels::reference::{self, Real};

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

fn pool(x: &[usize], kernel: usize, stride: usize, padding: usize) -> Pool2dShape {
    Pool2dShape {
        batch: x[0],
        channels: x[1],
        height: x[2],
        width: x[3],
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [padding; 2],
        ceil_mode: false,
    }
}

/// The kernels' form of a pooling of maps [N, C, H, W].
pub fn max_pool(op: &MaxPool2d, x: &[usize]) -> Pool2dShape {
    pool(x, op.kernel, op.stride, op.padding)
}

fn avg_pool(op: &AvgPool2d, x: &[usize]) -> Pool2dShape {
    pool(x, op.kernel, op.stride, op.padding)
}

/// Planes, and the height and width of each.
fn planes(x: &[usize]) -> (usize, [usize; 2]) {
    (x[0] * x[1], [x[2], x[3]])
}

impl Execute for MaxPool2d {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let shape = max_pool(self, at.x());
        if at.output_form().is_some() {
            return Ok(Kernel::new(move |cpu, io| {
                max_pool_quads(cpu, &shape, io.read(0)?, io.write(0)?);
                Ok(())
            }));
        }
        Ok(Kernel::new(move |cpu, io| {
            pool2d::max_pool2d(cpu, &shape, io.read(0)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        reference::max_pool2d(&max_pool(self, run.dims()), run.x(), run.y());
        Ok(())
    }
}

impl Execute for MaxPool2dGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let shape = max_pool(&self.pool, at.x());
        Ok(Kernel::new(move |cpu, io| {
            gradient::max_pool2d_gradient(cpu, &shape, io.read(0)?, io.read(1)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let shape = max_pool(&self.pool, run.dims());
        reference::gradient::max_pool2d_gradient(&shape, run.x(), run.arg(1), run.y());
        Ok(())
    }
}

impl Execute for AvgPool2d {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, with_pad) = (avg_pool(self, at.x()), self.count_include_pad);
        Ok(Kernel::new(move |cpu, io| {
            pool2d::avg_pool2d(cpu, &shape, with_pad, io.read(0)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let shape = avg_pool(self, run.dims());
        reference::avg_pool2d(&shape, self.count_include_pad, run.x(), run.y());
        Ok(())
    }
}

impl Execute for AvgPool2dGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, with_pad) = (avg_pool(&self.pool, at.y()), self.pool.count_include_pad);
        Ok(Kernel::new(move |cpu, io| {
            gradient::avg_pool2d_gradient(cpu, &shape, with_pad, io.read(0)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (shape, with_pad) = (
            avg_pool(&self.pool, run.shape()),
            self.pool.count_include_pad,
        );
        reference::gradient::avg_pool2d_gradient(&shape, with_pad, run.x(), run.y());
        Ok(())
    }
}

impl Execute for AdaptiveAvgPool2d {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let ((planes, input), output) = (planes(at.x()), self.output);
        Ok(Kernel::new(move |cpu, io| {
            pool2d::adaptive_avg_pool2d(cpu, planes, input, output, io.read(0)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (planes, input) = planes(run.dims());
        reference::adaptive_avg_pool2d(planes, input, self.output, run.x(), run.y());
        Ok(())
    }
}

impl Execute for AdaptiveAvgPool2dGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let ((planes, output), (_, input)) = (planes(at.x()), planes(at.y()));
        Ok(Kernel::new(move |cpu, io| {
            let (dy, dx) = (io.read(0)?, io.write(0)?);
            gradient::adaptive_avg_pool2d_gradient(cpu, planes, input, output, dy, dx);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let ((planes, output), (_, input)) = (planes(run.dims()), planes(run.shape()));
        let (dy, dx) = (run.x(), run.y());
        reference::gradient::adaptive_avg_pool2d_gradient(planes, input, output, dy, dx);
        Ok(())
    }
}
