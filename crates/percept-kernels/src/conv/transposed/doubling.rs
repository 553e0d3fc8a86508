//! 2x2 kernels with stride 2: the four taps of a channel are the four rows of a register tile, whose sums interleave to
//! two rows of the output and are stored once.

use crate::aligned::SharedMut;
use crate::conv::ConvTransposeShape;
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::gemm::tile::{TILE_COLUMNS, TILE_ROWS, TILE_VECTORS, accumulate};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Whether `shape` can be computed here.
pub(super) fn supports(shape: &ConvTransposeShape) -> bool {
    shape.kernel == [2, 2]
        && shape.stride == [2, 2]
        && shape.padding == [0, 0]
        && shape.output_padding == [0, 0]
        && shape.dilation == [1, 1]
        && shape.groups == 1
}

/// Computes the convolution with weights packed as `[output channel][input channel][tap]`.
pub(super) fn conv_transpose2d(
    cpu: &Cpu,
    shape: &ConvTransposeShape,
    weights: &[f32],
    x: &[f32],
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    let y = SharedMut::new(y);
    cpu.parallel(shape.batch * shape.height, &|block, scratch| {
        let (sample, row) = (block / shape.height, block % shape.height);
        let panels = shape.width.div_ceil(TILE_COLUMNS);
        let [packed] = scratch.floats([panels * shape.in_channels * TILE_COLUMNS]);
        cpu.isa().run(Row {
            shape,
            weights,
            x,
            epilogue,
            sample,
            row,
            packed,
            y: &y,
        });
    });
}

/// One row of the input, which becomes two rows of the output.
struct Row<'a> {
    shape: &'a ConvTransposeShape,
    weights: &'a [f32],
    x: &'a [f32],
    epilogue: Epilogue<'a>,
    sample: usize,
    row: usize,
    /// `[panel][input channel][24]`
    packed: &'a mut [f32],
    y: &'a SharedMut<'a, f32>,
}

impl Kernel for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.pack(s);
        let ConvTransposeShape {
            in_channels,
            out_channels,
            height,
            width,
            ..
        } = *self.shape;
        let plane = 4 * height * width;
        for channel in 0..out_channels {
            let filters = &self.weights[channel * TILE_ROWS * in_channels..];
            let start = (self.sample * out_channels + channel) * plane + self.row * 4 * width;
            for (panel, values) in self
                .packed
                .chunks_exact(in_channels * TILE_COLUMNS)
                .enumerate()
            {
                // SAFETY: four rows of filters and a panel of 24 columns, both `in_channels` deep.
                let sums = unsafe {
                    accumulate::<S, TILE_ROWS, TILE_VECTORS>(
                        s,
                        in_channels,
                        filters[..TILE_ROWS * in_channels].as_ptr(),
                        values.as_ptr(),
                    )
                };
                let column = panel * TILE_COLUMNS;
                let count = TILE_COLUMNS.min(width - column);
                for half in 0..2 {
                    let pair = [sums[2 * half], sums[2 * half + 1]];
                    self.store(s, channel, start + (half * width + column) * 2, count, pair);
                }
            }
        }
    }
}

impl Row<'_> {
    #[inline(always)]
    fn pack<S: Simd>(&mut self, s: S) {
        let ConvTransposeShape {
            in_channels,
            height,
            width,
            ..
        } = *self.shape;
        for channel in 0..in_channels {
            let plane = self.sample * in_channels + channel;
            let row = &self.x[(plane * height + self.row) * width..][..width];
            for (panel, values) in row.chunks(TILE_COLUMNS).enumerate() {
                let to = (panel * in_channels + channel) * TILE_COLUMNS;
                let mut rest = values;
                for to in self.packed[to..to + TILE_COLUMNS].chunks_exact_mut(LANES) {
                    let (now, later) = rest.split_at(rest.len().min(LANES));
                    s.write(to, s.read(now));
                    rest = later;
                }
            }
        }
    }

    /// Interleaves two rows of sums and stores twice `count` outputs.
    #[inline(always)]
    fn store<S: Simd>(
        &self,
        s: S,
        channel: usize,
        start: usize,
        count: usize,
        [left, right]: [[S::V; TILE_VECTORS]; 2],
    ) {
        let bias = s.splat(self.epilogue.bias.map_or(0.0, |bias| bias[channel]));
        // SAFETY: each input row has its own output rows.
        let y = unsafe { self.y.slice(start..start + 2 * count) };
        for j in 0..TILE_VECTORS {
            let merged = s.merge2([left[j], right[j]]);
            for (half, sum) in merged.into_iter().enumerate() {
                let at = (2 * j + half) * LANES;
                if at >= y.len() {
                    return;
                }
                let end = y.len().min(at + LANES);
                let mut sum = s.add(sum, bias);
                if let Some(residual) = self.epilogue.residual {
                    sum = s.add(sum, s.read(&residual[start + at..start + end]));
                }
                s.write(&mut y[at..end], self.epilogue.activation.apply(s, sum));
            }
        }
    }
}
