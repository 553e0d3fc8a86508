//! Packing operands into the layouts that tiles read.

use super::{TILE_COLUMNS, TILE_ROWS};
use crate::simd::{LANES, Simd};

/// Width of the panel that starts at `column` of `columns`: 24, or for the last one as few whole vectors as hold it.
#[inline(always)]
pub(crate) fn panel_width(column: usize, columns: usize) -> usize {
    (columns - column).min(TILE_COLUMNS).next_multiple_of(LANES)
}

/// Floats that `columns` columns of this depth take when packed into panels.
pub(crate) fn panels_len(columns: usize, depth: usize) -> usize {
    columns.next_multiple_of(LANES) * depth
}

/// Floats that `rows` rows of this depth take when packed into groups.
pub(crate) fn groups_len(rows: usize, depth: usize) -> usize {
    rows.next_multiple_of(TILE_ROWS) * depth
}

/// Packs rows of a row-major matrix into groups `[rows / 4][depth][4]`. Missing rows of the last group stay as they are.
///
/// `source` starts at the first element taken; rows are `stride` apart.
#[inline(always)]
pub(crate) fn pack_groups<S: Simd>(
    s: S,
    source: &[f32],
    stride: usize,
    rows: usize,
    depth: usize,
    packed: &mut [f32],
) {
    for (group, packed) in packed[..groups_len(rows, depth)]
        .chunks_exact_mut(TILE_ROWS * depth.max(1))
        .enumerate()
    {
        let first = group * TILE_ROWS;
        let count = (rows - first).min(TILE_ROWS);
        let mut k = 0;
        if count == TILE_ROWS {
            let row = |i: usize| &source[(first + i) * stride..][..depth];
            let rows = [row(0), row(1), row(2), row(3)];
            while k + LANES <= depth {
                let values = [
                    s.read(&rows[0][k..]),
                    s.read(&rows[1][k..]),
                    s.read(&rows[2][k..]),
                    s.read(&rows[3][k..]),
                ];
                let target = &mut packed[k * TILE_ROWS..][..TILE_ROWS * LANES];
                // SAFETY: the target slice is 32 floats long.
                unsafe { s.store_merge4(target.as_mut_ptr(), values) };
                k += LANES;
            }
        }
        for i in 0..count {
            let row = &source[(first + i) * stride..][..depth];
            for k in k..depth {
                packed[k * TILE_ROWS + i] = row[k];
            }
        }
    }
}

/// Packs columns of a row-major `[depth][stride]` matrix into groups of 4: the transposed form of [`pack_groups`].
#[inline(always)]
pub(crate) fn pack_groups_transposed(
    source: &[f32],
    stride: usize,
    rows: usize,
    depth: usize,
    packed: &mut [f32],
) {
    for (group, packed) in packed[..groups_len(rows, depth)]
        .chunks_exact_mut(TILE_ROWS * depth.max(1))
        .enumerate()
    {
        let first = group * TILE_ROWS;
        let count = (rows - first).min(TILE_ROWS);
        for (k, target) in packed.chunks_exact_mut(TILE_ROWS).enumerate() {
            target[..count].copy_from_slice(&source[k * stride + first..][..count]);
        }
    }
}

/// Packs rows of a row-major `[columns][stride]` matrix as the columns of panels `[columns / 24][depth][24]`.
///
/// Columns past the end are zero.
#[inline(always)]
pub(crate) fn pack_panels_transposed<S: Simd>(
    s: S,
    source: &[f32],
    stride: usize,
    columns: usize,
    depth: usize,
    packed: &mut [f32],
) {
    let mut rest = &mut packed[..panels_len(columns, depth)];
    for column in (0..columns).step_by(TILE_COLUMNS) {
        let width = panel_width(column, columns);
        let (panel, tail) = rest.split_at_mut(width * depth);
        rest = tail;
        for vector in (0..width).step_by(LANES) {
            let first = column + vector;
            let count = (columns - first).min(LANES);
            let mut k = 0;
            if count == LANES {
                while k + LANES <= depth {
                    let mut block = [s.splat(0.0); LANES];
                    for lane in 0..LANES {
                        block[lane] = s.read(&source[(first + lane) * stride + k..][..LANES]);
                    }
                    let block = s.transpose8(block);
                    for step in 0..LANES {
                        s.write(
                            &mut panel[(k + step) * width + vector..][..LANES],
                            block[step],
                        );
                    }
                    k += LANES;
                }
            }
            for k in k..depth {
                let target = &mut panel[k * width + vector..][..LANES];
                for lane in 0..LANES {
                    target[lane] = if lane < count {
                        source[(first + lane) * stride + k]
                    } else {
                        0.0
                    };
                }
            }
        }
    }
}

/// Packs columns of a row-major `[depth][stride]` matrix into panels `[columns / 24][depth][24]`.
///
/// Columns past the end are zero.
#[inline(always)]
pub(crate) fn pack_panels<S: Simd>(
    s: S,
    source: &[f32],
    stride: usize,
    columns: usize,
    depth: usize,
    packed: &mut [f32],
) {
    let mut rest = &mut packed[..panels_len(columns, depth)];
    for column in (0..columns).step_by(TILE_COLUMNS) {
        let width = panel_width(column, columns);
        let count = (columns - column).min(TILE_COLUMNS);
        let (panel, tail) = rest.split_at_mut(width * depth);
        rest = tail;
        for k in 0..depth {
            let source = &source[k * stride + column..][..count];
            for vector in (0..width).step_by(LANES) {
                let target = &mut panel[k * width + vector..][..LANES];
                s.write(target, s.read(&source[vector..]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Kernel};
    use proptest::prelude::*;

    struct PackBoth<'a>(&'a [f32], &'a [f32], usize, usize);

    impl Kernel for PackBoth<'_> {
        type Output = [Vec<f32>; 4];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [Vec<f32>; 4] {
            let PackBoth(matrix, transposed, rows, depth) = self;
            let mut groups = [
                vec![0.0; groups_len(rows, depth)],
                vec![0.0; groups_len(rows, depth)],
            ];
            let mut panels = [
                vec![0.0; panels_len(rows, depth)],
                vec![0.0; panels_len(rows, depth)],
            ];
            pack_groups(s, matrix, depth, rows, depth, &mut groups[0]);
            pack_groups_transposed(transposed, rows, rows, depth, &mut groups[1]);
            pack_panels_transposed(s, matrix, depth, rows, depth, &mut panels[0]);
            pack_panels(s, transposed, rows, rows, depth, &mut panels[1]);
            let ([a, b], [c, d]) = (groups, panels);
            [a, b, c, d]
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn packed_elements_are_where_tiles_read_them(rows in 0usize..60, depth in 0usize..40) {
            let matrix: Vec<f32> = (0..rows * depth).map(|i| i as f32 + 1.0).collect();
            let transposed: Vec<f32> =
                (0..rows * depth).map(|i| matrix[i % rows * depth + i / rows]).collect();
            for isa in Isa::available() {
                let [groups, groups_t, panels, panels_t] = isa.run(PackBoth(&matrix, &transposed, rows, depth));
                prop_assert_eq!(&groups, &groups_t);
                prop_assert_eq!(&panels, &panels_t);
                for row in 0..rows {
                    let panel = row / TILE_COLUMNS * TILE_COLUMNS;
                    let width = panel_width(panel, rows);
                    for k in 0..depth {
                        let expected = matrix[row * depth + k];
                        prop_assert_eq!(groups[row / 4 * 4 * depth + k * 4 + row % 4], expected);
                        prop_assert_eq!(panels[panel * depth + k * width + row - panel], expected);
                    }
                }
            }
        }
    }
}
