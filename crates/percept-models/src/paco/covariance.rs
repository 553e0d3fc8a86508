//! The covariance of every view, and the factor of each image's metric, which later nodes reuse.

use std::sync::Arc;

use percept_graph::{Cost, CustomOp, OpContext, Operator, Tensor, TensorType};

use super::metric::Metric;
use super::scene::{Measure, Samples};
use super::wide;

/// Samples [V, S, D] and how often each counts, i32 [V, S], to Σ [V, D, D] and the cached factors [2, V/2, ..] of Σ+.
///
/// Gradients go back from Σ. The factors are a cache: those who read them give the samples' gradient themselves, in f64.
#[derive(Clone, Debug)]
pub(super) struct Covariance {
    pub measure: Measure,
}

impl Operator for Covariance {
    fn kind(&self) -> &'static str {
        "Covariance"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [samples, multiplicity] = inputs else {
            return Err("samples and how often each counts".to_owned());
        };
        let [v, count, d] = &samples.shape[..] else {
            return Err("samples [V, S, D]".to_owned());
        };
        if multiplicity.shape != samples.shape[..2] {
            return Err("a count for every sample".to_owned());
        }
        let size = match self.measure.form {
            super::LossForm::Gram => count.clone() * 2,
            _ => d.clone(),
        };
        let images = v.floor_div(2);
        Ok(vec![
            TensorType::f32([v.clone(), d.clone(), d.clone()]),
            TensorType::f32([2.into(), images, size.clone(), size]),
        ])
    }

    fn cost(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        let [samples, sigma, factor] = [inputs[0], outputs[0], outputs[1]];
        let products = sigma.elements() * samples.shape[1].clone();
        let factored = factor.elements() * factor.shape[3].clone();
        Cost::macs(products + factored.floor_div(12))
    }

    fn describe(&self) -> String {
        format!("Covariance({:?})", self.measure.shrinkage)
    }
}

impl CustomOp for Covariance {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [samples, multiplicity] = inputs else {
            return Err("takes samples and how often each counts".to_owned());
        };
        let samples = Samples::new(context, samples, multiplicity)?;
        let (images, d) = (samples.images(), samples.d);
        let size = Metric::size(self.measure.form, d, samples.count);
        let shapes = [vec![samples.views, d, d], vec![2, images, size, size]];
        let [mut sigma, mut factors] = shapes
            .each_ref()
            .map(|shape| vec![0.0f32; shape.iter().product()]);
        self.write(&samples, &mut sigma, &mut factors)?;
        let tensors = shapes.into_iter().zip([sigma, factors]);
        let tensors = tensors.map(|(shape, values)| Tensor::from_values(shape, values));
        Ok(tensors.collect::<Result<_, _>>()?)
    }

    fn run_into(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
        outputs: &mut [&mut [f32]],
    ) -> Option<Result<(), String>> {
        let ([samples, multiplicity], [sigmas, factors]) = (inputs, outputs) else {
            return None;
        };
        let samples = Samples::new(context, samples, multiplicity);
        Some(samples.and_then(|samples| self.write(&samples, sigmas, factors)))
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(CovarianceGradient {
            measure: self.measure,
        }))
    }
}

impl Covariance {
    /// Σ of every view, and the factor of every image.
    fn write(
        &self,
        samples: &Samples<'_>,
        sigmas: &mut [f32],
        factors: &mut [f32],
    ) -> Result<(), String> {
        let Measure {
            form, shrinkage, ..
        } = self.measure;
        let (images, d, isa) = (samples.images(), samples.d, samples.isa);
        let size = Metric::size(form, d, samples.count);
        for image in 0..images {
            let spreads = samples.spreads(shrinkage, image);
            let [first, second] = spreads.each_ref().map(|s| s.sigma(isa, shrinkage));
            for (view, sigma) in [(image, &first), (images + image, &second)] {
                let target = sigmas[view * d * d..].iter_mut();
                target.zip(sigma).for_each(|(t, &v)| *t = v as f32);
            }
            let metric = Metric::new(isa, form, shrinkage, d, &spreads, [&first, &second])
                .map_err(|error| format!("image {image}: {error}"))?;
            wide::split_into(factors, image * size * size, metric.matrix());
        }
        Ok(())
    }
}

/// The gradient of the samples. Inputs: samples, counts, Σ, factors, dΣ, and a gradient of the factors that is always zero.
#[derive(Clone, Debug)]
struct CovarianceGradient {
    measure: Measure,
}

impl Operator for CovarianceGradient {
    fn kind(&self) -> &'static str {
        "CovarianceGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [samples, _, _, _, _, _] => Ok(vec![(*samples).clone()]),
            _ => Err("the covariance's inputs, outputs and gradients".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::macs(inputs[0].elements() * inputs[0].shape[2].clone())
    }

    fn describe(&self) -> String {
        format!("Covariance({:?}).gradient", self.measure.shrinkage)
    }
}

impl CustomOp for CovarianceGradient {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [rows, multiplicity, _, _, dsigmas, _] = inputs else {
            return Err("takes the covariance's inputs, outputs and gradients".to_owned());
        };
        let samples = Samples::new(context, rows, multiplicity)?;
        let dsigmas = dsigmas.values::<f32>()?;
        let (d, shrinkage, isa) = (samples.d, self.measure.shrinkage, samples.isa);
        let mut gradient = vec![0.0f64; samples.rows.len()];
        for view in 0..samples.views {
            let dsigma = &dsigmas[view * d * d..][..d * d];
            let target = &mut gradient[view * samples.count * d..][..samples.count * d];
            let spread = samples.spread(shrinkage, view);
            spread.pull_back(isa, shrinkage, dsigma, target);
        }
        let data: Vec<f32> = gradient.into_iter().map(|g| g as f32).collect();
        Ok(vec![Tensor::from_values(rows.shape(), data)?])
    }
}
