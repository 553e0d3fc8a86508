//! Convolution as a matrix product: packed weights times panels of input pixels that are gathered block by block.
//!
//! A block gathers some panels of pixels into the second-level cache, one part of the depth at a time, and multiplies
//! them with all its output channels. A 1x1 kernel is the same with one tap.

use std::ops::Range;

use super::gather::{PanelPlan, SLACK, input_span};
use super::shape::ConvShape;
use crate::aligned::{AlignedBuf, SharedMut};
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::gemm::blocking::Parts;
use crate::gemm::pack::{groups_len, pack_groups};
use crate::gemm::product::{BiasAxis, DepthPart, Output, Prefetch, multiply_panel};
use crate::gemm::{TILE_COLUMNS, TILE_ROWS};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Depth of one pass over the weights.
const DEPTH: usize = 384;
/// Floats of gathered input a block: a quarter of a 512 KB second-level cache.
const GATHERED: usize = 32 * 1024;
/// Pixels of a block.
const PIXELS: Range<usize> = 4 * TILE_COLUMNS..16 * TILE_COLUMNS;
/// Floats of weights that stay in the second-level cache while a block's panels pass by.
const WEIGHTS: usize = 32 * 1024;
/// Blocks to cut a convolution into at least, by output channels when there are few pixels.
const BLOCKS: usize = 6;
/// Output channels that are worth gathering the input for.
const BLOCK_CHANNELS: usize = 64;
/// Pixel blocks that a thread takes in a row, so that it can fetch the next one's input early.
const BLOCKS_IN_A_ROW: usize = 4;

/// Weights packed as `[group][depth part][rows / 4][depth][4]`.
#[derive(Debug)]
pub(crate) struct ImplicitWeights {
    packed: AlignedBuf,
}

/// The passes over the depth (channels times taps), cut at whole channels.
fn depth_parts(shape: &ConvShape) -> Parts {
    Parts::at_most(
        DEPTH.max(shape.taps()),
        shape.group_in() * shape.taps(),
        shape.taps(),
    )
}

impl ImplicitWeights {
    /// Packs OIHW weights.
    pub(crate) fn pack(cpu: &Cpu, shape: &ConvShape, weight: &[f32]) -> ImplicitWeights {
        let (rows, depth) = (shape.group_out(), shape.group_in() * shape.taps());
        let mut packed = AlignedBuf::zeroed_floats(shape.groups * groups_len(rows, depth));
        let parts = depth_parts(shape);
        let target = SharedMut::new(packed.floats_mut());
        cpu.parallel(shape.groups * parts.count(), &|block, _| {
            let (group, part) = (block / parts.count(), parts.range(block % parts.count()));
            let start = group * groups_len(rows, depth) + groups_len(rows, part.start);
            // SAFETY: each part of each group has its own place.
            let target = unsafe { target.slice(start..start + groups_len(rows, part.len())) };
            let source = &weight[group * rows * depth + part.start..];
            cpu.isa().run(Pack {
                source,
                stride: depth,
                rows,
                depth: part.len(),
                target,
            });
        });
        ImplicitWeights { packed }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.packed.len()
    }
}

struct Pack<'a> {
    source: &'a [f32],
    stride: usize,
    rows: usize,
    depth: usize,
    target: &'a mut [f32],
}

impl Kernel for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        pack_groups(
            s,
            self.source,
            self.stride,
            self.rows,
            self.depth,
            self.target,
        );
    }
}

/// Convolves; lengths were checked.
pub(crate) fn conv2d(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &ImplicitWeights,
    x: &[f32],
    input_scale: Option<&[f32]>,
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    let shape = &flattened(*shape);
    let pixels = shape.batch * shape.out_pixels();
    let depths = depth_parts(shape);
    let most =
        (GATHERED / depths.longest() / TILE_COLUMNS * TILE_COLUMNS).clamp(PIXELS.start, PIXELS.end);
    let pixel_blocks = Parts::at_most(most, pixels, TILE_COLUMNS);
    let runs = pixel_blocks.count().div_ceil(BLOCKS_IN_A_ROW);
    let rows = shape.group_out();
    let row_splits = BLOCKS
        .div_ceil((shape.groups * runs).max(1))
        .min(rows.div_ceil(BLOCK_CHANNELS));
    let row_blocks = Parts::exactly(row_splits, rows, TILE_ROWS);
    let y = SharedMut::new(y);
    let output = Output {
        y: y.as_mut_ptr(),
        row_stride: shape.out_pixels(),
        epilogue,
        bias_axis: BiasAxis::Rows,
    };
    cpu.parallel(
        shape.groups * row_blocks.count() * runs,
        &|block, scratch| {
            let (group, block) = (
                block / (row_blocks.count() * runs),
                block % (row_blocks.count() * runs),
            );
            let first = block % runs * BLOCKS_IN_A_ROW;
            cpu.isa().run(Block {
                shape,
                weights: weights.packed.floats(),
                x,
                input_scale,
                group,
                rows: row_blocks.range(block / runs),
                pixel_blocks,
                blocks: first..(first + BLOCKS_IN_A_ROW).min(pixel_blocks.count()),
                depths,
                output: &output,
                scratch,
            });
        },
    );
}

/// Sees a plain 1x1 convolution's maps as single rows, so that runs of pixels do not end at each row.
fn flattened(shape: ConvShape) -> ConvShape {
    if shape.taps() == 1 && shape.stride == [1, 1] && shape.padding == [0, 0] {
        ConvShape {
            height: 1,
            width: shape.in_pixels(),
            ..shape
        }
    } else {
        shape
    }
}

struct Block<'a> {
    shape: &'a ConvShape,
    weights: &'a [f32],
    x: &'a [f32],
    input_scale: Option<&'a [f32]>,
    group: usize,
    /// Output channels, within the group.
    rows: Range<usize>,
    pixel_blocks: Parts,
    /// Pixel blocks to do, one after the other.
    blocks: Range<usize>,
    depths: Parts,
    output: &'a Output<'a>,
    scratch: &'a mut Scratch,
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block {
            shape,
            x,
            group,
            rows,
            pixel_blocks,
            depths,
            output,
            ..
        } = self;
        let taps = shape.taps();
        let group_depth = shape.group_in() * taps;
        let group_weights = &self.weights[group * groups_len(shape.group_out(), group_depth)..];
        // A line more a panel, so that panels do not all begin in the same cache sets.
        let panel_len = TILE_COLUMNS * depths.longest() + SLACK.max(2 * LANES);
        let most_panels = pixel_blocks.longest().div_ceil(TILE_COLUMNS);
        let [panels] = self.scratch.floats([most_panels * panel_len]);
        let mut plans: Vec<PanelPlan> = (0..most_panels).map(|_| PanelPlan::default()).collect();
        for block in self.blocks {
            let pixels = pixel_blocks.range(block);
            let count = pixels.len().div_ceil(TILE_COLUMNS);
            for (panel, plan) in plans[..count].iter_mut().enumerate() {
                let start = pixels.start + panel * TILE_COLUMNS;
                plan.set(shape, start..(start + TILE_COLUMNS).min(pixels.end));
            }
            for (index, depth) in depths.ranges().enumerate() {
                let part = DepthPart {
                    depth: depth.len(),
                    first: depth.start == 0,
                    last: depth.end == group_depth,
                };
                let channel = |depth: usize| group * shape.group_in() + depth / taps;
                for (plan, panel) in plans[..count]
                    .iter()
                    .zip(panels.chunks_exact_mut(panel_len))
                {
                    plan.pack(
                        s,
                        shape,
                        x,
                        self.input_scale,
                        channel(depth.start)..channel(depth.end),
                        panel,
                    );
                }
                let tiles = rows.len().div_ceil(TILE_ROWS) * count;
                let mut prefetch = if index + 1 < depths.count() {
                    let next = depths.range(index + 1);
                    fetch_input(
                        shape,
                        x,
                        &pixels,
                        channel(next.start)..channel(next.end),
                        tiles,
                    )
                } else if block + 1 < pixel_blocks.count() {
                    let next = depths.range(0);
                    fetch_input(
                        shape,
                        x,
                        &pixel_blocks.range(block + 1),
                        channel(0)..channel(next.end),
                        tiles,
                    )
                } else {
                    Prefetch::NONE
                };
                let weights = &group_weights[groups_len(shape.group_out(), depth.start)..];
                let chunks = Parts::at_most(
                    WEIGHTS / depth.len() / TILE_ROWS * TILE_ROWS,
                    rows.len(),
                    TILE_ROWS,
                );
                for chunk in chunks.ranges() {
                    let first = rows.start + chunk.start;
                    let weights = &weights[first * depth.len()..];
                    for (plan, panel) in plans[..count].iter().zip(panels.chunks_exact(panel_len)) {
                        let at = (group * shape.group_out() + first, 0);
                        // SAFETY: panels were gathered above and weights packed in `pack`; blocks write disjoint
                        // pixels and channels of y.
                        unsafe {
                            multiply_panel(
                                s,
                                weights,
                                chunk.len(),
                                panel,
                                part,
                                output,
                                at,
                                &plan.pieces,
                                &mut prefetch,
                            );
                        }
                    }
                }
            }
        }
    }
}

/// What the gathering of these pixels and channels will read.
fn fetch_input(
    shape: &ConvShape,
    x: &[f32],
    pixels: &Range<usize>,
    channels: Range<usize>,
    tiles: usize,
) -> Prefetch {
    let (offset, len) = input_span(shape, pixels);
    let start = x
        .as_ptr()
        .wrapping_add(offset + channels.start * shape.in_pixels());
    Prefetch::new(start, len, shape.in_pixels(), channels.len(), tiles)
}
