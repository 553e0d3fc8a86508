//! A convolution whose output a depthwise one reads: a few channels at a time, so that the map between them, the largest of a network of
//! inverted residuals, never leaves the first-level cache.
//!
//! A unit of work is a band of output rows of 32 channels. Rows of the map between are made when they are needed, channels side by
//! side, and live in a ring of as many rows as the depthwise kernel has.

mod unit;
mod weights;

#[cfg(test)]
mod tests;

use unit::Unit;
pub use weights::PackedDepthwise;

use super::shape::ConvShape;
use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::gemm::blocking::Parts;
use crate::gemm::pixels::{PackedChannels, UNIT_CHANNELS};
use crate::simd::channels::Compute;

/// Most input channels of a convolution with several taps: a unit copies the rows that it reads.
const STEM_CHANNELS: usize = 4;
/// Units to cut the work into at least, by bands of rows if there are not enough channels.
const UNITS: usize = 8;

/// Both convolutions: the map that the first one gives is what the second one reads.
#[derive(Clone, Debug)]
pub struct ConvIntoDepthwise {
    first: ConvShape,
    second: ConvShape,
    /// Where the numbers of a pixel lie that the first one reads, from its first one on.
    offsets: Vec<usize>,
}

impl ConvIntoDepthwise {
    /// Both, if there is a kernel for them: a pointwise convolution or a stem, and a depthwise one of 3x3 or 5x5 taps.
    pub fn new(first: ConvShape, second: ConvShape) -> Option<ConvIntoDepthwise> {
        let square = |pair: [usize; 2]| pair[0] == pair[1];
        let pointwise = first.kernel == [1, 1] && first.stride == [1, 1] && first.padding == [0, 0];
        let stem = first.in_channels <= STEM_CHANNELS
            && square(first.stride)
            && matches!(first.stride[0], 1 | 2)
            && first.dilation == [1, 1];
        let depthwise = second.is_depthwise()
            && second.groups == second.out_channels
            && square(second.kernel)
            && matches!(second.kernel[0], 3 | 5)
            && square(second.stride)
            && matches!(second.stride[0], 1 | 2)
            && second.dilation == [1, 1];
        let meet = [
            first.batch,
            first.out_channels,
            first.out_height(),
            first.out_width(),
        ] == [
            second.batch,
            second.in_channels,
            second.height,
            second.width,
        ];
        let fits = first.groups == 1 && first.in_channels > 0 && (pointwise || stem) && depthwise;
        (fits && meet).then(|| ConvIntoDepthwise {
            first,
            second,
            offsets: unit::offsets(&first),
        })
    }

    /// Packs the first one's OIHW weights.
    pub fn pack_first(&self, weight: &[f32]) -> PackedChannels {
        let depth = self.first.in_channels * self.first.taps();
        PackedChannels::pack(self.first.out_channels, depth, weight)
    }

    /// The depthwise convolution.
    pub fn depthwise(&self) -> &ConvShape {
        &self.second
    }

    /// Output rows of each band.
    fn bands(&self) -> Parts {
        let units = self.second.batch * self.second.out_channels.div_ceil(UNIT_CHANNELS);
        let rows = self.second.out_height();
        // A power of two, so that two threads have as many each.
        let wanted = UNITS.div_ceil(units.max(1)).next_power_of_two();
        let bands = wanted.min(rows.div_ceil(8)).max(1);
        Parts::exactly(bands, rows, 1)
    }
}

/// Bias and activation of a convolution.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Finish<'a> {
    pub bias: Option<&'a [f32]>,
    pub activation: Activation,
}

/// `y = activation(depthwise(activation(conv(x) + bias)) + bias)`, NCHW in and out.
///
/// # Panics
/// When a length does not fit.
pub fn conv2d_into_depthwise(
    cpu: &Cpu,
    shapes: &ConvIntoDepthwise,
    (expansion, depthwise): (&PackedChannels, &PackedDepthwise),
    x: &[f32],
    finish: [Finish<'_>; 2],
    y: &mut [f32],
) {
    let ConvIntoDepthwise { first, second, .. } = shapes;
    first.check(None, x.len(), first.out_len());
    second.check(None, second.in_len(), y.len());
    expansion.check(first.out_channels, first.in_channels * first.taps());
    depthwise.check(second);
    for bias in finish.iter().filter_map(|finish| finish.bias) {
        assert_eq!(bias.len(), second.out_channels, "length of the bias");
    }
    if y.is_empty() {
        return;
    }
    let bands = shapes.bands();
    let blocks = second.out_channels.div_ceil(UNIT_CHANNELS);
    let y = SharedMut::new(y);
    // Bands before blocks: threads that have the upper and the lower half of the rows have so in the next layer.
    cpu.parallel(second.batch * bands.count() * blocks, &|index, scratch| {
        let (place, block) = (index / blocks, index % blocks);
        let (sample, band) = (place / bands.count(), bands.range(place % bands.count()));
        let work = Unit {
            shapes,
            weights: (expansion, depthwise),
            x: &x[sample * first.in_channels * first.in_pixels()..],
            finish,
            y: &y,
            sample,
            block,
            band,
        };
        cpu.isa().run_widened(Compute { work, scratch });
    });
}

/// What the depthwise convolution reads: the same rows, behind one that changes nothing.
///
/// # Panics
/// When a length does not fit.
pub fn conv2d_before_depthwise(
    cpu: &Cpu,
    shapes: &ConvIntoDepthwise,
    expansion: &PackedChannels,
    x: &[f32],
    finish: Finish<'_>,
) -> Vec<f32> {
    let second = ConvShape {
        kernel: [3, 3],
        stride: [1, 1],
        padding: [1, 1],
        ..shapes.second
    };
    let mut weight = vec![0.0; second.weight_len()];
    weight.iter_mut().skip(4).step_by(9).for_each(|w| *w = 1.0);
    let same = PackedDepthwise::pack(&second, &weight);
    let shapes = ConvIntoDepthwise {
        second,
        ..shapes.clone()
    };
    let mut map = vec![0.0; second.out_len()];
    let finish = [finish, Finish::default()];
    conv2d_into_depthwise(cpu, &shapes, (expansion, &same), x, finish, &mut map);
    map
}
