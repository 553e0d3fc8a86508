//! Convolutions of maps in quads: as matrix products whose input is gathered block by block.

use std::ops::Range;

use super::finish::{ByteEpilogue, ByteOutput, Finish, FinishTile, PixelRun, PlacedPanel};
#[cfg(target_arch = "x86_64")]
use super::has_wide;
use super::term::Term;
#[cfg(target_arch = "x86_64")]
use super::tile::TileRegisters;
use super::tile::{GroupSums, PanelTiles, TILE_GROUPS, TILE_ROWS};
use super::weights::{ByteWeights, QuadOrder};
use crate::aligned::AlignedBuf;
use crate::conv::ConvShape;
use crate::cpu::Cpu;
use crate::gemm::blocking::Parts;

/// Bytes of gathered input a block.
const GATHERED: usize = 256 * 1024;
/// Fewest and most panels of a block.
const PANELS: [usize; 2] = [2, 16];
/// Blocks to cut a convolution into at least. One with fewer pixel blocks is cut by output channels too.
const BLOCKS: usize = 8;
/// Fewest output channels of such a block.
const BLOCK_CHANNELS: usize = 32;

/// The weights of a convolution as bytes, packed once.
#[derive(Debug)]
pub struct ByteConv {
    pub(super) order: QuadOrder,
    pub(super) groups: usize,
    pub(super) tiles: PanelTiles,
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
        let tiles = PanelTiles::new(cpu.isa(), weights.operands(&order, signed));
        let rows = shape.group_out();
        let packed = (0..shape.groups)
            .map(|group| group * rows..(group + 1) * rows)
            .map(|rows| weights.pack(&order, rows, tiles.packing, tiles.width))
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

    /// Quads that rows of packed weights are deep.
    pub(super) fn depth(&self) -> usize {
        self.tiles.depth(self.order.run_len())
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
        out_pixels: shape.out_pixels(),
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
        out_pixels: shape.out_pixels(),
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
    /// Of a sample.
    out_pixels: usize,
}

impl Job<'_> {
    fn run(&self, cpu: &Cpu) {
        let first = &self.terms[0];
        let all = first.weights.runs(&first.shape);
        let panels = self.runs.map_or(all, <[u32]>::len);
        let (groups, rows) = (first.shape.groups, first.shape.group_out());
        let most = (GATHERED / (4 * self.panel_len())).clamp(PANELS[0], PANELS[1]);
        // The pixels of a small map are few lines of the cache: threads that share them would write to each other's lines.
        let panel_blocks = match groups * panels < BLOCKS {
            true => 1,
            false => panels.div_ceil(most),
        };
        let panel_blocks = Parts::exactly(panel_blocks, panels, 1);
        let splits = BLOCKS.div_ceil((groups * panel_blocks.count()).max(1));
        let splits = splits.min(rows.div_ceil(BLOCK_CHANNELS)).max(1);
        let row_blocks = Parts::exactly(splits, rows, first.weights.tiles.packing.height);
        let call = cpu.number_call();
        let blocks = groups * panel_blocks.count() * row_blocks.count();
        cpu.parallel(blocks, &|block, scratch| {
            let (input, row_block) = (block / row_blocks.count(), block % row_blocks.count());
            let (group, panel_block) = (input / panel_blocks.count(), input % panel_blocks.count());
            let panels = panel_blocks.range(panel_block);
            let len = panels.len() * self.panel_len();
            let sums_len = size_of::<[TileSums; 2]>() / size_of::<f32>();
            let (is_gathered, [gathered, sums]) = scratch.floats_of((call, input), [len, sums_len]);
            if !is_gathered {
                self.gather(cpu, group, &panels, gathered);
            }
            let sums = bytemuck::from_bytes_mut(bytemuck::cast_slice_mut(sums));
            let rows = row_blocks.range(row_block);
            self.multiply(cpu, group, rows, &panels, gathered, sums);
        });
    }

    /// Quads from one gathered panel to the next: those of all terms lie one behind the other.
    fn panel_len(&self) -> usize {
        self.terms.iter().map(Term::panel_len).sum()
    }

    fn pixels(&self, panel: usize) -> Range<usize> {
        let first = &self.terms[0];
        let panel = self.runs.map_or(panel, |runs| runs[panel] as usize);
        let all = first.shape.batch * self.out_pixels;
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
            for (panel, target) in panels.clone().zip(target.chunks_mut(self.panel_len())) {
                term.spread(group, &self.pixels(panel), &mut target[offset..]);
            }
            offset += term.panel_len();
        }
    }

    /// Where panels lie, and where they go.
    fn places(&self, group: usize, panels: &Range<usize>, gathered: &[f32]) -> Places {
        let mut places = Places {
            panels: Vec::with_capacity(panels.len()),
            runs: Vec::with_capacity(panels.len()),
        };
        for (index, panel) in panels.clone().enumerate() {
            let pixels = self.pixels(panel);
            let mut start = index * self.panel_len();
            let mut inputs = [None; 2];
            for (term, input) in self.terms.iter().zip(&mut inputs) {
                *input = Some(term.place(group, &pixels, &gathered[start..]));
                start += term.panel_len();
            }
            let quads = self.terms[0].shape.out_channels.div_ceil(4) * self.out_pixels;
            let sample = [self.out_pixels, quads];
            let panel = PlacedPanel::new(inputs, pixels, sample, &mut places.runs);
            places.panels.push(panel);
        }
        places
    }

    /// Multiplies gathered panels with rows of the weights and finishes the sums.
    fn multiply(
        &self,
        cpu: &Cpu,
        group: usize,
        rows: Range<usize>,
        panels: &Range<usize>,
        gathered: &[f32],
        sums: &mut [TileSums; 2],
    ) {
        let (shape, tiles) = (&self.terms[0].shape, &self.terms[0].weights.tiles);
        #[cfg(target_arch = "x86_64")]
        let _registers = tiles.has_own_registers().then(TileRegisters::take);
        let Places { panels, runs } = self.places(group, panels, gathered);
        let mut row = rows.start;
        while row < rows.end {
            let channel = group * shape.group_out() + row;
            let mut weights = [None; 2];
            for (term, weights) in self.terms.iter().zip(&mut weights) {
                *weights = Some(term.rows(group, row..rows.end));
            }
            let groups = weights[0].map_or(1, |rows| rows.groups);
            #[cfg(target_arch = "x86_64")]
            let in_registers = match has_wide(cpu.isa()) && !tiles.has_own_registers() {
                true => {
                    self.finish
                        .in_registers(weights, channel, shape.out_channels, self.out_pixels)
                }
                false => None,
            };
            let mut index = 0;
            while index < panels.len() {
                #[cfg(target_arch = "x86_64")]
                if let Some(tile) = &in_registers {
                    // SAFETY: this CPU has the instructions, weights and panels are whole, and blocks have their own pixels or channels.
                    let done = unsafe { tile.panels(&panels[index..], &runs) };
                    if done > 0 {
                        index += done;
                        continue;
                    }
                }
                let panel = &panels[index];
                let (next, panel_of_next) = match panels.get(index + 1) {
                    Some(next) => (row, next),
                    None => (row + groups * TILE_ROWS, &panels[0]),
                };
                if next < rows.end {
                    let channel = group * shape.group_out() + next;
                    let channels = channel..channel + groups * TILE_ROWS;
                    let runs = &runs[panel_of_next.runs.clone()];
                    self.finish.fetch(channels, shape, runs);
                }
                let operands = weights.iter().flatten().zip(panel.inputs.iter().flatten());
                for ((rows, &panel), sums) in operands.zip(sums.iter_mut()) {
                    // SAFETY: this CPU has the tile's instructions, weights and panels are whole, and there are sums for the groups.
                    unsafe {
                        (rows.tile)(rows.depth, rows.a, panel, rows.start, sums.as_mut_ptr())
                    };
                }
                let finish = FinishTile {
                    finish: &self.finish,
                    sums: &sums[0][..groups],
                    added: &sums[1][..groups],
                    channel,
                    channels: shape.out_channels,
                    out_pixels: self.out_pixels,
                    runs: &runs[panel.runs.clone()],
                };
                finish.finish(cpu.isa());
                index += 1;
            }
            row += groups * TILE_ROWS;
        }
    }
}

/// The sums of a tile of one term.
type TileSums = [GroupSums; TILE_GROUPS];

/// Where each term has the quads of panels, and where in the output their pixels go.
struct Places {
    panels: Vec<PlacedPanel>,
    runs: Vec<PixelRun>,
}
