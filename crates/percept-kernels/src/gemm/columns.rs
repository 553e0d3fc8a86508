//! A product with panels that lie one behind the other, as packing leaves them.

use std::ops::Range;

use super::pack::panel_width;
use super::product::{DepthPart, Output, Panel, Piece, Prefetch, multiply_panels};
use super::{TILE_COLUMNS, TILE_ROWS};
use crate::simd::Simd;

/// Panels multiplied by one call: as many as the widest tile takes.
const AT_ONCE: usize = 2;

/// Packed panels, of which a part of the depth is multiplied.
#[derive(Clone, Copy)]
pub(crate) struct PackedPanels<'a> {
    pub(crate) values: &'a [f32],
    /// Columns of all panels.
    pub(crate) columns: usize,
    /// What the panels were packed to.
    pub(crate) depth: usize,
    /// Where the part begins.
    pub(crate) start: usize,
    /// Whether panels come from memory, so that the next ones are asked for while some are multiplied.
    pub(crate) distant: bool,
}

impl<'a> PackedPanels<'a> {
    fn from(&self, column: usize) -> &'a [f32] {
        &self.values[column * self.depth + self.start * panel_width(column, self.columns)..]
    }

    /// What to ask for while the `count` panels from `column` on are multiplied with `rows` rows.
    fn following(&self, column: usize, count: usize, rows: usize, part: DepthPart) -> Prefetch {
        if !self.distant {
            return Prefetch::none();
        }
        let stride = TILE_COLUMNS * self.depth;
        let start = self.from(column).as_ptr().wrapping_add(count * stride);
        let tiles = count * rows.div_ceil(TILE_ROWS);
        Prefetch::new(start, TILE_COLUMNS * part.depth, stride, count, tiles)
    }
}

/// Multiplies `rows` packed rows with the panels of `columns`, which begin with a panel.
///
/// Row `row` and the first of all columns lie in the output at `offset + row * row_stride`, and at `bias` in a bias of
/// columns.
///
/// # Safety
/// `groups` must hold `rows` packed rows of `part.depth`, and nobody else may touch these rows and columns of the output.
/// Bias and residual must be as long as [`Epilogue::check`](crate::epilogue::Epilogue::check) asks.
#[inline(always)]
pub(crate) unsafe fn multiply_columns<S: Simd>(
    s: S,
    groups: &[f32],
    rows: usize,
    panels: &PackedPanels<'_>,
    columns: Range<usize>,
    part: DepthPart,
    output: &Output<'_>,
    row: usize,
    (offset, bias): (usize, usize),
) {
    let mut column = columns.start;
    while column < columns.end {
        let count = (columns.end - column).div_ceil(TILE_COLUMNS).min(AT_ONCE);
        let mut pieces = [Piece::default(); AT_ONCE];
        for i in 0..count {
            let first = column + i * TILE_COLUMNS;
            pieces[i] = Piece {
                column: 0,
                len: (panels.columns - first).min(TILE_COLUMNS),
                offset: offset + first,
            };
        }
        let mut list = [Panel::default(); AT_ONCE];
        for i in 0..count {
            let first = column + i * TILE_COLUMNS;
            list[i] = Panel {
                values: panels.from(first),
                column: bias + first,
                pieces: &pieces[i..=i],
            };
        }
        // CPUs with AVX-512 fetch panels ahead by themselves: asking costs more than it gains.
        let mut prefetch = match s.wide() {
            Some(_) => Prefetch::none(),
            None => panels.following(column, count, rows, part),
        };
        // SAFETY: passed on from the caller; `from` gives whole panels.
        unsafe {
            multiply_panels(
                s,
                groups,
                rows,
                &list[..count],
                part,
                output,
                row,
                &mut prefetch,
            )
        };
        column += count * TILE_COLUMNS;
    }
}
