//! The transform of tiles of the input, B^T d B, in exact integers.

use std::ops::Range;

use super::{POSITIONS, SPAN, TileGrid};
use crate::int8::tile::WORD_COLUMNS;
use crate::isa::Kernel;
use crate::simd::Simd;

/// Tiles that are transformed together: with four channels of each they fill a vector of 16 words.
const TOGETHER: usize = 4;
/// Four channels of four tiles.
type Lanes = [i16; 4 * TOGETHER];
/// A row of a tile: six quads.
pub(super) type TileRow = [[i8; 4]; SPAN];

/// Transforms up to 24 tiles to `[position][quad][24 tiles][4]`; tiles that are missing are zero.
pub(super) struct TransformInput<'a> {
    pub(super) grid: &'a TileGrid<'a>,
    pub(super) x: &'a [i8],
    pub(super) tiles: Range<usize>,
    pub(super) target: &'a mut [i16],
}

impl Kernel for TransformInput<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let shape = &self.grid.shape;
        let quads = shape.in_channels.div_ceil(4);
        for first in (0..WORD_COLUMNS).step_by(TOGETHER) {
            let mut sources = [None; TOGETHER];
            for (t, source) in sources.iter_mut().enumerate() {
                let tile = self.tiles.start + first + t;
                *source = (tile < self.tiles.end).then(|| Source::new(self.grid, tile));
            }
            // What lies outside the map stays zero for all channels.
            let mut tiles = [[[[0; 4]; SPAN]; SPAN]; TOGETHER];
            for quad in 0..quads {
                for (tile, source) in tiles.iter_mut().zip(&sources) {
                    if let Some(source) = source {
                        source.load(shape.width, shape.in_pixels(), self.x, quad, tile);
                    }
                }
                let target = &mut self.target[(quad * WORD_COLUMNS + first) * 4..];
                s.call(TransformTiles {
                    tiles: &tiles,
                    stride: quads * WORD_COLUMNS * 4,
                    target,
                });
            }
        }
    }
}

/// Where a tile's inputs lie: the part of its 6x6 pixels that is inside the map.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// The first pixel inside, in the sample's first quad.
    pixel: usize,
    rows: [usize; 2],
    columns: [usize; 2],
}

impl Source {
    pub(super) fn new(grid: &TileGrid<'_>, tile: usize) -> Source {
        let (shape, place) = (&grid.shape, grid.place(tile));
        let inside = |first: usize, padding: usize, size: usize| {
            let start = padding.saturating_sub(first).min(SPAN);
            let end = (size + padding).saturating_sub(first).min(SPAN);
            [start, end.max(start)]
        };
        let rows = inside(place.row, shape.padding[0], shape.height);
        let columns = inside(place.column, shape.padding[1], shape.width);
        let row = (place.row + rows[0]).saturating_sub(shape.padding[0]);
        let column = (place.column + columns[0]).saturating_sub(shape.padding[1]);
        let quads = shape.in_channels.div_ceil(4);
        Source {
            pixel: place.sample * quads * shape.in_pixels() + row * shape.width + column,
            rows,
            columns,
        }
    }

    /// The bytes from a quad's first pixel to its last one, where the tile lies inside the map.
    #[inline(always)]
    pub(super) fn whole<'x>(
        &self,
        width: usize,
        pixels: usize,
        x: &'x [i8],
        quad: usize,
    ) -> Option<&'x [i8]> {
        let inside = [self.rows, self.columns] == [[0, SPAN]; 2];
        let len = 4 * ((SPAN - 1) * width + SPAN);
        inside.then(|| &x[4 * (self.pixel + quad * pixels)..][..len])
    }

    /// Loads one quad of channels; what lies outside stays zero.
    #[inline(always)]
    pub(super) fn load(
        &self,
        width: usize,
        pixels: usize,
        x: &[i8],
        quad: usize,
        tile: &mut [TileRow; SPAN],
    ) {
        let [first, last] = self.columns;
        for (index, row) in (self.rows[0]..self.rows[1]).enumerate() {
            let start = 4 * (self.pixel + quad * pixels + index * width);
            let from = &x[start..][..4 * (last - first)];
            if let Some(whole) = from.first_chunk::<{ 4 * SPAN }>() {
                tile[row] = bytemuck::cast(*whole);
            } else {
                tile[row][first..last].copy_from_slice(from.as_chunks().0);
            }
        }
    }
}

/// Transforms one quad of channels of four tiles.
struct TransformTiles<'a> {
    tiles: &'a [[TileRow; SPAN]; TOGETHER],
    stride: usize,
    target: &'a mut [i16],
}

impl Kernel for TransformTiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let mut lines = [[[0; 4 * TOGETHER]; SPAN]; SPAN];
        for row in 0..SPAN {
            let mut pixels = [[0; 4 * TOGETHER]; SPAN];
            for column in 0..SPAN {
                let quads = [
                    self.tiles[0][row][column],
                    self.tiles[1][row][column],
                    self.tiles[2][row][column],
                    self.tiles[3][row][column],
                ];
                let bytes: [i8; 4 * TOGETHER] = bytemuck::cast(quads);
                for lane in 0..4 * TOGETHER {
                    pixels[column][lane] = i16::from(bytes[lane]);
                }
            }
            lines[row] = transform(pixels);
        }
        assert!(self.target.len() >= (POSITIONS - 1) * self.stride + 4 * TOGETHER);
        for column in 0..SPAN {
            let column_lines = [
                lines[0][column],
                lines[1][column],
                lines[2][column],
                lines[3][column],
                lines[4][column],
                lines[5][column],
            ];
            let transformed = transform(column_lines);
            for row in 0..SPAN {
                let start = (row * SPAN + column) * self.stride;
                self.target[start..start + 4 * TOGETHER].copy_from_slice(&transformed[row]);
            }
        }
    }
}

macro_rules! lanewise {
    ($name:ident, $op:ident) => {
        #[inline(always)]
        fn $name(a: Lanes, b: Lanes) -> Lanes {
            let mut out = a;
            for lane in 0..4 * TOGETHER {
                out[lane] = a[lane].$op(b[lane]);
            }
            out
        }
    };
}
lanewise!(add, wrapping_add);
lanewise!(sub, wrapping_sub);

#[inline(always)]
fn times4(a: Lanes) -> Lanes {
    let double = add(a, a);
    add(double, double)
}

/// B^T d. Nothing wraps: of bytes it makes at most 100 times as much.
#[inline(always)]
fn transform(d: [Lanes; SPAN]) -> [Lanes; SPAN] {
    let even = sub(d[4], d[2]);
    let odd = sub(d[3], d[1]);
    let odd2 = add(odd, odd);
    let a = sub(d[4], times4(d[2]));
    let b = sub(d[3], times4(d[1]));
    [
        add(times4(sub(d[0], d[2])), even),
        add(a, b),
        sub(a, b),
        add(even, odd2),
        sub(even, odd2),
        sub(sub(d[5], d[3]), add(odd2, odd2)),
    ]
}
