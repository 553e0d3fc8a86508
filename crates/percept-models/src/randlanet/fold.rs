//! The parameters of a shared MLP as values, and its norm folded into its linear map: the running statistics, or, in training,
//! those of the batch, which follow from the moments of what the map takes.

use std::sync::Arc;

use percept_graph::{
    Affine, Builder, Cost, CustomOp, Initializer, Op, OpContext, Operator, ParameterValue, Tensor,
    TensorType, ValueId,
};

use super::aggregation::Layer;
use super::config::RandLaNet;

/// The parameters and running statistics of a linear map [out, in, 1, 1] with a norm.
pub(super) struct MlpParameters {
    weight: ValueId,
    bias: ValueId,
    gamma: ValueId,
    beta: ValueId,
    mean: ValueId,
    variance: ValueId,
}

/// A trainable parameter as a value, which starts as PyTorch's layers do.
pub(super) fn parameter(
    b: &mut Builder,
    name: &'static str,
    shape: &[usize],
    init: Initializer,
) -> ValueId {
    let shape = shape.to_vec();
    b.call(
        name,
        ParameterValue {
            name,
            shape,
            init,
            trainable: true,
        },
        &[],
    )
}

impl MlpParameters {
    /// Declares them under the names that the layer's own ops would give them.
    pub(super) fn declare(b: &mut Builder, name: &str, [inputs, outputs]: [usize; 2]) -> Self {
        let init = Initializer::FanIn(inputs);
        let mut values = Vec::new();
        b.module(name, "SharedMLP", |b| {
            b.module("conv", "Conv2d", |b| {
                values.push(parameter(b, "weight", &[outputs, inputs, 1, 1], init));
                values.push(parameter(b, "bias", &[outputs], init));
                values[0]
            });
            b.module("batch_norm", "BatchNorm2d", |b| {
                values.push(parameter(b, "weight", &[outputs], Initializer::Ones));
                values.push(parameter(b, "bias", &[outputs], Initializer::Zeros));
                values.push(b.buffer("running_mean", &[outputs], Initializer::Zeros));
                values.push(b.buffer("running_var", &[outputs], Initializer::Ones));
                values[2]
            })
        });
        let [weight, bias, gamma, beta, mean, variance] = values[..] else {
            unreachable!("six were declared")
        };
        Self {
            weight,
            bias,
            gamma,
            beta,
            mean,
            variance,
        }
    }

    /// The linear map with the norm of a batch folded in, whose inputs have this mean [in] and covariance [in, in]; moves the
    /// running statistics. (Over hundreds of thousands of rows the unbiased variance that PyTorch keeps is this one.)
    pub(super) fn folded_in_training(
        &self,
        b: &mut Builder,
        network: &RandLaNet,
        [mean, covariance]: [ValueId; 2],
    ) -> Layer {
        let norm = network.norm(1);
        let op: Arc<dyn CustomOp> = Arc::new(FoldedBatchNorm { eps: norm.eps });
        let inputs = [
            self.weight,
            self.bias,
            self.gamma,
            self.beta,
            mean,
            covariance,
        ];
        let outputs = b.call_many("folded", Op::Custom(op), &inputs);
        let [weight, bias, batch_mean, batch_variance] = outputs[..] else {
            return (self.weight, self.bias);
        };
        for (running, batch) in [(self.mean, batch_mean), (self.variance, batch_variance)] {
            let kept = b.call("kept", Affine::scaled(1.0 - norm.momentum), &[running]);
            let new = b.call("new", Affine::scaled(norm.momentum), &[batch]);
            let moved = b.add("moved", kept, new);
            b.buffer_becomes(running, moved);
        }
        (weight, bias)
    }

    /// The linear map with the norm's running statistics folded in.
    pub(super) fn folded(&self, b: &mut Builder, network: &RandLaNet) -> Layer {
        let eps = network.norm(1).eps;
        let op: Arc<dyn CustomOp> = Arc::new(FoldedNorm { eps });
        let inputs = [
            self.weight,
            self.bias,
            self.gamma,
            self.beta,
            self.mean,
            self.variance,
        ];
        match b.call_many("folded", Op::Custom(op), &inputs)[..] {
            [weight, bias] => (weight, bias),
            // The builder has kept the error that says why.
            _ => (self.weight, self.bias),
        }
    }
}

/// Weight [out, in, 1, 1], bias and a norm's parameters and statistics [out] to weight [out, in] and bias [out].
#[derive(Debug)]
struct FoldedNorm {
    eps: f32,
}

impl Operator for FoldedNorm {
    fn kind(&self) -> &'static str {
        "FoldedNorm"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [weight, bias, _, _, _, _]
                if weight.shape.len() >= 2 && bias.shape[..] == weight.shape[..1] =>
            {
                let matrix = weight.shape[..2].iter().cloned();
                Ok(vec![TensorType::f32(matrix), (*bias).clone()])
            }
            _ => Err("a weight [out, in, 1, 1], a bias and four of a norm [out]".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 1)
    }

    fn describe(&self) -> String {
        format!("FoldedNorm(eps={})", self.eps)
    }
}

impl CustomOp for FoldedNorm {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [weight, vectors @ ..] = inputs else {
            return Err("takes a weight, a bias and a norm".to_owned());
        };
        let (shape, weight) = weight.read::<f32>()?;
        let vectors = vectors
            .iter()
            .map(|vector| vector.values::<f32>())
            .collect::<Result<Vec<_>, _>>()?;
        let (&[outputs, width, ..], [bias, gamma, beta, mean, variance]) = (shape, &vectors[..])
        else {
            return Err("takes a weight [out, in, 1, 1], a bias and a norm".to_owned());
        };
        let scale: Vec<f64> = gamma
            .iter()
            .zip(*variance)
            .map(|(&gamma, &variance)| {
                f64::from(gamma) / (f64::from(variance) + f64::from(self.eps)).sqrt()
            })
            .collect();
        let rows = weight.chunks_exact(width.max(1)).zip(&scale);
        let folded: Vec<f32> = rows
            .flat_map(|(row, scale)| row.iter().map(move |&w| (f64::from(w) * scale) as f32))
            .collect();
        let shift = (0..outputs)
            .map(|at| {
                ((f64::from(bias[at]) - f64::from(mean[at])) * scale[at] + f64::from(beta[at]))
                    as f32
            })
            .collect::<Vec<f32>>();
        Ok(vec![
            Tensor::from_values([outputs, width], folded)?,
            Tensor::from_values([outputs], shift)?,
        ])
    }
}

/// Weight [out, in, 1, 1], bias, gamma and beta [out], and mean [in] and covariance [in, in] of what the map takes, to the folded
/// weight [out, in] and bias [out], and mean and variance [out] of what it gives.
///
/// With s = gamma / sqrt(diag(W C Wᵀ) + eps): W' = s W and b' = beta - s W m. The bias itself cancels.
#[derive(Debug)]
struct FoldedBatchNorm {
    eps: f32,
}

/// The operands of a fold, in f64.
struct Fold {
    inputs: usize,
    weight: Vec<f64>,
    gamma: Vec<f64>,
    mean: Vec<f64>,
    /// W m.
    centre: Vec<f64>,
    /// W C.
    spread: Vec<f64>,
    /// 1 / sqrt(variance + eps).
    inverse: Vec<f64>,
    variance: Vec<f64>,
}

impl Fold {
    fn new(eps: f32, operands: &[Tensor<'_>]) -> Result<Self, String> {
        let [weight, _, gamma, _, mean, covariance, ..] = operands else {
            return Err("takes a layer, a norm, a mean and a covariance".to_owned());
        };
        let wide = |tensor: &Tensor<'_>| tensor.to_f64().into_owned();
        let (weight, gamma, mean, covariance) =
            (wide(weight), wide(gamma), wide(mean), wide(covariance));
        let inputs = mean.len();
        if inputs == 0
            || weight.len() != gamma.len() * inputs
            || covariance.len() != inputs * inputs
        {
            return Err("takes a weight [out, in] and moments of in numbers".to_owned());
        }
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let rows = || weight.chunks_exact(inputs);
        let centre = rows().map(|row| dot(row, &mean)).collect();
        // Covariances are symmetric.
        let spread: Vec<f64> = rows()
            .flat_map(|row| {
                covariance
                    .chunks_exact(inputs)
                    .map(move |line| dot(row, line))
            })
            .collect();
        let variance: Vec<f64> = rows()
            .zip(spread.chunks_exact(inputs))
            .map(|(row, spread)| dot(row, spread).max(0.0))
            .collect();
        let inverse = variance
            .iter()
            .map(|variance| 1.0 / (variance + f64::from(eps)).sqrt())
            .collect();
        Ok(Self {
            inputs,
            weight,
            gamma,
            mean,
            centre,
            spread,
            inverse,
            variance,
        })
    }

    fn outputs(&self) -> usize {
        self.gamma.len()
    }

    fn scale(&self, output: usize) -> f64 {
        self.gamma[output] * self.inverse[output]
    }
}

fn narrow(values: impl IntoIterator<Item = f64>) -> Vec<f32> {
    values.into_iter().map(|value| value as f32).collect()
}

impl Operator for FoldedBatchNorm {
    fn kind(&self) -> &'static str {
        "FoldedBatchNorm"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [weight, bias, _, _, mean, covariance]
                if weight.shape.len() >= 2 && mean.shape[..] == weight.shape[1..2] && covariance.shape.len() == 2 =>
            {
                let matrix = TensorType::f32(weight.shape[..2].iter().cloned());
                Ok(vec![matrix, (*bias).clone(), (*bias).clone(), (*bias).clone()])
            }
            _ => Err("a weight [out, in, 1, 1], a bias, gamma, beta, and a mean and a covariance of in numbers".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::macs(inputs[0].elements() * inputs[4].elements())
    }

    fn describe(&self) -> String {
        format!("FoldedBatchNorm(eps={})", self.eps)
    }
}

impl CustomOp for FoldedBatchNorm {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let fold = Fold::new(self.eps, inputs)?;
        let (bias, beta) = (inputs[1].to_f64(), inputs[3].to_f64());
        let outputs = fold.outputs();
        let weight =
            (0..fold.weight.len()).map(|at| fold.weight[at] * fold.scale(at / fold.inputs));
        let shift = (0..outputs).map(|at| beta[at] - fold.scale(at) * fold.centre[at]);
        let mean = (0..outputs).map(|at| fold.centre[at] + bias[at]);
        let variance = fold.variance.iter().copied();
        Ok(vec![
            Tensor::from_values([outputs, fold.inputs], narrow(weight))?,
            Tensor::from_values([outputs], narrow(shift))?,
            Tensor::from_values([outputs], narrow(mean))?,
            Tensor::from_values([outputs], narrow(variance))?,
        ])
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(FoldedBatchNormGradient { eps: self.eps }))
    }
}

/// The gradients of all six operands. Nothing is learnt through the statistics that are only kept.
#[derive(Debug)]
struct FoldedBatchNormGradient {
    eps: f32,
}

impl Operator for FoldedBatchNormGradient {
    fn kind(&self) -> &'static str {
        "FoldedBatchNormGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let operands = inputs.get(..6).ok_or("the operands of a fold")?;
        Ok(operands.iter().map(|&ty| ty.clone()).collect())
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::macs(inputs[0].elements() * inputs[4].elements() * 2)
    }

    fn describe(&self) -> String {
        "FoldedBatchNormGradient()".to_owned()
    }
}

impl CustomOp for FoldedBatchNormGradient {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let (operands, gradients) = (inputs.get(..6), inputs.get(10..12));
        let (Some(operands), Some([dweight, dshift])) = (operands, gradients) else {
            return Err(
                "takes a fold's operands, what it gave and the gradients of that".to_owned(),
            );
        };
        let fold = Fold::new(self.eps, operands)?;
        let (dweight, dshift) = (dweight.to_f64(), dshift.to_f64());
        let (outputs, width) = (fold.outputs(), fold.inputs);
        let mut by_weight = vec![0.0; outputs * width];
        let (mut by_gamma, mut by_mean, mut by_covariance) = (
            vec![0.0; outputs],
            vec![0.0; width],
            vec![0.0; width * width],
        );
        for output in 0..outputs {
            let row = &fold.weight[output * width..][..width];
            let d = &dweight[output * width..][..width];
            let (scale, inverse) = (fold.scale(output), fold.inverse[output]);
            let through: f64 = d.iter().zip(row).map(|(d, w)| d * w).sum();
            let dscale = through - dshift[output] * fold.centre[output];
            by_gamma[output] = dscale * inverse;
            let dvariance = -0.5 * dscale * scale * inverse * inverse;
            for input in 0..width {
                by_weight[output * width + input] = scale * d[input]
                    - dshift[output] * scale * fold.mean[input]
                    + 2.0 * dvariance * fold.spread[output * width + input];
                by_mean[input] -= dshift[output] * scale * row[input];
                for other in 0..width {
                    by_covariance[input * width + other] += dvariance * row[input] * row[other];
                }
            }
        }
        let by_bias = vec![0.0; outputs];
        let made = [
            by_weight,
            by_bias,
            by_gamma,
            dshift.into_owned(),
            by_mean,
            by_covariance,
        ];
        let shapes = operands.iter().map(|operand| operand.shape().to_vec());
        shapes
            .zip(made)
            .map(|(shape, values)| Ok(Tensor::from_values(shape, narrow(values))?))
            .collect()
    }
}
