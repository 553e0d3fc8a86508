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

/// Which rows (or columns) of a map stand for all: those within reach of the borders, and one for all between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorderAxis {
    before: usize,
    after: usize,
}

impl BorderAxis {
    /// For maps of `side` cells whose borders are felt `reach` cells deep.
    pub fn new(side: usize, reach: usize) -> Self {
        let before = reach.min(side / 2);
        Self {
            before,
            after: reach.min(side.saturating_sub(before + 1)),
        }
    }

    /// Rows that stand for all.
    pub fn kept(&self) -> usize {
        self.before + 1 + self.after
    }

    /// The rows of a map of `side` that are past the reach of both borders.
    fn interior(&self, side: usize) -> Range<usize> {
        self.before..side - self.after
    }
}

/// A map [C, H, W] whose rows and columns past the reach of the borders are made equal to one of them.
pub fn seal_interior(
    [height, width]: [usize; 2],
    [rows, columns]: [BorderAxis; 2],
    data: &mut [f32],
) {
    for plane in data.chunks_exact_mut((height * width).max(1)) {
        let between = rows.interior(height);
        let middle = (between.start + between.end) / 2 * width;
        for row in between {
            plane.copy_within(middle..middle + width, row * width);
        }
        let between = columns.interior(width);
        let middle = (between.start + between.end) / 2;
        for row in plane.chunks_exact_mut(width) {
            let value = row[middle];
            row[between.clone()].fill(value);
        }
    }
}

/// A layer's answer to an empty map, for maps of any size: what the borders make of it, and one value a channel between.
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
            (0..=between.start).chain(between.end..side)
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
                let to = &mut y[piece.to..piece.to + piece.len];
                match piece.repeats {
                    true => to.fill(answer[piece.from]),
                    false => to.copy_from_slice(&answer[piece.from..piece.from + piece.len]),
                }
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
            let kept_row = kept_place(row, rows, height) * columns.kept();
            for run in reached.unset_runs(sample, row) {
                for part in &parts {
                    let (start, end) = (run.start.max(part.start), run.end.min(part.end));
                    if start < end {
                        pieces.push(Piece {
                            to: row * width + start,
                            from: kept_row + kept_place(start, columns, width),
                            len: end - start,
                            repeats: *part == between,
                        });
                    }
                }
            }
        }
        pieces
    }
}

/// Where a row (or column) stands among the kept ones.
fn kept_place(at: usize, axis: BorderAxis, side: usize) -> usize {
    let between = axis.interior(side);
    if at < between.end {
        at.min(between.start)
    } else {
        axis.kept() - (side - at)
    }
}

/// Unreached cells of a plane, and where their answer stands.
#[derive(Clone, Copy)]
struct Piece {
    to: usize,
    from: usize,
    len: usize,
    repeats: bool,
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
                let axes = [
                    BorderAxis::new(height, layer + 1),
                    BorderAxis::new(width, layer + 1),
                ];
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
    fn a_map_smaller_than_its_borders_is_kept_whole() {
        for side in 1..9 {
            let axis = BorderAxis::new(side, 3);
            assert_eq!(axis.kept(), side.min(7));
            let places: Vec<usize> = (0..side).map(|at| kept_place(at, axis, side)).collect();
            assert!(places.is_sorted() && places[side - 1] + 1 == axis.kept());
        }
    }
}
