//! The product of packed groups with one packed panel, finished straight into its output.

use super::pack::groups_len;
use super::tile::{accumulate, for_tile_size, store};
use super::{TILE_COLUMNS, TILE_ROWS};
use crate::activation::Activation;
use crate::aligned::FLOATS_PER_LINE;
use crate::epilogue::Epilogue;
use crate::simd::{LANES, Simd, prefetch_read, prefetch_read_l2, prefetch_write};

/// Which axis of a product the bias runs along.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BiasAxis {
    Rows,
    Columns,
}

/// Where the results of a product go and what happens to them on the way.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a> {
    /// The output that offsets count from.
    pub(crate) y: *mut f32,
    /// Distance between rows of the output.
    pub(crate) row_stride: usize,
    pub(crate) epilogue: Epilogue<'a>,
    pub(crate) bias_axis: BiasAxis,
}

/// Depth whose multiplications take as long as memory.
const FETCH_DEPTH: usize = 192;

impl Output<'_> {
    /// Asks for the lines of a tile, which may lie past the end.
    #[inline(always)]
    fn fetch(&self, start: usize, columns: usize) {
        for i in 0..TILE_ROWS {
            let at = start + i * self.row_stride;
            for column in [0, columns - 1] {
                prefetch_write(self.y.wrapping_add(at + column));
                if let Some(residual) = self.epilogue.residual {
                    prefetch_read(residual.as_ptr().wrapping_add(at + column));
                }
            }
        }
    }
}

// SAFETY: `y` stands for a slice that parallel blocks write disjoint parts of.
unsafe impl Sync for Output<'_> {}

/// A run of a panel's columns that lie side by side in the output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece {
    /// First column, within the panel.
    pub(crate) column: usize,
    /// Columns.
    pub(crate) len: usize,
    /// Offset in the output of the first column in row 0.
    pub(crate) offset: usize,
}

/// A part of the depth: the first starts the sums in the output, the last finishes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DepthPart {
    pub(crate) depth: usize,
    pub(crate) first: bool,
    pub(crate) last: bool,
}

/// Cache lines to ask for while the multiplications run: rows of lines, a few after each tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefetch {
    row: *const f32,
    stride: usize,
    rows_left: usize,
    lines_per_row: usize,
    line: usize,
    lines_per_tile: usize,
}

impl Prefetch {
    /// Nothing to fetch.
    pub(crate) fn none() -> Prefetch {
        Prefetch::new(std::ptr::null(), 0, 0, 0, 1)
    }

    /// `rows` rows of `len` floats, `stride` apart, spread over `tiles` tiles.
    pub(crate) fn new(
        start: *const f32,
        len: usize,
        stride: usize,
        rows: usize,
        tiles: usize,
    ) -> Prefetch {
        // An unaligned row can touch one line more.
        let lines_per_row = len.div_ceil(FLOATS_PER_LINE) + usize::from(rows > 1);
        let lines_per_tile = (lines_per_row * rows).div_ceil(tiles.max(1));
        Prefetch {
            row: start,
            stride,
            rows_left: rows,
            lines_per_row,
            line: 0,
            lines_per_tile,
        }
    }

    #[inline(always)]
    pub(crate) fn step(&mut self) {
        for _ in 0..self.lines_per_tile {
            if self.rows_left == 0 {
                return;
            }
            prefetch_read_l2(self.row.wrapping_add(self.line * FLOATS_PER_LINE));
            self.line += 1;
            if self.line == self.lines_per_row {
                self.line = 0;
                self.rows_left -= 1;
                self.row = self.row.wrapping_add(self.stride);
            }
        }
    }
}

/// Multiplies `rows` packed rows with one packed panel.
///
/// `row` and `column` say where the product's first row and the panel's first column lie in the output, for the bias;
/// row `row` of the output starts `row * row_stride` after a piece's offset.
///
/// # Safety
/// `groups` must hold `rows` packed rows and `panel` one panel as wide as its pieces need, both of `part.depth`. The
/// pieces must lie in the output for all rows, and nobody else may touch these parts of it. Bias and residual must be as
/// long as [`Epilogue::check`] asks.
#[inline(always)]
pub(crate) unsafe fn multiply_panel<S: Simd>(
    s: S,
    groups: &[f32],
    rows: usize,
    panel: &[f32],
    part: DepthPart,
    output: &Output<'_>,
    (row, column): (usize, usize),
    pieces: &[Piece],
    prefetch: &mut Prefetch,
) {
    let columns: usize = pieces.iter().map(|piece| piece.len).sum();
    let vectors = columns.div_ceil(LANES);
    debug_assert!(
        groups.len() >= groups_len(rows, part.depth) && panel.len() >= vectors * LANES * part.depth
    );
    let whole = pieces.len() == 1 && columns == vectors * LANES;
    // Short sums are over before memory answers: then ask for later tiles.
    let ahead = TILE_ROWS * (FETCH_DEPTH / part.depth);
    let mut tile = [0.0; TILE_ROWS * TILE_COLUMNS];
    let mut done = 0;
    while done < rows {
        let count = (rows - done).min(TILE_ROWS);
        let (a, b) = (groups[done * part.depth..].as_ptr(), panel.as_ptr());
        let at = (row + done, column);
        // SAFETY: the operands are as long as the caller promises, and so is the output.
        unsafe {
            let start = pieces[0].offset + (row + done) * output.row_stride;
            output.fetch(start + ahead * output.row_stride, columns);
            for_tile_size!(count, vectors, |ROWS, VECTORS| {
                let sums = accumulate::<S, ROWS, VECTORS>(s, part.depth, a, b);
                if whole {
                    finish_tile(s, sums, output, start, at, part);
                } else {
                    store(s, sums, tile.as_mut_ptr(), TILE_COLUMNS, false);
                }
            });
            if !whole {
                for piece in pieces {
                    finish_piece(s, &tile, count, output, at, piece, part);
                }
            } else if part.last {
                activate(s, output, start, count, columns);
            }
        }
        prefetch.step();
        done += count;
    }
}

/// What a step of the epilogue needs for one tile, without the curved activations.
#[inline(always)]
fn floor_of(activation: Activation) -> f32 {
    if activation == Activation::Relu {
        0.0
    } else {
        f32::NEG_INFINITY
    }
}

fn is_curved(activation: Activation) -> bool {
    !matches!(activation, Activation::Identity | Activation::Relu)
}

/// Finishes a tile of whole vectors from its registers, but for curved activations.
#[inline(always)]
unsafe fn finish_tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
    s: S,
    sums: [[S::V; VECTORS]; ROWS],
    output: &Output<'_>,
    start: usize,
    (row, column): (usize, usize),
    part: DepthPart,
) {
    // SAFETY: the caller of `multiply_panel` promises that these parts of the output, the bias and the residual exist.
    unsafe {
        if !part.last {
            return store(s, sums, output.y.add(start), output.row_stride, !part.first);
        }
        let floor = s.splat(floor_of(output.epilogue.activation));
        for i in 0..ROWS {
            for j in 0..VECTORS {
                let at = start + i * output.row_stride + j * LANES;
                let mut sum = sums[i][j];
                if !part.first {
                    sum = s.add(sum, s.load(output.y.add(at)));
                }
                if let Some(bias) = output.epilogue.bias {
                    let bias = match output.bias_axis {
                        BiasAxis::Rows => s.splat(*bias.get_unchecked(row + i)),
                        BiasAxis::Columns => s.load(bias.as_ptr().add(column + j * LANES)),
                    };
                    sum = s.add(sum, bias);
                }
                if let Some(residual) = output.epilogue.residual {
                    sum = s.add(sum, s.load(residual.as_ptr().add(at)));
                }
                s.store(output.y.add(at), s.max(floor, sum));
            }
        }
    }
}

/// Applies a curved activation to a finished tile. A loop of its own, because unrolled into every tile size it would be
/// most of the code.
#[inline(always)]
unsafe fn activate<S: Simd>(s: S, output: &Output<'_>, start: usize, rows: usize, columns: usize) {
    let activation = output.epilogue.activation;
    if !is_curved(activation) {
        return;
    }
    for i in 0..rows {
        for j in (0..columns).step_by(LANES) {
            // SAFETY: the tile lies in the output, by the contract of `multiply_panel`.
            unsafe {
                let y = output.y.add(start + i * output.row_stride + j);
                s.store(y, activation.apply(s, s.load(y)));
            }
        }
    }
}

/// Finishes the columns of one piece from a stored tile.
#[inline(always)]
unsafe fn finish_piece<S: Simd>(
    s: S,
    tile: &[f32],
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
            // SAFETY: the caller of `multiply_panel` promises that the piece, its bias and its residual exist; no more
            // than their `n` columns are touched.
            unsafe {
                let y = output.y.add(at);
                let mut sum = s.load_first(tile[i * TILE_COLUMNS + tile_column..].as_ptr(), n);
                if !part.first {
                    sum = s.add(sum, s.load_first(y, n));
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
                    if let Some(residual) = output.epilogue.residual {
                        sum = s.add(sum, s.load_first(residual[at..].as_ptr(), n));
                    }
                    sum = output.epilogue.activation.apply(s, sum);
                }
                s.store_first(y, n, sum);
            }
        }
    }
}
