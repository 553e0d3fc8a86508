//! Any transposed convolution: a matrix product gives each input pixel's mark, and the marks are added up in the output.

use std::ops::Range;

use crate::aligned::{AlignedBuf, SharedMut};
use crate::conv::ConvTransposeShape;
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::gemm::tile::{TILE_COLUMNS, TILE_ROWS, accumulate, store};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Output channels of a block; a multiple of the register tile's rows.
const BLOCK_CHANNELS: usize = 32;

/// Packs weights [in_channels, out_channels / groups, kernel height, kernel width] as
/// `[group][(output channel, tap) / 4][input channel][4]`.
pub(super) fn pack(shape: &ConvTransposeShape, weight: &[f32]) -> AlignedBuf {
    let (depth, rows) = (group_in(shape), group_rows(shape));
    let group_len = rows.next_multiple_of(TILE_ROWS) * depth;
    let mut packed = AlignedBuf::zeroed_floats(shape.groups * group_len);
    for (index, &value) in weight.iter().enumerate() {
        let (input, row) = (index / rows, index % rows);
        let (group, input) = (input / depth, input % depth);
        let place = (row / TILE_ROWS * depth + input) * TILE_ROWS + row % TILE_ROWS;
        packed.floats_mut()[group * group_len + place] = value;
    }
    packed
}

fn group_in(shape: &ConvTransposeShape) -> usize {
    shape.in_channels / shape.groups
}

/// Output channels times taps of a group: the rows of its matrix product.
fn group_rows(shape: &ConvTransposeShape) -> usize {
    shape.out_channels / shape.groups * shape.kernel[0] * shape.kernel[1]
}

/// Computes the convolution with packed weights.
pub(super) fn conv_transpose2d(
    cpu: &Cpu,
    shape: &ConvTransposeShape,
    weights: &[f32],
    x: &[f32],
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    let group_out = shape.out_channels / shape.groups;
    let parts = group_out.div_ceil(BLOCK_CHANNELS);
    let pixels = shape.out_height() * shape.out_width();
    let y = SharedMut::new(y);
    cpu.parallel(shape.batch * shape.groups * parts, &|block, scratch| {
        let (sample, group, part) = (
            block / parts / shape.groups,
            block / parts % shape.groups,
            block % parts,
        );
        let channels = part * BLOCK_CHANNELS..((part + 1) * BLOCK_CHANNELS).min(group_out);
        let first = sample * shape.out_channels + group * group_out;
        let outputs = (first + channels.start) * pixels..(first + channels.end) * pixels;
        let [panel] = scratch.floats([group_in(shape) * TILE_COLUMNS]);
        cpu.isa().run(Marks {
            shape,
            weights,
            x,
            epilogue,
            sample,
            group,
            channels,
            panel,
            first_output: outputs.start,
            // SAFETY: each block has its own output channels.
            y: unsafe { y.slice(outputs) },
        });
    });
}

/// The marks of one sample in some output channels of one group.
struct Marks<'a> {
    shape: &'a ConvTransposeShape,
    weights: &'a [f32],
    x: &'a [f32],
    epilogue: Epilogue<'a>,
    sample: usize,
    group: usize,
    channels: Range<usize>,
    panel: &'a mut [f32],
    first_output: usize,
    y: &'a mut [f32],
}

impl Kernel for Marks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.y.fill(0.0);
        let pixels = self.shape.height * self.shape.width;
        for first in (0..pixels).step_by(TILE_COLUMNS) {
            let count = TILE_COLUMNS.min(pixels - first);
            self.gather(s, first, count);
            match count.div_ceil(LANES) {
                1 => self.multiply::<S, 1>(s, first, count),
                2 => self.multiply::<S, 2>(s, first, count),
                _ => self.multiply::<S, 3>(s, first, count),
            }
        }
        self.finish(s);
    }
}

impl Marks<'_> {
    /// Packs input pixels as [input channel][whole vectors of pixels].
    #[inline(always)]
    fn gather<S: Simd>(&mut self, s: S, first: usize, count: usize) {
        let pixels = self.shape.height * self.shape.width;
        let depth = group_in(self.shape);
        let plane = self.sample * self.shape.in_channels + self.group * depth;
        let row_len = count.next_multiple_of(LANES);
        for (channel, row) in self.panel.chunks_exact_mut(row_len).take(depth).enumerate() {
            let start = (plane + channel) * pixels + first;
            let from = &self.x[start..start + count];
            for (to, from) in row.chunks_exact_mut(LANES).zip(from.chunks(LANES)) {
                s.write(to, s.read(from));
            }
        }
    }

    #[inline(always)]
    fn multiply<S: Simd, const VECTORS: usize>(&mut self, s: S, first: usize, count: usize) {
        let depth = group_in(self.shape);
        let taps = self.shape.kernel[0] * self.shape.kernel[1];
        let group_len = group_rows(self.shape).next_multiple_of(TILE_ROWS) * depth;
        let weights = &self.weights[self.group * group_len..(self.group + 1) * group_len];
        let rows = self.channels.start * taps..self.channels.end * taps;
        assert!(self.panel.len() >= depth * VECTORS * LANES);
        for row in rows.clone().step_by(TILE_ROWS) {
            let filters = &weights[row * depth..(row + TILE_ROWS) * depth];
            let mut products = [0.0; TILE_ROWS * TILE_COLUMNS];
            // SAFETY: `filters` holds four rows, the panel `depth` rows of VECTORS vectors, `products` four rows of 24.
            unsafe {
                let sums = accumulate::<S, TILE_ROWS, VECTORS>(
                    s,
                    depth,
                    filters.as_ptr(),
                    self.panel.as_ptr(),
                );
                store(s, sums, products.as_mut_ptr(), TILE_COLUMNS, false);
            }
            for (offset, products) in products.chunks_exact(TILE_COLUMNS).enumerate() {
                if row + offset < rows.end {
                    let index = row + offset - rows.start;
                    self.add(index / taps, index % taps, first, &products[..count]);
                }
            }
        }
    }

    /// Adds one tap of the marks of consecutive input pixels to an output plane.
    #[inline(always)]
    fn add(&mut self, channel: usize, tap: usize, first: usize, products: &[f32]) {
        let shape = self.shape;
        let (height, width) = (shape.out_height(), shape.out_width());
        let plane = &mut self.y[channel * height * width..(channel + 1) * height * width];
        let tap = [tap / shape.kernel[1], tap % shape.kernel[1]];
        let target = |axis: usize, at: usize| {
            (at * shape.stride[axis] + tap[axis] * shape.dilation[axis])
                .wrapping_sub(shape.padding[axis])
        };
        let mut done = 0;
        while done < products.len() {
            let (row, column) = ((first + done) / shape.width, (first + done) % shape.width);
            let count = (shape.width - column).min(products.len() - done);
            let out_row = target(0, row);
            if out_row < height {
                let line = &mut plane[out_row * width..(out_row + 1) * width];
                let mut out_column = target(1, column);
                for &product in &products[done..done + count] {
                    if let Some(output) = line.get_mut(out_column) {
                        *output += product;
                    }
                    out_column = out_column.wrapping_add(shape.stride[1]);
                }
            }
            done += count;
        }
    }

    #[inline(always)]
    fn finish<S: Simd>(&mut self, s: S) {
        let pixels = self.shape.out_height() * self.shape.out_width();
        let group_out = self.shape.out_channels / self.shape.groups;
        for (index, plane) in self.y.chunks_exact_mut(pixels).enumerate() {
            let channel = self.group * group_out + self.channels.start + index;
            let bias = s.splat(self.epilogue.bias.map_or(0.0, |bias| bias[channel]));
            let start = self.first_output + index * pixels;
            for (part, values) in plane.chunks_mut(LANES).enumerate() {
                let mut sum = s.add(s.read(values), bias);
                if let Some(residual) = self.epilogue.residual {
                    let at = start + part * LANES;
                    sum = s.add(sum, s.read(&residual[at..at + values.len()]));
                }
                s.write(values, self.epilogue.activation.apply(s, sum));
            }
        }
    }
}
