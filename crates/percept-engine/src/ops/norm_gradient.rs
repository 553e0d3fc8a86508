//! The gradients of normalisations, of the input and of both parameters, and what is normalised again for them.

use percept_graph::{Activation, BatchNormAgain, BatchNormGradient, LayerNormGradient};
use percept_kernels::gradient;
use percept_kernels::reference::{self, Real};

use super::cast::by_kept;
use super::norm::channels;
use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// Position of the bias among the operands of a gradient behind a ReLU.
const BETA: usize = 5;

impl Execute for BatchNormAgain {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, eps, dtype) = (channels(at.x()), self.norm.eps, at.dtype());
        let rectified = at.step.fused.activation == Some(Activation::Relu);
        Ok(Kernel::new(move |cpu, io| {
            let part = |position| io.read::<f32>(position);
            let norm = gradient::BatchNormAgain {
                eps,
                rectified,
                gamma: part(1)?,
                beta: part(2)?,
                mean: part(3)?,
                variance: part(4)?,
            };
            by_kept!(dtype, X => {
                gradient::batch_norm_again(cpu, &shape, norm, io.read::<X>(0)?, io.write(0)?);
            });
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let eps = T::from_f64(f64::from(self.norm.eps));
        let [x, gamma, beta, mean, variance] = [0, 1, 2, 3, 4].map(|at| run.arg(at));
        let scale = gamma.iter().zip(variance);
        let scale: Vec<T> = scale.map(|(&w, &v)| w / (v + eps).sqrt()).collect();
        let moved = beta.iter().zip(mean).zip(&scale);
        let moved: Vec<T> = moved.map(|((&b, &m), &s)| b - m * s).collect();
        reference::batch_norm(&channels(run.dims()), x, &scale, &moved, run.y());
        Ok(())
    }
}

impl Execute for BatchNormGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, eps, dtype) = (channels(at.x()), self.norm.eps, at.dtype());
        let batch_statistics = self.batch_statistics;
        let beta = self.rectified.then_some(BETA);
        let kernel = Kernel::new(move |cpu, io| {
            let part = |position| io.read::<f32>(position);
            let (gamma, mean, variance) = (part(2)?, part(3)?, part(4)?);
            let rectified = io.read_if(beta)?;
            by_kept!(dtype, X => {
                let x = io.read::<X>(0)?;
                io.modify::<f32>(0, 1)?;
                let [dx, dgamma, dbeta] = io.write_each()?;
                let norm = gradient::BatchNormGradient {
                    eps,
                    batch_statistics,
                    rectified,
                    gamma,
                    mean,
                    variance,
                    dgamma,
                    dbeta,
                };
                gradient::batch_norm_gradient(cpu, &shape, norm, x, dx);
            });
            Ok(())
        });
        Ok(kernel.in_place(1))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (shape, eps) = (channels(run.dims()), T::from_f64(f64::from(self.norm.eps)));
        let [x, dy, gamma, mean, variance] = [0, 1, 2, 3, 4].map(|at| run.arg(at));
        let mut dy = dy.to_vec();
        if self.rectified {
            let beta = run.arg(BETA);
            reference::gradient::behind_relu(&shape, eps, x, gamma, beta, mean, variance, &mut dy);
        }
        let [dx, dgamma, dbeta] = run.y_each();
        reference::gradient::batch_norm_gradient(
            &shape,
            eps,
            self.batch_statistics,
            x,
            &dy,
            gamma,
            mean,
            variance,
            dx,
            dgamma,
            dbeta,
        );
        Ok(())
    }
}

impl Execute for LayerNormGradient {
    fn prepare(&self, _: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let eps = self.norm.eps;
        Ok(Kernel::new(move |cpu, io| {
            let (x, dy, gamma) = (io.read(0)?, io.read(1)?, io.read(2)?);
            let [dx, dgamma, dbeta] = io.write_each()?;
            gradient::layer_norm_gradient(cpu, eps, x, dy, gamma, dx, dgamma, dbeta);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let eps = T::from_f64(f64::from(self.norm.eps));
        let [x, dy, gamma] = [0, 1, 2].map(|at| run.arg(at));
        let [dx, dgamma, dbeta] = run.y_each();
        reference::gradient::layer_norm_gradient(eps, x, dy, gamma, dx, dgamma, dbeta);
        Ok(())
    }
}
