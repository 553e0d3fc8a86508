//! Normalisation: by running statistics, by those of the batch (training), and by rows.

use percept_graph::{Activation, BatchNorm, BatchNormTraining, DType, LayerNorm};
use percept_kernels::gradient;
use percept_kernels::norm::{self, ChannelShape, fold_batch_norm};
use percept_kernels::reference::{self, Real};

use super::cast::by_kept;
use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// [N, C, ..] seen as [batch, channels, area].
pub fn channels(x: &[usize]) -> ChannelShape {
    ChannelShape {
        batch: x[0],
        channels: x[1],
        area: x[2..].iter().product(),
    }
}

impl Execute for BatchNorm {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let shape = channels(at.x());
        if at.parameters_are_values() {
            let eps = f64::from(self.eps);
            return Ok(Kernel::new(move |cpu, io| {
                let part = |position| io.read::<f32>(position);
                let (gamma, beta, mean, variance) = (part(1)?, part(2)?, part(3)?, part(4)?);
                let (scale, shift) = fold_batch_norm(gamma, beta, mean, variance, eps);
                let [scale, shift] =
                    [scale, shift].map(|v| v.into_iter().map(|v| v as f32).collect::<Vec<_>>());
                norm::batch_norm(cpu, &shape, io.read(0)?, &scale, &shift, io.write(0)?);
                Ok(())
            }));
        }
        let [scale, shift] = at.weights.batch_norm(at.graph, at.node())?;
        Ok(Kernel::new(move |cpu, io| {
            norm::batch_norm(cpu, &shape, io.read(0)?, &scale, &shift, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let [weight, shift, mean, variance] = run.params else {
            unreachable!("declared by the op")
        };
        let eps = T::from_f64(f64::from(self.eps));
        let scale = weight.iter().zip(variance);
        let scale: Vec<T> = scale.map(|(&w, &v)| w / (v + eps).sqrt()).collect();
        let moved = shift.iter().zip(mean).zip(&scale);
        let moved: Vec<T> = moved.map(|((&b, &m), &s)| b - m * s).collect();
        reference::batch_norm(&channels(run.dims()), run.x(), &scale, &moved, run.y());
        Ok(())
    }
}

impl Execute for BatchNormTraining {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (shape, eps, momentum) = (channels(at.x()), self.norm.eps, self.norm.momentum);
        let rectified = at.step.fused.activation == Some(Activation::Relu);
        let kept = at.step.fused.kept;
        let dtype = kept.iter().flatten().next();
        let dtype = dtype.map_or(DType::F32, |&value| at.graph.value(value).ty.dtype);
        Ok(Kernel::new(move |cpu, io| {
            let (x, gamma, beta) = (io.read(0)?, io.read(1)?, io.read(2)?);
            for statistic in [3, 4] {
                io.modify::<f32>(statistic, statistic)?;
            }
            by_kept!(dtype, Narrow => {
                let (outputs, keeps) = io.write_and_rest::<f32, Narrow, 5>()?;
                let [y, mean, variance, running_mean, running_variance] = outputs;
                let norm = gradient::BatchNormTraining {
                    eps,
                    momentum,
                    rectified,
                    gamma,
                    beta,
                    mean,
                    variance,
                    running_mean,
                    running_variance,
                };
                let mut keeps = keeps.into_iter();
                let [x_kept, y_kept] = kept.map(|kept| kept.and_then(|_| keeps.next()));
                let keeps = gradient::Keeps { x: x_kept, y: y_kept };
                gradient::batch_norm_training_keeping(cpu, &shape, norm, keeps, x, y);
            });
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (shape, x) = (channels(run.dims()), run.x());
        let [gamma, beta, running_mean, running_variance] = run.params else {
            unreachable!("declared by the op")
        };
        let [y, mean, variance, next_mean, next_variance] = run.y_each();
        let eps = T::from_f64(f64::from(self.norm.eps));
        reference::gradient::batch_norm_training(&shape, eps, x, gamma, beta, y, mean, variance);
        let momentum = T::from_f64(f64::from(self.norm.momentum));
        let count = T::from_usize(shape.batch * shape.area);
        let unbiased = count / (count - T::ONE);
        for c in 0..shape.channels {
            let moved = |from: T, to: T| (T::ONE - momentum) * from + momentum * to;
            next_mean[c] = moved(running_mean[c], mean[c]);
            next_variance[c] = moved(running_variance[c], variance[c] * unbiased);
        }
        Ok(())
    }

    fn updates(&self) -> &'static [(usize, usize)] {
        &[(3, 3), (4, 4)]
    }
}

impl Execute for LayerNorm {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let eps = self.eps;
        if at.parameters_are_values() {
            return Ok(Kernel::new(move |cpu, io| {
                let (x, weight, bias) = (io.read(0)?, io.read(1)?, io.read(2)?);
                norm::layer_norm(cpu, x, weight, bias, eps, io.write(0)?);
                Ok(())
            }));
        }
        let (weight, bias) = (at.vector(0)?, at.vector(1)?);
        Ok(Kernel::new(move |cpu, io| {
            norm::layer_norm(cpu, io.read(0)?, &weight, &bias, eps, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (weight, bias) = (&run.params[0], &run.params[1]);
        let eps = T::from_f64(f64::from(self.eps));
        reference::layer_norm(run.x(), weight, bias, eps, run.y());
        Ok(())
    }
}
