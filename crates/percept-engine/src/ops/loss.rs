//! Cross-entropy with its gradient, in f64 inside: a batch has few logits.

use percept_graph::{CrossEntropy, CrossEntropyGradient};
use percept_kernels::reference::{self, Real};

use super::gather::{real_rows_below, rows_below};
use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

impl Execute for CrossEntropy {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (smoothing, classes) = (f64::from(self.smoothing), at.x()[1]);
        Ok(Kernel::new(move |_, io| {
            let labels = rows_below(io.read(1)?, classes)?;
            let logits = doubles(io.read(0)?);
            let loss = reference::cross_entropy(smoothing, classes, &logits, &labels);
            io.write::<f32>(0)?.fill(loss as f32);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (classes, smoothing) = (run.dims()[1], T::from_f64(f64::from(self.smoothing)));
        let labels = real_rows_below(run.arg(1), classes)?;
        let loss = reference::cross_entropy(smoothing, classes, run.x(), &labels);
        run.y().fill(loss);
        Ok(())
    }
}

impl Execute for CrossEntropyGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (smoothing, classes) = (f64::from(self.loss.smoothing), at.x()[1]);
        Ok(Kernel::new(move |_, io| {
            let labels = rows_below(io.read(1)?, classes)?;
            let (logits, dloss) = (doubles(io.read(0)?), io.number(2)?);
            let mut dlogits = vec![0.0; logits.len()];
            reference::cross_entropy_gradient(
                smoothing,
                classes,
                &logits,
                &labels,
                dloss,
                &mut dlogits,
            );
            for (to, from) in io.write::<f32>(0)?.iter_mut().zip(dlogits) {
                *to = from as f32;
            }
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let classes = run.dims()[1];
        let smoothing = T::from_f64(f64::from(self.loss.smoothing));
        let labels = real_rows_below(run.arg(1), classes)?;
        let (logits, dloss) = (run.x(), run.arg(2)[0]);
        reference::cross_entropy_gradient(smoothing, classes, logits, &labels, dloss, run.y());
        Ok(())
    }
}
