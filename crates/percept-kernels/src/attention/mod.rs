//! Attention without the score matrix.

mod block;
mod steps;
mod tiles;
mod wide;

use block::{Block, Plan, Tokens};

use crate::aligned::SharedMut;
use crate::cpu::Cpu;

/// Sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Samples.
    pub batch: usize,
    /// Heads.
    pub heads: usize,
    /// Query tokens.
    pub queries: usize,
    /// Key and value tokens.
    pub keys: usize,
    /// Numbers per token and head.
    pub head_dim: usize,
}

impl AttentionShape {
    /// Self-attention: as many keys as queries.
    pub fn self_attention(batch: usize, tokens: usize, heads: usize, head_dim: usize) -> Self {
        Self {
            batch,
            heads,
            queries: tokens,
            keys: tokens,
            head_dim,
        }
    }

    /// How many numbers the output [batch, queries, heads * head_dim] has.
    pub fn out_len(&self) -> usize {
        self.batch * self.queries * self.heads * self.head_dim
    }
}

/// Queries, keys or values read in place: the `head_dim` numbers of (sample, token, head) are
/// contiguous and start at `sample * batch_stride + token * token_stride + head * head_stride`.
#[derive(Clone, Copy, Debug)]
pub struct HeadsView<'a, T = f32> {
    /// The tensor, starting at the first number of the first token and head.
    pub data: &'a [T],
    /// Numbers from a sample to the next.
    pub batch_stride: usize,
    /// Numbers from a token to the next.
    pub token_stride: usize,
    /// Numbers from a head to the next.
    pub head_stride: usize,
}

impl<'a, T> HeadsView<'a, T> {
    /// A dense [batch, tokens, heads, head_dim] tensor.
    pub fn dense(data: &'a [T], tokens: usize, heads: usize, head_dim: usize) -> Self {
        let token_stride = heads * head_dim;
        Self {
            data,
            batch_stride: tokens * token_stride,
            token_stride,
            head_stride: head_dim,
        }
    }

    /// The queries, keys and values of a [batch, tokens, 3, heads, head_dim] tensor.
    pub fn packed_qkv(qkv: &'a [T], shape: &AttentionShape) -> [Self; 3] {
        let width = shape.heads * shape.head_dim;
        let part = |index: usize| Self {
            data: qkv.get(index * width..).unwrap_or_default(),
            batch_stride: shape.queries * 3 * width,
            token_stride: 3 * width,
            head_stride: shape.head_dim,
        };
        [part(0), part(1), part(2)]
    }

    /// The numbers of one token and head.
    pub fn row(&self, sample: usize, token: usize, head: usize, head_dim: usize) -> &'a [T] {
        let start =
            sample * self.batch_stride + token * self.token_stride + head * self.head_stride;
        &self.data[start..start + head_dim]
    }

    fn check(&self, name: &str, shape: &AttentionShape, tokens: usize) {
        if shape.batch * tokens * shape.heads > 0 {
            let last = (shape.batch - 1) * self.batch_stride
                + (tokens - 1) * self.token_stride
                + (shape.heads - 1) * self.head_stride;
            let (len, needed) = (self.data.len(), last + shape.head_dim);
            assert!(
                needed <= len,
                "{name} is too short: {len} numbers of {needed}"
            );
        }
    }
}

/// y = softmax(q k^T * scale + mask) v for each sample and head, without ever holding the scores.
///
/// y is [batch, queries, heads * head_dim]; `mask`, when given, is [queries, keys] and shared by all samples and heads.
/// A query whose keys are all masked by -infinity gives NaN, as in PyTorch.
pub fn attention(
    cpu: &Cpu,
    shape: &AttentionShape,
    scale: f32,
    q: HeadsView<'_>,
    k: HeadsView<'_>,
    v: HeadsView<'_>,
    mask: Option<&[f32]>,
    y: &mut [f32],
) {
    q.check("q", shape, shape.queries);
    k.check("k", shape, shape.keys);
    v.check("v", shape, shape.keys);
    assert_eq!(y.len(), shape.out_len(), "length of y");
    if let Some(mask) = mask {
        assert_eq!(mask.len(), shape.queries * shape.keys, "length of the mask");
    }
    if y.is_empty() {
        return;
    }
    let plan = Plan::new(shape);
    let y = SharedMut::new(y);
    cpu.parallel(
        shape.batch * shape.heads * plan.query_blocks,
        &|index, scratch| {
            let (pair, block) = (index / plan.query_blocks, index % plan.query_blocks);
            let (sample, head) = (pair / shape.heads, pair % shape.heads);
            let tokens = |view| Tokens {
                view,
                sample,
                head,
                depth: shape.head_dim,
            };
            let start = (block * plan.block_queries).min(shape.queries);
            let range = start..shape.queries.min(start + plan.block_queries);
            let [q, k, v] = [q, k, v].map(tokens);
            let isa = cpu.isa();
            Block {
                isa,
                shape,
                plan,
                scale,
                q,
                k,
                v,
                mask,
                range,
                y: &y,
            }
            .run(scratch);
        },
    );
}

/// Self-attention on a [batch, tokens, 3, heads, head_dim] tensor of queries, keys and values, scaled by
/// 1 / sqrt(head_dim): the attention of a vision transformer.
pub fn packed_attention(cpu: &Cpu, shape: &AttentionShape, qkv: &[f32], y: &mut [f32]) {
    assert_eq!(
        shape.queries, shape.keys,
        "packed attention is self-attention"
    );
    assert_eq!(qkv.len(), 3 * shape.out_len(), "length of qkv");
    let [q, k, v] = HeadsView::packed_qkv(qkv, shape);
    let scale = (1.0 / (shape.head_dim as f64).sqrt()) as f32;
    attention(cpu, shape, scale, q, k, v, None, y);
}

#[cfg(test)]
mod tests;
