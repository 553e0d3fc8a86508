//! One block of attention: some query panels of one sample and head against all its keys.
//!
//! Keys and values stream by in blocks that stay in the cache; the softmax is kept up to date online (Milakov and
//! Gimelshein 2018, as in FlashAttention): when a block raises a query's largest score, what was summed before decays.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use super::tiles::{
    PANEL, PANEL_VECTORS, PanelRow, TILE_ROWS, load_row, score_tile, store_row, value_tile,
};
use super::{AttentionShape, HeadsView};
use crate::aligned::SharedMut;
use crate::cpu::Scratch;
use crate::isa::Kernel;
use crate::math::exp2_below_128;
use crate::simd::{LANES, Simd};

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
        // Queries and sums of a block fill half of a 512 KB second-level cache; keys and values an eighth.
        let query_blocks = panels.div_ceil((20 * 64 / depth).clamp(1, 20));
        let key_blocks = shape
            .keys
            .div_ceil((128 * 64 / depth).clamp(32, 256))
            .max(1);
        Self {
            block_queries: panels.div_ceil(query_blocks) * PANEL,
            query_blocks,
            key_block: shape.keys.div_ceil(key_blocks).next_multiple_of(TILE_ROWS),
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

/// Softmax so far of the queries of a panel: the largest score, then the sum of the weights.
const STATE: usize = 2 * PANEL;

impl Kernel for (Block<'_, '_>, &mut Scratch) {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.run(s, self.1);
    }
}

impl Block<'_, '_> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, scratch: &mut Scratch) {
        let depth = self.shape.head_dim;
        let panels = self.range.len().div_ceil(PANEL);
        let key_block = self.plan.key_block;
        // Whole vectors of channels: queries and results are transposed 8 x 8 at a time.
        let panel_len = depth.next_multiple_of(LANES) * PANEL;
        let [queries, sums, states, keys, values, weights] = scratch.floats([
            panels * panel_len,
            panels * panel_len,
            panels * STATE,
            key_block * depth,
            key_block * depth.next_multiple_of(TILE_ROWS),
            key_block * PANEL,
        ]);
        let panel_rows = |panel: usize| {
            let start = self.range.start + panel * PANEL;
            start..self.range.end.min(start + PANEL)
        };

        sums.fill(0.0);
        for panel in 0..panels {
            let queries = &mut queries[panel * panel_len..][..panel_len];
            pack_queries(s, self.q, panel_rows(panel), self.scale, queries);
            let (max, sum) = states[panel * STATE..][..STATE].split_at_mut(PANEL);
            max.fill(f32::MIN);
            sum.fill(0.0);
        }
        for start in (0..self.shape.keys).step_by(key_block) {
            let block = start..self.shape.keys.min(start + key_block);
            let weights = &mut weights[..block.len() * PANEL];
            pack_keys(self.k, block.clone(), keys);
            pack_values(self.v, block.clone(), values);
            for panel in 0..panels {
                let part = panel * panel_len..(panel + 1) * panel_len;
                let mut max = score_panel(s, depth, keys, &queries[part.clone()], weights);
                if let Some(mask) = self.mask {
                    add_mask(
                        mask,
                        self.shape.keys,
                        panel_rows(panel),
                        block.clone(),
                        weights,
                    );
                    max = largest(s, weights);
                }
                let decay = soften(s, max, &mut states[panel * STATE..][..STATE], weights);
                sum_values(s, values, weights, &mut sums[part], decay);
            }
        }
        for panel in 0..panels {
            let weight_sums = &states[panel * STATE + PANEL..][..PANEL];
            let sums = &sums[panel * panel_len..][..panel_len];
            for (lane, query) in panel_rows(panel).enumerate().step_by(LANES) {
                self.write_rows(s, query, lane, weight_sums, sums);
            }
        }
    }

    /// Divides the sums of up to 8 queries from `lane` on by their weights and writes them to y.
    #[inline(always)]
    fn write_rows<S: Simd>(
        &self,
        s: S,
        query: usize,
        lane: usize,
        weight_sums: &[f32],
        sums: &[f32],
    ) {
        let &AttentionShape {
            heads,
            queries,
            head_dim,
            ..
        } = self.shape;
        let factor = s.div(s.splat(1.0), s.read(&weight_sums[lane..]));
        for channel in (0..head_dim).step_by(LANES) {
            let mut tile = [s.splat(0.0); LANES];
            for i in 0..LANES {
                tile[i] = s.mul(s.read(&sums[(channel + i) * PANEL + lane..]), factor);
            }
            let tile = s.transpose8(tile);
            for i in 0..LANES.min(self.range.end - query) {
                let row = (self.q.sample * queries + query + i) * heads + self.q.head;
                let start = row * head_dim + channel;
                let len = LANES.min(head_dim - channel);
                // SAFETY: these channels of this query and head belong to this block alone.
                let out = unsafe { self.y.slice(start..start + len) };
                s.write(out, tile[i]);
            }
        }
    }
}

/// Transposes queries to [depth][PANEL], times the scale; lanes without a query are 0.
#[inline(always)]
fn pack_queries<S: Simd>(s: S, q: Tokens<'_>, rows: Range<usize>, scale: f32, packed: &mut [f32]) {
    // Scores come out in powers of two: one multiplication less for each exponential.
    let scale = s.splat(scale * LOG2_E);
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

/// Copies keys side by side: in place they lie a page apart, which wastes cache sets and address translations.
#[inline(always)]
fn pack_keys(k: Tokens<'_>, block: Range<usize>, packed: &mut [f32]) {
    for (token, packed) in block.zip(packed.chunks_exact_mut(k.depth.max(1))) {
        packed.copy_from_slice(k.row(token));
    }
}

/// Copies values to [depth / 4][keys][4], the order in which tiles read them; missing channels are 0.
#[inline(always)]
fn pack_values(v: Tokens<'_>, block: Range<usize>, packed: &mut [f32]) {
    let strip = block.len() * TILE_ROWS;
    for (i, token) in block.enumerate() {
        for (tile, channels) in v.row(token).chunks(TILE_ROWS).enumerate() {
            let packed = &mut packed[tile * strip + i * TILE_ROWS..][..TILE_ROWS];
            if let Some(four) = channels.first_chunk::<TILE_ROWS>() {
                packed.copy_from_slice(four);
            } else {
                packed.fill(0.0);
                packed[..channels.len()].copy_from_slice(channels);
            }
        }
    }
}

/// Scores [keys][PANEL] of a panel of queries; returns the largest of each query.
#[inline(always)]
fn score_panel<S: Simd>(
    s: S,
    depth: usize,
    keys: &[f32],
    queries: &[f32],
    scores: &mut [f32],
) -> PanelRow<S> {
    let count = scores.len() / PANEL;
    assert!(keys.len() >= count * depth && queries.len() >= depth * PANEL);
    let mut max = [s.splat(f32::MIN); PANEL_VECTORS];
    for key in (0..count).step_by(TILE_ROWS) {
        // SAFETY: `count` keys and scores and `depth` rows of queries are there, as asserted.
        unsafe {
            let rows = keys.as_ptr().add(key * depth);
            let scores = scores.as_mut_ptr().add(key * PANEL);
            let queries = queries.as_ptr();
            max = match count - key {
                1 => score_tile::<S, 1>(s, depth, rows, queries, scores, max),
                2 => score_tile::<S, 2>(s, depth, rows, queries, scores, max),
                3 => score_tile::<S, 3>(s, depth, rows, queries, scores, max),
                _ => score_tile::<S, TILE_ROWS>(s, depth, rows, queries, scores, max),
            };
        }
    }
    max
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
#[inline(always)]
fn largest<S: Simd>(s: S, scores: &[f32]) -> PanelRow<S> {
    let mut max = [s.splat(f32::MIN); PANEL_VECTORS];
    for row in scores.chunks_exact(PANEL) {
        for j in 0..PANEL_VECTORS {
            max[j] = s.max(s.read(&row[j * LANES..]), max[j]);
        }
    }
    max
}

/// Turns scores into weights 2^(score - max), adds them to the state's sums, and returns what earlier sums decay by.
#[inline(always)]
fn soften<S: Simd>(
    s: S,
    block_max: PanelRow<S>,
    state: &mut [f32],
    scores: &mut [f32],
) -> PanelRow<S> {
    assert_eq!(state.len(), STATE);
    let (max_state, sum_state) = state.split_at_mut(PANEL);
    let mut max = block_max;
    let mut decay = block_max;
    let mut sum = block_max;
    for j in 0..PANEL_VECTORS {
        let before = s.read(&max_state[j * LANES..]);
        max[j] = s.max(before, block_max[j]);
        decay[j] = exp2_below_128(s, s.sub(before, max[j]));
        sum[j] = s.mul(s.read(&sum_state[j * LANES..]), decay[j]);
    }
    for row in scores.chunks_exact_mut(PANEL) {
        // SAFETY: `row` has `PANEL` floats.
        unsafe {
            let mut weight = load_row(s, row.as_ptr());
            for j in 0..PANEL_VECTORS {
                weight[j] = exp2_below_128(s, s.sub(weight[j], max[j]));
                sum[j] = s.add(sum[j], weight[j]);
            }
            store_row(s, row.as_mut_ptr(), weight);
        }
    }
    for j in 0..PANEL_VECTORS {
        s.write(&mut max_state[j * LANES..], max[j]);
        s.write(&mut sum_state[j * LANES..], sum[j]);
    }
    decay
}

/// Adds the weighted values of a block to the decayed sums [depth][PANEL].
#[inline(always)]
fn sum_values<S: Simd>(
    s: S,
    values: &[f32],
    weights: &[f32],
    sums: &mut [f32],
    decay: PanelRow<S>,
) {
    let count = weights.len() / PANEL;
    let strip = count * TILE_ROWS;
    let tiles = values.len().checked_div(strip).unwrap_or(0);
    for tile in 0..tiles.min(sums.len() / (TILE_ROWS * PANEL)) {
        // SAFETY: `tile` is inside both the values and the sums, and there are `count` weights.
        unsafe {
            let values = values.as_ptr().add(tile * strip);
            let sums = sums.as_mut_ptr().add(tile * TILE_ROWS * PANEL);
            value_tile(s, count, values, weights.as_ptr(), sums, decay);
        }
    }
}
