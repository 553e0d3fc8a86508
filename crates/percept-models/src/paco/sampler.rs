//! Part sampling: where a map's strongest responses are. A selection, so no gradient flows through it.

use percept_graph::{Cost, CustomOp, Dim, OpContext, Operator, Tensor, TensorType};

use super::{Objective, windows};

/// Peaks i32 [V, K, 2] (row, column) of features [V, C, H, W], given the spatial logits [V, 1, H, W], and how often each
/// sample counts in the covariance, i32 [V, samples].
///
/// M = (Σ over c of softmax(mean F)[c] · F[c]) · softmax(logits); K times the largest, the first of equals; a peak suppresses
/// its neighbours.
#[derive(Clone, Debug)]
pub(super) struct PartSampler {
    pub parts: usize,
    pub window: usize,
    pub objective: Objective,
}

impl Operator for PartSampler {
    fn kind(&self) -> &'static str {
        "PartSampler"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [features, logits] = inputs else {
            return Err("features and spatial logits".to_owned());
        };
        let ([v, _, h, w], [lv, one, lh, lw]) = (&features.shape[..], &logits.shape[..]) else {
            return Err("features [V, C, H, W] and logits [V, 1, H, W]".to_owned());
        };
        if [v, h, w] != [lv, lh, lw] || *one != Dim::from(1) {
            return Err("logits [V, 1, H, W] of the features' map".to_owned());
        }
        let samples = match self.objective {
            Objective::Published => Dim::from(self.parts),
            Objective::Stable => h.clone() * w.clone(),
        };
        Ok(vec![
            TensorType::i32([v.clone(), self.parts.into(), 2.into()]),
            TensorType::i32([v.clone(), samples]),
        ])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 3)
    }

    fn describe(&self) -> String {
        format!("PartSampler(K={}, r={})", self.parts, self.window)
    }
}

impl CustomOp for PartSampler {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [features, logits] = inputs else {
            return Err("takes features and logits".to_owned());
        };
        let (&[views, channels, height, width], features) = features.read::<f32>()? else {
            return Err("takes features [V, C, H, W]".to_owned());
        };
        let logits = logits.values::<f32>()?;
        let area = height * width;
        let (mut peaks, mut multiplicity) = (Vec::new(), Vec::new());
        for view in 0..views {
            let map = &features[view * channels * area..][..channels * area];
            let mut response = response(map, &logits[view * area..][..area]);
            let start = peaks.len();
            for _ in 0..self.parts {
                let [y, x] = self.take_peak(&mut response, [height, width]);
                peaks.extend([y as i32, x as i32]);
            }
            match self.objective {
                Objective::Published => multiplicity.extend(vec![1; self.parts]),
                Objective::Stable => {
                    let mut counts = vec![0i32; area];
                    for window in windows(&peaks[start..], self.window, [height, width])? {
                        window.pixels(width).for_each(|pixel| counts[pixel] += 1);
                    }
                    multiplicity.extend(counts);
                }
            }
        }
        let samples = multiplicity.len() / views.max(1);
        Ok(vec![
            Tensor::from_values([views, self.parts, 2], peaks)?,
            Tensor::from_values([views, samples], multiplicity)?,
        ])
    }
}

impl PartSampler {
    /// The largest response, which is then suppressed together with its neighbours.
    fn take_peak(&self, response: &mut [f64], [height, width]: [usize; 2]) -> [usize; 2] {
        let mut best = 0;
        for (pixel, &value) in response.iter().enumerate() {
            if value > response[best] {
                best = pixel;
            }
        }
        let (y, x) = (best / width.max(1), best % width.max(1));
        let reach = |side: usize| match self.objective {
            Objective::Published => side / 10,
            Objective::Stable => (self.window / 2).max(1),
        };
        let (down, across) = (reach(height), reach(width));
        for row in y.saturating_sub(down)..(y + down + 1).min(height) {
            for column in x.saturating_sub(across)..(x + across + 1).min(width) {
                response[row * width + column] = f64::NEG_INFINITY;
            }
        }
        [y, x]
    }
}

/// The response M of one image.
fn response(map: &[f32], logits: &[f32]) -> Vec<f64> {
    let area = logits.len().max(1);
    let mean = |plane: &[f32]| plane.iter().map(|&v| f64::from(v)).sum::<f64>() / area as f64;
    let channels = softmax(map.chunks_exact(area).map(mean).collect());
    let places = softmax(logits.iter().map(|&v| f64::from(v)).collect());
    let mut response = vec![0.0; logits.len()];
    for (plane, share) in map.chunks_exact(area).zip(channels) {
        for (sum, &value) in response.iter_mut().zip(plane) {
            *sum += share * f64::from(value);
        }
    }
    let pairs = response.iter().zip(places);
    pairs.map(|(response, place)| response * place).collect()
}

fn softmax(mut values: Vec<f64>) -> Vec<f64> {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter_mut().for_each(|v| *v = libm::exp(*v - largest));
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|v| *v /= sum);
    values
}
