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
use super::map::map_len;
use super::tile::{TILE_ROWS, WORD_COLUMNS, WordSums, WordTiles};
use super::weights::ByteWeights;
use crate::aligned::{AlignedBuf, FLOATS_PER_LINE};
use crate::conv::ConvShape;
use crate::cpu::{Cpu, Scratch};
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
const GROUPS: usize = 16;

/// Room between the sums of two positions, so that they do not all lie in the same cache sets.
const POSITION_PADDING: usize = FLOATS_PER_LINE;

/// The weights of a 3x3 convolution, transformed and packed once.
#[derive(Debug)]
pub struct ByteWinograd {
    in_channels: usize,
    out_channels: usize,
    tiles: WordTiles,
    /// `[position][group of 4 channels][quad of inputs][4 channels][4]`.
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
    /// on 90x90, 1.6 and 4.4 for 512 on 7x7; with dot products of bytes and vectors of 512 bits 10.6 and 8.4, 9.4 and 7.3, 0.35 and 1.5,
    /// and even (0.29) for 64 on 56x56.
    pub fn is_faster(shape: &ConvShape, isa: Isa) -> bool {
        let channels = shape.in_channels.min(shape.out_channels);
        let (least_channels, least_tiles) = match isa.has_byte_dots() {
            false => (16, 16),
            true if has_wide_transforms() => (64, 400),
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
    let len = |channels, pixels| map_len(shape.batch, channels, pixels);
    assert_eq!(
        x.len(),
        len(shape.in_channels, shape.in_pixels()),
        "length of the input"
    );
    let bytes = len(channels, shape.out_pixels());
    epilogue.check(&output, channels, shape.out_len(), bytes);
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
    let panels = job.grid.tiles().div_ceil(WORD_COLUMNS);
    cpu.parallel(panels, &|panel, scratch| {
        let first = panel * WORD_COLUMNS;
        let last = (first + WORD_COLUMNS).min(job.grid.tiles());
        job.compute(cpu, first..last, scratch);
    });
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
    /// Computes up to 24 tiles.
    fn compute(&self, cpu: &Cpu, tiles: Range<usize>, scratch: &mut Scratch) {
        let quads = self.weights.in_channels.div_ceil(4);
        let groups = self.weights.out_channels.div_ceil(TILE_ROWS);
        let chunk = groups.min(GROUPS);
        let panel_len = quads * WORD_COLUMNS * 4;
        let sums_len = TILE_ROWS * WORD_COLUMNS;
        let stride = chunk * sums_len + POSITION_PADDING;
        let [transformed, sums] = scratch.floats([POSITIONS * panel_len / 2, POSITIONS * stride]);
        let transformed: &mut [i16] = bytemuck::cast_slice_mut(transformed);
        let sums: &mut [i32] = bytemuck::cast_slice_mut(sums);
        self.transform_input(cpu, tiles.clone(), transformed);
        let runs = TileRuns::new(&self.grid, tiles);
        let words: &[i16] = bytemuck::cast_slice(self.weights.words.bytes());
        let group_len = quads * TILE_ROWS * 4;
        for first in (0..groups).step_by(chunk.max(1)) {
            let chunk = chunk.min(groups - first);
            for position in 0..POSITIONS {
                let b = &transformed[position * panel_len..][..panel_len];
                let a = &words[(position * groups + first) * group_len..][..chunk * group_len];
                let sums = &mut sums[position * stride..][..chunk * sums_len];
                let (sums, _) = sums.as_chunks_mut::<{ TILE_ROWS * WORD_COLUMNS }>();
                self.multiply(quads, a, b, sums);
            }
            for group in 0..chunk {
                let work = TransformOutput {
                    grid: &self.grid,
                    finish: &self.finish,
                    runs: &runs,
                    channel: (first + group) * TILE_ROWS,
                    sums: &sums[group * sums_len..],
                    stride,
                    scales: &self.weights.scales[(first + group) * POSITIONS * TILE_ROWS..]
                        [..POSITIONS * TILE_ROWS],
                };
                self.transform_output(cpu, work);
            }
        }
    }

    fn transform_input(&self, cpu: &Cpu, tiles: Range<usize>, target: &mut [i16]) {
        let grid = &self.grid;
        #[cfg(target_arch = "x86_64")]
        if self.weights.wide {
            // SAFETY: this CPU has the instructions.
            return unsafe { wide::transform_input(grid, self.x, tiles, target) };
        }
        cpu.isa().run(TransformInput {
            grid,
            x: self.x,
            tiles,
            target,
        });
    }

    fn transform_output(&self, cpu: &Cpu, work: TransformOutput<'_>) {
        #[cfg(target_arch = "x86_64")]
        if self.weights.wide
            && let Some(plain) = self.finish.plain()
        {
            // SAFETY: this CPU has the instructions, and blocks have their own tiles.
            return unsafe { wide::transform_output(&work, &plain) };
        }
        cpu.isa().run(work);
    }

    /// Multiplies one position of the input with one of the weights.
    fn multiply(&self, quads: usize, a: &[i16], b: &[i16], sums: &mut [WordSums]) {
        let group_len = quads * TILE_ROWS * 4;
        assert!(a.len() == sums.len() * group_len && b.len() == quads * WORD_COLUMNS * 4);
        let mut group = 0;
        while group < sums.len() {
            let (tile, count) = self.weights.tiles.get(sums.len() - group);
            let (a, sums) = (&a[group * group_len..], &mut sums[group..]);
            // SAFETY: this CPU has the tile's instructions, and the operands are `quads` deep, as asserted above.
            unsafe { tile(quads, a.as_ptr(), b.as_ptr(), sums.as_mut_ptr()) };
            group += count;
        }
    }
}

#[cfg(test)]
mod tests;
