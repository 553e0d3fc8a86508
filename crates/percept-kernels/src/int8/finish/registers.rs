//! Tiles from products to bytes, without their sums ever lying in memory.
//!
//! What finishes a tile then runs beside the products of the next one, which leave the units for conversions and additions idle. A CPU
//! looks only so many instructions ahead, so that there is little else between two tiles: whole panels follow one another in one loop.

use std::arch::x86_64::*;
use std::array::from_fn;
use std::mem::MaybeUninit;

use super::tile::{PixelRun, PlacedPanel};
use super::vectors::{Addition, Bytes, LANES, Nothing, Place, Product, Scales, quads_of};
use super::{Addend, Finish, StraightOutput};
use crate::aligned::SharedMut;
use crate::int8::tile::vnni::wide::{products, vectors};
use crate::int8::tile::{FEW_PIXELS, GroupSums, Panel, TILE_ROWS, TileRows};

/// Groups of rows of a tile at most.
const GROUPS: usize = 2;

/// Rows of weights, and how their sums become bytes.
pub(in crate::int8) struct RegisterTile<'a> {
    rows: TileRows,
    scales: Scales,
    added: Added<'a>,
    y: &'a SharedMut<'a, i8>,
    /// Where the first channel lies in the first sample.
    start: usize,
    group_bytes: usize,
    sample_quads: usize,
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
            start: channel * out_pixels,
            group_bytes: 4 * out_pixels,
            sample_quads: channels.div_ceil(4) * out_pixels,
            lowest: lowest as i8,
        })
    }
}

impl RegisterTile<'_> {
    /// Multiplies and finishes the first of these panels, as many as go in one way; says how many. Panels of too few pixels are left, and
    /// those of three samples.
    ///
    /// # Safety
    /// This CPU must have the instructions ([`has_wide`](crate::int8::has_wide)), weights and panels must be there as
    /// [`PanelTile`](crate::int8::tile::PanelTile) says, and no other block may write these pixels of these channels.
    #[inline(always)]
    pub(in crate::int8) unsafe fn panels(
        &self,
        panels: &[PlacedPanel],
        runs: &[PixelRun],
    ) -> usize {
        let Some(vectors) = panels.first().map(vectors_of) else {
            return 0;
        };
        let goes = |panel: &&PlacedPanel| {
            let has_place = panel.runs.len() <= 2 && panel.pixels() > FEW_PIXELS;
            has_place && vectors_of(panel) == vectors
        };
        let panels = &panels[..panels.iter().take_while(goes).count()];
        let groups_bytes = (self.rows.groups - 1) * self.group_bytes;
        for panel in panels {
            let last = runs[panel.runs.clone()].last();
            let end = last.map_or(0, |run| {
                run.sample * self.sample_quads + run.pixel + run.len
            });
            assert!(self.start + groups_bytes + 4 * end <= self.y.len());
        }
        let target = Target {
            rows: self.rows,
            scales: self.scales,
            y: self.y.as_mut_ptr().wrapping_add(self.start),
            group_bytes: self.group_bytes,
            lowest: self.lowest,
        };
        // SAFETY: passed on from the caller; results lie in the output, as asserted above, and so do bytes that are added.
        unsafe {
            match &self.added {
                Added::Nothing => target.multiply(panels, Nothing),
                &Added::Bytes(bytes, scale) => {
                    let added = Bytes {
                        bytes: bytes[self.start..].as_ptr(),
                        group_bytes: self.group_bytes,
                        scale,
                    };
                    target.multiply(panels, added);
                }
                &Added::Product(rows, scales) => {
                    let mut sums = MaybeUninit::<[GroupSums; GROUPS]>::uninit();
                    let sums = sums.as_mut_ptr().cast::<GroupSums>();
                    let product = Product { scales, sums };
                    target.multiply(
                        panels,
                        Second {
                            rows,
                            product,
                            sums,
                        },
                    );
                }
            }
        }
        panels.len()
    }
}

fn vectors_of(panel: &PlacedPanel) -> usize {
    panel.pixels().div_ceil(LANES)
}

/// What is added to panels.
trait PanelAddition: Addition {
    /// Asks for what is added to a vector of pixels of a group, which mostly comes from far: each of it is read once.
    #[inline(always)]
    fn fetch(self, _group: usize, _quad: isize) {}

    /// Multiplies a panel whose product is added.
    ///
    /// # Safety
    /// As for [`RegisterTile::panels`].
    #[inline(always)]
    unsafe fn multiply<const GROUPS: usize, const VECTORS: usize>(self, _second: Option<Panel>) {}
}

impl PanelAddition for Nothing {}

impl PanelAddition for Bytes {
    #[inline(always)]
    fn fetch(self, group: usize, quad: isize) {
        let start = self.bytes.wrapping_add(group * self.group_bytes);
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_offset(4 * quad)) };
    }
}

/// A second product, and room for its sums.
#[derive(Clone, Copy)]
struct Second {
    rows: TileRows,
    product: Product,
    sums: *mut GroupSums,
}

impl Addition for Second {
    #[inline(always)]
    unsafe fn add(self, place: Place, values: [__m512; TILE_ROWS]) -> [__m512; TILE_ROWS] {
        // SAFETY: passed on from the caller.
        unsafe { self.product.add(place, values) }
    }
}

impl PanelAddition for Second {
    #[inline(always)]
    unsafe fn multiply<const GROUPS: usize, const VECTORS: usize>(self, second: Option<Panel>) {
        let Second { rows, sums, .. } = self;
        if let Some(panel) = second {
            // SAFETY: passed on from the caller.
            unsafe { vectors::<GROUPS, VECTORS>(rows.depth, rows.a, panel, rows.start, sums) };
        }
    }
}

/// Where tiles of some rows go. Copies of what is in [`RegisterTile`], which bytes that are written might overwrite for all that a
/// compiler knows.
#[derive(Clone, Copy)]
struct Target {
    rows: TileRows,
    scales: Scales,
    /// Where the first channel lies in the first sample.
    y: *mut i8,
    group_bytes: usize,
    lowest: i8,
}

impl Target {
    /// Panels of as many vectors.
    #[inline(always)]
    unsafe fn multiply(self, panels: &[PlacedPanel], added: impl PanelAddition) {
        let vectors = panels.first().map_or(0, vectors_of);
        // SAFETY: passed on from the caller.
        unsafe {
            match (self.rows.groups, vectors) {
                (1, 1) => self.sized::<1, 1>(panels, added),
                (1, 2) => self.sized::<1, 2>(panels, added),
                (1, _) => self.sized::<1, 3>(panels, added),
                (_, 1) => self.sized::<2, 1>(panels, added),
                (_, 2) => self.sized::<2, 2>(panels, added),
                (_, _) => self.sized::<2, 3>(panels, added),
            }
        }
    }

    /// Groups are spelled out, because sums stay in registers only where no loop counts them.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn sized<const GROUPS: usize, const VECTORS: usize>(
        self,
        panels: &[PlacedPanel],
        added: impl PanelAddition,
    ) {
        let rows = self.rows;
        for (index, placed) in panels.iter().enumerate() {
            if let Some(next) = panels.get(index + 1) {
                for group in 0..GROUPS {
                    for j in 0..VECTORS {
                        added.fetch(group, next.pieces[0].quad + (LANES * j) as isize);
                    }
                }
            }
            let &[Some(panel), second] = &placed.inputs else {
                return;
            };
            // SAFETY: passed on from the caller.
            unsafe {
                added.multiply::<GROUPS, VECTORS>(second);
                let sums = products::<GROUPS, VECTORS>(rows.depth, rows.a, panel, rows.start);
                let full = [u16::MAX; VECTORS];
                let [first, second] = placed.pieces;
                let masks: [[u16; VECTORS]; 2] =
                    [first, second].map(|piece| from_fn(|j| piece.masks[j]));
                // Masks that are known to be whole make for plain loads and stores, which are faster.
                if masks[0] == full {
                    self.groups(placed, [full, [0; VECTORS]], &sums, added);
                } else {
                    self.groups(placed, masks, &sums, added);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn groups<const GROUPS: usize, const VECTORS: usize>(
        self,
        placed: &PlacedPanel,
        masks: [[u16; VECTORS]; 2],
        sums: &[[[__m512i; VECTORS]; TILE_ROWS]; GROUPS],
        added: impl Addition,
    ) {
        let [first, second] = &placed.pieces;
        for group in 0..GROUPS {
            for j in 0..VECTORS {
                let column = LANES * j;
                let place = Place {
                    group,
                    column,
                    pixel: first.quad + column as isize,
                    mask: masks[0][j],
                    other: (second.quad + column as isize, masks[1][j]),
                };
                let row = |i: usize| sums[group][i][j];
                // SAFETY: passed on from the caller.
                unsafe { self.vector(place, [row(0), row(1), row(2), row(3)], added) };
            }
        }
    }

    #[inline(always)]
    unsafe fn vector(self, place: Place, sums: [__m512i; TILE_ROWS], added: impl Addition) {
        // SAFETY: passed on from the caller.
        unsafe {
            let steps = added.add(place, self.scales.apply(place.group, sums));
            let quads = quads_of(steps, self.lowest);
            let start = self.y.wrapping_add(place.group * self.group_bytes);
            let to = start.wrapping_offset(4 * place.pixel);
            _mm512_mask_storeu_epi32(to.cast(), place.mask, quads);
            let (other, mask) = place.other;
            if mask != 0 {
                let to = start.wrapping_offset(4 * other);
                _mm512_mask_storeu_epi32(to.cast(), mask, quads);
            }
        }
    }
}
