//! Filters in the Winograd domain: U = G g G^T, eight filters at a time: in training they are transformed in every step.

use std::marker::PhantomData;
use std::ops::Range;

use super::tile::Tile;
use crate::aligned::{AlignedBuf, SharedMut};
use crate::conv::{ConvAlgorithm, ConvShape, Filters};
use crate::cpu::Cpu;
use crate::gemm::tile::TILE_ROWS;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Output channels that one register tile computes together.
pub(super) const CHANNEL_GROUP: usize = TILE_ROWS;

/// Most taps of a filter.
const MOST_TAPS: usize = 49;

/// Transformed filters, ordered [position][output channel / 4][term][input channel][4].
#[derive(Debug)]
pub(crate) struct WinogradWeights {
    packed: AlignedBuf,
    algorithm: ConvAlgorithm,
    in_channels: usize,
    out_channels: usize,
    /// How many terms the positions before each have, and then all.
    terms_before: Vec<usize>,
}

/// Transforms filters. The last group of output channels is padded with zeros.
pub(super) fn transform_filters<T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    cpu: &Cpu,
    shape: &ConvShape,
    algorithm: ConvAlgorithm,
    filters: &Filters<'_>,
) -> WinogradWeights {
    let (out_channels, in_channels) = (shape.out_channels, shape.in_channels);
    let groups = out_channels.div_ceil(CHANNEL_GROUP);
    let mut terms_before = vec![0];
    for position in 0..T::POSITIONS * T::POSITIONS {
        let [i, j] = [position / T::POSITIONS, position % T::POSITIONS].map(T::terms_at);
        terms_before.push(terms_before[position] + i * j);
    }
    let mut packed = cpu.buffer(IN * IN * groups * CHANNEL_GROUP * in_channels);
    let target = SharedMut::new(packed.floats_mut());
    cpu.parallel(groups, &|group, _| {
        cpu.isa().run(PackGroup::<T, OUT, IN> {
            filters,
            groups,
            group,
            outputs: group * CHANNEL_GROUP..out_channels.min((group + 1) * CHANNEL_GROUP),
            in_channels,
            terms_before: &terms_before,
            target: &target,
            tile: PhantomData,
        });
    });
    WinogradWeights {
        packed,
        algorithm,
        in_channels,
        out_channels,
        terms_before,
    }
}

impl WinogradWeights {
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

    /// What they are packed for.
    pub(super) fn algorithm(&self) -> ConvAlgorithm {
        self.algorithm
    }

    /// Panics when the weights are those of another convolution.
    pub(super) fn check(&self, shape: &ConvShape) {
        assert_eq!(
            (self.in_channels, self.out_channels),
            (shape.in_channels, shape.out_channels),
            "input and output channels of the packed weights"
        );
    }

    /// Terms of all input channels at a position.
    #[inline(always)]
    pub(super) fn depth(&self, position: usize) -> usize {
        (self.terms_before[position + 1] - self.terms_before[position]) * self.in_channels
    }

    /// The filters of one position for the channel groups from `group` on.
    pub(super) fn filters(&self, position: usize, group: usize) -> &[f32] {
        let position_len = self.groups() * CHANNEL_GROUP * self.in_channels;
        let [start, end] = [position, position + 1].map(|p| self.terms_before[p] * position_len);
        let within = group * CHANNEL_GROUP * self.depth(position);
        &self.packed.floats()[start + within..end]
    }
}

/// The filters of one group of output channels.
struct PackGroup<'a, T, const OUT: usize, const IN: usize> {
    filters: &'a Filters<'a>,
    groups: usize,
    group: usize,
    outputs: Range<usize>,
    in_channels: usize,
    terms_before: &'a [usize],
    target: &'a SharedMut<'a, f32>,
    tile: PhantomData<T>,
}

/// Input channels whose filters fill a vector.
const INPUTS: usize = LANES / CHANNEL_GROUP;

impl<T: Tile<OUT, IN>, const OUT: usize, const IN: usize> Kernel for PackGroup<'_, T, OUT, IN> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut taps = [s.splat(0.0); MOST_TAPS];
        let taps = &mut taps[..T::TAPS * T::TAPS];
        for input in (0..self.in_channels).step_by(INPUTS) {
            let count = (self.in_channels - input).min(INPUTS);
            self.taps_of_eight(s, input, count, taps);
            let transformed = transform::<S, T, OUT, IN>(s, taps);
            for i in 0..IN * IN {
                let place = T::place(i / IN, i % IN);
                let [before, after] =
                    [place.position, place.position + 1].map(|p| self.terms_before[p]);
                let terms = before * self.groups + self.group * (after - before) + place.term;
                let start = (terms * self.in_channels + input) * CHANNEL_GROUP;
                // SAFETY: each group of output channels has its own part of every position.
                let target = unsafe { self.target.slice(start..start + count * CHANNEL_GROUP) };
                s.write(target, transformed[i / IN][i % IN]);
            }
        }
    }
}

impl<T, const OUT: usize, const IN: usize> PackGroup<'_, T, OUT, IN> {
    /// The taps of the filters of all outputs of the group from `count` input channels, side by side; zeros for the others.
    #[inline(always)]
    fn taps_of_eight<S: Simd>(&self, s: S, input: usize, count: usize, taps: &mut [S::V]) {
        let mut filters = [None; LANES];
        for next in 0..count {
            for (member, output) in self.outputs.clone().enumerate() {
                filters[next * CHANNEL_GROUP + member] =
                    Some(self.filters.there(0, output, input + next));
            }
        }
        let mut there = [s.splat(0.0); MOST_TAPS];
        let in_eights = taps.len() / LANES * LANES;
        for first in (0..in_eights).step_by(LANES) {
            let mut rows = [s.splat(0.0); LANES];
            for (row, filter) in rows.iter_mut().zip(filters) {
                if let Some(filter) = filter {
                    *row = s.read(&filter[first..first + LANES]);
                }
            }
            there[first..first + LANES].copy_from_slice(&s.transpose8(rows));
        }
        for tap in in_eights..taps.len() {
            let mut values = [0.0; LANES];
            for (value, filter) in values.iter_mut().zip(filters) {
                *value = filter.map_or(0.0, |filter| filter[tap]);
            }
            there[tap] = s.vector(values);
        }
        for (tap, &place) in taps.iter_mut().zip(self.filters.taps()) {
            *tap = there[place];
        }
    }
}

/// G g G^T of eight filters side by side.
#[inline(always)]
fn transform<S: Simd, T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    s: S,
    taps: &[S::V],
) -> [[S::V; IN]; IN] {
    let mut transformed = [[s.splat(0.0); IN]; IN];
    for i in 0..IN {
        let mut half = [s.splat(0.0); IN];
        for x in 0..T::TAPS {
            half[x] = weighted_sum(s, T::FILTER[i], &taps[x..], T::TAPS);
        }
        for j in 0..IN {
            transformed[i][j] = weighted_sum(s, T::FILTER[j], &half, 1);
        }
    }
    transformed
}

/// The sum of values that are `step` apart, with their factors.
#[inline(always)]
fn weighted_sum<S: Simd>(s: S, factors: &[f64], values: &[S::V], step: usize) -> S::V {
    let mut sum = s.splat(0.0);
    for (tap, &factor) in factors.iter().enumerate() {
        if factor != 0.0 {
            sum = s.mul_add(s.splat(factor as f32), values[tap * step], sum);
        }
    }
    sum
}
