//! Every tile against sums in 64 bits, also where every term has the same sign and the largest size.

use super::*;
use crate::int8::{ByteWeights, QuadOrder};
use crate::testing::numbers;

/// All tiles of this CPU for some operands, both codings of VNNI among them.
fn all(operands: Operands) -> Vec<(String, PanelTiles, RowTiles)> {
    let isas = Isa::available_for_bytes().into_iter();
    let sets = isas.map(|isa| {
        let (panels, rows) = (PanelTiles::new(isa, operands), RowTiles::new(isa, operands));
        (isa.to_string(), panels, rows)
    });
    let mut all: Vec<_> = sets.collect();
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avxvnni") {
        use vnni::narrow::{panel_tiles, row_tiles};
        let (panels, rows) = (panel_tiles(operands), row_tiles(operands));
        all.push(("narrow vnni".to_owned(), panels, rows));
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

/// Activations as tiles want them.
fn lifted(lifts: bool, inputs: &[i8]) -> Vec<i8> {
    let mut inputs = inputs.to_vec();
    if lifts {
        lift(&mut inputs);
    }
    inputs
}

/// Sums of groups of 4 rows `[row][depth][4]` and so many pixels, from the tile and in plain arithmetic.
fn panel_sums(
    tiles: &PanelTiles,
    groups: usize,
    weights: &[i8],
    pixels: &[i8],
    depth: usize,
    columns: usize,
) -> [Vec<i64>; 2] {
    let rows = groups * TILE_ROWS;
    let row = |row: usize| &weights[row * depth * 4..][..depth * 4];
    let order = QuadOrder::rows(depth * 4, 1);
    let packed = ByteWeights {
        values: weights.to_vec(),
        scales: vec![1.0; rows],
    };
    let a = packed.pack(&order, 0..rows, tiles.packing, tiles.width);
    let sum = |i: usize| row(i).iter().map(|&w| i32::from(w)).sum::<i32>();
    let starts: Vec<i32> = (0..rows).map(|i| tiles.start_factor() * sum(i)).collect();
    // Something to read behind the panel.
    let mut b = lifted(tiles.lifts, pixels);
    let hanging = 4 * (tiles.packing.deep * columns + READ_TOGETHER);
    b.resize(b.len() + hanging, 99);
    let mut sums = [GroupSums([7; TILE_ROWS * SUM_ROW]); TILE_GROUPS];
    let (tile, taken) = tiles.get(groups);
    #[cfg(target_arch = "x86_64")]
    let _registers = tiles.has_own_registers().then(TileRegisters::take);
    // SAFETY: the operands are as deep as the tile is told, and the thread has its registers.
    unsafe {
        let mut b = Panel {
            quads: b.as_ptr().cast(),
            stride: columns,
            pixels: columns,
        };
        let mut spread_out = vec![99_u8; 16 * FEW_PIXELS * depth.next_multiple_of(SPREAD_DEEP)];
        if let Some(spread) = tiles.spread(columns) {
            spread(depth, b, spread_out.as_mut_ptr());
            b.quads = spread_out.as_ptr();
        }
        let (a, depth) = (a.bytes().as_ptr(), tiles.depth(depth));
        tile(depth, a, b, starts.as_ptr(), sums.as_mut_ptr());
    }
    let mut both = [Vec::new(), Vec::new()];
    for i in 0..taken * TILE_ROWS {
        for j in 0..columns {
            both[0].push(i64::from(sums[i / 4].0[i % 4 * SUM_ROW + j]));
            let products = row(i).iter().enumerate().map(|(e, &weight)| {
                i64::from(weight) * i64::from(pixels[(e / 4 * columns + j) * 4 + e % 4])
            });
            both[1].push(products.sum());
        }
    }
    both
}

/// Sums of rows and panels `[panel][depth][16]`, from the tile and in plain arithmetic.
fn row_sums(
    tiles: &RowTiles,
    panels: usize,
    weights: &[i8],
    rows: &[i8],
    depth: usize,
    count: usize,
) -> [Vec<i64>; 2] {
    let weight = |output: usize, e: usize| {
        let panel = &weights[output / ROW_OUTPUTS * depth * ROW_OUTPUTS * 4..];
        i64::from(panel[(e / 4 * ROW_OUTPUTS + output % ROW_OUTPUTS) * 4 + e % 4])
    };
    let b = stored(weights, tiles.width);
    let starts: Vec<i32> = (0..panels * ROW_OUTPUTS)
        .map(|j| tiles.start_factor() * (0..depth * 4).map(|e| weight(j, e) as i32).sum::<i32>())
        .collect();
    let inputs = lifted(tiles.lifts, rows);
    let row = |i: usize| i.min(count - 1) * depth * 4;
    let pointers = std::array::from_fn(|i| inputs[row(i)..][..depth * 4].as_ptr().cast());
    let mut sums = [[7; ROW_TILE * ROW_OUTPUTS]; ROW_PANELS];
    let (tile, taken) = tiles.get(count, panels);
    // SAFETY: the operands are `depth` quads deep.
    unsafe {
        let (starts, sums) = (starts.as_ptr(), sums.as_mut_ptr());
        tile(depth, &pointers, b.as_ptr(), starts, sums);
    }
    let mut both = [Vec::new(), Vec::new()];
    for i in 0..count {
        for j in 0..taken * ROW_OUTPUTS {
            let sum = sums[j / ROW_OUTPUTS][i * ROW_OUTPUTS + j % ROW_OUTPUTS];
            both[0].push(i64::from(sum));
            let products = (0..depth * 4).map(|e| weight(j, e) * i64::from(rows[row(i) + e]));
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
            for (name, panel_tiles, row_tiles) in all(operands) {
                for (groups, columns) in [1, 2, 3, 4, 5, TILE_GROUPS]
                    .into_iter()
                    .flat_map(|groups| (1..=panel_tiles.pixels).map(move |n| (groups, n)))
                {
                    let weights = bytes(1, groups * depth * 16, -limit, limit);
                    let pixels = bytes(2, depth * columns * 4, lowest, 127);
                    let [got, expected] =
                        panel_sums(&panel_tiles, groups, &weights, &pixels, depth, columns);
                    assert_eq!(got, expected, "{name} {operands:?} {depth} x {columns}");
                }
                // Row tiles take an odd depth too.
                for (count, depth) in [(1, depth), (2, depth + 1), (3, depth), (6, depth + 1)] {
                    for panels in 1..=ROW_PANELS {
                        let weights = bytes(3, panels * depth * ROW_OUTPUTS * 4, -limit, limit);
                        let rows = bytes(4, count * depth * 4, lowest, 127);
                        let [got, expected] =
                            row_sums(&row_tiles, panels, &weights, &rows, depth, count);
                        assert_eq!(got, expected, "{name} {operands:?} {count} rows x {depth}");
                    }
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
            (Operands::Bounded, at_the_limit(DEPTH * 4, sign), 127),
            (Operands::Positive, vec![127 * sign; DEPTH * 4], 127),
            (Operands::Signed, vec![127 * sign; DEPTH * 4], 127),
            (Operands::Signed, vec![127 * sign; DEPTH * 4], -127),
        ] {
            for (name, panel_tiles, row_tiles) in all(operands) {
                let inputs = vec![input; DEPTH * 4 * TILE_PIXELS];
                let rows = weights.repeat(TILE_ROWS * TILE_GROUPS);
                for columns in [1, 4, 8, panel_tiles.pixels] {
                    let [got, expected] =
                        panel_sums(&panel_tiles, TILE_GROUPS, &rows, &inputs, DEPTH, columns);
                    assert_eq!(got, expected, "{name} {operands:?} {sign} {columns}");
                }
                let quads = weights.chunks_exact(4);
                let panel: Vec<i8> = quads.flat_map(|quad| quad.repeat(ROW_OUTPUTS)).collect();
                let outputs = panel.repeat(ROW_PANELS);
                let [got, expected] = row_sums(&row_tiles, ROW_PANELS, &outputs, &inputs, DEPTH, 6);
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
    let (weights, inputs) = (vec![127; 2 * 64], vec![127; 2 * 4 * TILE_PIXELS]);
    let tiles = PanelTiles::new(Isa::Avx2, Operands::Bounded);
    let [got, expected] = panel_sums(&tiles, 1, &weights, &inputs, 2, 24);
    assert_ne!(got, expected);
    let tiles = RowTiles::new(Isa::Avx2, Operands::Bounded);
    let [got, expected] = row_sums(&tiles, 1, &weights, &inputs, 2, 6);
    assert_ne!(got, expected);
}

#[test]
fn words_are_exact() {
    const DEPTH: usize = 9;
    let word = |x: f32| (x * 12_700.0) as i16;
    let words = |seed, len| -> Vec<i16> { numbers(seed, len).into_iter().map(word).collect() };
    let (a, b) = (
        words(5, WORD_GROUPS * DEPTH * 8),
        words(6, DEPTH * WORD_COLUMNS * 2),
    );
    let mut sets: Vec<WordTiles> = Isa::available_for_bytes()
        .into_iter()
        .map(WordTiles::new)
        .collect();
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avxvnni") {
        sets.push(WordTiles([Some(vnni::narrow::word_tile), None]));
    }
    for (tile, groups) in sets.iter().flat_map(|set| [set.get(1), set.get(2)]) {
        for count in 1..=WORD_COLUMNS / WORD_RUN {
            let mut sums = [[7; TILE_ROWS * WORD_COLUMNS]; WORD_GROUPS];
            let runs = WordRuns {
                words: b.as_ptr(),
                stride: DEPTH * WORD_RUN * 2,
                count,
            };
            // SAFETY: the operands are `DEPTH` pairs deep.
            unsafe { tile(DEPTH, a.as_ptr(), runs, sums.as_mut_ptr()) };
            for (i, j) in (0..4 * groups).flat_map(|i| (0..WORD_COLUMNS).map(move |j| (i, j))) {
                let products = (0..DEPTH * 2).map(|e| {
                    let weight = a[i / 4 * DEPTH * 8 + (e / 2 * 4 + i % 4) * 2 + e % 2];
                    let column = (j / WORD_RUN * DEPTH + e / 2) * WORD_RUN + j % WORD_RUN;
                    i32::from(weight) * i32::from(b[column * 2 + e % 2])
                });
                let is_there = j < count * WORD_RUN;
                let expected = if is_there { products.sum() } else { 7 };
                let sum = sums[i / 4][i % 4 * WORD_COLUMNS + j];
                assert_eq!(sum, expected, "{count} runs: {i} {j}");
            }
        }
    }
}
