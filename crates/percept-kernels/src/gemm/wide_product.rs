//! The product of packed groups with one packed panel, or two, on vectors of 16 floats.

use super::finish::{activate, finish_piece, is_curved};
use super::product::{BiasAxis, DepthPart, Output, Panel, Prefetch};
use super::wide::Wide;
use super::wide_tile::{Columns, Finish, WIDE_COLUMNS, WIDE_ROWS};
use super::{TILE_COLUMNS, TILE_ROWS};
use crate::activation::Activation;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// How many panels to multiply together: two, unless their columns would be whole vectors side by side in the output, but for
/// the gap between both.
pub(super) fn panels_at_once(panels: &[Panel<'_>]) -> usize {
    let [first, second, ..] = panels else {
        return 1;
    };
    let fit = Columns::fit([first.vectors(), second.vectors()]);
    let apart = first.is_whole() && second.is_whole() && !are_whole(&panels[..2]);
    if fit && !apart { 2 } else { 1 }
}

/// Whether the columns of one or two panels are whole vectors side by side in the output.
fn are_whole(panels: &[Panel<'_>]) -> bool {
    let follow = |pair: &[Panel<'_>]| {
        pair[1].pieces[0].offset == pair[0].pieces[0].offset + pair[0].columns()
    };
    panels.iter().all(Panel::is_whole) && panels.windows(2).all(follow)
}

/// The arguments of [`multiply_panels`](super::product::multiply_panels), whose caller vouches for them, with as many panels
/// as [`panels_at_once`] says.
pub(super) struct MultiplyWide<'a> {
    pub(super) wide: Wide,
    pub(super) groups: &'a [f32],
    pub(super) rows: usize,
    pub(super) panels: &'a [Panel<'a>],
    pub(super) part: DepthPart,
    pub(super) output: &'a Output<'a>,
    pub(super) row: usize,
    pub(super) prefetch: &'a mut Prefetch,
}

impl Kernel for MultiplyWide<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let MultiplyWide {
            wide,
            groups,
            rows,
            panels,
            part,
            output,
            row,
            prefetch,
        } = self;
        let (first, last) = (&panels[0], &panels[panels.len() - 1]);
        let second = panels.get(1).map_or(0, Panel::vectors);
        let columns = Columns {
            panels: [first.values.as_ptr(), last.values.as_ptr()],
            vectors: [first.vectors(), second],
        };
        for (panel, vectors) in panels.iter().zip(columns.vectors) {
            debug_assert!(panel.values.len() >= vectors * LANES * part.depth);
        }
        let count: usize = panels.iter().map(Panel::columns).sum();
        let whole = are_whole(panels);
        let curved = part.last && is_curved(output.epilogue.activation);
        let ahead = part.rows_ahead();
        let mut tile = [0.0; WIDE_ROWS * WIDE_COLUMNS];
        let mut done = 0;
        while done < rows {
            let groups = &groups[done * part.depth..];
            let left = (rows - done).div_ceil(TILE_ROWS);
            let tile_rows = columns.groups(left) * TILE_ROWS;
            let kept = tile_rows.min(rows - done);
            let offset = first.pieces[0].offset;
            if output.has_distant_rows() {
                // Past the last row follow the next panels' first ones.
                let (turns, next_row) = ((done + ahead) / rows, (done + ahead) % rows);
                let next = offset + turns * count + (row + next_row) * output.row_stride;
                output.fetch(next, tile_rows, count);
            }
            let straight = whole && kept == tile_rows;
            let start = offset + (row + done) * output.row_stride;
            // SAFETY: groups are packed to whole ones, and panels to whole vectors. The caller vouches for the output; rows
            // and columns that are not there stay in the tile.
            unsafe {
                let finish = if straight {
                    let mut finish = finish(output, part, start, (row + done, first.column));
                    if curved {
                        (finish.to, finish.to_stride) = (tile.as_mut_ptr(), WIDE_COLUMNS);
                    }
                    finish
                } else {
                    Finish::store(tile.as_mut_ptr(), WIDE_COLUMNS)
                };
                let next = match output.bias_axis {
                    // Rows are output channels: weights, which come from memory where maps are small, tile after tile.
                    BiasAxis::Rows => groups.as_ptr().wrapping_add(tile_rows * part.depth),
                    // Rows were packed just before.
                    BiasAxis::Columns => groups.as_ptr(),
                };
                wide.multiply_tile(part.depth, groups.as_ptr(), left, columns, next, &finish);
                if !straight {
                    for (index, panel) in panels.iter().enumerate() {
                        let tile = &tile[index * TILE_COLUMNS..];
                        let at = (row + done, panel.column);
                        for piece in panel.pieces {
                            finish_piece(s, tile, WIDE_COLUMNS, kept, output, at, piece, part);
                        }
                    }
                } else if curved {
                    let y = output.y.add(start);
                    activate(s, &tile, WIDE_COLUMNS, y, kept, count / LANES, output);
                }
            }
            for _ in 0..tile_rows / TILE_ROWS * panels.len() {
                prefetch.step();
            }
            done += kept;
        }
    }
}

/// What becomes of the sums of a tile of whole vectors that begins at `start` of the output, but for curved activations.
///
/// # Safety
/// The caller of [`multiply_panels`](super::product::multiply_panels) promises that these parts of the output, the bias and the
/// residual exist.
#[inline(always)]
unsafe fn finish(
    output: &Output<'_>,
    part: DepthPart,
    start: usize,
    (row, column): (usize, usize),
) -> Finish {
    // SAFETY: as the caller promises.
    unsafe {
        let y = output.y.add(start);
        let residual = output.residual(part);
        let mut finish = Finish {
            add: [
                output.holds_sums(part).then_some(y.cast_const()),
                residual.map(|residual| residual.as_ptr().add(start)),
            ],
            add_stride: output.row_stride,
            ..Finish::store(y, output.row_stride)
        };
        if part.last {
            let bias = output.epilogue.bias.map(<[f32]>::as_ptr);
            match output.bias_axis {
                BiasAxis::Rows => finish.row_bias = bias.map(|bias| bias.add(row)),
                BiasAxis::Columns => finish.column_bias = bias.map(|bias| bias.add(column)),
            }
            if output.epilogue.activation == Activation::Relu {
                finish.floor = 0.0;
            }
        }
        finish
    }
}
