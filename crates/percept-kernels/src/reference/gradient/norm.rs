//! Batch norm in training, and gradients of normalisations.

use crate::norm::ChannelShape;
use crate::reference::Real;

/// The values of a channel, by their positions.
fn channel(shape: &ChannelShape, channel: usize) -> impl Iterator<Item = usize> + Clone {
    let ChannelShape {
        batch,
        channels,
        area,
    } = *shape;
    let planes = (0..batch).map(move |sample| (sample * channels + channel) * area);
    planes.flat_map(move |start| start..start + area)
}

/// y = (x - mean) / sqrt(variance + eps) · gamma + beta with the statistics of each channel, which come out too.
pub fn batch_norm_training<T: Real>(
    shape: &ChannelShape,
    eps: T,
    x: &[T],
    gamma: &[T],
    beta: &[T],
    y: &mut [T],
    mean: &mut [T],
    variance: &mut [T],
) {
    let count = T::from_usize(shape.batch * shape.area);
    for c in 0..shape.channels {
        let positions = channel(shape, c);
        mean[c] = positions.clone().map(|i| x[i]).sum::<T>() / count;
        let away = positions.clone().map(|i| x[i] - mean[c]);
        variance[c] = away.map(|d| d * d).sum::<T>() / count;
        let scale = gamma[c] / (variance[c] + eps).sqrt();
        for i in positions {
            y[i] = (x[i] - mean[c]) * scale + beta[c];
        }
    }
}

/// dx, dgamma and dbeta; `batch_statistics` says that mean and variance came from x.
pub fn batch_norm_gradient<T: Real>(
    shape: &ChannelShape,
    eps: T,
    batch_statistics: bool,
    x: &[T],
    dy: &[T],
    gamma: &[T],
    mean: &[T],
    variance: &[T],
    dx: &mut [T],
    dgamma: &mut [T],
    dbeta: &mut [T],
) {
    let count = T::from_usize(shape.batch * shape.area);
    for c in 0..shape.channels {
        let inverse = T::ONE / (variance[c] + eps).sqrt();
        let normal = |i: usize| (x[i] - mean[c]) * inverse;
        dbeta[c] = channel(shape, c).map(|i| dy[i]).sum();
        dgamma[c] = channel(shape, c).map(|i| dy[i] * normal(i)).sum();
        for i in channel(shape, c) {
            let common = match batch_statistics {
                true => (dbeta[c] + normal(i) * dgamma[c]) / count,
                false => T::ZERO,
            };
            dx[i] = gamma[c] * inverse * (dy[i] - common);
        }
    }
}

/// Takes from `dy` what a ReLU behind a batch norm did not let through.
pub fn behind_relu<T: Real>(
    shape: &ChannelShape,
    eps: T,
    x: &[T],
    gamma: &[T],
    beta: &[T],
    mean: &[T],
    variance: &[T],
    dy: &mut [T],
) {
    for c in 0..shape.channels {
        let scale = gamma[c] / (variance[c] + eps).sqrt();
        for i in channel(shape, c) {
            if (x[i] - mean[c]) * scale + beta[c] <= T::ZERO {
                dy[i] = T::ZERO;
            }
        }
    }
}

/// dx, dgamma and dbeta of a layer norm over rows of `gamma.len()` numbers.
pub fn layer_norm_gradient<T: Real>(
    eps: T,
    x: &[T],
    dy: &[T],
    gamma: &[T],
    dx: &mut [T],
    dgamma: &mut [T],
    dbeta: &mut [T],
) {
    let width = gamma.len();
    let count = T::from_usize(width);
    dgamma.fill(T::ZERO);
    dbeta.fill(T::ZERO);
    let rows = x
        .chunks_exact(width.max(1))
        .zip(dy.chunks_exact(width.max(1)));
    for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(width.max(1))) {
        let mean = x.iter().copied().sum::<T>() / count;
        let variance = x.iter().map(|&x| (x - mean) * (x - mean)).sum::<T>() / count;
        let inverse = T::ONE / (variance + eps).sqrt();
        let normal = |i: usize| (x[i] - mean) * inverse;
        let scaled = |i: usize| dy[i] * gamma[i];
        let sum = (0..width).map(scaled).sum::<T>() / count;
        let slope = (0..width).map(|i| scaled(i) * normal(i)).sum::<T>() / count;
        for i in 0..width {
            dgamma[i] += dy[i] * normal(i);
            dbeta[i] += dy[i];
            dx[i] = inverse * (scaled(i) - sum - normal(i) * slope);
        }
    }
}
