//! Convolutions that compute only the parts of a map whose input holds something.
//!
//! A cell that nothing reaches has its layer's answer to the empty map. In exact arithmetic that is what a tile around it
//! computes as well; in floating point a Winograd tile leaves, in all its cells, rounding errors of whatever lies in one of
//! them, and the next layer would carry them on, tile by tile. So unreached cells are set to the answer itself, whether
//! their tile was computed or not: the result has the same bits for any choice of parts, and depends on an unreached cell's
//! own surroundings only.

use super::cells::CellMask;
use super::empty_response::EmptyResponse;
use super::implicit;
use super::packed::{PackedConv, conv2d};
use super::shape::{ConvAlgorithm, ConvShape};
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::gemm::TILE_COLUMNS;

/// Cells along the side of a tile.
const TILE: usize = 4;

/// Whether a convolution with these weights can skip parts of its map.
pub fn can_skip(weights: &PackedConv) -> bool {
    match weights.algorithm() {
        ConvAlgorithm::Pointwise | ConvAlgorithm::ImplicitGemm => true,
        ConvAlgorithm::Winograd2
        | ConvAlgorithm::Depthwise
        | ConvAlgorithm::Narrow
        | ConvAlgorithm::Pixels => false,
        algorithm => has_tiles(algorithm),
    }
}

/// Whether a map is computed in tiles of [`TILE`] cells.
fn has_tiles(algorithm: ConvAlgorithm) -> bool {
    matches!(
        algorithm,
        ConvAlgorithm::Winograd4 | ConvAlgorithm::WinogradStride2 | ConvAlgorithm::WinogradStem
    )
}

/// Which parts to compute: Winograd's tiles, or the panels of neighbouring pixels that a product takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Those with a reached cell.
    Reached,
    /// All.
    All,
}

/// `y = activation(conv(x) + bias + residual)` where `reached` is set, and the answer to the empty map elsewhere. Returns
/// the share of the map that was computed.
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
    choice: Coverage,
    y: &mut [f32],
) -> f64 {
    let (height, width) = (shape.out_height(), shape.out_width());
    assert!(can_skip(weights), "{} cannot skip", weights.algorithm());
    assert_eq!(
        reached.size(),
        [shape.batch, height, width],
        "size of the mask"
    );
    let (list, total) = if choice == Coverage::All {
        (None, 1)
    } else if has_tiles(weights.algorithm()) {
        let (rows, columns) = (height.div_ceil(TILE), width.div_ceil(TILE));
        let list = bridged(&reached.tiles(TILE), columns, longest_bridge(shape));
        (Some(list), shape.batch * rows * columns)
    } else if implicit::can_skip(shape) {
        let list = reached.runs(TILE_COLUMNS);
        (Some(list), implicit::panel_count(shape))
    } else {
        (None, 1)
    };
    let share = match list.filter(|list| list.len() < total) {
        Some(list) => {
            weights.conv2d_part(cpu, shape, x, epilogue, &list, y);
            list.len() as f64 / total as f64
        }
        None => {
            conv2d(cpu, shape, weights, x, None, epilogue, y);
            1.0
        }
    };
    empty.settle(cpu, reached, shape.out_channels, y);
    share
}

/// The longest gap of tiles that is cheaper to compute than to leave out: neighbouring tiles are transformed eight at a
/// time, so a gap costs about one more transform of every channel, as much as this many products of two channels.
fn longest_bridge(shape: &ConvShape) -> usize {
    const PRODUCTS_PER_TRANSFORM: usize = 80;
    let [inputs, outputs] = [shape.in_channels, shape.out_channels];
    PRODUCTS_PER_TRANSFORM * (inputs + outputs) / (inputs * outputs).max(1)
}

/// Adds the tiles of short gaps between those of one row of `columns` tiles.
fn bridged(tiles: &[u32], columns: usize, longest: usize) -> Vec<u32> {
    let mut all = Vec::with_capacity(tiles.len());
    for &tile in tiles {
        if let Some(&last) = all.last() {
            let gap = (tile - last) as usize - 1;
            if gap <= longest && last as usize / columns == tile as usize / columns {
                all.extend(last + 1..tile);
            }
        }
        all.push(tile);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::Activation;
    use crate::conv::{BorderAxis, seal_interior};
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
        fn new(
            cpu: &'a Cpu,
            algorithm: ConvAlgorithm,
            [height, width]: [usize; 2],
            small: [usize; 2],
        ) -> Self {
            let shape = shape(1, small[0], small[1]);
            let weight: Vec<f32> = numbers(2, shape.weight_len())
                .iter()
                .map(|w| 0.1 * w)
                .collect();
            let packed = PackedConv::pack(cpu, &shape, algorithm, &weight);
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
                residual_in_place: false,
                activation: Activation::Relu,
            }
        }

        fn run(
            &self,
            shape: &ConvShape,
            x: &[f32],
            mask: &CellMask,
            choice: Option<Coverage>,
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
            algorithm in prop::sample::select(vec![ConvAlgorithm::Winograd4, ConvAlgorithm::ImplicitGemm]),
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
                    let net = Net::new(&cpu, algorithm, [height, width], [side(height), side(width)]);
                    let bits = |y: &[f32]| y.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    let skipped = net.run(&shape, &x, &occupied, Some(Coverage::Reached));
                    let all = net.run(&shape, &x, &occupied, Some(Coverage::All));
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
}
