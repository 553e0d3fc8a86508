//! EfficientNet-B0: "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (Tan and Le, 2019).
//!
//! Stages of inverted residual blocks: expand the channels (1x1), filter each channel (depthwise), weigh the
//! channels (squeeze and excitation), project back (1x1), and add the input where the shape allows.
//!
//! Two public layouts name the same tensors differently. Both declare their parameters in the same order, so
//! the names of one map to those of the other by position.

use percept_graph::{
    Activation, AdaptiveAvgPool2d, BatchNorm, Builder, Conv2d, Dropout, Graph, GraphError, ValueId,
};

use crate::image_input;

/// Whose names the state dict has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `features.0.0.weight`
    Torchvision,
    /// `conv_stem.weight`
    Timm,
}

/// One row of the paper's table 1.
struct Stage {
    /// How many times a block widens its input before the depthwise convolution.
    expand: usize,
    kernel: usize,
    stride: usize,
    channels: usize,
    blocks: usize,
}

const fn stage(
    expand: usize,
    kernel: usize,
    stride: usize,
    channels: usize,
    blocks: usize,
) -> Stage {
    Stage {
        expand,
        kernel,
        stride,
        channels,
        blocks,
    }
}

const STEM_CHANNELS: usize = 32;
/// Channels of the last map.
pub(crate) const HEAD_CHANNELS: usize = 1280;
const STAGES: [Stage; 7] = [
    stage(1, 3, 1, 16, 1),
    stage(6, 3, 2, 24, 2),
    stage(6, 5, 2, 40, 2),
    stage(6, 3, 2, 80, 3),
    stage(6, 5, 1, 112, 3),
    stage(6, 5, 2, 192, 4),
    stage(6, 3, 1, 320, 1),
];

/// The network: `image` [N, 3, H, W] to `logits` [N, classes]; `features` names the last map.
pub fn graph(layout: Layout, classes: usize) -> Result<Graph, GraphError> {
    let mut b = Builder::new("EfficientNet");
    let image = image_input(&mut b, 1);
    let features = match layout {
        // Torchvision's `features` is a module, and with it the name of its value.
        Layout::Torchvision => b.module("features", "Sequential", |b| backbone(b, layout, image)),
        Layout::Timm => {
            let features = backbone(&mut b, layout, image);
            b.name("features", features)
        }
    };
    let pool = match layout {
        Layout::Torchvision => "avgpool",
        Layout::Timm => "global_pool",
    };
    let x = b.leaf(pool, AdaptiveAvgPool2d { output: [1, 1] }, &[features]);
    let x = b.flatten("flatten", x, 1);
    let logits = match layout {
        Layout::Torchvision => b.module("classifier", "Sequential", |b| {
            let x = b.leaf("0", Dropout { p: 0.2 }, &[x]);
            b.linear("1", x, HEAD_CHANNELS, classes)
        }),
        Layout::Timm => b.linear("classifier", x, HEAD_CHANNELS, classes),
    };
    b.output("logits", logits);
    b.finish()
}

/// Pairs of (name in `from`, name in `to`) for every tensor of the state dict.
pub fn renames(from: Layout, to: Layout) -> Result<Vec<(String, String)>, GraphError> {
    // The names do not depend on the number of classes.
    let [from, to] = [graph(from, 1)?, graph(to, 1)?];
    let names = |graph: Graph| -> Vec<String> {
        graph
            .params()
            .iter()
            .map(|param| param.name.clone())
            .collect()
    };
    Ok(names(from).into_iter().zip(names(to)).collect())
}

/// From the image to the last map.
pub(crate) fn backbone(b: &mut Builder, layout: Layout, image: ValueId) -> ValueId {
    let stem = Conv2d::new(3, STEM_CHANNELS, 3).stride(2).padding(1);
    let stem_names = match layout {
        Layout::Torchvision => Unit::Module("0"),
        Layout::Timm => Unit::Flat("conv_stem", "bn1"),
    };
    let x = conv_bn_silu(b, &stem_names, image, stem);
    let (x, channels) = match layout {
        Layout::Torchvision => stages(b, layout, x, 1),
        Layout::Timm => {
            let mut channels = STEM_CHANNELS;
            let x = b.module("blocks", "Sequential", |b| {
                let (x, last) = stages(b, layout, x, 0);
                channels = last;
                x
            });
            (x, channels)
        }
    };
    let head_names = match layout {
        Layout::Torchvision => Unit::Module("8"),
        Layout::Timm => Unit::Flat("conv_head", "bn2"),
    };
    conv_bn_silu(b, &head_names, x, Conv2d::new(channels, HEAD_CHANNELS, 1))
}

/// All stages, named from `first` on; also the channels that come out.
fn stages(b: &mut Builder, layout: Layout, x: ValueId, first: usize) -> (ValueId, usize) {
    let (mut x, mut channels) = (x, STEM_CHANNELS);
    for (index, stage) in STAGES.iter().enumerate() {
        x = b.module(&(first + index).to_string(), "Sequential", |b| {
            let mut x = x;
            for block in 0..stage.blocks {
                let stride = if block == 0 { stage.stride } else { 1 };
                let config = InvertedResidual {
                    in_channels: channels,
                    stride,
                    stage,
                };
                x = config.build(b, layout, &block.to_string(), x);
                channels = stage.channels;
            }
            x
        });
    }
    (x, channels)
}

struct InvertedResidual<'a> {
    in_channels: usize,
    stride: usize,
    stage: &'a Stage,
}

impl InvertedResidual<'_> {
    fn build(&self, b: &mut Builder, layout: Layout, name: &str, x: ValueId) -> ValueId {
        let adds_input = self.stride == 1 && self.in_channels == self.stage.channels;
        let shortcut = |b: &mut Builder, y| if adds_input { b.add("add", y, x) } else { y };
        match layout {
            Layout::Torchvision => b.module(name, "MBConv", |b| {
                let names = BlockNames::torchvision(self.expands());
                let y = b.module("block", "Sequential", |b| self.branch(b, &names, x));
                shortcut(b, y)
            }),
            Layout::Timm => {
                let (names, class) = BlockNames::timm(self.expands());
                b.module(name, class, |b| {
                    let y = self.branch(b, &names, x);
                    shortcut(b, y)
                })
            }
        }
    }

    fn expands(&self) -> bool {
        self.stage.expand != 1
    }

    fn branch(&self, b: &mut Builder, names: &BlockNames, x: ValueId) -> ValueId {
        let Stage {
            expand,
            kernel,
            channels,
            ..
        } = *self.stage;
        let wide = self.in_channels * expand;
        let x = match &names.expand {
            Some(unit) => conv_bn_silu(b, unit, x, Conv2d::new(self.in_channels, wide, 1)),
            None => x,
        };
        let depthwise = Conv2d::new(wide, wide, kernel)
            .stride(self.stride)
            .padding(kernel / 2)
            .groups(wide);
        let x = conv_bn_silu(b, &names.depthwise, x, depthwise);
        let x = squeeze_excite(b, &names.excite, x, wide, self.in_channels / 4);
        conv_bn(b, &names.project, x, Conv2d::new(wide, channels, 1))
    }
}

/// x · sigmoid(W2 silu(W1 mean(x))): each channel weighed by what the whole map says.
fn squeeze_excite(
    b: &mut Builder,
    names: &ExciteNames,
    x: ValueId,
    channels: usize,
    squeezed: usize,
) -> ValueId {
    b.module(names.module, names.class, |b| {
        let pool = AdaptiveAvgPool2d { output: [1, 1] };
        let s = if names.pool_is_module {
            b.leaf("avgpool", pool, &[x])
        } else {
            b.call("mean", pool, &[x])
        };
        let s = b.conv2d(names.reduce, s, Conv2d::new(channels, squeezed, 1));
        let s = b.leaf(names.activation, Activation::Silu, &[s]);
        let s = b.conv2d(names.expand, s, Conv2d::new(squeezed, channels, 1));
        let s = b.leaf(names.gate, Activation::Sigmoid, &[s]);
        b.mul("mul", x, s)
    })
}

/// How a convolution and its normalisation are named: as a module with children 0, 1 and 2, or side by side.
enum Unit {
    Module(&'static str),
    Flat(&'static str, &'static str),
}

struct BlockNames {
    expand: Option<Unit>,
    depthwise: Unit,
    excite: ExciteNames,
    project: Unit,
}

struct ExciteNames {
    module: &'static str,
    class: &'static str,
    pool_is_module: bool,
    reduce: &'static str,
    activation: &'static str,
    expand: &'static str,
    gate: &'static str,
}

impl BlockNames {
    /// Torchvision counts the steps of a block; a block that does not expand has one less.
    fn torchvision(expands: bool) -> Self {
        let excite = |module| ExciteNames {
            module,
            class: "SqueezeExcitation",
            pool_is_module: true,
            reduce: "fc1",
            activation: "activation",
            expand: "fc2",
            gate: "scale_activation",
        };
        if expands {
            Self {
                expand: Some(Unit::Module("0")),
                depthwise: Unit::Module("1"),
                excite: excite("2"),
                project: Unit::Module("3"),
            }
        } else {
            Self {
                expand: None,
                depthwise: Unit::Module("0"),
                excite: excite("1"),
                project: Unit::Module("2"),
            }
        }
    }

    /// Timm calls a block that does not expand by another class, and its projection by another name.
    fn timm(expands: bool) -> (Self, &'static str) {
        let excite = ExciteNames {
            module: "se",
            class: "SqueezeExcite",
            pool_is_module: false,
            reduce: "conv_reduce",
            activation: "act1",
            expand: "conv_expand",
            gate: "gate",
        };
        if expands {
            let names = Self {
                expand: Some(Unit::Flat("conv_pw", "bn1")),
                depthwise: Unit::Flat("conv_dw", "bn2"),
                excite,
                project: Unit::Flat("conv_pwl", "bn3"),
            };
            (names, "InvertedResidual")
        } else {
            let names = Self {
                expand: None,
                depthwise: Unit::Flat("conv_dw", "bn1"),
                excite,
                project: Unit::Flat("conv_pw", "bn2"),
            };
            (names, "DepthwiseSeparableConv")
        }
    }
}

fn conv_bn_silu(b: &mut Builder, unit: &Unit, x: ValueId, config: Conv2d) -> ValueId {
    build_unit(b, unit, x, config, true)
}

fn conv_bn(b: &mut Builder, unit: &Unit, x: ValueId, config: Conv2d) -> ValueId {
    build_unit(b, unit, x, config, false)
}

fn build_unit(b: &mut Builder, unit: &Unit, x: ValueId, config: Conv2d, silu: bool) -> ValueId {
    let chain = |b: &mut Builder, [conv, bn, act]: [&str; 3]| {
        let channels = config.out_channels;
        let x = b.conv2d(conv, x, config.no_bias());
        let x = b.batch_norm(bn, x, BatchNorm::new(channels));
        if silu {
            b.leaf(act, Activation::Silu, &[x])
        } else {
            x
        }
    };
    match *unit {
        Unit::Module(name) => b.module(name, "Conv2dNormActivation", |b| chain(b, ["0", "1", "2"])),
        // Timm's normalisation contains its activation: `bn1.act`.
        Unit::Flat(conv, bn) => chain(b, [conv, bn, &format!("{bn}.act")]),
    }
}
