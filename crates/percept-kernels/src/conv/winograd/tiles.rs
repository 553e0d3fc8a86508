//! Where tiles lie: they are numbered row by row over all images of the batch, and blocks are cut from that one
//! sequence, so that small maps fill blocks too and a row's end wastes nothing.

use std::ops::Range;

use crate::conv::ConvShape;
use crate::gemm::tile::{TILE_COLUMNS, TILE_VECTORS};
use crate::simd::LANES;

/// Tiles of the widest panel of V: those that one register tile multiplies together.
pub(super) const PANEL: usize = TILE_COLUMNS;

/// How the tiles of a block are dealt into panels: as evenly as whole vectors allow, because a panel of one vector has
/// too few independent sums to keep the multipliers busy.
#[derive(Clone, Copy)]
pub(super) struct Panels {
    vectors: usize,
    count: usize,
    tiles: usize,
}

impl Panels {
    pub(super) fn of(tiles: usize) -> Self {
        let vectors = tiles.div_ceil(LANES);
        Self {
            vectors,
            count: vectors.div_ceil(TILE_VECTORS),
            tiles,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Vectors of tiles in a panel.
    pub(super) fn vectors(&self, panel: usize) -> usize {
        self.vectors / self.count + usize::from(panel < self.vectors % self.count)
    }

    /// The tiles of a panel, counted within the block.
    pub(super) fn tiles(&self, panel: usize) -> Range<usize> {
        let before = panel * (self.vectors / self.count) + panel.min(self.vectors % self.count);
        let start = before * LANES;
        start..(start + self.vectors(panel) * LANES).min(self.tiles)
    }
}

/// The tiles of a convolution.
#[derive(Clone, Copy)]
pub(super) struct TileGrid {
    columns: usize,
    rows: usize,
    total: usize,
}

/// Neighbouring tiles of one tile row.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// Number of the first tile within the range that was cut.
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) image: usize,
    pub(super) row: usize,
    pub(super) column: usize,
}

impl TileGrid {
    pub(super) fn new(shape: &ConvShape, tile_out: usize) -> Self {
        let columns = shape.out_width().div_ceil(tile_out);
        let rows = shape.out_height().div_ceil(tile_out);
        Self {
            columns,
            rows,
            total: shape.batch * rows * columns,
        }
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// Cuts `tiles` at row ends, and into segments of at most `longest` tiles.
    pub(super) fn segments(
        &self,
        tiles: Range<usize>,
        longest: usize,
    ) -> impl Iterator<Item = Segment> + Clone {
        let grid = *self;
        let mut next = tiles.start;
        std::iter::from_fn(move || {
            if next >= tiles.end {
                return None;
            }
            let first = next - tiles.start;
            let (line, column) = (next / grid.columns, next % grid.columns);
            let count = longest.min(grid.columns - column).min(tiles.end - next);
            next += count;
            Some(Segment {
                first,
                count,
                image: line / grid.rows,
                row: line % grid.rows,
                column,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_cover_all_tiles_and_avoid_single_vectors() {
        for tiles in 1..200 {
            let panels = Panels::of(tiles);
            let mut next = 0;
            for panel in 0..panels.count() {
                let range = panels.tiles(panel);
                assert_eq!(range.start, next);
                assert_eq!(range.len().div_ceil(LANES), panels.vectors(panel));
                assert!(panels.vectors(panel) <= TILE_VECTORS);
                assert!(panels.vectors(panel) > 1 || tiles <= LANES);
                next = range.end;
            }
            assert_eq!(next, tiles);
        }
    }
}
