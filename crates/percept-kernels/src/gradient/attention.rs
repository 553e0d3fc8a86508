//! The gradient of self-attention by its packed projection.
//!
//! Each head of each sample is one block: it goes through the queries once, a few at a time, computes their weights again, and
//! adds to the gradients of all keys and values. Keys and values are turned first, so that vectors run over keys: heads of four
//! numbers fill them as well as heads of sixty-four.

use crate::aligned::SharedMut;
use crate::attention::{AttentionShape, HeadsView};
use crate::cpu::{Cpu, Scratch};
use crate::isa::Kernel;
use crate::math;
use crate::simd::{LANES, Simd};

/// dqkv [batch, tokens, 3, heads, head_dim] from qkv of this layout and dy [batch, tokens, heads, head_dim].
pub fn packed_attention_gradient(
    cpu: &Cpu,
    shape: &AttentionShape,
    qkv: &[f32],
    dy: &[f32],
    dqkv: &mut [f32],
) {
    let width = shape.heads * shape.head_dim;
    let tokens = shape.batch * shape.queries;
    assert_eq!(shape.queries, shape.keys, "tokens attend to themselves");
    assert_eq!(qkv.len(), tokens * 3 * width, "length of qkv");
    assert_eq!(dy.len(), tokens * width, "length of dy");
    assert_eq!(dqkv.len(), qkv.len(), "length of dqkv");
    if dqkv.is_empty() {
        return;
    }
    let target = SharedMut::new(dqkv);
    cpu.parallel(shape.batch * shape.heads, &|block, scratch| {
        cpu.isa().run(Head {
            qkv,
            dy,
            target: Target {
                shape,
                sample: block / shape.heads,
                head: block % shape.heads,
                values: &target,
            },
            scratch,
        });
    });
}

struct Head<'a> {
    qkv: &'a [f32],
    dy: &'a [f32],
    target: Target<'a>,
    scratch: &'a mut Scratch,
}

/// Queries that go through the keys together.
const QUERIES: usize = 4;

impl Kernel for Head<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let shape = self.target.shape;
        let (tokens, dim) = (shape.queries, shape.head_dim);
        let (b, h) = (self.target.sample, self.target.head);
        let [_, k, v] = HeadsView::packed_qkv(self.qkv, shape);
        let padded = tokens.next_multiple_of(LANES);
        let row = QUERIES * padded;
        let [keys, values, dk, dv, weights, slopes, dq] = self.scratch.floats([
            dim * padded,
            dim * padded,
            dim * padded,
            dim * padded,
            row,
            row,
            QUERIES * dim * LANES,
        ]);
        for (turned, view) in [(&mut *keys, k), (&mut *values, v)] {
            turned.fill(0.0);
            for j in 0..tokens {
                for (d, value) in view.row(b, j, h, dim).iter().enumerate() {
                    turned[d * padded + j] = *value;
                }
            }
        }
        dk.fill(0.0);
        dv.fill(0.0);
        let mut turned = Turned {
            tokens,
            padded,
            keys,
            values,
            dk,
            dv,
            weights,
            slopes,
            dq,
        };
        let whole = tokens / QUERIES * QUERIES;
        for i in (0..whole).step_by(QUERIES) {
            turned.queries::<S, QUERIES>(s, self.qkv, self.dy, &self.target, i);
        }
        for i in whole..tokens {
            turned.queries::<S, 1>(s, self.qkv, self.dy, &self.target, i);
        }
        let mut token = [0.0; MOST_AT_ONCE];
        for (part, gradients) in [(1, &*turned.dk), (2, &*turned.dv)] {
            for j in 0..tokens {
                for first in (0..dim).step_by(MOST_AT_ONCE) {
                    let count = (dim - first).min(MOST_AT_ONCE);
                    for (d, value) in token[..count].iter_mut().enumerate() {
                        *value = gradients[(first + d) * padded + j];
                    }
                    self.target.store(j, part, first, &token[..count]);
                }
            }
        }
    }
}

/// Numbers of a token that are gathered before they are stored.
const MOST_AT_ONCE: usize = 64;

/// A head with its keys and values, and their gradients, as `[head_dim][padded tokens]`.
struct Turned<'a> {
    tokens: usize,
    padded: usize,
    keys: &'a [f32],
    values: &'a [f32],
    dk: &'a mut [f32],
    dv: &'a mut [f32],
    /// Of each query at hand, `[query][padded tokens]`.
    weights: &'a mut [f32],
    slopes: &'a mut [f32],
    /// `[query][head_dim][lane]`.
    dq: &'a mut [f32],
}

impl Turned<'_> {
    /// Adds what `Q` queries from `i` on give, and stores their own gradients.
    #[inline(always)]
    fn queries<S: Simd, const Q: usize>(
        &mut self,
        s: S,
        qkv: &[f32],
        dy: &[f32],
        target: &Target<'_>,
        i: usize,
    ) {
        let shape = target.shape;
        let (tokens, padded, dim) = (self.tokens, self.padded, shape.head_dim);
        let (b, h) = (target.sample, target.head);
        let width = shape.heads * dim;
        let scale = (1.0 / (dim as f64).sqrt()) as f32;
        let [q, ..] = HeadsView::packed_qkv(qkv, shape);
        let query: [&[f32]; Q] = std::array::from_fn(|n| q.row(b, i + n, h, dim));
        let dy: [&[f32]; Q] =
            std::array::from_fn(|n| &dy[(b * tokens + i + n) * width + h * dim..][..dim]);
        for j in (0..padded).step_by(LANES) {
            let mut scores = [s.splat(0.0); Q];
            let mut slopes = [s.splat(0.0); Q];
            for d in 0..dim {
                let key = s.read(&self.keys[d * padded + j..][..LANES]);
                let value = s.read(&self.values[d * padded + j..][..LANES]);
                for n in 0..Q {
                    scores[n] = s.mul_add(s.splat(query[n][d]), key, scores[n]);
                    slopes[n] = s.mul_add(s.splat(dy[n][d]), value, slopes[n]);
                }
            }
            for n in 0..Q {
                let scaled = s.mul(scores[n], s.splat(scale));
                s.write(&mut self.weights[n * padded + j..][..LANES], scaled);
                s.write(&mut self.slopes[n * padded + j..][..LANES], slopes[n]);
            }
        }
        let mut means = [s.splat(0.0); Q];
        for n in 0..Q {
            let weights = &mut self.weights[n * padded..][..padded];
            // Tokens that only fill up a vector have no weight.
            weights[tokens..].fill(f32::NEG_INFINITY);
            let mut most = s.splat(f32::NEG_INFINITY);
            for j in (0..padded).step_by(LANES) {
                most = s.max(most, s.read(&weights[j..][..LANES]));
            }
            let slopes = &self.slopes[n * padded..][..tokens];
            let mean = normalise(s, s.max_lane(most), &mut weights[..tokens], slopes);
            weights[tokens..].fill(0.0);
            means[n] = s.splat(mean);
        }
        self.dq[..Q * dim * LANES].fill(0.0);
        for j in (0..padded).step_by(LANES) {
            let weights: [S::V; Q] =
                std::array::from_fn(|n| s.read(&self.weights[n * padded + j..][..LANES]));
            let slopes: [S::V; Q] = std::array::from_fn(|n| {
                let slope = s.read(&self.slopes[n * padded + j..][..LANES]);
                let slope = s.mul(weights[n], s.sub(slope, means[n]));
                s.mul(slope, s.splat(scale))
            });
            for d in 0..dim {
                let at = d * padded + j;
                let key = s.read(&self.keys[at..][..LANES]);
                let mut dk = s.read(&self.dk[at..][..LANES]);
                let mut dv = s.read(&self.dv[at..][..LANES]);
                for n in 0..Q {
                    dk = s.mul_add(slopes[n], s.splat(query[n][d]), dk);
                    dv = s.mul_add(weights[n], s.splat(dy[n][d]), dv);
                    let dq = &mut self.dq[(n * dim + d) * LANES..][..LANES];
                    s.write(dq, s.mul_add(slopes[n], key, s.read(dq)));
                }
                s.write(&mut self.dk[at..][..LANES], dk);
                s.write(&mut self.dv[at..][..LANES], dv);
            }
        }
        for n in 0..Q {
            for d in 0..dim {
                let dq = s.read(&self.dq[(n * dim + d) * LANES..][..LANES]);
                target.store(i + n, 0, d, &[s.sum(dq)]);
            }
        }
    }
}

/// Where one head of one sample writes.
struct Target<'a> {
    shape: &'a AttentionShape,
    sample: usize,
    head: usize,
    values: &'a SharedMut<'a, f32>,
}

impl Target<'_> {
    /// Writes the gradient of a token's query (part 0), key (1) or value (2), from number `first` of the head on.
    fn store(&self, token: usize, part: usize, first: usize, values: &[f32]) {
        assert!(first + values.len() <= self.shape.head_dim);
        let width = self.shape.heads * self.shape.head_dim;
        let row = (self.sample * self.shape.queries + token) * 3 + part;
        let start = row * width + self.head * self.shape.head_dim + first;
        // SAFETY: each sample and head has its own columns, and they are inside by the lengths checked.
        unsafe { self.values.slice(start..start + values.len()) }.copy_from_slice(values);
    }
}

/// Turns scores into weights that sum to 1; returns Σ weight · slope.
#[inline(always)]
fn normalise<S: Simd>(s: S, most: f32, weights: &mut [f32], slopes: &[f32]) -> f32 {
    let most = s.splat(most);
    let (mut total, mut sum) = (s.splat(0.0), s.splat(0.0));
    for (weights, slopes) in weights.chunks_mut(LANES).zip(slopes.chunks(LANES)) {
        let value = math::exp(s, s.sub(s.read(weights), most));
        s.write(weights, value);
        // Lanes past the end were written nowhere and are zero when read again.
        let value = s.read(weights);
        total = s.add(total, value);
        sum = s.mul_add(value, s.read(slopes), sum);
    }
    let inverse = 1.0 / s.sum(total);
    for weights in weights.chunks_mut(LANES) {
        s.write(weights, s.mul(s.read(weights), s.splat(inverse)));
    }
    s.sum(sum) * inverse
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference::gradient;
    use crate::testing::{check, numbers, widen};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn equals_the_reference(batch in 0usize..3, tokens in 0usize..30, heads in 1usize..4, dim in 1usize..20) {
            let shape = AttentionShape::self_attention(batch, tokens, heads, dim);
            let len = batch * tokens * heads * dim;
            let (qkv, dy) = (numbers(1, 3 * len), numbers(2, len));
            let scale = 1.0 / (dim as f64).sqrt();
            let mut expected = vec![0.0; qkv.len()];
            gradient::packed_attention_gradient(&shape, scale, &widen(&qkv), &widen(&dy), &mut expected);
            check(&expected, 1e-5, |cpu, dqkv| packed_attention_gradient(cpu, &shape, &qkv, &dy, dqkv));
        }
    }
}
