//! Tiles in plain arithmetic.

use super::{
    GroupSums, Packing, Panel, PanelSums, PanelTiles, ROW_OUTPUTS, ROW_TILE, RowTiles, SUM_ROW,
    TILE_ROWS, WORD_COLUMNS, WORD_RUN, Width, WordRuns, WordSums,
};

pub(super) const PANEL_TILES: PanelTiles = PanelTiles {
    width: Width::Byte,
    packing: Packing::GROUPS,
    lifts: false,
    pixels: 24,
    tiles: [(panel, 1); 2],
    spread: None,
};

pub(super) const ROW_TILES: RowTiles = RowTiles {
    width: Width::Byte,
    lifts: false,
    tiles: [Some([rows; 3]), None],
};

#[inline(always)]
fn dot(a: [i8; 4], b: [i8; 4]) -> i32 {
    let mut sum = 0;
    for i in 0..4 {
        sum += i32::from(a[i]) * i32::from(b[i]);
    }
    sum
}

unsafe fn panel(depth: usize, a: *const u8, panel: Panel, start: *const i32, sums: *mut GroupSums) {
    const VECTOR: usize = 8;
    let a = a.cast::<[[i8; 4]; TILE_ROWS]>();
    let b = panel.quads.cast::<[i8; 4]>();
    for pixel in (0..panel.pixels).step_by(VECTOR) {
        // SAFETY: the caller gives 4 sums to start from.
        let start = unsafe { start.cast::<[i32; TILE_ROWS]>().read() };
        let mut tile = start.map(|start| [start; VECTOR]);
        for k in 0..depth {
            // SAFETY: the caller gives `depth` quads of 4 rows and of the panel.
            let (a, b) = unsafe {
                let b = b.add(k * panel.stride + pixel).cast::<[[i8; 4]; VECTOR]>();
                (a.add(k).read(), &*b)
            };
            for i in 0..TILE_ROWS {
                for j in 0..VECTOR {
                    tile[i][j] += dot(a[i], b[j]);
                }
            }
        }
        for i in 0..TILE_ROWS {
            // SAFETY: the caller gives the sums of a group.
            unsafe {
                let to = sums.cast::<i32>().add(i * SUM_ROW + pixel);
                to.cast::<[i32; VECTOR]>().write(tile[i]);
            }
        }
    }
}

unsafe fn rows(
    depth: usize,
    rows: &[*const u8; ROW_TILE],
    b: *const u8,
    start: *const i32,
    sums: *mut PanelSums,
) {
    let sums = sums.cast::<i32>();
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

pub(super) unsafe fn word_tile(depth: usize, a: *const i16, b: WordRuns, sums: *mut WordSums) {
    let a = a.cast::<[[i16; 2]; TILE_ROWS]>();
    for run in 0..b.count {
        let mut tile = [[0i32; WORD_RUN]; TILE_ROWS];
        // SAFETY: the caller gives so many runs.
        let columns = unsafe { b.words.add(run * b.stride) }.cast::<[[i16; 2]; WORD_RUN]>();
        for k in 0..depth {
            // SAFETY: the caller gives `depth` pairs of 4 rows and of the columns.
            let (rows, columns) = unsafe { (a.add(k).read(), columns.add(k).read()) };
            for i in 0..TILE_ROWS {
                for j in 0..WORD_RUN {
                    for c in 0..2 {
                        tile[i][j] += i32::from(rows[i][c]) * i32::from(columns[j][c]);
                    }
                }
            }
        }
        for i in 0..TILE_ROWS {
            // SAFETY: the caller gives the sums of a group.
            unsafe {
                let to = sums.cast::<i32>().add(i * WORD_COLUMNS + run * WORD_RUN);
                to.cast::<[i32; WORD_RUN]>().write(tile[i]);
            }
        }
    }
}
