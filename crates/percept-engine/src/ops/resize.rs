//! Resizing of maps, with its gradient.

use percept_graph::{Resize, ResizeGradient, ResizeMode};
use percept_kernels::gradient;
use percept_kernels::reference::{self, Real};
use percept_kernels::resize::{self, ResizeShape};

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// How a map [N, C, H, W] is resized, or `None` when it has the size already.
fn method(op: &Resize, x: &[usize], y: &[usize]) -> Option<(resize::Resize, ResizeShape)> {
    if x[2..] == y[2..] {
        return None;
    }
    let how = match op.mode {
        ResizeMode::Nearest => resize::Resize::NEAREST,
        ResizeMode::Bilinear => resize::Resize::BILINEAR,
        ResizeMode::Bicubic => resize::Resize::BICUBIC,
        ResizeMode::BilinearAntialias => resize::Resize::ANTIALIASED_BILINEAR,
        ResizeMode::BicubicAntialias => resize::Resize::ANTIALIASED_BICUBIC,
    };
    let step = [op.step(x[2], y[2]), op.step(x[3], y[3])];
    let shape = ResizeShape {
        planes: x[0] * x[1],
        input: [x[2], x[3]],
        output: [y[2], y[3]],
    };
    Some((how.with_step(step), shape))
}

/// A map that has its size already.
fn copy() -> Kernel {
    Kernel::new(|_, io| {
        let x = io.read::<f32>(0)?;
        io.write(0)?.copy_from_slice(x);
        Ok(())
    })
}

impl Execute for Resize {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let Some((how, shape)) = method(self, at.x(), at.y()) else {
            return Ok(copy());
        };
        Ok(Kernel::new(move |cpu, io| {
            resize::resize(cpu, &how, &shape, io.read(0)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let x = run.x();
        match method(self, run.dims(), run.shape()) {
            Some((how, shape)) => reference::resize(&how, &shape, x, run.y()),
            None => run.y().copy_from_slice(x),
        }
        Ok(())
    }
}

impl Execute for ResizeGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let Some((how, shape)) = method(&self.resize, at.y(), at.x()) else {
            return Ok(copy());
        };
        Ok(Kernel::new(move |cpu, io| {
            gradient::resize_gradient(cpu, &how, &shape, io.read(0)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let dy = run.x();
        match method(&self.resize, run.shape(), run.dims()) {
            Some((how, shape)) => reference::gradient::resize_gradient(&how, &shape, dy, run.y()),
            None => run.y().copy_from_slice(dy),
        }
        Ok(())
    }
}
