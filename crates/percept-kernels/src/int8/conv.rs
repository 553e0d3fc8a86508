//! Convolutions of maps in quads: as matrix products whose input is gathered block by block.

use std::ops::Range;

use super::finish::{ByteEpilogue, ByteOutput, Finish, FinishTile};
use super::term::Term;
use super::tile::{NO_SUMS, TILE_GROUPS, TILE_ROWS, Tiles};
use super::weights::{ByteWeights, QuadOrder};
use crate::aligned::{AlignedBuf, SharedMut};
use crate::conv::ConvShape;
use crate::cpu::Cpu;
use crate::gemm::blocking::Parts;

/// Bytes of gathered input a block.
const GATHERED: usize = 256 * 1024;
/// Fewest and most panels of a block.
const PANELS: [usize; 2] = [2, 16];
/// Blocks to cut a convolution into at least. One with fewer pixel blocks gathers its input once, for all, and is cut by
/// output channels.
const BLOCKS: usize = 8;
/// Fewest output channels of such a block.
const BLOCK_CHANNELS: usize = 32;

/// The weights of a convolution as bytes, packed once.
#[derive(Debug)]
pub struct ByteConv {
    pub(super) order: QuadOrder,
    pub(super) groups: usize,
    pub(super) tiles: Tiles,
    pub(super) packed: Vec<AlignedBuf>,
    pub(super) starts: Vec<i32>,
    pub(super) scales: Vec<f32>,
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

/// A convolution whose result is added to another one's, unrounded, while both are in registers.
#[derive(Clone, Copy, Debug)]
pub struct ByteTerm<'a> {
    /// Its shape; the output is that of the other one. Neither has groups.
    pub shape: &'a ConvShape,
    /// Its weights.
    pub weights: &'a ByteConv,
    /// Its input.
    pub x: &'a [i8],
    /// What a step of its input stands for.
    pub input_scale: f32,
    /// One value for each output channel.
    pub bias: Option<&'a [f32]>,
}

/// The sum of two convolutions, as if the second were a residual of floats.
pub fn byte_conv2d_sum(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &ByteConv,
    x: &[i8],
    second: ByteTerm<'_>,
    epilogue: ByteEpilogue<'_>,
    output: ByteOutput<'_>,
) {
    let out_size = |shape: &ConvShape| [shape.out_channels, shape.out_height(), shape.out_width()];
    assert_eq!((shape.groups, second.shape.groups), (1, 1), "no groups");
    assert_eq!(
        (shape.batch, out_size(shape)),
        (second.shape.batch, out_size(second.shape)),
        "outputs of one size"
    );
    if let Some(bias) = second.bias {
        assert_eq!(bias.len(), shape.out_channels, "length of the bias");
    }
    let finish = finish(shape, weights, epilogue, output);
    let (scales, scale) = (&second.weights.scales, second.input_scale);
    let job = Job {
        terms: &[
            Term::new(shape, weights, x),
            Term::new(second.shape, second.weights, second.x),
        ],
        runs: None,
        finish: finish.adding(scale, scales, second.bias, TILE_ROWS),
    };
    job.run(cpu);
}

/// A convolution for some runs of [`ByteConv::run_len`] pixels, which are numbered over all samples; the rest of the output stays as it is.
pub(super) fn byte_conv2d_part(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &ByteConv,
    x: &[i8],
    epilogue: ByteEpilogue<'_>,
    output: ByteOutput<'_>,
    runs: Option<&[u32]>,
) {
    let job = Job {
        terms: &[Term::new(shape, weights, x)],
        runs,
        finish: finish(shape, weights, epilogue, output),
    };
    job.run(cpu);
}

fn finish<'a>(
    shape: &ConvShape,
    weights: &ByteConv,
    epilogue: ByteEpilogue<'a>,
    output: ByteOutput<'a>,
) -> Finish<'a> {
    epilogue.check_maps(&output, shape);
    Finish::new(&epilogue, &weights.scales, TILE_ROWS, output)
}

/// A convolution on its way, or the sum of two.
struct Job<'a> {
    /// One or two.
    terms: &'a [Term<'a>],
    /// The panels that are wanted, where not all are.
    runs: Option<&'a [u32]>,
    finish: Finish<'a>,
}

impl Job<'_> {
    fn run(&self, cpu: &Cpu) {
        let first = &self.terms[0];
        let all = first.weights.runs(&first.shape);
        let panels = self.runs.map_or(all, <[u32]>::len);
        let most = (GATHERED / (4 * self.panel_len())).clamp(PANELS[0], PANELS[1]);
        let panel_blocks = Parts::at_most(most, panels, 1);
        let (groups, rows) = (first.shape.groups, first.shape.group_out());
        if groups * panel_blocks.count() >= BLOCKS {
            cpu.parallel(groups * panel_blocks.count(), &|block, scratch| {
                let (group, block) = (block / panel_blocks.count(), block % panel_blocks.count());
                let places = panel_blocks.range(block);
                let [gathered] = scratch.floats([places.len() * self.panel_len()]);
                self.gather(cpu, group, &places, gathered);
                self.multiply(cpu, group, 0..rows, &places, gathered);
            });
            return;
        }
        let splits = BLOCKS.div_ceil((groups * panel_blocks.count()).max(1));
        let splits = splits.min(rows.div_ceil(BLOCK_CHANNELS));
        let row_blocks = Parts::exactly(splits, rows, TILE_ROWS);
        let in_place = (0..panels).all(|panel| {
            let pixels = self.pixels(panel);
            let in_place = |term: &Term<'_>, group| term.in_place(group, &pixels).is_some();
            (0..groups).all(|group| self.terms.iter().all(|term| in_place(term, group)))
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

    /// Quads from one gathered panel to the next: those of all terms lie one behind the other.
    fn panel_len(&self) -> usize {
        self.terms.iter().map(Term::panel_len).sum()
    }

    fn pixels(&self, panel: usize) -> Range<usize> {
        let first = &self.terms[0];
        let panel = self.runs.map_or(panel, |runs| runs[panel] as usize);
        let all = first.shape.batch * first.shape.out_pixels();
        let most = first.weights.tiles.pixels;
        panel * most..((panel + 1) * most).min(all)
    }

    /// Gathers what terms do not have in place.
    fn gather(&self, cpu: &Cpu, group: usize, panels: &Range<usize>, target: &mut [f32]) {
        let mut offset = 0;
        for term in self.terms {
            let pixels = panels.clone().map(|panel| self.pixels(panel));
            let targets = target.chunks_mut(self.panel_len());
            let targets = targets.map(|target| &mut target[offset..]);
            term.gather(cpu, group, pixels.zip(targets));
            offset += term.panel_len();
        }
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
        let shape = &self.terms[0].shape;
        let mut sums = [[NO_SUMS; TILE_GROUPS]; 2];
        let mut row = rows.start;
        while row < rows.end {
            let mut groups = 0;
            for (index, panel) in panels.clone().enumerate() {
                let pixels = self.pixels(panel);
                let mut start = index * self.panel_len();
                for (term, sums) in self.terms.iter().zip(&mut sums) {
                    let gathered = gathered.get(start..).unwrap_or_default();
                    groups = term.multiply(group, row..rows.end, &pixels, gathered, sums);
                    start += term.panel_len();
                }
                let finish = FinishTile {
                    finish: &self.finish,
                    sums: &sums[0][..groups],
                    added: &sums[1][..groups],
                    channel: group * shape.group_out() + row,
                    channels: shape.out_channels,
                    out_pixels: shape.out_pixels(),
                    pixels,
                };
                finish.finish(cpu.isa());
            }
            row += groups.max(1) * TILE_ROWS;
        }
    }
}
