//! The fusion block: columns of both modalities as tokens that attend to each other.

use percept_graph::{
    Activation, Attention, BatchNorm, Builder, Conv2d, Dim, Linear, Reduce, ReduceKind, ValueId,
};

use super::{CAMERAS, LEVELS};

/// Heads of the attention.
const HEADS: usize = 4;

/// Vertical convolution: a map [_, C, H, W] to rows [_, O, 1, W], one feature vector per column.
///
/// The 1x1 convolutions in front look at single pixels, so that cameras need not be put side by side before the maximum has
/// made rows of them: `rows` does that, and by then there is little to move.
#[derive(Clone, Copy, Debug)]
pub(super) struct VertConv {
    pub(super) channels: usize,
    pub(super) mid: usize,
    pub(super) out: usize,
}

impl VertConv {
    pub(super) fn build(
        &self,
        b: &mut Builder,
        name: &str,
        x: ValueId,
        rows: impl FnOnce(&mut Builder, ValueId) -> ValueId,
    ) -> ValueId {
        let &Self { channels, mid, out } = self;
        b.module(name, "VertConv", |b| {
            let y = b.module("input_conv", "Sequential", |b| {
                let y = b.conv2d("0", x, Conv2d::new(channels, channels, 1));
                let y = b.leaf("1", Activation::Sigmoid, &[y]);
                b.conv2d("2", y, Conv2d::new(channels, channels, 1))
            });
            let over_height = Reduce {
                kind: ReduceKind::Max,
                axes: vec![2],
            };
            let y = b.call("max", over_height, &[y]);
            let y = rows(b, y);
            let x = b.module("reduce_conv", "Sequential", |b| {
                let conv = Conv2d::rows(channels, mid, 1).no_bias();
                conv_bn_relu(b, ["0", "1", "2"], y, conv)
            });
            let y = b.module("conv", "Sequential", |b| {
                let conv = Conv2d::rows(mid, mid, 3).no_bias();
                let y = conv_bn_relu(b, ["0", "1", "2"], x, conv.clone());
                conv_bn_relu(b, ["3", "4", "5"], y, conv)
            });
            let x = b.add("add", y, x);
            b.module("out_conv", "Sequential", |b| {
                conv_bn_relu(b, ["0", "1", "2"], x, Conv2d::rows(mid, out, 1))
            })
        })
    }
}

fn conv_bn_relu(b: &mut Builder, [conv, norm, relu]: [&str; 3], x: ValueId, c: Conv2d) -> ValueId {
    let rows = BatchNorm::rows(c.out_channels);
    let x = b.conv2d(conv, x, c);
    let x = b.batch_norm(norm, x, rows);
    b.relu(relu, x)
}

/// Rows of the cameras [6 N, C, 1, W] side by side: [N, C, 1, 6 W].
pub(super) fn panorama(b: &mut Builder, rows: ValueId) -> ValueId {
    let [samples, channels, _, width] = sizes(b, rows);
    let n = samples.floor_div(CAMERAS as i64);
    let apart = [n.clone(), CAMERAS.into(), channels.clone(), width.clone()];
    let x = b.reshape("apart", rows, apart);
    let x = b.permute("beside", x, &[0, 2, 1, 3]);
    b.reshape("panorama", x, [n, channels, 1.into(), width * CAMERAS])
}

/// The other way round.
fn cameras(b: &mut Builder, panorama: ValueId, width: &Dim) -> ValueId {
    let [n, channels, ..] = sizes(b, panorama);
    let beside = [n.clone(), channels.clone(), CAMERAS.into(), width.clone()];
    let x = b.reshape("beside", panorama, beside);
    let x = b.permute("apart", x, &[0, 2, 1, 3]);
    b.reshape("i", x, [n * CAMERAS, channels, 1.into(), width.clone()])
}

fn sizes(b: &Builder, x: ValueId) -> [Dim; 4] {
    let shape = b.shape(x);
    std::array::from_fn(|axis| shape.get(axis).cloned().unwrap_or(Dim::from(1)))
}

/// A fusion block on maps of this many channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fusion {
    pub(super) channels: usize,
}

impl Fusion {
    /// The block `fusionK`: what to add to the camera maps and to the LiDAR map, the same for every row of a column.
    pub(super) fn build(
        &self,
        b: &mut Builder,
        number: usize,
        x_i: ValueId,
        x_l: ValueId,
    ) -> (ValueId, ValueId) {
        let channels = self.channels;
        let mid = b.axis(&format!("fusion{number}.mid"), LEVELS);
        let heads = b.axis(&format!("fusion{number}.heads"), HEADS).of(HEADS);
        let columns = VertConv {
            channels,
            mid: mid.of(channels / 2),
            out: channels,
        };
        let [_, _, _, width] = sizes(b, x_i);
        let mut lidar = None;
        let camera = b.module(&format!("fusion{number}"), "fusion_block", |b| {
            let rows_i = columns.build(b, "v_conv_i", x_i, panorama);
            let rows_l = columns.build(b, "v_conv_l", x_l, |_, y| y);
            let [n, c, _, width_i] = sizes(b, rows_i);
            let [_, _, _, width_l] = sizes(b, rows_l);
            let rows = b.concat("both", &[rows_i, rows_l], 3);
            let tokens = &width_i + &width_l;
            let rows = b.reshape("rows", rows, [n.clone(), c.clone(), tokens]);
            let tokens = b.permute("tokens", rows, &[0, 2, 1]);
            let seen = attention(b, tokens, channels, heads);
            let tokens = b.add("add", tokens, seen);
            let rows = b.permute("columns", tokens, &[0, 2, 1]);
            let rows_l = b.slice("split_l", rows, 2, width_i.clone(), width_l.clone());
            lidar = Some(b.reshape("l", rows_l, [n, c, 1.into(), width_l]));
            let rows_i = b.slice("split_i", rows, 2, 0, width_i);
            cameras(b, rows_i, &width)
        });
        (camera, lidar.unwrap_or(x_l))
    }
}

/// w_concat(softmax(q kᵀ / sqrt(C / 4)) v), with the first heads only where they are elastic.
fn attention(b: &mut Builder, tokens: ValueId, channels: usize, heads: usize) -> ValueId {
    let width = heads * channels / HEADS;
    b.module("atten", "MultiHeadAttention", |b| {
        let qkv =
            ["w_q", "w_k", "w_v"].map(|name| b.leaf(name, Linear::new(channels, width), &[tokens]));
        let qkv = b.concat("qkv", &qkv, 2);
        let seen = b.call("attention", Attention { heads, width }, &[qkv]);
        b.linear("w_concat", seen, width, channels)
    })
}
