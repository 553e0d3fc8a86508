//! A layer's answer to a map that holds nothing, kept small.

use std::ops::Range;

use super::cells::CellMask;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;

/// Which rows (or columns) of a map stand for all: those within reach of the borders, and one period of those between. A
/// transposed convolution gives neighbouring cells different weights, so its answer to nothing repeats every few cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorderAxis {
    before: usize,
    period: usize,
    after: usize,
}

impl BorderAxis {
    /// For maps of `side` cells whose borders are felt `reach` cells deep and whose interior repeats every `period` cells.
    pub fn new(side: usize, reach: usize, period: usize) -> Self {
        if side <= 2 * reach + period {
            // Nothing repeats: all cells stand for themselves.
            return Self {
                before: 0,
                period: side,
                after: 0,
            };
        }
        Self {
            before: reach,
            period,
            after: reach,
        }
    }

    /// Rows that stand for all.
    fn kept(&self) -> usize {
        self.before + self.period + self.after
    }

    /// The rows of a map of `side` that are past the reach of both borders.
    fn interior(&self, side: usize) -> Range<usize> {
        self.before..side - self.after
    }

    /// Where a row of a map of `side` stands among the kept ones.
    fn kept_place(&self, at: usize, side: usize) -> usize {
        let between = self.interior(side);
        if at < between.start {
            at
        } else if at < between.end {
            between.start + (at - between.start) % self.period
        } else {
            self.kept() - (side - at)
        }
    }

    /// The row in the middle of a map of `side` that is the same as interior row `at`.
    fn middle(&self, at: usize, side: usize) -> usize {
        let between = self.interior(side);
        let whole_periods = between.len() / 2 / self.period;
        between.start + whole_periods * self.period + (at - between.start) % self.period
    }
}

/// Makes the rows and columns of a map [C, H, W] that are past the reach of the borders equal to those in the middle.
pub fn seal_interior(
    [height, width]: [usize; 2],
    [rows, columns]: [BorderAxis; 2],
    data: &mut [f32],
) {
    for plane in data.chunks_exact_mut((height * width).max(1)) {
        for row in rows.interior(height) {
            let middle = rows.middle(row, height) * width;
            plane.copy_within(middle..middle + width, row * width);
        }
        for row in plane.chunks_exact_mut(width) {
            for column in columns.interior(width) {
                row[column] = row[columns.middle(column, width)];
            }
        }
    }
}

/// A layer's answer to an empty map, for maps of any size: what the borders make of it, and what repeats between them.
#[derive(Debug)]
pub struct EmptyResponse {
    axes: [BorderAxis; 2],
    /// `[channel][kept row][kept column]`
    data: Vec<f32>,
}

impl EmptyResponse {
    /// Keeps what is needed of a sealed map [C, H, W].
    pub fn of_sealed([height, width]: [usize; 2], axes: [BorderAxis; 2], map: &[f32]) -> Self {
        let [rows, columns] = [(axes[0], height), (axes[1], width)].map(|(axis, side)| {
            let between = axis.interior(side);
            (0..between.start + axis.period).chain(between.end..side)
        });
        let mut data = Vec::new();
        for plane in map.chunks_exact((height * width).max(1)) {
            for row in rows.clone() {
                data.extend(columns.clone().map(|column| plane[row * width + column]));
            }
        }
        Self { axes, data }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.data[..])
    }

    /// Writes the answer to every cell of `y` that is not set in `reached`.
    pub(crate) fn settle(&self, cpu: &Cpu, reached: &CellMask, channels: usize, y: &mut [f32]) {
        let [samples, height, width] = reached.size();
        let [rows, columns] = self.axes;
        let (kept_width, plane) = (columns.kept(), height * width);
        let kept_plane = rows.kept() * kept_width;
        assert_eq!(
            self.data.len(),
            channels * kept_plane,
            "channels of the answer"
        );
        assert_eq!(y.len(), samples * channels * plane, "length of y");
        let pieces: Vec<Vec<Piece>> = (0..samples).map(|s| self.pieces(reached, s)).collect();
        let y = SharedMut::new(y);
        cpu.parallel(samples * channels, &|block, _| {
            // SAFETY: each block has its own plane.
            let y = unsafe { y.slice(block * plane..(block + 1) * plane) };
            let answer = &self.data[block % channels * kept_plane..][..kept_plane];
            for piece in &pieces[block / channels] {
                piece.write(answer, y);
            }
        });
    }

    /// The runs of unreached cells, cut where the interior begins and ends.
    fn pieces(&self, reached: &CellMask, sample: usize) -> Vec<Piece> {
        let [_, height, width] = reached.size();
        let [rows, columns] = self.axes;
        let between = columns.interior(width);
        let parts = [0..between.start, between.clone(), between.end..width];
        let mut pieces = Vec::new();
        for row in 0..height {
            let kept_row = rows.kept_place(row, height) * columns.kept();
            for run in reached.unset_runs(sample, row) {
                for part in &parts {
                    let (start, end) = (run.start.max(part.start), run.end.min(part.end));
                    if start < end {
                        pieces.push(Piece {
                            to: row * width + start,
                            from: kept_row + columns.kept_place(start, width),
                            len: end - start,
                            cycle: (*part == between).then(|| {
                                let first = kept_row + columns.before;
                                first..first + columns.period
                            }),
                        });
                    }
                }
            }
        }
        pieces
    }
}

/// Unreached cells of a plane, and where their answer stands.
#[derive(Clone)]
struct Piece {
    to: usize,
    from: usize,
    len: usize,
    /// What repeats, for cells of the interior.
    cycle: Option<Range<usize>>,
}

impl Piece {
    fn write(&self, answer: &[f32], y: &mut [f32]) {
        let to = &mut y[self.to..self.to + self.len];
        match &self.cycle {
            None => to.copy_from_slice(&answer[self.from..self.from + self.len]),
            Some(cycle) if cycle.len() == 1 => to.fill(answer[self.from]),
            Some(cycle) => {
                let mut from = self.from;
                for value in to {
                    *value = answer[from];
                    from += 1;
                    if from == cycle.end {
                        from = cycle.start;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn kept_rows_stand_for_all() {
        for side in 1..20 {
            for period in [1, 2, 3] {
                let axis = BorderAxis::new(side, 3, period);
                assert_eq!(axis.kept(), side.min(6 + period));
                // Rows that are told apart by their distance to the borders and their phase.
                let value = |at: usize| {
                    if at < 3 || at + 3 >= side {
                        at as f32 - (at + 3 >= side) as u8 as f32 * side as f32
                    } else {
                        100.0 + ((at - 3) % period) as f32
                    }
                };
                let column: Vec<f32> = (0..side).map(value).collect();
                let mut sealed = column.clone();
                seal_interior([side, 1], [axis, BorderAxis::new(1, 0, 1)], &mut sealed);
                assert_eq!(sealed, column);
                let kept =
                    EmptyResponse::of_sealed([side, 1], [axis, BorderAxis::new(1, 0, 1)], &sealed);
                for (at, value) in column.iter().enumerate() {
                    assert_eq!(
                        kept.data[axis.kept_place(at, side)],
                        *value,
                        "{at} of {side}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_answer_that_repeats_fills_unreached_cells() {
        let cpu = Cpu::with_isa(2, Isa::Portable).unwrap();
        // A checkerboard of 2 x 2 with a border of one cell.
        let value = |row: usize, column: usize, [height, width]: [usize; 2]| {
            let border = row == 0 || column == 0 || row + 1 == height || column + 1 == width;
            if border {
                -1.0
            } else {
                (row % 2 * 2 + column % 2) as f32
            }
        };
        let map = |size: [usize; 2]| -> Vec<f32> {
            let cells = (0..size[0]).flat_map(|row| (0..size[1]).map(move |column| (row, column)));
            cells
                .map(|(row, column)| value(row, column, size))
                .collect()
        };
        let (small, size) = ([8, 8], [12, 70]);
        let axes = size.map(|side| BorderAxis::new(side, 1, 2));
        let mut reached = CellMask::new(1, size[0], size[1]);
        reached.set(0, 5, 33);
        let mut y = vec![7.0; size[0] * size[1]];
        let answer = EmptyResponse::of_sealed(small, axes, &map(small));
        answer.settle(&cpu, &reached, 1, &mut y);
        let mut expected = map(size);
        expected[5 * size[1] + 33] = 7.0;
        assert_eq!(y, expected);
    }
}
