//! Convolutions to very few channels, such as the last layer of a head.
//!
//! A matrix product wants many output channels for each input value that it packs; here there are four at most. So the
//! sums of a band of output rows stay in the first-level cache, and one input channel after the other is added to them,
//! each input value loaded once for all channels and rows that need it.

use super::shape::ConvShape;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Output channels at most.
const MAX_CHANNELS: usize = 4;
/// Output rows of a band.
const BAND: usize = 8;
/// Vectors of a register tile along a row.
const TILE_VECTORS: usize = 3;
/// Columns of a register tile.
const TILE_COLUMNS: usize = TILE_VECTORS * LANES;

/// Whether `shape` can be computed here.
pub(super) fn supports(shape: &ConvShape) -> bool {
    shape.out_channels <= MAX_CHANNELS
        && shape.groups == 1
        && shape.stride == [1, 1]
        && shape.dilation == [1, 1]
}

/// Reorders OIHW weights to `[input channel][tap][output channel]`.
pub(super) fn pack(shape: &ConvShape, weight_oihw: &[f32]) -> Vec<f32> {
    let (outputs, row) = (shape.out_channels, shape.in_channels * shape.taps());
    let mut packed = vec![0.0; weight_oihw.len()];
    for (index, &value) in weight_oihw.iter().enumerate() {
        packed[index % row * outputs + index / row] = value;
    }
    packed
}

/// Computes the convolution with packed weights.
pub(super) fn conv2d(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &[f32],
    x: &[f32],
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    let bands = shape.out_height().div_ceil(BAND);
    let y = SharedMut::new(y);
    cpu.parallel(shape.batch * bands, &|block, scratch| {
        let (sample, band) = (block / bands, block % bands);
        let buffers = Buffers::new(shape);
        let [input, sums] = scratch.floats([buffers.input_len(), buffers.sums_len(shape)]);
        cpu.isa().run(Band {
            shape,
            weights,
            x: &x[sample * shape.in_channels * shape.in_pixels()..],
            epilogue,
            sample,
            first_row: band * BAND,
            buffers,
            input,
            sums,
            y: &y,
        });
    });
}

/// How a band's rows lie in scratch memory.
#[derive(Clone, Copy)]
struct Buffers {
    input_rows: usize,
    input_stride: usize,
    sums_stride: usize,
}

impl Buffers {
    fn new(shape: &ConvShape) -> Self {
        let sums_stride = shape.out_width().next_multiple_of(TILE_COLUMNS);
        Self {
            input_rows: BAND + shape.kernel[0] - 1,
            input_stride: sums_stride + shape.kernel[1] - 1,
            sums_stride,
        }
    }

    fn input_len(&self) -> usize {
        self.input_rows * self.input_stride
    }

    fn sums_len(&self, shape: &ConvShape) -> usize {
        shape.out_channels * BAND * self.sums_stride
    }
}

/// Some output rows of one sample, all channels.
struct Band<'a> {
    shape: &'a ConvShape,
    weights: &'a [f32],
    x: &'a [f32],
    epilogue: Epilogue<'a>,
    sample: usize,
    first_row: usize,
    buffers: Buffers,
    /// One input channel with its borders of zeros.
    input: &'a mut [f32],
    /// `[output channel][row][column]`
    sums: &'a mut [f32],
    y: &'a SharedMut<'a, f32>,
}

impl Kernel for Band<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.sums.fill(0.0);
        self.input.fill(0.0);
        let plane = self.shape.in_pixels();
        let taps = self.shape.taps() * self.shape.out_channels;
        for channel in 0..self.shape.in_channels {
            self.copy_rows(channel * plane);
            let weights = &self.weights[channel * taps..(channel + 1) * taps];
            // Rows of a tile: as many as leave registers for twelve sums.
            match self.shape.out_channels {
                1 => self.add_channel::<S, 1, 4>(s, weights),
                2 => self.add_channel::<S, 2, 2>(s, weights),
                3 => self.add_channel::<S, 3, 1>(s, weights),
                _ => self.add_channel::<S, 4, 1>(s, weights),
            }
        }
        self.finish(s);
    }
}

impl Band<'_> {
    /// Copies the rows that the band reads; rows outside the map stay zero.
    #[inline(always)]
    fn copy_rows(&mut self, plane: usize) {
        let ConvShape {
            height,
            width,
            padding: [pad_y, pad_x],
            ..
        } = *self.shape;
        // A padding wider than the kernel leaves columns that no output reads.
        let columns = width.min(self.buffers.input_stride.saturating_sub(pad_x));
        for row in 0..self.buffers.input_rows {
            let source = (self.first_row + row).wrapping_sub(pad_y);
            if source < height {
                let from = &self.x[plane + source * width..][..columns];
                let to = row * self.buffers.input_stride + pad_x;
                self.input[to..to + columns].copy_from_slice(from);
            }
        }
    }

    /// Adds one input channel to the sums.
    #[inline(always)]
    fn add_channel<S: Simd, const OUTPUTS: usize, const ROWS: usize>(
        &mut self,
        s: S,
        weights: &[f32],
    ) {
        let Buffers {
            input_stride,
            sums_stride,
            ..
        } = self.buffers;
        let [kernel_rows, kernel_columns] = self.shape.kernel;
        assert!(weights.len() == kernel_rows * kernel_columns * OUTPUTS);
        for row in (0..BAND).step_by(ROWS) {
            for column in (0..sums_stride).step_by(TILE_COLUMNS) {
                let start = row * sums_stride + column;
                // SAFETY: the sums have BAND rows of `sums_stride` for each channel, the input as many rows and columns
                // more as the kernel reaches, and a tile stays within its row, whose length is a multiple of it.
                unsafe {
                    let mut sums = [[[s.splat(0.0); TILE_VECTORS]; OUTPUTS]; ROWS];
                    for i in 0..ROWS {
                        for k in 0..OUTPUTS {
                            for j in 0..TILE_VECTORS {
                                let at = start + (k * BAND + i) * sums_stride + j * LANES;
                                sums[i][k][j] = s.load(self.sums.as_ptr().add(at));
                            }
                        }
                    }
                    for input_row in 0..ROWS + kernel_rows - 1 {
                        let line = (row + input_row) * input_stride + column;
                        for tap_x in 0..kernel_columns {
                            let from = self.input.as_ptr().add(line + tap_x);
                            let values = [
                                s.load(from),
                                s.load(from.add(LANES)),
                                s.load(from.add(2 * LANES)),
                            ];
                            for i in 0..ROWS {
                                let tap_y = input_row.wrapping_sub(i);
                                if tap_y >= kernel_rows {
                                    continue;
                                }
                                let tap = (tap_y * kernel_columns + tap_x) * OUTPUTS;
                                for k in 0..OUTPUTS {
                                    let weight = s.splat(*weights.as_ptr().add(tap + k));
                                    for j in 0..TILE_VECTORS {
                                        sums[i][k][j] =
                                            s.settle(s.mul_add(weight, values[j], sums[i][k][j]));
                                    }
                                }
                            }
                        }
                    }
                    for i in 0..ROWS {
                        for k in 0..OUTPUTS {
                            for j in 0..TILE_VECTORS {
                                let at = start + (k * BAND + i) * sums_stride + j * LANES;
                                s.store(self.sums.as_mut_ptr().add(at), sums[i][k][j]);
                            }
                        }
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn finish<S: Simd>(&mut self, s: S) {
        let (height, width) = (self.shape.out_height(), self.shape.out_width());
        for k in 0..self.shape.out_channels {
            let bias = s.splat(self.epilogue.bias.map_or(0.0, |bias| bias[k]));
            for i in 0..BAND.min(height - self.first_row) {
                let plane = (self.sample * self.shape.out_channels + k) * height;
                let start = (plane + self.first_row + i) * width;
                let sums = &self.sums[(k * BAND + i) * self.buffers.sums_stride..][..width];
                // SAFETY: each band has its own rows.
                let y = unsafe { self.y.slice(start..start + width) };
                for (part, (y, sums)) in y.chunks_mut(LANES).zip(sums.chunks(LANES)).enumerate() {
                    let mut sum = s.add(s.read(sums), bias);
                    if let Some(residual) = self.epilogue.residual {
                        let at = start + part * LANES;
                        sum = s.add(sum, s.read(&residual[at..at + y.len()]));
                    }
                    s.write(y, self.epilogue.activation.apply(s, sum));
                }
            }
        }
    }
}
