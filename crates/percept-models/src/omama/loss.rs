//! The loss that O-MaMa learns by: cross-entropy of similarities, samples weighted by whether the object is in view.
//!
//! loss = mean over n of v[n] · (log Σ exp(s[n] / τ) - s[n, y[n]] / τ).

use std::sync::Arc;

use percept_graph::{
    Builder, Cost, CustomOp, DType, Op, OpContext, Operator, Tensor, TensorType, ValueId,
};

/// The temperature τ.
const TEMPERATURE: f64 = 0.07;

/// The loss of similarities [N, M], the position i32 [N] of the right candidate, and how visible [N] the object is.
pub fn visible_cross_entropy(
    b: &mut Builder,
    name: &str,
    similarity: ValueId,
    position: ValueId,
    visible: ValueId,
) -> ValueId {
    let op: Arc<dyn CustomOp> = Arc::new(VisibleCrossEntropy);
    b.call(name, Op::Custom(op), &[similarity, position, visible])
}

#[derive(Clone, Copy, Debug)]
struct VisibleCrossEntropy;

/// One sample: its similarities, the right one, its weight.
struct Row<'a> {
    similarity: &'a [f32],
    right: usize,
    visible: f64,
}

impl Row<'_> {
    /// exp(s / τ - max) of each candidate, and log Σ exp(s / τ).
    fn exponentials(&self) -> (Vec<f64>, f64) {
        let scaled = self.similarity.iter().map(|&s| f64::from(s) / TEMPERATURE);
        let max = scaled.clone().fold(f64::NEG_INFINITY, f64::max);
        let values: Vec<f64> = scaled.map(|s| libm::exp(s - max)).collect();
        let sum: f64 = values.iter().sum();
        (values, max + libm::log(sum))
    }
}

fn check(inputs: &[&TensorType]) -> Result<(), String> {
    match inputs {
        [similarity, position, visible, ..]
            if similarity.shape.len() == 2
                && position.dtype == DType::I32
                && position.shape[..] == similarity.shape[..1]
                && visible.shape == position.shape =>
        {
            Ok(())
        }
        _ => Err("similarities [N, M], positions i32 [N] and visibilities [N]".to_owned()),
    }
}

fn rows<'a>(inputs: &'a [Tensor<'_>]) -> Result<Vec<Row<'a>>, String> {
    let [similarity, position, visible, ..] = inputs else {
        return Err("takes similarities, positions and visibilities".to_owned());
    };
    let (&[_, candidates], values) = similarity.read::<f32>()? else {
        return Err("takes similarities [N, M]".to_owned());
    };
    let samples = values.chunks(candidates.max(1));
    let samples = samples.zip(position.values::<i32>()?.iter());
    let samples = samples.zip(visible.values::<f32>()?.iter());
    samples
        .map(|((similarity, &position), &visible)| {
            let right = usize::try_from(position).ok();
            let right = right.filter(|&right| right < candidates);
            Ok(Row {
                similarity,
                right: right.ok_or_else(|| {
                    format!("{position} is no position of {candidates} candidates")
                })?,
                visible: f64::from(visible),
            })
        })
        .collect()
}

impl Operator for VisibleCrossEntropy {
    fn kind(&self) -> &'static str {
        "VisibleCrossEntropy"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        check(inputs)?;
        Ok(vec![TensorType::f32([])])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // Maximum, difference, exponential and sum.
        Cost::elementwise(inputs[0].elements(), 4)
    }

    fn describe(&self) -> String {
        format!("VisibleCrossEntropy(temperature={TEMPERATURE})")
    }
}

impl CustomOp for VisibleCrossEntropy {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let rows = rows(inputs)?;
        let loss: f64 = rows
            .iter()
            .map(|row| {
                let (_, log_sum) = row.exponentials();
                let right = f64::from(row.similarity[row.right]) / TEMPERATURE;
                row.visible * (log_sum - right)
            })
            .sum();
        let mean = loss / rows.len().max(1) as f64;
        Ok(vec![Tensor::scalar(mean as f32)])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(VisibleCrossEntropyGradient))
    }

    fn constants(&self) -> &[usize] {
        // Visibilities are data.
        &[2]
    }
}

/// ds = v / (N τ) · (softmax(s / τ) - one-hot y) · dloss.
#[derive(Clone, Copy, Debug)]
struct VisibleCrossEntropyGradient;

impl Operator for VisibleCrossEntropyGradient {
    fn kind(&self) -> &'static str {
        "VisibleCrossEntropyGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        check(inputs)?;
        Ok(vec![inputs[0].clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 6)
    }

    fn describe(&self) -> String {
        "VisibleCrossEntropy.gradient".to_owned()
    }
}

impl CustomOp for VisibleCrossEntropyGradient {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let (rows, [similarity, ..]) = (rows(inputs)?, inputs) else {
            return Err("takes similarities".to_owned());
        };
        let dy = inputs.last().map(|dy| dy.values::<f32>()).transpose()?;
        let dy = dy.and_then(<[f32]>::first).map_or(0.0, |&dy| f64::from(dy));
        let scale = dy / (TEMPERATURE * rows.len().max(1) as f64);
        let mut gradient = Vec::with_capacity(similarity.values::<f32>()?.len());
        for row in &rows {
            let (values, _) = row.exponentials();
            let sum: f64 = values.iter().sum();
            gradient.extend(values.iter().enumerate().map(|(candidate, value)| {
                let truth = if candidate == row.right { 1.0 } else { 0.0 };
                (scale * row.visible * (value / sum - truth)) as f32
            }));
        }
        let gradient = Tensor::from_values(similarity.shape(), gradient);
        Ok(vec![gradient.map_err(|error| error.to_string())?])
    }
}
