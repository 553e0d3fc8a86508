//! Shapes that the gradient tests share.

use proptest::prelude::*;

use crate::conv::ConvShape;

/// Small convolutions of all kinds, empty ones included.
pub(crate) fn conv_shapes() -> impl Strategy<Value = ConvShape> {
    let pair = |range: std::ops::Range<usize>| [range.clone(), range];
    let sizes = (
        0usize..4,
        1usize..6,
        1usize..8,
        0usize..14,
        0usize..14,
        1usize..4,
    );
    (sizes, pair(1..5), pair(1..4), pair(0..3), pair(1..3)).prop_map(
        |(sizes, kernel, stride, padding, dilation)| {
            let (batch, group_in, group_out, height, width, groups) = sizes;
            ConvShape {
                batch,
                in_channels: group_in * groups,
                height,
                width,
                out_channels: group_out * groups,
                kernel,
                stride,
                padding,
                dilation,
                groups,
            }
        },
    )
}
