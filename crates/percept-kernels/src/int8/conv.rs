//! Convolutions of maps in quads: as matrix products whose input is gathered block by block.

use std::ops::Range;

use super::finish::{ByteEpilogue, ByteOutput, Finish, FinishTile};
#[cfg(target_arch = "x86_64")]
use super::gather::Pieces;
#[cfg(target_arch = "x86_64")]
use super::has_wide;
use super::map::map_len;
use super::tile::{NO_SUMS, Panel, READ_TOGETHER, TILE_GROUPS, TILE_ROWS, Tiles, lift};
use super::weights::{ByteWeights, QuadOrder};
use crate::aligned::{AlignedBuf, FLOATS_PER_LINE, SharedMut};
use crate::conv::ConvShape;
use crate::conv::gather::{PanelPlan, SLACK};
use crate::cpu::Cpu;
use crate::gemm::blocking::Parts;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Bytes of gathered input a block.
const GATHERED: usize = 256 * 1024;
/// Fewest and most panels of a block.
const PANELS: [usize; 2] = [2, 16];
/// Blocks to cut a convolution into at least. One with fewer pixel blocks gathers its input once, for all, and is cut by
/// output channels.
const BLOCKS: usize = 8;
/// Fewest output channels of such a block.
const BLOCK_CHANNELS: usize = 32;
/// Room behind a gathered panel, and so that panels do not all begin in the same cache sets.
const PANEL_PADDING: usize = SLACK + FLOATS_PER_LINE;

/// The weights of a convolution as bytes, packed once.
#[derive(Debug)]
pub struct ByteConv {
    order: QuadOrder,
    groups: usize,
    tiles: Tiles,
    packed: Vec<AlignedBuf>,
    starts: Vec<i32>,
    scales: Vec<f32>,
}

impl ByteConv {
    /// Whether these kernels take such a convolution: groups must be whole quads of channels.
    pub fn supports(shape: &ConvShape) -> bool {
        shape.groups == 1
            || shape.group_in().is_multiple_of(4) && shape.group_out().is_multiple_of(4)
    }

    /// Packs OIHW weights for inputs that are signed or not.
    pub fn pack(cpu: &Cpu, shape: &ConvShape, weights: &ByteWeights, signed: bool) -> ByteConv {
        assert!(ByteConv::supports(shape), "groups of whole quads");
        let order = QuadOrder::maps(shape.group_in(), shape.taps());
        assert_eq!(weights.scales.len(), shape.out_channels, "rows of weights");
        let tiles = Tiles::new(cpu.isa(), weights.operands(&order, signed));
        let rows = shape.group_out();
        let packed = (0..shape.groups)
            .map(|group| weights.pack_groups(&order, group * rows..(group + 1) * rows, tiles.width))
            .collect();
        ByteConv {
            order,
            groups: shape.groups,
            tiles,
            packed,
            starts: weights.starts(&order, tiles.start_factor(), TILE_ROWS),
            scales: weights.scales.clone(),
        }
    }

    /// Pixels that are computed together.
    pub(super) fn run_len(&self) -> usize {
        self.tiles.pixels
    }

    /// How many times that the output of a convolution has.
    pub(super) fn runs(&self, shape: &ConvShape) -> usize {
        (shape.batch * shape.out_pixels()).div_ceil(self.tiles.pixels)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let packed: usize = self.packed.iter().map(AlignedBuf::len).sum();
        packed + size_of_val(&self.starts[..]) + size_of_val(&self.scales[..])
    }
}

/// Convolves a map in quads.
pub fn byte_conv2d(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &ByteConv,
    x: &[i8],
    epilogue: ByteEpilogue<'_>,
    output: ByteOutput<'_>,
) {
    byte_conv2d_part(cpu, shape, weights, x, epilogue, output, None);
}

/// The same for some runs of [`ByteConv::run_len`] pixels, which are numbered over all samples; the rest of the output stays as it is.
pub(super) fn byte_conv2d_part(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &ByteConv,
    x: &[i8],
    epilogue: ByteEpilogue<'_>,
    output: ByteOutput<'_>,
    runs: Option<&[u32]>,
) {
    let channels = shape.out_channels;
    assert_eq!(
        (weights.order, weights.groups, weights.scales.len()),
        (
            QuadOrder::maps(shape.group_in(), shape.taps()),
            shape.groups,
            channels
        ),
        "the weights were packed for other channels"
    );
    let len = |channels, pixels| map_len(shape.batch, channels, pixels);
    assert_eq!(
        x.len(),
        len(shape.in_channels, shape.in_pixels()),
        "length of the input"
    );
    epilogue.check(
        &output,
        channels,
        shape.out_len(),
        len(channels, shape.out_pixels()),
    );
    let shape = shape.flattened();
    let job = Job {
        quads: ConvShape {
            in_channels: shape.in_channels.div_ceil(4),
            out_channels: channels.div_ceil(4),
            ..shape
        },
        shape,
        weights,
        x: bytemuck::cast_slice(x),
        runs,
        finish: Finish::new(&epilogue, &weights.scales, TILE_ROWS, output),
    };
    job.run(cpu);
}

/// A convolution on its way.
struct Job<'a> {
    shape: ConvShape,
    /// The same, with quads for channels: what is gathered.
    quads: ConvShape,
    weights: &'a ByteConv,
    /// The input, a float for each quad.
    x: &'a [f32],
    /// The panels that are wanted, where not all are.
    runs: Option<&'a [u32]>,
    finish: Finish<'a>,
}

impl Job<'_> {
    fn run(&self, cpu: &Cpu) {
        let all = self.weights.runs(&self.shape);
        let panels = self.runs.map_or(all, <[u32]>::len);
        let most = (GATHERED / (4 * self.panel_len())).clamp(PANELS[0], PANELS[1]);
        let panel_blocks = Parts::at_most(most, panels, 1);
        let groups = self.shape.groups;
        if groups * panel_blocks.count() >= BLOCKS {
            cpu.parallel(groups * panel_blocks.count(), &|block, scratch| {
                let (group, block) = (block / panel_blocks.count(), block % panel_blocks.count());
                let places = panel_blocks.range(block);
                let [gathered] = scratch.floats([places.len() * self.panel_len()]);
                self.gather(cpu, group, &places, gathered);
                self.multiply(cpu, group, 0..self.shape.group_out(), &places, gathered);
            });
            return;
        }
        let rows = self.shape.group_out();
        let splits = BLOCKS.div_ceil((groups * panel_blocks.count()).max(1));
        let splits = splits.min(rows.div_ceil(BLOCK_CHANNELS));
        let row_blocks = Parts::exactly(splits, rows, TILE_ROWS);
        let in_place = (0..panels).all(|panel| {
            let pixels = self.pixels(panel);
            (0..groups).all(|group| self.in_place(group, &pixels).is_some())
        });
        let mut shared = cpu.shared_scratch();
        let places = if in_place { 0 } else { groups * panels };
        let [gathered] = shared.floats([places * self.panel_len()]);
        let target = SharedMut::new(gathered);
        // A region of its own that had nothing to do would only have threads wait for each other.
        if places > 0 {
            cpu.parallel(places, &|place, _| {
                let start = place * self.panel_len();
                // SAFETY: each panel has its own place.
                let target = unsafe { target.slice(start..start + self.panel_len()) };
                let panel = place % panels;
                self.gather(cpu, place / panels, &(panel..panel + 1), target);
            });
        }
        let gathered = &*gathered;
        let blocks = row_blocks.count() * panel_blocks.count();
        cpu.parallel(groups * blocks, &|block, _| {
            let (group, block) = (block / blocks, block % blocks);
            let places = panel_blocks.range(block % panel_blocks.count());
            let rows = row_blocks.range(block / panel_blocks.count());
            let start = (group * panels + places.start) * self.panel_len();
            let gathered = gathered.get(start..).unwrap_or_default();
            self.multiply(cpu, group, rows, &places, gathered);
        });
    }

    /// Quads from one gathered panel to the next.
    fn panel_len(&self) -> usize {
        self.weights.tiles.pixels * self.weights.order.run_len() + PANEL_PADDING
    }

    fn pixels(&self, panel: usize) -> Range<usize> {
        let panel = self.runs.map_or(panel, |runs| runs[panel] as usize);
        let (all, most) = (
            self.shape.batch * self.shape.out_pixels(),
            self.weights.tiles.pixels,
        );
        panel * most..((panel + 1) * most).min(all)
    }

    /// The quads of a panel where they lie in the input as tiles read them, so that nothing need be gathered.
    fn in_place(&self, group: usize, pixels: &Range<usize>) -> Option<&[f32]> {
        let (shape, quads) = (&self.quads, self.shape.group_in().div_ceil(4));
        let is_plain = shape.taps() == 1 && shape.stride == [1, 1] && shape.padding == [0, 0];
        let is_whole = self.weights.order.run_len() == quads && !self.weights.tiles.lifts;
        let (sample, first) = (
            pixels.start / shape.in_pixels().max(1),
            pixels.start % shape.in_pixels().max(1),
        );
        if !is_plain || !is_whole || first + pixels.len() > shape.in_pixels() {
            return None;
        }
        let start = (sample * shape.in_channels + group * quads) * shape.in_pixels() + first;
        let read = pixels.len().next_multiple_of(READ_TOGETHER);
        let len = quads.checked_sub(1)? * shape.in_pixels() + read;
        self.x.get(start..start + len)
    }

    fn gather(&self, cpu: &Cpu, group: usize, panels: &Range<usize>, target: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if has_wide(cpu.isa()) && Pieces::supports(&self.quads) {
            let mut pieces = Pieces::default();
            for (panel, target) in self.gathered(group, panels, target) {
                pieces.set(&self.quads, panel);
                let quads = self.quads_of(group);
                let lifts = self.weights.tiles.lifts;
                // SAFETY: this CPU has the instructions.
                unsafe { pieces.gather(&self.quads, self.x, quads, lifts, target) };
            }
            return;
        }
        cpu.isa().run(Gather {
            job: self,
            group,
            panels,
            target,
        });
    }

    /// The panels that have to be gathered: their pixels and where they go.
    fn gathered<'t>(
        &self,
        group: usize,
        panels: &Range<usize>,
        target: &'t mut [f32],
    ) -> impl Iterator<Item = (Range<usize>, &'t mut [f32])> {
        let panels = panels.clone().map(|panel| self.pixels(panel));
        let all = panels.zip(target.chunks_mut(self.panel_len()));
        all.filter(move |(pixels, _)| self.in_place(group, pixels).is_none())
    }

    /// The quads of channels that a group reads.
    fn quads_of(&self, group: usize) -> Range<usize> {
        let per_group = self.shape.group_in().div_ceil(4);
        group * per_group..(group + 1) * per_group
    }

    /// Multiplies gathered panels with rows of the weights and finishes the sums.
    fn multiply(
        &self,
        cpu: &Cpu,
        group: usize,
        rows: Range<usize>,
        panels: &Range<usize>,
        gathered: &[f32],
    ) {
        let weights = self.weights;
        let depth = weights.order.run_len();
        let group_bytes = depth * TILE_ROWS * weights.tiles.width.quad_bytes();
        let packed = weights.packed[group].bytes();
        let mut sums = [NO_SUMS; TILE_GROUPS];
        let mut row = rows.start;
        while row < rows.end {
            let left = (rows.end - row).div_ceil(TILE_ROWS);
            let (tile, groups) = weights.tiles.panel(left);
            let a = &packed[row / TILE_ROWS * group_bytes..][..groups * group_bytes];
            let channel = group * self.shape.group_out() + row;
            let start = &weights.starts[channel..][..groups * TILE_ROWS];
            for (index, panel) in panels.clone().enumerate() {
                let pixels = self.pixels(panel);
                let (quads, stride) = match self.in_place(group, &pixels) {
                    Some(quads) => (quads, self.shape.in_pixels()),
                    None => (
                        &gathered[index * self.panel_len()..],
                        pixels.len().next_multiple_of(LANES),
                    ),
                };
                let read = pixels.len().next_multiple_of(READ_TOGETHER);
                assert!(depth == 0 || quads.len() >= (depth - 1) * stride + read);
                let b = Panel {
                    quads: quads.as_ptr().cast(),
                    stride,
                    pixels: pixels.len(),
                };
                // SAFETY: this CPU has the tile's instructions, both operands are `depth` quads deep, the pixels in whole runs, as
                // asserted above, and there are sums for the groups.
                unsafe { tile(depth, a.as_ptr(), b, start.as_ptr(), sums.as_mut_ptr()) };
                let finish = FinishTile {
                    finish: &self.finish,
                    sums: &sums[..groups],
                    channel,
                    channels: self.shape.out_channels,
                    out_pixels: self.shape.out_pixels(),
                    pixels,
                };
                finish.finish(cpu.isa());
            }
            row += groups * TILE_ROWS;
        }
    }
}

/// Gathers some panels, all of their depth.
struct Gather<'a> {
    job: &'a Job<'a>,
    group: usize,
    panels: &'a Range<usize>,
    target: &'a mut [f32],
}

impl Kernel for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Gather {
            job,
            group,
            panels,
            target,
        } = self;
        let mut plan = PanelPlan::default();
        for (pixels, target) in job.gathered(group, panels, target) {
            plan.set(&job.quads, pixels);
            plan.pack(s, &job.quads, job.x, None, job.quads_of(group), target);
            if job.weights.tiles.lifts {
                lift(bytemuck::cast_slice_mut(target));
            }
        }
    }
}
