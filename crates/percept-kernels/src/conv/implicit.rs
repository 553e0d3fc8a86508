//! Convolution as a matrix product: packed weights times panels of input pixels that are gathered block by block.
//!
//! A block gathers some panels of pixels into the second-level cache, one part of the depth at a time, and multiplies
//! them with all its output channels. A 1x1 kernel is the same with one tap.

use std::ops::Range;

use super::filters::Filters;
use super::gather::{PanelPlan, SLACK, input_span};
use super::shape::ConvShape;
use crate::aligned::{AlignedBuf, FLOATS_PER_LINE, SharedMut};
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::gemm::blocking::Parts;
use crate::gemm::pack::{groups_len, pack_groups};
use crate::gemm::product::{BiasAxis, DepthPart, Output, Panel, Prefetch, multiply_panels};
use crate::gemm::{TILE_COLUMNS, TILE_ROWS};
use crate::isa::Kernel;
use crate::simd::Simd;

/// Depth of one pass over the weights.
const DEPTH: usize = 256;
/// Floats of gathered input a block: a quarter of a 512 KB second-level cache.
const GATHERED: usize = 32 * 1024;
/// Fewest and most panels of a block.
const PANELS: [usize; 2] = [4, 16];
/// Floats of weights that stay in the second-level cache while a block's panels pass by.
const WEIGHTS: usize = 32 * 1024;
/// Blocks to cut a convolution into at least. One with fewer pixel blocks gathers its input once, for all, and is cut by
/// output channels.
pub(super) const BLOCKS: usize = 8;
/// Pixel blocks that a thread takes in a row at most, so that it can fetch the next one's input early.
const RUN: usize = 4;
/// Padding of gathered panels: for the gathering's slack and an odd depth of a thin panel, and so that they do not all begin
/// in the same cache sets.
const PANEL_PADDING: usize = 2 * FLOATS_PER_LINE;
const _: () = assert!(PANEL_PADDING >= SLACK + FLOATS_PER_LINE);

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
    /// Packs filters.
    pub(super) fn pack(cpu: &Cpu, shape: &ConvShape, filters: &Filters<'_>) -> ImplicitWeights {
        let (rows, depth) = (shape.group_out(), shape.group_in() * shape.taps());
        let mut packed = cpu.buffer(shape.groups * groups_len(rows, depth));
        let parts = depth_parts(shape);
        let target = SharedMut::new(packed.floats_mut());
        cpu.parallel(shape.groups * parts.count(), &|block, _| {
            let (group, part) = (block / parts.count(), parts.range(block % parts.count()));
            let start = group * groups_len(rows, depth) + groups_len(rows, part.start);
            // SAFETY: each part of each group has its own place.
            let target = unsafe { target.slice(start..start + groups_len(rows, part.len())) };
            let Some((source, stride)) = filters.rows(group) else {
                let inputs = part.start / shape.taps()..part.end / shape.taps();
                return gather_groups(filters, group, rows, inputs, shape.taps(), target);
            };
            cpu.isa().run(Pack {
                source: &source[part.start..],
                stride,
                rows,
                depth: part.len(),
                target,
            });
        });
        ImplicitWeights { packed }
    }

    pub(super) fn give_back(self, cpu: &Cpu) {
        cpu.give_back(self.packed);
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.packed.len()
    }
}

/// Packs filters whose taps do not follow one another, four outputs at a time.
fn gather_groups(
    filters: &Filters<'_>,
    group: usize,
    rows: usize,
    inputs: Range<usize>,
    taps: usize,
    packed: &mut [f32],
) {
    let depth = inputs.len() * taps;
    for (row, packed) in (0..rows)
        .step_by(TILE_ROWS)
        .zip(packed.chunks_exact_mut(TILE_ROWS * depth.max(1)))
    {
        let count = (rows - row).min(TILE_ROWS);
        let mut targets = packed.chunks_exact_mut(TILE_ROWS);
        for input in inputs.clone() {
            for (tap, target) in (0..taps).zip(&mut targets) {
                filters.outputs(group, row, input, tap, &mut target[..count]);
            }
        }
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

/// How panels are cut into blocks: at pairs, which wide tiles take, and into as many blocks as threads share evenly.
fn panel_blocks(shape: &ConvShape, panels: usize) -> Parts {
    let most = (GATHERED / depth_parts(shape).longest() / TILE_COLUMNS).min(PANELS[1]);
    let blocks = panels.div_ceil(most.max(PANELS[0]));
    let even = blocks.next_multiple_of(BLOCKS.min(blocks.next_power_of_two()));
    Parts::exactly(even.min(panels.div_ceil(PANELS[0])), panels, 2)
}

/// Whether a convolution is cut into few blocks of pixels, and so by output channels too.
fn is_small(shape: &ConvShape, panels: usize) -> bool {
    shape.groups * panels / PANELS[0] < BLOCKS
}

/// Whether a list of panels saves work.
pub(super) fn can_skip(shape: &ConvShape) -> bool {
    !is_small(shape, panel_count(shape))
}

/// Panels of all output pixels, which are numbered over all samples.
pub(super) fn panel_count(shape: &ConvShape) -> usize {
    (shape.batch * shape.out_pixels()).div_ceil(TILE_COLUMNS)
}

/// Convolves, all panels of pixels or those of an ascending list; lengths were checked.
pub(crate) fn conv2d(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &ImplicitWeights,
    x: &[f32],
    input_scale: Option<&[f32]>,
    epilogue: Epilogue<'_>,
    list: Option<&[u32]>,
    y: &mut [f32],
) {
    let shape = &shape.flattened();
    let depths = depth_parts(shape);
    let all = panel_count(shape);
    if let Some(last) = list.and_then(<[u32]>::last) {
        assert!((*last as usize) < all, "a panel outside the map");
    }
    let panels = list.map_or(all, <[u32]>::len);
    let y = SharedMut::new(y);
    let job = Job {
        shape,
        weights: weights.packed.floats(),
        x,
        input_scale,
        depths,
        list,
        panel_blocks: panel_blocks(shape, panels),
        output: Output {
            y: y.as_mut_ptr(),
            row_stride: shape.out_pixels(),
            epilogue,
            bias_axis: BiasAxis::Rows,
        },
    };
    if list.is_none() && is_small(shape, all) {
        job.gather_then_multiply(cpu)
    } else {
        job.run_in_blocks(cpu)
    }
}

/// A convolution on its way.
pub(super) struct Job<'a> {
    pub(super) shape: &'a ConvShape,
    pub(super) weights: &'a [f32],
    pub(super) x: &'a [f32],
    pub(super) input_scale: Option<&'a [f32]>,
    pub(super) depths: Parts,
    /// Numbers of the panels to compute; `None` for all.
    list: Option<&'a [u32]>,
    pub(super) panel_blocks: Parts,
    pub(super) output: Output<'a>,
}

impl Job<'_> {
    /// Every block gathers the pixels that it needs and multiplies them with all output channels of its group.
    fn run_in_blocks(&self, cpu: &Cpu) {
        let run = (self.panel_blocks.count() / BLOCKS).clamp(1, RUN);
        let runs = self.panel_blocks.count().div_ceil(run);
        cpu.parallel(self.shape.groups * runs, &|block, scratch| {
            let first = block % runs * run;
            let blocks = first..(first + run).min(self.panel_blocks.count());
            cpu.isa().run(Run {
                job: self,
                group: block / runs,
                blocks,
                scratch,
            });
        });
    }

    /// The pixels of the panel at this place among those to compute.
    #[inline(always)]
    pub(super) fn pixels(&self, place: usize) -> Range<usize> {
        let panel = self.list.map_or(place, |list| list[place] as usize);
        let first = panel * TILE_COLUMNS;
        first..(first + TILE_COLUMNS).min(self.shape.batch * self.shape.out_pixels())
    }

    /// What the gathering of these panels and channels will read, as far as they follow one another.
    fn fetch_input(&self, places: &Range<usize>, channels: Range<usize>, tiles: usize) -> Prefetch {
        let plane = self.shape.in_pixels();
        let (first, last) = (self.pixels(places.start), self.pixels(places.end - 1));
        let end = last.end.min(first.start + places.len() * TILE_COLUMNS);
        let (offset, len) = input_span(self.shape, &(first.start..end));
        let start = self
            .x
            .as_ptr()
            .wrapping_add(offset + channels.start * plane);
        Prefetch::new(start, len, plane, channels.len(), tiles)
    }

    /// Floats from one gathered panel to the next.
    pub(super) fn panel_len(&self) -> usize {
        TILE_COLUMNS * self.depths.longest() + PANEL_PADDING
    }

    /// The input channels of a part of the depth.
    #[inline(always)]
    pub(super) fn channels(&self, group: usize, depth: &Range<usize>) -> Range<usize> {
        let at = |depth: usize| group * self.shape.group_in() + depth / self.shape.taps();
        at(depth.start)..at(depth.end)
    }

    #[inline(always)]
    pub(super) fn depth_part(&self, depth: &Range<usize>) -> DepthPart {
        DepthPart {
            depth: depth.len(),
            first: depth.start == 0,
            last: depth.end == self.shape.group_in() * self.shape.taps(),
        }
    }

    /// The packed weights of a group, over one part of the depth.
    #[inline(always)]
    pub(super) fn weights_of(&self, group: usize, depth: &Range<usize>) -> &[f32] {
        let rows = self.shape.group_out();
        let group_depth = self.shape.group_in() * self.shape.taps();
        &self.weights[group * groups_len(rows, group_depth) + groups_len(rows, depth.start)..]
    }

    /// Multiplies gathered panels with rows of the weights, over one part of the depth.
    ///
    /// # Safety
    /// No other block may write these rows and pixels of the output.
    #[inline(always)]
    pub(super) unsafe fn multiply<S: Simd>(
        &self,
        s: S,
        group: usize,
        rows: &Range<usize>,
        depth: &Range<usize>,
        plans: &[PanelPlan],
        panels: &[f32],
        prefetch: &mut Prefetch,
    ) {
        let shape = self.shape;
        let part = self.depth_part(depth);
        let weights = self.weights_of(group, depth);
        let chunks = Parts::at_most(
            (WEIGHTS / depth.len()).next_multiple_of(TILE_ROWS),
            rows.len(),
            TILE_ROWS,
        );
        for chunk in chunks.ranges() {
            let first = rows.start + chunk.start;
            let weights = &weights[first * depth.len()..];
            let row = group * shape.group_out() + first;
            let panel = |index: usize| Panel {
                values: &panels[index * self.panel_len()..][..self.panel_len()],
                column: 0,
                pieces: &plans[index].pieces,
            };
            for index in (0..plans.len()).step_by(2) {
                let pair = [panel(index), panel((index + 1).min(plans.len() - 1))];
                // SAFETY: panels were gathered and weights packed for this depth; the caller vouches for the output.
                unsafe {
                    multiply_panels(
                        s,
                        weights,
                        chunk.len(),
                        &pair[..(plans.len() - index).min(2)],
                        part,
                        &self.output,
                        row,
                        prefetch,
                    );
                }
            }
        }
    }
}

/// Gathers and multiplies a run of pixel blocks.
struct Run<'a> {
    job: &'a Job<'a>,
    group: usize,
    blocks: Range<usize>,
    scratch: &'a mut Scratch,
}

impl Kernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Run { job, group, .. } = self;
        let (shape, depths, panel_blocks, panel_len) =
            (job.shape, job.depths, job.panel_blocks, job.panel_len());
        let rows = 0..shape.group_out();
        let [panels] = self.scratch.floats([panel_blocks.longest() * panel_len]);
        let mut plans: Vec<PanelPlan> = (0..panel_blocks.longest())
            .map(|_| PanelPlan::default())
            .collect();
        for block in self.blocks {
            let places = panel_blocks.range(block);
            let plans = &mut plans[..places.len()];
            for (plan, place) in plans.iter_mut().zip(places.clone()) {
                plan.set(shape, job.pixels(place));
            }
            for (index, depth) in depths.ranges().enumerate() {
                for (plan, panel) in plans.iter_mut().zip(panels.chunks_exact_mut(panel_len)) {
                    plan.pack(
                        s,
                        shape,
                        job.x,
                        job.input_scale,
                        job.channels(group, &depth),
                        panel,
                    );
                }
                let tiles = rows.len().div_ceil(TILE_ROWS) * plans.len();
                let mut prefetch = if index + 1 < depths.count() {
                    let next = job.channels(group, &depths.range(index + 1));
                    job.fetch_input(&places, next, tiles)
                } else if block + 1 < panel_blocks.count() {
                    let next = job.channels(group, &depths.range(0));
                    job.fetch_input(&panel_blocks.range(block + 1), next, tiles)
                } else {
                    Prefetch::none()
                };
                // SAFETY: blocks have their own pixels, and groups their own channels.
                unsafe { job.multiply(s, group, &rows, &depth, plans, panels, &mut prefetch) };
            }
        }
    }
}
