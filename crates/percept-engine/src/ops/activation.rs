//! Activations and softmax, with their gradients.

use percept_graph::{Activation, ActivationGradient, Softmax, SoftmaxGradient};
use percept_kernels::reference::{self, Real};
use percept_kernels::{self as kernels, elementwise, gradient, softmax};

use super::cast::by_kept;
use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// The kernels' name of an activation.
pub fn kernel_activation(op: Activation) -> kernels::Activation {
    match op {
        Activation::Relu => kernels::Activation::Relu,
        Activation::LeakyRelu { slope } => kernels::Activation::LeakyRelu(slope),
        Activation::Gelu => kernels::Activation::Gelu,
        Activation::Silu => kernels::Activation::Silu,
        Activation::Sigmoid => kernels::Activation::Sigmoid,
        Activation::Tanh => kernels::Activation::Tanh,
    }
}

/// The length of the last axis.
fn width(dims: &[usize]) -> usize {
    dims.last().copied().unwrap_or(1)
}

impl Execute for Activation {
    fn prepare(&self, _: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let activation = kernel_activation(*self);
        let kernel = Kernel::new(move |cpu, io| {
            match io.is_in_place(0) {
                true => elementwise::unary_in_place(cpu, activation, io.write(0)?),
                false => elementwise::unary(cpu, activation, io.read(0)?, io.write(0)?),
            }
            Ok(())
        });
        Ok(kernel.in_place(0))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        reference::unary(kernel_activation(*self), run.x(), run.y());
        Ok(())
    }
}

impl Execute for ActivationGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (activation, dtype) = (kernel_activation(self.activation), at.dtype());
        let kernel = Kernel::new(move |cpu, io| {
            by_kept!(dtype, Saved => {
                let saved = io.read::<Saved>(0)?;
                gradient::activation_gradient_in_place(cpu, activation, saved, io.modify(0, 1)?);
            });
            Ok(())
        });
        Ok(kernel.in_place(1))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let activation = kernel_activation(self.activation);
        reference::gradient::activation_gradient(activation, run.x(), run.arg(1), run.y());
        Ok(())
    }
}

impl Execute for Softmax {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let width = width(at.x());
        Ok(Kernel::new(move |cpu, io| {
            softmax::softmax(cpu, width, io.read(0)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        reference::softmax(width(run.dims()), run.x(), run.y());
        Ok(())
    }
}

impl Execute for SoftmaxGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let width = width(at.x());
        Ok(Kernel::new(move |cpu, io| {
            gradient::softmax_gradient(cpu, width, io.read(0)?, io.read(1)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        reference::gradient::softmax_gradient(width(run.dims()), run.x(), run.arg(1), run.y());
        Ok(())
    }
}
