//! What CenterPoint learns by: focal loss of the heat maps, and the distance of the boxes at their centres.
//!
//! - Focal loss of a head, with p = sigmoid(logit) kept within [1e-4, 1 - 1e-4], t the target, and n the cells where t is 1:
//!   -(Σ over t = 1 of log p (1 - p)² + Σ over t < 1 of log(1 - p) p² (1 - t)⁴) / max(n, 1).
//! - Distance of a head's boxes: Σ over values v of w_v Σ over objects |said_v - target_v| / max(objects, 1), w = 1, but 0.2 for
//!   cosine and sine. (The public code means these weights for the velocities and meets slots 6 and 7; reproduced.) A target that is NaN
//!   is not known and counts nothing.
//! - Loss = Σ over heads of focal + 0.25 distance.
//!
//! Both are summed in f64.

use std::sync::Arc;

use percept_graph::{Cost, DType};
use percept_graph::{CustomOp, OpContext, Operator, Tensor, TensorType};

use super::head::BRANCHES;
use super::targets::CODE;

/// What the distance of the boxes is multiplied by.
const BOX_WEIGHT: f64 = 0.25;
/// What the distance of each value is multiplied by.
const CODE_WEIGHTS: [f64; CODE] = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.2, 0.2, 1.0, 1.0];
/// Chances stay this far from 0 and 1.
const MARGIN: f64 = 1e-4;

/// The loss of one cell of a heat map before it is divided, and its slope.
fn focal(logit: f64, target: f32) -> (f64, f64) {
    let chance = 1.0 / (1.0 + libm::exp(-logit));
    let p = chance.clamp(MARGIN, 1.0 - MARGIN);
    let (loss, by_p) = if target == 1.0 {
        let rest = 1.0 - p;
        let log = libm::log(p);
        (-log * rest * rest, 2.0 * log * rest - rest * rest / p)
    } else {
        let cold = 1.0 - f64::from(target);
        let weight = cold * cold * cold * cold;
        let log = libm::log(1.0 - p);
        (
            -weight * log * p * p,
            weight * (p * p / (1.0 - p) - 2.0 * log * p),
        )
    };
    // A chance at its limit does not move.
    let by_logit = if p == chance {
        chance * (1.0 - chance)
    } else {
        0.0
    };
    (loss, by_p * by_logit)
}

/// What the sum over a heat map is divided by.
fn centres(target: &[f32]) -> f64 {
    target.iter().filter(|t| **t == 1.0).count().max(1) as f64
}

/// Focal loss of logits [N, classes, H, W] with the target heat map: a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct FocalLoss;

impl Operator for FocalLoss {
    fn kind(&self) -> &'static str {
        "FocalLoss"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [logits, target] if logits.shape == target.shape => Ok(vec![TensorType::f32([])]),
            _ => Err("logits and a target of the same shape".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 10)
    }

    fn describe(&self) -> String {
        "FocalLoss()".to_owned()
    }
}

impl CustomOp for FocalLoss {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [logits, target] = inputs else {
            return Err("takes logits and a target".to_owned());
        };
        let (logits, target) = (logits.values::<f32>()?, target.values::<f32>()?);
        let cells = logits.iter().zip(target);
        let sum: f64 = cells.map(|(&x, &t)| focal(f64::from(x), t).0).sum();
        Ok(vec![Tensor::scalar((sum / centres(target)) as f32)])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(FocalLossGradient))
    }

    fn constants(&self) -> &[usize] {
        &[1]
    }
}

/// dlogits. Inputs: logits, target, loss, dloss.
#[derive(Debug)]
struct FocalLossGradient;

impl Operator for FocalLossGradient {
    fn kind(&self) -> &'static str {
        "FocalLossGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [logits, _, _, _] => Ok(vec![(*logits).clone()]),
            _ => Err("logits, the target, the loss and its gradient".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 15)
    }

    fn describe(&self) -> String {
        "FocalLoss.gradient()".to_owned()
    }
}

impl CustomOp for FocalLossGradient {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [logits, target, _, dloss] = inputs else {
            return Err("takes logits, the target, the loss and its gradient".to_owned());
        };
        let (shape, logits) = logits.read::<f32>()?;
        let target = target.values::<f32>()?;
        let scale = one_number(dloss)? / centres(target);
        let cells = logits.iter().zip(target);
        let slopes = cells.map(|(&x, &t)| (scale * focal(f64::from(x), t).1) as f32);
        Ok(vec![Tensor::from_values(
            shape,
            slopes.collect::<Vec<_>>(),
        )?])
    }
}

/// Distance of what the maps of a head (in the order of [`BRANCHES`], [N, channels, H, W] each) say at cells i32 [objects, 2] from
/// codes [objects, CODE]: a number, the weight of boxes included.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoxLoss;

/// The inputs of the loss, read.
struct Said<'a> {
    /// Each map with its channels.
    maps: Vec<(&'a [f32], usize)>,
    shapes: Vec<&'a [usize]>,
    /// Height times width.
    area: usize,
    /// Sample and cell.
    cells: &'a [[i32; 2]],
    codes: &'a [[f32; CODE]],
}

impl<'a> Said<'a> {
    fn new(inputs: &'a [Tensor<'_>]) -> Result<Self, String> {
        let wrong = || "takes five maps, cells [objects, 2] and codes [objects, 10]".to_owned();
        let (maps, rest) = inputs.split_at_checked(BRANCHES.len()).ok_or_else(wrong)?;
        let [cells, codes, ..] = rest else {
            return Err(wrong());
        };
        let (cells, left) = cells.values::<i32>()?.as_chunks::<2>();
        let codes = codes.values::<f32>()?.as_chunks::<CODE>().0;
        if !left.is_empty() || cells.len() != codes.len() {
            return Err(wrong());
        }
        let mut said = Self {
            maps: Vec::new(),
            shapes: Vec::new(),
            area: 0,
            cells,
            codes,
        };
        for (map, (_, channels)) in maps.iter().zip(BRANCHES) {
            let (shape, values) = map.read::<f32>()?;
            let &[_, _, height, width] = shape else {
                return Err(wrong());
            };
            said.area = height * width;
            said.maps.push((values, channels));
            said.shapes.push(shape);
        }
        Ok(said)
    }

    /// Calls `visit` with the map, its place, how far what is said there is from the target, and the weight of that.
    fn each(&self, mut visit: impl FnMut(usize, usize, f64, f64)) -> Result<(), String> {
        let scale = BOX_WEIGHT / self.cells.len().max(1) as f64;
        for (&[sample, cell], code) in self.cells.iter().zip(self.codes) {
            let mut targets = code.iter().zip(CODE_WEIGHTS);
            for (map, &(values, channels)) in self.maps.iter().enumerate() {
                for (channel, (&target, weight)) in targets.by_ref().take(channels).enumerate() {
                    let place = (sample as usize * channels + channel) * self.area + cell as usize;
                    let value = values.get(place).ok_or_else(|| {
                        format!("sample {sample} and cell {cell} are outside of the maps")
                    })?;
                    if !target.is_nan() {
                        let difference = f64::from(*value) - f64::from(target);
                        visit(map, place, difference, scale * weight);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Operator for BoxLoss {
    fn kind(&self) -> &'static str {
        "BoxLoss"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let maps = BRANCHES.len();
        let maps_fit = inputs
            .iter()
            .zip(BRANCHES)
            .all(|(map, (_, channels))| map.shape.len() == 4 && map.shape[1] == channels.into());
        match inputs.get(maps..) {
            Some([cells, codes])
                if maps_fit
                    && cells.dtype == DType::I32
                    && cells.shape.len() == 2
                    && codes.shape.len() == 2
                    && codes.shape[1] == CODE.into() =>
            {
                Ok(vec![TensorType::f32([])])
            }
            _ => Err("a head's five maps, cells i32 [K, 2] and codes [K, 10]".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[BRANCHES.len() + 1].elements(), 4)
    }

    fn describe(&self) -> String {
        "BoxLoss()".to_owned()
    }
}

impl CustomOp for BoxLoss {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let mut sum = 0.0;
        Said::new(inputs)?.each(|_, _, difference, weight| sum += weight * difference.abs())?;
        Ok(vec![Tensor::scalar(sum as f32)])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(BoxLossGradient))
    }

    fn constants(&self) -> &[usize] {
        const CODES: usize = BRANCHES.len() + 1;
        &[CODES]
    }
}

/// The gradients of the five maps. Inputs: those of the loss, the loss, dloss.
#[derive(Debug)]
struct BoxLossGradient;

impl Operator for BoxLossGradient {
    fn kind(&self) -> &'static str {
        "BoxLossGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs.get(..BRANCHES.len()) {
            Some(maps) => Ok(maps.iter().map(|map| (*map).clone()).collect()),
            None => Err("the loss's inputs, the loss and its gradient".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        // Mostly writing zeros.
        let maps = outputs.iter().map(|map| map.elements());
        let codes = inputs[BRANCHES.len() + 1].elements() * 4;
        Cost::elementwise(maps.fold(codes, |sum, map| sum + map), 1)
    }

    fn describe(&self) -> String {
        "BoxLoss.gradient()".to_owned()
    }
}

impl CustomOp for BoxLossGradient {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let dloss = inputs.last().ok_or("takes the gradient of the loss")?;
        let dloss = one_number(dloss)?;
        let said = Said::new(inputs)?;
        let zeros = said.maps.iter().map(|(map, _)| vec![0.0_f32; map.len()]);
        let mut gradients: Vec<Vec<f32>> = zeros.collect();
        said.each(|map, place, difference, weight| {
            // At the target itself the distance has no slope.
            let sign = if difference == 0.0 {
                0.0
            } else {
                difference.signum()
            };
            gradients[map][place] += (dloss * weight * sign) as f32;
        })?;
        let maps = said.shapes.iter().zip(gradients);
        maps.map(|(shape, values)| Tensor::from_values(*shape, values).map_err(String::from))
            .collect()
    }
}

fn one_number(tensor: &Tensor<'_>) -> Result<f64, String> {
    match tensor.values::<f32>()? {
        &[number] => Ok(f64::from(number)),
        _ => Err("takes the gradient of the loss, one number".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use percept_kernels::Cpu;

    #[test]
    fn slopes_are_those_of_finite_differences() {
        let step = 1e-5;
        for target in [0.0, 0.3, 0.99, 1.0] {
            for logit in [-8.0, -2.19, -0.1, 0.0, 1.5, 6.0] {
                let slope = focal(logit, target).1;
                let rise = focal(logit + step, target).0 - focal(logit - step, target).0;
                let estimate = rise / (2.0 * step);
                let error = (slope - estimate).abs();
                assert!(
                    error <= 1e-8 + 1e-7 * slope.abs(),
                    "{logit} {target}: {slope} {estimate}"
                );
            }
            // Beyond the limits nothing moves.
            assert_eq!(focal(-12.0, target).1, 0.0);
            assert_eq!(focal(12.0, target).1, 0.0);
        }
    }

    fn tensor(shape: &[usize], values: Vec<f32>) -> Tensor<'static> {
        Tensor::from_values(shape, values).unwrap()
    }

    fn run(op: &dyn CustomOp, inputs: &[Tensor<'_>]) -> Vec<Tensor<'static>> {
        let cpu = Cpu::new(1).unwrap();
        op.run(&OpContext::new(&cpu), inputs).unwrap()
    }

    /// Maps of two samples of 2 x 3 cells with two objects, and the cells and codes of these.
    fn boxes() -> Vec<Tensor<'static>> {
        let mut inputs = Vec::new();
        for (_, channels) in BRANCHES {
            let values = (0..2 * channels * 6).map(|i| (i * 7 % 11) as f32 * 0.25 - 1.0);
            inputs.push(tensor(&[2, channels, 2, 3], values.collect()));
        }
        inputs.push(Tensor::from_values([2, 2], vec![0_i32, 4, 1, 0]).unwrap());
        let mut codes: Vec<f32> = (0..2 * CODE).map(|i| (i * 5 % 7) as f32 * 0.3).collect();
        codes[8] = f32::NAN;
        inputs.push(tensor(&[2, CODE], codes));
        inputs
    }

    #[test]
    fn boxes_are_weighed_and_unknown_values_left_out() {
        let inputs = boxes();
        let loss = run(&BoxLoss, &inputs)[0].values::<f32>().unwrap()[0];
        let mut expected = 0.0;
        let codes = inputs[6].values::<f32>().unwrap();
        for (object, [sample, cell]) in [[0, 4], [1, 0]].into_iter().enumerate() {
            let mut slot = 0;
            for (map, (_, channels)) in inputs.iter().zip(BRANCHES) {
                let map = map.values::<f32>().unwrap();
                for channel in 0..channels {
                    let said = map[(sample * channels + channel) * 6 + cell];
                    let target = codes[object * CODE + slot];
                    let weight = if (6..8).contains(&slot) { 0.2 } else { 1.0 };
                    if !target.is_nan() {
                        expected += 0.25 * weight * (said - target).abs() / 2.0;
                    }
                    slot += 1;
                }
            }
        }
        assert!(
            (loss - expected).abs() < 1e-5,
            "{loss}, expected {expected}"
        );
    }

    #[test]
    fn gradients_of_boxes_are_those_of_finite_differences() {
        let mut inputs = boxes();
        let mut operands = inputs.clone();
        operands.extend([Tensor::scalar(0.0_f32), Tensor::scalar(2.0_f32)]);
        let gradients = run(&BoxLossGradient, &operands);
        let step = 1.0 / 64.0;
        let value = |inputs: &[Tensor<'_>]| {
            let mut sum = 0.0;
            let said = Said::new(inputs).unwrap();
            said.each(|_, _, difference, weight| sum += weight * difference.abs())
                .unwrap();
            sum
        };
        for map in 0..BRANCHES.len() {
            for place in 0..inputs[map].element_count() {
                let mut shift = |by: f32| {
                    inputs[map].values_mut::<f32>().unwrap()[place] += by;
                    value(&inputs)
                };
                let rise = shift(step) - shift(-2.0 * step);
                shift(step);
                let estimate = 2.0 * rise / (2.0 * f64::from(step));
                let found = f64::from(gradients[map].values::<f32>().unwrap()[place]);
                assert!(
                    (found - estimate).abs() < 1e-6,
                    "{map} {place}: {found} {estimate}"
                );
            }
        }
    }

    #[test]
    fn nothing_to_find_costs_what_is_hot() {
        let logits = tensor(&[1, 1, 1, 2], vec![0.0, -20.0]);
        let target = tensor(&[1, 1, 1, 2], vec![0.0, 0.0]);
        let loss = run(&FocalLoss, &[logits.clone(), target.clone()]);
        let loss = loss[0].values::<f32>().unwrap()[0];
        assert!((loss - 0.25 * 2.0_f32.ln()).abs() < 1e-6, "{loss}");
        let mut none = boxes();
        none[5] = Tensor::from_values([0, 2], Vec::<i32>::new()).unwrap();
        none[6] = tensor(&[0, CODE], Vec::new());
        assert_eq!(run(&BoxLoss, &none)[0].values::<f32>().unwrap(), [0.0]);
        none[5] = Tensor::from_values([1, 2], vec![7_i32, 0]).unwrap();
        none[6] = tensor(&[1, CODE], vec![0.0; CODE]);
        let cpu = Cpu::new(1).unwrap();
        let error = BoxLoss.run(&OpContext::new(&cpu), &none).unwrap_err();
        assert!(error.contains("outside of the maps"), "{error}");
    }
}
