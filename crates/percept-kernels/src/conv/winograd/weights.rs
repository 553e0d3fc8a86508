//! Filters in the Winograd domain: U = G g G^T, eight filters at a time: in training they are transformed in every step.

use std::marker::PhantomData;

use super::transform::Tile;
use crate::aligned::{AlignedBuf, SharedMut};
use crate::conv::{ConvShape, Filters};
use crate::cpu::Cpu;
use crate::gemm::tile::TILE_ROWS;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

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
    /// Transforms 3x3 filters. The last group of output channels is padded with zeros.
    pub(crate) fn pack<T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
        cpu: &Cpu,
        shape: &ConvShape,
        filters: &Filters<'_>,
    ) -> Self {
        let (out_channels, in_channels) = (shape.out_channels, shape.in_channels);
        let groups = out_channels.div_ceil(CHANNEL_GROUP);
        let position_stride = groups * CHANNEL_GROUP * in_channels;
        let mut packed = cpu.buffer(IN * IN * position_stride);
        let target = SharedMut::new(packed.floats_mut());
        cpu.parallel(groups, &|group, _| {
            cpu.isa().run(PackGroup::<T, OUT, IN> {
                filters,
                outputs: group * CHANNEL_GROUP..out_channels.min((group + 1) * CHANNEL_GROUP),
                in_channels,
                position_stride,
                target: &target,
                tile: PhantomData,
            });
        });
        Self {
            packed,
            in_channels,
            out_channels,
            positions: IN * IN,
            position_stride,
        }
    }

    pub(crate) fn give_back(self, cpu: &Cpu) {
        cpu.give_back(self.packed);
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

/// The filters of one group of output channels.
struct PackGroup<'a, T, const OUT: usize, const IN: usize> {
    filters: &'a Filters<'a>,
    outputs: std::ops::Range<usize>,
    in_channels: usize,
    position_stride: usize,
    target: &'a SharedMut<'a, f32>,
    tile: PhantomData<T>,
}

/// Input channels whose filters fill a vector.
const INPUTS: usize = LANES / CHANNEL_GROUP;

impl<T: Tile<OUT, IN>, const OUT: usize, const IN: usize> Kernel for PackGroup<'_, T, OUT, IN> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let first = self.outputs.start * self.in_channels;
        for input in (0..self.in_channels).step_by(INPUTS) {
            let count = (self.in_channels - input).min(INPUTS);
            let taps = self.taps_of_eight(s, input, count);
            let start = first + input * CHANNEL_GROUP;
            let transformed = transform::<S, T, OUT, IN>(s, &taps);
            for (position, &value) in transformed.as_flattened().iter().enumerate() {
                let start = position * self.position_stride + start;
                // SAFETY: each group of output channels has its own part of every position.
                let target = unsafe { self.target.slice(start..start + count * CHANNEL_GROUP) };
                s.write(target, value);
            }
        }
    }
}

impl<T, const OUT: usize, const IN: usize> PackGroup<'_, T, OUT, IN> {
    /// The taps of the filters of all outputs of the group from `count` input channels, side by side; zeros for the others.
    #[inline(always)]
    fn taps_of_eight<S: Simd>(&self, s: S, input: usize, count: usize) -> [S::V; 9] {
        let mut beginnings = [s.splat(0.0); LANES];
        let mut ends = [0.0; LANES];
        for next in 0..count {
            for (member, output) in self.outputs.clone().enumerate() {
                let filter = self.filters.there::<9>(0, output, input + next);
                let lane = next * CHANNEL_GROUP + member;
                beginnings[lane] = s.read(&filter[..LANES]);
                ends[lane] = filter[LANES];
            }
        }
        let [a, b, c, d, e, f, g, h] = s.transpose8(beginnings);
        let there = [a, b, c, d, e, f, g, h, s.vector(ends)];
        let mut taps = there;
        for (tap, &place) in taps.iter_mut().zip(self.filters.taps()) {
            *tap = there[place];
        }
        taps
    }
}

/// G g G^T of eight filters side by side.
#[inline(always)]
fn transform<S: Simd, T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    s: S,
    taps: &[S::V; 9],
) -> [[S::V; IN]; IN] {
    let mut transformed = [[s.splat(0.0); IN]; IN];
    for i in 0..IN {
        let mut half = [s.splat(0.0); 3];
        for x in 0..3 {
            for y in 0..3 {
                let factor = s.splat(T::FILTER[i][y] as f32);
                half[x] = s.mul_add(factor, taps[3 * y + x], half[x]);
            }
        }
        for j in 0..IN {
            for x in 0..3 {
                let factor = s.splat(T::FILTER[j][x] as f32);
                transformed[i][j] = s.mul_add(factor, half[x], transformed[i][j]);
            }
        }
    }
    transformed
}
