//! One block of attention: some query panels of one sample and head against all its keys.
//!
//! Keys and values stream by in blocks that stay in the cache; the softmax is kept up to date online (Milakov and
//! Gimelshein 2018, as in FlashAttention): when a block raises a query's largest score, what was summed before decays.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use super::steps::{STATE, Score, Soften, SumValues};
use super::tiles::{PANEL, TILE_ROWS};
use super::{AttentionShape, HeadsView, wide};
use crate::aligned::{FLOATS_PER_LINE, SharedMut};
use crate::cpu::Scratch;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd, prefetch_read_l2};

/// How the work is cut, from the shape only.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// Queries of a block.
    pub(super) block_queries: usize,
    /// Blocks of a sample and head.
    pub(super) query_blocks: usize,
    key_block: usize,
}

impl Plan {
    pub(super) fn new(shape: &AttentionShape) -> Self {
        let panels = shape.queries.div_ceil(PANEL).max(1);
        let depth = shape.head_dim.max(1);
        // Queries and sums of a block fill half of a 512 KB second-level cache; keys and values a fifth.
        let query_blocks = panels.div_ceil((30 * 64 / depth).clamp(1, 30));
        let key_blocks = shape
            .keys
            .div_ceil((192 * 64 / depth).clamp(32, 256))
            .max(1);
        Self {
            block_queries: panels.div_ceil(query_blocks) * PANEL,
            query_blocks,
            key_block: shape
                .keys
                .div_ceil(key_blocks)
                .max(1)
                .next_multiple_of(TILE_ROWS),
        }
    }
}

/// The tokens of one sample and head.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    pub(super) view: HeadsView<'a>,
    pub(super) sample: usize,
    pub(super) head: usize,
    pub(super) depth: usize,
}

impl<'a> Tokens<'a> {
    #[inline(always)]
    fn row(&self, token: usize) -> &'a [f32] {
        self.view.row(self.sample, token, self.head, self.depth)
    }
}

/// The arguments of one block.
pub(super) struct Block<'a, 'y> {
    pub(super) isa: Isa,
    pub(super) shape: &'a AttentionShape,
    pub(super) plan: Plan,
    pub(super) scale: f32,
    pub(super) q: Tokens<'a>,
    pub(super) k: Tokens<'a>,
    pub(super) v: Tokens<'a>,
    pub(super) mask: Option<&'a [f32]>,
    /// The queries of the block.
    pub(super) range: Range<usize>,
    pub(super) y: &'a SharedMut<'y, f32>,
}

impl Block<'_, '_> {
    /// Each step is a kernel of its own: the tiles need every register, and constants of another step would take some.
    pub(super) fn run(&self, scratch: &mut Scratch) {
        let isa = self.isa;
        let depth = self.shape.head_dim;
        let panels = self.range.len().div_ceil(PANEL);
        let key_block = self.plan.key_block;
        // Whole vectors of channels, because queries and results are transposed 8 x 8 at a time, and whole tiles.
        let rows = depth
            .next_multiple_of(LANES)
            .max(depth.next_multiple_of(TILE_ROWS));
        let panel_len = rows * PANEL;
        let at_once = if isa.has_wide_floats() {
            wide::PANELS
        } else {
            1
        };
        let [queries, sums, states, keys, values, weights] = scratch.floats([
            panels * panel_len,
            panels * panel_len,
            panels * STATE,
            key_block.next_multiple_of(wide::ROWS) * depth,
            key_block * depth.next_multiple_of(TILE_ROWS),
            at_once * key_block * PANEL,
        ]);
        let panel_rows = |panel: usize| {
            let start = self.range.start + panel * PANEL;
            start..self.range.end.min(start + PANEL)
        };

        sums.fill(0.0);
        for panel in 0..panels {
            let packed = &mut queries[panel * panel_len..][..panel_len];
            isa.run(PackQueries {
                q: self.q,
                rows: panel_rows(panel),
                scale: self.scale,
                packed,
            });
            let (max, sum) = states[panel * STATE..][..STATE].split_at_mut(PANEL);
            max.fill(f32::MIN);
            sum.fill(0.0);
        }
        for start in (0..self.shape.keys).step_by(key_block) {
            let block = start..self.shape.keys.min(start + key_block);
            pack_keys(self.k, block.clone(), keys);
            pack_values(self.v, block.clone(), values);
            let next = block.end..self.shape.keys.min(block.end + key_block);
            let scores_len = block.len() * PANEL;
            for first in (0..panels).step_by(at_once) {
                let some = first..panels.min(first + at_once);
                for panel in some.clone() {
                    prefetch_share(self.k, next.clone(), panel, panels);
                    prefetch_share(self.v, next.clone(), panel, panels);
                }
                let part = some.start * panel_len..some.end * panel_len;
                let weights = &mut weights[..some.len() * scores_len];
                let mut max = [f32::MIN; wide::PANELS * PANEL];
                let mut decay = [0.0; wide::PANELS * PANEL];
                isa.run(Score {
                    depth,
                    keys,
                    panel_len,
                    queries: &queries[part.clone()],
                    scores_len,
                    scores: weights,
                    max: &mut max,
                });
                if let Some(mask) = self.mask {
                    for (i, panel) in some.clone().enumerate() {
                        let scores = &mut weights[i * scores_len..][..scores_len];
                        let queries = panel_rows(panel);
                        add_mask(mask, self.shape.keys, queries, block.clone(), scores);
                        max[i * PANEL..][..PANEL].copy_from_slice(&largest(scores));
                    }
                }
                isa.run(Soften {
                    max: &max,
                    states: &mut states[some.start * STATE..some.end * STATE],
                    scores_len,
                    scores: weights,
                    decay: &mut decay,
                });
                isa.run(SumValues {
                    depth,
                    values,
                    scores_len,
                    weights,
                    panel_len,
                    sums: &mut sums[part],
                    decay: &decay,
                });
            }
        }
        for panel in 0..panels {
            let weight_sums = &states[panel * STATE + PANEL..][..PANEL];
            let sums = &sums[panel * panel_len..][..panel_len];
            isa.run(WritePanel {
                block: self,
                rows: panel_rows(panel),
                weight_sums,
                sums,
            });
        }
    }
}

/// Divides the sums of a panel by the sums of its weights and writes them to y.
struct WritePanel<'a> {
    block: &'a Block<'a, 'a>,
    rows: Range<usize>,
    weight_sums: &'a [f32],
    sums: &'a [f32],
}

impl Kernel for WritePanel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block { shape, q, y, .. } = self.block;
        let &AttentionShape {
            heads,
            queries,
            head_dim,
            ..
        } = *shape;
        for (lane, query) in self.rows.clone().enumerate().step_by(LANES) {
            let factor = s.div(s.splat(1.0), s.read(&self.weight_sums[lane..]));
            for channel in (0..head_dim).step_by(LANES) {
                let mut tile = [s.splat(0.0); LANES];
                for i in 0..LANES {
                    tile[i] = s.mul(s.read(&self.sums[(channel + i) * PANEL + lane..]), factor);
                }
                let tile = s.transpose8(tile);
                for i in 0..LANES.min(self.rows.end - query) {
                    let row = (q.sample * queries + query + i) * heads + q.head;
                    let start = row * head_dim + channel;
                    let len = LANES.min(head_dim - channel);
                    // SAFETY: these channels of this query and head belong to this block alone.
                    let out = unsafe { y.slice(start..start + len) };
                    s.write(out, tile[i]);
                }
            }
        }
    }
}

/// Transposes queries to [depth][PANEL], times the scale; lanes without a query are 0.
struct PackQueries<'a> {
    q: Tokens<'a>,
    rows: Range<usize>,
    scale: f32,
    packed: &'a mut [f32],
}

impl Kernel for PackQueries<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            q, rows, packed, ..
        } = self;
        // Scores come out in powers of two: one multiplication less for each exponential.
        let scale = s.splat(self.scale * LOG2_E);
        for lane in (0..PANEL).step_by(LANES) {
            for channel in (0..q.depth).step_by(LANES) {
                let mut tile = [s.splat(0.0); LANES];
                for i in 0..LANES {
                    if rows.start + lane + i < rows.end {
                        tile[i] = s.mul(s.read(&q.row(rows.start + lane + i)[channel..]), scale);
                    }
                }
                let tile = s.transpose8(tile);
                for i in 0..LANES {
                    s.write(&mut packed[(channel + i) * PANEL + lane..], tile[i]);
                }
            }
        }
    }
}

/// Asks for one of `shares` equal parts of some tokens, so that they have arrived when they are packed.
fn prefetch_share(tokens: Tokens<'_>, range: Range<usize>, share: usize, shares: usize) {
    let each = range.len().div_ceil(shares);
    for token in range.skip(share * each).take(each) {
        for line in tokens.row(token).chunks(FLOATS_PER_LINE) {
            prefetch_read_l2(line.as_ptr());
        }
    }
}

/// Copies keys side by side: in place they lie a page apart, which wastes cache sets and address translations.
fn pack_keys(k: Tokens<'_>, block: Range<usize>, packed: &mut [f32]) {
    for (token, packed) in block.zip(packed.chunks_exact_mut(k.depth.max(1))) {
        packed.copy_from_slice(k.row(token));
    }
}

/// Copies values to [depth / 6][keys][6], the order in which tiles read them; missing channels are 0.
fn pack_values(v: Tokens<'_>, block: Range<usize>, packed: &mut [f32]) {
    let strip = block.len() * TILE_ROWS;
    for (i, token) in block.enumerate() {
        for (tile, channels) in v.row(token).chunks(TILE_ROWS).enumerate() {
            let packed = &mut packed[tile * strip + i * TILE_ROWS..][..TILE_ROWS];
            if let Some(whole) = channels.first_chunk::<TILE_ROWS>() {
                packed.copy_from_slice(whole);
            } else {
                packed.fill(0.0);
                packed[..channels.len()].copy_from_slice(channels);
            }
        }
    }
}

/// Adds the mask of these queries and keys to their scores, which are in powers of two.
fn add_mask(
    mask: &[f32],
    keys: usize,
    queries: Range<usize>,
    block: Range<usize>,
    scores: &mut [f32],
) {
    for (lane, query) in queries.enumerate() {
        for (i, &value) in mask[query * keys..][block.clone()].iter().enumerate() {
            scores[i * PANEL + lane] += value * LOG2_E;
        }
    }
}

/// The largest score of each query.
fn largest(scores: &[f32]) -> [f32; PANEL] {
    let mut max = [f32::MIN; PANEL];
    for row in scores.chunks_exact(PANEL) {
        for (max, &score) in max.iter_mut().zip(row) {
            *max = max.max(score);
        }
    }
    max
}
