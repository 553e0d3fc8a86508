//! Register tiles of integer products, one set of functions for each way that a CPU multiplies bytes.
//!
//! Depth is counted in *quads*: four bytes that lie side by side, of four channels of a pixel or of four inputs of a row.
//! A *panel tile* multiplies groups of 4 rows of weights `[depth][4]` with a panel of up to 48 pixels `[depth][pixels]`. A *row
//! tile* multiplies up to 6 rows of activations, wherever they lie, with panels of 16 outputs `[depth][16]`. A *word tile*
//! multiplies groups of 4 rows with up to 48 columns of 16-bit numbers, for Winograd; its depth is counted in pairs. Sums are i32 and exact on every one of them:
//!
//! - `vpdpbusd` wants one operand without a sign: signed activations get 128 added beforehand, and the sums start that much lower.
//! - `vpmaddubsw` adds pairs of products in 16 bits, which 0..=127 times -127..=127 never leaves; two such pairs may be added
//!   before widening where the weights are bounded ([`QUAD_LIMIT`]).
//! - Signed activations on AVX2 are widened to 16 bits, and so are their weights.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;
#[cfg(target_arch = "x86_64")]
pub(super) mod vnni;

use crate::isa::Isa;

/// Rows of weights of a group.
pub(crate) const TILE_ROWS: usize = 4;
/// Groups of a panel tile at most.
pub(crate) const TILE_GROUPS: usize = 2;
/// Pixels of a panel tile at most.
pub(crate) const TILE_PIXELS: usize = 48;
/// Rows of activations of a row tile at most.
pub(crate) const ROW_TILE: usize = 6;
/// Outputs of a packed panel.
pub(crate) const ROW_OUTPUTS: usize = 16;
/// Panels of a row tile at most.
pub(crate) const ROW_PANELS: usize = 2;
/// Columns of a word tile at most.
pub(crate) const WORD_COLUMNS: usize = 48;
/// Columns of words that lie side by side.
pub(crate) const WORD_RUN: usize = 16;

/// The sums of a group of rows, `[row][pixel]`, and room for a vector that hangs over the last one.
pub(crate) type GroupSums = [i32; TILE_ROWS * TILE_PIXELS + 8];
/// No sums yet.
pub(crate) const NO_SUMS: GroupSums = [0; TILE_ROWS * TILE_PIXELS + 8];
/// The sums of a group of rows of words, `[row][column]`.
pub(crate) type WordSums = [i32; TILE_ROWS * WORD_COLUMNS];
/// The sums of a panel of outputs, `[row][output]`.
pub(crate) type PanelSums = [i32; ROW_TILE * ROW_OUTPUTS];

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

/// Pixels that lie side by side, so many quads deep as a tile is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panel {
    /// Their first quads.
    pub(crate) quads: *const u8,
    /// Quads from those to the next ones.
    pub(crate) stride: usize,
    /// How many they are.
    pub(crate) pixels: usize,
}

/// Pixels that a tile may read together, and so what must be readable from the first of a panel on is whole runs of them.
pub(crate) const READ_TOGETHER: usize = 16;

/// `sums = start + a · b` for groups of 4 rows, over `depth` quads of a panel.
///
/// Groups of `a` follow one another, and so do their starts. Whole runs of [`READ_TOGETHER`] pixels must be readable at each depth.
pub(crate) type PanelTile =
    unsafe fn(depth: usize, a: *const u8, b: Panel, start: *const i32, sums: *mut GroupSums);

/// Groups of rows that a panel tile multiplies with panels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileRows {
    /// How many groups.
    pub(crate) groups: usize,
    /// Quads that they are deep.
    pub(crate) depth: usize,
    /// Their weights.
    pub(crate) a: *const u8,
    /// What their sums start from.
    pub(crate) start: *const i32,
    /// What multiplies them.
    pub(crate) tile: PanelTile,
}

/// `sums = start + rows · b` for panels of 16 outputs, over `depth` quads. Panels of `b` follow one another, and so do their starts.
pub(crate) type RowTile = unsafe fn(
    depth: usize,
    rows: &[*const u8; ROW_TILE],
    b: *const u8,
    start: *const i32,
    sums: *mut PanelSums,
);

/// `sums = a · b` for groups of 4 rows `[depth][4]` and runs of 16 columns `[depth][16]`, pairs of words. Groups follow one another.
pub(crate) type WordTile = unsafe fn(depth: usize, a: *const i16, b: WordRuns, sums: *mut WordSums);

/// Runs of 16 columns of words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordRuns {
    /// The first.
    pub(crate) words: *const i16,
    /// Words from one to the next.
    pub(crate) stride: usize,
    /// How many they are, up to three.
    pub(crate) count: usize,
}

/// The functions for one kind of operands on one instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles {
    /// How they read weights.
    pub(crate) width: Width,
    /// Whether they want 128 added to activations: then sums start at -128 times the sum of the weights.
    pub(crate) lifts: bool,
    /// Pixels of a panel at most.
    pub(crate) pixels: usize,
    /// For one group, and for two where there is such a tile.
    panel: [Option<PanelTile>; TILE_GROUPS],
    /// For one panel, and for two where there is such a tile; up to 2, 4 and 6 rows.
    rows: [Option<[RowTile; 3]>; ROW_PANELS],
}

impl Tiles {
    /// The fastest for an instruction set that this CPU has.
    pub(crate) fn new(isa: Isa, operands: Operands) -> Tiles {
        assert!(isa.is_supported(), "{isa} on a CPU that does not have it");
        match isa {
            Isa::Portable => portable::TILES,
            #[cfg(target_arch = "x86_64")]
            _ if isa.has_byte_dots() => vnni::tiles(operands),
            #[cfg(target_arch = "x86_64")]
            _ => avx2::tiles(operands),
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("refused above"),
        }
    }

    /// What sums start at, in units of the sum of the weights.
    pub(crate) fn start_factor(&self) -> i32 {
        if self.lifts { -128 } else { 0 }
    }

    /// The tile for up to so many groups of rows, and how many it takes.
    #[inline(always)]
    pub(crate) fn panel(&self, groups: usize) -> (PanelTile, usize) {
        match self.panel {
            [_, Some(two)] if groups > 1 => (two, 2),
            [Some(one), _] => (one, 1),
            _ => unreachable!("every set has a tile for one group"),
        }
    }

    /// The tile for so many rows and up to so many panels, and how many panels it takes.
    #[inline(always)]
    pub(crate) fn rows(&self, rows: usize, panels: usize) -> (RowTile, usize) {
        let size = rows.div_ceil(2) - 1;
        match self.rows {
            [_, Some(two)] if panels > 1 => (two[size], 2),
            [Some(one), _] => (one[size], 1),
            _ => unreachable!("every set has tiles for one panel"),
        }
    }
}

/// Adds 128 to bytes: what their sign bit does when it is read as a number.
pub(crate) fn lift(bytes: &mut [i8]) {
    bytes.iter_mut().for_each(|byte| *byte ^= i8::MIN);
}

/// Tiles of words on an instruction set: for one group, and for two where there is such a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordTiles([Option<WordTile>; TILE_GROUPS]);

impl WordTiles {
    /// The fastest for an instruction set that this CPU has.
    pub(crate) fn new(isa: Isa) -> WordTiles {
        assert!(isa.is_supported(), "{isa} on a CPU that does not have it");
        match isa {
            Isa::Portable => WordTiles([Some(portable::word_tile), None]),
            #[cfg(target_arch = "x86_64")]
            _ if isa.has_byte_dots() => vnni::word_tiles(),
            #[cfg(target_arch = "x86_64")]
            _ => WordTiles([Some(avx2::word_tile), None]),
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("refused above"),
        }
    }

    /// The tile for up to so many groups of rows, and how many it takes.
    #[inline(always)]
    pub(crate) fn get(&self, groups: usize) -> (WordTile, usize) {
        match self.0 {
            [_, Some(two)] if groups > 1 => (two, 2),
            [Some(one), _] => (one, 1),
            _ => unreachable!("every set has a tile for one group"),
        }
    }
}

#[cfg(test)]
mod tests;
