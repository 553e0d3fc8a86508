//! Depthwise convolutions of maps in quads: each channel on its own.

use super::finish::{ByteEpilogue, ByteOutput, Finish, FinishTile, PixelRun};
use super::map::check_input;
use super::tile::{GroupSums, SUM_ROW, TILE_PIXELS, TILE_ROWS};
use super::weights::ByteWeights;
use crate::conv::ConvShape;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// The weights of a depthwise convolution as bytes: `[channels / 4][tap][two quads, the same]`, widened.
#[derive(Debug)]
pub struct ByteDepthwise {
    taps: usize,
    weights: Vec<[i32; LANES]>,
    scales: Vec<f32>,
}

impl ByteDepthwise {
    /// Packs weights `[channels][taps]`.
    pub fn pack(shape: &ConvShape, weights: &ByteWeights) -> ByteDepthwise {
        assert!(shape.is_depthwise(), "one channel a group");
        let (channels, taps) = (shape.out_channels, shape.taps());
        assert_eq!(weights.scales.len(), channels, "rows of weights");
        let mut packed = vec![[0; LANES]; channels.div_ceil(4) * taps];
        for (channel, row) in weights.values.chunks_exact(taps).enumerate() {
            for (tap, &weight) in row.iter().enumerate() {
                let both = &mut packed[channel / 4 * taps + tap];
                both[channel % 4] = i32::from(weight);
                both[4 + channel % 4] = i32::from(weight);
            }
        }
        ByteDepthwise {
            taps,
            weights: packed,
            scales: weights.scales.clone(),
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.weights[..]) + size_of_val(&self.scales[..])
    }
}

/// Convolves each channel of a map in quads with its own filter.
pub fn byte_depthwise_conv2d(
    cpu: &Cpu,
    shape: &ConvShape,
    weights: &ByteDepthwise,
    x: &[i8],
    epilogue: ByteEpilogue<'_>,
    output: ByteOutput<'_>,
) {
    let channels = shape.out_channels;
    assert!(
        shape.is_depthwise() && (weights.taps, weights.scales.len()) == (shape.taps(), channels),
        "the weights were packed for other channels"
    );
    check_input(shape, x);
    epilogue.check_maps(&output, shape);
    let finish = Finish::new(&epilogue, &weights.scales, TILE_ROWS, output);
    let (quads, rows) = (channels.div_ceil(4), shape.out_height());
    cpu.parallel(shape.batch * quads, &|map, _| {
        let x = &x[4 * map * shape.in_pixels()..][..4 * shape.in_pixels()];
        let weights = &weights.weights[map % quads * weights.taps..][..weights.taps];
        for row in 0..rows {
            cpu.isa().run(Row {
                shape,
                x: x.as_chunks().0,
                weights,
                finish: &finish,
                map,
                row,
            });
        }
    });
}

/// One row of the output.
struct Row<'a> {
    shape: &'a ConvShape,
    x: &'a [[i8; 4]],
    weights: &'a [[i32; LANES]],
    finish: &'a Finish<'a>,
    map: usize,
    row: usize,
}

impl Kernel for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let shape = self.shape;
        let (width, quads) = (shape.out_width(), shape.out_channels.div_ceil(4));
        for first in (0..width).step_by(TILE_PIXELS) {
            let len = (width - first).min(TILE_PIXELS);
            let sums = self.sums(first, len);
            let mut tile = GroupSums::NONE;
            for (pixel, sums) in sums.as_chunks::<4>().0.iter().enumerate() {
                for lane in 0..4 {
                    tile.0[lane * SUM_ROW + pixel] = sums[lane];
                }
            }
            let run = PixelRun::within(self.map / quads, self.row * width + first, len);
            s.call(FinishTile {
                finish: self.finish,
                sums: &[tile],
                added: &[],
                channel: self.map % quads * 4,
                channels: shape.out_channels,
                out_pixels: shape.out_pixels(),
                runs: &[run],
            });
        }
    }
}

impl Row<'_> {
    /// The sums of some pixels, four channels side by side.
    #[inline(always)]
    fn sums(&self, first: usize, len: usize) -> [i32; 4 * TILE_PIXELS] {
        let shape = self.shape;
        let mut sums = [0; 4 * TILE_PIXELS];
        for (tap, weight) in self.weights.iter().enumerate() {
            let (tap_row, tap_column) = (tap / shape.kernel[1], tap % shape.kernel[1]);
            let row = (self.row * shape.stride[0] + tap_row * shape.dilation[0])
                .wrapping_sub(shape.padding[0]);
            if row >= shape.height {
                continue;
            }
            let x = &self.x[row * shape.width..][..shape.width];
            let stride = shape.stride[1];
            let column = first * stride + tap_column * shape.dilation[1];
            let start = column.wrapping_sub(shape.padding[1]);
            let whole = start < shape.width && shape.width - start >= len;
            if stride == 1 && whole {
                let x = x[start..start + len].as_flattened();
                let (pairs, rest) = x.as_chunks::<LANES>();
                for (sums, x) in sums.as_chunks_mut::<LANES>().0.iter_mut().zip(pairs) {
                    for lane in 0..LANES {
                        sums[lane] += i32::from(x[lane]) * weight[lane];
                    }
                }
                for (lane, x) in rest.iter().enumerate() {
                    sums[pairs.len() * LANES + lane] += i32::from(*x) * weight[lane];
                }
                continue;
            }
            for (pixel, sums) in sums.as_chunks_mut::<4>().0[..len].iter_mut().enumerate() {
                let column = (column + pixel * stride).wrapping_sub(shape.padding[1]);
                if let Some(x) = x.get(column) {
                    for lane in 0..4 {
                        sums[lane] += i32::from(x[lane]) * weight[lane];
                    }
                }
            }
        }
        sums
    }
}
