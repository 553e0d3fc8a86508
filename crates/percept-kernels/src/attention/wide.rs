//! The steps of a block on vectors of 16 floats, one for a row of a panel: tiles of 12 rows by one or two panels.
//!
//! Sums go through channels and keys in the order of [`tiles`](super::tiles), and weights come from the same operations, so
//! bits are those of AVX2.

use super::tiles::{PANEL, TILE_ROWS};
use crate::gemm::wide::Wide;

/// Panels whose queries share what is read of the keys and values.
pub(super) const PANELS: usize = 2;
/// Rows of a tile.
pub(super) const ROWS: usize = 2 * TILE_ROWS;

/// Numbers of one or two panels, `stride` floats apart.
#[derive(Clone, Copy)]
pub(super) struct Panels<P> {
    pub(super) start: P,
    pub(super) stride: usize,
    pub(super) count: usize,
}

/// Scores \[keys\]\[PANEL\] of each panel = keys \[count\]\[depth\] times queries \[depth\]\[PANEL\]; raises `max` \[PANEL\] to
/// the largest of each query.
///
/// # Safety
/// The pointers must be valid for that many floats, that of the keys for whole tiles of them.
#[inline(always)]
pub(super) unsafe fn score(
    _: Wide,
    depth: usize,
    keys: *const f32,
    count: usize,
    queries: Panels<*const f32>,
    scores: Panels<*mut f32>,
    max: *mut f32,
) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: there is proof of the instruction set; the rest is passed on from the caller.
    unsafe {
        if queries.count == PANELS {
            avx512::score::<PANELS>(depth, keys, count, queries, scores, max)
        } else {
            avx512::score::<1>(depth, keys, count, queries, scores, max)
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("there is no proof of AVX-512 on this architecture");
}

/// Turns the `count` rows of scores of a panel into weights 2^(score - max) and adds them to `sum` \[PANEL\].
///
/// # Safety
/// The pointers must be valid for that many floats.
#[inline(always)]
pub(super) unsafe fn soften(
    _: Wide,
    count: usize,
    scores: *mut f32,
    max: *const f32,
    sum: *mut f32,
) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: there is proof of the instruction set; the rest is passed on from the caller.
    unsafe {
        avx512::soften(count, scores, max, sum)
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("there is no proof of AVX-512 on this architecture");
}

/// Sums \[channels\]\[PANEL\] of each panel = sums * decay \[PANEL\] + the transpose of values \[keys\]\[channels\], which lie in
/// `strips` strips \[keys\]\[6\], times weights \[keys\]\[PANEL\].
///
/// # Safety
/// The pointers must be valid for that many floats.
#[inline(always)]
pub(super) unsafe fn sum_values(
    _: Wide,
    keys: usize,
    values: *const f32,
    strips: usize,
    weights: Panels<*const f32>,
    sums: Panels<*mut f32>,
    decay: *const f32,
) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: there is proof of the instruction set; the rest is passed on from the caller.
    unsafe {
        if weights.count == PANELS {
            avx512::sum_values::<PANELS>(keys, values, strips, weights, sums, decay)
        } else {
            avx512::sum_values::<1>(keys, values, strips, weights, sums, decay)
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("there is no proof of AVX-512 on this architecture");
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{PANEL, Panels, ROWS, TILE_ROWS};
    use crate::math::EXP2_SLOPE;

    /// Rows whose addresses are a register and once or twice another.
    const ROWS_PER_BASE: usize = 3;

    type Tile<const ROWS: usize, const PANELS: usize> = [[__m512; PANELS]; ROWS];

    /// # Safety
    /// As for [`score`](super::score), of `PANELS` panels, on a CPU with AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn score<const PANELS: usize>(
        depth: usize,
        keys: *const f32,
        count: usize,
        queries: Panels<*const f32>,
        scores: Panels<*mut f32>,
        max: *mut f32,
    ) {
        let mut key = 0;
        while key < count {
            let left = count - key;
            // SAFETY: these keys and scores are inside what the caller gives.
            unsafe {
                let keys = keys.add(key * depth);
                let to = scores.start.add(key * PANEL);
                let scores = Panels {
                    start: to,
                    ..scores
                };
                if left > TILE_ROWS {
                    score_tile::<ROWS, PANELS>(depth, keys, left, queries, scores, max);
                    key += ROWS;
                } else {
                    score_tile::<TILE_ROWS, PANELS>(depth, keys, left, queries, scores, max);
                    key += TILE_ROWS;
                }
            }
        }
    }

    /// Scores of `COUNT` keys, of which the first `left` count.
    ///
    /// # Safety
    /// As for [`score`].
    #[target_feature(enable = "avx512f")]
    unsafe fn score_tile<const COUNT: usize, const PANELS: usize>(
        depth: usize,
        keys: *const f32,
        left: usize,
        queries: Panels<*const f32>,
        scores: Panels<*mut f32>,
        max: *mut f32,
    ) {
        let mut tile: Tile<COUNT, PANELS> = [[_mm512_setzero_ps(); PANELS]; COUNT];
        // SAFETY: the caller gives `COUNT` keys and all queries of the panels.
        unsafe {
            for channel in 0..depth {
                let right = queries.start.add(channel * PANEL);
                rank_one(keys.add(channel), depth, right, queries.stride, &mut tile);
            }
            for panel in 0..PANELS {
                let max = max.add(panel * PANEL);
                let mut largest = _mm512_loadu_ps(max);
                for row in 0..COUNT {
                    if row < left {
                        largest = _mm512_max_ps(tile[row][panel], largest);
                        let to = scores.start.add(panel * scores.stride + row * PANEL);
                        _mm512_storeu_ps(to, tile[row][panel]);
                    }
                }
                _mm512_storeu_ps(max, largest);
            }
        }
    }

    /// # Safety
    /// As for [`soften`](super::soften), on a CPU with AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn soften(count: usize, scores: *mut f32, max: *const f32, sum: *mut f32) {
        // SAFETY: the caller gives `count` rows of scores, and a row of the others.
        unsafe {
            let (max, mut total) = (_mm512_loadu_ps(max), _mm512_loadu_ps(sum));
            for row in 0..count {
                let score = scores.add(row * PANEL);
                let weight = exp2_below_128(_mm512_sub_ps(_mm512_loadu_ps(score), max));
                total = _mm512_add_ps(total, weight);
                _mm512_storeu_ps(score, weight);
            }
            _mm512_storeu_ps(sum, total);
        }
    }

    /// [`exp2_below_128`](crate::math::exp2_below_128) of 16 floats.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn exp2_below_128(x: __m512) -> __m512 {
        let x = _mm512_max_ps(_mm512_set1_ps(-127.0), x);
        let whole = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
        let part = _mm512_sub_ps(x, whole);
        let mut slope = _mm512_set1_ps(EXP2_SLOPE[EXP2_SLOPE.len() - 1]);
        for i in (0..EXP2_SLOPE.len() - 1).rev() {
            slope = _mm512_fmadd_ps(slope, part, _mm512_set1_ps(EXP2_SLOPE[i]));
        }
        let biased = _mm512_add_epi32(_mm512_cvttps_epi32(whole), _mm512_set1_epi32(127));
        let power = _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased));
        _mm512_mul_ps(_mm512_fmadd_ps(part, slope, _mm512_set1_ps(1.0)), power)
    }

    /// # Safety
    /// As for [`sum_values`](super::sum_values), of `PANELS` panels, on a CPU with AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn sum_values<const PANELS: usize>(
        keys: usize,
        values: *const f32,
        strips: usize,
        weights: Panels<*const f32>,
        sums: Panels<*mut f32>,
        decay: *const f32,
    ) {
        let mut strip = 0;
        while strip < strips {
            // SAFETY: these strips and their sums are inside what the caller gives.
            unsafe {
                let values = values.add(strip * keys * TILE_ROWS);
                let to = sums.start.add(strip * TILE_ROWS * PANEL);
                let sums = Panels { start: to, ..sums };
                if strips - strip > 1 {
                    value_tile::<ROWS, PANELS>(keys, values, weights, sums, decay);
                } else {
                    value_tile::<TILE_ROWS, PANELS>(keys, values, weights, sums, decay);
                }
            }
            strip += ROWS / TILE_ROWS;
        }
    }

    /// Sums of `COUNT` channels.
    ///
    /// # Safety
    /// As for [`sum_values`].
    #[target_feature(enable = "avx512f")]
    unsafe fn value_tile<const COUNT: usize, const PANELS: usize>(
        keys: usize,
        values: *const f32,
        weights: Panels<*const f32>,
        sums: Panels<*mut f32>,
        decay: *const f32,
    ) {
        let mut tile: Tile<COUNT, PANELS> = [[_mm512_setzero_ps(); PANELS]; COUNT];
        // SAFETY: the caller gives `COUNT / 6` strips of values, their sums, and all weights of the panels.
        unsafe {
            let place =
                |row: usize, panel: usize| sums.start.add(panel * sums.stride + row * PANEL);
            for panel in 0..PANELS {
                let decay = _mm512_loadu_ps(decay.add(panel * PANEL));
                for row in 0..COUNT {
                    tile[row][panel] = _mm512_mul_ps(_mm512_loadu_ps(place(row, panel)), decay);
                }
            }
            for key in 0..keys {
                let right = weights.start.add(key * PANEL);
                let mut row = [_mm512_setzero_ps(); PANELS];
                for panel in 0..PANELS {
                    row[panel] = _mm512_loadu_ps(right.add(panel * weights.stride));
                }
                for i in 0..COUNT {
                    let strip = values.add(i / TILE_ROWS * keys * TILE_ROWS);
                    let factor = _mm512_set1_ps(*strip.add(key * TILE_ROWS + i % TILE_ROWS));
                    for panel in 0..PANELS {
                        tile[i][panel] = _mm512_fmadd_ps(factor, row[panel], tile[i][panel]);
                    }
                }
            }
            for panel in 0..PANELS {
                for row in 0..COUNT {
                    _mm512_storeu_ps(place(row, panel), tile[row][panel]);
                }
            }
        }
    }

    /// Adds the outer product of a column, whose numbers are `distance` apart, and a row of each panel.
    ///
    /// # Safety
    /// Readable: `COUNT` numbers at `left`, `PANELS` rows at `right`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn rank_one<const COUNT: usize, const PANELS: usize>(
        left: *const f32,
        distance: usize,
        right: *const f32,
        stride: usize,
        tile: &mut Tile<COUNT, PANELS>,
    ) {
        // SAFETY: passed on from the caller.
        unsafe {
            let mut row = [_mm512_setzero_ps(); PANELS];
            for panel in 0..PANELS {
                row[panel] = _mm512_loadu_ps(right.add(panel * stride));
            }
            for first in 0..COUNT / ROWS_PER_BASE {
                let base = left.add(first * ROWS_PER_BASE * distance);
                for i in 0..ROWS_PER_BASE {
                    let factor = _mm512_set1_ps(*base.add(i * distance));
                    for panel in 0..PANELS {
                        let sum = &mut tile[first * ROWS_PER_BASE + i][panel];
                        *sum = _mm512_fmadd_ps(factor, row[panel], *sum);
                    }
                }
            }
        }
    }
}
