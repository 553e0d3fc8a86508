//! Attention's gradient with every score row written out.

use super::softmax_gradient;
use crate::attention::{AttentionShape, HeadsView};
use crate::reference::{Real, softmax};

/// The gradient of self-attention by its packed projection [batch, tokens, 3, heads, head_dim], from the gradient of its
/// output [batch, tokens, heads, head_dim].
pub fn packed_attention_gradient<T: Real>(
    shape: &AttentionShape,
    scale: T,
    qkv: &[T],
    dy: &[T],
    dqkv: &mut [T],
) {
    let &AttentionShape {
        batch,
        heads,
        queries: tokens,
        head_dim,
        ..
    } = shape;
    let [q, k, v] = HeadsView::packed_qkv(qkv, shape);
    let width = heads * head_dim;
    let at = |b: usize, token: usize, part: usize, h: usize| {
        ((b * tokens + token) * 3 + part) * width + h * head_dim
    };
    let dot = |a: &[T], b: &[T]| a.iter().zip(b).map(|(&a, &b)| a * b).sum::<T>();
    let [mut scores, mut weights, mut d_weights, mut d_scores] =
        [(); 4].map(|()| vec![T::ZERO; tokens]);
    dqkv.fill(T::ZERO);
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        for i in 0..tokens {
            let query = q.row(b, i, h, head_dim);
            let dy = &dy[(b * tokens + i) * width + h * head_dim..][..head_dim];
            for j in 0..tokens {
                scores[j] = dot(query, k.row(b, j, h, head_dim)) * scale;
                d_weights[j] = dot(dy, v.row(b, j, h, head_dim));
            }
            softmax(tokens, &scores, &mut weights);
            softmax_gradient(tokens, &weights, &d_weights, &mut d_scores);
            for j in 0..tokens {
                let slope = d_scores[j] * scale;
                let key = k.row(b, j, h, head_dim);
                for c in 0..head_dim {
                    dqkv[at(b, i, 0, h) + c] += slope * key[c];
                    dqkv[at(b, j, 1, h) + c] += slope * query[c];
                    dqkv[at(b, j, 2, h) + c] += weights[j] * dy[c];
                }
            }
        }
    }
}
