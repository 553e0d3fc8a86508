//! Convolutions that compute only the tiles whose input holds something.
//!
//! A cell that nothing reaches has its layer's answer to the empty map. In exact arithmetic that is what a tile around it
//! computes as well; in floating point a Winograd tile leaves, in all its cells, rounding errors of whatever lies in one of
//! them, and the next layer would carry them on, tile by tile. So unreached cells are set to the answer itself, whether
//! their tile was computed or not: the result has the same bits for any choice of tiles, and depends on an unreached cell's
//! own surroundings only.

use std::ops::Range;

use super::cells::CellMask;
use super::packed::{PackedConv, conv2d};
use super::shape::{ConvAlgorithm, ConvShape};
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;

/// Cells along the side of a tile.
const TILE: usize = 4;

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
    fn settle(&self, cpu: &Cpu, reached: &CellMask, channels: usize, y: &mut [f32]) {
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

/// Whether this convolution can skip tiles.
pub fn can_skip(weights: &PackedConv) -> bool {
    weights.algorithm() == ConvAlgorithm::Winograd4
}

/// Which tiles to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiles {
    /// Those with a reached cell.
    Reached,
    /// All.
    All,
}

/// `y = activation(conv(x) + bias + residual)` where `reached` is set, and the answer to the empty map elsewhere. Returns
/// the share of tiles that were computed.
///
/// # Panics
/// When [`can_skip`] is false, or a size does not fit.
pub fn conv2d_settled(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &PackedConv,
    x: &[f32],
    epilogue: Epilogue<'_>,
    reached: &CellMask,
    empty: &EmptyResponse,
    choice: Tiles,
    y: &mut [f32],
) -> f64 {
    let (height, width) = (shape.out_height(), shape.out_width());
    assert_eq!(
        reached.size(),
        [shape.batch, height, width],
        "size of the mask"
    );
    let total = shape.batch * height.div_ceil(TILE) * width.div_ceil(TILE);
    let tiles = match choice {
        Tiles::Reached => reached.tiles(TILE),
        Tiles::All => Vec::new(),
    };
    let computed = if choice == Tiles::All || tiles.len() == total {
        conv2d(cpu, shape, weights, x, None, epilogue, y);
        total
    } else {
        weights.conv2d_tiles(cpu, shape, x, epilogue, &tiles, y);
        tiles.len()
    };
    empty.settle(cpu, reached, shape.out_channels, y);
    computed as f64 / total.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::Activation;
    use crate::isa::Isa;
    use crate::testing::numbers;
    use proptest::prelude::*;

    const CHANNELS: usize = 19;

    fn shape(batch: usize, height: usize, width: usize) -> ConvShape {
        ConvShape {
            batch,
            in_channels: CHANNELS,
            height,
            width,
            out_channels: CHANNELS,
            kernel: [3, 3],
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 1,
        }
    }

    /// Three layers behind one another, each with its answer to the empty map, on any map.
    struct Net<'a> {
        cpu: &'a Cpu,
        packed: PackedConv,
        bias: Vec<f32>,
        empty: Vec<EmptyResponse>,
    }

    impl<'a> Net<'a> {
        fn new(cpu: &'a Cpu, [height, width]: [usize; 2], small: [usize; 2]) -> Self {
            let shape = shape(1, small[0], small[1]);
            let weight: Vec<f32> = numbers(2, shape.weight_len())
                .iter()
                .map(|w| 0.1 * w)
                .collect();
            let packed = PackedConv::pack(cpu, &shape, ConvAlgorithm::Winograd4, &weight);
            let mut net = Net {
                cpu,
                packed,
                bias: numbers(3, CHANNELS),
                empty: Vec::new(),
            };
            let mut map = vec![0.0; shape.in_len()];
            for layer in 0..3 {
                let mut y = vec![f32::NAN; shape.out_len()];
                conv2d(cpu, &shape, &net.packed, &map, None, net.epilogue(), &mut y);
                let axes = [height, width].map(|side| BorderAxis::new(side, layer + 1, 1));
                seal_interior(small, axes, &mut y);
                net.empty.push(EmptyResponse::of_sealed(small, axes, &y));
                map = y;
            }
            net
        }

        fn epilogue(&self) -> Epilogue<'_> {
            Epilogue {
                bias: Some(&self.bias),
                residual: None,
                activation: Activation::Relu,
            }
        }

        fn run(
            &self,
            shape: &ConvShape,
            x: &[f32],
            mask: &CellMask,
            choice: Option<Tiles>,
        ) -> Vec<f32> {
            let (mut x, mut mask) = (x.to_vec(), mask.clone());
            for empty in &self.empty {
                let mut y = vec![f32::NAN; shape.out_len()];
                mask = mask.through_conv(shape);
                match choice {
                    Some(choice) => {
                        let share = conv2d_settled(
                            self.cpu,
                            shape,
                            &self.packed,
                            &x,
                            self.epilogue(),
                            &mask,
                            empty,
                            choice,
                            &mut y,
                        );
                        assert!(share <= 1.0);
                    }
                    None => conv2d(
                        self.cpu,
                        shape,
                        &self.packed,
                        &x,
                        None,
                        self.epilogue(),
                        &mut y,
                    ),
                }
                x = y;
            }
            x
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn skipping_changes_no_bit(
            batch in 1usize..3,
            (height, width) in (20usize..50, 20usize..90),
            cells in prop::collection::vec((0usize..2, 0usize..50, 0usize..90), 0..6),
            smaller in any::<bool>(),
        ) {
            let shape = shape(batch, height, width);
            let mut occupied = CellMask::new(batch, height, width);
            let mut x = vec![0.0; shape.in_len()];
            for (sample, row, column) in cells {
                let (sample, row, column) = (sample % batch, row % height, column % width);
                occupied.set(sample, row, column);
                for channel in 0..CHANNELS {
                    let plane = sample * CHANNELS + channel;
                    x[plane * shape.in_pixels() + row * width + column] = channel as f32 * 0.37 - 2.0;
                }
            }
            for isa in Isa::available() {
                let mut first: Option<Vec<u32>> = None;
                for threads in 1..3 {
                    let cpu = Cpu::with_isa(threads, isa).unwrap();
                    let side = |side: usize| if smaller { 16 + side % TILE } else { side };
                    let net = Net::new(&cpu, [height, width], [side(height), side(width)]);
                    let bits = |y: &[f32]| y.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    let skipped = net.run(&shape, &x, &occupied, Some(Tiles::Reached));
                    let all = net.run(&shape, &x, &occupied, Some(Tiles::All));
                    prop_assert_eq!(bits(&skipped), bits(&all));
                    prop_assert_eq!(first.get_or_insert_with(|| bits(&all)), &bits(&all));
                    // Without settling, only the rounding of Winograd differs.
                    let plain = net.run(&shape, &x, &occupied, None);
                    for (settled, plain) in skipped.iter().zip(&plain) {
                        prop_assert!((settled - plain).abs() < 1e-4, "{} and {}", settled, plain);
                    }
                }
            }
        }
    }

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
