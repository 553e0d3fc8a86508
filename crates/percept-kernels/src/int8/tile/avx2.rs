//! Tiles by `vpmaddubsw` and `vpmaddwd`.

use std::arch::x86_64::*;

use super::{
    GroupSums, Operands, Packing, Panel, PanelSums, PanelTiles, ROW_OUTPUTS, ROW_TILE, RowTiles,
    SUM_ROW, TILE_ROWS, WORD_COLUMNS, WORD_RUN, Width, WordRuns, WordSums,
};

pub(super) fn panel_tiles(operands: Operands) -> PanelTiles {
    let (width, tile) = match operands {
        Operands::Bounded => (Width::Byte, panel_quads as super::PanelTile),
        Operands::Positive => (Width::Byte, panel_chain as super::PanelTile),
        Operands::Signed => (Width::Word, panel_words as super::PanelTile),
    };
    PanelTiles {
        width,
        packing: Packing::GROUPS,
        lifts: false,
        pixels: 24,
        tiles: [(tile, 1); 2],
        spread: None,
    }
}

pub(super) fn row_tiles(operands: Operands) -> RowTiles {
    let (width, tiles): (_, [super::RowTile; 3]) = match operands {
        Operands::Bounded => (
            Width::Byte,
            [rows::<2, true>, rows::<4, true>, rows::<6, true>],
        ),
        Operands::Positive => (
            Width::Byte,
            [rows::<2, false>, rows::<4, false>, rows::<6, false>],
        ),
        Operands::Signed => (
            Width::Word,
            [row_words::<2>, row_words::<4>, row_words::<6>],
        ),
    };
    RowTiles {
        width,
        lifts: false,
        tiles: [Some(tiles), None],
    }
}

/// The sums of neighbouring lanes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_halves(v: __m256i) -> __m128i {
    let pairs = _mm256_hadd_epi32(v, v);
    _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b10_00>(pairs))
}

/// Adds the four products of each quad to sums: pairs in 16 bits, which they never leave, then in 32.
#[inline]
#[target_feature(enable = "avx2")]
fn add_chain(sum: __m256i, positive: __m256i, signed: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(positive, signed);
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// [`add_chain`] for two quads at once, whose pairs still fit 16 bits together because the weights are bounded.
#[inline]
#[target_feature(enable = "avx2")]
fn add_two(sum: __m256i, positive: [__m256i; 2], signed: [__m256i; 2]) -> __m256i {
    let first = _mm256_maddubs_epi16(positive[0], signed[0]);
    let second = _mm256_maddubs_epi16(positive[1], signed[1]);
    let pairs = _mm256_add_epi16(first, second);
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// Two vectors of pixels at a time: with four rows they fill the registers.
#[target_feature(enable = "avx2")]
unsafe fn panel_quads(
    depth: usize,
    a: *const u8,
    b: Panel,
    start: *const i32,
    sums: *mut GroupSums,
) {
    for pixel in (0..b.pixels).step_by(16) {
        // SAFETY: the parts lie side by side in what the caller gives.
        unsafe {
            let (part, sums) = (b.quads.add(4 * pixel), sums.cast::<i32>().add(pixel));
            if b.pixels - pixel > 8 {
                quads::<2>(depth, a, part, b.stride, start, sums);
            } else {
                quads::<1>(depth, a, part, b.stride, start, sums);
            }
        }
    }
}

/// A part of a panel, two quads of depth in a step; depth is even.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn quads<const VECTORS: usize>(
    depth: usize,
    a: *const u8,
    b: *const u8,
    stride: usize,
    start: *const i32,
    sums: *mut i32,
) {
    // SAFETY: the caller gives 4 sums to start from.
    let mut tile = unsafe { start_panel::<VECTORS>(start) };
    let (mut a, mut b) = (a.cast::<i32>(), b.cast::<i32>());
    for _ in 0..depth / 2 {
        // SAFETY: the caller gives `depth` quads of 4 rows and of the panel.
        unsafe {
            let mut columns = [[_mm256_setzero_si256(); 2]; VECTORS];
            for j in 0..VECTORS {
                columns[j] = [
                    _mm256_loadu_si256(b.add(8 * j).cast()),
                    _mm256_loadu_si256(b.add(stride + 8 * j).cast()),
                ];
            }
            for i in 0..TILE_ROWS {
                let row = [
                    _mm256_set1_epi32(a.add(i).read_unaligned()),
                    _mm256_set1_epi32(a.add(TILE_ROWS + i).read_unaligned()),
                ];
                for j in 0..VECTORS {
                    tile[i][j] = add_two(tile[i][j], columns[j], row);
                }
            }
            a = a.add(2 * TILE_ROWS);
            b = b.add(2 * stride);
        }
    }
    // SAFETY: the caller gives the sums of a group.
    unsafe { store_panel(&tile, sums) };
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn start_panel<const VECTORS: usize>(
    start: *const i32,
) -> [[__m256i; VECTORS]; TILE_ROWS] {
    let mut tile = [[_mm256_setzero_si256(); VECTORS]; TILE_ROWS];
    for i in 0..TILE_ROWS {
        // SAFETY: passed on from the caller.
        tile[i] = [unsafe { _mm256_set1_epi32(*start.add(i)) }; VECTORS];
    }
    tile
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn store_panel<const VECTORS: usize>(
    tile: &[[__m256i; VECTORS]; TILE_ROWS],
    sums: *mut i32,
) {
    for i in 0..TILE_ROWS {
        for j in 0..VECTORS {
            // SAFETY: passed on from the caller.
            unsafe {
                let to = sums.add(i * SUM_ROW + 8 * j);
                _mm256_storeu_si256(to.cast(), tile[i][j]);
            }
        }
    }
}

/// One vector at a time: with more there would be no registers left for the steps between.
#[target_feature(enable = "avx2")]
unsafe fn panel_chain(
    depth: usize,
    a: *const u8,
    b: Panel,
    start: *const i32,
    sums: *mut GroupSums,
) {
    for pixel in (0..b.pixels).step_by(8) {
        // SAFETY: the caller gives 4 sums to start from.
        let mut tile = unsafe { start_panel::<1>(start) };
        for k in 0..depth {
            // SAFETY: the caller gives `depth` quads of 4 rows and of the panel.
            unsafe {
                let column = b.quads.cast::<i32>().add(k * b.stride + pixel);
                let column = _mm256_loadu_si256(column.cast());
                let a = a.cast::<i32>().add(k * TILE_ROWS);
                for i in 0..TILE_ROWS {
                    let row = _mm256_set1_epi32(a.add(i).read_unaligned());
                    tile[i][0] = add_chain(tile[i][0], column, row);
                }
            }
        }
        // SAFETY: the caller gives the sums of a group.
        unsafe { store_panel(&tile, sums.cast::<i32>().add(pixel)) };
    }
}

/// Rows of activations: the weights are the second operand, straight from memory.
#[target_feature(enable = "avx2")]
unsafe fn rows<const ROWS: usize, const BOUNDED: bool>(
    depth: usize,
    rows: &[*const u8; ROW_TILE],
    b: *const u8,
    start: *const i32,
    sums: *mut PanelSums,
) {
    const VECTORS: usize = ROW_OUTPUTS / 8;
    let mut tile = [[_mm256_setzero_si256(); VECTORS]; ROWS];
    for i in 0..ROWS {
        for j in 0..VECTORS {
            // SAFETY: the caller gives 16 sums to start from.
            tile[i][j] = unsafe { _mm256_loadu_si256(start.add(8 * j).cast()) };
        }
    }
    let b = b.cast::<__m256i>();
    // SAFETY: the caller gives `depth` quads of each row and of the panel.
    let quad = |i: usize, k: usize| unsafe { rows[i].cast::<i32>().add(k).read_unaligned() };
    let mut k = 0;
    while BOUNDED && k + 2 <= depth {
        for i in 0..ROWS {
            let row = [
                _mm256_set1_epi32(quad(i, k)),
                _mm256_set1_epi32(quad(i, k + 1)),
            ];
            for j in 0..VECTORS {
                // SAFETY: as above.
                let outputs = unsafe {
                    [
                        _mm256_loadu_si256(b.add(k * VECTORS + j)),
                        _mm256_loadu_si256(b.add((k + 1) * VECTORS + j)),
                    ]
                };
                tile[i][j] = add_two(tile[i][j], row, outputs);
            }
        }
        k += 2;
    }
    while k < depth {
        for i in 0..ROWS {
            let row = _mm256_set1_epi32(quad(i, k));
            for j in 0..VECTORS {
                // SAFETY: as above.
                let outputs = unsafe { _mm256_loadu_si256(b.add(k * VECTORS + j)) };
                tile[i][j] = add_chain(tile[i][j], row, outputs);
            }
        }
        k += 1;
    }
    for i in 0..ROWS {
        for j in 0..VECTORS {
            // SAFETY: the caller gives 6 rows of 16 sums.
            unsafe {
                let to = sums.cast::<i32>().add(i * ROW_OUTPUTS + 8 * j);
                _mm256_storeu_si256(to.cast(), tile[i][j]);
            }
        }
    }
}

/// Signed pixels, widened when they are loaded: 8 of them are two vectors of four quads of words.
#[target_feature(enable = "avx2")]
unsafe fn panel_words(
    depth: usize,
    a: *const u8,
    b: Panel,
    start: *const i32,
    sums: *mut GroupSums,
) {
    for pixel in (0..b.pixels).step_by(8) {
        let mut tile = [[_mm256_setzero_si256(); 2]; TILE_ROWS];
        for k in 0..depth {
            // SAFETY: the caller gives `depth` quads of 4 rows and of the panel.
            unsafe {
                let from = b.quads.cast::<i32>().add(k * b.stride + pixel);
                let columns = [
                    _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())),
                    _mm256_cvtepi8_epi16(_mm_loadu_si128(from.add(4).cast())),
                ];
                let a = a.cast::<i64>().add(k * TILE_ROWS);
                for i in 0..TILE_ROWS {
                    let row = _mm256_set1_epi64x(a.add(i).read_unaligned());
                    for j in 0..2 {
                        let products = _mm256_madd_epi16(columns[j], row);
                        tile[i][j] = _mm256_add_epi32(tile[i][j], products);
                    }
                }
            }
        }
        for i in 0..TILE_ROWS {
            for j in 0..2 {
                // SAFETY: the caller gives 4 sums to start from and the sums of a group.
                unsafe {
                    let start = _mm_set1_epi32(*start.add(i));
                    let sum = _mm_add_epi32(add_halves(tile[i][j]), start);
                    let to = sums.cast::<i32>().add(i * SUM_ROW + pixel + 4 * j);
                    _mm_storeu_si128(to.cast(), sum);
                }
            }
        }
    }
}

/// Signed rows, widened when they are loaded; 16 outputs are four vectors of four quads of words.
#[target_feature(enable = "avx2")]
unsafe fn row_words<const ROWS: usize>(
    depth: usize,
    rows: &[*const u8; ROW_TILE],
    b: *const u8,
    start: *const i32,
    sums: *mut PanelSums,
) {
    const VECTORS: usize = ROW_OUTPUTS / 4;
    const STEP: usize = 2;
    for first in (0..ROWS).step_by(STEP) {
        let mut tile = [[_mm256_setzero_si256(); VECTORS]; STEP];
        for k in 0..depth {
            for i in 0..STEP {
                // SAFETY: the caller gives `depth` quads of each row and of the panel.
                unsafe {
                    let quad = rows[first + i].cast::<i32>().add(k).read_unaligned();
                    let row = _mm256_cvtepi8_epi16(_mm_set1_epi32(quad));
                    let b = b.cast::<__m256i>().add(k * VECTORS);
                    for j in 0..VECTORS {
                        let products = _mm256_madd_epi16(row, _mm256_loadu_si256(b.add(j)));
                        tile[i][j] = _mm256_add_epi32(tile[i][j], products);
                    }
                }
            }
        }
        for i in 0..STEP {
            for j in 0..VECTORS {
                // SAFETY: the caller gives 16 sums to start from and 6 rows of 16 sums.
                unsafe {
                    let start = _mm_loadu_si128(start.add(4 * j).cast());
                    let sum = _mm_add_epi32(add_halves(tile[i][j]), start);
                    let to = sums.cast::<i32>().add((first + i) * ROW_OUTPUTS + 4 * j);
                    _mm_storeu_si128(to.cast(), sum);
                }
            }
        }
    }
}

/// A tile of words of 256-bit vectors, which adds products to sums in this way: a run of columns at a time, because with four rows
/// it fills the registers.
macro_rules! define_word_tile {
    ($features:literal, |$sums:ident, $columns:ident, $row:ident| $added:expr) => {
        #[target_feature(enable = $features)]
        pub(in crate::int8::tile) unsafe fn word_tile(
            depth: usize,
            a: *const i16,
            b: WordRuns,
            sums: *mut WordSums,
        ) {
            const VECTORS: usize = WORD_RUN / 8;
            let a = a.cast::<i32>();
            for run in 0..b.count {
                // SAFETY: the caller gives so many runs, and the sums of a group.
                let (columns, sums) = unsafe {
                    let sums = sums.cast::<i32>().add(run * WORD_RUN);
                    (b.words.add(run * b.stride).cast::<__m256i>(), sums)
                };
                let mut tile = [[_mm256_setzero_si256(); VECTORS]; TILE_ROWS];
                for k in 0..depth {
                    for i in 0..TILE_ROWS {
                        // SAFETY: the caller gives `depth` pairs of 4 rows.
                        let row = unsafe { a.add(k * TILE_ROWS + i).read_unaligned() };
                        let $row = _mm256_set1_epi32(row);
                        for j in 0..VECTORS {
                            // SAFETY: and of the columns.
                            let x = unsafe { _mm256_loadu_si256(columns.add(k * VECTORS + j)) };
                            let $columns = x;
                            let $sums = tile[i][j];
                            tile[i][j] = $added;
                        }
                    }
                }
                for i in 0..TILE_ROWS {
                    for j in 0..VECTORS {
                        // SAFETY: the caller gives the sums of a group.
                        unsafe {
                            let to = sums.add(i * WORD_COLUMNS + 8 * j);
                            _mm256_storeu_si256(to.cast(), tile[i][j]);
                        }
                    }
                }
            }
        }
    };
}
pub(super) use define_word_tile;

define_word_tile!("avx2", |sums, columns, row| {
    _mm256_add_epi32(sums, _mm256_madd_epi16(columns, row))
});
