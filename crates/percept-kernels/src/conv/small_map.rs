//! Convolutions of small maps: all panels of the input are gathered first, once, and blocks of output channels share them.

use std::ops::Range;

use super::gather::PanelPlan;
use super::implicit::{BLOCKS, Job, panel_count};
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::gemm::blocking::Parts;
use crate::gemm::product::Prefetch;
use crate::gemm::thin::{THIN_COLUMNS, multiply_thin_panel, pack_thin, thin_panel_len};
use crate::gemm::{TILE_COLUMNS, TILE_ROWS};
use crate::isa::Kernel;
use crate::simd::Simd;

/// Fewest output channels of a block.
const BLOCK_CHANNELS: usize = 32;

impl Job<'_> {
    /// All panels are gathered first; then blocks of output channels and pixels are multiplied.
    pub(super) fn gather_then_multiply(&self, cpu: &Cpu) {
        let (shape, depths) = (self.shape, self.depths);
        let panels = panel_count(shape);
        let panel_len = self.panel_len();
        let row_splits = BLOCKS.div_ceil(shape.groups * self.panel_blocks.count());
        let row_splits = row_splits.min(shape.group_out().div_ceil(BLOCK_CHANNELS));
        let row_blocks = Parts::exactly(row_splits, shape.group_out(), TILE_ROWS);
        let mut shared = cpu.shared_scratch();
        let [gathered] = shared.floats([shape.groups * depths.count() * panels * panel_len]);
        let target = SharedMut::new(gathered);
        cpu.parallel(shape.groups * panels, &|block, _| {
            let (group, panel) = (block / panels, block % panels);
            cpu.isa().run(Gather {
                job: self,
                group,
                panel,
                panels,
                target: &target,
            });
        });
        let gathered = &*gathered;
        let blocks = row_blocks.count() * self.panel_blocks.count();
        cpu.parallel(shape.groups * blocks, &|block, _| {
            let (group, block) = (block / blocks, block % blocks);
            // Channels first: threads that shared the pixels would both write the cache lines between them.
            let places = self.panel_blocks.range(block % self.panel_blocks.count());
            let pixels = self.pixels(places.start).start..self.pixels(places.end - 1).end;
            let rows = row_blocks.range(block / self.panel_blocks.count());
            let (full, thin) = split_thin(pixels);
            let part = |pixels| Part {
                job: self,
                group,
                rows: rows.clone(),
                pixels,
                panels,
                gathered,
            };
            cpu.isa().run(FullPanels(part(full)));
            // A call of its own: in one function with the tiles, the compiler would not keep all of their sums in registers.
            cpu.isa().run(ThinPanel(part(thin)));
        });
    }
}

/// Gathers one panel, all of its depth.
struct Gather<'a> {
    job: &'a Job<'a>,
    group: usize,
    panel: usize,
    panels: usize,
    target: &'a SharedMut<'a, f32>,
}

impl Kernel for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Gather {
            job,
            group,
            panel,
            panels,
            target,
        } = self;
        let panel_len = job.panel_len();
        let pixels = job.pixels(panel);
        let (full, thin) = split_thin(pixels.clone());
        let mut plan = PanelPlan::default();
        plan.set(job.shape, pixels);
        for (index, depth) in job.depths.ranges().enumerate() {
            let start = ((group * job.depths.count() + index) * panels + panel) * panel_len;
            // SAFETY: each panel has its own place.
            let target = unsafe { target.slice(start..start + panel_len) };
            // A thin panel is gathered behind its place, then spread out.
            let room = if full.is_empty() {
                thin_panel_len(THIN_COLUMNS, depth.len())
            } else {
                0
            };
            let (place, gathered) = target.split_at_mut(room);
            plan.pack(
                s,
                job.shape,
                job.x,
                job.input_scale,
                job.channels(group, &depth),
                gathered,
            );
            if full.is_empty() {
                pack_thin(s, gathered, thin.len(), depth.len(), place);
            }
        }
    }
}

/// Rows of the weights to multiply with pixels that were gathered before.
struct Part<'a> {
    job: &'a Job<'a>,
    group: usize,
    rows: Range<usize>,
    pixels: Range<usize>,
    panels: usize,
    gathered: &'a [f32],
}

/// Multiplies full panels.
struct FullPanels<'a>(Part<'a>);

impl Kernel for FullPanels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Part {
            job,
            group,
            rows,
            pixels,
            panels,
            gathered,
        } = self.0;
        let mut plans = Vec::with_capacity(pixels.len().div_ceil(TILE_COLUMNS));
        for first in pixels.clone().step_by(TILE_COLUMNS) {
            let mut plan = PanelPlan::default();
            plan.set_pieces(job.shape, first..(first + TILE_COLUMNS).min(pixels.end));
            plans.push(plan);
        }
        for (index, depth) in job.depths.ranges().enumerate() {
            let first = (group * job.depths.count() + index) * panels + pixels.start / TILE_COLUMNS;
            let gathered = &gathered[first * job.panel_len()..];
            // SAFETY: blocks have their own rows and pixels, and groups their own channels.
            unsafe {
                job.multiply(
                    s,
                    group,
                    &rows,
                    &depth,
                    &plans,
                    gathered,
                    &mut Prefetch::none(),
                )
            };
        }
    }
}

/// Multiplies the thin panel at the end; there need not be one.
struct ThinPanel<'a>(Part<'a>);

impl Kernel for ThinPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Part {
            job,
            group,
            rows,
            pixels,
            panels,
            gathered,
        } = self.0;
        if pixels.is_empty() {
            return;
        }
        let mut plan = PanelPlan::default();
        plan.set_pieces(job.shape, pixels);
        for (index, depth) in job.depths.ranges().enumerate() {
            let last = (group * job.depths.count() + index + 1) * panels - 1;
            let weights = &job.weights_of(group, &depth)[rows.start * depth.len()..];
            // SAFETY: the panel was gathered and the weights packed for this depth; blocks have their own rows and pixels.
            unsafe {
                multiply_thin_panel(
                    s,
                    weights,
                    rows.len(),
                    &gathered[last * job.panel_len()..],
                    job.depth_part(&depth),
                    &job.output,
                    group * job.shape.group_out() + rows.start,
                    &plan.pieces,
                );
            }
        }
    }
}

/// Splits pixels into those of full panels and those of the thin panel behind them, if they leave so few over.
fn split_thin(pixels: Range<usize>) -> (Range<usize>, Range<usize>) {
    let left_over = pixels.len() % TILE_COLUMNS;
    let thin = if left_over <= THIN_COLUMNS {
        left_over
    } else {
        0
    };
    let middle = pixels.end - thin;
    (pixels.start..middle, middle..pixels.end)
}
