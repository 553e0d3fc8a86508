//! The gradient of self-attention by its packed projection.
//!
//! Each head of each sample is one block: it goes through the queries once, computes their weights again, and adds to the
//! gradients of all keys and values.

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

impl Kernel for Head<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let shape = self.target.shape;
        let (tokens, dim) = (shape.queries, shape.head_dim);
        let width = shape.heads * dim;
        let (b, h) = (self.target.sample, self.target.head);
        let [q, k, v] = HeadsView::packed_qkv(self.qkv, shape);
        let scale = (1.0 / (dim as f64).sqrt()) as f32;
        let [weights, slopes, dq, dk, dv] =
            self.scratch
                .floats([tokens, tokens, dim, tokens * dim, tokens * dim]);
        dk.fill(0.0);
        dv.fill(0.0);
        for i in 0..tokens {
            let query = q.row(b, i, h, dim);
            let dy = &self.dy[(b * tokens + i) * width + h * dim..][..dim];
            let mut most = f32::NEG_INFINITY;
            for j in 0..tokens {
                weights[j] = scale * dot(s, query, k.row(b, j, h, dim));
                slopes[j] = dot(s, dy, v.row(b, j, h, dim));
                most = if weights[j] > most { weights[j] } else { most };
            }
            let mean = normalise(s, most, weights, slopes);
            dq.fill(0.0);
            for j in 0..tokens {
                let slope = weights[j] * (slopes[j] - mean) * scale;
                add_scaled(s, slope, k.row(b, j, h, dim), dq);
                add_scaled(s, slope, query, &mut dk[j * dim..][..dim]);
                add_scaled(s, weights[j], dy, &mut dv[j * dim..][..dim]);
            }
            self.target.store(i, 0, dq);
        }
        for j in 0..tokens {
            self.target.store(j, 1, &dk[j * dim..][..dim]);
            self.target.store(j, 2, &dv[j * dim..][..dim]);
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
    /// Writes the gradient of a token's query (part 0), key (1) or value (2).
    fn store(&self, token: usize, part: usize, values: &[f32]) {
        let width = self.shape.heads * self.shape.head_dim;
        let row = (self.sample * self.shape.queries + token) * 3 + part;
        let start = row * width + self.head * self.shape.head_dim;
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

#[inline(always)]
fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sum = s.splat(0.0);
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        sum = s.mul_add(s.read(a), s.read(b), sum);
    }
    s.sum(sum)
}

#[inline(always)]
fn add_scaled<S: Simd>(s: S, factor: f32, x: &[f32], y: &mut [f32]) {
    let factor = s.splat(factor);
    for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
        s.write(y, s.mul_add(factor, s.read(x), s.read(y)));
    }
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
