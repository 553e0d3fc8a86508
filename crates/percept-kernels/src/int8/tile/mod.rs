//! Register tiles of integer products, one set of functions for each way that a CPU multiplies bytes.
//!
//! Depth is counted in *quads*: four bytes that lie side by side, of four channels of a pixel or of four inputs of a row.
//! A *panel tile* multiplies groups of 4 rows of weights, packed as it wants them, with a panel of up to 48 pixels `[depth][pixels]`. A *row
//! tile* multiplies up to 6 rows of activations, wherever they lie, with panels of 16 outputs `[depth][16]`. A *word tile*
//! multiplies groups of 4 rows with up to 48 columns of 16-bit numbers, for Winograd; its depth is counted in pairs. Sums are i32 and exact on every one of them:
//!
//! - `vpdpbusd` wants one operand without a sign: signed activations get 128 added beforehand, and the sums start that much lower.
//! - `vpmaddubsw` adds pairs of products in 16 bits, which 0..=127 times -127..=127 never leaves; two such pairs may be added
//!   before widening where the weights are bounded ([`QUAD_LIMIT`]).
//! - Signed activations on AVX2 are widened to 16 bits, and so are their weights.
//! - AMX multiplies signed bytes, 16 rows of weights with 16 pixels at a time; only panel tiles use it.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;
#[cfg(target_arch = "x86_64")]
pub(super) mod vnni;

use crate::isa::Isa;

#[cfg(target_arch = "x86_64")]
pub(super) use amx::TileRegisters;
#[cfg(target_arch = "x86_64")]
pub(crate) use amx::is_supported as has_matrix_tiles;

/// Rows of weights of a group.
pub(crate) const TILE_ROWS: usize = 4;
/// Groups of a panel tile at most.
pub(crate) const TILE_GROUPS: usize = 8;
/// Pixels of a panel tile at most.
pub(crate) const TILE_PIXELS: usize = 48;
/// Pixels of a panel that leave most of a vector empty, at most.
pub(crate) const FEW_PIXELS: usize = 8;
/// Rows of activations of a row tile at most.
pub(crate) const ROW_TILE: usize = 6;
/// Outputs of a packed panel.
pub(crate) const ROW_OUTPUTS: usize = 16;
/// Panels of a row tile at most.
pub(crate) const ROW_PANELS: usize = 2;
/// Columns of a word tile at most.
pub(crate) const WORD_COLUMNS: usize = 48;
/// Groups of a word tile at most.
const WORD_GROUPS: usize = 2;
/// Columns of words that lie side by side.
pub(crate) const WORD_RUN: usize = 16;

/// Sums from one row of a group to the next: whole lines of the cache, with room for a vector that hangs over the last pixel.
pub(crate) const SUM_ROW: usize = 64;

/// The sums of a group of rows, `[row][pixel]`. Groups follow one another, so that their rows do.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct GroupSums(pub(crate) [i32; TILE_ROWS * SUM_ROW]);

// SAFETY: plain numbers, of which any bits are some, and whole lines without padding.
unsafe impl bytemuck::Zeroable for GroupSums {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for GroupSums {}

impl GroupSums {
    /// No sums yet.
    pub(crate) const NONE: GroupSums = GroupSums([0; TILE_ROWS * SUM_ROW]);
}

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
/// Groups of `a` follow one another as they were [packed](Packing), and so do their starts. Whole runs of [`READ_TOGETHER`] pixels must be
/// readable at each depth.
pub(crate) type PanelTile =
    unsafe fn(depth: usize, a: *const u8, b: Panel, start: *const i32, sums: *mut GroupSums);

/// Quads of a panel that tiles read together when it was spread.
pub(crate) const SPREAD_DEEP: usize = 4;

/// Writes a panel of [`FEW_PIXELS`] at most as `[depth / 4][pixel][4 quads][each four times]`, for one, four or eight pixels, whichever it
/// has at most: vectors that are multiplied with those of four rows of weights four quads deep. What lies behind its depth is zero.
pub(crate) type Spread = unsafe fn(depth: usize, b: Panel, to: *mut u8);

/// How a tile reads weights: `[rows / height][depth / deep][height][deep]` quads, filled up with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    pub(crate) height: usize,
    pub(crate) deep: usize,
}

impl Packing {
    /// One quad of each row of a group behind the other.
    const GROUPS: Packing = Packing {
        height: TILE_ROWS,
        deep: 1,
    };
    /// One quad of each output of a panel behind the other, as row tiles read them.
    pub(crate) const PANELS: Packing = Packing {
        height: ROW_OUTPUTS,
        deep: 1,
    };
}

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

/// The panel tiles for one kind of operands on one instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PanelTiles {
    /// How numbers of weights are stored.
    pub(crate) width: Width,
    /// How weights are packed.
    pub(crate) packing: Packing,
    /// Whether they want 128 added to activations: then sums start at -128 times the sum of the weights.
    pub(crate) lifts: bool,
    /// Pixels of a panel at most.
    pub(crate) pixels: usize,
    /// For few groups of rows and for many, with how many each takes.
    tiles: [(PanelTile, usize); 2],
    /// Lays out panels of few pixels as tiles read them then; where there is none, they are read as others are.
    spread: Option<Spread>,
}

impl PanelTiles {
    /// The fastest for an instruction set that this CPU has.
    pub(crate) fn new(isa: Isa, operands: Operands) -> PanelTiles {
        assert!(isa.is_supported(), "{isa} on a CPU that does not have it");
        match isa {
            Isa::Portable => portable::PANEL_TILES,
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => amx::PANEL_TILES,
            #[cfg(target_arch = "x86_64")]
            _ if isa.has_byte_dots() => vnni::panel_tiles(operands),
            #[cfg(target_arch = "x86_64")]
            _ => avx2::panel_tiles(operands),
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("refused above"),
        }
    }

    /// What sums start at, in units of the sum of the weights.
    pub(crate) fn start_factor(&self) -> i32 {
        start_factor(self.lifts)
    }

    /// Quads that weights of so many are filled up to.
    pub(crate) fn depth(&self, quads: usize) -> usize {
        quads.next_multiple_of(self.packing.deep)
    }

    /// Whether they use registers that a thread has to [take](TileRegisters::take), and leave sums in memory.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_own_registers(&self) -> bool {
        self.packing.deep > 1
    }

    /// What lays out a panel of so many pixels as tiles read it, where that is another way than as it was gathered.
    pub(crate) fn spread(&self, pixels: usize) -> Option<Spread> {
        self.spread.filter(|_| (1..=FEW_PIXELS).contains(&pixels))
    }

    /// The tile for up to so many groups of rows, and how many of them it takes.
    #[inline(always)]
    pub(crate) fn get(&self, groups: usize) -> (PanelTile, usize) {
        let [few, many] = self.tiles;
        let (tile, most) = if groups > few.1 { many } else { few };
        (tile, groups.min(most))
    }
}

/// The row tiles for one kind of operands on one instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowTiles {
    /// How numbers of weights are stored.
    pub(crate) width: Width,
    /// Whether they want 128 added to activations: then sums start at -128 times the sum of the weights.
    pub(crate) lifts: bool,
    /// For one panel, and for two where there is such a tile; up to 2, 4 and 6 rows.
    tiles: [Option<[RowTile; 3]>; ROW_PANELS],
}

impl RowTiles {
    /// The fastest for an instruction set that this CPU has.
    pub(crate) fn new(isa: Isa, operands: Operands) -> RowTiles {
        assert!(isa.is_supported(), "{isa} on a CPU that does not have it");
        match isa {
            Isa::Portable => portable::ROW_TILES,
            #[cfg(target_arch = "x86_64")]
            _ if isa.has_byte_dots() => vnni::row_tiles(operands),
            #[cfg(target_arch = "x86_64")]
            _ => avx2::row_tiles(operands),
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("refused above"),
        }
    }

    /// What sums start at, in units of the sum of the weights.
    pub(crate) fn start_factor(&self) -> i32 {
        start_factor(self.lifts)
    }

    /// The tile for so many rows and up to so many panels, and how many panels it takes.
    #[inline(always)]
    pub(crate) fn get(&self, rows: usize, panels: usize) -> (RowTile, usize) {
        let size = rows.div_ceil(2) - 1;
        match self.tiles {
            [_, Some(two)] if panels > 1 => (two[size], 2),
            [Some(one), _] => (one[size], 1),
            _ => unreachable!("every set has tiles for one panel"),
        }
    }
}

fn start_factor(lifts: bool) -> i32 {
    if lifts { -128 } else { 0 }
}

/// Adds 128 to bytes: what their sign bit does when it is read as a number.
pub(crate) fn lift(bytes: &mut [i8]) {
    bytes.iter_mut().for_each(|byte| *byte ^= i8::MIN);
}

/// Tiles of words on an instruction set: for one group, and for two where there is such a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordTiles([Option<WordTile>; WORD_GROUPS]);

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
