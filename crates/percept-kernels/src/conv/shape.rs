//! The shape of a 2D convolution, and the ways to compute it.

use std::fmt;

/// A 2D convolution: NCHW input, OIHW weights (I = input channels of a group), NCHW output. Pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
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
    /// Step between output positions.
    pub stride: [usize; 2],
    /// Zeros added on each side.
    pub padding: [usize; 2],
    /// Step between kernel taps.
    pub dilation: [usize; 2],
    /// Groups: each maps its own input channels to its own output channels.
    pub groups: usize,
}

impl ConvShape {
    /// Output height; 0 when the kernel does not fit.
    pub fn out_height(&self) -> usize {
        self.out_size(self.height, 0)
    }

    /// Output width; 0 when the kernel does not fit.
    pub fn out_width(&self) -> usize {
        self.out_size(self.width, 1)
    }

    fn out_size(&self, size: usize, axis: usize) -> usize {
        let reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
        (size + 2 * self.padding[axis])
            .checked_sub(reach)
            .map_or(0, |room| room / self.stride[axis] + 1)
    }

    /// The same convolution of one sample of this height and width.
    pub fn on_one_map(&self, [height, width]: [usize; 2]) -> ConvShape {
        ConvShape {
            batch: 1,
            height,
            width,
            ..*self
        }
    }

    /// The same convolution of so many times as many samples.
    pub fn repeated(&self, times: usize) -> ConvShape {
        ConvShape {
            batch: times * self.batch,
            ..*self
        }
    }

    /// Pixels of one input channel.
    pub fn in_pixels(&self) -> usize {
        self.height * self.width
    }

    /// Pixels of one output channel.
    pub fn out_pixels(&self) -> usize {
        self.out_height() * self.out_width()
    }

    /// Length of the input.
    pub fn in_len(&self) -> usize {
        self.batch * self.in_channels * self.in_pixels()
    }

    /// Length of the output.
    pub fn out_len(&self) -> usize {
        self.batch * self.out_channels * self.out_pixels()
    }

    /// Input channels of a group.
    pub fn group_in(&self) -> usize {
        self.in_channels / self.groups
    }

    /// Output channels of a group.
    pub fn group_out(&self) -> usize {
        self.out_channels / self.groups
    }

    /// Kernel taps.
    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Length of the weights.
    pub fn weight_len(&self) -> usize {
        self.out_channels * self.group_in() * self.taps()
    }

    /// Multiply-adds.
    pub fn macs(&self) -> u64 {
        self.out_len() as u64 * (self.group_in() * self.taps()) as u64
    }

    /// Whether each channel is convolved on its own.
    pub fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.group_in() == 1 && self.group_out() == 1
    }

    /// Sees a plain 1x1 convolution's maps as single rows, so that runs of pixels do not end at each row.
    pub(crate) fn flattened(&self) -> ConvShape {
        if self.taps() == 1 && self.stride == [1, 1] && self.padding == [0, 0] {
            ConvShape {
                height: 1,
                width: self.in_pixels(),
                ..*self
            }
        } else {
            *self
        }
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

/// How a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvAlgorithm {
    /// 1x1 kernels: a matrix product straight from NCHW.
    Pointwise,
    /// Any kernel: a matrix product whose input panels are gathered block by block.
    ImplicitGemm,
    /// Winograd F(4x4, 3x3): 4 times fewer multiplications, about 1e-4 of error.
    Winograd4,
    /// Winograd F(2x2, 3x3): 2.25 times fewer multiplications.
    Winograd2,
    /// Winograd F(4x4, 3x3) of stride two: 1.78 times fewer multiplications.
    WinogradStride2,
    /// Winograd F(4x4, 7x7) of stride two, for first layers: 4.6 times fewer multiplications.
    WinogradStem,
    /// One channel at a time.
    Depthwise,
    /// Four output channels at most: one input channel after the other is added to a band of sums.
    Narrow,
    /// Pixels are spread over vectors of output channels, read where they lie, or under all taps from one copy.
    Pixels,
}

impl fmt::Display for ConvAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConvAlgorithm::Pointwise => "pointwise",
            ConvAlgorithm::ImplicitGemm => "implicit-gemm",
            ConvAlgorithm::Winograd4 => "winograd4",
            ConvAlgorithm::Winograd2 => "winograd2",
            ConvAlgorithm::WinogradStride2 => "winograd4-stride2",
            ConvAlgorithm::WinogradStem => "winograd4-stem",
            ConvAlgorithm::Depthwise => "depthwise",
            ConvAlgorithm::Narrow => "narrow",
            ConvAlgorithm::Pixels => "pixels",
        })
    }
}

/// What counts more: the error or the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// No Winograd: for references.
    Exact,
    /// The fastest way.
    #[default]
    Fast,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stem() -> ConvShape {
        ConvShape {
            batch: 2,
            in_channels: 3,
            height: 224,
            width: 224,
            out_channels: 64,
            kernel: [7, 7],
            stride: [2, 2],
            padding: [3, 3],
            dilation: [1, 1],
            groups: 1,
        }
    }

    #[test]
    fn resnet_stem() {
        let shape = stem();
        assert_eq!((shape.out_height(), shape.out_width()), (112, 112));
        assert_eq!(shape.macs(), 2 * 118_013_952);
        assert_eq!(shape.weight_len(), 64 * 3 * 49);
    }

    #[test]
    fn a_kernel_that_does_not_fit_gives_nothing() {
        let shape = ConvShape {
            height: 3,
            padding: [0, 0],
            dilation: [2, 1],
            kernel: [3, 3],
            ..stem()
        };
        assert_eq!((shape.out_height(), shape.out_len()), (0, 0));
    }
}
