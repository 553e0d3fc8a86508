//! Cross-entropy that counts images by how strong their features are at the parts.
//!
//! w = the mean of ‖F‖₂ over the windows of the first view. Published: (1 - γ) CE + γ mean(w) CE, where w has a gradient, so
//! that weak features pay. Stable: (1 - γ) CE + γ mean(w CE / mean(w)), where w is a number.

use std::sync::Arc;

use percept_graph::{Cost, CustomOp, DType, OpContext, Operator, Tensor, TensorType};

use super::{Objective, windows};

/// Features [2N, C, H, W] and peaks i32 [2N, K, 2] to the strength [N] of the first views.
#[derive(Clone, Debug)]
pub(super) struct Strength {
    pub window: usize,
}

impl Operator for Strength {
    fn kind(&self) -> &'static str {
        "PartStrength"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [features, peaks] if features.shape.len() == 4 && peaks.shape.len() == 3 => {
                Ok(vec![TensorType::f32([features.shape[0].floor_div(2)])])
            }
            _ => Err("features [2N, C, H, W] and peaks [2N, K, 2]".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 1)
    }

    fn describe(&self) -> String {
        format!("PartStrength(r={})", self.window)
    }
}

/// What the windows of a view give each pixel, and the norm there.
struct Pixels {
    shares: Vec<f64>,
    norms: Vec<f64>,
}

impl Strength {
    fn pixels(
        &self,
        map: &[f32],
        peaks: &[i32],
        [height, width]: [usize; 2],
    ) -> Result<Pixels, String> {
        let mut norms = vec![0.0f64; height * width];
        for plane in map.chunks_exact(norms.len().max(1)) {
            for (norm, &v) in norms.iter_mut().zip(plane) {
                *norm += f64::from(v) * f64::from(v);
            }
        }
        norms.iter_mut().for_each(|norm| *norm = norm.sqrt());
        let mut shares = vec![0.0f64; norms.len()];
        let windows = windows(peaks, self.window, [height, width])?;
        for window in &windows {
            let share = 1.0 / (window.area() * windows.len()) as f64;
            window
                .pixels(width)
                .for_each(|pixel| shares[pixel] += share);
        }
        Ok(Pixels { shares, norms })
    }
}

impl CustomOp for Strength {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [features, peaks] = inputs else {
            return Err("takes features and peaks".to_owned());
        };
        let ((&[views, channels, height, width], features), (&[_, parts, _], peaks)) =
            (features.read::<f32>()?, peaks.read::<i32>()?)
        else {
            return Err("takes features [2N, C, H, W] and peaks [2N, K, 2]".to_owned());
        };
        let volume = channels * height * width;
        let mut data = Vec::with_capacity(views / 2);
        for view in 0..views / 2 {
            let map = &features[view * volume..][..volume];
            let peaks = &peaks[view * parts * 2..][..parts * 2];
            let Pixels { shares, norms } = self.pixels(map, peaks, [height, width])?;
            let strength: f64 = shares.iter().zip(norms).map(|(s, n)| s * n).sum();
            data.push(strength as f32);
        }
        Ok(vec![Tensor::from_values([data.len()], data)?])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(StrengthGradient {
            strength: self.clone(),
        }))
    }
}

/// dF = dw · share · F / ‖F‖. Inputs: features, peaks, strength, dstrength.
#[derive(Clone, Debug)]
struct StrengthGradient {
    strength: Strength,
}

impl Operator for StrengthGradient {
    fn kind(&self) -> &'static str {
        "PartStrengthGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [features, _, _, _] => Ok(vec![(*features).clone()]),
            _ => Err("features, peaks, strength and its gradient".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 2)
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.strength.describe())
    }
}

impl CustomOp for StrengthGradient {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [features, peaks, _, dstrength] = inputs else {
            return Err("takes features, peaks, strength and its gradient".to_owned());
        };
        let ((shape @ &[_, channels, height, width], features), (&[_, parts, _], peaks)) =
            (features.read::<f32>()?, peaks.read::<i32>()?)
        else {
            return Err("takes features [2N, C, H, W] and peaks [2N, K, 2]".to_owned());
        };
        let dstrength = dstrength.values::<f32>()?;
        let (area, volume) = (height * width, channels * height * width);
        let mut data = vec![0.0f32; features.len()];
        for (view, &gradient) in dstrength.iter().enumerate() {
            let map = &features[view * volume..][..volume];
            let peaks = &peaks[view * parts * 2..][..parts * 2];
            let Pixels { shares, norms } = self.strength.pixels(map, peaks, [height, width])?;
            let pairs = shares.iter().zip(&norms);
            let factors: Vec<f64> = pairs
                .map(|(share, norm)| match *norm > 0.0 {
                    true => f64::from(gradient) * share / norm,
                    false => 0.0,
                })
                .collect();
            let target = data[view * volume..][..volume].chunks_exact_mut(area.max(1));
            for (target, plane) in target.zip(map.chunks_exact(area.max(1))) {
                for ((target, &v), factor) in target.iter_mut().zip(plane).zip(&factors) {
                    *target = (f64::from(v) * factor) as f32;
                }
            }
        }
        Ok(vec![Tensor::from_values(shape, data)?])
    }
}

/// Cross-entropy of logits [N, C] with labels i32 [N], weighed by the strength [N].
#[derive(Clone, Debug)]
pub(super) struct FocusedCrossEntropy {
    pub objective: Objective,
    pub gamma: f64,
}

impl Operator for FocusedCrossEntropy {
    fn kind(&self) -> &'static str {
        "FocusedCrossEntropy"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [logits, labels, strength]
                if logits.shape.len() == 2
                    && labels.dtype == DType::I32
                    && labels.shape == logits.shape[..1]
                    && strength.shape == logits.shape[..1] =>
            {
                Ok(vec![TensorType::f32([])])
            }
            _ => Err("logits [N, C], labels i32 [N] and strength [N]".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 5)
    }

    fn describe(&self) -> String {
        format!("FocusedCrossEntropy(gamma={})", self.gamma)
    }
}

/// The classification of a batch.
struct Scores {
    /// softmax(logits) [N, C].
    chances: Vec<f64>,
    labels: Vec<usize>,
    /// CE of each image.
    losses: Vec<f64>,
    /// What each image's CE is multiplied by, its share of the mean included.
    factors: Vec<f64>,
}

impl FocusedCrossEntropy {
    fn scores(&self, inputs: &[Tensor<'_>]) -> Result<Scores, String> {
        let [logits, labels, strength] = inputs else {
            return Err("takes logits, labels and strength".to_owned());
        };
        let (&[images, classes], logits) = logits.read::<f32>()? else {
            return Err("takes logits [N, C]".to_owned());
        };
        let (labels, strength) = (labels.values::<i32>()?, strength.values::<f32>()?);
        let mut scores = Scores {
            chances: Vec::with_capacity(logits.len()),
            labels: Vec::with_capacity(images),
            losses: Vec::with_capacity(images),
            factors: Vec::with_capacity(images),
        };
        let mean = strength.iter().map(|&w| f64::from(w)).sum::<f64>() / images.max(1) as f64;
        for (image, (row, &label)) in logits.chunks_exact(classes.max(1)).zip(labels).enumerate() {
            let class = usize::try_from(label).ok().filter(|&class| class < classes);
            let class = class.ok_or_else(|| format!("label {label} is outside 0..{classes}"))?;
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let shifted = row.iter().map(|&v| f64::from(v) - f64::from(largest));
            let sum: f64 = shifted.clone().map(libm::exp).sum();
            let own = f64::from(row[class]) - f64::from(largest);
            scores.losses.push(libm::log(sum) - own);
            scores.chances.extend(shifted.map(|v| libm::exp(v) / sum));
            scores.labels.push(class);
            let weight = match self.objective {
                Objective::Published => mean,
                Objective::Stable if mean > 0.0 => f64::from(strength[image]) / mean,
                Objective::Stable => 1.0,
            };
            let factor = 1.0 - self.gamma + self.gamma * weight;
            scores.factors.push(factor / images as f64);
        }
        Ok(scores)
    }
}

impl CustomOp for FocusedCrossEntropy {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let scores = self.scores(inputs)?;
        let terms = scores.losses.iter().zip(&scores.factors);
        let loss: f64 = terms.map(|(loss, factor)| loss * factor).sum();
        Ok(vec![Tensor::scalar(loss as f32)])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(FocusedCrossEntropyGradient { loss: self.clone() }))
    }

    fn constants(&self) -> &[usize] {
        match self.objective {
            Objective::Published => &[],
            Objective::Stable => &[2],
        }
    }
}

/// dlogits and, in the published objective, dstrength. Inputs: those of the loss, the loss, dloss.
#[derive(Clone, Debug)]
struct FocusedCrossEntropyGradient {
    loss: FocusedCrossEntropy,
}

impl Operator for FocusedCrossEntropyGradient {
    fn kind(&self) -> &'static str {
        "FocusedCrossEntropyGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [logits, _, strength, _, _] = inputs else {
            return Err("the loss's inputs, the loss and its gradient".to_owned());
        };
        Ok(match self.loss.objective {
            Objective::Published => vec![(*logits).clone(), (*strength).clone()],
            Objective::Stable => vec![(*logits).clone()],
        })
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 7)
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.loss.describe())
    }
}

impl CustomOp for FocusedCrossEntropyGradient {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let (own, rest) = inputs.split_at_checked(3).ok_or("takes five inputs")?;
        let [_, dloss] = rest else {
            return Err("takes the loss and its gradient".to_owned());
        };
        let &[dloss] = dloss.values::<f32>()? else {
            return Err("takes the gradient of the loss, one number".to_owned());
        };
        let dloss = f64::from(dloss);
        let (shape, images) = (own[0].shape(), own[2].element_count());
        let mut scores = self.loss.scores(own)?;
        let classes = scores.chances.len() / images.max(1);
        let rows = scores.chances.chunks_exact_mut(classes.max(1));
        for ((row, &label), factor) in rows.zip(&scores.labels).zip(&scores.factors) {
            row[label] -= 1.0;
            row.iter_mut().for_each(|v| *v *= dloss * factor);
        }
        let dlogits: Vec<f32> = scores.chances.iter().map(|&g| g as f32).collect();
        let mut gradients = vec![Tensor::from_values(shape, dlogits)?];
        if self.loss.objective == Objective::Published {
            // mean(w) mean(CE): every strength has the same share of it.
            let mean = scores.losses.iter().sum::<f64>() / images.max(1) as f64;
            let share = dloss * self.loss.gamma * mean / images.max(1) as f64;
            gradients.push(Tensor::from_values([images], vec![share as f32; images])?);
        }
        Ok(gradients)
    }
}
