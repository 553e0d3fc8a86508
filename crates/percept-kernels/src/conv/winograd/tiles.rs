//! Where tiles lie: they are numbered row by row over all images of the batch, and blocks are cut from that one
//! sequence, so that small maps fill blocks too and a row's end wastes nothing.

use std::ops::Range;

use crate::conv::ConvShape;
use crate::gemm::tile::{TILE_COLUMNS, TILE_VECTORS};
use crate::gemm::wide_tile::WIDE_COLUMNS;
use crate::isa::Isa;
use crate::simd::LANES;

/// Tiles that one register tile multiplies together; a wide one takes twice as many.
pub(super) const PANEL: usize = TILE_COLUMNS;

/// Vectors of the widest panel of V: those of a register tile.
pub(super) fn panel_vectors(isa: Isa) -> usize {
    if isa.has_wide_floats() {
        WIDE_COLUMNS / LANES
    } else {
        TILE_VECTORS
    }
}

/// How the tiles of a block are dealt into panels: as evenly as whole vectors allow, because a panel of one vector has
/// too few independent sums to keep the multipliers busy.
#[derive(Clone, Copy)]
pub(super) struct Panels {
    vectors: usize,
    count: usize,
    tiles: usize,
}

impl Panels {
    /// Of at most `most` vectors.
    pub(super) fn of(tiles: usize, most: usize) -> Self {
        let vectors = tiles.div_ceil(LANES);
        Self {
            vectors,
            count: vectors.div_ceil(most),
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

/// The tiles of a convolution: all of them, or a list.
#[derive(Clone, Copy)]
pub(super) struct TileGrid<'a> {
    columns: usize,
    rows: usize,
    total: usize,
    /// Ascending numbers of the tiles to compute; `None` for all.
    list: Option<&'a [u32]>,
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

impl<'a> TileGrid<'a> {
    pub(super) fn new(shape: &ConvShape, tile_out: usize, list: Option<&'a [u32]>) -> Self {
        let columns = shape.out_width().div_ceil(tile_out);
        let rows = shape.out_height().div_ceil(tile_out);
        let all = shape.batch * rows * columns;
        if let Some(last) = list.and_then(<[u32]>::last) {
            assert!((*last as usize) < all, "a tile outside the map");
        }
        Self {
            columns,
            rows,
            total: list.map_or(all, <[u32]>::len),
            list,
        }
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// The number, in the whole map, of the tile at this place of the sequence.
    fn number(&self, place: usize) -> usize {
        self.list.map_or(place, |list| list[place] as usize)
    }

    /// Cuts the tiles at these places at row ends, at gaps, and into segments of at most `longest` tiles.
    pub(super) fn segments(
        &self,
        places: Range<usize>,
        longest: usize,
    ) -> impl Iterator<Item = Segment> + Clone + use<'a> {
        let grid = *self;
        let mut next = places.start;
        std::iter::from_fn(move || {
            if next >= places.end {
                return None;
            }
            let first = next - places.start;
            let number = grid.number(next);
            let (line, column) = (number / grid.columns, number % grid.columns);
            let most = longest.min(grid.columns - column).min(places.end - next);
            let adjacent = |count: &usize| grid.number(next + count) == number + count;
            let count = match grid.list {
                None => most,
                Some(_) => (1..most).take_while(adjacent).count() + 1,
            };
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
        for (tiles, most) in (1..200).flat_map(|tiles| [(tiles, 3), (tiles, 6)]) {
            let panels = Panels::of(tiles, most);
            let mut next = 0;
            for panel in 0..panels.count() {
                let range = panels.tiles(panel);
                assert_eq!(range.start, next);
                assert_eq!(range.len().div_ceil(LANES), panels.vectors(panel));
                assert!(panels.vectors(panel) <= most);
                assert!(panels.vectors(panel) > 1 || tiles <= LANES);
                next = range.end;
            }
            assert_eq!(next, tiles);
        }
    }
}
