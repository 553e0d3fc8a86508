//! Winograd F(4x4, 3x3) in integers: a quarter of the products, of 16-bit numbers, with sums that cannot overflow.
//!
//! The input transform is exact: of bytes it makes numbers below 12 700. The transformed weights are rounded to 16 bits, for each
//! position and output channel by the finest scale with which no input whatever can bring a sum beyond 32 bits. That is
//! finer than the 8 bits that the weights come from, so results differ from those of direct convolution by far less than a
//! step of either operand; but they differ.

mod input;
mod output;
mod weights;
#[cfg(target_arch = "x86_64")]
mod wide;

use std::ops::Range;

use super::finish::{ByteEpilogue, ByteOutput, Finish};
use super::map::check_input;
use super::tile::{TILE_ROWS, WORD_COLUMNS, WORD_RUN, WordRuns, WordSums, WordTiles};
use super::weights::ByteWeights;
use crate::aligned::{AlignedBuf, FLOATS_PER_LINE};
use crate::conv::ConvShape;
use crate::cpu::Cpu;
use crate::gemm::blocking::Parts;
use crate::isa::Isa;
use input::TransformInput;
use output::{TileRuns, TransformOutput};

/// Rows and columns of outputs of a tile.
const TILE: usize = 4;
/// Rows and columns of inputs of a tile, and of its transform.
const SPAN: usize = TILE + 2;
/// Numbers of a transformed tile.
const POSITIONS: usize = SPAN * SPAN;
/// Groups of output channels whose sums are in the cache at a time.
const GROUPS: usize = 8;
/// Blocks to cut a convolution into at least. One with fewer panels of tiles is cut by output channels too.
const BLOCKS: usize = 8;

/// Room between two positions, in numbers of 4 bytes, so that they do not all lie in the same cache sets.
const POSITION_PADDING: usize = FLOATS_PER_LINE;

/// Pairs of input channels, of whole quads.
fn pairs_of(channels: usize) -> usize {
    2 * channels.div_ceil(4)
}

/// Words from one position of a run of 16 transformed tiles to the next.
fn position_stride(in_channels: usize) -> usize {
    2 * (pairs_of(in_channels) * WORD_RUN + POSITION_PADDING)
}

/// The column of a tile in its run of 16, and the tile of a column. Fours of tiles lie across: what they read and write side by side
/// is then a vector, whose quarters go through the columns.
fn column_of(tile: usize) -> usize {
    tile % 4 * 4 + tile / 4
}

/// Groups of output channels that are multiplied one after the other at each position.
struct Chunk {
    groups: Range<usize>,
}

impl Chunk {
    /// The one that holds a group.
    fn of(group: usize, groups: usize) -> Chunk {
        let first = group / GROUPS * GROUPS;
        Chunk {
            groups: first..(first + GROUPS).min(groups),
        }
    }

    /// Groups of weights that lie in front of its weights for a position.
    fn start(&self, position: usize) -> usize {
        self.groups.start * POSITIONS + position * self.groups.len()
    }
}

/// The weights of a 3x3 convolution, transformed and packed once.
#[derive(Debug)]
pub struct ByteWinograd {
    in_channels: usize,
    out_channels: usize,
    tiles: WordTiles,
    /// `[chunk][position][group of 4 channels][pair of inputs][4 channels][2]`.
    words: AlignedBuf,
    /// What a step of a position's sums stands for, in steps of the input: `[group][position][4 channels]`.
    scales: Vec<f32>,
    /// Whether transforms take vectors of 512 bits.
    #[cfg(target_arch = "x86_64")]
    wide: bool,
}

impl ByteWinograd {
    /// Whether a convolution can be computed in this way.
    pub fn supports(shape: &ConvShape) -> bool {
        shape.kernel == [3, 3]
            && shape.stride == [1, 1]
            && shape.dilation == [1, 1]
            && shape.groups == 1
            && shape.padding.iter().all(|&padding| padding <= 2)
    }

    /// Whether it is the fastest way: a quarter of the products, of numbers twice as wide, and transforms. Measured on one thread
    /// (examples/byte_layers.rs), ms directly and by Winograd: with AVX2 62 and 31 for 128 to 128 channels on 180x180, 60 and 27 for 256
    /// on 90x90, 1.6 and 4.4 for 512 on 7x7; with dot products of bytes and vectors of 512 bits 9.6 and 5.6, 9.0 and 5.4, and 0.23 and
    /// 0.18 for 128 on 28x28. Fewer tiles than there are in that do not pay for reading eight times as many bytes of weights. AMX multiplies
    /// bytes eight times as fast as words: never there.
    pub fn is_faster(shape: &ConvShape, isa: Isa) -> bool {
        let channels = shape.in_channels.min(shape.out_channels);
        let (least_channels, least_tiles) = match isa.has_byte_dots() {
            _ if isa == Isa::Amx => return false,
            false => (16, 16),
            true if has_wide_transforms() => (64, 48),
            true => return false,
        };
        ByteWinograd::supports(shape)
            && channels >= least_channels
            && TileGrid::new(shape).tiles() >= least_tiles
    }

    /// Transforms OIHW weights.
    pub fn pack(cpu: &Cpu, shape: &ConvShape, weights: &ByteWeights) -> ByteWinograd {
        assert!(ByteWinograd::supports(shape), "a plain 3x3 convolution");
        assert_eq!(
            (weights.scales.len(), weights.values.len()),
            (shape.out_channels, shape.weight_len()),
            "length of the weights"
        );
        let (words, scales) = weights::pack(cpu, shape, weights);
        ByteWinograd {
            in_channels: shape.in_channels,
            out_channels: shape.out_channels,
            tiles: WordTiles::new(cpu.isa()),
            words,
            scales,
            #[cfg(target_arch = "x86_64")]
            wide: cpu.isa().has_byte_dots() && has_wide_transforms(),
        }
    }

    /// Cells along the side of a tile.
    pub(super) const TILE: usize = TILE;

    /// The tiles of a convolution's output.
    pub(super) fn tiles(shape: &ConvShape) -> usize {
        TileGrid::new(shape).tiles()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.words.len() + size_of_val(&self.scales[..])
    }
}

/// Whether this CPU transforms with vectors of 512 bits.
fn has_wide_transforms() -> bool {
    #[cfg(target_arch = "x86_64")]
    return wide::is_supported();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Convolves a map in quads.
pub fn byte_winograd(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &ByteWinograd,
    x: &[i8],
    epilogue: ByteEpilogue<'_>,
    output: ByteOutput<'_>,
) {
    byte_winograd_part(cpu, shape, weights, x, epilogue, output, None);
}

/// The same for some tiles of 4x4 outputs, which are numbered row by row over all samples; the rest of the output stays as it is.
pub(super) fn byte_winograd_part(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &ByteWinograd,
    x: &[i8],
    epilogue: ByteEpilogue<'_>,
    output: ByteOutput<'_>,
    tiles: Option<&[u32]>,
) {
    let channels = shape.out_channels;
    assert!(
        ByteWinograd::supports(shape)
            && (weights.in_channels, weights.out_channels) == (shape.in_channels, channels),
        "the weights were packed for other channels"
    );
    check_input(shape, x);
    epilogue.check_maps(&output, shape);
    // The factors of channels stand with the positions: what is left is the input's scale.
    let scales = vec![1.0; channels];
    let job = Job {
        grid: TileGrid {
            list: tiles,
            ..TileGrid::new(shape)
        },
        weights,
        x,
        finish: Finish::new(&epilogue, &scales, TILE_ROWS, output),
    };
    job.run(cpu);
}

/// Where the tiles of a convolution lie.
#[derive(Clone, Copy)]
struct TileGrid<'a> {
    shape: ConvShape,
    rows: usize,
    columns: usize,
    /// The tiles that are wanted, where not all are.
    list: Option<&'a [u32]>,
}

/// One tile: its sample, and its first row and column of outputs.
#[derive(Clone, Copy)]
struct TilePlace {
    sample: usize,
    row: usize,
    column: usize,
}

impl TileGrid<'_> {
    fn new(shape: &ConvShape) -> Self {
        Self {
            shape: *shape,
            rows: shape.out_height().div_ceil(TILE),
            columns: shape.out_width().div_ceil(TILE),
            list: None,
        }
    }

    /// Tiles of all samples, or those that are wanted.
    fn tiles(&self) -> usize {
        let all = self.shape.batch * self.rows * self.columns;
        self.list.map_or(all, <[u32]>::len)
    }

    fn place(&self, tile: usize) -> TilePlace {
        let tile = self.list.map_or(tile, |list| list[tile] as usize);
        let (sample, within) = (
            tile / (self.rows * self.columns),
            tile % (self.rows * self.columns),
        );
        TilePlace {
            sample,
            row: within / self.columns * TILE,
            column: within % self.columns * TILE,
        }
    }
}

/// A convolution on its way.
struct Job<'a> {
    grid: TileGrid<'a>,
    weights: &'a ByteWinograd,
    x: &'a [i8],
    finish: Finish<'a>,
}

impl Job<'_> {
    fn run(&self, cpu: &Cpu) {
        let (tiles, run_len) = (self.grid.tiles(), self.run_len());
        let panels = Parts::at_most(WORD_COLUMNS, tiles, WORD_RUN);
        let groups = self.weights.out_channels.div_ceil(TILE_ROWS);
        let chunks = groups.div_ceil(GROUPS);
        let splits = BLOCKS.div_ceil(panels.count().max(1));
        let chunk_blocks = Parts::exactly(splits, chunks, 1);
        let sums_len = POSITIONS * self.sums_stride();
        let call = cpu.number_call();
        cpu.parallel(panels.count() * chunk_blocks.count(), &|block, scratch| {
            let panel = block / chunk_blocks.count();
            let tiles = panels.range(panel);
            let runs = tiles.len().div_ceil(WORD_RUN);
            let lengths = [runs * run_len / 2, sums_len];
            let (is_transformed, [words, sums]) = scratch.floats_of((call, panel), lengths);
            let words: &mut [i16] = bytemuck::cast_slice_mut(words);
            if !is_transformed {
                for (run, target) in words.chunks_exact_mut(run_len).enumerate() {
                    self.transform_input(cpu, run_of(&tiles, run), target);
                }
            }
            let places = TileRuns::new(&self.grid, tiles);
            for index in chunk_blocks.range(block % chunk_blocks.count()) {
                let chunk = Chunk::of(index * GROUPS, groups);
                self.compute(cpu, &places, chunk, words, sums);
            }
        });
    }

    /// Words of a run of 16 transformed tiles.
    fn run_len(&self) -> usize {
        POSITIONS * position_stride(self.weights.in_channels)
    }

    /// Sums from one position to the next.
    fn sums_stride(&self) -> usize {
        GROUPS * TILE_ROWS * WORD_COLUMNS + POSITION_PADDING
    }

    /// Computes some output channels of up to 48 tiles, whose transform `words` begins with.
    fn compute(&self, cpu: &Cpu, places: &TileRuns, chunk: Chunk, words: &[i16], sums: &mut [f32]) {
        let pairs = pairs_of(self.weights.in_channels);
        let group_len = pairs * TILE_ROWS * 2;
        let all: &[i16] = bytemuck::cast_slice(self.weights.words.bytes());
        let sums: &mut [i32] = bytemuck::cast_slice_mut(sums);
        let (sums_len, stride) = (TILE_ROWS * WORD_COLUMNS, self.sums_stride());
        let runs = places.tiles().div_ceil(WORD_RUN);
        let count = chunk.groups.len();
        assert!(runs * WORD_RUN <= WORD_COLUMNS && words.len() >= runs * self.run_len());
        let first = chunk.groups.start * TILE_ROWS;
        let last = (chunk.groups.end * TILE_ROWS).min(self.weights.out_channels);
        let mut rows = (first..last).flat_map(|channel| (0..TILE).map(move |row| (channel, row)));
        for position in 0..POSITIONS {
            let a = &all[chunk.start(position) * group_len..][..count * group_len];
            let b = WordRuns {
                words: words[position * position_stride(self.weights.in_channels)..].as_ptr(),
                stride: self.run_len(),
                count: runs,
            };
            let sums = &mut sums[position * stride..][..count * sums_len];
            let (sums, _) = sums.as_chunks_mut::<{ TILE_ROWS * WORD_COLUMNS }>();
            // SAFETY: as asserted above, the runs are there, each with `pairs` pairs at every position.
            unsafe {
                self.multiply(pairs, a, b, sums, || {
                    if let Some((channel, row)) = rows.next() {
                        self.fetch_output(channel, row, places);
                    }
                });
            }
        }
        for (index, group) in chunk.groups.clone().enumerate() {
            let scales_len = POSITIONS * TILE_ROWS;
            let work = TransformOutput {
                grid: &self.grid,
                finish: &self.finish,
                places,
                channel: group * TILE_ROWS,
                sums: &mut sums[index * sums_len..],
                stride,
                scales: &self.weights.scales[group * scales_len..][..scales_len],
            };
            self.transform_output(cpu, work);
        }
    }

    /// Asks for the lines of floats that a row of tiles of a channel is written to, long before that: they come from far.
    fn fetch_output(&self, channel: usize, row: usize, places: &TileRuns) {
        let shape = &self.grid.shape;
        if let Some(plane) = self.finish.plane(channel, shape.out_pixels()) {
            places.fetch(row, plane, shape.out_channels * shape.out_pixels());
        }
    }

    fn transform_input(&self, cpu: &Cpu, tiles: Range<usize>, target: &mut [i16]) {
        let work = TransformInput {
            grid: &self.grid,
            x: self.x,
            tiles,
            target,
        };
        #[cfg(target_arch = "x86_64")]
        if self.weights.wide {
            // SAFETY: this CPU has the instructions.
            return unsafe { wide::transform_input(work) };
        }
        cpu.isa().run(work);
    }

    fn transform_output(&self, cpu: &Cpu, work: TransformOutput<'_>) {
        #[cfg(target_arch = "x86_64")]
        if self.weights.wide
            && let Some(plain) = self.finish.plain()
        {
            // SAFETY: this CPU has the instructions, and blocks have their own tiles or channels.
            return unsafe { wide::transform_output(work, &plain) };
        }
        cpu.isa().run(work);
    }

    /// Multiplies one position of the input with one of the weights. In front of each tile it asks for a few lines: many at once
    /// would hold up what the tile itself reads.
    ///
    /// # Safety
    /// The runs must be there, so many pairs deep.
    unsafe fn multiply(
        &self,
        pairs: usize,
        a: &[i16],
        b: WordRuns,
        sums: &mut [WordSums],
        mut ask: impl FnMut(),
    ) {
        let group_len = pairs * TILE_ROWS * 2;
        assert!(a.len() == sums.len() * group_len);
        let mut group = 0;
        while group < sums.len() {
            ask();
            let (tile, count) = self.weights.tiles.get(sums.len() - group);
            let (a, sums) = (&a[group * group_len..], &mut sums[group..]);
            // SAFETY: this CPU has the tile's instructions, and the operands are `pairs` deep.
            unsafe { tile(pairs, a.as_ptr(), b, sums.as_mut_ptr()) };
            group += count;
        }
    }
}

/// The tiles of one run.
fn run_of(tiles: &Range<usize>, run: usize) -> Range<usize> {
    let first = tiles.start + run * WORD_RUN;
    first..(first + WORD_RUN).min(tiles.end)
}

#[cfg(test)]
mod tests;
