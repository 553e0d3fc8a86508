//! Where a segment's input lies, and how tiles that reach over the map's border are read.

use super::tile::Tile;
use super::tiles::Segment;
use crate::conv::ConvShape;
use crate::simd::{LANES, Simd};

/// Row length of the copy that stands in for tiles which reach over the border: up to 6 columns before the map, up to 133 in
/// it rounded up to whole vectors, one vector behind it.
pub(super) const BORDER_ROW: usize = 160;

/// The input of a segment within a plane, and the place of its transform within V.
pub(super) struct Source {
    /// Offset of the image's first plane.
    pub(super) image: usize,
    /// Offset of the first tile's corner within a plane; negative above and left of the map.
    pub(super) corner: isize,
    /// Whether no tile of the segment reaches over the border.
    pub(super) inside: bool,
    /// Offset into V for the first channel, and distance to the next.
    pub(super) v_offset: usize,
    pub(super) v_row: usize,
    /// Tiles.
    pub(super) count: usize,
    /// Floats from the start of its channel's row to the end of its last vector, which may reach over later rows.
    pub(super) reach: usize,
    top: isize,
    /// Columns before the map.
    blank: usize,
    /// The first column within the map, and how many there are.
    left: usize,
    columns: usize,
}

impl Source {
    pub(super) fn new<T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
        shape: &ConvShape,
        segment: &Segment,
        panel_offset: usize,
        v_row: usize,
        lanes: usize,
    ) -> Self {
        let (height, width) = (shape.height as isize, shape.width as isize);
        let step = T::STRIDE * OUT;
        let top = (step * segment.row) as isize - shape.padding[0] as isize;
        let left = (step * segment.column) as isize - shape.padding[1] as isize;
        let right = left + T::row_of(segment.count) as isize;
        Self {
            image: segment.image * shape.in_channels * shape.in_pixels(),
            corner: top * width + left,
            inside: top >= 0 && left >= 0 && top + IN as isize <= height && right <= width,
            v_offset: panel_offset + segment.first,
            v_row,
            count: segment.count,
            reach: segment.first + lanes,
            top,
            blank: (-left).max(0) as usize,
            left: left.max(0) as usize,
            columns: (right.min(width) - left.max(0)).max(0) as usize,
        }
    }

    /// Copies the segment's rows of a plane, with zeros outside the map, to rows of [`BORDER_ROW`] floats.
    #[inline(always)]
    pub(super) fn copy_with_border<S: Simd>(
        &self,
        s: S,
        plane: &[f32],
        width: usize,
        rows: &mut [f32],
    ) {
        let zero = s.splat(0.0);
        for (row, to) in (self.top..).zip(rows.chunks_exact_mut(BORDER_ROW)) {
            let from = row
                .checked_mul(width as isize)
                .and_then(|start| plane.get(usize::try_from(start).ok()?..));
            let Some(from) = from.filter(|from| !from.is_empty()) else {
                for vector in to.chunks_exact_mut(LANES) {
                    s.write(vector, zero);
                }
                continue;
            };
            let from = &from[self.left..self.left + self.columns];
            s.write(to, zero);
            let mut column = 0;
            while column < self.columns {
                s.write(&mut to[self.blank + column..], s.read(&from[column..]));
                column += LANES;
            }
            s.write(&mut to[self.blank + column..], zero);
        }
    }
}
