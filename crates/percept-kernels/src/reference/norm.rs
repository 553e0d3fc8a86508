//! Normalisations.

use super::Real;
use crate::norm::{ChannelShape, GroupNorm};

fn mean_and_variance<T: Real>(x: &[T]) -> (T, T) {
    let count = T::from_usize(x.len());
    let mean = x.iter().copied().sum::<T>() / count;
    let variance = x.iter().map(|&v| (v - mean) * (v - mean)).sum::<T>() / count;
    (mean, variance)
}

/// y = (x - mean) / sqrt(variance + eps) * gamma + beta over each row of `gamma.len()` numbers.
pub fn layer_norm<T: Real>(x: &[T], gamma: &[T], beta: &[T], eps: T, y: &mut [T]) {
    let width = gamma.len();
    assert_eq!(beta.len(), width, "beta must be as long as gamma");
    assert_eq!(x.len(), y.len(), "x and y must be equally long");
    if width == 0 {
        return;
    }
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        let (mean, variance) = mean_and_variance(x);
        let inverse = T::ONE / (variance + eps).sqrt();
        for i in 0..width {
            y[i] = (x[i] - mean) * inverse * gamma[i] + beta[i];
        }
    }
}

/// y = x / sqrt(mean(x^2) + eps) * gamma over each row of `gamma.len()` numbers.
pub fn rms_norm<T: Real>(x: &[T], gamma: &[T], eps: T, y: &mut [T]) {
    let width = gamma.len();
    assert_eq!(x.len(), y.len(), "x and y must be equally long");
    if width == 0 {
        return;
    }
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        let mean_square = x.iter().map(|&v| v * v).sum::<T>() / T::from_usize(width);
        let inverse = T::ONE / (mean_square + eps).sqrt();
        for i in 0..width {
            y[i] = x[i] * inverse * gamma[i];
        }
    }
}

/// Inference BatchNorm: y = x * scale\[c\] + shift\[c\] on [batch, channels, area].
pub fn batch_norm<T: Real>(shape: &ChannelShape, x: &[T], scale: &[T], shift: &[T], y: &mut [T]) {
    for (i, (&x, y)) in x.iter().zip(y.iter_mut()).enumerate() {
        let channel = i / shape.area % shape.channels;
        *y = x * scale[channel] + shift[channel];
    }
}

/// Normalises each group of channels of each sample, then scales and shifts each channel.
pub fn group_norm<T: Real>(
    shape: &ChannelShape,
    norm: GroupNorm,
    x: &[T],
    gamma: &[T],
    beta: &[T],
    y: &mut [T],
) {
    let group_channels = shape.channels / norm.groups;
    let group_len = group_channels * shape.area;
    if group_len == 0 {
        return;
    }
    let eps = T::from_f64(norm.eps);
    for (g, (x, y)) in x
        .chunks_exact(group_len)
        .zip(y.chunks_exact_mut(group_len))
        .enumerate()
    {
        let (mean, variance) = mean_and_variance(x);
        let inverse = T::ONE / (variance + eps).sqrt();
        for i in 0..group_len {
            let channel = g % norm.groups * group_channels + i / shape.area;
            y[i] = (x[i] - mean) * inverse * gamma[channel] + beta[channel];
        }
    }
}
