//! Tiles from products to bytes, without their sums ever lying in memory.
//!
//! What finishes a tile then runs beside the products of the next one, which leave the units for conversions and additions idle.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::tile::PixelRun;
use super::vectors::{Addition, Bytes, LANES, Nothing, Place, Product, Scales, mask, quads_of};
use super::{Addend, Finish, SharedOutput};
use crate::activation::Activation;
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
    /// Steps to the unit.
    per_unit: f32,
    /// The smallest byte.
    lowest: f32,
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
    /// For rows of one product or of two, when results are bytes behind a straight activation and no floats are added.
    pub(in crate::int8) fn in_registers(
        &self,
        weights: [Option<TileRows>; 2],
        channel: usize,
        channels: usize,
        out_pixels: usize,
    ) -> Option<RegisterTile<'_>> {
        let (SharedOutput::Bytes(y, scale, lowest), Activation::Identity) =
            (&self.output, self.activation)
        else {
            return None;
        };
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
            per_unit: 1.0 / scale.scale,
            lowest: *lowest,
        })
    }
}

impl RegisterTile<'_> {
    /// Multiplies and finishes a panel of one run, unless it has too few pixels: then nothing is done, and the answer is false.
    ///
    /// # Safety
    /// This CPU must have the instructions ([`has_wide`](crate::int8::has_wide)), weights and panels must be there as
    /// [`PanelTile`](crate::int8::tile::PanelTile) says, and no other block may write these pixels of these channels.
    #[inline(always)]
    pub(in crate::int8) unsafe fn panel(&self, panels: &[Option<Panel>; 2], run: PixelRun) -> bool {
        let &[Some(panel), second] = panels else {
            return false;
        };
        if panel.pixels <= FEW_PIXELS {
            return false;
        }
        assert_eq!(run.len, panel.pixels, "a run that is the panel");
        let start = self.start + run.sample * self.sample_bytes + 4 * run.pixel;
        let end = start + (self.rows.groups - 1) * self.group_bytes + 4 * run.len;
        assert!(end <= self.y.len());
        let y = self.y.as_mut_ptr().wrapping_add(start);
        let to = Target {
            tile: self,
            panel,
            y,
        };
        // SAFETY: passed on from the caller; results lie in the output, as asserted above, and so do bytes that are added.
        unsafe {
            match (&self.added, second) {
                (Added::Nothing, _) => to.finish(Nothing),
                (&Added::Bytes(bytes, scale), _) => {
                    to.finish(Bytes {
                        bytes: bytes[start..end].as_ptr(),
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
}

/// A panel on its way to bytes.
#[derive(Clone, Copy)]
struct Target<'a> {
    tile: &'a RegisterTile<'a>,
    panel: Panel,
    y: *mut i8,
}

impl Target<'_> {
    #[inline(always)]
    unsafe fn finish(self, added: impl Addition) {
        let vectors = self.panel.pixels.div_ceil(LANES);
        // SAFETY: passed on from the caller.
        unsafe {
            match (self.tile.rows.groups, vectors) {
                (1, 1) => self.sized::<1, 1>(added),
                (1, 2) => self.sized::<1, 2>(added),
                (1, _) => self.sized::<1, 3>(added),
                (_, 1) => self.sized::<2, 1>(added),
                (_, 2) => self.sized::<2, 2>(added),
                (_, _) => self.sized::<2, 3>(added),
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn sized<const GROUPS: usize, const VECTORS: usize>(self, added: impl Addition) {
        let rows = &self.tile.rows;
        // SAFETY: passed on from the caller. Groups are spelled out, because sums stay in registers only where no loop counts them.
        unsafe {
            let sums = products::<GROUPS, VECTORS>(rows.depth, rows.a, self.panel, rows.start);
            self.group(0, &sums[0], added);
            if GROUPS > 1 {
                self.group(1, &sums[GROUPS - 1], added);
            }
        }
    }

    #[inline(always)]
    unsafe fn group<const VECTORS: usize>(
        self,
        group: usize,
        sums: &[[__m512i; VECTORS]; TILE_ROWS],
        added: impl Addition,
    ) {
        let tile = self.tile;
        for j in 0..VECTORS {
            let column = LANES * j;
            let place = Place {
                group,
                column,
                pixel: column,
                mask: match j + 1 < VECTORS {
                    true => u16::MAX,
                    false => mask(self.panel.pixels - column),
                },
            };
            // SAFETY: passed on from the caller.
            unsafe {
                let mut rows = [_mm512_setzero_si512(); TILE_ROWS];
                for i in 0..TILE_ROWS {
                    rows[i] = sums[i][j];
                }
                let values = added.add(place, tile.scales.apply(group, rows));
                let quads = quads_of(values, tile.per_unit, tile.lowest);
                let to = self.y.add(group * tile.group_bytes + 4 * column);
                _mm512_mask_storeu_epi32(to.cast(), place.mask, quads);
            }
        }
    }
}
