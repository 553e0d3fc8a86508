//! Which input row meets which output row, at which tap.

use std::sync::OnceLock;

use super::sites::{Numbering, rows, sample_count};
use super::{SparseError, Window};
use crate::cpu::Cpu;

/// The pairs of a convolution, grouped by block of output rows and then by tap, ascending within.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rulebook {
    /// `[output row, input row]` of every pair.
    pub pairs: Vec<i32>,
    /// Where each group starts, in pairs: `[blocks, taps]` and the end.
    pub starts: Vec<i32>,
}

/// Pairs the rows of `output_sites` with those of `sites`, `block_rows` output rows at a time. The sites lie in `cells`.
///
/// Both lists ascend, and so do the sites that a tap reads: each block walks the inputs once for every line of taps.
pub fn rulebook(
    cpu: &Cpu,
    window: &Window,
    cells: [usize; 3],
    sites: &[i32],
    output_sites: &[i32],
    block_rows: usize,
) -> Result<Rulebook, SparseError> {
    assert!(block_rows > 0, "a block has rows");
    let samples = sample_count(sites).max(sample_count(output_sites));
    let margin = std::array::from_fn(|axis| window.padding[axis] + window.kernel[axis]);
    let numbering = Numbering::new(samples, cells, margin)?;
    let numbers = numbering.numbers(sites, cells)?;
    let output_cells = window.output_cells(cells);
    Numbering::new(samples, output_cells, [0; 3])?.numbers(output_sites, output_cells)?;
    let output_sites: Vec<[i32; 4]> = rows(output_sites).collect();
    let taps = window.taps();
    let blocks = output_sites.len().div_ceil(block_rows);
    let found: Vec<OnceLock<BlockPairs>> = (0..blocks).map(|_| OnceLock::new()).collect();
    cpu.parallel(blocks, &|block, _| {
        let first = block * block_rows;
        let rows = &output_sites[first..output_sites.len().min(first + block_rows)];
        let pairs = BlockPairs::find(window, &numbering, &numbers, rows, first);
        let _ = found[block].set(pairs); // each block runs once
    });
    let found = found.into_iter().filter_map(OnceLock::into_inner);
    let mut book = Rulebook {
        pairs: Vec::new(),
        starts: Vec::with_capacity(blocks * taps + 1),
    };
    for block in found {
        let before = book.pair_count();
        book.starts
            .extend(block.starts.iter().map(|start| before + start));
        book.pairs.extend(block.pairs.as_flattened());
    }
    book.starts.push(book.pair_count());
    Ok(book)
}

impl Rulebook {
    fn pair_count(&self) -> i32 {
        i32::try_from(self.pairs.len() / 2).expect("rows are numbered with i32, and so are pairs")
    }
}

/// What one block of output rows found.
#[derive(Debug)]
struct BlockPairs {
    pairs: Vec<[i32; 2]>,
    /// Where each tap's pairs start.
    starts: Vec<i32>,
}

impl BlockPairs {
    fn find(
        window: &Window,
        numbering: &Numbering,
        numbers: &[i64],
        rows: &[[i32; 4]],
        first_row: usize,
    ) -> BlockPairs {
        const NONE: i32 = -1;
        let start = |site: i32, axis: usize| {
            i64::from(site) * window.stride[axis] as i64 - window.padding[axis] as i64
        };
        let corners: Vec<i64> = rows
            .iter()
            .map(|&[batch, z, y, x]| {
                numbering.number(batch, [start(z, 0), start(y, 1), start(x, 2)])
            })
            .collect();
        let [step_z, step_y] = numbering.steps();
        let [taps_z, taps_y, taps_x] = window.kernel;
        // The walk goes row by row, the result tap by tap: turned around in a table that the caches hold.
        let mut table = vec![NONE; window.taps() * rows.len()];
        for line in 0..taps_z * taps_y {
            let (tap_z, tap_y) = (line / taps_y, line % taps_y);
            let shift = tap_z as i64 * step_z + tap_y as i64 * step_y;
            let lines = &mut table[line * taps_x * rows.len()..][..taps_x * rows.len()];
            let first = corners.first().map_or(0, |corner| corner + shift);
            let mut at = numbers.partition_point(|&number| number < first);
            for (i, &corner) in corners.iter().enumerate() {
                let wanted = corner + shift;
                while numbers.get(at).is_some_and(|&number| number < wanted) {
                    at += 1;
                }
                for (input, &number) in numbers.iter().enumerate().skip(at).take(taps_x) {
                    let tap_x = (number - wanted) as usize;
                    if tap_x >= taps_x {
                        break;
                    }
                    lines[tap_x * rows.len() + i] = input as i32;
                }
            }
        }
        // Every place of the table is written as a pair, and kept by moving on: cheaper than a branch that nobody can predict.
        let mut pairs = vec![[0; 2]; table.len() + 1];
        let mut starts = Vec::with_capacity(window.taps());
        let mut count = 0;
        for inputs in table.chunks(rows.len()) {
            starts.push(count as i32);
            for (row, &input) in (first_row as i32..).zip(inputs) {
                pairs[count] = [row, input];
                count += usize::from(input != NONE);
            }
        }
        pairs.truncate(count);
        BlockPairs { pairs, starts }
    }
}
