//! The two small matrix products of attention: tiles of 6 rows by 16 queries that live in registers.
//!
//! 12 sums, 2 vectors of queries and a factor: one register less than there are. With 4 rows by 24 queries, which need all
//! 16, the compiler sometimes spills a sum, and that halves the speed.

use std::sync::atomic::{Ordering, compiler_fence};

use crate::simd::{Floats, LANES, Simd};

/// Vectors of queries side by side.
pub(super) const PANEL_VECTORS: usize = 2;
/// Queries of a panel: one a lane.
pub(super) const PANEL: usize = PANEL_VECTORS * LANES;
/// Rows (keys or value channels) of a tile.
pub(super) const TILE_ROWS: usize = 6;

/// One number for each query of a panel.
pub(super) type PanelRow<S> = [<S as Floats>::V; PANEL_VECTORS];

/// Reads a row of a panel.
///
/// # Safety
/// `p` must be valid for reading `PANEL` floats.
#[inline(always)]
pub(super) unsafe fn load_row<S: Simd>(s: S, p: *const f32) -> PanelRow<S> {
    // SAFETY: the caller gives `PANEL` readable floats.
    unsafe { [s.load(p), s.load(p.add(LANES))] }
}

/// Writes a row of a panel.
///
/// # Safety
/// `p` must be valid for writing `PANEL` floats.
#[inline(always)]
pub(super) unsafe fn store_row<S: Simd>(s: S, p: *mut f32, row: PanelRow<S>) {
    for (j, v) in row.into_iter().enumerate() {
        // SAFETY: the caller gives `PANEL` writable floats.
        unsafe { s.store(p.add(j * LANES), v) }
    }
}

/// Steps written out in a row, so that the loop's own work is small beside them.
const UNROLL: usize = 4;

type Tile<S, const ROWS: usize> = [PanelRow<S>; ROWS];

/// Adds left \[ROWS\]\[steps\] times right \[steps\]\[PANEL\] to the tile; `left` is strided.
///
/// # Safety
/// The pointers must be valid for that many floats.
#[inline(always)]
unsafe fn accumulate<S: Simd, const ROWS: usize>(
    s: S,
    steps: usize,
    mut left: *const f32,
    (row_stride, step_stride): (usize, usize),
    mut right: *const f32,
    tile: &mut Tile<S, ROWS>,
) {
    // SAFETY: `left` and `right` stay inside what the caller promises, or one past the end.
    unsafe {
        for _ in 0..steps / UNROLL {
            for step in 0..UNROLL {
                let left = left.add(step * step_stride);
                rank_one(s, left, row_stride, right.add(step * PANEL), tile);
            }
            left = left.add(UNROLL * step_stride);
            right = right.add(UNROLL * PANEL);
        }
        for step in 0..steps % UNROLL {
            rank_one(
                s,
                left.add(step * step_stride),
                row_stride,
                right.add(step * PANEL),
                tile,
            );
        }
    }
}

/// One step: adds the outer product of a strided column and a row.
#[inline(always)]
unsafe fn rank_one<S: Simd, const ROWS: usize>(
    s: S,
    left: *const f32,
    row_stride: usize,
    right: *const f32,
    tile: &mut Tile<S, ROWS>,
) {
    // Keeps the compiler from loading the next steps' rows early, for which there are no registers.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: the caller gives `ROWS` strided floats and a row of `PANEL`.
    unsafe {
        let row = load_row(s, right);
        for r in 0..ROWS {
            let factor = s.splat(*left.add(r * row_stride));
            for j in 0..PANEL_VECTORS {
                tile[r][j] = s.mul_add(factor, row[j], tile[r][j]);
            }
        }
    }
}

/// scores \[ROWS\]\[PANEL\] = keys \[ROWS\]\[depth\] times queries \[depth\]\[PANEL\]; raises `max` \[PANEL\] to the largest
/// score of each query.
///
/// # Safety
/// The pointers must be valid for that many floats.
#[inline(always)]
pub(super) unsafe fn score_tile<S: Simd, const ROWS: usize>(
    s: S,
    depth: usize,
    keys: *const f32,
    queries: *const f32,
    scores: *mut f32,
    max: *mut f32,
) {
    let mut tile = [[s.splat(0.0); PANEL_VECTORS]; ROWS];
    // SAFETY: exactly what the caller promises.
    unsafe {
        accumulate(s, depth, keys, (depth, 1), queries, &mut tile);
        let mut largest = load_row(s, max);
        for r in 0..ROWS {
            for j in 0..PANEL_VECTORS {
                largest[j] = s.max(tile[r][j], largest[j]);
            }
            store_row(s, scores.add(r * PANEL), tile[r]);
        }
        store_row(s, max, largest);
    }
}

/// sums \[6\]\[PANEL\] = sums * decay \[PANEL\] + the transpose of values \[keys\]\[6\] times weights \[keys\]\[PANEL\].
///
/// # Safety
/// The pointers must be valid for that many floats.
#[inline(always)]
pub(super) unsafe fn value_tile<S: Simd>(
    s: S,
    keys: usize,
    values: *const f32,
    weights: *const f32,
    sums: *mut f32,
    decay: *const f32,
) {
    // SAFETY: exactly what the caller promises.
    unsafe {
        let mut tile = [[s.splat(0.0); PANEL_VECTORS]; TILE_ROWS];
        for r in 0..TILE_ROWS {
            let row = load_row(s, sums.add(r * PANEL));
            let decay = load_row(s, decay);
            for j in 0..PANEL_VECTORS {
                tile[r][j] = s.mul(row[j], decay[j]);
            }
        }
        accumulate(s, keys, values, (1, TILE_ROWS), weights, &mut tile);
        for r in 0..TILE_ROWS {
            store_row(s, sums.add(r * PANEL), tile[r]);
        }
    }
}
