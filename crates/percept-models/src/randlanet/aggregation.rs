//! A round of local aggregation as one op: neighbours are encoded, scored and summed a few points at a time, so that nothing
//! of the size [P, K, C] is ever held, neither on the way forward nor on the way back.
//!
//! It computes what the plain form of the network computes with ops of its own for each of these (encoder.rs). Its weights are
//! values with the norms folded in.

use std::ops::Range;
use std::sync::Arc;

use percept_graph::{
    Builder, Cost, CustomOp, Dim, Op, OpContext, Operator, Tensor, TensorType, ValueId,
};
use percept_kernels::Cpu;
use percept_kernels::points::{
    AggregationGradient, AggregationShape, AggregationWeights, Join, PackedAggregation, aggregate,
    aggregate_gradient,
};

use super::levels::LevelValues;

/// A linear map as values: weight [out, in] and bias [out].
pub(super) type Layer = (ValueId, ValueId);

/// How neighbours are aggregated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LocalAggregation {
    pub join: Join,
    /// Of the activation of the encodings.
    pub slope: f32,
    /// Whether encodings are encoded once more.
    pub again: bool,
}

/// The weights of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundWeights {
    pub encode: Layer,
    pub encode_again: Option<Layer>,
    /// [2C, 2C].
    pub score: ValueId,
}

impl LocalAggregation {
    /// Features [P, C] to [P, 2C].
    pub(super) fn call(
        self,
        b: &mut Builder,
        name: &str,
        level: &LevelValues,
        features: ValueId,
        weights: RoundWeights,
    ) -> ValueId {
        let mut inputs = vec![level.points, level.neighbours, level.lists, features];
        inputs.extend([weights.encode.0, weights.encode.1]);
        inputs.extend(
            weights
                .encode_again
                .iter()
                .flat_map(|&(weight, bias)| [weight, bias]),
        );
        inputs.push(weights.score);
        let op: Arc<dyn CustomOp> = Arc::new(self);
        b.call(name, Op::Custom(op), &inputs)
    }

    fn input_count(&self) -> usize {
        if self.again { 9 } else { 7 }
    }

    /// Points and channels.
    fn sizes(&self, inputs: &[&TensorType]) -> Result<[Dim; 2], String> {
        let expected =
            || "points, neighbours, lists, features [P, C] and the weights of a round".to_owned();
        match inputs {
            [_, neighbours, _, features, ..]
                if inputs.len() >= self.input_count()
                    && neighbours.shape.len() == 2
                    && features.shape.len() == 2 =>
            {
                Ok([features.shape[0].clone(), features.shape[1].clone()])
            }
            _ => Err(expected()),
        }
    }

    /// Multiply-adds: the encodings, the scores of the encoded half for each neighbour, those of the features for each point.
    fn macs(&self, inputs: &[&TensorType]) -> Dim {
        let (Ok([points, width]), k) = (self.sizes(inputs), inputs[1].shape[1].clone()) else {
            return Dim::from(0);
        };
        let rows = points.clone() * k;
        let again = if self.again {
            width.clone() * width.clone()
        } else {
            Dim::from(0)
        };
        let per_row = width.clone() * 10 + again + width.clone() * width.clone() * 2;
        rows * per_row + points * width.clone() * width * 2
    }
}

/// The operands of a round, read.
struct Round<'a> {
    op: LocalAggregation,
    points: &'a [[f32; 3]],
    neighbours: &'a [i32],
    k: usize,
    lists: &'a [[i32; 2]],
    features: &'a [f32],
    width: usize,
    weights: AggregationWeights<'a, f32>,
}

/// Clouds whose lists are equally long, as one.
struct Part<'a> {
    shape: AggregationShape,
    rows: Range<usize>,
    neighbours: std::borrow::Cow<'a, [i32]>,
}

impl<'a> Round<'a> {
    fn read(op: LocalAggregation, inputs: &'a [Tensor<'_>]) -> Result<Self, String> {
        let [points, neighbours, lists, features, weights @ ..] = inputs else {
            return Err("takes points, neighbours, lists, features and weights".to_owned());
        };
        let (&[rows, k], neighbours) = neighbours.read::<i32>()? else {
            return Err("takes neighbours [P, K]".to_owned());
        };
        let (&[_, width], features) = features.read::<f32>()? else {
            return Err("takes features [P, C]".to_owned());
        };
        if neighbours
            .iter()
            .any(|&n| usize::try_from(n).map_or(true, |n| n >= rows))
        {
            return Err("a neighbour is no point".to_owned());
        }
        let values = |at: usize| {
            weights
                .get(at)
                .ok_or("takes the weights of a round")?
                .values::<f32>()
                .map_err(String::from)
        };
        let score = if op.again { 4 } else { 2 };
        Ok(Self {
            op,
            points: points.values::<f32>()?.as_chunks::<3>().0,
            neighbours,
            k,
            lists: lists.values::<i32>()?.as_chunks::<2>().0,
            features,
            width,
            weights: AggregationWeights {
                encode: (values(0)?, values(1)?),
                encode_again: if op.again {
                    Some((values(2)?, values(3)?))
                } else {
                    None
                },
                score: values(score)?,
            },
        })
    }

    fn shape(&self, points: usize, k: usize) -> AggregationShape {
        AggregationShape {
            points,
            k,
            width: self.width,
            join: self.op.join,
            slope: self.op.slope,
        }
    }

    /// All clouds at once where every list is full; otherwise cloud by cloud, without what fills lists up.
    fn parts(&self) -> Vec<Part<'a>> {
        let full = self
            .lists
            .iter()
            .all(|&[points, listed]| points == 0 || listed as usize == self.k);
        if full {
            let (shape, rows) = (self.shape(self.points.len(), self.k), 0..self.points.len());
            return vec![Part {
                shape,
                rows,
                neighbours: self.neighbours.into(),
            }];
        }
        let mut start = 0;
        let mut parts = Vec::new();
        for &[points, listed] in self.lists {
            let (points, listed) = (points as usize, listed as usize);
            let lists = self.neighbours[start * self.k..][..points * self.k].chunks_exact(self.k);
            let neighbours: Vec<i32> = lists
                .flat_map(|list| &list[..listed])
                .map(|&n| n - start as i32)
                .collect();
            let rows = start..start + points;
            parts.push(Part {
                shape: self.shape(points, listed),
                rows,
                neighbours: neighbours.into(),
            });
            start += points;
        }
        parts
    }

    fn forward(&self, cpu: &Cpu, y: &mut [f32]) {
        let (width, mut packed): (usize, Option<(usize, PackedAggregation)>) = (self.width, None);
        for Part {
            shape,
            rows,
            neighbours,
        } in self.parts()
        {
            if shape.points == 0 {
                continue;
            }
            let fits = packed.as_ref().is_some_and(|(k, _)| *k == shape.k);
            if !fits {
                packed = Some((shape.k, PackedAggregation::pack(cpu, &shape, &self.weights)));
            }
            if let Some((_, packed)) = &packed {
                let features = &self.features[rows.start * width..rows.end * width];
                let y = &mut y[rows.start * 2 * width..rows.end * 2 * width];
                aggregate(
                    cpu,
                    &shape,
                    packed,
                    &self.points[rows],
                    &neighbours,
                    features,
                    y,
                );
            }
        }
    }

    /// Gradients of features and weights.
    fn backward(&self, cpu: &Cpu, dy: &[f32]) -> (Vec<f32>, AggregationGradient<f32>) {
        let width = self.width;
        let mut dfeatures = vec![0.0; self.features.len()];
        let mut sum = AggregationGradient::zeros(width, self.op.again);
        for Part {
            shape,
            rows,
            neighbours,
        } in self.parts()
        {
            if shape.points == 0 {
                continue;
            }
            let own = rows.start * width..rows.end * width;
            let dy = &dy[rows.start * 2 * width..rows.end * 2 * width];
            let part = aggregate_gradient(
                cpu,
                &shape,
                &self.weights,
                &self.points[rows],
                &neighbours,
                &self.features[own.clone()],
                dy,
                &mut dfeatures[own],
            );
            add(&mut sum, &part);
        }
        (dfeatures, sum)
    }
}

fn add(sum: &mut AggregationGradient<f32>, part: &AggregationGradient<f32>) {
    let each = |sum: &mut [f32], part: &[f32]| {
        sum.iter_mut()
            .zip(part)
            .for_each(|(sum, part)| *sum += part)
    };
    each(&mut sum.encode.0, &part.encode.0);
    each(&mut sum.encode.1, &part.encode.1);
    if let (Some(sum), Some(part)) = (&mut sum.encode_again, &part.encode_again) {
        each(&mut sum.0, &part.0);
        each(&mut sum.1, &part.1);
    }
    each(&mut sum.score, &part.score);
}

impl Operator for LocalAggregation {
    fn kind(&self) -> &'static str {
        "LocalAggregation"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [points, width] = self.sizes(inputs)?;
        Ok(vec![TensorType::f32([points, width * 2])])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::macs(self.macs(inputs))
    }

    fn describe(&self) -> String {
        format!(
            "LocalAggregation({:?}, encodings={})",
            self.join,
            1 + usize::from(self.again)
        )
    }
}

impl CustomOp for LocalAggregation {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let round = Round::read(*self, inputs)?;
        let shape = [round.points.len(), 2 * round.width];
        let mut y = vec![0.0; shape[0] * shape[1]];
        round.forward(context.machine()?, &mut y);
        Ok(vec![Tensor::from_values(shape, y)?])
    }

    fn run_into(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
        outputs: &mut [&mut [f32]],
    ) -> Option<Result<(), String>> {
        let [y] = outputs else { return None };
        let mut run = || {
            Round::read(*self, inputs)?.forward(context.machine()?, y);
            Ok(())
        };
        Some(run())
    }

    fn constants(&self) -> &[usize] {
        // Where points are is data.
        &[0]
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(LocalAggregationGradient(*self)))
    }
}

/// The gradients of a round by features and weights; encodes and scores once more instead of keeping anything.
#[derive(Debug)]
struct LocalAggregationGradient(LocalAggregation);

impl Operator for LocalAggregationGradient {
    fn kind(&self) -> &'static str {
        "LocalAggregationGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.0.sizes(inputs)?;
        let smooth = inputs
            .get(3..self.0.input_count())
            .ok_or("the operands of a round")?;
        Ok(smooth.iter().map(|&ty| ty.clone()).collect())
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // What the way forward computes, and two products for each of its own.
        Cost::macs(self.0.macs(inputs) * 3)
    }

    fn describe(&self) -> String {
        "LocalAggregationGradient()".to_owned()
    }
}

impl CustomOp for LocalAggregationGradient {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let operands = inputs
            .get(..self.0.input_count())
            .ok_or("takes the operands of a round")?;
        let dy = inputs.last().ok_or("takes a gradient")?.values::<f32>()?;
        let (dfeatures, gradient) = Round::read(self.0, operands)?.backward(context.machine()?, dy);
        let mut gradients = vec![dfeatures, gradient.encode.0, gradient.encode.1];
        gradients.extend(
            gradient
                .encode_again
                .into_iter()
                .flat_map(|(weight, bias)| [weight, bias]),
        );
        gradients.push(gradient.score);
        let shapes = operands[3..].iter().map(|operand| operand.shape().to_vec());
        shapes
            .zip(gradients)
            .map(|(shape, values)| Ok(Tensor::from_values(shape, values)?))
            .collect()
    }
}
