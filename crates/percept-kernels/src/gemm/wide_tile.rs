//! The register tile of CPUs with AVX-512: groups of rows times one panel of B, or two, in up to three vectors of 16 floats.
//!
//! A vector may be the end of one panel and the beginning of the other, so layouts are those of every instruction set.
//! Sums go through the depth in the same order as in [`tile`](super::tile), so bits are those of AVX2 too.

use super::tile::{TILE_COLUMNS, TILE_ROWS};
use super::wide::Wide;
use crate::simd::LANES;

/// Most columns of a tile: two panels.
pub(crate) const WIDE_COLUMNS: usize = 2 * TILE_COLUMNS;
/// Most rows of a tile.
pub(crate) const WIDE_ROWS: usize = 4 * TILE_ROWS;

/// One panel of B, or two whose columns follow one another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    pub(crate) panels: [*const f32; 2],
    /// The width of each in vectors of 8 floats; a second panel of none is not there.
    pub(crate) vectors: [usize; 2],
}

impl Columns {
    /// Whether a tile takes two panels of these widths.
    pub(crate) fn fit(vectors: [usize; 2]) -> bool {
        matches!(vectors, [3, 1..=3] | [2, 2])
    }

    /// How many of `left` groups a tile takes: sums of 16 rows fill a vector and hide the latency of their additions, and
    /// those of 8 rows two or three; a rest goes group by group.
    pub(crate) fn groups(&self, left: usize) -> usize {
        let most = if self.vectors[0] + self.vectors[1] <= 2 {
            4
        } else {
            2
        };
        if left < most { 1 } else { most }
    }
}

/// What becomes of the sums of a tile: `to = max(floor, sums + add + bias)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finish {
    pub(crate) to: *mut f32,
    pub(crate) to_stride: usize,
    /// Tiles, if any, whose rows are `add_stride` apart.
    pub(crate) add: [Option<*const f32>; 2],
    pub(crate) add_stride: usize,
    pub(crate) row_bias: Option<*const f32>,
    pub(crate) column_bias: Option<*const f32>,
    pub(crate) floor: f32,
}

impl Finish {
    /// The sums as they are, in rows `stride` apart.
    pub(crate) fn store(to: *mut f32, stride: usize) -> Finish {
        Finish {
            to,
            to_stride: stride,
            add: [None; 2],
            add_stride: 0,
            row_bias: None,
            column_bias: None,
            floor: f32::NEG_INFINITY,
        }
    }
}

impl Wide {
    /// Multiplies as many groups of four rows, each `[depth][4]`, as [`Columns::groups`] says of `left`, with panels
    /// `[depth][columns]`. Meanwhile asks for as many groups from `next` on.
    ///
    /// # Safety
    /// Readable: the groups, and panels of these widths, which [`Columns::fit`] if there are two. What `finish` names must be
    /// readable, and writable at `to`, for all rows and whole vectors of 8 columns.
    #[inline(always)]
    pub(crate) unsafe fn multiply_tile(
        self,
        depth: usize,
        groups: *const f32,
        left: usize,
        columns: Columns,
        next: *const f32,
        finish: &Finish,
    ) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `self` proves the instruction set; the rest is passed on from the caller.
        unsafe {
            let many = columns.groups(left) > 1;
            let [a, b] = columns.panels;
            macro_rules! tile {
                ($groups:literal, $left:literal, $right:literal, $vectors:literal) => {
                    if many {
                        avx512::tile::<$groups, $left, $right, $vectors>(
                            depth, groups, a, b, next, finish,
                        )
                    } else {
                        avx512::tile::<1, $left, $right, $vectors>(
                            depth, groups, a, b, next, finish,
                        )
                    }
                };
            }
            match columns.vectors {
                [1, 0] => tile!(4, 1, 0, 1),
                [2, 0] => tile!(4, 2, 0, 1),
                [3, 0] => tile!(2, 3, 0, 2),
                [4, 0] => tile!(2, 4, 0, 2),
                [5, 0] => tile!(2, 5, 0, 3),
                [6, 0] => tile!(2, 6, 0, 3),
                [2, 2] => tile!(2, 2, 2, 2),
                [3, 1] => tile!(2, 3, 1, 2),
                [3, 2] => tile!(2, 3, 2, 3),
                [3, 3] => tile!(2, 3, 3, 3),
                other => unreachable!("panels of {other:?} vectors are no tile"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("there is no proof of AVX-512 on this architecture");
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{Finish, LANES, TILE_ROWS};
    use crate::simd::prefetch_read;

    /// Depth steps between two requests for lines of A: those that take one line.
    const STEPS_PER_LINE: usize = 4;

    /// The sums of some groups of rows.
    type Sums<const GROUPS: usize, const VECTORS: usize> = [[[__m512; VECTORS]; TILE_ROWS]; GROUPS];

    /// # Safety
    /// As for [`Wide::multiply_tile`](super::Wide::multiply_tile) with `GROUPS` groups and panels of `LEFT` and `RIGHT`
    /// vectors, on a CPU with AVX-512 F, DQ and VL.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) unsafe fn tile<
        const GROUPS: usize,
        const LEFT: usize,
        const RIGHT: usize,
        const VECTORS: usize,
    >(
        depth: usize,
        groups: *const f32,
        left: *const f32,
        right: *const f32,
        next: *const f32,
        finish: &Finish,
    ) {
        let mut sums: Sums<GROUPS, VECTORS> = [[[_mm512_setzero_ps(); VECTORS]; TILE_ROWS]; GROUPS];
        let whole = depth - depth % STEPS_PER_LINE;
        for first in (0..whole).step_by(STEPS_PER_LINE) {
            for group in 0..GROUPS {
                prefetch_read(next.wrapping_add((group * depth + first) * TILE_ROWS));
            }
            for step in 0..STEPS_PER_LINE {
                // SAFETY: the caller gives `depth` steps of all operands.
                unsafe {
                    let columns = load::<LEFT, RIGHT, VECTORS>(first + step, left, right);
                    rank_one(depth, first + step, groups, columns, &mut sums)
                };
            }
        }
        for step in whole..depth {
            // SAFETY: as above.
            unsafe {
                let columns = load::<LEFT, RIGHT, VECTORS>(step, left, right);
                rank_one(depth, step, groups, columns, &mut sums)
            };
        }
        let halves = LEFT + RIGHT;
        // SAFETY: the caller vouches for what is added and for where the sums go.
        unsafe {
            for from in finish.add.into_iter().flatten() {
                add_tile(&mut sums, from, finish.add_stride, halves);
            }
            if let Some(bias) = finish.row_bias {
                for group in 0..GROUPS {
                    for i in 0..TILE_ROWS {
                        let bias = _mm512_set1_ps(*bias.add(group * TILE_ROWS + i));
                        for j in 0..VECTORS {
                            sums[group][i][j] = _mm512_add_ps(sums[group][i][j], bias);
                        }
                    }
                }
            }
            if let Some(bias) = finish.column_bias {
                add_tile(&mut sums, bias, 0, halves);
            }
            let floor = _mm512_set1_ps(finish.floor);
            for group in 0..GROUPS {
                for i in 0..TILE_ROWS {
                    let row = finish.to.add((group * TILE_ROWS + i) * finish.to_stride);
                    for j in 0..VECTORS {
                        // NaN stays NaN: `max` gives its second operand then.
                        let sum = _mm512_max_ps(floor, sums[group][i][j]);
                        let to = row.add(j * 2 * LANES);
                        if 2 * j + 1 < halves {
                            _mm512_storeu_ps(to, sum);
                        } else {
                            _mm256_storeu_ps(to, _mm512_castps512_ps256(sum));
                        }
                    }
                }
            }
        }
    }

    /// Adds the tile at `from`, of `halves` half vectors in rows `stride` apart.
    ///
    /// # Safety
    /// The tile must be readable.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    unsafe fn add_tile<const GROUPS: usize, const VECTORS: usize>(
        sums: &mut Sums<GROUPS, VECTORS>,
        from: *const f32,
        stride: usize,
        halves: usize,
    ) {
        for group in 0..GROUPS {
            for i in 0..TILE_ROWS {
                for j in 0..VECTORS {
                    // SAFETY: inside the tile that the caller gives.
                    let added = unsafe {
                        let from = from.add((group * TILE_ROWS + i) * stride + j * 2 * LANES);
                        if 2 * j + 1 < halves {
                            _mm512_loadu_ps(from)
                        } else {
                            _mm512_zextps256_ps512(_mm256_loadu_ps(from))
                        }
                    };
                    sums[group][i][j] = _mm512_add_ps(sums[group][i][j], added);
                }
            }
        }
    }

    /// A row of both panels.
    ///
    /// # Safety
    /// Readable: `step` and the steps before it of both panels.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    unsafe fn load<const LEFT: usize, const RIGHT: usize, const VECTORS: usize>(
        step: usize,
        left: *const f32,
        right: *const f32,
    ) -> [__m512; VECTORS] {
        let mut columns = [_mm512_setzero_ps(); VECTORS];
        for j in 0..VECTORS {
            let (low, high) = (2 * j, 2 * j + 1);
            let half = |index: usize| {
                if index < LEFT {
                    left.wrapping_add((step * LEFT + index) * LANES)
                } else {
                    right.wrapping_add((step * RIGHT + index - LEFT) * LANES)
                }
            };
            // SAFETY: the caller gives whole rows of both panels.
            columns[j] = unsafe {
                if high < LEFT || low >= LEFT && high < LEFT + RIGHT {
                    _mm512_loadu_ps(half(low))
                } else if high < LEFT + RIGHT {
                    let end = _mm512_castps256_ps512(_mm256_loadu_ps(half(low)));
                    _mm512_insertf32x8::<1>(end, _mm256_loadu_ps(half(high)))
                } else {
                    _mm512_zextps256_ps512(_mm256_loadu_ps(half(low)))
                }
            };
        }
        columns
    }

    /// One depth step: adds the outer product of a column of A and a row of both panels.
    ///
    /// # Safety
    /// Readable: `step < depth` steps of all groups.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    unsafe fn rank_one<const GROUPS: usize, const VECTORS: usize>(
        depth: usize,
        step: usize,
        groups: *const f32,
        columns: [__m512; VECTORS],
        sums: &mut Sums<GROUPS, VECTORS>,
    ) {
        for group in 0..GROUPS {
            for i in 0..TILE_ROWS {
                // SAFETY: the caller gives 4 floats of each group for each step.
                let row = unsafe { *groups.add((group * depth + step) * TILE_ROWS + i) };
                let row = _mm512_set1_ps(row);
                for j in 0..VECTORS {
                    sums[group][i][j] = _mm512_fmadd_ps(row, columns[j], sums[group][i][j]);
                }
            }
        }
    }
}
