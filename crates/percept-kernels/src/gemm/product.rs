//! The product of packed groups with packed panels, finished straight into its output.

use super::pack::groups_len;
use super::tile::{TILE_VECTORS, accumulate, for_tile_size, store};
use super::wide_product::{MultiplyWide, panels_at_once};
use super::{TILE_COLUMNS, TILE_ROWS};
use crate::activation::Activation;
use crate::aligned::FLOATS_PER_LINE;
use crate::epilogue::Epilogue;
use crate::isa::Kernel;
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

/// Columns between two requests for a row: lines of 16 floats that begin anywhere.
const FETCH_COLUMNS: usize = TILE_COLUMNS - 1;
/// Depth whose multiplications take as long as memory.
const FETCH_DEPTH: usize = 192;

impl Output<'_> {
    /// Asks for the lines of a tile, which may lie past the end.
    #[inline(always)]
    pub(super) fn fetch(&self, start: usize, rows: usize, columns: usize) {
        for i in 0..rows {
            let at = start + i * self.row_stride;
            let mut column = 0;
            loop {
                prefetch_write(self.y.wrapping_add(at + column));
                if let Some(residual) = self.epilogue.residual {
                    prefetch_read(residual.as_ptr().wrapping_add(at + column));
                }
                if column == columns - 1 {
                    break;
                }
                column = (column + FETCH_COLUMNS).min(columns - 1);
            }
        }
    }

    /// Whether a part of the depth adds to what the output holds: earlier parts, or the residual.
    pub(super) fn holds_sums(&self, part: DepthPart) -> bool {
        !part.first || self.epilogue.residual_in_place
    }

    /// What a part of the depth adds. The first one does, so that a residual in place, where sums grow, gives the same bits.
    pub(super) fn residual(&self, part: DepthPart) -> Option<&[f32]> {
        self.epilogue.residual.filter(|_| part.first)
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

impl DepthPart {
    /// How many rows ahead to ask for the output: short sums are over before memory answers.
    pub(super) fn rows_ahead(&self) -> usize {
        TILE_ROWS * (FETCH_DEPTH / self.depth)
    }
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

/// A packed panel and where its columns go.
#[derive(Clone, Copy, Default)]
pub(crate) struct Panel<'a> {
    /// As wide as the pieces need, of the depth at hand.
    pub(crate) values: &'a [f32],
    /// Where in a bias of columns the panel begins. Panels side by side in the output are so in the bias.
    pub(crate) column: usize,
    pub(crate) pieces: &'a [Piece],
}

impl Panel<'_> {
    pub(super) fn columns(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Its width in vectors.
    pub(super) fn vectors(&self) -> usize {
        self.columns().div_ceil(LANES)
    }

    /// Whether its columns are whole vectors side by side in the output.
    pub(super) fn is_whole(&self) -> bool {
        self.pieces.len() == 1 && self.columns().is_multiple_of(LANES)
    }
}

/// Multiplies `rows` packed rows with packed panels, two at a time where the CPU has wide tiles.
///
/// `row` says where the product's first row lies in the output; row `row` of the output starts `row * row_stride` after a
/// piece's offset.
///
/// # Safety
/// `groups` must hold `rows` packed rows, and each panel must be as wide as its pieces need, all of `part.depth`. The
/// pieces must lie in the output for all rows, and nobody else may touch these parts of it. Bias and residual must be as
/// long as [`Epilogue::check`] asks.
#[inline(always)]
pub(crate) unsafe fn multiply_panels<S: Simd>(
    s: S,
    groups: &[f32],
    rows: usize,
    panels: &[Panel<'_>],
    part: DepthPart,
    output: &Output<'_>,
    row: usize,
    prefetch: &mut Prefetch,
) {
    let mut rest = panels;
    while !rest.is_empty() {
        let at_once = if s.wide().is_some() {
            panels_at_once(rest)
        } else {
            1
        };
        let (panels, after) = rest.split_at(at_once);
        rest = after;
        if let Some(wide) = s.wide() {
            s.call(MultiplyWide {
                wide,
                groups,
                rows,
                panels,
                part,
                output,
                row,
                prefetch,
            });
        } else {
            s.call(MultiplyPanel {
                groups,
                rows,
                panel: &panels[0],
                part,
                output,
                row,
                prefetch,
            });
        }
    }
}

/// The arguments of [`multiply_panels`], whose caller vouches for them, with one panel.
struct MultiplyPanel<'a> {
    groups: &'a [f32],
    rows: usize,
    panel: &'a Panel<'a>,
    part: DepthPart,
    output: &'a Output<'a>,
    row: usize,
    prefetch: &'a mut Prefetch,
}

impl Kernel for MultiplyPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let MultiplyPanel {
            groups,
            rows,
            panel,
            part,
            output,
            row,
            prefetch,
        } = self;
        debug_assert!(groups.len() >= groups_len(rows, part.depth));
        let curved = part.last && is_curved(output.epilogue.activation);
        let ahead = part.rows_ahead();
        let (pieces, b) = (panel.pieces, panel.values.as_ptr());
        let (columns, vectors) = (panel.columns(), panel.vectors());
        debug_assert!(panel.values.len() >= vectors * LANES * part.depth);
        let whole = panel.is_whole();
        let mut tile = [0.0; TILE_ROWS * TILE_COLUMNS];
        for done in (0..rows).step_by(TILE_ROWS) {
            let count = (rows - done).min(TILE_ROWS);
            let a = groups[done * part.depth..].as_ptr();
            let at = (row + done, panel.column);
            // SAFETY: the operands are as long as the caller promises, and so is the output.
            unsafe {
                let start = pieces[0].offset + (row + done) * output.row_stride;
                // Past the last row follow the next panel's first ones.
                let (turns, next_row) = ((done + ahead) / rows, (done + ahead) % rows);
                let next = pieces[0].offset + turns * TILE_COLUMNS;
                output.fetch(
                    next + (row + next_row) * output.row_stride,
                    TILE_ROWS,
                    columns,
                );
                for_tile_size!(count, vectors, |ROWS, VECTORS| {
                    let sums = accumulate::<S, ROWS, VECTORS>(s, part.depth, a, b);
                    if whole {
                        let sums = finish_sums(s, sums, output, start, at, part);
                        if curved {
                            store(s, sums, tile.as_mut_ptr(), TILE_COLUMNS, false);
                        } else {
                            store(s, sums, output.y.add(start), output.row_stride, false);
                        }
                    } else {
                        store(s, sums, tile.as_mut_ptr(), TILE_COLUMNS, false);
                    }
                });
                if !whole {
                    for piece in pieces {
                        finish_piece(s, &tile, TILE_COLUMNS, count, output, at, piece, part);
                    }
                } else if curved {
                    let y = output.y.add(start);
                    activate(s, &tile, TILE_COLUMNS, y, count, vectors, output);
                }
            }
            prefetch.step();
        }
    }
}

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
#[inline(always)]
unsafe fn finish_sums<S: Simd, const ROWS: usize, const VECTORS: usize>(
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
/// As for [`multiply_panels`], which the piece belongs to.
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
