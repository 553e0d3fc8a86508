//! The gradient of RandLA-Net's aggregation, by the chain rule, neighbour by neighbour.

use super::super::Real;
use super::super::aggregate::aggregate_point;
use super::activation_slope;
use crate::activation::Activation;
use crate::points::{AggregationGradient, AggregationShape, AggregationWeights, Join};

/// `weight_gradient += dy ⊗ x` and `bias_gradient += dy`; gives `dy · weight`.
fn layer_gradient<T: Real>(
    weight: &[T],
    x: &[T],
    dy: &[T],
    (weight_gradient, bias_gradient): (&mut [T], Option<&mut [T]>),
) -> Vec<T> {
    let mut dx = vec![T::ZERO; x.len()];
    for (output, &dy) in dy.iter().enumerate() {
        for (input, &x_value) in x.iter().enumerate() {
            let at = output * x.len() + input;
            weight_gradient[at] += dy * x_value;
            dx[input] += dy * weight[at];
        }
    }
    for (sum, &dy) in bias_gradient.into_iter().flatten().zip(dy) {
        *sum += dy;
    }
    dx
}

/// dfeatures `[N, C]` (written) and the gradient of the weights, from dy `[N, 2C]`.
pub fn aggregate_gradient<T: Real>(
    shape: &AggregationShape,
    weights: &AggregationWeights<'_, T>,
    points: &[[f32; 3]],
    neighbours: &[i32],
    features: &[T],
    dy: &[T],
    dfeatures: &mut [T],
) -> AggregationGradient<T> {
    shape.check(points, neighbours, features);
    weights.check(shape.width);
    assert_eq!(dy.len(), shape.outputs(), "length of dy");
    assert_eq!(dfeatures.len(), features.len(), "length of dfeatures");
    let width = shape.width;
    let (features_at, encoding_at) = shape.join.starts(width);
    let activation = Activation::LeakyRelu(shape.slope);
    let through = |d: &mut [T], output: &[T]| {
        for (d, &output) in d.iter_mut().zip(output) {
            *d = *d * activation_slope(activation, output);
        }
    };
    dfeatures.fill(T::ZERO);
    let mut gradient = AggregationGradient::zeros(width, weights.encode_again.is_some());
    for (point, dy) in dy.chunks_exact(2 * width).enumerate() {
        let made = aggregate_point(shape, weights, points, neighbours, features, point);
        for row in 0..shape.k {
            let (joined, attention) = (&made.joined[row], &made.attention[row]);
            // d softmax: a (x dy - Σ a x dy), and Σ a x is what was pooled.
            let dscore: Vec<T> = (0..2 * width)
                .map(|c| attention[c] * dy[c] * (joined[c] - made.pooled[c]))
                .collect();
            let mut djoined =
                layer_gradient(weights.score, joined, &dscore, (&mut gradient.score, None));
            for (channel, d) in djoined.iter_mut().enumerate() {
                *d += attention[channel] * dy[channel];
            }
            let from = match shape.join {
                Join::Neighbours => neighbours[point * shape.k + row] as usize,
                Join::Own => point,
            };
            for (sum, &d) in dfeatures[from * width..]
                .iter_mut()
                .zip(&djoined[features_at..][..width])
            {
                *sum += d;
            }
            let mut d = djoined[encoding_at..][..width].to_vec();
            if let (Some((weight, _)), Some((weight_gradient, bias_gradient))) =
                (weights.encode_again, &mut gradient.encode_again)
            {
                through(&mut d, &joined[encoding_at..]);
                let targets = (&mut weight_gradient[..], Some(&mut bias_gradient[..]));
                d = layer_gradient(weight, &made.once[row], &d, targets);
            }
            through(&mut d, &made.once[row]);
            let (weight_gradient, bias_gradient) = &mut gradient.encode;
            let targets = (&mut weight_gradient[..], Some(&mut bias_gradient[..]));
            layer_gradient(weights.encode.0, &made.geometry[row], &d, targets);
        }
    }
    gradient
}
