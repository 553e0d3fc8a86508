//! Tiles from products to bytes, without their sums ever lying in memory.
//!
//! What finishes a tile then runs beside the products of the next one, which leave the units for conversions and additions idle.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::tile::PixelRun;
use super::vectors::{Addition, Bytes, LANES, Nothing, Place, Product, Scales, mask, quads_of};
use super::{Addend, Finish, StraightOutput};
use crate::aligned::SharedMut;
use crate::int8::tile::vnni::wide::products;
use crate::int8::tile::{FEW_PIXELS, GroupSums, Panel, TILE_GROUPS, TILE_ROWS, TileRows};

/// Rows of weights, and how their sums become bytes.
pub(in crate::int8) struct RegisterTile<'a> {
    rows: TileRows,
    scales: Scales,
    added: Added<'a>,
    y: &'a SharedMut<'a, i8>,
    /// Bytes from the first channel to the next sample's, and from one group of channels to the next.
    sample_bytes: usize,
    group_bytes: usize,
    /// The first channel's place in the first sample.
    start: usize,
    /// The smallest byte.
    lowest: i8,
}

/// What is added before the activation.
enum Added<'a> {
    Nothing,
    /// Bytes that lie as results do, and what a step of them stands for.
    Bytes(&'a [i8], f32),
    /// A second product.
    Product(TileRows, Scales),
}

impl Finish<'_> {
    /// For rows of one product or of two, when results are bytes behind a straight activation, no floats are added, and all that can come
    /// out fits an integer.
    pub(in crate::int8) fn in_registers(
        &self,
        weights: [Option<TileRows>; 2],
        channel: usize,
        channels: usize,
        out_pixels: usize,
    ) -> Option<RegisterTile<'_>> {
        let StraightOutput::Bytes { y, lowest } = self.straight()? else {
            return None;
        };
        if !self.fits_integers {
            return None;
        }
        let rows = weights[0]?;
        let scales = |factors, bias| Scales::of(channel, rows.groups, factors, bias);
        let added = match (&self.added, weights[1], self.residual) {
            (None, None, None) => Added::Nothing,
            (None, None, Some(Addend::Bytes(bytes, scale))) => Added::Bytes(bytes, scale),
            (Some([factors, bias]), Some(second), None) => {
                assert_eq!(rows.groups, second.groups, "tiles of two products");
                Added::Product(second, scales(factors, bias))
            }
            _ => return None,
        };
        Some(RegisterTile {
            rows,
            scales: scales(&self.factors, &self.bias),
            added,
            y,
            sample_bytes: 4 * channels.div_ceil(4) * out_pixels,
            group_bytes: 4 * out_pixels,
            start: channel / 4 * 4 * out_pixels,
            lowest: lowest as i8,
        })
    }
}

impl RegisterTile<'_> {
    /// Multiplies and finishes a panel that consists of these runs, unless it has too few pixels: then nothing is done, and the answer is
    /// false.
    ///
    /// # Safety
    /// This CPU must have the instructions ([`has_wide`](crate::int8::has_wide)), weights and panels must be there as
    /// [`PanelTile`](crate::int8::tile::PanelTile) says, and no other block may write these pixels of these channels.
    #[inline(always)]
    pub(in crate::int8) unsafe fn panel(
        &self,
        panels: &[Option<Panel>; 2],
        runs: &[PixelRun],
    ) -> bool {
        let &[Some(panel), second] = panels else {
            return false;
        };
        // Runs of several samples are rarely in a panel that is not full.
        if panel.pixels <= FEW_PIXELS || runs.len() > 1 && panel.pixels <= 2 * LANES {
            return false;
        }
        let (Some(&run), Some(&last)) = (runs.first(), runs.last()) else {
            return false;
        };
        assert_eq!(
            last.column + last.len,
            panel.pixels,
            "runs that are the panel"
        );
        let first = self.start + self.offset(run);
        let last = self.start + self.offset(last) + 4 * last.len;
        let end = last + (self.rows.groups - 1) * self.group_bytes;
        assert!(first <= end && end <= self.y.len());
        let y = self.y.as_mut_ptr().wrapping_add(first);
        let to = Target {
            tile: self,
            rows: self.rows,
            scales: self.scales,
            group_bytes: self.group_bytes,
            lowest: self.lowest,
            panel,
            runs,
            y,
        };
        // SAFETY: passed on from the caller; results lie in the output, as asserted above, and so do bytes that are added.
        unsafe {
            match (&self.added, second) {
                (Added::Nothing, _) => to.finish(Nothing),
                (&Added::Bytes(bytes, scale), _) => {
                    to.finish(Bytes {
                        bytes: bytes[first..end].as_ptr(),
                        group_bytes: self.group_bytes,
                        scale,
                    });
                }
                (Added::Product(rows, scales), Some(second)) => {
                    let mut sums = MaybeUninit::<[GroupSums; TILE_GROUPS]>::uninit();
                    let sums = sums.as_mut_ptr().cast::<GroupSums>();
                    (rows.tile)(rows.depth, rows.a, second, rows.start, sums);
                    let scales = *scales;
                    to.finish(Product { scales, sums });
                }
                (Added::Product(..), None) => return false,
            }
        }
        true
    }

    /// Bytes from a channel's first pixel to a run.
    #[inline(always)]
    fn offset(&self, run: PixelRun) -> usize {
        run.sample * self.sample_bytes + 4 * run.pixel
    }
}

/// A panel on its way to bytes.
#[derive(Clone, Copy)]
struct Target<'a> {
    tile: &'a RegisterTile<'a>,
    // Copies of what is in the tile, which bytes that are written might overwrite for all that a compiler knows.
    rows: TileRows,
    scales: Scales,
    group_bytes: usize,
    lowest: i8,
    panel: Panel,
    /// What it consists of, in order.
    runs: &'a [PixelRun],
    /// Where the first of them goes.
    y: *mut i8,
}

impl Target<'_> {
    #[inline(always)]
    unsafe fn finish(self, added: impl Addition) {
        let vectors = self.panel.pixels.div_ceil(LANES);
        // SAFETY: passed on from the caller.
        unsafe {
            match (self.rows.groups, vectors, self.runs.len()) {
                (1, 1, 1) => self.sized::<1, 1>(added),
                (1, 2, 1) => self.sized::<1, 2>(added),
                (1, _, 1) => self.sized::<1, 3>(added),
                (_, 1, 1) => self.sized::<2, 1>(added),
                (_, 2, 1) => self.sized::<2, 2>(added),
                (_, _, 1) => self.sized::<2, 3>(added),
                (1, _, _) => self.across::<1>(added),
                (_, _, _) => self.across::<2>(added),
            }
        }
    }

    /// A panel of one run. Groups are spelled out, because sums stay in registers only where no loop counts them.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn sized<const GROUPS: usize, const VECTORS: usize>(self, added: impl Addition) {
        let rows = self.rows;
        // SAFETY: passed on from the caller.
        unsafe {
            let sums = products::<GROUPS, VECTORS>(rows.depth, rows.a, self.panel, rows.start);
            self.one_run(0, &sums[0], added);
            if GROUPS > 1 {
                self.one_run(1, &sums[GROUPS - 1], added);
            }
        }
    }

    /// A panel that lies across samples.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn across<const GROUPS: usize>(self, added: impl Addition) {
        let rows = self.rows;
        // SAFETY: passed on from the caller.
        unsafe {
            let sums = products::<GROUPS, 3>(rows.depth, rows.a, self.panel, rows.start);
            self.several_runs(0, &sums[0], added);
            if GROUPS > 1 {
                self.several_runs(1, &sums[GROUPS - 1], added);
            }
        }
    }

    #[inline(always)]
    unsafe fn one_run<const VECTORS: usize>(
        self,
        group: usize,
        sums: &[[__m512i; VECTORS]; TILE_ROWS],
        added: impl Addition,
    ) {
        for j in 0..VECTORS {
            let column = LANES * j;
            let place = Place {
                group,
                column,
                pixel: column as isize,
                mask: match j + 1 < VECTORS {
                    true => u16::MAX,
                    false => mask(self.panel.pixels - column),
                },
            };
            // SAFETY: passed on from the caller.
            unsafe { self.vector(place, column_of(sums, j), added) };
        }
    }

    /// The vectors of each run, under the masks of its pixels: what lies across two runs is finished for both.
    #[inline(always)]
    unsafe fn several_runs(
        self,
        group: usize,
        sums: &[[__m512i; 3]; TILE_ROWS],
        added: impl Addition,
    ) {
        let vectors = [column_of(sums, 0), column_of(sums, 1), column_of(sums, 2)];
        let first = self.tile.offset(self.runs[0]);
        for &run in self.runs {
            let from_first = ((self.tile.offset(run) - first) / 4) as isize;
            let columns = (u64::MAX >> (64 - run.len)) << run.column;
            let place = |j: usize| Place {
                group,
                column: LANES * j,
                pixel: from_first + (LANES * j) as isize - run.column as isize,
                mask: (columns >> (LANES * j)) as __mmask16,
            };
            // SAFETY: passed on from the caller.
            unsafe {
                if place(0).mask != 0 {
                    self.vector(place(0), vectors[0], added);
                }
                if place(1).mask != 0 {
                    self.vector(place(1), vectors[1], added);
                }
                if place(2).mask != 0 {
                    self.vector(place(2), vectors[2], added);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn vector(self, place: Place, sums: [__m512i; TILE_ROWS], added: impl Addition) {
        // SAFETY: passed on from the caller.
        unsafe {
            let steps = added.add(place, self.scales.apply(place.group, sums));
            let quads = quads_of(steps, self.lowest);
            let to = self.y.wrapping_add(place.group * self.group_bytes);
            let to = to.wrapping_offset(4 * place.pixel);
            _mm512_mask_storeu_epi32(to.cast(), place.mask, quads);
        }
    }
}

/// A vector of each row.
#[inline(always)]
fn column_of<const VECTORS: usize>(
    sums: &[[__m512i; VECTORS]; TILE_ROWS],
    j: usize,
) -> [__m512i; TILE_ROWS] {
    [sums[0][j], sums[1][j], sums[2][j], sums[3][j]]
}
