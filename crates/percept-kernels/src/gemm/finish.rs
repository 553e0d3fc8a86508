//! What happens to the sums of a tile on their way to the output.

use super::product::{BiasAxis, DepthPart, Output, Piece};
use super::tile::TILE_VECTORS;
use crate::activation::Activation;
use crate::simd::{LANES, Simd};

/// Whether an activation takes more than a comparison.
pub(super) fn is_curved(activation: Activation) -> bool {
    !matches!(activation, Activation::Identity | Activation::Relu)
}

/// Applies the output's curved activation to a tile on its way there.
///
/// A loop of its own: in every tile size it would be most of the code, and together with the other steps there would be
/// too few vectors in flight at a time.
///
/// # Safety
/// `y` must be valid for writing `rows` rows of as many vectors, and the tile as long.
#[inline(always)]
pub(super) unsafe fn activate<S: Simd>(
    s: S,
    tile: &[f32],
    tile_stride: usize,
    y: *mut f32,
    rows: usize,
    vectors: usize,
    output: &Output<'_>,
) {
    for i in 0..rows {
        for j in (0..vectors).step_by(TILE_VECTORS) {
            let from = tile[i * tile_stride + j * LANES..].as_ptr();
            // SAFETY: as the caller promises.
            unsafe {
                let (to, count) = (y.add(i * output.row_stride + j * LANES), vectors - j);
                // Spelled out, so that the loops over the common ones have no match inside.
                match output.epilogue.activation {
                    Activation::Silu => activate_up_to_3(s, from, to, count, Activation::Silu),
                    Activation::Gelu => activate_up_to_3(s, from, to, count, Activation::Gelu),
                    other => activate_up_to_3(s, from, to, count, other),
                }
            }
        }
    }
}

/// Applies an activation to the first three of `count` vectors side by side, or to all.
#[inline(always)]
unsafe fn activate_up_to_3<S: Simd>(
    s: S,
    from: *const f32,
    to: *mut f32,
    count: usize,
    activation: Activation,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        match count {
            1 => activate_vectors::<S, 1>(s, from, to, activation),
            2 => activate_vectors::<S, 2>(s, from, to, activation),
            _ => activate_vectors::<S, 3>(s, from, to, activation),
        }
    }
}

/// Applies an activation to `N` vectors side by side.
#[inline(always)]
unsafe fn activate_vectors<S: Simd, const N: usize>(
    s: S,
    from: *const f32,
    to: *mut f32,
    activation: Activation,
) {
    // SAFETY: the caller gives N vectors to read and to write.
    unsafe {
        let mut values = [s.splat(0.0); N];
        for j in 0..N {
            values[j] = s.load(from.add(j * LANES));
        }
        for j in 0..N {
            s.store(to.add(j * LANES), activation.apply(s, values[j]));
        }
    }
}

/// Everything that happens to the sums of a tile of whole vectors, but for curved activations.
///
/// One short loop a step, which the compiler unrolls, or else the sums would go through memory.
///
/// # Safety
/// As for [`multiply_panels`](super::product::multiply_panels), whose output the tile belongs to.
#[inline(always)]
pub(super) unsafe fn finish_sums<S: Simd, const ROWS: usize, const VECTORS: usize>(
    s: S,
    mut sums: [[S::V; VECTORS]; ROWS],
    output: &Output<'_>,
    start: usize,
    (row, column): (usize, usize),
    part: DepthPart,
) -> [[S::V; VECTORS]; ROWS] {
    let stride = output.row_stride;
    // SAFETY: the caller of `multiply_panels` promises that these parts of the output, the bias and the residual exist.
    unsafe {
        if output.holds_sums(part) {
            add_tile(s, &mut sums, output.y.add(start), stride);
        }
        if let Some(residual) = output.residual(part) {
            add_tile(s, &mut sums, residual.as_ptr().add(start), stride);
        }
        if !part.last {
            return sums;
        }
        if let Some(bias) = output.epilogue.bias {
            match output.bias_axis {
                BiasAxis::Rows => {
                    for i in 0..ROWS {
                        let bias = s.splat(*bias.get_unchecked(row + i));
                        for j in 0..VECTORS {
                            sums[i][j] = s.add(sums[i][j], bias);
                        }
                    }
                }
                BiasAxis::Columns => add_tile(s, &mut sums, bias.as_ptr().add(column), 0),
            }
        }
        if output.epilogue.activation == Activation::Relu {
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    sums[i][j] = Activation::Relu.apply(s, sums[i][j]);
                }
            }
        }
    }
    sums
}

/// Adds the values at `from`, in rows `stride` apart.
#[inline(always)]
unsafe fn add_tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
    s: S,
    sums: &mut [[S::V; VECTORS]; ROWS],
    from: *const f32,
    stride: usize,
) {
    for i in 0..ROWS {
        for j in 0..VECTORS {
            // SAFETY: the caller gives a tile of readable floats.
            sums[i][j] = s.add(sums[i][j], unsafe {
                s.load(from.add(i * stride + j * LANES))
            });
        }
    }
}

/// Finishes the columns of one piece from a stored tile.
///
/// # Safety
/// As for [`multiply_panels`](super::product::multiply_panels), whose output the piece belongs to.
#[inline(always)]
pub(super) unsafe fn finish_piece<S: Simd>(
    s: S,
    tile: &[f32],
    tile_stride: usize,
    rows: usize,
    output: &Output<'_>,
    (row, column): (usize, usize),
    piece: &Piece,
    part: DepthPart,
) {
    for i in 0..rows {
        for j in (0..piece.len).step_by(LANES) {
            let n = (piece.len - j).min(LANES);
            let tile_column = piece.column + j;
            let at = piece.offset + (row + i) * output.row_stride + j;
            // SAFETY: the caller of `multiply_panels` promises that the piece, its bias and its residual exist; no more
            // than their `n` columns are touched.
            unsafe {
                let y = output.y.add(at);
                let mut sum = s.load_first(tile[i * tile_stride + tile_column..].as_ptr(), n);
                if output.holds_sums(part) {
                    sum = s.add(sum, s.load_first(y, n));
                }
                if let Some(residual) = output.residual(part) {
                    sum = s.add(sum, s.load_first(residual[at..].as_ptr(), n));
                }
                if part.last {
                    if let Some(bias) = output.epilogue.bias {
                        let bias = match output.bias_axis {
                            BiasAxis::Rows => s.splat(bias[row + i]),
                            BiasAxis::Columns => {
                                s.load_first(bias[column + tile_column..].as_ptr(), n)
                            }
                        };
                        sum = s.add(sum, bias);
                    }
                    sum = output.epilogue.activation.apply(s, sum);
                }
                s.store_first(y, n, sum);
            }
        }
    }
}
