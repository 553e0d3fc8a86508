//! Tiles by `vpdpbusd` and `vpdpwssd`: four products of bytes, or two of words, and their sum in one instruction.

/// Whether the CPU has the AVX-512 coding of these instructions, with 32 registers.
pub(super) fn has_evex() -> bool {
    is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl")
}

/// The tiles in one coding of the instructions.
macro_rules! tiles {
    ($module:ident, $features:literal, $bytes:ident, $words:ident) => {
        pub(super) mod $module {
            use std::arch::x86_64::*;

            use super::super::{
                Operands, ROW_OUTPUTS, ROW_TILE, TILE_PIXELS, TILE_ROWS, Tiles, WORD_COLUMNS, Width,
            };

            pub(in super::super) fn tiles(operands: Operands) -> Tiles {
                match operands {
                    Operands::Bounded | Operands::Positive => Tiles {
                        width: Width::Byte,
                        start_factor: 0,
                        panel: [panel::<1, false>, panel::<2, false>, panel::<3, false>],
                        rows: [rows::<2, false>, rows::<4, false>, rows::<6, false>],
                    },
                    Operands::Signed => Tiles {
                        width: Width::Byte,
                        start_factor: -128,
                        panel: [panel::<1, true>, panel::<2, true>, panel::<3, true>],
                        rows: [rows::<2, true>, rows::<4, true>, rows::<6, true>],
                    },
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn panel<const VECTORS: usize, const SIGNED: bool>(
                depth: usize,
                a: *const u8,
                b: *const u8,
                start: &[i32; TILE_ROWS],
                sums: *mut i32,
            ) {
                let flip = _mm256_set1_epi8(i8::MIN);
                let mut tile = [[_mm256_setzero_si256(); VECTORS]; TILE_ROWS];
                for i in 0..TILE_ROWS {
                    tile[i] = [_mm256_set1_epi32(start[i]); VECTORS];
                }
                let (mut a, mut b) = (a.cast::<i32>(), b.cast::<__m256i>());
                for _ in 0..depth {
                    // SAFETY: the caller gives `depth` quads of 4 rows and of the panel.
                    unsafe {
                        let mut pixels = [_mm256_setzero_si256(); VECTORS];
                        for j in 0..VECTORS {
                            pixels[j] = _mm256_loadu_si256(b.add(j));
                            if SIGNED {
                                pixels[j] = _mm256_xor_si256(pixels[j], flip);
                            }
                        }
                        for i in 0..TILE_ROWS {
                            let row = _mm256_set1_epi32(a.add(i).read_unaligned());
                            for j in 0..VECTORS {
                                tile[i][j] = $bytes(tile[i][j], pixels[j], row);
                            }
                        }
                        a = a.add(TILE_ROWS);
                        b = b.add(VECTORS);
                    }
                }
                for i in 0..TILE_ROWS {
                    for j in 0..VECTORS {
                        // SAFETY: the caller gives 4 rows of 24 sums.
                        unsafe {
                            let to = sums.add(i * TILE_PIXELS + 8 * j);
                            _mm256_storeu_si256(to.cast(), tile[i][j]);
                        }
                    }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn rows<const ROWS: usize, const SIGNED: bool>(
                depth: usize,
                rows: &[*const u8; ROW_TILE],
                b: *const u8,
                start: *const i32,
                sums: *mut i32,
            ) {
                const VECTORS: usize = ROW_OUTPUTS / 8;
                let flip = _mm256_set1_epi8(i8::MIN);
                let mut tile = [[_mm256_setzero_si256(); VECTORS]; ROWS];
                for i in 0..ROWS {
                    for j in 0..VECTORS {
                        // SAFETY: the caller gives 16 sums to start from.
                        tile[i][j] = unsafe { _mm256_loadu_si256(start.add(8 * j).cast()) };
                    }
                }
                let mut b = b.cast::<__m256i>();
                for k in 0..depth {
                    // SAFETY: the caller gives `depth` quads of each row and of the panel.
                    unsafe {
                        let outputs = [_mm256_loadu_si256(b), _mm256_loadu_si256(b.add(1))];
                        for i in 0..ROWS {
                            let quad = rows[i].cast::<i32>().add(k).read_unaligned();
                            let mut row = _mm256_set1_epi32(quad);
                            if SIGNED {
                                row = _mm256_xor_si256(row, flip);
                            }
                            for j in 0..VECTORS {
                                tile[i][j] = $bytes(tile[i][j], row, outputs[j]);
                            }
                        }
                        b = b.add(VECTORS);
                    }
                }
                for i in 0..ROWS {
                    for j in 0..VECTORS {
                        // SAFETY: the caller gives 6 rows of 16 sums.
                        unsafe {
                            let to = sums.add(i * ROW_OUTPUTS + 8 * j);
                            _mm256_storeu_si256(to.cast(), tile[i][j]);
                        }
                    }
                }
            }

            #[target_feature(enable = $features)]
            pub(in super::super) unsafe fn word_tile(
                depth: usize,
                a: *const i16,
                b: *const i16,
                b_stride: usize,
                sums: *mut i32,
                stride: usize,
            ) {
                const VECTORS: usize = WORD_COLUMNS / 4;
                let mut tile = [[_mm256_setzero_si256(); VECTORS]; TILE_ROWS];
                let (mut a, mut b) = (a.cast::<i64>(), b);
                for _ in 0..depth {
                    // SAFETY: the caller gives `depth` quads of 4 rows and of 12 columns.
                    unsafe {
                        let mut columns = [_mm256_setzero_si256(); VECTORS];
                        for j in 0..VECTORS {
                            columns[j] = _mm256_loadu_si256(b.add(16 * j).cast());
                        }
                        for i in 0..TILE_ROWS {
                            let row = _mm256_set1_epi64x(a.add(i).read_unaligned());
                            for j in 0..VECTORS {
                                tile[i][j] = $words(tile[i][j], columns[j], row);
                            }
                        }
                        a = a.add(TILE_ROWS);
                        b = b.add(b_stride);
                    }
                }
                for i in 0..TILE_ROWS {
                    for j in 0..VECTORS {
                        // SAFETY: the caller gives 4 rows of 12 sums.
                        unsafe {
                            let halves = super::super::avx2::add_halves(tile[i][j]);
                            _mm_storeu_si128(sums.add(i * stride + 4 * j).cast(), halves);
                        }
                    }
                }
            }
        }
    };
}

tiles!(
    evex,
    "avx2,avx512vnni,avx512vl",
    _mm256_dpbusd_epi32,
    _mm256_dpwssd_epi32
);
tiles!(
    vex,
    "avx2,avxvnni",
    _mm256_dpbusd_avx_epi32,
    _mm256_dpwssd_avx_epi32
);
