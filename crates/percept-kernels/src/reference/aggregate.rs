//! RandLA-Net's aggregation of neighbours, by its definition.

use super::{Real, activate};
use crate::activation::Activation;
use crate::points::{AggregationShape, AggregationWeights, GEOMETRY};

/// Everything that is computed on the way for one point. Lists of neighbours, each with its channels.
pub(crate) struct Aggregated<T> {
    /// `[K][10]`
    pub(crate) geometry: Vec<Vec<T>>,
    /// `[K][C]`: encoded once.
    pub(crate) once: Vec<Vec<T>>,
    /// `[K][2C]`: features and encoding.
    pub(crate) joined: Vec<Vec<T>>,
    /// `[K][2C]`: softmax over the neighbours.
    pub(crate) attention: Vec<Vec<T>>,
    /// `[2C]`
    pub(crate) pooled: Vec<T>,
}

fn layer<T: Real>(x: &[T], weight: &[T], bias: Option<&[T]>, slope: f32) -> Vec<T> {
    let rows = weight.chunks_exact(x.len()).enumerate();
    rows.map(|(output, weight)| {
        let product = x.iter().zip(weight).map(|(&x, &w)| x * w).sum::<T>();
        let sum = product + bias.map_or(T::ZERO, |bias| bias[output]);
        activate(Activation::LeakyRelu(slope), sum)
    })
    .collect()
}

/// One point of [`aggregate`].
pub(crate) fn aggregate_point<T: Real>(
    shape: &AggregationShape,
    weights: &AggregationWeights<'_, T>,
    points: &[[f32; 3]],
    neighbours: &[i32],
    features: &[T],
    point: usize,
) -> Aggregated<T> {
    let (width, slope) = (shape.width, shape.slope);
    let (features_at, encoding_at) = shape.join.starts(width);
    let place = |point: usize| points[point].map(|axis| T::from_f64(f64::from(axis)));
    let p = place(point);
    let (mut geometry, mut once, mut joined) = (Vec::new(), Vec::new(), Vec::new());
    for &neighbour in &neighbours[point * shape.k..][..shape.k] {
        let n = place(neighbour as usize);
        let away = [p[0] - n[0], p[1] - n[1], p[2] - n[2]];
        let distance = away.iter().map(|&axis| axis * axis).sum::<T>().sqrt();
        let numbers = [&[distance], &away[..], &p[..], &n[..]].concat();
        let mut row = vec![T::ZERO; GEOMETRY];
        for (number, &value) in numbers.iter().enumerate() {
            row[shape.join.geometry_column(number)] = value;
        }
        let (weight, bias) = weights.encode;
        let encoded = layer(&row, weight, Some(bias), slope);
        let encoding = weights
            .encode_again
            .map_or(encoded.clone(), |(weight, bias)| {
                layer(&encoded, weight, Some(bias), slope)
            });
        let from = match shape.join {
            crate::points::Join::Neighbours => neighbour as usize,
            crate::points::Join::Own => point,
        };
        let mut both = vec![T::ZERO; 2 * width];
        both[features_at..][..width].copy_from_slice(&features[from * width..][..width]);
        both[encoding_at..][..width].copy_from_slice(&encoding);
        geometry.push(row);
        once.push(encoded);
        joined.push(both);
    }
    let scores: Vec<Vec<T>> = joined
        .iter()
        .map(|row| layer(row, weights.score, None, 1.0))
        .collect();
    let mut attention = scores.clone();
    let mut pooled = vec![T::ZERO; 2 * width];
    for channel in 0..2 * width {
        let most = scores
            .iter()
            .fold(T::NEG_INFINITY, |most, row| most.maximum(row[channel]));
        let exp = |row: &Vec<T>| (row[channel] - most).exp();
        let total = scores.iter().map(exp).sum::<T>();
        for (row, score) in attention.iter_mut().zip(&scores) {
            row[channel] = exp(score) / total;
        }
        let parts = attention
            .iter()
            .zip(&joined)
            .map(|(weight, row)| weight[channel] * row[channel]);
        pooled[channel] = parts.sum::<T>();
    }
    Aggregated {
        geometry,
        once,
        joined,
        attention,
        pooled,
    }
}

/// y `[N, 2C]`: joins features and encoding of each neighbour, and sums them by attention.
pub fn aggregate<T: Real>(
    shape: &AggregationShape,
    weights: &AggregationWeights<'_, T>,
    points: &[[f32; 3]],
    neighbours: &[i32],
    features: &[T],
    y: &mut [T],
) {
    shape.check(points, neighbours, features);
    weights.check(shape.width);
    assert_eq!(y.len(), shape.outputs(), "length of y");
    for (point, y) in y.chunks_exact_mut(2 * shape.width).enumerate() {
        let made = aggregate_point(shape, weights, points, neighbours, features, point);
        y.copy_from_slice(&made.pooled);
    }
}
