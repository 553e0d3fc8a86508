//! Weighted cross-entropy of point labels, as the public pipeline trains with it.
//!
//! loss = Σ w · (log Σ exp x - x[y]) / Σ w over the points that have a label; output c is label c + 1, and points with
//! label 0 do not count. Each point has its weight w from its class; they are values, because only the data knows how common its
//! classes are.

use std::sync::Arc;

use percept_graph::{
    Builder, Cost, CustomOp, DType, Op, OpContext, Operator, Tensor, TensorType, ValueId,
};
use percept_kernels::cross_entropy::{Labelled, surprise};

/// Added to the share of a class before it is inverted, so that rare classes do not drown the others.
const SHARE_FLOOR: f64 = 0.02;

/// The weight of each class (from label 1 on) among points whose labels were counted, unlabelled ones first.
pub fn class_weights(label_counts: &[u64]) -> Vec<f32> {
    let classes = label_counts.get(1..).unwrap_or_default();
    let total = classes.iter().sum::<u64>().max(1) as f64;
    let weight = |&count: &u64| (1.0 / (count as f64 / total + SHARE_FLOOR)) as f32;
    classes.iter().map(weight).collect()
}

/// The loss of logits [P, C] by labels i32 [P] and weights [P], all points of a batch together.
pub fn weighted_cross_entropy(
    b: &mut Builder,
    name: &str,
    logits: ValueId,
    labels: ValueId,
    weights: ValueId,
) -> ValueId {
    let op: Arc<dyn CustomOp> = Arc::new(WeightedCrossEntropy);
    b.call(name, Op::Custom(op), &[logits, labels, weights])
}

#[derive(Clone, Copy, Debug)]
struct WeightedCrossEntropy;

impl WeightedCrossEntropy {
    fn check(inputs: &[&TensorType]) -> Result<(), String> {
        match inputs {
            [logits, labels, weights, ..]
                if logits.shape.len() == 2
                    && labels.shape[..] == logits.shape[..1]
                    && labels.dtype == DType::I32
                    && weights.shape == labels.shape =>
            {
                Ok(())
            }
            _ => Err("logits [P, C], labels i32 [P] and weights [P]".to_owned()),
        }
    }

    /// The points with a label and their weights, and the sum of these.
    fn labelled(
        classes: usize,
        labels: &[i32],
        weights: &[f32],
    ) -> Result<(Vec<Labelled>, f64), String> {
        let mut labelled = Vec::with_capacity(labels.len());
        for (row, (&label, &weight)) in labels.iter().zip(weights).enumerate() {
            match usize::try_from(label) {
                Ok(0) => {}
                Ok(label) if label > classes => return Err(beyond(row, label, classes)),
                Ok(_) if !(weight >= 0.0 && weight.is_finite()) => {
                    return Err(format!("point {row} weighs {weight}, expected 0 or more"));
                }
                Ok(label) => labelled.push(Labelled {
                    row,
                    class: label - 1,
                    scale: weight,
                }),
                Err(_) => return Err(beyond(row, label, classes)),
            }
        }
        let sum = labelled.iter().map(|point| f64::from(point.scale)).sum();
        Ok((labelled, sum))
    }
}

fn beyond(row: usize, label: impl std::fmt::Display, classes: usize) -> String {
    format!("point {row} has label {label}, expected 0 to {classes}")
}

impl Operator for WeightedCrossEntropy {
    fn kind(&self) -> &'static str {
        "WeightedCrossEntropy"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Self::check(inputs)?;
        Ok(vec![TensorType::f32([])])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // Maximum, difference, exponential and sum.
        Cost::elementwise(inputs[0].elements(), 4)
    }

    fn describe(&self) -> String {
        "WeightedCrossEntropy()".to_owned()
    }
}

impl CustomOp for WeightedCrossEntropy {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [logits, labels, weights] = inputs else {
            return Err("takes logits, labels and weights".to_owned());
        };
        let (classes, logits) = (logits.shape()[1], logits.values::<f32>()?);
        let (labelled, total) = Self::labelled(classes, labels.values()?, weights.values()?)?;
        let mut surprises = vec![0.0; labelled.len()];
        let cpu = context.machine()?;
        surprise(cpu, classes, logits, &labelled, &mut surprises, None);
        let weighed = labelled.iter().zip(&surprises);
        let loss: f64 = weighed
            .map(|(point, surprise)| f64::from(point.scale) * surprise)
            .sum();
        // A cloud without labels teaches nothing.
        let loss = if total > 0.0 { loss / total } else { 0.0 };
        Ok(vec![Tensor::scalar(loss as f32)])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(WeightedCrossEntropyGradient))
    }
}

/// dx = w / Σ w · (softmax x - one-hot y) · dloss, and dw = (log Σ exp x - x[y] - loss) / Σ w · dloss.
#[derive(Debug)]
struct WeightedCrossEntropyGradient;

impl Operator for WeightedCrossEntropyGradient {
    fn kind(&self) -> &'static str {
        "WeightedCrossEntropyGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        WeightedCrossEntropy::check(inputs)?;
        Ok(vec![inputs[0].clone(), inputs[2].clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 6)
    }

    fn describe(&self) -> String {
        "WeightedCrossEntropyGradient()".to_owned()
    }
}

impl CustomOp for WeightedCrossEntropyGradient {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [logits, labels, weights, loss, dy] = inputs else {
            return Err("takes logits, labels, weights, the loss and its gradient".to_owned());
        };
        let shape = logits.shape().to_vec();
        let (classes, logits) = (shape[1], logits.values::<f32>()?);
        let (labels, weights) = (labels.values()?, weights.values()?);
        let (mut labelled, total) = WeightedCrossEntropy::labelled(classes, labels, weights)?;
        let total = if total > 0.0 { total } else { 1.0 };
        let number = |tensor: &Tensor<'_>| -> Result<f64, String> {
            let value = tensor.values::<f32>()?.first().copied();
            Ok(f64::from(value.unwrap_or(0.0)))
        };
        let (loss, dy) = (number(loss)?, number(dy)?);
        let mut dx = vec![0.0f32; logits.len()];
        let mut dw = vec![0.0f32; labels.len()];
        for point in &mut labelled {
            point.scale = (dy * f64::from(point.scale) / total) as f32;
        }
        let mut surprises = vec![0.0; labelled.len()];
        let cpu = context.machine()?;
        surprise(
            cpu,
            classes,
            logits,
            &labelled,
            &mut surprises,
            Some(&mut dx),
        );
        for (point, surprise) in labelled.iter().zip(surprises) {
            dw[point.row] = (dy * (surprise - loss) / total) as f32;
        }
        let points = dw.len();
        Ok(vec![
            Tensor::from_values(shape, dx)?,
            Tensor::from_values([points], dw)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use percept_kernels::Cpu;

    use super::*;

    fn outputs(op: &dyn CustomOp, inputs: &[Tensor<'_>]) -> Result<Vec<Vec<f32>>, String> {
        let cpu = Cpu::new(1).map_err(|error| error.to_string())?;
        let outputs = op.run(&OpContext::new(&cpu), inputs)?;
        let numbers = outputs.iter().map(|output| output.to_f32().into_owned());
        Ok(numbers.collect())
    }

    fn run(op: &dyn CustomOp, inputs: &[Tensor<'_>]) -> Result<Vec<f32>, String> {
        Ok(outputs(op, inputs)?.remove(0))
    }

    #[test]
    fn classes_weigh_the_inverse_of_their_share() {
        assert_eq!(
            class_weights(&[1000, 49, 49, 2]),
            [1.0 / 0.51, 1.0 / 0.51, 25.0].map(|w: f64| w as f32)
        );
        assert_eq!(class_weights(&[5, 0]), [50.0]);
    }

    #[test]
    fn points_without_label_do_not_count_and_gradients_are_slopes() {
        let op = WeightedCrossEntropy;
        let weights = Tensor::from_values([3], vec![0.5f32, 7.0, 3.0]).unwrap();
        let logits = vec![0.5f32, -1.0, 2.0, 100.0, 0.0, 0.0, 0.25, 0.75, -0.5];
        let labels = Tensor::from_values([3], vec![3, 0, 2]).unwrap();
        let loss_with = |logits: &[f32], weights: &[f32]| {
            let logits = Tensor::from_values([3, 3], logits.to_vec()).unwrap();
            let weights = Tensor::from_values([3], weights.to_vec()).unwrap();
            run(&op, &[logits, labels.borrowed(), weights]).unwrap()[0]
        };
        let loss = |logits: &[f32]| loss_with(logits, &[0.5, 7.0, 3.0]);
        let by_hand =
            |row: &[f64], class: usize| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[class];
        let expected =
            (0.5 * by_hand(&[0.5, -1.0, 2.0], 2) + 3.0 * by_hand(&[0.25, 0.75, -0.5], 1)) / 3.5;
        assert!((f64::from(loss(&logits)) - expected).abs() < 1e-6);
        let inputs = [
            Tensor::from_values([3, 3], logits.clone()).unwrap(),
            labels.borrowed(),
            weights.borrowed(),
            Tensor::scalar(loss(&logits)),
            Tensor::scalar(1.0f32),
        ];
        let gradients = outputs(&*op.gradient().unwrap(), &inputs).unwrap();
        let [gradient, by_weight] = &gradients[..] else {
            panic!("{gradients:?}")
        };
        for at in 0..3 {
            let moved = |step: f32| {
                let mut weights = [0.5, 7.0, 3.0];
                weights[at] += step;
                loss_with(&logits, &weights)
            };
            let slope = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((by_weight[at] - slope).abs() < 1e-4, "{at}: {slope}");
        }
        for at in 0..logits.len() {
            let moved = |step: f32| {
                let mut moved = logits.clone();
                moved[at] += step;
                loss(&moved)
            };
            let slope = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!(
                (gradient[at] - slope).abs() < 1e-4,
                "{at}: {} {slope}",
                gradient[at]
            );
        }
        assert_eq!(gradient[3..6], [0.0; 3]);
    }

    #[test]
    fn a_label_that_is_no_class_and_a_weight_that_is_none_are_named() {
        let logits = Tensor::from_values([1, 2], vec![0.0f32; 2]).unwrap();
        let loss = |label: i32, weight: f32| {
            let labels = Tensor::from_values([1], vec![label]).unwrap();
            let weights = Tensor::from_values([1], vec![weight]).unwrap();
            run(&WeightedCrossEntropy, &[logits.borrowed(), labels, weights])
        };
        for label in [3, -1] {
            let error = loss(label, 1.0).unwrap_err();
            assert_eq!(error, format!("point 0 has label {label}, expected 0 to 2"));
        }
        for weight in [-1.0, f32::NAN, f32::INFINITY] {
            assert!(loss(1, weight).unwrap_err().starts_with("point 0 weighs"));
        }
        assert_eq!(loss(0, 1.0).unwrap(), [0.0]);
        assert_eq!(loss(1, 0.0).unwrap(), [0.0]);
    }
}
