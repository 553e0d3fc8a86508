//! Sites as numbers, and which sites a strided convolution makes active.

use std::sync::OnceLock;

use super::{SparseError, Window};
use crate::cpu::Cpu;

/// Numbers sites so that the order of numbers is the order of sites, with a margin around the grid: a site plus any tap is
/// a site of the margin or of the same row, never of the next row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbering {
    margin: [i64; 3],
    sides: [i64; 3],
}

impl Numbering {
    /// For sites in `cells`, seen through windows that reach at most `margin` beyond.
    pub(super) fn new(
        samples: usize,
        cells: [usize; 3],
        margin: [usize; 3],
    ) -> Result<Self, SparseError> {
        let too_large = SparseError::TooLarge { samples, cells };
        let side = |axis: usize| {
            let side = margin[axis].checked_mul(2)?.checked_add(cells[axis])?;
            i64::try_from(side).ok()
        };
        let (Some(z), Some(y), Some(x)) = (side(0), side(1), side(2)) else {
            return Err(too_large);
        };
        let total = [z, y, x]
            .iter()
            .try_fold(samples.max(1) as i64, |product, &side| {
                product.checked_mul(side)
            });
        total
            .filter(|&total| total < i64::MAX / 2)
            .ok_or(too_large)?;
        Ok(Self {
            margin: margin.map(|m| m as i64),
            sides: [z, y, x],
        })
    }

    /// The number of a site, which may lie in the margin.
    #[inline(always)]
    pub(super) fn number(&self, batch: i32, [z, y, x]: [i64; 3]) -> i64 {
        let plane = i64::from(batch) * self.sides[0] + z + self.margin[0];
        (plane * self.sides[1] + y + self.margin[1]) * self.sides[2] + x + self.margin[2]
    }

    /// How far apart the numbers of a site and of its neighbour along z and along y are.
    pub(super) fn steps(&self) -> [i64; 2] {
        [self.sides[1] * self.sides[2], self.sides[2]]
    }

    /// The numbers of all sites, which must lie in the grid and ascend.
    pub(super) fn numbers(
        &self,
        sites: &[i32],
        cells: [usize; 3],
    ) -> Result<Vec<i64>, SparseError> {
        let mut numbers = Vec::with_capacity(sites.len() / 4);
        for (row, site) in rows(sites).enumerate() {
            let [batch, z, y, x] = site;
            let inside = |at: i32, side: usize| usize::try_from(at).is_ok_and(|at| at < side);
            if batch < 0 || !inside(z, cells[0]) || !inside(y, cells[1]) || !inside(x, cells[2]) {
                return Err(SparseError::Outside { row, site, cells });
            }
            let number = self.number(batch, [z.into(), y.into(), x.into()]);
            if numbers.last().is_some_and(|&last| last >= number) {
                return Err(SparseError::Unsorted { row, site });
            }
            numbers.push(number);
        }
        Ok(numbers)
    }
}

/// The sites of a flat list.
pub(super) fn rows(sites: &[i32]) -> impl DoubleEndedIterator<Item = [i32; 4]> + '_ {
    let (sites, rest) = sites.as_chunks::<4>();
    assert!(rest.is_empty(), "a site has four numbers");
    sites.iter().copied()
}

/// Samples that the sites name: one more than the largest batch index.
pub(super) fn sample_count(sites: &[i32]) -> usize {
    rows(sites)
        .next_back()
        .map_or(0, |site| site[0].max(0) as usize + 1)
}

/// The output sites of a convolution: every site whose window holds an active input site, ascending.
///
/// One layer of the output at a time, in a bit for each of its cells: setting bits sorts the sites and drops the double.
pub fn output_sites(
    cpu: &Cpu,
    window: &Window,
    cells: [usize; 3],
    sites: &[i32],
) -> Result<Vec<i32>, SparseError> {
    let samples = sample_count(sites);
    Numbering::new(samples, cells, [0; 3])?.numbers(sites, cells)?;
    let output_cells = window.output_cells(cells);
    Numbering::new(samples, output_cells, [0; 3])?;
    let layers = Layers::new(sites);
    let reach_y = Reach::new(window, cells, 1);
    let reach_x = Reach::new(window, cells, 2);
    let depth = output_cells[0];
    let made: Vec<OnceLock<Vec<i32>>> = vec![OnceLock::new(); samples * depth];
    // Some layers at a time share what their bits are set in.
    cpu.parallel(made.len().div_ceil(LAYERS_PER_BLOCK), &|block, _| {
        let mut layer = BitLayer::new(output_cells[1], output_cells[2]);
        let first = block * LAYERS_PER_BLOCK;
        for (number, made) in made.iter().enumerate().skip(first).take(LAYERS_PER_BLOCK) {
            let (sample, z) = (number / depth, number % depth);
            for tap in 0..window.kernel[0] {
                let below = (z * window.stride[0] + tap).checked_sub(window.padding[0]);
                for &[_, _, y, x] in below.map_or(&[][..], |z| layers.rows(sample, z)) {
                    for &row in reach_y.outputs(y) {
                        for &column in reach_x.outputs(x) {
                            layer.set(row, column);
                        }
                    }
                }
            }
            let mut active = Vec::new();
            layer.drain(|row, column| {
                active.extend([sample as i32, z as i32, row as i32, column as i32]);
            });
            made.get_or_init(|| active);
        }
    });
    Ok(made
        .into_iter()
        .filter_map(OnceLock::into_inner)
        .flatten()
        .collect())
}

/// Layers of output sites that are made one behind the other.
const LAYERS_PER_BLOCK: usize = 4;

/// The sites of each layer.
struct Layers<'a> {
    sites: &'a [[i32; 4]],
}

impl<'a> Layers<'a> {
    fn new(sites: &'a [i32]) -> Self {
        Self {
            sites: sites.as_chunks::<4>().0,
        }
    }

    fn rows(&self, sample: usize, z: usize) -> &'a [[i32; 4]] {
        let layer = [sample as i32, z as i32];
        let start = self.sites.partition_point(|site| site[..2] < layer[..]);
        let end = self.sites.partition_point(|site| site[..2] <= layer[..]);
        &self.sites[start..end]
    }
}

/// Which outputs each input is in the window of, along one axis.
struct Reach {
    outputs: Vec<usize>,
    starts: Vec<usize>,
}

impl Reach {
    fn new(window: &Window, cells: [usize; 3], axis: usize) -> Self {
        let (kernel, stride, padding) = (
            window.kernel[axis],
            window.stride[axis],
            window.padding[axis],
        );
        let output_side = window.output_cells(cells)[axis];
        let mut reach = Reach {
            outputs: Vec::new(),
            starts: vec![0],
        };
        for input in 0..cells[axis] {
            let starts = (0..kernel)
                .rev()
                .filter_map(|tap| (input + padding).checked_sub(tap));
            let outputs = starts
                .filter(|start| start % stride == 0)
                .map(|start| start / stride);
            reach
                .outputs
                .extend(outputs.filter(|&output| output < output_side));
            reach.starts.push(reach.outputs.len());
        }
        reach
    }

    #[inline(always)]
    fn outputs(&self, input: i32) -> &[usize] {
        let input = input as usize;
        &self.outputs[self.starts[input]..self.starts[input + 1]]
    }
}

/// A layer of cells, a bit each.
struct BitLayer {
    words: Vec<u64>,
    words_per_row: usize,
}

impl BitLayer {
    fn new(rows: usize, columns: usize) -> Self {
        let words_per_row = columns.div_ceil(64);
        Self {
            words: vec![0; rows * words_per_row],
            words_per_row,
        }
    }

    #[inline(always)]
    fn set(&mut self, row: usize, column: usize) {
        self.words[row * self.words_per_row + column / 64] |= 1 << (column % 64);
    }

    /// Calls `cell` for every set bit, ascending, and clears it.
    fn drain(&mut self, mut cell: impl FnMut(usize, usize)) {
        for (row, words) in self
            .words
            .chunks_exact_mut(self.words_per_row.max(1))
            .enumerate()
        {
            for (part, word) in words.iter_mut().enumerate() {
                while *word != 0 {
                    cell(row, part * 64 + word.trailing_zeros() as usize);
                    *word &= *word - 1;
                }
            }
        }
    }
}
