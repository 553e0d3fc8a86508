//! The shape of a transposed 2D convolution.

use super::shape::ConvShape;

/// A transposed 2D convolution: NCHW input, weights [in_channels, out_channels / groups, kernel height, kernel width],
/// NCHW output. Pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvTransposeShape {
    /// Samples.
    pub batch: usize,
    /// Input channels, of all groups.
    pub in_channels: usize,
    /// Input height.
    pub height: usize,
    /// Input width.
    pub width: usize,
    /// Output channels, of all groups.
    pub out_channels: usize,
    /// Kernel size.
    pub kernel: [usize; 2],
    /// Output pixels between the marks of neighbouring input pixels.
    pub stride: [usize; 2],
    /// Output pixels cut off on each side.
    pub padding: [usize; 2],
    /// Output pixels added at the bottom and right, where marks may still reach.
    pub output_padding: [usize; 2],
    /// Step between kernel taps.
    pub dilation: [usize; 2],
    /// Groups: each maps its own input channels to its own output channels.
    pub groups: usize,
}

impl ConvTransposeShape {
    /// The pointwise convolution that computes the same, with the weights' two axes exchanged, when there is one.
    pub fn as_pointwise(&self) -> Option<ConvShape> {
        let plain = self.kernel == [1, 1]
            && self.stride == [1, 1]
            && self.padding == [0, 0]
            && self.output_padding == [0, 0]
            && self.groups == 1;
        plain.then_some(ConvShape {
            batch: self.batch,
            in_channels: self.in_channels,
            height: self.height,
            width: self.width,
            out_channels: self.out_channels,
            kernel: [1, 1],
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
            groups: 1,
        })
    }

    /// Output height.
    pub fn out_height(&self) -> usize {
        self.out_size(self.height, 0)
    }

    /// Output width.
    pub fn out_width(&self) -> usize {
        self.out_size(self.width, 1)
    }

    fn out_size(&self, size: usize, axis: usize) -> usize {
        let Some(steps) = size.checked_sub(1) else {
            return 0;
        };
        let reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
        (steps * self.stride[axis] + reach + self.output_padding[axis])
            .saturating_sub(2 * self.padding[axis])
    }

    /// Length of the input.
    pub fn in_len(&self) -> usize {
        self.batch * self.in_channels * self.height * self.width
    }

    /// Length of the output.
    pub fn out_len(&self) -> usize {
        self.batch * self.out_channels * self.out_height() * self.out_width()
    }

    /// Length of the weights.
    pub fn weight_len(&self) -> usize {
        self.in_channels * (self.out_channels / self.groups) * self.kernel[0] * self.kernel[1]
    }

    /// Multiply-adds, those that fall into the padding included.
    pub fn macs(&self) -> u64 {
        let taps = self.kernel[0] * self.kernel[1];
        self.in_len() as u64 * (self.out_channels / self.groups * taps) as u64
    }

    /// Panics when the shape makes no sense or a slice does not have its length.
    pub fn check(&self, weight: Option<usize>, x: usize, y: usize) {
        assert!(self.groups > 0, "a convolution has at least one group");
        assert!(
            self.in_channels.is_multiple_of(self.groups)
                && self.out_channels.is_multiple_of(self.groups),
            "{} -> {} channels do not divide into {} groups",
            self.in_channels,
            self.out_channels,
            self.groups
        );
        assert!(
            [self.kernel, self.stride, self.dilation]
                .as_flattened()
                .iter()
                .all(|&n| n > 0),
            "kernel, stride and dilation are at least 1"
        );
        if let Some(len) = weight {
            assert_eq!(len, self.weight_len(), "length of the weights");
        }
        assert_eq!(x, self.in_len(), "length of the input");
        assert_eq!(y, self.out_len(), "length of the output");
    }
}
