//! Register tiles of integer products, one set of functions for each way that a CPU multiplies bytes.
//!
//! Depth is counted in *quads*: four bytes that lie side by side, of four channels of a pixel or of four inputs of a row.
//! A *panel tile* multiplies 4 rows of weights `[depth][4]` with a panel of up to 24 pixels `[depth][8 * vectors]`. A *row tile*
//! multiplies up to 6 rows of activations, wherever they lie, with a panel of 16 outputs `[depth][16]`. A *word tile*
//! multiplies 4 rows with 12 columns of 16-bit numbers, for Winograd. Sums are i32 and exact on every one of them:
//!
//! - `vpdpbusd` wants one operand without a sign: signed activations get 128 added on the way, and the sums start that much lower.
//! - `vpmaddubsw` adds pairs of products in 16 bits, which 0..=127 times -127..=127 never leaves; two such pairs may be added
//!   before widening where the weights are bounded ([`QUAD_LIMIT`]).
//! - Signed activations on AVX2 are widened to 16 bits, and so are their weights.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;
#[cfg(target_arch = "x86_64")]
mod vnni;

use crate::isa::Isa;

/// Rows of weights of a panel tile.
pub(crate) const TILE_ROWS: usize = 4;
/// Pixels of a panel tile at most.
pub(crate) const TILE_PIXELS: usize = 24;
/// Rows of activations of a row tile at most.
pub(crate) const ROW_TILE: usize = 6;
/// Outputs of a row tile.
pub(crate) const ROW_OUTPUTS: usize = 16;
/// Columns of a word tile.
pub(crate) const WORD_COLUMNS: usize = 12;

/// What the positive weights of a group of four may sum to at most, and the negative ones: then 127 times them, from four
/// products, fits 16 bits.
pub const QUAD_LIMIT: i32 = i16::MAX as i32 / 127;

/// What is known of activations and weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operands {
    /// Activations in 0..=127, and weights within [`QUAD_LIMIT`].
    Bounded,
    /// Activations in 0..=127.
    Positive,
    /// Activations of both signs.
    Signed,
}

/// How numbers of packed weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Byte,
    Word,
}

/// `sums[4][24] = start + a · b` over `depth` quads.
pub(crate) type PanelTile =
    unsafe fn(depth: usize, a: *const u8, b: *const u8, start: &[i32; TILE_ROWS], sums: *mut i32);

/// `sums[6][16] = start + rows · b` over `depth` quads.
pub(crate) type RowTile = unsafe fn(
    depth: usize,
    rows: &[*const u8; ROW_TILE],
    b: *const u8,
    start: *const i32,
    sums: *mut i32,
);

/// `sums[4 rows, stride apart][12] = a · b` over `depth` quads of words; quads of `b` are `b_stride` words apart.
pub(crate) type WordTile = unsafe fn(
    depth: usize,
    a: *const i16,
    b: *const i16,
    b_stride: usize,
    sums: *mut i32,
    stride: usize,
);

/// The functions for one kind of operands on one instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles {
    /// How they read weights.
    pub(crate) width: Width,
    /// Sums start at this times the sum of the weights.
    pub(crate) start_factor: i32,
    /// For 8, 16 and 24 pixels.
    pub(crate) panel: [PanelTile; 3],
    /// For up to 2, 4 and 6 rows.
    pub(crate) rows: [RowTile; 3],
}

impl Tiles {
    /// The fastest for an instruction set that this CPU has.
    pub(crate) fn new(isa: Isa, operands: Operands) -> Tiles {
        assert!(isa.is_supported(), "{isa} on a CPU that does not have it");
        match isa {
            Isa::Portable => portable::TILES,
            #[cfg(target_arch = "x86_64")]
            _ if isa.has_byte_dots() && vnni::has_evex() => vnni::evex::tiles(operands),
            #[cfg(target_arch = "x86_64")]
            _ if isa.has_byte_dots() => vnni::vex::tiles(operands),
            #[cfg(target_arch = "x86_64")]
            _ => avx2::tiles(operands),
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("refused above"),
        }
    }

    /// The tile for so many vectors of 8 pixels.
    #[inline(always)]
    pub(crate) fn panel(&self, vectors: usize) -> PanelTile {
        self.panel[vectors - 1]
    }

    /// The tile for so many rows.
    #[inline(always)]
    pub(crate) fn rows(&self, rows: usize) -> RowTile {
        self.rows[rows.div_ceil(2) - 1]
    }
}

/// The word tile of an instruction set that this CPU has.
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) fn word_tile(isa: Isa) -> WordTile {
    assert!(isa.is_supported(), "{isa} on a CPU that does not have it");
    match isa {
        Isa::Portable => portable::word_tile,
        #[cfg(target_arch = "x86_64")]
        _ if isa.has_byte_dots() && vnni::has_evex() => vnni::evex::word_tile,
        #[cfg(target_arch = "x86_64")]
        _ if isa.has_byte_dots() => vnni::vex::word_tile,
        #[cfg(target_arch = "x86_64")]
        _ => avx2::word_tile,
        #[cfg(not(target_arch = "x86_64"))]
        _ => unreachable!("refused above"),
    }
}

#[cfg(test)]
mod tests;
