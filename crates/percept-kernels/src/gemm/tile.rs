//! The register tile: 4 rows times up to 3 vectors of columns, accumulated over the depth.
//!
//! 12 accumulators hide the latency of the multiply-adds; 3 vectors of B and one broadcast of A fill the 16 registers.

use crate::simd::{LANES, Simd, prefetch_read};

/// Rows of a tile, and of a packed group of A.
pub(crate) const TILE_ROWS: usize = 4;
/// Vectors of columns of a tile.
pub(crate) const TILE_VECTORS: usize = 3;
/// Columns of a tile, and of a packed panel of B.
pub(crate) const TILE_COLUMNS: usize = TILE_VECTORS * LANES;

/// Depth steps written out in a row, so that the loop's own work is small beside them.
const UNROLL: usize = 4;

/// `A * B` for one tile: `a` is `[depth][4]`, of which the first `ROWS` rows count; `b` is `[depth][8 * VECTORS]`.
///
/// # Safety
/// `a` must be valid for reading `4 * depth` floats and `b` for `8 * VECTORS * depth`.
#[inline(always)]
pub(crate) unsafe fn accumulate<S: Simd, const ROWS: usize, const VECTORS: usize>(
    s: S,
    depth: usize,
    a: *const f32,
    b: *const f32,
) -> [[S::V; VECTORS]; ROWS] {
    // SAFETY: passed on from the caller.
    unsafe { accumulate_fetching::<S, ROWS, VECTORS, 0>(s, depth, a, b) }
}

/// [`accumulate`] for an A that comes from memory: asks for what follows it, `AHEAD` floats on.
///
/// # Safety
/// As for [`accumulate`].
#[inline(always)]
pub(crate) unsafe fn accumulate_fetching<
    S: Simd,
    const ROWS: usize,
    const VECTORS: usize,
    const AHEAD: usize,
>(
    s: S,
    depth: usize,
    mut a: *const f32,
    mut b: *const f32,
) -> [[S::V; VECTORS]; ROWS] {
    let mut sums = [[s.splat(0.0); VECTORS]; ROWS];
    for _ in 0..depth / UNROLL {
        // The steps written out take one cache line of A.
        if AHEAD > 0 {
            prefetch_read(a.wrapping_add(AHEAD));
        }
        for step in 0..UNROLL {
            // SAFETY: the caller gives whole rows of `depth` steps.
            unsafe {
                rank_one(
                    s,
                    a.add(step * TILE_ROWS),
                    b.add(step * VECTORS * LANES),
                    &mut sums,
                )
            };
        }
        // SAFETY: at most one past the end.
        unsafe {
            a = a.add(UNROLL * TILE_ROWS);
            b = b.add(UNROLL * VECTORS * LANES);
        }
    }
    for step in 0..depth % UNROLL {
        // SAFETY: as above.
        unsafe {
            rank_one(
                s,
                a.add(step * TILE_ROWS),
                b.add(step * VECTORS * LANES),
                &mut sums,
            )
        };
    }
    sums
}

/// One depth step: adds the outer product of a column of A and a row of B.
#[inline(always)]
unsafe fn rank_one<S: Simd, const ROWS: usize, const VECTORS: usize>(
    s: S,
    a: *const f32,
    b: *const f32,
    sums: &mut [[S::V; VECTORS]; ROWS],
) {
    let mut columns = [s.splat(0.0); VECTORS];
    for j in 0..VECTORS {
        // SAFETY: the caller gives 8 * VECTORS floats at `b`.
        columns[j] = unsafe { s.load(b.add(j * LANES)) };
    }
    for i in 0..ROWS {
        // SAFETY: the caller gives 4 floats at `a`.
        let row = s.splat(unsafe { *a.add(i) });
        for j in 0..VECTORS {
            // Settled, or else the compiler loads the next row and step early: no register is left for them, and a
            // spilled sum halves the speed.
            sums[i][j] = s.settle(s.mul_add(row, columns[j], sums[i][j]));
        }
    }
}

/// Adds or writes a tile to a row-major matrix, without an epilogue.
///
/// # Safety
/// `c` must be valid for writing (and, when adding, reading) `ROWS` rows of `8 * VECTORS` floats, `stride` apart.
#[inline(always)]
pub(crate) unsafe fn store<S: Simd, const ROWS: usize, const VECTORS: usize>(
    s: S,
    sums: [[S::V; VECTORS]; ROWS],
    c: *mut f32,
    stride: usize,
    add: bool,
) {
    for i in 0..ROWS {
        for j in 0..VECTORS {
            // SAFETY: inside the tile that the caller gives.
            unsafe {
                let p = c.add(i * stride + j * LANES);
                let sum = if add {
                    s.add(sums[i][j], s.load(p))
                } else {
                    sums[i][j]
                };
                s.store(p, sum);
            }
        }
    }
}

/// Expands to `$body` with the constants `$rows` and `$vectors` bound to the run-time tile size.
///
/// `$rows` is 1..=4 and `$vectors` 1..=3; larger values count as the largest.
macro_rules! for_tile_size {
    ($rows_value:expr, $vectors_value:expr, |$rows:ident, $vectors:ident| $body:expr) => {{
        macro_rules! with {
            ($r:literal, $v:literal) => {{
                const $rows: usize = $r;
                const $vectors: usize = $v;
                $body
            }};
        }
        match ($rows_value, $vectors_value) {
            (1, 1) => with!(1, 1),
            (2, 1) => with!(2, 1),
            (3, 1) => with!(3, 1),
            (_, 1) => with!(4, 1),
            (1, 2) => with!(1, 2),
            (2, 2) => with!(2, 2),
            (3, 2) => with!(3, 2),
            (_, 2) => with!(4, 2),
            (1, _) => with!(1, 3),
            (2, _) => with!(2, 3),
            (3, _) => with!(3, 3),
            (_, _) => with!(4, 3),
        }
    }};
}
pub(crate) use for_tile_size;
