//! The gradients of normalisations: of the input, and of both parameters.

use percept_graph::{BatchNormGradient, LayerNormGradient};
use percept_kernels::gradient;
use percept_kernels::reference::{self, Real};

use super::norm::channels;
use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

impl Execute for BatchNormGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, eps) = (channels(at.x()), self.norm.eps);
        let batch_statistics = self.batch_statistics;
        let kernel = Kernel::new(move |cpu, io| {
            let part = |position| io.read::<f32>(position);
            let (x, gamma, mean, variance) = (part(0)?, part(2)?, part(3)?, part(4)?);
            io.modify::<f32>(0, 1)?;
            let [dx, dgamma, dbeta] = io.write_each()?;
            let norm = gradient::BatchNormGradient {
                eps,
                batch_statistics,
                gamma,
                mean,
                variance,
                dgamma,
                dbeta,
            };
            gradient::batch_norm_gradient(cpu, &shape, norm, x, dx);
            Ok(())
        });
        Ok(kernel.in_place(1))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (shape, eps) = (channels(run.dims()), T::from_f64(f64::from(self.norm.eps)));
        let [x, dy, gamma, mean, variance] = [0, 1, 2, 3, 4].map(|at| run.arg(at));
        let [dx, dgamma, dbeta] = run.y_each();
        reference::gradient::batch_norm_gradient(
            &shape,
            eps,
            self.batch_statistics,
            x,
            dy,
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
