//! Part-aware contrast: a part is nearer to its match than to its negative, by a margin.
//!
//! PaC = mean over all parts of max(d+ - d- + α, 0), where d± are distances in the metric Σ+ of the part's image. With
//! a = Σ+⁻¹ x: ∂(xᵀΣ+⁻¹x)/∂x = 2a and ∂/∂Σ+ = -a aᵀ, so two systems a part are all that the gradient needs.

use std::sync::Arc;

use percept_graph::{Cost, CustomOp, OpContext, Operator, Tensor, TensorType};

use super::scene::Measure;
use super::triplets::Triplets;

/// Parts [2N, K, D], samples, their counts, cached factors, matches and negatives i32 [N, K] to the loss, and, to be read only,
/// the distances d+ and d- [N, K].
#[derive(Clone, Debug)]
pub(super) struct Contrast {
    pub measure: Measure,
    pub margin: f64,
}

impl Operator for Contrast {
    fn kind(&self) -> &'static str {
        "PartContrast"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [parts, _, _, _, matches, _] = inputs else {
            return Err("parts, samples, counts, factors, matches and negatives".to_owned());
        };
        if parts.shape.len() != 3 || matches.shape.len() != 2 {
            return Err("parts [2N, K, D] and matches [N, K]".to_owned());
        }
        let distances = TensorType::f32(matches.shape.iter().cloned());
        Ok(vec![TensorType::f32([]), distances.clone(), distances])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        solves(inputs)
    }

    fn describe(&self) -> String {
        format!(
            "PartContrast({:?}, alpha={})",
            self.measure.form, self.margin
        )
    }
}

/// Two systems for each part of the first views.
fn solves(inputs: &[&TensorType]) -> Cost {
    let size = inputs[3].shape[3].clone();
    Cost::macs(inputs[4].elements() * 2 * size.clone() * size)
}

impl CustomOp for Contrast {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let triplets = Triplets::read(self.measure, context, inputs)?;
        let (loss, distances) = triplets.loss(self.margin)?;
        let distances = |which: usize| {
            let values = distances.iter().map(|pair| pair[which] as f32);
            Tensor::from_values(
                [triplets.images, triplets.parts],
                values.collect::<Vec<_>>(),
            )
        };
        Ok(vec![
            Tensor::scalar(loss as f32),
            distances(0)?,
            distances(1)?,
        ])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(ContrastGradient {
            contrast: self.clone(),
        }))
    }

    fn constants(&self) -> &[usize] {
        &[FACTORS]
    }
}

/// The position of the cached factors among the inputs.
const FACTORS: usize = 3;

/// The gradients of parts and samples. Inputs: those of the loss, its outputs, dloss, and two that are always zero.
#[derive(Clone, Debug)]
struct ContrastGradient {
    contrast: Contrast,
}

impl Operator for ContrastGradient {
    fn kind(&self) -> &'static str {
        "PartContrastGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [parts, samples, ..] if inputs.len() == 12 => {
                Ok(vec![(*parts).clone(), (*samples).clone()])
            }
            _ => Err("the loss's inputs, outputs and gradients".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        solves(inputs)
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.contrast.describe())
    }
}

impl CustomOp for ContrastGradient {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let Contrast { measure, margin } = self.contrast;
        let (own, rest) = inputs.split_at_checked(6).ok_or("takes 12 inputs")?;
        let dloss = rest.get(3).ok_or("takes the gradient of the loss")?;
        let &[dloss] = dloss.values::<f32>()? else {
            return Err("takes the gradient of the loss, one number".to_owned());
        };
        let dloss = f64::from(dloss);
        let triplets = Triplets::read(measure, context, own)?;
        let Triplets {
            samples,
            images,
            parts,
            ..
        } = triplets;
        let (d, shrinkage) = (samples.d, measure.shrinkage);
        let share = dloss / (images * parts).max(1) as f64;
        let mut dparts = vec![0.0f64; 2 * images * parts * d];
        let mut dsamples = vec![0.0f64; samples.rows.len()];
        for image in 0..images {
            let of_image = triplets.of(image)?;
            let mut dsigma = Vec::new();
            for (k, triplet) in of_image
                .iter()
                .enumerate()
                .filter(|(_, t)| t.active(margin))
            {
                let anchor = image * parts + k;
                for (pair, sign) in triplet.pairs.iter().flatten().zip([share, -share]) {
                    let (_, slope) = measure.distance(pair.squared, d);
                    for (i, a) in pair.solved.iter().enumerate() {
                        let gradient = sign * slope * 2.0 * a;
                        dparts[anchor * d + i] += gradient;
                        dparts[pair.other * d + i] -= gradient;
                    }
                    // Σ+ is the mean of both views' covariances.
                    dsigma.push((-sign * slope / 2.0, &pair.solved[..]));
                }
            }
            for view in [image, images + image] {
                let target = &mut dsamples[view * samples.count * d..][..samples.count * d];
                let spread = samples.spread(shrinkage, view);
                spread.pull_back_outer(shrinkage, &dsigma, target);
            }
        }
        let gradient = |of: &Tensor<'_>, values: Vec<f64>| {
            let values: Vec<f32> = values.into_iter().map(|g| g as f32).collect();
            Tensor::from_values(of.shape(), values)
        };
        Ok(vec![
            gradient(&own[0], dparts)?,
            gradient(&own[1], dsamples)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paco::covariance::Covariance;
    use crate::paco::pool::PoolDistances;
    use crate::paco::selection::{Negatives, PartMatching};
    use crate::paco::spread::Shrinkage;
    use crate::paco::{LossForm, Matching, Objective};
    use percept_kernels::Cpu;
    use proptest::prelude::*;

    const FORMS: [LossForm; 3] = [LossForm::Exact, LossForm::Gram, LossForm::Naive];
    const MARGIN: f64 = 0.2;
    /// A power of two, as the inputs are multiples of one: a step rounds nothing.
    const STEP: f32 = 1.0 / 1024.0;

    /// A batch: parts [2N, K, D], and the samples of a pixel objective [2N, S, D] with their counts.
    #[derive(Clone, Debug)]
    struct Batch {
        objective: Objective,
        sizes: [usize; 4],
        parts: Vec<f32>,
        samples: Vec<f32>,
        counts: Vec<i32>,
    }

    fn run(op: &dyn CustomOp, inputs: &[Tensor<'_>]) -> Vec<Tensor<'static>> {
        let cpu = Cpu::new(1).unwrap();
        let outputs = op.run(&OpContext::new(&cpu), inputs);
        outputs.expect("the op runs")
    }

    fn values<'t>(tensor: &'t Tensor<'_>) -> &'t [f32] {
        tensor.values().expect("a tensor of floats")
    }

    impl Batch {
        fn measure(&self, form: LossForm) -> Measure {
            let (eps, tau) = (1e-2, 1e-2);
            Measure {
                form,
                shrinkage: match self.objective {
                    Objective::Published => Shrinkage::Ridge { eps, tau },
                    Objective::Stable => Shrinkage::Trace { rho: 0.1 },
                },
                normalised: self.objective == Objective::Stable,
            }
        }

        /// The operands of the loss in some form, its selections included.
        fn operands(&self, form: LossForm) -> Vec<Tensor<'static>> {
            let [n, k, s, d] = self.sizes;
            let measure = self.measure(form);
            let parts = Tensor::from_values([2 * n, k, d], self.parts.clone()).unwrap();
            let samples = match self.objective {
                Objective::Published => parts.clone(),
                Objective::Stable => {
                    Tensor::from_values([2 * n, s, d], self.samples.clone()).unwrap()
                }
            };
            let counts = match self.objective {
                Objective::Published => Tensor::from_values([2 * n, k], vec![1; 2 * n * k]),
                Objective::Stable => Tensor::from_values([2 * n, s], self.counts.clone()),
            };
            let counts = counts.unwrap();
            let run = |op: &dyn CustomOp, inputs: &[&Tensor<'_>], which: usize| {
                let inputs: Vec<Tensor<'_>> = inputs.iter().map(|t| t.borrowed()).collect();
                run(op, &inputs).swap_remove(which)
            };
            let factors = run(&Covariance { measure }, &[&samples, &counts], 1);
            let pool = PoolDistances { measure };
            let distances = run(&pool, &[&parts, &samples, &counts, &factors], 0);
            let matching = PartMatching {
                cost: Matching::Mahalanobis,
            };
            let matches = run(&matching, &[&parts, &distances], 0);
            let labels: Vec<i32> = (0..n as i32).collect();
            let negatives = Negatives {
                objective: self.objective,
                hardest: Some(5),
            };
            let labels = Tensor::from_values([n], labels).unwrap();
            let negatives = run(&negatives, &[&distances, &matches, &labels], 0);
            vec![parts, samples, counts, factors, matches, negatives]
        }

        /// The loss of these operands, with the factors made anew.
        fn loss(&self, form: LossForm, operands: &[Tensor<'static>]) -> f64 {
            let mut operands = operands.to_vec();
            let covariance = Covariance {
                measure: self.measure(form),
            };
            operands[FACTORS] = run(&covariance, &operands[1..3]).swap_remove(1);
            let cpu = Cpu::new(1).unwrap();
            let context = OpContext::new(&cpu);
            let triplets = Triplets::read(self.measure(form), &context, &operands).unwrap();
            triplets.loss(MARGIN).expect("a loss").0
        }

        /// The gradients of parts and samples.
        fn gradients(&self, form: LossForm, operands: &[Tensor<'static>]) -> Vec<Tensor<'static>> {
            let contrast = Contrast {
                measure: self.measure(form),
                margin: MARGIN,
            };
            let ones = vec![Tensor::scalar(1.0f32); 6];
            let gradient = contrast.gradient().expect("a gradient");
            run(&*gradient, &[operands, &ones].concat())
        }
    }

    fn batches() -> impl Strategy<Value = Batch> {
        let objective = prop_oneof![Just(Objective::Published), Just(Objective::Stable)];
        let sizes = (2usize..4, 1usize..4, 2usize..7, 1usize..9);
        let numbers = prop::collection::vec(-900i32..900, 600);
        (objective, sizes, numbers).prop_map(|(objective, (n, k, s, d), numbers)| {
            // One part has no spread, and with it no metric but the ridge.
            let k = k.max(2);
            let value = |i: usize| numbers[i % numbers.len()] as f32 / 512.0;
            Batch {
                objective,
                sizes: [n, k, s, d],
                parts: (0..2 * n * k * d).map(value).collect(),
                samples: (0..2 * n * s * d).map(|i| value(7 * i + 3)).collect(),
                counts: (0..2 * n * s).map(|i| numbers[i].rem_euclid(3)).collect(),
            }
        })
    }

    fn largest(values: &[f32]) -> f64 {
        values
            .iter()
            .fold(1e-3, |most, &v| f64::max(most, f64::from(v.abs())))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn all_forms_agree(batch in batches()) {
            let operands = FORMS.map(|form| batch.operands(form));
            for (form, own) in FORMS.iter().zip(&operands) {
                prop_assert_eq!(&own[4..], &operands[0][4..], "selections of {:?}", form);
            }
            let exact = batch.loss(FORMS[0], &operands[0]);
            let gradients = batch.gradients(FORMS[0], &operands[0]);
            for (form, own) in FORMS.iter().zip(&operands).skip(1) {
                let loss = batch.loss(*form, own);
                prop_assert!((loss - exact).abs() <= 1e-9 * exact.abs().max(1.0), "{form:?}: {loss} {exact}");
                for (got, want) in batch.gradients(*form, own).iter().zip(&gradients) {
                    let scale = largest(values(want));
                    for (got, want) in values(got).iter().zip(values(want)) {
                        prop_assert!(f64::from((got - want).abs()) <= 1e-5 * scale, "{form:?}: {got} {want}");
                    }
                }
            }
        }

        #[test]
        fn gradients_are_slopes(batch in batches(), at in 0usize..1000) {
            let operands = batch.operands(LossForm::Exact);
            let gradients = batch.gradients(LossForm::Exact, &operands);
            for input in [0, 1] {
                let place = at % operands[input].element_count();
                let slope = |step: f32| {
                    let moved = [step, -step].map(|step| {
                        let mut moved = operands.clone();
                        moved[input].values_mut::<f32>().unwrap()[place] += step;
                        batch.loss(LossForm::Exact, &moved)
                    });
                    (moved[0] - moved[1]) / f64::from(2.0 * step)
                };
                let (wide, slope) = (slope(2.0 * STEP), slope(STEP));
                // Across the hinge there are two slopes.
                prop_assume!((wide - slope).abs() <= 1e-2 * slope.abs().max(1e-2));
                // Both steps together leave no error of the second order.
                let extrapolated = slope + (slope - wide) / 3.0;
                let got = f64::from(values(&gradients[input])[place]);
                let scale = largest(values(&gradients[input]));
                prop_assert!((got - extrapolated).abs() <= 1e-3 * scale, "input {input}: {got} {extrapolated}");
            }
        }
    }
}
