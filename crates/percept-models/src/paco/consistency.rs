//! Second-order consistency: both views of an image spread alike, and like their class.
//!
//! SoC = mean ‖T₁ - T₂‖² + β mean ‖(T₁ + T₂)/2 - P‖², where P is the class's prototype. T is Σ itself (published) or
//! Σ / tr Σ (stable), so that shrinking the features does not pay.

use std::sync::Arc;

use percept_graph::{Cost, CustomOp, DType, OpContext, Operator, Tensor, TensorType};

use super::Objective;

/// What each of Σ [2N, D, D], prototypes [classes, D, D], counts [classes] and labels i32 [N] give.
#[derive(Clone, Debug)]
pub(super) struct Consistency {
    pub objective: Objective,
    pub beta: f64,
}

impl Operator for Consistency {
    fn kind(&self) -> &'static str {
        "Consistency"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        fits(inputs)?;
        Ok(vec![TensorType::f32([])])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 6)
    }

    fn describe(&self) -> String {
        format!("Consistency(beta={})", self.beta)
    }
}

fn fits(inputs: &[&TensorType]) -> Result<(), String> {
    match inputs {
        [sigma, prototypes, _, labels]
            if sigma.shape.len() == 3
                && prototypes.shape.len() == 3
                && labels.dtype == DType::I32 =>
        {
            Ok(())
        }
        _ => Err("Σ [2N, D, D], prototypes [classes, D, D], counts and labels i32 [N]".to_owned()),
    }
}

impl CustomOp for Consistency {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let classes = Classes::read(self.objective, inputs)?;
        let mut loss = 0.0;
        for image in 0..classes.images {
            let [first, second] = classes.views(image);
            let prototype = classes.prototype(image);
            for ((t1, t2), p) in first.t.iter().zip(&second.t).zip(prototype) {
                let (apart, from_class) = (t1 - t2, (t1 + t2) / 2.0 - p);
                loss += apart * apart + self.beta * from_class * from_class;
            }
        }
        let mean = loss / classes.images.max(1) as f64;
        Ok(vec![Tensor::scalar(mean as f32)])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(ConsistencyGradient {
            consistency: self.clone(),
        }))
    }

    fn constants(&self) -> &[usize] {
        &[1, 2]
    }
}

/// dΣ. Inputs: those of the loss, the loss, dloss.
#[derive(Clone, Debug)]
struct ConsistencyGradient {
    consistency: Consistency,
}

impl Operator for ConsistencyGradient {
    fn kind(&self) -> &'static str {
        "ConsistencyGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [sigma, _, _, _, _, _] => Ok(vec![(*sigma).clone()]),
            _ => Err("the loss's inputs, the loss and its gradient".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 8)
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.consistency.describe())
    }
}

impl CustomOp for ConsistencyGradient {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let Consistency { objective, beta } = self.consistency;
        let (own, rest) = inputs.split_at_checked(4).ok_or("takes six inputs")?;
        let [_, dloss] = rest else {
            return Err("takes the loss and its gradient".to_owned());
        };
        let &[dloss] = dloss.values::<f32>()? else {
            return Err("takes the gradient of the loss, one number".to_owned());
        };
        let classes = Classes::read(objective, own)?;
        let (d, images) = (classes.d, classes.images);
        let share = f64::from(dloss) / images.max(1) as f64;
        let mut data = vec![0.0f32; 2 * images * d * d];
        for image in 0..images {
            let views = classes.views(image);
            let prototype = classes.prototype(image);
            for (own, sign) in [(0, 2.0), (1, -2.0)] {
                let triples = views[0].t.iter().zip(&views[1].t).zip(&prototype);
                let dt: Vec<f64> = triples
                    .map(|((t1, t2), p)| share * (sign * (t1 - t2) + beta * ((t1 + t2) / 2.0 - p)))
                    .collect();
                let target = &mut data[(own * images + image) * d * d..][..d * d];
                views[own].pull_back(objective, d, dt, target);
            }
        }
        Ok(vec![Tensor::from_values(own[0].shape(), data)?])
    }
}

/// The covariance of a view as it is compared.
struct View {
    t: Vec<f64>,
    trace: f64,
}

impl View {
    fn new(objective: Objective, d: usize, sigma: &[f32]) -> Self {
        let trace: f64 = (0..d).map(|i| f64::from(sigma[i * d + i])).sum();
        let divisor = match objective {
            Objective::Published => 1.0,
            Objective::Stable => trace,
        };
        let t = sigma.iter().map(|&v| f64::from(v) / divisor).collect();
        Self { t, trace }
    }

    /// dΣ from dT: of T = Σ / tr Σ it is (dT - ⟨dT, T⟩ I) / tr Σ.
    fn pull_back(&self, objective: Objective, d: usize, dt: Vec<f64>, target: &mut [f32]) {
        let (along, divisor) = match objective {
            Objective::Published => (0.0, 1.0),
            Objective::Stable => {
                let along = dt.iter().zip(&self.t).map(|(g, t)| g * t).sum();
                (along, self.trace)
            }
        };
        for (at, (target, g)) in target.iter_mut().zip(dt).enumerate() {
            let diagonal = if at / d == at % d { along } else { 0.0 };
            *target = ((g - diagonal) / divisor) as f32;
        }
    }
}

/// Covariances beside the prototypes of their classes.
struct Classes<'a> {
    objective: Objective,
    sigmas: &'a [f32],
    prototypes: &'a [f32],
    counts: &'a [f32],
    labels: Vec<usize>,
    images: usize,
    d: usize,
}

impl<'a> Classes<'a> {
    fn read(objective: Objective, inputs: &'a [Tensor<'_>]) -> Result<Self, String> {
        let [sigmas, prototypes, counts, labels] = inputs else {
            return Err("takes covariances, prototypes, counts and labels".to_owned());
        };
        let (&[views, d, _], sigmas) = sigmas.read()? else {
            return Err("takes covariances [2N, D, D]".to_owned());
        };
        let (prototypes, counts) = (prototypes.values()?, counts.values()?);
        let labels = labels.values::<i32>()?;
        let classes = counts.len();
        let known = |&label: &i32| {
            let class = usize::try_from(label).ok().filter(|&class| class < classes);
            class.ok_or_else(|| format!("label {label} is outside 0..{classes}"))
        };
        Ok(Self {
            objective,
            sigmas,
            prototypes,
            counts,
            labels: labels.iter().map(known).collect::<Result<_, _>>()?,
            images: views / 2,
            d,
        })
    }

    fn views(&self, image: usize) -> [View; 2] {
        let size = self.d * self.d;
        [image, self.images + image]
            .map(|view| View::new(self.objective, self.d, &self.sigmas[view * size..][..size]))
    }

    /// The prototype of an image's class; of a class not seen yet, the same spread everywhere.
    fn prototype(&self, image: usize) -> Vec<f64> {
        let (class, size) = (self.labels[image], self.d * self.d);
        if self.counts[class] > 0.0 {
            let prototype = &self.prototypes[class * size..][..size];
            return prototype.iter().map(|&v| f64::from(v)).collect();
        }
        let diagonal = match self.objective {
            Objective::Published => 1.0,
            Objective::Stable => 1.0 / self.d as f64,
        };
        let entry = |at: usize| {
            if at / self.d == at % self.d {
                diagonal
            } else {
                0.0
            }
        };
        (0..size).map(entry).collect()
    }
}

/// The prototypes and counts after a batch: a class starts with the first mean covariance of its views that comes, and then
/// keeps nine tenths at each.
#[derive(Clone, Debug)]
pub(super) struct Prototypes {
    pub objective: Objective,
}

const KEPT: f64 = 0.9;

impl Operator for Prototypes {
    fn kind(&self) -> &'static str {
        "Prototypes"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        fits(inputs)?;
        Ok(vec![inputs[1].clone(), inputs[2].clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 3)
    }

    fn describe(&self) -> String {
        format!("Prototypes(momentum={KEPT})")
    }
}

impl CustomOp for Prototypes {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let classes = Classes::read(self.objective, inputs)?;
        let (mut prototypes, mut counts) = (classes.prototypes.to_vec(), classes.counts.to_vec());
        let size = classes.d * classes.d;
        for (image, &class) in classes.labels.iter().enumerate() {
            let [first, second] = classes.views(image);
            let kept = if counts[class] > 0.0 { KEPT } else { 0.0 };
            let target = prototypes[class * size..][..size].iter_mut();
            for (target, (t1, t2)) in target.zip(first.t.iter().zip(&second.t)) {
                let mean = (t1 + t2) / 2.0;
                *target = (kept * f64::from(*target) + (1.0 - kept) * mean) as f32;
            }
            counts[class] += 1.0;
        }
        Ok(vec![
            Tensor::from_values(inputs[1].shape(), prototypes)?,
            Tensor::from_values(inputs[2].shape(), counts)?,
        ])
    }
}
