//! Mean and covariance of what an encoding layer takes, over all neighbours of all points.
//!
//! Training normalises encodings by the statistics of all of them. With m the mean and C the covariance of a layer's inputs, its
//! outputs W x + b have the mean W m + b and the variances diag(W C Wᵀ): no row of an encoding needs to be there.

use std::sync::Arc;

use percept_graph::{
    Builder, Cost, CustomOp, Dim, Op, OpContext, Operator, Tensor, TensorType, ValueId,
};
use percept_kernels::points::{
    AggregationShape, GEOMETRY, Join, Moments, encoding_moments, encoding_moments_gradient,
    geometry_moments,
};

use super::aggregation::Layer;
use super::levels::LevelValues;

/// Points [P, 3], neighbours i32 [P, K] and, for what the first encoding gives, its weight [C, 10] and bias [C], to the mean [W]
/// and the covariance [W, W] of 10 or C numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EncodingMoments {
    pub join: Join,
    pub slope: f32,
}

impl EncodingMoments {
    /// Mean and covariance of the geometry, or of what this layer makes of it.
    pub(super) fn call(
        self,
        b: &mut Builder,
        name: &str,
        level: &LevelValues,
        encode: Option<Layer>,
    ) -> [ValueId; 2] {
        let mut inputs = vec![level.points, level.neighbours];
        inputs.extend(encode.iter().flat_map(|&(weight, bias)| [weight, bias]));
        let op: Arc<dyn CustomOp> = Arc::new(self);
        match b.call_many(name, Op::Custom(op), &inputs)[..] {
            [mean, covariance] => [mean, covariance],
            // The builder has kept the error that says why.
            _ => [level.points; 2],
        }
    }

    fn read<'a>(&self, inputs: &'a [Tensor<'_>]) -> Result<Operands<'a>, String> {
        let [points, neighbours, weights @ ..] = inputs else {
            return Err("takes points, neighbours and a layer".to_owned());
        };
        let points = points.values::<f32>()?.as_chunks::<3>().0;
        let (&[_, k], neighbours) = neighbours.read::<i32>()? else {
            return Err("takes neighbours [P, K]".to_owned());
        };
        if neighbours
            .iter()
            .any(|&n| usize::try_from(n).map_or(true, |n| n >= points.len()))
        {
            return Err("a neighbour is no point".to_owned());
        }
        let encode = match weights {
            [weight, bias, ..] => Some((weight.values::<f32>()?, bias.values::<f32>()?)),
            _ => None,
        };
        let width = encode.map_or(GEOMETRY, |(_, bias)| bias.len());
        let shape = AggregationShape {
            points: points.len(),
            k,
            width,
            join: self.join,
            slope: self.slope,
        };
        Ok(Operands {
            shape,
            points,
            neighbours,
            encode,
        })
    }
}

struct Operands<'a> {
    shape: AggregationShape,
    points: &'a [[f32; 3]],
    neighbours: &'a [i32],
    encode: Option<(&'a [f32], &'a [f32])>,
}

/// The mean and the covariance that sums stand for.
fn statistics(moments: &Moments) -> (Vec<f64>, Vec<f64>) {
    let (rows, width) = (moments.rows.max(1) as f64, moments.sums.len());
    let mean: Vec<f64> = moments.sums.iter().map(|sum| sum / rows).collect();
    let covariance = (0..width * width)
        .map(|at| moments.products[at] / rows - mean[at / width] * mean[at % width])
        .collect();
    (mean, covariance)
}

fn rounded(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

impl Operator for EncodingMoments {
    fn kind(&self) -> &'static str {
        "EncodingMoments"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let width: Dim = match inputs {
            [_, _] => GEOMETRY.into(),
            [_, _, _, bias] if bias.shape.len() == 1 => bias.shape[0].clone(),
            _ => return Err("points, neighbours, and a layer's weight and bias".to_owned()),
        };
        Ok(vec![
            TensorType::f32([width.clone()]),
            TensorType::f32([width.clone(), width]),
        ])
    }

    fn cost(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        let rows = inputs[1].elements();
        Cost::macs(rows * outputs[1].elements())
    }

    fn describe(&self) -> String {
        "EncodingMoments()".to_owned()
    }
}

impl CustomOp for EncodingMoments {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let Operands {
            shape,
            points,
            neighbours,
            encode,
        } = self.read(inputs)?;
        let cpu = context.machine()?;
        let moments = match encode {
            Some(encode) => encoding_moments(cpu, &shape, encode, points, neighbours),
            None => geometry_moments(cpu, &shape, points, neighbours),
        };
        let (mean, covariance) = statistics(&moments);
        let width = mean.len();
        Ok(vec![
            Tensor::from_values([width], rounded(&mean))?,
            Tensor::from_values([width, width], rounded(&covariance))?,
        ])
    }

    fn constants(&self) -> &[usize] {
        // Where points are is data.
        &[0]
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(EncodingMomentsGradient(*self)))
    }
}

/// The gradients of the first encoding's weight and bias by mean and covariance of what it gives.
#[derive(Debug)]
struct EncodingMomentsGradient(EncodingMoments);

impl Operator for EncodingMomentsGradient {
    fn kind(&self) -> &'static str {
        "EncodingMomentsGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let layer = inputs.get(2..4).ok_or("points, neighbours and a layer")?;
        Ok(layer.iter().map(|&ty| ty.clone()).collect())
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        let (rows, bias) = (inputs[1].elements(), inputs[3].elements());
        Cost::macs(rows * bias.clone() * (bias + 10))
    }

    fn describe(&self) -> String {
        "EncodingMomentsGradient()".to_owned()
    }
}

impl CustomOp for EncodingMomentsGradient {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [operands @ .., mean, _, dmean, dcovariance] = inputs else {
            return Err("takes a layer, its moments and their gradients".to_owned());
        };
        let Operands {
            shape,
            points,
            neighbours,
            encode,
        } = self.0.read(operands)?;
        let encode = encode.ok_or("takes a layer")?;
        let (mean, dmean) = (mean.values::<f32>()?, dmean.values::<f32>()?);
        let dcovariance = dcovariance.values::<f32>()?;
        let (rows, width) = ((shape.points * shape.k).max(1) as f64, mean.len());
        // Of the covariance, products / rows - mean meanᵀ.
        let dproducts: Vec<f64> = dcovariance.iter().map(|&d| f64::from(d) / rows).collect();
        let dsums: Vec<f64> = (0..width)
            .map(|a| {
                let by_mean: f64 = (0..width)
                    .map(|b| {
                        (dproducts[a * width + b] + dproducts[b * width + a]) * f64::from(mean[b])
                    })
                    .sum();
                f64::from(dmean[a]) / rows - by_mean
            })
            .collect();
        let (dweight, dbias) = encoding_moments_gradient(
            context.machine()?,
            &shape,
            encode,
            points,
            neighbours,
            &dsums,
            &dproducts,
        );
        let shapes = operands[2..4]
            .iter()
            .map(|operand| operand.shape().to_vec());
        shapes
            .zip([dweight, dbias])
            .map(|(shape, values)| Ok(Tensor::from_values(shape, values)?))
            .collect()
    }
}
