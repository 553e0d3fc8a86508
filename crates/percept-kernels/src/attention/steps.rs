//! The steps of a block: each for one panel of queries, or for as many as the widest vectors take at once.

use super::tiles::{PANEL, PANEL_VECTORS, TILE_ROWS, load_row, score_tile, store_row, value_tile};
use super::wide::{self, Panels};
use crate::isa::Kernel;
use crate::math::exp2_below_128;
use crate::simd::{LANES, Simd};

/// Softmax so far of the queries of a panel: the largest score, then the sum of the weights.
pub(super) const STATE: usize = 2 * PANEL;

/// Scores [keys][PANEL] of panels of queries, and the largest of each query.
pub(super) struct Score<'a> {
    pub(super) depth: usize,
    /// Whole wide tiles of them.
    pub(super) keys: &'a [f32],
    pub(super) panel_len: usize,
    pub(super) queries: &'a [f32],
    pub(super) scores_len: usize,
    pub(super) scores: &'a mut [f32],
    pub(super) max: &'a mut [f32],
}

impl Kernel for Score<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let depth = self.depth;
        let count = self.scores_len / PANEL;
        let panels = self.scores.len() / self.scores_len;
        assert!(self.keys.len() >= count.next_multiple_of(wide::ROWS) * depth);
        assert!(self.panel_len >= depth * PANEL && self.queries.len() >= panels * self.panel_len);
        assert!(self.max.len() >= panels * PANEL);
        let (keys, max) = (self.keys.as_ptr(), self.max.as_mut_ptr());
        if let Some(wide) = s.wide() {
            let queries = Panels {
                start: self.queries.as_ptr(),
                stride: self.panel_len,
                count: panels,
            };
            let scores = Panels {
                start: self.scores.as_mut_ptr(),
                stride: self.scores_len,
                count: panels,
            };
            // SAFETY: whole tiles of keys, the scores of `count` and `depth` rows of queries are there, as asserted.
            return unsafe { wide::score(wide, depth, keys, count, queries, scores, max) };
        }
        for panel in 0..panels {
            // SAFETY: inside what was asserted.
            let (queries, scores, max) = unsafe {
                (
                    self.queries.as_ptr().add(panel * self.panel_len),
                    self.scores.as_mut_ptr().add(panel * self.scores_len),
                    max.add(panel * PANEL),
                )
            };
            for key in (0..count).step_by(TILE_ROWS) {
                // SAFETY: `count` keys and scores and `depth` rows of queries are there, as asserted.
                unsafe {
                    let keys = keys.add(key * depth);
                    let scores = scores.add(key * PANEL);
                    match count - key {
                        1 => score_tile::<S, 1>(s, depth, keys, queries, scores, max),
                        2 => score_tile::<S, 2>(s, depth, keys, queries, scores, max),
                        3 => score_tile::<S, 3>(s, depth, keys, queries, scores, max),
                        4 => score_tile::<S, 4>(s, depth, keys, queries, scores, max),
                        5 => score_tile::<S, 5>(s, depth, keys, queries, scores, max),
                        _ => score_tile::<S, TILE_ROWS>(s, depth, keys, queries, scores, max),
                    }
                }
            }
        }
    }
}

/// Turns scores into weights 2^(score - max), adds them to the states' sums, and says what earlier sums decay by.
pub(super) struct Soften<'a> {
    pub(super) max: &'a [f32],
    pub(super) states: &'a mut [f32],
    pub(super) scores_len: usize,
    pub(super) scores: &'a mut [f32],
    pub(super) decay: &'a mut [f32],
}

impl Kernel for Soften<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let panels = self
            .scores
            .chunks_exact_mut(self.scores_len)
            .zip(self.states.chunks_exact_mut(STATE))
            .zip(self.max.chunks_exact(PANEL))
            .zip(self.decay.chunks_exact_mut(PANEL));
        for (((scores, state), block_max), decays) in panels {
            let (max_state, sum_state) = state.split_at_mut(PANEL);
            let mut max = [s.splat(0.0); PANEL_VECTORS];
            for j in 0..PANEL_VECTORS {
                let lanes = j * LANES..(j + 1) * LANES;
                let before = s.read(&max_state[lanes.clone()]);
                max[j] = s.max(before, s.read(&block_max[lanes.clone()]));
                let decay = exp2_below_128(s, s.sub(before, max[j]));
                let sum = s.mul(s.read(&sum_state[lanes.clone()]), decay);
                s.write(&mut sum_state[lanes.clone()], sum);
                s.write(&mut decays[lanes.clone()], decay);
                s.write(&mut max_state[lanes], max[j]);
            }
            if let Some(wide) = s.wide() {
                let (count, scores) = (scores.len() / PANEL, scores.as_mut_ptr());
                let (max, sum) = (max_state.as_ptr(), sum_state.as_mut_ptr());
                // SAFETY: `count` rows of scores are there, and a row of each state.
                unsafe { wide::soften(wide, count, scores, max, sum) };
                continue;
            }
            // SAFETY: a state has two rows.
            let mut sum = unsafe { load_row(s, sum_state.as_ptr()) };
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
                s.write(&mut sum_state[j * LANES..], sum[j]);
            }
        }
    }
}

/// Adds the weighted values of a block to the decayed sums [depth][PANEL].
pub(super) struct SumValues<'a> {
    pub(super) depth: usize,
    pub(super) values: &'a [f32],
    pub(super) scores_len: usize,
    pub(super) weights: &'a [f32],
    pub(super) panel_len: usize,
    pub(super) sums: &'a mut [f32],
    pub(super) decay: &'a [f32],
}

impl Kernel for SumValues<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let count = self.scores_len / PANEL;
        let panels = self.weights.len() / self.scores_len;
        let strip = count * TILE_ROWS;
        let tiles = self.depth.div_ceil(TILE_ROWS);
        assert!(self.values.len() >= tiles * strip);
        assert!(self.panel_len >= tiles * TILE_ROWS * PANEL);
        assert!(self.sums.len() >= panels * self.panel_len && self.decay.len() >= panels * PANEL);
        let (values, decay) = (self.values.as_ptr(), self.decay.as_ptr());
        if let Some(wide) = s.wide() {
            let weights = Panels {
                start: self.weights.as_ptr(),
                stride: self.scores_len,
                count: panels,
            };
            let sums = Panels {
                start: self.sums.as_mut_ptr(),
                stride: self.panel_len,
                count: panels,
            };
            // SAFETY: all strips, weights and sums are there, as asserted.
            return unsafe { wide::sum_values(wide, count, values, tiles, weights, sums, decay) };
        }
        for panel in 0..panels {
            for tile in 0..tiles {
                // SAFETY: `tile` is inside both the values and the sums, and there are `count` weights, as asserted.
                unsafe {
                    let weights = self.weights.as_ptr().add(panel * self.scores_len);
                    let sums = self.sums.as_mut_ptr().add(panel * self.panel_len);
                    let sums = sums.add(tile * TILE_ROWS * PANEL);
                    let values = values.add(tile * strip);
                    value_tile(s, count, values, weights, sums, decay.add(panel * PANEL));
                }
            }
        }
    }
}
