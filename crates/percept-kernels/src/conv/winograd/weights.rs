//! Filters in the Winograd domain: U = G g G^T, computed once in f64.

use super::transform::Tile;
use crate::aligned::AlignedBuf;
use crate::conv::ConvShape;
use crate::gemm::tile::TILE_ROWS;

/// Output channels that one register tile computes together.
pub(super) const CHANNEL_GROUP: usize = TILE_ROWS;

/// Transformed 3x3 filters, ordered [position][output channel / 4][input channel][4].
#[derive(Debug)]
pub(crate) struct WinogradWeights {
    packed: AlignedBuf,
    in_channels: usize,
    out_channels: usize,
    positions: usize,
    position_stride: usize,
}

impl WinogradWeights {
    /// Transforms `weight` (OIHW, 3x3). The last group of output channels is padded with zeros.
    pub(crate) fn pack<T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
        out_channels: usize,
        in_channels: usize,
        weight: &[f32],
    ) -> Self {
        assert_eq!(
            weight.len(),
            out_channels * in_channels * 9,
            "a 3x3 weight holds O*I*9 values"
        );
        let groups = out_channels.div_ceil(CHANNEL_GROUP);
        let position_stride = groups * CHANNEL_GROUP * in_channels;
        let mut packed = AlignedBuf::zeroed_floats(IN * IN * position_stride);
        let values = packed.floats_mut();
        for (index, filter) in weight.as_chunks::<9>().0.iter().enumerate() {
            let (output, input) = (index / in_channels, index % in_channels);
            let (group, member) = (output / CHANNEL_GROUP, output % CHANNEL_GROUP);
            let place = (group * in_channels + input) * CHANNEL_GROUP + member;
            for (position, value) in transform::<T, OUT, IN>(filter)
                .as_flattened()
                .iter()
                .enumerate()
            {
                values[position * position_stride + place] = *value;
            }
        }
        Self {
            packed,
            in_channels,
            out_channels,
            positions: IN * IN,
            position_stride,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.packed.len()
    }

    /// Groups of four output channels, the last one padded.
    pub(super) fn groups(&self) -> usize {
        self.out_channels.div_ceil(CHANNEL_GROUP)
    }

    /// Panics when the weights are those of another convolution.
    pub(super) fn check(&self, shape: &ConvShape, positions: usize) {
        assert_eq!(
            (self.in_channels, self.out_channels, self.positions),
            (shape.in_channels, shape.out_channels, positions),
            "input channels, output channels and Winograd positions of the packed weights"
        );
    }

    /// The filters of one position for the channel groups from `group` on.
    pub(super) fn filters(&self, position: usize, group: usize) -> &[f32] {
        let start = position * self.position_stride;
        let within = group * CHANNEL_GROUP * self.in_channels;
        &self.packed.floats()[start + within..start + self.position_stride]
    }
}

/// G g G^T
fn transform<T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    filter: &[f32; 9],
) -> [[f32; IN]; IN] {
    let mut transformed = [[0.0; IN]; IN];
    for (i, row) in transformed.iter_mut().enumerate() {
        let mut half = [0.0; 3];
        for x in 0..3 {
            half[x] = (0..3)
                .map(|y| T::FILTER[i][y] * f64::from(filter[3 * y + x]))
                .sum();
        }
        for (j, value) in row.iter_mut().enumerate() {
            *value = (0..3).map(|x| T::FILTER[j][x] * half[x]).sum::<f64>() as f32;
        }
    }
    transformed
}
