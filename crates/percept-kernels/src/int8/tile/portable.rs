//! Tiles in plain arithmetic.

use super::{ROW_OUTPUTS, ROW_TILE, TILE_PIXELS, TILE_ROWS, Tiles, WORD_COLUMNS, Width};

pub(super) const TILES: Tiles = Tiles {
    width: Width::Byte,
    start_factor: 0,
    panel: [panel::<8>, panel::<16>, panel::<24>],
    rows: [rows; 3],
};

#[inline(always)]
fn dot(a: [i8; 4], b: [i8; 4]) -> i32 {
    let mut sum = 0;
    for i in 0..4 {
        sum += i32::from(a[i]) * i32::from(b[i]);
    }
    sum
}

unsafe fn panel<const PIXELS: usize>(
    depth: usize,
    a: *const u8,
    b: *const u8,
    start: &[i32; TILE_ROWS],
    sums: *mut i32,
) {
    let (a, b) = (
        a.cast::<[[i8; 4]; TILE_ROWS]>(),
        b.cast::<[[i8; 4]; PIXELS]>(),
    );
    let mut tile = start.map(|start| [start; PIXELS]);
    for k in 0..depth {
        // SAFETY: the caller gives `depth` quads of 4 rows and of the panel.
        let (a, b) = unsafe { (a.add(k).read(), &*b.add(k)) };
        for i in 0..TILE_ROWS {
            for j in 0..PIXELS {
                tile[i][j] += dot(a[i], b[j]);
            }
        }
    }
    for i in 0..TILE_ROWS {
        // SAFETY: the caller gives 4 rows of 24 sums.
        unsafe {
            sums.add(i * TILE_PIXELS)
                .cast::<[i32; PIXELS]>()
                .write(tile[i])
        };
    }
}

unsafe fn rows(
    depth: usize,
    rows: &[*const u8; ROW_TILE],
    b: *const u8,
    start: *const i32,
    sums: *mut i32,
) {
    let b = b.cast::<[[i8; 4]; ROW_OUTPUTS]>();
    for (i, row) in rows.iter().enumerate() {
        // SAFETY: the caller gives 16 sums to start from.
        let mut tile = unsafe { start.cast::<[i32; ROW_OUTPUTS]>().read() };
        for k in 0..depth {
            // SAFETY: the caller gives `depth` quads of each row and of the panel.
            let (a, b) = unsafe { (row.cast::<[i8; 4]>().add(k).read(), &*b.add(k)) };
            for j in 0..ROW_OUTPUTS {
                tile[j] += dot(a, b[j]);
            }
        }
        // SAFETY: the caller gives 6 rows of 16 sums.
        unsafe {
            sums.add(i * ROW_OUTPUTS)
                .cast::<[i32; ROW_OUTPUTS]>()
                .write(tile)
        };
    }
}

pub(super) unsafe fn word_tile(
    depth: usize,
    a: *const i16,
    b: *const i16,
    b_stride: usize,
    sums: *mut i32,
    stride: usize,
) {
    let a = a.cast::<[[i16; 4]; TILE_ROWS]>();
    let mut tile = [[0i32; WORD_COLUMNS]; TILE_ROWS];
    for k in 0..depth {
        // SAFETY: the caller gives `depth` quads of 4 rows and of 12 columns.
        let (a, b) = unsafe {
            let b = b.add(k * b_stride).cast::<[[i16; 4]; WORD_COLUMNS]>();
            (a.add(k).read(), &*b)
        };
        for i in 0..TILE_ROWS {
            for j in 0..WORD_COLUMNS {
                for c in 0..4 {
                    tile[i][j] += i32::from(a[i][c]) * i32::from(b[j][c]);
                }
            }
        }
    }
    for i in 0..TILE_ROWS {
        // SAFETY: the caller gives 4 rows of 12 sums.
        unsafe {
            sums.add(i * stride)
                .cast::<[i32; WORD_COLUMNS]>()
                .write(tile[i])
        };
    }
}
