//! Attention with the whole score row written out.

use super::{Real, softmax};
use crate::attention::{AttentionShape, HeadsView};

/// y = softmax(q k^T * scale + mask) v for each sample and head; y is
/// [batch, queries, heads * head_dim], `mask` is [queries, keys].
pub fn attention<T: Real>(
    shape: &AttentionShape,
    scale: T,
    q: HeadsView<'_, T>,
    k: HeadsView<'_, T>,
    v: HeadsView<'_, T>,
    mask: Option<&[T]>,
    y: &mut [T],
) {
    let &AttentionShape {
        batch,
        heads,
        queries,
        keys,
        head_dim,
    } = shape;
    let mut scores = vec![T::ZERO; keys];
    let mut weights = vec![T::ZERO; keys];
    for b in 0..batch {
        for h in 0..heads {
            for i in 0..queries {
                let query = q.row(b, i, h, head_dim);
                for j in 0..keys {
                    let key = k.row(b, j, h, head_dim);
                    scores[j] = query.iter().zip(key).map(|(&q, &k)| q * k).sum::<T>() * scale;
                    if let Some(mask) = mask {
                        scores[j] += mask[i * keys + j];
                    }
                }
                softmax(keys, &scores, &mut weights);
                let out = &mut y[((b * queries + i) * heads + h) * head_dim..][..head_dim];
                out.fill(T::ZERO);
                for j in 0..keys {
                    for (out, &value) in out.iter_mut().zip(v.row(b, j, h, head_dim)) {
                        *out += weights[j] * value;
                    }
                }
            }
        }
    }
}
