//! Attention without the score matrix.

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
}
