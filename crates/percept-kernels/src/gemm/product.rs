//! The product of packed groups with packed panels, finished straight into its output.

use super::finish::{activate, finish_piece, finish_sums, is_curved};
use super::pack::groups_len;
use super::tile::{accumulate, for_tile_size, store};
use super::wide_product::{MultiplyWide, panels_at_once};
use super::{TILE_COLUMNS, TILE_ROWS};
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

    /// Whether rows are maps of channels, which lie so far apart that no CPU foresees the next one.
    pub(super) fn has_distant_rows(&self) -> bool {
        matches!(self.bias_axis, BiasAxis::Rows)
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
