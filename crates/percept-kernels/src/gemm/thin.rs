//! The product of packed groups with a panel of a few columns, those that full panels leave over.
//!
//! A register tile of one vector has too few sums to keep the multipliers busy, most of its lanes would be wasted on one or
//! two columns, and a 7x7 map has 49 pixels: two panels and one column. Here the lanes are rows instead: a vector holds the
//! four rows of a group at two depths, and a thin panel holds each of its values four times, to meet them.

use super::TILE_ROWS;
use super::product::{DepthPart, Output, Piece};
use crate::simd::{LANES, Simd};

/// Most columns of a thin panel.
pub(crate) const THIN_COLUMNS: usize = LANES / 2;

/// Floats of a thin panel.
pub(crate) fn thin_panel_len(columns: usize, depth: usize) -> usize {
    depth.div_ceil(2) * columns * LANES
}

/// Packs a panel `[depth][8]` of `columns` columns as the thin panel `[depth / 2][columns][2][4]`.
#[inline(always)]
pub(crate) fn pack_thin<S: Simd>(
    s: S,
    panel: &[f32],
    columns: usize,
    depth: usize,
    thin: &mut [f32],
) {
    let pairs = panel[..depth * LANES].chunks(2 * LANES);
    for (pair, thin) in pairs.zip(thin.chunks_exact_mut(columns * LANES)) {
        let second = pair.get(LANES..).unwrap_or(&[]);
        for (column, thin) in thin.chunks_exact_mut(LANES).enumerate() {
            s.write(thin, s.splat(second.get(column).copied().unwrap_or(0.0)));
            s.write(&mut thin[..TILE_ROWS], s.splat(pair[column]));
        }
    }
}

/// Multiplies `rows` packed rows with a thin panel, as [`multiply_panel`](super::product::multiply_panel) does with a full
/// one. The bias runs along the rows.
///
/// # Safety
/// `groups` must hold `rows` packed rows of `part.depth`. The pieces, which have at most [`THIN_COLUMNS`] columns, must lie
/// in the output for all rows, and nobody else may touch these parts of it. Bias and residual must be as long as
/// [`Epilogue::check`](crate::Epilogue::check) asks.
#[inline(always)]
pub(crate) unsafe fn multiply_thin_panel<S: Simd>(
    s: S,
    groups: &[f32],
    rows: usize,
    panel: &[f32],
    part: DepthPart,
    output: &Output<'_>,
    row: usize,
    pieces: &[Piece],
) {
    let columns: usize = pieces.iter().map(|piece| piece.len).sum();
    assert!(panel.len() >= thin_panel_len(columns, part.depth));
    for done in (0..rows).step_by(TILE_ROWS) {
        let count = (rows - done).min(TILE_ROWS);
        let group = &groups[done * part.depth..][..TILE_ROWS * part.depth];
        let mut sums = [[0.0; LANES]; THIN_COLUMNS];
        match columns {
            1 => column_sums::<S, 1, 8>(s, group, panel, &mut sums),
            2 => column_sums::<S, 2, 4>(s, group, panel, &mut sums),
            3 => column_sums::<S, 3, 2>(s, group, panel, &mut sums),
            _ => column_sums::<S, 4, 2>(s, group, panel, &mut sums),
        }
        for piece in pieces {
            for j in 0..piece.len {
                let at = piece.offset + (row + done) * output.row_stride + j;
                // SAFETY: the caller promises that the piece, its bias and its residual exist.
                unsafe {
                    finish_column(
                        s,
                        &sums[piece.column + j],
                        output,
                        at,
                        row + done,
                        count,
                        part,
                    )
                };
            }
        }
    }
}

/// The sums of each column, with the lanes as rows; those of odd depths are in the upper half.
///
/// `CHAINS` sums of a column grow side by side, so that additions need not wait for each other.
#[inline(always)]
fn column_sums<S: Simd, const COLUMNS: usize, const CHAINS: usize>(
    s: S,
    group: &[f32],
    panel: &[f32],
    sums: &mut [[f32; LANES]; THIN_COLUMNS],
) {
    let mut chains = [[s.splat(0.0); COLUMNS]; CHAINS];
    let pairs = group.len() / LANES;
    assert!(panel.len() >= group.len().div_ceil(LANES) * COLUMNS * LANES);
    let (a, b) = (group.as_ptr(), panel.as_ptr());
    let mut pair = 0;
    while pair + CHAINS <= pairs {
        for chain in 0..CHAINS {
            // SAFETY: the pair lies in the group, and the panel is as deep.
            unsafe {
                let rows = s.load(a.add((pair + chain) * LANES));
                for column in 0..COLUMNS {
                    let value = s.load(b.add(((pair + chain) * COLUMNS + column) * LANES));
                    chains[chain][column] = s.mul_add(rows, value, chains[chain][column]);
                }
            }
        }
        pair += CHAINS;
    }
    for (rows, values) in group[pair * LANES..]
        .chunks(LANES)
        .zip(panel[pair * COLUMNS * LANES..].chunks_exact(COLUMNS * LANES))
    {
        for column in 0..COLUMNS {
            let value = s.read(&values[column * LANES..]);
            chains[0][column] = s.mul_add(s.read(rows), value, chains[0][column]);
        }
    }
    for column in 0..COLUMNS {
        let mut sum = chains[0][column];
        for chain in 1..CHAINS {
            sum = s.add(sum, chains[chain][column]);
        }
        sums[column] = s.to_array(sum);
    }
}

/// Finishes one column of a group: `rows` values, the first of them at `at` of the output.
#[inline(always)]
unsafe fn finish_column<S: Simd>(
    s: S,
    halves: &[f32; LANES],
    output: &Output<'_>,
    at: usize,
    row: usize,
    rows: usize,
    part: DepthPart,
) {
    let mut sums = [0.0; LANES];
    for i in 0..rows {
        sums[i] = halves[i] + halves[i + TILE_ROWS];
        let at = at + i * output.row_stride;
        // SAFETY: the caller vouches for these rows of the output.
        unsafe {
            if output.holds_sums(part) {
                sums[i] += *output.y.add(at);
            }
            sums[i] += output.residual(part).map_or(0.0, |residual| residual[at]);
            if part.last {
                sums[i] += output.epilogue.bias.map_or(0.0, |bias| bias[row + i]);
            }
        }
    }
    if part.last {
        sums = s.to_array(output.epilogue.activation.apply(s, s.vector(sums)));
    }
    for i in 0..rows {
        // SAFETY: as above.
        unsafe { *output.y.add(at + i * output.row_stride) = sums[i] };
    }
}
