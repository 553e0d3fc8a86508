//! Losses and their gradients.

use super::{Real, log_softmax, softmax};

/// The target of one row: 1 - smoothing for the label, and the smoothing spread over all classes.
fn target<T: Real>(smoothing: T, classes: usize, label: usize, class: usize) -> T {
    let spread = smoothing / T::from_usize(classes);
    if class == label {
        T::ONE - smoothing + spread
    } else {
        spread
    }
}

/// The mean over rows of `classes` logits of the cross-entropy with the smoothed labels.
pub fn cross_entropy<T: Real>(smoothing: T, classes: usize, logits: &[T], labels: &[usize]) -> T {
    let mut logs = vec![T::ZERO; logits.len()];
    log_softmax(classes, logits, &mut logs);
    let mut sum = T::ZERO;
    for (logs, &label) in logs.chunks_exact(classes.max(1)).zip(labels) {
        for (class, &log) in logs.iter().enumerate() {
            sum += -target(smoothing, classes, label, class) * log;
        }
    }
    sum / T::from_usize(labels.len())
}

/// dlogits = dloss / rows · (softmax - target).
pub fn cross_entropy_gradient<T: Real>(
    smoothing: T,
    classes: usize,
    logits: &[T],
    labels: &[usize],
    dloss: T,
    dlogits: &mut [T],
) {
    softmax(classes, logits, dlogits);
    let share = dloss / T::from_usize(labels.len());
    for (row, &label) in dlogits.chunks_exact_mut(classes.max(1)).zip(labels) {
        for (class, value) in row.iter_mut().enumerate() {
            *value = share * (*value - target(smoothing, classes, label, class));
        }
    }
}
