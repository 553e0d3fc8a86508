//! The optimiser's ops: state that moves in place.
//!
//! Operands: weight, gradient, moments, learning rate, steps (AdamW), momentum (AdamW, where given), and a clip factor or not.

use percept_graph::{AdamW, ClipFactor, Sgd};
use percept_kernels::optimiser::{self, AdamWStep, SgdStep};
use percept_kernels::reference::{self, Real};

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// How a step moves a weight, from the numbers at these positions.
fn sgd_step(op: &Sgd, rate: f64, clip: Option<f64>) -> SgdStep {
    SgdStep {
        rate,
        momentum: f64::from(op.momentum),
        weight_decay: f64::from(op.weight_decay),
        nesterov: op.nesterov,
        clip: clip.unwrap_or(1.0),
    }
}

/// The position of the learning rate: behind weight, gradient and velocity.
fn sgd_rate(op: &Sgd) -> usize {
    2 + usize::from(op.momentum != 0.0)
}

impl Execute for Sgd {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (op, updates, rate) = (*self, self.updates(), sgd_rate(self));
        let clip = (at.inputs.len() > rate + 1).then_some(rate + 1);
        Ok(Kernel::new(move |cpu, io| {
            let clip = clip.map(|position| io.number(position)).transpose()?;
            let step = sgd_step(&op, io.number(rate)?, clip);
            let gradient = io.read(1)?;
            for &(output, operand) in updates {
                io.modify::<f32>(output, operand)?;
            }
            let mut state = io.write_all()?.into_iter();
            let weight = state.next().ok_or("a weight moves")?;
            optimiser::sgd(cpu, &step, gradient, weight, state.next());
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let rate = sgd_rate(self);
        let step = sgd_step(self, run.number(rate).unwrap_or(0.0), run.number(rate + 1));
        let gradient = run.arg(1);
        run.start(self.updates());
        let mut state = run.outputs.iter_mut().map(Vec::as_mut_slice);
        let weight = state.next().ok_or("a weight moves")?;
        reference::sgd(&step, gradient, weight, state.next());
        Ok(())
    }

    fn updates(&self) -> &'static [(usize, usize)] {
        match self.momentum == 0.0 {
            true => &[(0, 0)],
            false => &[(0, 0), (1, 2)],
        }
    }
}

/// The position of the momentum that is given, and that of a clip factor.
fn adam_w_extras(op: &AdamW) -> (Option<usize>, usize) {
    match op.given_momentum {
        true => (Some(6), 7),
        false => (None, 6),
    }
}

fn adam_w_step(
    op: &AdamW,
    rate: f64,
    count: f64,
    momentum: Option<f64>,
    clip: Option<f64>,
) -> AdamWStep {
    let [beta1, beta2] = op.betas.map(f64::from);
    AdamWStep {
        rate,
        betas: [momentum.unwrap_or(beta1), beta2],
        eps: f64::from(op.eps),
        weight_decay: f64::from(op.weight_decay),
        count,
        clip: clip.unwrap_or(1.0),
    }
}

impl Execute for AdamW {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (op, updates) = (*self, self.updates());
        let (momentum, clip) = adam_w_extras(self);
        let clip = (at.inputs.len() > clip).then_some(clip);
        Ok(Kernel::new(move |cpu, io| {
            let momentum = momentum.map(|position| io.number(position)).transpose()?;
            let clip = clip.map(|position| io.number(position)).transpose()?;
            let step = adam_w_step(&op, io.number(4)?, io.number(5)?, momentum, clip);
            let gradient = io.read(1)?;
            for &(output, operand) in updates {
                io.modify::<f32>(output, operand)?;
            }
            let [weight, first, second] = io.write_each()?;
            optimiser::adam_w(cpu, &step, gradient, weight, first, second);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let number = |position, otherwise| run.number(position).unwrap_or(otherwise);
        let (momentum, clip) = adam_w_extras(self);
        let momentum = momentum.and_then(|position| run.number(position));
        let clip = run.number(clip);
        let step = adam_w_step(self, number(4, 0.0), number(5, 1.0), momentum, clip);
        let gradient = run.arg(1);
        run.start(self.updates());
        let [weight, first, second] = run.y_each();
        reference::adam_w(&step, gradient, weight, first, second);
        Ok(())
    }

    fn updates(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (1, 2), (2, 3)]
    }
}

impl Execute for ClipFactor {
    fn prepare(&self, _: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let max_norm = f64::from(self.max_norm);
        Ok(Kernel::new(move |cpu, io| {
            let factor = optimiser::clip_factor(cpu, max_norm, &io.read_from(0)?);
            io.write::<f32>(0)?.fill(factor as f32);
            Ok(())
        }))
    }

    /// min(1, max_norm / (‖gradients‖ + 1e-6)).
    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let gradients = run.inputs.iter().flat_map(|(_, arg)| &arg.data);
        let squares = gradients.map(|&value| value * value);
        let norm = squares.sum::<T>().sqrt().to_f64();
        let factor = (f64::from(self.max_norm) / (norm + 1e-6)).min(1.0);
        run.y().fill(T::from_f64(factor));
        Ok(())
    }
}
