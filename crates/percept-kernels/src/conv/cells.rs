//! Which cells of a map matter: where the input was empty, a layer's output is its answer to the empty map.

use std::ops::Range;

use super::shape::ConvShape;
use super::transpose_shape::ConvTransposeShape;

const WORD: usize = u64::BITS as usize;

/// A bit for each cell of maps [N, H, W]: set where the cell's receptive field holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellMask {
    samples: usize,
    height: usize,
    width: usize,
    words: Vec<u64>,
}

impl CellMask {
    /// No cell set.
    pub fn new(samples: usize, height: usize, width: usize) -> Self {
        Self {
            samples,
            height,
            width,
            words: vec![0; samples * height * width.div_ceil(WORD)],
        }
    }

    /// Samples, height and width.
    pub fn size(&self) -> [usize; 3] {
        [self.samples, self.height, self.width]
    }

    /// Sets a cell.
    pub fn set(&mut self, sample: usize, row: usize, column: usize) {
        assert!(
            sample < self.samples && row < self.height && column < self.width,
            "a cell outside the map"
        );
        self.row_mut(sample, row)[column / WORD] |= 1 << (column % WORD);
    }

    /// Whether a cell is set.
    pub fn is_set(&self, sample: usize, row: usize, column: usize) -> bool {
        self.row(sample, row)[column / WORD] >> (column % WORD) & 1 == 1
    }

    /// Sets what is set in `other`, which has the same size.
    pub fn unite(&mut self, other: &CellMask) {
        assert_eq!(self.size(), other.size(), "sizes of the masks");
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// The outputs of a convolution whose window holds a set cell.
    pub fn through_conv(&self, shape: &ConvShape) -> CellMask {
        let (height, width) = (shape.out_height(), shape.out_width());
        let mut reached = CellMask::new(self.samples, height, width);
        let mut lines = vec![0; self.words_per_row()];
        for sample in 0..self.samples {
            for row in 0..height {
                lines.fill(0);
                for tap in 0..shape.kernel[0] {
                    let from = (row * shape.stride[0] + tap * shape.dilation[0])
                        .wrapping_sub(shape.padding[0]);
                    if from < self.height {
                        for (line, word) in lines.iter_mut().zip(self.row(sample, from)) {
                            *line |= word;
                        }
                    }
                }
                let output = reached.row_mut(sample, row);
                for tap in 0..shape.kernel[1] {
                    let shift = (tap * shape.dilation[1]) as isize - shape.padding[1] as isize;
                    add_shifted(&lines, shift, shape.stride[1], width, output);
                }
            }
        }
        reached
    }

    /// The outputs of a transposed convolution that a set cell leaves its mark on.
    pub fn through_conv_transpose(&self, shape: &ConvTransposeShape) -> CellMask {
        let (height, width) = (shape.out_height(), shape.out_width());
        let mut reached = CellMask::new(self.samples, height, width);
        let target = |axis: usize, at: usize, tap: usize| {
            (at * shape.stride[axis] + tap * shape.dilation[axis]).wrapping_sub(shape.padding[axis])
        };
        for sample in 0..self.samples {
            for row in 0..self.height {
                for column in (0..self.width).filter(|&column| self.is_set(sample, row, column)) {
                    for tap in 0..shape.kernel[0] * shape.kernel[1] {
                        let to_row = target(0, row, tap / shape.kernel[1]);
                        let to_column = target(1, column, tap % shape.kernel[1]);
                        if to_row < height && to_column < width {
                            reached.set(sample, to_row, to_column);
                        }
                    }
                }
            }
        }
        reached
    }

    /// The runs of cells of a row that are not set.
    pub(super) fn unset_runs(
        &self,
        sample: usize,
        row: usize,
    ) -> impl Iterator<Item = Range<usize>> + '_ {
        let words = self.row(sample, row);
        let width = self.width;
        // The next cell at or behind `from` that is set (or not), by whole words.
        let next = move |from: usize, set: bool| {
            let mut at = from;
            while at < width {
                let word = if set {
                    words[at / WORD]
                } else {
                    !words[at / WORD]
                };
                let rest = word >> (at % WORD);
                if rest != 0 {
                    return (at + rest.trailing_zeros() as usize).min(width);
                }
                at = (at / WORD + 1) * WORD;
            }
            width
        };
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = next(at, false);
            at = next(start, true);
            (start < width).then_some(start..at)
        })
    }

    /// Tiles of `side` x `side` cells with a set cell, numbered row by row over all samples, ascending.
    pub(crate) fn tiles(&self, side: usize) -> Vec<u32> {
        let (rows, columns) = (self.height.div_ceil(side), self.width.div_ceil(side));
        let mut tiles = Vec::new();
        let mut lines = vec![0; self.words_per_row()];
        for tile_row in 0..self.samples * rows {
            let (sample, first) = (tile_row / rows, tile_row % rows * side);
            lines.fill(0);
            for row in first..self.height.min(first + side) {
                for (line, word) in lines.iter_mut().zip(self.row(sample, row)) {
                    *line |= word;
                }
            }
            let is_set = |column: usize| lines[column / WORD] >> (column % WORD) & 1 == 1;
            for tile in 0..columns {
                let mut cells = tile * side..self.width.min((tile + 1) * side);
                if cells.any(is_set) {
                    tiles.push((tile_row * columns + tile) as u32);
                }
            }
        }
        tiles
    }

    /// Runs of `len` cells with a set one, numbered over all samples' cells row by row, ascending.
    pub(crate) fn runs(&self, len: usize) -> Vec<u32> {
        let mut runs: Vec<u32> = Vec::new();
        for line in 0..self.samples * self.height {
            let first = line * self.width;
            for (index, &word) in self
                .row(line / self.height, line % self.height)
                .iter()
                .enumerate()
            {
                let mut rest = word;
                while rest != 0 {
                    let cell = first + index * WORD + rest.trailing_zeros() as usize;
                    let run = cell / len;
                    if runs.last() != Some(&(run as u32)) {
                        runs.push(run as u32);
                    }
                    // The run's other cells in this word say nothing new.
                    let known = ((run + 1) * len - first - index * WORD).min(WORD);
                    rest = rest
                        .checked_shr(known as u32)
                        .unwrap_or(0)
                        .checked_shl(known as u32)
                        .unwrap_or(0);
                }
            }
        }
        runs
    }

    fn words_per_row(&self) -> usize {
        self.width.div_ceil(WORD)
    }

    fn row(&self, sample: usize, row: usize) -> &[u64] {
        let words = self.words_per_row();
        &self.words[(sample * self.height + row) * words..][..words]
    }

    fn row_mut(&mut self, sample: usize, row: usize) -> &mut [u64] {
        let words = self.words_per_row();
        &mut self.words[(sample * self.height + row) * words..][..words]
    }
}

/// Sets output x where line x · stride + shift is set.
fn add_shifted(lines: &[u64], shift: isize, stride: usize, width: usize, output: &mut [u64]) {
    if stride == 1 {
        let (words, bits) = (
            shift.div_euclid(WORD as isize),
            shift.rem_euclid(WORD as isize),
        );
        let word = |index: isize| {
            usize::try_from(index)
                .ok()
                .and_then(|i| lines.get(i))
                .copied()
        };
        for (i, output) in output.iter_mut().enumerate() {
            let at = i as isize + words;
            *output |= word(at).unwrap_or(0) >> bits;
            if bits > 0 {
                *output |= word(at + 1).unwrap_or(0) << (WORD as isize - bits);
            }
        }
        if let Some(last) = output.last_mut()
            && !width.is_multiple_of(WORD)
        {
            *last &= (1 << (width % WORD)) - 1;
        }
        return;
    }
    for x in 0..width {
        let at = (x * stride) as isize + shift;
        let is_set = usize::try_from(at).ok().and_then(|at| {
            lines
                .get(at / WORD)
                .map(|word| word >> (at % WORD) & 1 == 1)
        });
        if is_set == Some(true) {
            output[x / WORD] |= 1 << (x % WORD);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_mask(height: usize, width: usize) -> impl Strategy<Value = CellMask> {
        prop::collection::vec((0..2usize, 0..height, 0..width), 0..12).prop_map(move |cells| {
            let mut mask = CellMask::new(2, height, width);
            for (sample, row, column) in cells {
                mask.set(sample, row, column);
            }
            mask
        })
    }

    proptest! {
        #[test]
        fn a_window_reaches_what_it_holds(
            (mask, kernel, stride, padding) in (3usize..9, 3usize..150).prop_flat_map(|(height, width)| {
                (some_mask(height, width), [1usize..4, 1..4], [1usize..3, 1..3], [0usize..3, 0..3])
            }),
            dilation in [1usize..3, 1..3],
        ) {
            let [batch, height, width] = mask.size();
            let shape = ConvShape {
                batch, in_channels: 1, height, width, out_channels: 1,
                kernel, stride, padding, dilation, groups: 1,
            };
            let reached = mask.through_conv(&shape);
            for sample in 0..batch {
                for row in 0..shape.out_height() {
                    for column in 0..shape.out_width() {
                        let expected = (0..kernel[0] * kernel[1]).any(|tap| {
                            let y = (row * stride[0] + tap / kernel[1] * dilation[0]).wrapping_sub(padding[0]);
                            let x = (column * stride[1] + tap % kernel[1] * dilation[1]).wrapping_sub(padding[1]);
                            y < height && x < width && mask.is_set(sample, y, x)
                        });
                        prop_assert_eq!(reached.is_set(sample, row, column), expected);
                    }
                }
            }
        }

        #[test]
        fn unset_runs_are_the_rest(mask in some_mask(4, 150)) {
            for sample in 0..2 {
                for row in 0..4 {
                    let mut unset = vec![false; 150];
                    for run in mask.unset_runs(sample, row) {
                        prop_assert!(!run.is_empty());
                        unset[run].fill(true);
                    }
                    for (column, unset) in unset.into_iter().enumerate() {
                        prop_assert_eq!(unset, !mask.is_set(sample, row, column));
                    }
                }
            }
        }

        #[test]
        fn runs_hold_the_set_cells(mask in some_mask(5, 70), len in 1usize..90) {
            let cells = 2 * 5 * 70usize;
            let is_set = |cell: usize| mask.is_set(cell / 350, cell / 70 % 5, cell % 70);
            let expected: Vec<u32> = (0..cells.div_ceil(len))
                .filter(|run| (run * len..((run + 1) * len).min(cells)).any(is_set))
                .map(|run| run as u32)
                .collect();
            prop_assert_eq!(mask.runs(len), expected);
        }

        #[test]
        fn tiles_hold_the_set_cells(mask in some_mask(10, 70), side in 1usize..6) {
            let columns = 70usize.div_ceil(side);
            let rows = 10usize.div_ceil(side);
            let tiles = mask.tiles(side);
            for tile in 0..2 * rows * columns {
                let (sample, row, column) = (tile / columns / rows, tile / columns % rows, tile % columns);
                let expected = (0..side * side).any(|cell| {
                    let (y, x) = (row * side + cell / side, column * side + cell % side);
                    y < 10 && x < 70 && mask.is_set(sample, y, x)
                });
                prop_assert_eq!(tiles.contains(&(tile as u32)), expected);
            }
        }
    }

    #[test]
    fn doubling_marks_four_cells() {
        let mut mask = CellMask::new(1, 3, 3);
        mask.set(0, 1, 2);
        let shape = ConvTransposeShape {
            batch: 1,
            in_channels: 1,
            height: 3,
            width: 3,
            out_channels: 1,
            kernel: [2, 2],
            stride: [2, 2],
            padding: [0, 0],
            output_padding: [0, 0],
            dilation: [1, 1],
            groups: 1,
        };
        let reached = mask.through_conv_transpose(&shape);
        let set: Vec<(usize, usize)> = (0..36)
            .map(|cell| (cell / 6, cell % 6))
            .filter(|&(row, column)| reached.is_set(0, row, column))
            .collect();
        assert_eq!(set, [(2, 4), (2, 5), (3, 4), (3, 5)]);
    }
}
