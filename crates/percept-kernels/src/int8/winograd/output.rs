//! The transform of sums to outputs, A^T m A, and what follows it.

use std::ops::Range;

use super::{POSITIONS, SPAN, TILE, TileGrid, column_of};
use crate::aligned::FLOATS_PER_LINE;
use crate::int8::finish::{Finish, TileRun};
use crate::int8::tile::{TILE_ROWS, WORD_COLUMNS, WORD_RUN};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd, prefetch_read_l2};

/// Finishes one group of four channels of up to 48 tiles.
pub(super) struct TransformOutput<'a> {
    pub(super) grid: &'a TileGrid<'a>,
    pub(super) finish: &'a Finish<'a>,
    pub(super) places: &'a TileRuns,
    pub(super) channel: usize,
    /// `[position, stride apart][4 channels][48 columns]`.
    pub(super) sums: &'a mut [i32],
    pub(super) stride: usize,
    /// `[position][4 channels]`.
    pub(super) scales: &'a [f32],
}

impl Kernel for TransformOutput<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let columns = self.places.tiles.next_multiple_of(WORD_RUN);
        for first in (0..columns).step_by(LANES) {
            // `[channel][row][column]` of 8 tiles.
            let mut pixels = [[[s.splat(0.0); TILE]; TILE]; TILE_ROWS];
            for channel in 0..TILE_ROWS {
                pixels[channel] = self.transform(s, first, channel);
            }
            for row in 0..TILE {
                let mut values = [[s.splat(0.0); TILE_ROWS]; TILE];
                for column in 0..TILE {
                    for channel in 0..TILE_ROWS {
                        values[column][channel] = pixels[channel][row][column];
                    }
                }
                let tiles = &self.places.rows[row][first / WORD_RUN * WORD_RUN..];
                let runs = std::array::from_fn(|lane| tiles[column_of(first % WORD_RUN + lane)]);
                let shape = &self.grid.shape;
                // Sums by Winograd are rounded otherwise than other engines' anyway.
                self.finish.finish_columns(
                    s,
                    self.channel,
                    shape.out_channels,
                    shape.out_pixels(),
                    &mut values,
                    &runs,
                );
            }
        }
    }
}

impl TransformOutput<'_> {
    /// The outputs of one channel of 8 columns, `[row][column]`.
    #[inline(always)]
    fn transform<S: Simd>(&self, s: S, first: usize, channel: usize) -> [[S::V; TILE]; TILE] {
        assert!(self.scales.len() == POSITIONS * TILE_ROWS && first + LANES <= WORD_COLUMNS);
        assert!(self.sums.len() >= (POSITIONS - 1) * self.stride + TILE_ROWS * WORD_COLUMNS);
        let sums = self.sums[channel * WORD_COLUMNS + first..].as_ptr();
        let mut lines = [[s.splat(0.0); TILE]; SPAN];
        for i in 0..SPAN {
            let mut line = [s.splat(0.0); SPAN];
            for j in 0..SPAN {
                let position = i * SPAN + j;
                // SAFETY: asserted above.
                let sum = unsafe { s.load_integers(sums.add(position * self.stride)) };
                let scale = self.scales[position * TILE_ROWS + channel];
                line[j] = s.mul(sum, s.splat(scale));
            }
            lines[i] = transform(s, line);
        }
        let mut outputs = [[s.splat(0.0); TILE]; TILE];
        for column in 0..TILE {
            let mut line = [s.splat(0.0); SPAN];
            for i in 0..SPAN {
                line[i] = lines[i][column];
            }
            let done = transform(s, line);
            for row in 0..TILE {
                outputs[row][column] = done[row];
            }
        }
        outputs
    }
}

/// Where the rows of up to 48 tiles go, `[row][tile]`.
pub(super) struct TileRuns {
    tiles: usize,
    rows: [[TileRun; WORD_COLUMNS]; TILE],
    /// The same, joined where tiles lie side by side: each with its first place among the outputs of a row of all tiles.
    stretches: [Vec<(usize, TileRun)>; TILE],
}

impl TileRuns {
    /// How many there are.
    pub(super) fn tiles(&self) -> usize {
        self.tiles
    }

    /// Asks for the lines of a plane that a row of all tiles is written to.
    pub(super) fn fetch(&self, row: usize, plane: *const f32, sample_len: usize) {
        for (_, run) in &self.stretches[row] {
            let start = plane.wrapping_add(run.sample * sample_len + run.pixel);
            for at in (0..run.len).step_by(FLOATS_PER_LINE) {
                prefetch_read_l2(start.wrapping_add(at));
            }
            prefetch_read_l2(start.wrapping_add(run.len - 1));
        }
    }

    /// Where a row of all tiles goes: runs over as many of them as lie side by side, each with its first place among their outputs.
    pub(super) fn stretches(&self, row: usize) -> &[(usize, TileRun)] {
        &self.stretches[row]
    }

    pub(super) fn new(grid: &TileGrid<'_>, tiles: Range<usize>) -> TileRuns {
        let mut rows = [[TileRun::default(); WORD_COLUMNS]; TILE];
        for (index, tile) in tiles.clone().enumerate() {
            let (place, width) = (grid.place(tile), grid.shape.out_width());
            for (row, runs) in rows.iter_mut().enumerate() {
                if place.row + row < grid.shape.out_height() {
                    runs[index] = TileRun {
                        sample: place.sample,
                        pixel: (place.row + row) * width + place.column,
                        len: (width - place.column).min(TILE),
                    };
                }
            }
        }
        let stretches = rows.each_ref().map(|runs| {
            let mut stretches: Vec<(usize, TileRun)> = Vec::new();
            for (tile, run) in runs.iter().enumerate().filter(|(_, run)| run.len > 0) {
                match stretches.last_mut() {
                    Some((start, last))
                        if *start + last.len == tile * TILE
                            && (last.sample, last.pixel + last.len) == (run.sample, run.pixel) =>
                    {
                        last.len += run.len;
                    }
                    _ => stretches.push((tile * TILE, *run)),
                }
            }
            stretches
        });
        TileRuns {
            tiles: tiles.len(),
            rows,
            stretches,
        }
    }
}

/// A^T m.
#[inline(always)]
fn transform<S: Simd>(s: S, m: [S::V; SPAN]) -> [S::V; TILE] {
    let (sum1, sum2) = (s.add(m[1], m[2]), s.add(m[3], m[4]));
    let (difference1, difference2) = (s.sub(m[1], m[2]), s.sub(m[3], m[4]));
    let times = |factor: f32, v: S::V| s.mul(s.splat(factor), v);
    [
        s.add(s.add(m[0], sum1), sum2),
        s.add(times(2.0, difference2), difference1),
        s.add(times(4.0, sum2), sum1),
        s.add(s.add(times(8.0, difference2), difference1), m[5]),
    ]
}
