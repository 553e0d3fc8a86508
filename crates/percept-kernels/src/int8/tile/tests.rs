//! Every tile against sums in 64 bits, also where every term has the same sign and the largest size.

use super::*;
use crate::testing::numbers;

/// All tiles of this CPU for some operands, both codings of VNNI among them.
fn all(operands: Operands) -> Vec<(String, Tiles)> {
    let isas = Isa::available_for_bytes();
    let mut all: Vec<(String, Tiles)> = isas
        .into_iter()
        .map(|isa| (isa.to_string(), Tiles::new(isa, operands)))
        .collect();
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avxvnni") {
        all.push(("vex".to_owned(), vnni::vex::tiles(operands)));
    }
    all
}

fn bytes(seed: u64, len: usize, lowest: i32, highest: i32) -> Vec<i8> {
    let span = (highest - lowest + 1) as f32;
    let byte = |x: f32| lowest + ((x + 1.0) / 2.0 * span) as i32;
    let bytes = numbers(seed, len).into_iter().map(byte);
    bytes.map(|q| q.min(highest) as i8).collect()
}

/// Weights `[depth][rows][4]` in the width that tiles want.
fn stored(weights: &[i8], width: Width) -> Vec<u8> {
    match width {
        Width::Byte => weights.iter().map(|&w| w as u8).collect(),
        Width::Word => weights
            .iter()
            .flat_map(|&w| i16::from(w).to_ne_bytes())
            .collect(),
    }
}

/// Tile sums of 4 rows and so many pixels, from the tile and in plain arithmetic.
fn panel_sums(
    tiles: &Tiles,
    weights: &[i8],
    pixels: &[i8],
    depth: usize,
    columns: usize,
) -> [Vec<i64>; 2] {
    let a = stored(weights, tiles.width);
    let start: [i32; 4] = std::array::from_fn(|i| {
        let row = (0..depth).flat_map(|k| &weights[(k * 4 + i) * 4..][..4]);
        tiles.start_factor * row.map(|&w| i32::from(w)).sum::<i32>()
    });
    let mut sums = [7; TILE_ROWS * TILE_PIXELS];
    let b = pixels.as_ptr().cast();
    // SAFETY: the operands are `depth` quads deep.
    unsafe { tiles.panel(columns / 8)(depth, a.as_ptr(), b, &start, sums.as_mut_ptr()) };
    let mut both = [Vec::new(), Vec::new()];
    for i in 0..TILE_ROWS {
        for j in 0..columns {
            both[0].push(i64::from(sums[i * TILE_PIXELS + j]));
            let products = (0..depth * 4).map(|e| {
                let (k, lane) = (e / 4, e % 4);
                let weight = i64::from(weights[(k * 4 + i) * 4 + lane]);
                weight * i64::from(pixels[(k * columns + j) * 4 + lane])
            });
            both[1].push(products.sum());
        }
    }
    both
}

fn row_sums(
    tiles: &Tiles,
    weights: &[i8],
    rows: &[i8],
    depth: usize,
    count: usize,
) -> [Vec<i64>; 2] {
    let b = stored(weights, tiles.width);
    let start: [i32; ROW_OUTPUTS] = std::array::from_fn(|j| {
        let column = (0..depth).flat_map(|k| &weights[(k * ROW_OUTPUTS + j) * 4..][..4]);
        tiles.start_factor * column.map(|&w| i32::from(w)).sum::<i32>()
    });
    let row = |i: usize| &rows[i.min(count - 1) * depth * 4..][..depth * 4];
    let pointers = std::array::from_fn(|i| row(i).as_ptr().cast());
    let mut sums = [7; ROW_TILE * ROW_OUTPUTS];
    // SAFETY: the operands are `depth` quads deep.
    unsafe {
        tiles.rows(count)(
            depth,
            &pointers,
            b.as_ptr(),
            start.as_ptr(),
            sums.as_mut_ptr(),
        )
    };
    let mut both = [Vec::new(), Vec::new()];
    for i in 0..count {
        for j in 0..ROW_OUTPUTS {
            both[0].push(i64::from(sums[i * ROW_OUTPUTS + j]));
            let products = (0..depth * 4).map(|e| {
                let weight = i64::from(weights[(e / 4 * ROW_OUTPUTS + j) * 4 + e % 4]);
                weight * i64::from(row(i)[e])
            });
            both[1].push(products.sum());
        }
    }
    both
}

/// Weights whose groups of four sum to the limit: 65 + 65 + 64 + 64.
fn at_the_limit(len: usize, sign: i8) -> Vec<i8> {
    let weight = |i: usize| sign * if (i / 4).is_multiple_of(2) { 65 } else { 64 };
    (0..len).map(weight).collect()
}

#[test]
fn sums_are_exact() {
    for depth in [0, 2, 6, 34] {
        for (operands, lowest, limit) in [
            (Operands::Bounded, 0, 64),
            (Operands::Positive, 0, 127),
            (Operands::Signed, -127, 127),
        ] {
            for (name, tiles) in all(operands) {
                for columns in [8, 16, 24] {
                    let weights = bytes(1, depth * 16, -limit, limit);
                    let pixels = bytes(2, depth * columns * 4, lowest, 127);
                    let [got, expected] = panel_sums(&tiles, &weights, &pixels, depth, columns);
                    assert_eq!(got, expected, "{name} {operands:?} {depth} x {columns}");
                }
                // Row tiles take an odd depth too.
                for (count, depth) in [(1, depth), (2, depth + 1), (3, depth), (6, depth + 1)] {
                    let weights = bytes(3, depth * ROW_OUTPUTS * 4, -limit, limit);
                    let rows = bytes(4, count * depth * 4, lowest, 127);
                    let [got, expected] = row_sums(&tiles, &weights, &rows, depth, count);
                    assert_eq!(got, expected, "{name} {operands:?} {count} rows x {depth}");
                }
            }
        }
    }
}

#[test]
fn nothing_overflows_when_every_term_aligns() {
    const DEPTH: usize = 1000;
    for sign in [1i8, -1] {
        for (operands, weights, input) in [
            (Operands::Bounded, at_the_limit(DEPTH * 64, sign), 127),
            (Operands::Positive, vec![127 * sign; DEPTH * 64], 127),
            (Operands::Signed, vec![127 * sign; DEPTH * 64], 127),
            (Operands::Signed, vec![127 * sign; DEPTH * 64], -127),
        ] {
            for (name, tiles) in all(operands) {
                let inputs = vec![input; DEPTH * 4 * TILE_PIXELS];
                // The groups of a panel tile are of two quads of one row.
                let by_row: Vec<i8> = (0..DEPTH * 16)
                    .map(|i| weights[i / 16 * 4 + i % 4])
                    .collect();
                let [got, expected] = panel_sums(&tiles, &by_row, &inputs, DEPTH, 24);
                assert_eq!(got, expected, "{name} {operands:?} {sign}");
                let by_output: Vec<i8> = (0..DEPTH * 64)
                    .map(|i| weights[i / 64 * 4 + i % 4])
                    .collect();
                let [got, expected] = row_sums(&tiles, &by_output, &inputs, DEPTH, 6);
                assert_eq!(got, expected, "{name} {operands:?} {sign} rows");
            }
        }
    }
}

/// The control: what the bound is there for does happen without it.
#[test]
#[cfg(target_arch = "x86_64")]
fn without_the_bound_quads_do_overflow() {
    if !Isa::Avx2.is_supported() {
        return;
    }
    let tiles = Tiles::new(Isa::Avx2, Operands::Bounded);
    let (weights, inputs) = (vec![127; 2 * 64], vec![127; 2 * 4 * TILE_PIXELS]);
    let [got, expected] = panel_sums(&tiles, &weights, &inputs, 2, 24);
    assert_ne!(got, expected);
    let [got, expected] = row_sums(&tiles, &weights, &inputs, 2, 6);
    assert_ne!(got, expected);
}

#[test]
fn words_are_exact() {
    let word = |x: f32| (x * 12_800.0) as i16;
    let (a, b): (Vec<i16>, Vec<i16>) = (
        numbers(5, 9 * 16).into_iter().map(word).collect(),
        numbers(6, 9 * 2 * WORD_COLUMNS * 4)
            .into_iter()
            .map(word)
            .collect(),
    );
    let mut tiles: Vec<WordTile> = Isa::available_for_bytes()
        .into_iter()
        .map(word_tile)
        .collect();
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avxvnni") {
        tiles.push(vnni::vex::word_tile);
    }
    for tile in tiles {
        let mut sums = [0; 4 * 20];
        // SAFETY: 9 quads of 4 rows and of 12 columns, each followed by as many that do not count.
        unsafe {
            let stride = 2 * WORD_COLUMNS * 4;
            tile(9, a.as_ptr(), b.as_ptr(), stride, sums.as_mut_ptr(), 20)
        };
        for (i, j) in (0..4).flat_map(|i| (0..WORD_COLUMNS).map(move |j| (i, j))) {
            let products = (0..36).map(|e| {
                let (k, c) = (e / 4, e % 4);
                let column = (k * 2 * WORD_COLUMNS + j) * 4 + c;
                i32::from(a[(k * 4 + i) * 4 + c]) * i32::from(b[column])
            });
            assert_eq!(sums[i * 20 + j], products.sum::<i32>(), "{i} {j}");
        }
    }
}
