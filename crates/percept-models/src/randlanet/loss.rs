//! Weighted cross-entropy of point labels, as the public pipeline trains with it.
//!
//! loss = Σ w[y] · (log Σ exp x - x[y]) / Σ w[y] over the points that have a label; output c is label c + 1, and points with
//! label 0 do not count.

use std::sync::Arc;

use percept_graph::{
    Builder, Cost, CustomOp, DType, Op, OpContext, Operator, Tensor, TensorType, ValueId,
};

/// Added to the share of a class before it is inverted, so that rare classes do not drown the others.
const SHARE_FLOOR: f64 = 0.02;

/// The weight of each class (from label 1 on) among points whose labels were counted, unlabelled ones first.
pub fn class_weights(label_counts: &[u64]) -> Vec<f32> {
    let classes = label_counts.get(1..).unwrap_or_default();
    let total = classes.iter().sum::<u64>().max(1) as f64;
    let weight = |&count: &u64| (1.0 / (count as f64 / total + SHARE_FLOOR)) as f32;
    classes.iter().map(weight).collect()
}

/// The loss of logits [P, C] by labels i32 [P], with a weight for each of the C classes.
pub fn weighted_cross_entropy(
    b: &mut Builder,
    name: &str,
    logits: ValueId,
    labels: ValueId,
    weights: Vec<f32>,
) -> ValueId {
    let op: Arc<dyn CustomOp> = Arc::new(WeightedCrossEntropy { weights });
    b.call(name, Op::Custom(op), &[logits, labels])
}

/// A point that counts.
struct Labelled {
    row: usize,
    class: usize,
    weight: f64,
}

#[derive(Clone, Debug)]
struct WeightedCrossEntropy {
    weights: Vec<f32>,
}

impl WeightedCrossEntropy {
    fn check(&self, inputs: &[&TensorType]) -> Result<(), String> {
        match inputs {
            [logits, labels, ..]
                if logits.shape.len() == 2
                    && logits.shape[1] == self.weights.len().into()
                    && labels.shape[..] == logits.shape[..1]
                    && labels.dtype == DType::I32 =>
            {
                Ok(())
            }
            _ => Err(format!(
                "logits [P, {}] and labels i32 [P]",
                self.weights.len()
            )),
        }
    }

    /// The points with a label, and the sum of their weights.
    fn labelled(&self, labels: &[i32]) -> Result<(Vec<Labelled>, f64), String> {
        let classes = self.weights.len();
        let mut labelled = Vec::with_capacity(labels.len());
        for (row, &label) in labels.iter().enumerate() {
            match usize::try_from(label)
                .ok()
                .filter(|&label| label <= classes)
            {
                Some(0) => {}
                Some(label) => labelled.push(Labelled {
                    row,
                    class: label - 1,
                    weight: f64::from(self.weights[label - 1]),
                }),
                None => {
                    return Err(format!(
                        "point {row} has label {label}, expected 0 to {classes}"
                    ));
                }
            }
        }
        let sum = labelled.iter().map(|point| point.weight).sum();
        Ok((labelled, sum))
    }

    /// exp(x - max) of a row, their sum, and the maximum.
    fn exponentials(row: &[f32]) -> (Vec<f64>, f64, f64) {
        let max = row
            .iter()
            .fold(f64::NEG_INFINITY, |max, &x| max.max(f64::from(x)));
        let values: Vec<f64> = row.iter().map(|&x| libm::exp(f64::from(x) - max)).collect();
        let sum = values.iter().sum();
        (values, sum, max)
    }
}

impl Operator for WeightedCrossEntropy {
    fn kind(&self) -> &'static str {
        "WeightedCrossEntropy"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.check(inputs)?;
        Ok(vec![TensorType::f32([])])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // Maximum, difference, exponential and sum.
        Cost::elementwise(inputs[0].elements(), 4)
    }

    fn describe(&self) -> String {
        format!("WeightedCrossEntropy(classes={})", self.weights.len())
    }
}

impl CustomOp for WeightedCrossEntropy {
    fn as_operator(&self) -> &dyn Operator {
        self
    }

    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [logits, labels] = inputs else {
            return Err("takes logits and labels".to_owned());
        };
        let (logits, classes) = (logits.values::<f32>()?, self.weights.len());
        let (labelled, total) = self.labelled(labels.values()?)?;
        let mut loss = 0.0;
        for &Labelled { row, class, weight } in &labelled {
            let row = &logits[row * classes..][..classes];
            let (_, sum, max) = Self::exponentials(row);
            loss += weight * (libm::log(sum) + max - f64::from(row[class]));
        }
        // A cloud without labels teaches nothing.
        let loss = if total > 0.0 { loss / total } else { 0.0 };
        Ok(vec![Tensor::scalar(loss as f32)])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(WeightedCrossEntropyGradient(self.clone())))
    }
}

/// dx = w[y] / Σ w · (softmax x - one-hot y) · dloss.
#[derive(Debug)]
struct WeightedCrossEntropyGradient(WeightedCrossEntropy);

impl Operator for WeightedCrossEntropyGradient {
    fn kind(&self) -> &'static str {
        "WeightedCrossEntropyGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.0.check(inputs)?;
        Ok(vec![inputs[0].clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 6)
    }

    fn describe(&self) -> String {
        "WeightedCrossEntropyGradient()".to_owned()
    }
}

impl CustomOp for WeightedCrossEntropyGradient {
    fn as_operator(&self) -> &dyn Operator {
        self
    }

    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [logits, labels, _, dy] = inputs else {
            return Err("takes logits, labels, the loss and its gradient".to_owned());
        };
        let shape = logits.shape().to_vec();
        let (logits, classes) = (logits.values::<f32>()?, self.0.weights.len());
        let (labelled, total) = self.0.labelled(labels.values()?)?;
        let dy = dy.values::<f32>()?.first().map_or(0.0, |&dy| f64::from(dy));
        let mut dx = vec![0.0f32; logits.len()];
        for &Labelled { row, class, weight } in &labelled {
            let at = row * classes;
            let (values, sum, _) = WeightedCrossEntropy::exponentials(&logits[at..][..classes]);
            let scale = dy * weight / total;
            for (other, (dx, value)) in dx[at..].iter_mut().zip(values).enumerate() {
                let truth = if other == class { 1.0 } else { 0.0 };
                *dx = (scale * (value / sum - truth)) as f32;
            }
        }
        Ok(vec![Tensor::from_values(shape, dx)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(op: &dyn CustomOp, inputs: &[Tensor<'_>]) -> Result<Vec<f32>, String> {
        let outputs = op.run(&OpContext::new(&()), inputs)?;
        Ok(outputs[0].to_f32().into_owned())
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
        let op = WeightedCrossEntropy {
            weights: vec![1.0, 3.0, 0.5],
        };
        let logits = vec![0.5f32, -1.0, 2.0, 100.0, 0.0, 0.0, 0.25, 0.75, -0.5];
        let labels = Tensor::from_values([3], vec![3, 0, 2]).unwrap();
        let loss = |logits: &[f32]| {
            let logits = Tensor::from_values([3, 3], logits.to_vec()).unwrap();
            run(&op, &[logits, labels.borrowed()]).unwrap()[0]
        };
        let by_hand =
            |row: &[f64], class: usize| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[class];
        let expected =
            (0.5 * by_hand(&[0.5, -1.0, 2.0], 2) + 3.0 * by_hand(&[0.25, 0.75, -0.5], 1)) / 3.5;
        assert!((f64::from(loss(&logits)) - expected).abs() < 1e-6);
        let inputs = [
            Tensor::from_values([3, 3], logits.clone()).unwrap(),
            labels.borrowed(),
            Tensor::scalar(0.0f32),
            Tensor::scalar(1.0f32),
        ];
        let gradient = run(&*op.gradient().unwrap(), &inputs).unwrap();
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
    fn a_label_that_is_no_class_is_named() {
        let op = WeightedCrossEntropy {
            weights: vec![1.0; 2],
        };
        let logits = Tensor::from_values([1, 2], vec![0.0f32; 2]).unwrap();
        for label in [3, -1] {
            let labels = Tensor::from_values([1], vec![label]).unwrap();
            let error = run(&op, &[logits.borrowed(), labels]).unwrap_err();
            assert_eq!(error, format!("point 0 has label {label}, expected 0 to 2"));
        }
        let none = Tensor::from_values([1], vec![0]).unwrap();
        assert_eq!(run(&op, &[logits, none]).unwrap(), [0.0]);
    }
}
