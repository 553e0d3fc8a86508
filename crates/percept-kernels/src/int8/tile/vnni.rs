//! Tiles by `vpdpbusd` and `vpdpwssd`: four products of bytes, or two of words, and their sum in one instruction.

use super::{Operands, PanelTiles, RowTiles, WordTiles};

/// The widest panel tiles that this CPU has.
pub(super) fn panel_tiles(operands: Operands) -> PanelTiles {
    if has_wide() {
        wide::panel_tiles(operands)
    } else {
        narrow::panel_tiles(operands)
    }
}

/// The widest row tiles that this CPU has.
pub(super) fn row_tiles(operands: Operands) -> RowTiles {
    if has_wide() {
        wide::row_tiles(operands)
    } else {
        narrow::row_tiles(operands)
    }
}

/// The widest tiles of words that this CPU has.
pub(super) fn word_tiles() -> WordTiles {
    if has_wide() {
        WordTiles([Some(wide::word_tile::<1>), Some(wide::word_tile::<2>)])
    } else {
        WordTiles([Some(narrow::word_tile), None])
    }
}

fn has_wide() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni")
}

/// Tiles of 512-bit vectors: 8 rows by 48 pixels, or 6 rows by 32 outputs.
pub(in crate::int8) mod wide {
    use std::arch::x86_64::*;

    use super::super::{
        GroupSums, Operands, Packing, Panel, PanelSums, PanelTiles, ROW_OUTPUTS, ROW_TILE,
        RowTiles, SPREAD_DEEP, SUM_ROW, TILE_PIXELS, TILE_ROWS, WORD_COLUMNS, WORD_RUN, Width,
        WordRuns, WordSums,
    };

    const LANES: usize = 16;

    pub(in super::super) fn panel_tiles(operands: Operands) -> PanelTiles {
        PanelTiles {
            width: Width::Byte,
            packing: Packing::GROUPS,
            lifts: operands == Operands::Signed,
            pixels: TILE_PIXELS,
            tiles: [(panel::<1>, 1), (panel::<2>, 2)],
            spread: Some(spread),
        }
    }

    pub(in super::super) fn row_tiles(operands: Operands) -> RowTiles {
        RowTiles {
            width: Width::Byte,
            lifts: operands == Operands::Signed,
            tiles: [
                Some([rows::<2, 1>, rows::<4, 1>, rows::<6, 1>]),
                Some([rows::<2, 2>, rows::<4, 2>, rows::<6, 2>]),
            ],
        }
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn panel<const GROUPS: usize>(
        depth: usize,
        a: *const u8,
        b: Panel,
        start: *const i32,
        sums: *mut GroupSums,
    ) {
        // SAFETY: passed on from the caller.
        unsafe {
            match b.pixels {
                1 => few::<GROUPS, 1>(depth, a, b, start, sums),
                2..=4 => few::<GROUPS, 4>(depth, a, b, start, sums),
                5..=8 => few::<GROUPS, 8>(depth, a, b, start, sums),
                9..=16 => vectors::<GROUPS, 1>(depth, a, b, start, sums),
                17..=32 => vectors::<GROUPS, 2>(depth, a, b, start, sums),
                _ => vectors::<GROUPS, 3>(depth, a, b, start, sums),
            }
        }
    }

    /// What [`PanelTile`](super::super::PanelTile) computes for so many groups and vectors of pixels.
    ///
    /// # Safety
    /// As there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(in crate::int8) unsafe fn vectors<const GROUPS: usize, const VECTORS: usize>(
        depth: usize,
        a: *const u8,
        b: Panel,
        start: *const i32,
        sums: *mut GroupSums,
    ) {
        // SAFETY: passed on from the caller.
        let tile = unsafe { products::<GROUPS, VECTORS>(depth, a, b, start) };
        for g in 0..GROUPS {
            for i in 0..TILE_ROWS {
                for j in 0..VECTORS {
                    // SAFETY: the caller gives the sums of each group.
                    unsafe {
                        let to = sums.add(g).cast::<i32>().add(i * SUM_ROW + LANES * j);
                        _mm512_storeu_si512(to.cast(), tile[g][i][j]);
                    }
                }
            }
        }
    }

    /// The same, in registers.
    ///
    /// # Safety
    /// As there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(in crate::int8) unsafe fn products<const GROUPS: usize, const VECTORS: usize>(
        depth: usize,
        a: *const u8,
        b: Panel,
        start: *const i32,
    ) -> [[[__m512i; VECTORS]; TILE_ROWS]; GROUPS] {
        let mut tile = [[[_mm512_setzero_si512(); VECTORS]; TILE_ROWS]; GROUPS];
        for g in 0..GROUPS {
            for i in 0..TILE_ROWS {
                // SAFETY: the caller gives 4 sums a group to start from.
                let start = unsafe { *start.add(g * TILE_ROWS + i) };
                tile[g][i] = [_mm512_set1_epi32(start); VECTORS];
            }
        }
        let group = depth * TILE_ROWS;
        let (mut a, mut quads) = (a.cast::<i32>(), b.quads.cast::<i32>());
        for _ in 0..depth {
            // What is multiplied next has to come from far: each weight is read once for a whole map.
            for g in 0..GROUPS {
                let next = a.wrapping_add((GROUPS + g) * group);
                _mm_prefetch::<_MM_HINT_T0>(next.cast());
            }
            // SAFETY: the caller gives `depth` quads of each group, and of whole vectors of pixels.
            unsafe {
                let mut columns = [_mm512_setzero_si512(); VECTORS];
                for j in 0..VECTORS {
                    columns[j] = _mm512_loadu_si512(quads.add(LANES * j).cast());
                }
                for g in 0..GROUPS {
                    for i in 0..TILE_ROWS {
                        let row = a.add(g * group + i).read_unaligned();
                        let row = _mm512_set1_epi32(row);
                        for j in 0..VECTORS {
                            tile[g][i][j] = _mm512_dpbusd_epi32(tile[g][i][j], columns[j], row);
                        }
                    }
                }
                a = a.add(TILE_ROWS);
                quads = quads.add(b.stride);
            }
        }
        tile
    }

    /// Up to 8 pixels, which would leave most of a vector empty: four rows of weights, four quads deep, are a vector instead, and so
    /// are pixels that were [spread](super::super::Spread).
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn few<const GROUPS: usize, const PIXELS: usize>(
        depth: usize,
        a: *const u8,
        b: Panel,
        start: *const i32,
        sums: *mut GroupSums,
    ) {
        let mut tile = [[_mm512_setzero_si512(); PIXELS]; GROUPS];
        let (a, mut quads) = (a.cast::<i32>(), b.quads.cast::<__m512i>());
        for k in (0..depth).step_by(SPREAD_DEEP) {
            let deep = (depth - k).min(SPREAD_DEEP);
            let mask = (u32::MAX >> (32 - TILE_ROWS * deep)) as __mmask16;
            // SAFETY: the caller gives `depth` quads of each group and of the pixels, and nothing outside of the mask is read.
            unsafe {
                let mut rows = [_mm512_setzero_si512(); GROUPS];
                for g in 0..GROUPS {
                    rows[g] = _mm512_maskz_loadu_epi32(mask, a.add((g * depth + k) * TILE_ROWS));
                }
                for p in 0..PIXELS {
                    let pixel = _mm512_loadu_si512(quads.add(p).cast());
                    for g in 0..GROUPS {
                        tile[g][p] = _mm512_dpbusd_epi32(tile[g][p], pixel, rows[g]);
                    }
                }
                quads = quads.add(PIXELS);
            }
        }
        for g in 0..GROUPS {
            for p in 0..PIXELS {
                let halves = _mm256_add_epi32(
                    _mm512_castsi512_si256(tile[g][p]),
                    _mm512_extracti64x4_epi64::<1>(tile[g][p]),
                );
                let four = _mm_add_epi32(
                    _mm256_castsi256_si128(halves),
                    _mm256_extracti128_si256::<1>(halves),
                );
                let mut four_sums = [0; TILE_ROWS];
                // SAFETY: the caller gives 4 sums a group to start from, and the sums of each group.
                unsafe {
                    let start = _mm_loadu_si128(start.add(g * TILE_ROWS).cast());
                    let to = four_sums.as_mut_ptr().cast();
                    _mm_storeu_si128(to, _mm_add_epi32(four, start));
                    for (i, sum) in four_sums.into_iter().enumerate() {
                        *sums.add(g).cast::<i32>().add(i * SUM_ROW + p) = sum;
                    }
                }
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    unsafe fn spread(depth: usize, b: Panel, to: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe {
            match b.pixels {
                1 => spread_pixels::<1>(depth, b, to),
                2..=4 => spread_pixels::<4>(depth, b, to),
                _ => spread_pixels::<8>(depth, b, to),
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn spread_pixels<const PIXELS: usize>(depth: usize, b: Panel, to: *mut u8) {
        // Pixel p of each depth, four times: lanes 0..16 and 16..32 are those of two vectors of 8 pixels.
        let first = _mm512_setr_epi32(0, 0, 0, 0, 8, 8, 8, 8, 16, 16, 16, 16, 24, 24, 24, 24);
        let (quads, mut to) = (b.quads.cast::<i32>(), to.cast::<__m512i>());
        for k in (0..depth).step_by(SPREAD_DEEP) {
            let at = |d: usize| match k + d < depth {
                // SAFETY: the caller gives 16 pixels at each depth.
                true => unsafe { _mm256_loadu_si256(quads.add((k + d) * b.stride).cast()) },
                false => _mm256_setzero_si256(),
            };
            let pair = |d: usize| _mm512_inserti64x4::<1>(_mm512_castsi256_si512(at(d)), at(d + 1));
            let (low, high) = (pair(0), pair(2));
            for p in 0..PIXELS {
                let order = _mm512_add_epi32(first, _mm512_set1_epi32(p as i32));
                // SAFETY: the caller gives room for so many vectors at each four of its depth.
                unsafe {
                    let pixel = _mm512_permutex2var_epi32(low, order, high);
                    _mm512_storeu_si512(to.add(p).cast(), pixel);
                }
            }
            // SAFETY: as above.
            to = unsafe { to.add(PIXELS) };
        }
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn rows<const ROWS: usize, const PANELS: usize>(
        depth: usize,
        rows: &[*const u8; ROW_TILE],
        b: *const u8,
        start: *const i32,
        sums: *mut PanelSums,
    ) {
        let mut tile = [[_mm512_setzero_si512(); PANELS]; ROWS];
        for i in 0..ROWS {
            for j in 0..PANELS {
                // SAFETY: the caller gives 16 sums a panel to start from.
                tile[i][j] = unsafe { _mm512_loadu_si512(start.add(ROW_OUTPUTS * j).cast()) };
            }
        }
        let b = b.cast::<__m512i>();
        for k in 0..depth {
            // SAFETY: the caller gives `depth` quads of each row and of each panel.
            unsafe {
                let mut outputs = [_mm512_setzero_si512(); PANELS];
                for j in 0..PANELS {
                    outputs[j] = _mm512_loadu_si512(b.add(j * depth + k).cast());
                }
                for i in 0..ROWS {
                    let quad = rows[i].cast::<i32>().add(k).read_unaligned();
                    let row = _mm512_set1_epi32(quad);
                    for j in 0..PANELS {
                        tile[i][j] = _mm512_dpbusd_epi32(tile[i][j], row, outputs[j]);
                    }
                }
            }
        }
        for i in 0..ROWS {
            for j in 0..PANELS {
                // SAFETY: the caller gives the sums of each panel.
                unsafe {
                    let to = sums.add(j).cast::<i32>().add(i * ROW_OUTPUTS);
                    _mm512_storeu_si512(to.cast(), tile[i][j]);
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn word_tile<const GROUPS: usize>(
        depth: usize,
        a: *const i16,
        b: WordRuns,
        sums: *mut WordSums,
    ) {
        // SAFETY: passed on from the caller.
        unsafe {
            match b.count {
                1 => words::<GROUPS, 1>(depth, a, b, sums),
                2 => words::<GROUPS, 2>(depth, a, b, sums),
                _ => words::<GROUPS, 3>(depth, a, b, sums),
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn words<const GROUPS: usize, const RUNS: usize>(
        depth: usize,
        a: *const i16,
        b: WordRuns,
        sums: *mut WordSums,
    ) {
        let mut tile = [[[_mm512_setzero_si512(); RUNS]; TILE_ROWS]; GROUPS];
        let (mut a, mut words) = (a.cast::<i32>(), b.words);
        let group = depth * TILE_ROWS;
        for _ in 0..depth {
            // The weights of the next groups, which lie behind these, come from far.
            for g in 0..GROUPS {
                let next = a.wrapping_add((GROUPS + g) * group);
                _mm_prefetch::<_MM_HINT_T0>(next.cast());
            }
            // SAFETY: the caller gives `depth` pairs of each group and of the columns.
            unsafe {
                let mut columns = [_mm512_setzero_si512(); RUNS];
                for j in 0..RUNS {
                    columns[j] = _mm512_loadu_si512(words.add(j * b.stride).cast());
                }
                for g in 0..GROUPS {
                    for i in 0..TILE_ROWS {
                        let row = a.add(g * group + i).read_unaligned();
                        let row = _mm512_set1_epi32(row);
                        for j in 0..RUNS {
                            tile[g][i][j] = _mm512_dpwssd_epi32(tile[g][i][j], columns[j], row);
                        }
                    }
                }
                a = a.add(TILE_ROWS);
                words = words.add(2 * WORD_RUN);
            }
        }
        for g in 0..GROUPS {
            for i in 0..TILE_ROWS {
                for j in 0..RUNS {
                    // SAFETY: the caller gives the sums of each group.
                    unsafe {
                        let to = sums
                            .add(g)
                            .cast::<i32>()
                            .add(i * WORD_COLUMNS + WORD_RUN * j);
                        _mm512_storeu_si512(to.cast(), tile[g][i][j]);
                    }
                }
            }
        }
    }
}

/// Tiles of 256-bit vectors: 4 rows by 24 pixels, or 6 rows by 16 outputs.
pub(super) mod narrow {
    use std::arch::x86_64::*;

    use super::super::avx2;
    use super::super::{
        GroupSums, Operands, Packing, Panel, PanelSums, PanelTiles, ROW_OUTPUTS, ROW_TILE,
        RowTiles, TILE_ROWS, WORD_COLUMNS, WORD_RUN, Width, WordRuns, WordSums,
    };

    const LANES: usize = 8;

    pub(in super::super) fn panel_tiles(operands: Operands) -> PanelTiles {
        PanelTiles {
            width: Width::Byte,
            packing: Packing::GROUPS,
            lifts: operands == Operands::Signed,
            pixels: 24,
            tiles: [(panel, 1); 2],
            spread: None,
        }
    }

    pub(in super::super) fn row_tiles(operands: Operands) -> RowTiles {
        RowTiles {
            width: Width::Byte,
            lifts: operands == Operands::Signed,
            tiles: [Some([rows::<2>, rows::<4>, rows::<6>]), None],
        }
    }

    #[target_feature(enable = "avx2,avxvnni")]
    unsafe fn panel(depth: usize, a: *const u8, b: Panel, start: *const i32, sums: *mut GroupSums) {
        // SAFETY: passed on from the caller.
        unsafe {
            match b.pixels.div_ceil(LANES) {
                1 => vectors::<1>(depth, a, b, start, sums),
                2 => vectors::<2>(depth, a, b, start, sums),
                _ => vectors::<3>(depth, a, b, start, sums),
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    unsafe fn vectors<const VECTORS: usize>(
        depth: usize,
        a: *const u8,
        b: Panel,
        start: *const i32,
        sums: *mut GroupSums,
    ) {
        // SAFETY: the caller gives 4 sums to start from.
        let mut tile = unsafe { avx2::start_panel::<VECTORS>(start) };
        let (mut a, mut quads) = (a.cast::<i32>(), b.quads.cast::<i32>());
        for _ in 0..depth {
            // SAFETY: the caller gives `depth` quads of 4 rows and of the panel.
            unsafe {
                let mut columns = [_mm256_setzero_si256(); VECTORS];
                for j in 0..VECTORS {
                    columns[j] = _mm256_loadu_si256(quads.add(LANES * j).cast());
                }
                for i in 0..TILE_ROWS {
                    let row = _mm256_set1_epi32(a.add(i).read_unaligned());
                    for j in 0..VECTORS {
                        tile[i][j] = _mm256_dpbusd_avx_epi32(tile[i][j], columns[j], row);
                    }
                }
                a = a.add(TILE_ROWS);
                quads = quads.add(b.stride);
            }
        }
        // SAFETY: the caller gives the sums of a group.
        unsafe { avx2::store_panel(&tile, sums.cast()) };
    }

    #[target_feature(enable = "avx2,avxvnni")]
    unsafe fn rows<const ROWS: usize>(
        depth: usize,
        rows: &[*const u8; ROW_TILE],
        b: *const u8,
        start: *const i32,
        sums: *mut PanelSums,
    ) {
        const VECTORS: usize = ROW_OUTPUTS / LANES;
        let mut tile = [[_mm256_setzero_si256(); VECTORS]; ROWS];
        for i in 0..ROWS {
            for j in 0..VECTORS {
                // SAFETY: the caller gives 16 sums to start from.
                tile[i][j] = unsafe { _mm256_loadu_si256(start.add(LANES * j).cast()) };
            }
        }
        let mut b = b.cast::<__m256i>();
        for k in 0..depth {
            // SAFETY: the caller gives `depth` quads of each row and of the panel.
            unsafe {
                let outputs = [_mm256_loadu_si256(b), _mm256_loadu_si256(b.add(1))];
                for i in 0..ROWS {
                    let quad = rows[i].cast::<i32>().add(k).read_unaligned();
                    let row = _mm256_set1_epi32(quad);
                    for j in 0..VECTORS {
                        tile[i][j] = _mm256_dpbusd_avx_epi32(tile[i][j], row, outputs[j]);
                    }
                }
                b = b.add(VECTORS);
            }
        }
        for i in 0..ROWS {
            for j in 0..VECTORS {
                // SAFETY: the caller gives the sums of a panel.
                unsafe {
                    let to = sums.cast::<i32>().add(i * ROW_OUTPUTS + LANES * j);
                    _mm256_storeu_si256(to.cast(), tile[i][j]);
                }
            }
        }
    }

    avx2::define_word_tile!("avx2,avxvnni", |sums, columns, row| {
        _mm256_dpwssd_avx_epi32(sums, columns, row)
    });
}
