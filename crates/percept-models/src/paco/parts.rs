//! Parts: the means of windows, and how their gradient spreads over the pixels.

use std::sync::Arc;

use percept_graph::{Cost, CustomOp, OpContext, Operator, Tensor, TensorType};

use super::windows;

/// How often each of the parts [V, K, D] counts where nothing was sampled: once, i32 [V, K].
#[derive(Clone, Debug)]
pub(super) struct EachOnce;

impl Operator for EachOnce {
    fn kind(&self) -> &'static str {
        "EachOnce"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [parts] if parts.shape.len() == 3 => {
                Ok(vec![TensorType::i32(parts.shape[..2].iter().cloned())])
            }
            _ => Err("parts [V, K, D]".to_owned()),
        }
    }

    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }

    fn describe(&self) -> String {
        "EachOnce()".to_owned()
    }
}

impl CustomOp for EachOnce {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [parts] = inputs else {
            return Err("takes parts".to_owned());
        };
        let shape = &parts.shape()[..2];
        let once = vec![1i32; shape.iter().product()];
        Ok(vec![Tensor::from_values(shape, once)?])
    }
}

/// Means [V, K, D] of the windows around peaks [V, K, 2] of rows [V, H, W, D].
#[derive(Clone, Debug)]
pub(super) struct WindowMeans {
    pub window: usize,
}

impl Operator for WindowMeans {
    fn kind(&self) -> &'static str {
        "WindowMeans"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [rows, peaks] = inputs else {
            return Err("a map and peaks".to_owned());
        };
        match (&rows.shape[..], &peaks.shape[..]) {
            ([v, _, _, d], [pv, k, _]) if v == pv => {
                Ok(vec![TensorType::f32([v.clone(), k.clone(), d.clone()])])
            }
            _ => Err("a map [V, H, W, D] and peaks [V, K, 2]".to_owned()),
        }
    }

    fn cost(&self, _: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        Cost::elementwise(outputs[0].elements(), (self.window * self.window) as i64)
    }

    fn describe(&self) -> String {
        format!("WindowMeans(r={})", self.window)
    }
}

impl CustomOp for WindowMeans {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [map, peaks] = inputs else {
            return Err("takes a map and peaks".to_owned());
        };
        let ((&[views, height, width, d], rows), (&[_, parts, _], peaks)) =
            (map.read::<f32>()?, peaks.read::<i32>()?)
        else {
            return Err("takes a map [V, H, W, D] and peaks [V, K, 2]".to_owned());
        };
        let mut data = Vec::with_capacity(views * parts * d);
        for view in 0..views {
            let rows = &rows[view * height * width * d..];
            let peaks = &peaks[view * parts * 2..][..parts * 2];
            for window in windows(peaks, self.window, [height, width])? {
                let mut sums = vec![0.0f64; d];
                for pixel in window.pixels(width) {
                    for (sum, &value) in sums.iter_mut().zip(&rows[pixel * d..]) {
                        *sum += f64::from(value);
                    }
                }
                let area = window.area() as f64;
                data.extend(sums.into_iter().map(|sum| (sum / area) as f32));
            }
        }
        Ok(vec![Tensor::from_values([views, parts, d], data)?])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(WindowMeansGradient {
            window: self.window,
        }))
    }
}

/// Each pixel of a window gets an equal share. Inputs: map, peaks, means, dmeans.
#[derive(Clone, Debug)]
struct WindowMeansGradient {
    window: usize,
}

impl Operator for WindowMeansGradient {
    fn kind(&self) -> &'static str {
        "WindowMeansGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [rows, _, _, _] => Ok(vec![(*rows).clone()]),
            _ => Err("a map, peaks, means and their gradient".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[3].elements(), (self.window * self.window) as i64)
    }

    fn describe(&self) -> String {
        format!("WindowMeans(r={}).gradient", self.window)
    }
}

impl CustomOp for WindowMeansGradient {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [map, peaks, _, dmeans] = inputs else {
            return Err("takes a map, peaks, means and their gradient".to_owned());
        };
        let (&[views, height, width, d], (&[_, parts, _], peaks)) =
            (map.shape(), peaks.read::<i32>()?)
        else {
            return Err("takes a map [V, H, W, D] and peaks [V, K, 2]".to_owned());
        };
        let dmeans = dmeans.values::<f32>()?;
        let mut data = vec![0.0f32; views * height * width * d];
        for view in 0..views {
            let rows = &mut data[view * height * width * d..];
            let peaks = &peaks[view * parts * 2..][..parts * 2];
            for (part, window) in windows(peaks, self.window, [height, width])?
                .iter()
                .enumerate()
            {
                let dmean = &dmeans[(view * parts + part) * d..][..d];
                let share = 1.0 / window.area() as f32;
                for pixel in window.pixels(width) {
                    for (sum, &gradient) in rows[pixel * d..].iter_mut().zip(dmean) {
                        *sum += share * gradient;
                    }
                }
            }
        }
        Ok(vec![Tensor::from_values(map.shape(), data)?])
    }
}
