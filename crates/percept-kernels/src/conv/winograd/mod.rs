//! Convolutions by Winograd's minimal filtering: 3x3 of stride one and two, and 7x7 of stride two.
//!
//! For each block of tiles: transform the input of all channels (V), multiply position by position with the transformed
//! filters (M), transform back and store. V and M stay in the caches, and nothing but input, output and weights is touched
//! in memory. The lanes of a vector are neighbouring tiles, so tensors stay NCHW.

mod block;
mod lanes;
mod multiply;
mod prefetch;
mod source;
mod strided;
mod target;
mod tile;
mod tiles;
mod transform;
mod weight_gradient;
mod weights;

use std::marker::PhantomData;
use std::ops::Range;

use block::{Buffers, Job};
#[cfg(target_arch = "x86_64")]
use lanes::Sixteen;
use strided::{Stem, Stride2};
use tile::{F2, F4, Tile};
use tiles::{PANEL, TileGrid, panel_vectors};
pub(crate) use weight_gradient::weight_gradient;
pub(crate) use weights::WinogradWeights;
use weights::transform_filters;

use crate::aligned::SharedMut;
use crate::conv::{ConvAlgorithm, ConvShape, Filters};
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::gemm::blocking::Parts;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// With fewer panels of tiles than this, threads share the channels too: the second figure is for filters that stay in the
/// caches while several blocks of tiles read them.
const FEW_PANELS: [usize; 2] = [6, 4];
/// Most floats of such filters.
const NEAR_FILTERS: usize = 1 << 20;
/// Channels of a share, when threads share the channels.
const CHANNELS_PER_SHARE: usize = 64;

/// Calls a function with the tile of one of Winograd's algorithms.
macro_rules! with_tile {
    ($algorithm:expr, $function:ident($($argument:expr),*)) => {
        match $algorithm {
            ConvAlgorithm::Winograd4 => $function::<F4, 4, 6>($($argument),*),
            ConvAlgorithm::Winograd2 => $function::<F2, 2, 4>($($argument),*),
            ConvAlgorithm::WinogradStride2 => $function::<Stride2, 4, 9>($($argument),*),
            ConvAlgorithm::WinogradStem => $function::<Stem, 4, 13>($($argument),*),
            other => panic!("{other} is not one of Winograd's"),
        }
    };
}

/// Whether one of Winograd's algorithms can compute `shape`.
pub(crate) fn supports(shape: &ConvShape, algorithm: ConvAlgorithm) -> bool {
    with_tile!(algorithm, fits(shape))
}

fn fits<T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(shape: &ConvShape) -> bool {
    shape.kernel == [T::TAPS; 2]
        && shape.stride == [T::STRIDE; 2]
        && shape.dilation == [1, 1]
        && shape.groups == 1
        && shape.padding.iter().all(|&padding| padding < T::TAPS)
}

/// Transforms filters for one of Winograd's algorithms.
pub(crate) fn pack(
    cpu: &Cpu,
    shape: &ConvShape,
    algorithm: ConvAlgorithm,
    filters: &Filters<'_>,
) -> WinogradWeights {
    with_tile!(algorithm, transform_filters(cpu, shape, algorithm, filters))
}

/// Computes the convolution with the tiles that the weights were packed for: all of it, or the tiles of a list.
pub(crate) fn conv2d(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &WinogradWeights,
    x: &[f32],
    epilogue: Epilogue,
    tiles: Option<&[u32]>,
    y: &mut [f32],
) {
    assert!(
        supports(shape, weights.algorithm()),
        "{} does not support {shape:?}",
        weights.algorithm()
    );
    shape.check(None, x.len(), y.len());
    epilogue.check(shape.out_channels, y.len());
    weights.check(shape);
    if y.is_empty() || tiles.is_some_and(<[u32]>::is_empty) {
        return;
    }
    with_tile!(
        weights.algorithm(),
        compute(cpu, shape, weights, x, epilogue, tiles, y)
    )
}

fn compute<T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &WinogradWeights,
    x: &[f32],
    epilogue: Epilogue,
    tiles: Option<&[u32]>,
    y: &mut [f32],
) {
    let grid = TileGrid::new(shape, OUT, tiles);
    let total = grid.total();
    let near = weights.bytes() / size_of::<f32>() <= NEAR_FILTERS;
    let few = total.div_ceil(PANEL) < FEW_PANELS[usize::from(near)];
    let (blocks, out_channels) = match few {
        true if near => (total / PANEL, CHANNELS_PER_SHARE),
        true => (1, CHANNELS_PER_SHARE),
        false => {
            let tiles = block_tiles(shape, cpu.isa());
            let blocks = (total + tiles / 2) / tiles;
            (blocks.next_multiple_of(2), shape.out_channels)
        }
    };
    // Of equal length, so that threads have equal shares of them.
    let blocks = Parts::exactly(blocks.max(1), total, LANES);
    let positions = T::POSITIONS * T::POSITIONS;
    // The first position has the most terms.
    let depth = weights.depth(0);
    let widest = panel_vectors(cpu.isa());
    let buffers = Buffers::new(positions, depth, out_channels, blocks.longest(), widest);
    let job = Job {
        shape,
        weights,
        x,
        epilogue,
        y: SharedMut::new(y),
        grid,
        buffers,
    };
    if few {
        share_channels::<T, OUT, IN>(cpu, &job, blocks);
    } else {
        share_tiles::<T, OUT, IN>(cpu, &job, blocks);
    }
}

/// Tiles of a block, about: few enough for V to stay in the second-level cache, or nearly so, and enough to use each filter often.
fn block_tiles(shape: &ConvShape, isa: Isa) -> usize {
    // Wide tiles take two panels.
    let panels = if isa.has_wide_floats() || shape.in_channels.max(shape.out_channels) <= 64 {
        2
    } else {
        1
    };
    panels * PANEL
}

/// Consecutive blocks that a thread takes at once, so that it knows which input to fetch for the next.
fn run_length(blocks: usize) -> usize {
    (blocks / 24).clamp(1, 4)
}

fn share_tiles<T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    cpu: &Cpu,
    job: &Job,
    blocks: Parts,
) {
    let count = blocks.count();
    let run = run_length(count);
    cpu.parallel(count.div_ceil(run), &|index, scratch| {
        let [v, m] = scratch.floats([job.buffers.v_len(), job.buffers.m_len()]);
        for block in index * run..((index + 1) * run).min(count) {
            let groups = 0..job.weights.groups();
            let tiles = blocks.range(block);
            let next_tiles = match block + 1 < count {
                true => blocks.range(block + 1),
                false => 0..0,
            };
            let input = Input {
                job,
                tiles: tiles.clone(),
                channels: 0..job.shape.in_channels,
                v: v.as_mut_ptr(),
            };
            cpu.isa().run_widened(Step::<_, T, OUT, IN>::new(input));
            let output = Output {
                job,
                tiles,
                next_tiles,
                groups,
                v: v.as_ptr(),
                m,
            };
            cpu.isa().run_widened(Step::<_, T, OUT, IN>::new(output));
        }
    });
}

/// Blocks of tiles by shares of channels, tiles first: a thread's V stays in its cache, and so does what it writes.
fn share_channels<T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    cpu: &Cpu,
    job: &Job,
    blocks: Parts,
) {
    let mut shared = cpu.shared_scratch();
    let v_len = job.buffers.v_len();
    let [v] = shared.floats([blocks.count() * v_len]);
    let v = SharedMut::new(v);
    let share =
        |index: usize, total: usize, step: usize| index * step..((index + 1) * step).min(total);

    let channels = job.shape.in_channels;
    let shares = channels.div_ceil(CHANNELS_PER_SHARE);
    cpu.parallel(blocks.count() * shares, &|index, _| {
        let (block, index) = (index / shares, index % shares);
        let input = Input {
            job,
            tiles: blocks.range(block),
            channels: share(index, channels, CHANNELS_PER_SHARE),
            v: v.as_mut_ptr().wrapping_add(block * v_len),
        };
        cpu.isa().run_widened(Step::<_, T, OUT, IN>::new(input));
    });

    let groups_per_share = CHANNELS_PER_SHARE / weights::CHANNEL_GROUP;
    let groups = job.weights.groups();
    let shares = groups.div_ceil(groups_per_share);
    cpu.parallel(blocks.count() * shares, &|index, scratch| {
        let (block, index) = (index / shares, index % shares);
        let [m] = scratch.floats([job.buffers.m_len()]);
        let output = Output {
            job,
            tiles: blocks.range(block),
            next_tiles: 0..0,
            groups: share(index, groups, groups_per_share),
            v: v.as_mut_ptr().wrapping_add(block * v_len),
            m,
        };
        cpu.isa().run_widened(Step::<_, T, OUT, IN>::new(output));
    });
}

/// A part of the work with the tile size that it runs on.
struct Step<W, T, const OUT: usize, const IN: usize> {
    work: W,
    tile: PhantomData<T>,
}

impl<W, T, const OUT: usize, const IN: usize> Step<W, T, OUT, IN> {
    fn new(work: W) -> Self {
        Self {
            work,
            tile: PhantomData,
        }
    }
}

/// Transforms input channels of some tiles to V.
struct Input<'a> {
    job: &'a Job<'a>,
    tiles: Range<usize>,
    channels: Range<usize>,
    v: *mut f32,
}

impl<T: Tile<OUT, IN>, const OUT: usize, const IN: usize> Kernel for Step<Input<'_>, T, OUT, IN> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Input {
            job,
            tiles,
            channels,
            v,
        } = self.work;
        // SAFETY: lengths were checked in `conv2d`, and V is as long as `Buffers` says.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if let Some(wide) = s.wide() {
                let lanes = Sixteen::new(wide);
                return job.transform_input::<S, _, T, OUT, IN>(s, lanes, tiles, channels, v);
            }
            job.transform_input::<S, _, T, OUT, IN>(s, s, tiles, channels, v);
        }
    }
}

/// Computes groups of output channels of some tiles from V.
struct Output<'a> {
    job: &'a Job<'a>,
    tiles: Range<usize>,
    next_tiles: Range<usize>,
    groups: Range<usize>,
    v: *const f32,
    m: &'a mut [f32],
}

impl<T: Tile<OUT, IN>, const OUT: usize, const IN: usize> Kernel for Step<Output<'_>, T, OUT, IN> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Output {
            job,
            tiles,
            next_tiles,
            groups,
            v,
            m,
        } = self.work;
        // SAFETY: lengths were checked in `conv2d`, V and M are as long as `Buffers` says, V is filled, and no two blocks
        // share both tiles and groups.
        unsafe {
            job.multiply::<S, T, OUT, IN>(
                s,
                tiles.clone(),
                next_tiles,
                groups.clone(),
                v,
                m.as_mut_ptr(),
            );
            #[cfg(target_arch = "x86_64")]
            if let Some(wide) = s.wide() {
                let lanes = Sixteen::new(wide);
                return job.transform_output::<S, _, T, OUT, IN>(
                    s,
                    lanes,
                    tiles,
                    groups,
                    m.as_ptr(),
                );
            }
            job.transform_output::<S, _, T, OUT, IN>(s, s, tiles, groups, m.as_ptr());
        }
    }
}

#[cfg(test)]
mod tests;
