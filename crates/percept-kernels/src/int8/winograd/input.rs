//! The transform of tiles of the input, B^T d B, in exact integers.

use std::ops::Range;

use super::{POSITIONS, SPAN, TileGrid, column_of, position_stride};
use crate::int8::tile::WORD_RUN;
use crate::isa::Kernel;
use crate::simd::Simd;

/// Tiles that are transformed together: with two channels of each they fill a vector of 16 words.
const TOGETHER: usize = 8;
/// A row of a tile: six quads.
type TileRow = [[i8; 4]; SPAN];

/// Transforms up to 16 tiles to `[position][pair][16 columns][2]`, each to its [column](super::column_of); tiles that are missing are zero.
pub(super) struct TransformInput<'a> {
    pub(super) grid: &'a TileGrid<'a>,
    pub(super) x: &'a [i8],
    pub(super) tiles: Range<usize>,
    pub(super) target: &'a mut [i16],
}

impl TransformInput<'_> {
    /// Where the inputs of the tiles lie.
    pub(super) fn sources(&self) -> [Option<Source>; WORD_RUN] {
        std::array::from_fn(|t| {
            let tile = self.tiles.start + t;
            (tile < self.tiles.end).then(|| Source::new(self.grid, tile))
        })
    }
}

impl Kernel for TransformInput<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let shape = &self.grid.shape;
        let stride = position_stride(shape.in_channels);
        let sources = self.sources();
        for first in (0..WORD_RUN).step_by(TOGETHER) {
            let sources: [_; TOGETHER] = std::array::from_fn(|c| sources[column_of(first + c)]);
            // What lies outside the map stays zero for all channels.
            let mut tiles = [[[[0; 4]; SPAN]; SPAN]; TOGETHER];
            for quad in 0..shape.in_channels.div_ceil(4) {
                for (tile, source) in tiles.iter_mut().zip(&sources) {
                    if let Some(source) = source {
                        source.load(shape.width, shape.in_pixels(), self.x, quad, tile);
                    }
                }
                for pair in [0, 1] {
                    let start = 2 * ((2 * quad + pair) * WORD_RUN + first);
                    s.call(TransformTiles {
                        tiles: &tiles,
                        pair,
                        stride,
                        target: &mut self.target[start..],
                    });
                }
            }
        }
    }
}

/// Where a tile's inputs lie: the part of its 6x6 pixels that is inside the map.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// The first pixel inside, in the sample's first quad.
    pub(super) pixel: usize,
    pub(super) rows: [usize; 2],
    pub(super) columns: [usize; 2],
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

    /// Loads one quad of channels; what lies outside stays zero.
    #[inline(always)]
    fn load(&self, width: usize, pixels: usize, x: &[i8], quad: usize, tile: &mut [TileRow; SPAN]) {
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

/// Transforms one pair of channels of eight tiles.
struct TransformTiles<'a> {
    tiles: &'a [[TileRow; SPAN]; TOGETHER],
    pair: usize,
    stride: usize,
    target: &'a mut [i16],
}

impl Kernel for TransformTiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let mut lines = [[Lanes([0; 2 * TOGETHER]); SPAN]; SPAN];
        for row in 0..SPAN {
            let mut pixels = [Lanes([0; 2 * TOGETHER]); SPAN];
            for column in 0..SPAN {
                let lanes = &mut pixels[column].0;
                for t in 0..TOGETHER {
                    let quad = i32::from_le_bytes(self.tiles[t][row][column].map(|q| q as u8));
                    let both = quad >> (16 * self.pair);
                    lanes[2 * t] = (both << 8) as i16 >> 8;
                    lanes[2 * t + 1] = both as i16 >> 8;
                }
            }
            lines[row] = transform(pixels);
        }
        assert!(self.target.len() >= (POSITIONS - 1) * self.stride + 2 * TOGETHER);
        // SAFETY: there is room for each position.
        unsafe { transform_lines(&lines, self.stride, self.target.as_mut_ptr()) };
    }
}

/// A vector of words.
pub(super) trait Words: Copy {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn times4(self) -> Self;
    /// # Safety
    /// There must be room for all words.
    unsafe fn store(self, to: *mut i16);
}

/// 16 words that the compiler makes a vector of.
#[derive(Clone, Copy)]
struct Lanes([i16; 2 * TOGETHER]);

impl Words for Lanes {
    #[inline(always)]
    fn add(mut self, other: Self) -> Self {
        for lane in 0..2 * TOGETHER {
            self.0[lane] = self.0[lane].wrapping_add(other.0[lane]);
        }
        self
    }

    #[inline(always)]
    fn sub(mut self, other: Self) -> Self {
        for lane in 0..2 * TOGETHER {
            self.0[lane] = self.0[lane].wrapping_sub(other.0[lane]);
        }
        self
    }

    #[inline(always)]
    fn times4(self) -> Self {
        let double = self.add(self);
        double.add(double)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i16) {
        // SAFETY: passed on from the caller.
        unsafe { to.cast::<[i16; 2 * TOGETHER]>().write_unaligned(self.0) };
    }
}

/// Finishes B^T d B of some tiles, whose rows `[row][column]` are transformed, with the positions so many words apart.
///
/// # Safety
/// There must be room for a vector at each position.
#[inline(always)]
pub(super) unsafe fn transform_lines<W: Words>(
    lines: &[[W; SPAN]; SPAN],
    stride: usize,
    target: *mut i16,
) {
    for column in 0..SPAN {
        let done = transform([
            lines[0][column],
            lines[1][column],
            lines[2][column],
            lines[3][column],
            lines[4][column],
            lines[5][column],
        ]);
        for row in 0..SPAN {
            // SAFETY: passed on from the caller.
            unsafe { done[row].store(target.add((row * SPAN + column) * stride)) };
        }
    }
}

/// B^T d. Nothing wraps: of bytes both together make at most 100 times as much.
#[inline(always)]
pub(super) fn transform<W: Words>(d: [W; SPAN]) -> [W; SPAN] {
    let even = d[4].sub(d[2]);
    let odd = d[3].sub(d[1]);
    let odd2 = odd.add(odd);
    let a = d[4].sub(d[2].times4());
    let b = d[3].sub(d[1].times4());
    [
        d[0].sub(d[2]).times4().add(even),
        a.add(b),
        a.sub(b),
        even.add(odd2),
        even.sub(odd2),
        d[5].sub(d[3]).sub(odd2.add(odd2)),
    ]
}
