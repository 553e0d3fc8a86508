//! The operands of the product: tiles of x and of dy, transformed eight channels at a time.

use std::marker::PhantomData;
use std::ops::Range;

use super::{IN, OUT, POSITIONS, Tiles};
use crate::conv::winograd::tile::{F4, Tile};
use crate::cpu::Scratch;
use crate::gemm::pack::panel_width;
use crate::gemm::{TILE_COLUMNS, TILE_ROWS};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Tiles of 24 channels that stay in the second-level cache while they are put together from vectors.
const CACHED_TILES: usize = 64;

/// x or dy.
pub(super) struct Maps<'a> {
    pub(super) data: &'a [f32],
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    /// Rows and columns of the first tile that lie outside.
    pub(super) padding: [usize; 2],
}

/// A side of the product, whose tiles have N x N numbers.
pub(super) trait Operand<const N: usize>: Send + Sync {
    /// One axis of the transform.
    fn spread<S: Simd>(s: S, values: [S::V; N]) -> [S::V; IN];

    /// Stores eight channels from `channel` of `channels` on at the place that the product reads them from.
    ///
    /// # Safety
    /// `to` is one position of the operand, `depth` tiles deep.
    unsafe fn put<S: Simd>(
        s: S,
        to: *mut f32,
        depth: usize,
        tile: usize,
        channel: usize,
        channels: usize,
        value: S::V,
    );
}

/// B^T d B in panels [channel / 24][tile][24].
pub(super) struct Inputs;

impl Operand<IN> for Inputs {
    #[inline(always)]
    fn spread<S: Simd>(s: S, values: [S::V; IN]) -> [S::V; IN] {
        F4::input(s, values)
    }

    #[inline(always)]
    unsafe fn put<S: Simd>(
        s: S,
        to: *mut f32,
        depth: usize,
        tile: usize,
        channel: usize,
        channels: usize,
        value: S::V,
    ) {
        let first = channel - channel % TILE_COLUMNS;
        let width = panel_width(first, channels);
        // SAFETY: the panels hold whole vectors of channels.
        unsafe {
            s.store(
                to.add(first * depth + tile * width + channel - first),
                value,
            )
        };
    }
}

/// A dy A^T in groups [channel / 4][tile][4].
pub(super) struct Gradients;

impl Operand<OUT> for Gradients {
    /// A: the adjoint of [`Tile::output`].
    #[inline(always)]
    fn spread<S: Simd>(s: S, d: [S::V; OUT]) -> [S::V; IN] {
        let (two, four, eight) = (s.splat(2.0), s.splat(4.0), s.splat(8.0));
        let (even, odd) = (s.add(d[0], d[2]), s.add(d[1], d[3]));
        let far_even = s.mul_add(four, d[2], d[0]);
        let far_odd = s.mul_add(eight, d[3], s.mul(two, d[1]));
        [
            d[0],
            s.add(even, odd),
            s.sub(even, odd),
            s.add(far_even, far_odd),
            s.sub(far_even, far_odd),
            d[3],
        ]
    }

    #[inline(always)]
    unsafe fn put<S: Simd>(
        s: S,
        to: *mut f32,
        depth: usize,
        tile: usize,
        channel: usize,
        _channels: usize,
        value: S::V,
    ) {
        // SAFETY: there are two groups for every vector of channels.
        unsafe {
            let low = to.add(channel * depth + tile * TILE_ROWS);
            s.store_halves(low, low.add(TILE_ROWS * depth), value);
        }
    }
}

/// The tiles of one sample in up to 24 channels.
pub(super) struct TransformTiles<'a, T, const N: usize> {
    pub(super) maps: &'a Maps<'a>,
    pub(super) tiles: &'a Tiles,
    pub(super) sample: usize,
    /// All channels of the operand.
    pub(super) channels: Range<usize>,
    /// The channels to transform, counted among those of the operand.
    pub(super) panel: Range<usize>,
    pub(super) target: *mut f32,
    /// Distance between positions.
    pub(super) stride: usize,
    pub(super) scratch: &'a mut Scratch,
    /// Which side of the product it is.
    pub(super) operand: PhantomData<T>,
}

impl<T: Operand<N>, const N: usize> Kernel for TransformTiles<'_, T, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (maps, tiles) = (self.maps, self.tiles);
        let depth = tiles.count();
        let rows_at_once = (CACHED_TILES / tiles.columns).max(1);
        let pixels = (rows_at_once * OUT + IN - OUT) * maps.width;
        let [strip] = self
            .scratch
            .floats([pixels.next_multiple_of(LANES) * LANES]);
        let before = (self.sample - tiles.samples.start) * tiles.rows.len();
        for start in tiles.rows.clone().step_by(rows_at_once) {
            let rows = start..tiles.rows.end.min(start + rows_at_once);
            let top = (rows.start * OUT).saturating_sub(maps.padding[0]);
            let bottom = ((rows.end - 1) * OUT + N).saturating_sub(maps.padding[0]);
            let lines = top.min(maps.height)..bottom.min(maps.height);
            for channel in self.panel.clone().step_by(LANES) {
                let first = self.channels.start + channel;
                let channels = first..self.channels.end.min(first + LANES);
                maps.turn(s, self.sample, channels, lines.clone(), strip);
                let strip = Strip {
                    maps,
                    lines: lines.clone(),
                    pixels: strip,
                };
                for row in rows.clone() {
                    for column in 0..tiles.columns {
                        let values = strip.transform::<S, T, N>(s, row, column);
                        let line = before + row - tiles.rows.start;
                        let tile = line * tiles.columns + column;
                        for position in 0..POSITIONS {
                            let value = values[position / IN][position % IN];
                            // SAFETY: the operand has `POSITIONS` positions, and these tiles and channels are this block's.
                            unsafe {
                                let to = self.target.add(position * self.stride);
                                T::put(s, to, depth, tile, channel, self.channels.len(), value);
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Maps<'_> {
    /// Turns some lines of up to eight channels from planes into pixels of eight; channels past the end are zero.
    #[inline(always)]
    fn turn<S: Simd>(
        &self,
        s: S,
        sample: usize,
        channels: Range<usize>,
        lines: Range<usize>,
        strip: &mut [f32],
    ) {
        let area = self.height * self.width;
        let len = lines.len() * self.width;
        let mut planes = [&[][..]; LANES];
        for (plane, channel) in planes.iter_mut().zip(channels) {
            let start = (sample * self.channels + channel) * area + lines.start * self.width;
            *plane = &self.data[start..start + len];
        }
        for at in (0..len).step_by(LANES) {
            let mut block = [s.splat(0.0); LANES];
            for lane in 0..LANES {
                block[lane] = s.read(planes[lane].get(at..).unwrap_or_default());
            }
            let block = s.transpose8(block);
            let target = &mut strip[at * LANES..][..LANES * LANES];
            for pixel in 0..LANES {
                s.write(&mut target[pixel * LANES..], block[pixel]);
            }
        }
    }
}

/// Lines of eight channels, pixel by pixel.
struct Strip<'a> {
    maps: &'a Maps<'a>,
    lines: Range<usize>,
    pixels: &'a [f32],
}

impl Strip<'_> {
    /// Both axes of a tile's transform.
    #[inline(always)]
    fn transform<S: Simd, T: Operand<N>, const N: usize>(
        &self,
        s: S,
        row: usize,
        column: usize,
    ) -> [[S::V; IN]; IN] {
        let zero = s.splat(0.0);
        let mut half = [[zero; IN]; N];
        for i in 0..N {
            half[i] = T::spread(s, self.line::<S, N>(s, row * OUT + i, column * OUT));
        }
        let mut whole = [[zero; IN]; IN];
        for j in 0..IN {
            let mut values = [zero; N];
            for i in 0..N {
                values[i] = half[i][j];
            }
            let values = T::spread(s, values);
            for i in 0..IN {
                whole[i][j] = values[i];
            }
        }
        whole
    }

    /// N neighbours, counted in the padded map; zero outside.
    #[inline(always)]
    fn line<S: Simd, const N: usize>(&self, s: S, row: usize, column: usize) -> [S::V; N] {
        let [above, left] = self.maps.padding;
        let mut values = [s.splat(0.0); N];
        if row < above || !self.lines.contains(&(row - above)) {
            return values;
        }
        let width = self.maps.width;
        let line =
            &self.pixels[(row - above - self.lines.start) * width * LANES..][..width * LANES];
        if column >= left && column - left + N <= width {
            let line = &line[(column - left) * LANES..][..N * LANES];
            for j in 0..N {
                values[j] = s.read(&line[j * LANES..]);
            }
        } else {
            for j in 0..N {
                if column + j >= left && column + j - left < width {
                    values[j] = s.read(&line[(column + j - left) * LANES..]);
                }
            }
        }
        values
    }
}
