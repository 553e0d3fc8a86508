//! BaseBEVBackbone: the map at its own and at half its resolution, both brought back and stacked.

use percept_graph::{BatchNorm, Builder, Conv2d, ConvTranspose2d, ValueId};

use super::Widths;

/// What the sides of the map must be multiples of.
pub(super) const STRIDE: usize = 2;

/// The map [N, channels, H, W] to [N, 2 map_out, H, W].
pub(super) fn backbone(b: &mut Builder, widths: &Widths, bev: ValueId) -> ValueId {
    let ([fine, coarse], out, depth) = (widths.map, widths.map_out, widths.map_depth);
    b.module("backbone_2d", "BaseBEVBackbone", |b| {
        let mut levels = [bev; 2];
        b.module("blocks", "ModuleList", |b| {
            levels[0] = block(b, "0", bev, [widths.bev(), fine], 1, depth);
            levels[1] = block(b, "1", levels[0], [fine, coarse], 2, depth);
            levels[1]
        });
        b.module("deblocks", "ModuleList", |b| {
            levels[0] = deblock(b, "0", levels[0], [fine, out], 1);
            levels[1] = deblock(b, "1", levels[1], [coarse, out], 2);
            levels[1]
        });
        b.concat("concat", &levels, 1)
    })
}

/// OpenPCDet pads in a module of its own (index 0) in front of the first convolution, which is the same as padding there.
fn block(
    b: &mut Builder,
    name: &str,
    x: ValueId,
    [in_channels, channels]: [usize; 2],
    stride: usize,
    depth: usize,
) -> ValueId {
    b.module(name, "Sequential", |b| {
        let first = Conv2d::new(in_channels, channels, 3).stride(stride);
        let mut x = conv_bn_relu(b, 1, x, first.padding(1), channels);
        for index in 1..=depth {
            let conv = Conv2d::new(channels, channels, 3).padding(1);
            x = conv_bn_relu(b, 1 + 3 * index, x, conv, channels);
        }
        x
    })
}

fn conv_bn_relu(
    b: &mut Builder,
    index: usize,
    x: ValueId,
    conv: Conv2d,
    channels: usize,
) -> ValueId {
    let x = b.conv2d(&index.to_string(), x, conv.no_bias());
    let x = b.batch_norm(&(index + 1).to_string(), x, norm(channels));
    b.relu(&(index + 2).to_string(), x)
}

fn deblock(
    b: &mut Builder,
    name: &str,
    x: ValueId,
    [in_channels, channels]: [usize; 2],
    stride: usize,
) -> ValueId {
    b.module(name, "Sequential", |b| {
        let conv = Conv2d::new(in_channels, channels, stride).stride(stride);
        let x = b.leaf("0", ConvTranspose2d::new(conv.no_bias()), &[x]);
        let x = b.batch_norm("1", x, norm(channels));
        b.relu("2", x)
    })
}

fn norm(channels: usize) -> BatchNorm {
    BatchNorm {
        eps: 1e-3,
        momentum: 0.01,
        ..BatchNorm::new(channels)
    }
}
