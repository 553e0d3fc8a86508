//! The pool: the distances of every part of the first views from all parts of the batch, in the metric of its image.

use percept_graph::{Cost, CustomOp, OpContext, Operator, Tensor, TensorType};

use super::scene::{Measure, Samples, pool};

/// Parts [2N, K, D], samples, their counts and the cached factors to distances [N, K, 2NK]. Selections read them.
#[derive(Clone, Debug)]
pub(super) struct PoolDistances {
    pub measure: Measure,
}

impl Operator for PoolDistances {
    fn kind(&self) -> &'static str {
        "PoolDistances"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [parts, _, _, _] = inputs else {
            return Err("parts, samples, counts and factors".to_owned());
        };
        let [v, k, _] = &parts.shape[..] else {
            return Err("parts [2N, K, D]".to_owned());
        };
        let all = v.clone() * k.clone();
        let distances = [v.floor_div(2), k.clone(), all];
        Ok(vec![TensorType::f32(distances)])
    }

    fn cost(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        // A triangular system for every column of the pool, then the differences.
        let size = inputs[3].shape[3].clone();
        let columns = outputs[0].shape[2].clone() * outputs[0].shape[0].clone();
        let solves = (columns * size.clone() * size).floor_div(2);
        Cost::macs(solves + outputs[0].elements() * inputs[0].shape[2].clone())
    }

    fn describe(&self) -> String {
        format!("PoolDistances({:?})", self.measure.form)
    }
}

impl CustomOp for PoolDistances {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [z, samples, counts, cached] = inputs else {
            return Err("takes parts, samples, counts and factors".to_owned());
        };
        let (&[views, parts, d], z) = z.read::<f32>()? else {
            return Err("takes parts [2N, K, D]".to_owned());
        };
        let samples = Samples::new(context, samples, counts)?;
        let cached = cached.values::<f32>()?;
        let (images, columns) = (views / 2, views * parts);
        let pool = pool(z, d);
        let mut data = Vec::with_capacity(images * parts * columns);
        for image in 0..images {
            let metric = samples.metric(&self.measure, cached, image);
            let anchors = image * parts..(image + 1) * parts;
            let repeats = images.saturating_sub(1).max(1);
            let squared = metric.squared_distances(columns, &pool, anchors, repeats);
            let squared = squared.map_err(|error| format!("image {image}: {error}"))?;
            data.extend(
                squared
                    .iter()
                    .map(|&s| self.measure.distance(s, d).0 as f32),
            );
        }
        Ok(vec![Tensor::from_values([images, parts, columns], data)?])
    }
}
