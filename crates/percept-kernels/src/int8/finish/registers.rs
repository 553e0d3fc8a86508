//! Tiles from products to bytes, without their sums ever lying in memory.
//!
//! What finishes a tile then runs beside the products of the next one, which leave the units for conversions and additions idle.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::tile::PixelRun;
use super::wide::{mask, quads_of, widen};
use super::{Addend, Finish, SharedOutput};
use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::int8::tile::vnni::wide::products;
use crate::int8::tile::{GroupSums, Panel, SUM_ROW, TILE_GROUPS, TILE_ROWS, TileRows};

const LANES: usize = 16;
/// Fewer pixels are multiplied in another way.
const FEWEST: usize = 9;

/// Rows of weights, and how their sums become bytes.
pub(in crate::int8) struct RegisterTile<'a> {
    weights: ScaledRows,
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
    Product(ScaledRows),
}

/// Rows of weights with the factor and the bias of each.
#[derive(Clone, Copy)]
struct ScaledRows {
    rows: TileRows,
    factors: *const f32,
    bias: *const f32,
}

impl ScaledRows {
    fn new(rows: TileRows, channel: usize, factors: &[f32], bias: &[f32]) -> ScaledRows {
        let channels = channel..channel + rows.groups * TILE_ROWS;
        ScaledRows {
            rows,
            factors: factors[channels.clone()].as_ptr(),
            bias: bias[channels].as_ptr(),
        }
    }

    /// The sums of a vector of pixels of a group with their factors and biases.
    ///
    /// # Safety
    /// This CPU must have the instructions, and the tile the group.
    #[inline(always)]
    unsafe fn scale(&self, g: usize, sums: [__m512i; TILE_ROWS]) -> [__m512; TILE_ROWS] {
        // SAFETY: passed on from the caller; `new` saw factors and biases for all groups.
        unsafe {
            let mut values = [_mm512_setzero_ps(); TILE_ROWS];
            for i in 0..TILE_ROWS {
                let row = g * TILE_ROWS + i;
                let factor = _mm512_set1_ps(*self.factors.add(row));
                let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[i]), factor);
                values[i] = _mm512_add_ps(scaled, _mm512_set1_ps(*self.bias.add(row)));
            }
            values
        }
    }
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
        let added = match (&self.added, weights[1], self.residual) {
            (None, None, None) => Added::Nothing,
            (None, None, Some(Addend::Bytes(bytes, scale))) => Added::Bytes(bytes, scale),
            (Some([factors, bias]), Some(rows), None) => {
                Added::Product(ScaledRows::new(rows, channel, factors, bias))
            }
            _ => return None,
        };
        let first = weights[0]?;
        let groups = weights[1].map_or(first.groups, |rows| rows.groups);
        assert_eq!(first.groups, groups, "tiles of two products");
        Some(RegisterTile {
            weights: ScaledRows::new(first, channel, &self.factors, &self.bias),
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
        if panel.pixels < FEWEST {
            return false;
        }
        assert_eq!(run.len, panel.pixels, "a run that is the panel");
        let start = self.start + run.sample * self.sample_bytes + 4 * run.pixel;
        let groups = self.weights.rows.groups;
        let end = start + (groups - 1) * self.group_bytes + 4 * run.len;
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
                    let bytes = bytes[start..end].as_ptr();
                    to.finish(Bytes { bytes, scale });
                }
                (Added::Product(weights), Some(second)) => {
                    let mut sums = MaybeUninit::<[GroupSums; TILE_GROUPS]>::uninit();
                    let (rows, to_sums) = (&weights.rows, sums.as_mut_ptr().cast::<GroupSums>());
                    (rows.tile)(rows.depth, rows.a, second, rows.start, to_sums);
                    let sums = to_sums.cast();
                    to.finish(Product { weights, sums });
                }
                (Added::Product(_), None) => return false,
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
            match (self.tile.weights.rows.groups, vectors) {
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
        let rows = &self.tile.weights.rows;
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
        g: usize,
        sums: &[[__m512i; VECTORS]; TILE_ROWS],
        added: impl Addition,
    ) {
        for j in 0..VECTORS {
            let mask = match j + 1 < VECTORS {
                true => u16::MAX,
                false => mask(self.panel.pixels - j * LANES),
            };
            let at = g * self.tile.group_bytes + 4 * LANES * j;
            // SAFETY: passed on from the caller.
            unsafe {
                let mut sums_of_vector = [_mm512_setzero_si512(); TILE_ROWS];
                for i in 0..TILE_ROWS {
                    sums_of_vector[i] = sums[i][j];
                }
                let values = self.tile.weights.scale(g, sums_of_vector);
                let values = added.add([g, j, at], mask, values);
                let quads = quads_of(values, self.tile.per_unit, self.tile.lowest);
                _mm512_mask_storeu_epi32(self.y.add(at).cast(), mask, quads);
            }
        }
    }
}

/// What is added to the values of a vector.
trait Addition: Copy {
    /// To those of vector j of group g, whose quads lie so many bytes behind the panel's first.
    ///
    /// # Safety
    /// This CPU must have the instructions, and what is added must be there.
    unsafe fn add(
        self,
        place: [usize; 3],
        mask: __mmask16,
        values: [__m512; TILE_ROWS],
    ) -> [__m512; TILE_ROWS];
}

#[derive(Clone, Copy)]
struct Nothing;

impl Addition for Nothing {
    #[inline(always)]
    unsafe fn add(
        self,
        _: [usize; 3],
        _: __mmask16,
        values: [__m512; TILE_ROWS],
    ) -> [__m512; TILE_ROWS] {
        values
    }
}

#[derive(Clone, Copy)]
struct Bytes {
    /// Those of the first group.
    bytes: *const i8,
    scale: f32,
}

impl Addition for Bytes {
    #[inline(always)]
    unsafe fn add(
        self,
        [_, _, at]: [usize; 3],
        mask: __mmask16,
        mut values: [__m512; TILE_ROWS],
    ) -> [__m512; TILE_ROWS] {
        // SAFETY: passed on from the caller.
        unsafe {
            let added = widen(_mm512_maskz_loadu_epi32(mask, self.bytes.add(at).cast()));
            for i in 0..TILE_ROWS {
                let added = _mm512_mul_ps(added[i], _mm512_set1_ps(self.scale));
                values[i] = _mm512_add_ps(values[i], added);
            }
        }
        values
    }
}

/// The sums of a second product. They lie in memory: registers are for those of the first.
#[derive(Clone, Copy)]
struct Product<'a> {
    weights: &'a ScaledRows,
    sums: *const i32,
}

impl Addition for Product<'_> {
    #[inline(always)]
    unsafe fn add(
        self,
        [g, j, _]: [usize; 3],
        _: __mmask16,
        mut values: [__m512; TILE_ROWS],
    ) -> [__m512; TILE_ROWS] {
        // SAFETY: passed on from the caller.
        unsafe {
            let group = self.sums.cast::<GroupSums>().add(g).cast::<i32>();
            let mut sums = [_mm512_setzero_si512(); TILE_ROWS];
            for i in 0..TILE_ROWS {
                sums[i] = _mm512_loadu_si512(group.add(i * SUM_ROW + LANES * j).cast());
            }
            let added = self.weights.scale(g, sums);
            for i in 0..TILE_ROWS {
                values[i] = _mm512_add_ps(values[i], added[i]);
            }
        }
        values
    }
}
