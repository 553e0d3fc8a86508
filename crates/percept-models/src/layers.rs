//! Single layers as networks of one op, to measure and verify a kernel through the same door as a network.

use percept_graph::{
    Activation, Attention, AvgPool2d, BatchNorm, Builder, Conv2d, ConvTranspose2d, Dim, Graph,
    GraphError, Knn, LayerNorm, Linear, MaxPool2d, Op, Softmax,
};

use crate::answer::FeatureHead;
use crate::randlanet::CloudIntake;
use crate::zoo::{Entry, Parts};
use crate::{ChosenSettings, ModelError, Setting};

/// A network of one op on maps `x` [N, channels, H, W], with output `y`.
pub fn on_map(op: impl Into<Op>, channels: usize) -> Result<Graph, GraphError> {
    let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
    one_op(op.into(), [n, channels.into(), h, w])
}

/// A network of one op on tokens `x` [N, T, features], with output `y`.
pub fn on_tokens(op: impl Into<Op>, features: usize) -> Result<Graph, GraphError> {
    let [n, t] = ["N", "T"].map(Dim::symbol);
    one_op(op.into(), [n, t, features.into()])
}

/// A network of one op on clouds: `points` [P, 3] and `counts` [N] of points, with output `y`.
pub fn on_points(op: impl Into<Op>) -> Result<Graph, GraphError> {
    let mut b = Builder::new("Layer");
    let points = b.input("points", [Dim::symbol("P"), 3.into()]);
    let counts = b.integer_input("counts", [Dim::symbol("N")]);
    let y = b.leaf("layer", op.into(), &[points, counts]);
    b.output("y", y);
    b.finish()
}

/// Convolutions behind one another, with a ReLU between each and the next, on maps `x` [N, in, H, W], with output `y`.
fn conv2d_chain(first: &Conv2d, depth: usize) -> Result<Graph, GraphError> {
    let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
    let mut b = Builder::new("Layer");
    let x = b.input("x", [n, first.in_channels.into(), h, w]);
    let mut y = b.conv2d("layer", x, first.clone());
    for number in 2..=depth {
        let next = Conv2d {
            in_channels: first.out_channels,
            ..first.clone()
        };
        y = b.relu(&format!("relu{}", number - 1), y);
        y = b.conv2d(&format!("layer{number}"), y, next);
    }
    b.output("y", y);
    b.finish()
}

fn one_op(op: Op, input: impl IntoIterator<Item = Dim>) -> Result<Graph, GraphError> {
    let mut b = Builder::new("Layer");
    let x = b.input("x", input);
    let y = b.leaf("layer", op, &[x]);
    b.output("y", y);
    b.finish()
}

const BIAS: Setting = Setting::flag("bias", true, "adds a bias");
const TOKENS: Setting = Setting::count_within("tokens", 1370, [1, 1 << 20], "tokens, T");
const FEATURES: Setting = Setting::count("features", 768, "width of a token");
const CHANNELS: Setting = Setting::count("channels", 64, "channels");

const fn window(name: &'static str, default: usize, help: &'static str) -> Setting {
    Setting::count_within(name, default, [1, 255], help)
}

const fn padding(default: usize) -> Setting {
    let help = "rows and columns added on each side";
    Setting::count_within("padding", default, [0, 255], help)
}

const fn sides(default: usize) -> [Setting; 2] {
    [
        Setting::count("height", default, "height of the map"),
        Setting::count("width", default, "width of the map"),
    ]
}

static CONV: [Setting; 11] = [
    Setting::count("in_channels", 64, "channels that come in"),
    Setting::count("out_channels", 64, "channels that go out"),
    window("kernel", 3, "side of the kernel"),
    window("stride", 1, "step of the kernel"),
    padding(0),
    window("dilation", 1, "distance between the kernel's taps"),
    Setting::count("groups", 1, "groups of channels"),
    Setting::count_within(
        "depth",
        1,
        [1, 64],
        "convolutions behind one another, with a ReLU between each and the next",
    ),
    BIAS,
    sides(56)[0],
    sides(56)[1],
];
static CONV_TRANSPOSE: [Setting; 8] = [
    Setting::count("in_channels", 64, "channels that come in"),
    Setting::count("out_channels", 64, "channels that go out"),
    window("kernel", 2, "side of the kernel"),
    window("stride", 2, "step of the kernel"),
    padding(0),
    BIAS,
    sides(56)[0],
    sides(56)[1],
];
static POOL: [Setting; 6] = [
    CHANNELS,
    window("kernel", 3, "side of the window"),
    window("stride", 2, "step of the window"),
    padding(1),
    sides(112)[0],
    sides(112)[1],
];
static MAP: [Setting; 3] = [CHANNELS, sides(56)[0], sides(56)[1]];
static LINEAR: [Setting; 4] = [
    Setting::count("in_features", 768, "width of a token that comes in"),
    Setting::count("out_features", 768, "width of a token that goes out"),
    BIAS,
    TOKENS,
];
static ATTENTION: [Setting; 3] = [
    Setting::count("embed", 768, "width of a token"),
    Setting::count("heads", 12, "heads, which divide embed"),
    TOKENS,
];
static NEIGHBOURS: [Setting; 1] = [Setting::count_within(
    "neighbours",
    16,
    [1, 64],
    "neighbours of a point, itself among them",
)];
static ROWS: [Setting; 2] = [FEATURES, TOKENS];

/// Every layer that can be asked for by name.
pub(crate) static ENTRIES: &[Entry] = &[
    Entry::new("conv2d", "a convolution", &CONV, |_, s| {
        let graph = conv2d_chain(&conv2d(s), s.count("depth"))?;
        Ok(on_a_map(graph, s.count("in_channels"), s))
    }),
    Entry::new(
        "conv_transpose2d",
        "a transposed convolution",
        &CONV_TRANSPOSE,
        |_, s| map(conv_transpose2d(s), s.count("in_channels"), s),
    ),
    Entry::new("max_pool2d", "maximum of windows", &POOL, |_, s| {
        let pool = MaxPool2d {
            kernel: s.count("kernel"),
            stride: s.count("stride"),
            padding: s.count("padding"),
        };
        map(pool, s.count("channels"), s)
    }),
    Entry::new("avg_pool2d", "mean of windows", &POOL, |_, s| {
        let pool = AvgPool2d {
            kernel: s.count("kernel"),
            stride: s.count("stride"),
            padding: s.count("padding"),
            count_include_pad: true,
        };
        map(pool, s.count("channels"), s)
    }),
    Entry::new("batch_norm2d", "batch normalisation", &MAP, |_, s| {
        map(BatchNorm::new(s.count("channels")), s.count("channels"), s)
    }),
    Entry::new("linear", "a linear layer on tokens", &LINEAR, |_, s| {
        let linear = Linear {
            bias: s.flag("bias"),
            ..Linear::new(s.count("in_features"), s.count("out_features"))
        };
        tokens(linear, s.count("in_features"), s)
    }),
    Entry::new(
        "attention",
        "self-attention on packed queries, keys and values",
        &ATTENTION,
        |_, s| {
            let attention = Attention {
                heads: s.count("heads"),
                width: s.count("embed"),
            };
            tokens(attention, 3 * s.count("embed"), s)
        },
    ),
    Entry::new("layer_norm", "layer normalisation", &ROWS, |_, s| {
        let features = s.count("features");
        tokens(
            LayerNorm {
                features,
                eps: 1e-6,
            },
            features,
            s,
        )
    }),
    Entry::new(
        "knn",
        "the nearest points to each point of a cloud",
        &NEIGHBOURS,
        |_, s| {
            let graph = on_points(Knn {
                k: s.count("neighbours"),
            })?;
            Ok(Parts::new(graph, CloudIntake, FeatureHead))
        },
    ),
    Entry::new("softmax", "softmax of each token", &ROWS, |_, s| {
        tokens(Softmax, s.count("features"), s)
    }),
    Entry::new("relu", "max(x, 0)", &ROWS, |_, s| {
        tokens(Activation::Relu, s.count("features"), s)
    }),
    Entry::new("gelu", "GELU with erf", &ROWS, |_, s| {
        tokens(Activation::Gelu, s.count("features"), s)
    }),
    Entry::new("silu", "x · sigmoid(x)", &ROWS, |_, s| {
        tokens(Activation::Silu, s.count("features"), s)
    }),
    Entry::new("sigmoid", "1 / (1 + exp(-x))", &ROWS, |_, s| {
        tokens(Activation::Sigmoid, s.count("features"), s)
    }),
    Entry::new("tanh", "hyperbolic tangent", &ROWS, |_, s| {
        tokens(Activation::Tanh, s.count("features"), s)
    }),
];

fn map(op: impl Into<Op>, channels: usize, s: &ChosenSettings) -> Result<Parts, ModelError> {
    Ok(on_a_map(on_map(op, channels)?, channels, s))
}

fn on_a_map(graph: Graph, channels: usize, s: &ChosenSettings) -> Parts {
    let shape = [1, channels, s.count("height"), s.count("width")];
    Parts::of_tensors(graph, [("x", shape)])
}

fn tokens(op: impl Into<Op>, features: usize, s: &ChosenSettings) -> Result<Parts, ModelError> {
    let shape = [1, s.count("tokens"), features];
    Ok(Parts::of_tensors(on_tokens(op, features)?, [("x", shape)]))
}

fn conv2d(s: &ChosenSettings) -> Conv2d {
    Conv2d {
        dilation: [s.count("dilation"); 2],
        groups: s.count("groups"),
        ..conv_window(s)
    }
}

fn conv_transpose2d(s: &ChosenSettings) -> ConvTranspose2d {
    ConvTranspose2d::new(conv_window(s))
}

fn conv_window(s: &ChosenSettings) -> Conv2d {
    let conv = Conv2d::new(
        s.count("in_channels"),
        s.count("out_channels"),
        s.count("kernel"),
    );
    Conv2d {
        bias: s.flag("bias"),
        ..conv.stride(s.count("stride")).padding(s.count("padding"))
    }
}
