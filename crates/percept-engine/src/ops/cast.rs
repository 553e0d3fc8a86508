//! Numbers in another float type.

use percept_graph::{Cast, RectifiedCast};
use percept_kernels::reference::Real;
use percept_kernels::{gradient, kept};

use super::norm::channels;
use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// Runs `$body` with `$kept` the type that numbers of `$dtype` are kept in.
macro_rules! by_kept {
    ($dtype:expr, $kept:ident => $body:expr) => {
        match $dtype {
            percept_graph::DType::F16 => {
                type $kept = half::f16;
                $body
            }
            percept_graph::DType::BF16 => {
                type $kept = half::bf16;
                $body
            }
            _ => {
                type $kept = f32;
                $body
            }
        }
    };
}
pub(super) use by_kept;

impl Execute for Cast {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (from, to) = (at.dtype(), self.dtype);
        Ok(Kernel::new(move |cpu, io| {
            by_kept!(from, From => by_kept!(to, To => {
                kept::convert(cpu, io.read::<From>(0)?, io.write::<To>(0)?);
            }));
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let x = run.x();
        by_kept!(self.dtype, To => {
            for (y, &x) in run.y().iter_mut().zip(x) {
                *y = kept::reference::rounded::<To, T>(x);
            }
        });
        Ok(())
    }
}

impl Execute for RectifiedCast {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, eps, to) = (channels(at.x()), self.norm.eps, self.dtype);
        Ok(Kernel::new(move |cpu, io| {
            let part = |position| io.read::<f32>(position);
            let norm = gradient::BatchNormAgain {
                eps,
                rectified: true,
                gamma: part(1)?,
                beta: part(2)?,
                mean: part(3)?,
                variance: part(4)?,
            };
            by_kept!(to, To => {
                gradient::keep_rectified(cpu, &shape, norm, io.read(0)?, io.write::<To>(0)?);
            });
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let shape = channels(run.dims());
        let eps = T::from_f64(f64::from(self.norm.eps));
        let [x, gamma, beta, mean, variance] = [0, 1, 2, 3, 4].map(|at| run.arg(at));
        by_kept!(self.dtype, To => {
            for (i, (kept, &x)) in run.y().iter_mut().zip(x).enumerate() {
                let c = i / shape.area % shape.channels;
                let scale = gamma[c] / (variance[c] + eps).sqrt();
                let passes = |x: T| (x - mean[c]) * scale + beta[c] > T::ZERO;
                *kept = kept::reference::rounded_within::<To, T>(x, passes);
            }
        });
        Ok(())
    }
}
