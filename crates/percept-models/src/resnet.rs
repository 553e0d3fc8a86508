//! ResNet: "Deep Residual Learning for Image Recognition" (He et al., 2015), in torchvision's layout.
//!
//! A stem (7x7 stride 2, max pooling), four stages of residual blocks at 1/4 to 1/32 of the image, a mean over
//! the map and a linear classifier. Torchvision puts a bottleneck's stride on its 3x3 convolution. Small pictures get a
//! smaller stem and fewer channels by [`ResNetConfig`].

use percept_graph::{
    AdaptiveAvgPool2d, BatchNorm, Builder, Choice, Conv2d, Graph, GraphError, MaxPool2d, ValueId,
};

use crate::image_input;

/// The residual block of a ResNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// Two 3x3 convolutions.
    Basic,
    /// 1x1 down to a quarter of the channels, 3x3, 1x1 up again.
    Bottleneck,
}

impl Block {
    fn class(self) -> &'static str {
        match self {
            Block::Basic => "BasicBlock",
            Block::Bottleneck => "Bottleneck",
        }
    }

    /// Output channels of a block in a stage of this width.
    fn out_channels(self, width: usize) -> usize {
        match self {
            Block::Basic => width,
            Block::Bottleneck => 4 * width,
        }
    }
}

/// A ResNet by its number of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ResNet {
    R18,
    R34,
    R50,
    R101,
}

/// What stands before the stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stem {
    /// 7x7 stride 2 and max pooling: the stages begin at 1/4 of the image. The published one.
    #[default]
    Quarter,
    /// 3x3 stride 2: they begin at 1/2, for small pictures.
    Half,
    /// 3x3 stride 1: they begin at the image's own size, for tiny pictures.
    Whole,
}

impl Stem {
    fn build(self, b: &mut Builder, image: ValueId, channels: usize) -> ValueId {
        let conv = match self {
            Stem::Quarter => Conv2d::new(3, channels, 7).stride(2).padding(3),
            Stem::Half => Conv2d::new(3, channels, 3).stride(2).padding(1),
            Stem::Whole => Conv2d::new(3, channels, 3).padding(1),
        };
        let x = conv_bn(b, "conv1", "bn1", image, conv);
        let x = b.relu("relu", x);
        if self != Stem::Quarter {
            return x;
        }
        let pool = MaxPool2d {
            kernel: 3,
            stride: 2,
            padding: 1,
        };
        b.leaf("maxpool", pool, &[x])
    }
}

/// What can be chosen beside the depth; the defaults are the published networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResNetConfig {
    /// Classes of the classifier.
    pub classes: usize,
    /// Channels of the first stage; each further stage has twice as many.
    pub width: usize,
    /// What stands before the stages.
    pub stem: Stem,
}

impl ResNetConfig {
    /// The networks as published.
    pub const PUBLISHED: ResNetConfig = ResNetConfig {
        classes: 1000,
        width: 64,
        stem: Stem::Quarter,
    };
}

impl Default for ResNetConfig {
    fn default() -> Self {
        Self::PUBLISHED
    }
}

impl ResNet {
    fn block(self) -> Block {
        match self {
            ResNet::R18 | ResNet::R34 => Block::Basic,
            ResNet::R50 | ResNet::R101 => Block::Bottleneck,
        }
    }

    /// Blocks in each of the four stages.
    fn stage_depths(self) -> [usize; 4] {
        match self {
            ResNet::R18 => [2, 2, 2, 2],
            ResNet::R34 | ResNet::R50 => [3, 4, 6, 3],
            ResNet::R101 => [3, 4, 23, 3],
        }
    }

    /// Channels of the last map.
    pub(crate) fn channels(self, config: &ResNetConfig) -> usize {
        self.block().out_channels(config.width << 3)
    }

    /// The network: `image` [N, 3, H, W] to `logits` [N, classes]; `features` names the last map.
    pub fn graph(self, config: &ResNetConfig) -> Result<Graph, GraphError> {
        self.narrow_graph(config, &Choice::whole())
    }

    /// The network at these levels of its axes `layer1.inner` to `layer4.inner`: the channels inside of a stage's blocks.
    pub fn narrow_graph(self, config: &ResNetConfig, choice: &Choice) -> Result<Graph, GraphError> {
        let mut b = Builder::new("ResNet").choosing(choice);
        let image = image_input(&mut b, 1);
        let x = self.features(&mut b, config, image);
        b.name("features", x);

        let x = b.leaf("avgpool", AdaptiveAvgPool2d { output: [1, 1] }, &[x]);
        let x = b.flatten("flatten", x, 1);
        let logits = b.linear("fc", x, self.channels(config), config.classes);
        b.output("logits", logits);
        b.finish()
    }

    /// From the image to the last map.
    pub(crate) fn features(
        self,
        b: &mut Builder,
        config: &ResNetConfig,
        image: ValueId,
    ) -> ValueId {
        let mut x = config.stem.build(b, image, config.width);
        let mut in_channels = config.width;
        for (stage, depth) in self.stage_depths().into_iter().enumerate() {
            let name = format!("layer{}", stage + 1);
            let stage = Stage {
                block: self.block(),
                depth,
                in_channels,
                width: config.width << stage,
                stride: if stage == 0 { 1 } else { 2 },
            };
            x = stage.build(b, &name, &format!("{name}.inner"), x);
            in_channels = stage.out_channels();
        }
        x
    }
}

/// Levels of the width inside of a stage's blocks.
pub(crate) const INNER_LEVELS: usize = 4;

/// Residual blocks on maps of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    block: Block,
    depth: usize,
    in_channels: usize,
    width: usize,
    stride: usize,
}

impl Stage {
    /// Two basic blocks, as ResNet-18 has them.
    pub(crate) fn of_two(in_channels: usize, width: usize, stride: usize) -> Self {
        Self {
            block: Block::Basic,
            depth: 2,
            in_channels,
            width,
            stride,
        }
    }

    fn out_channels(&self) -> usize {
        self.block.out_channels(self.width)
    }

    /// The module `name`; the channels inside of its blocks are the elastic axis `axis`.
    pub(crate) fn build(&self, b: &mut Builder, name: &str, axis: &str, x: ValueId) -> ValueId {
        let inner = b.axis(axis, INNER_LEVELS).of(self.width);
        b.module(name, "Sequential", |b| {
            let first = residual_block(b, "0", x, self, inner);
            let then = Stage {
                in_channels: self.out_channels(),
                stride: 1,
                ..*self
            };
            (1..self.depth).fold(first, |x, index| {
                residual_block(b, &index.to_string(), x, &then, inner)
            })
        })
    }
}

/// relu(F(x) + x), where the shortcut is projected when the block changes the map's shape.
fn residual_block(b: &mut Builder, name: &str, x: ValueId, stage: &Stage, width: usize) -> ValueId {
    let &Stage {
        block,
        in_channels,
        stride,
        ..
    } = stage;
    let out_channels = stage.out_channels();
    b.module(name, block.class(), |b| {
        let y = match block {
            Block::Basic => {
                let first = Conv2d::new(in_channels, width, 3).stride(stride).padding(1);
                let y = conv_bn(b, "conv1", "bn1", x, first);
                let y = b.relu("relu", y);
                conv_bn(
                    b,
                    "conv2",
                    "bn2",
                    y,
                    Conv2d::new(width, out_channels, 3).padding(1),
                )
            }
            Block::Bottleneck => {
                let y = conv_bn(b, "conv1", "bn1", x, Conv2d::new(in_channels, width, 1));
                let y = b.relu("relu", y);
                let middle = Conv2d::new(width, width, 3).stride(stride).padding(1);
                let y = conv_bn(b, "conv2", "bn2", y, middle);
                let y = b.relu("relu", y);
                conv_bn(b, "conv3", "bn3", y, Conv2d::new(width, out_channels, 1))
            }
        };
        let shortcut = if stride == 1 && in_channels == out_channels {
            x
        } else {
            b.module("downsample", "Sequential", |b| {
                let project = Conv2d::new(in_channels, out_channels, 1).stride(stride);
                conv_bn(b, "0", "1", x, project)
            })
        };
        let y = b.add("add", y, shortcut);
        b.relu("relu", y)
    })
}

/// A convolution without bias, then its batch normalisation.
pub(crate) fn conv_bn(
    b: &mut Builder,
    conv: &str,
    bn: &str,
    x: ValueId,
    config: Conv2d,
) -> ValueId {
    let channels = config.out_channels;
    let x = b.conv2d(conv, x, config.no_bias());
    b.batch_norm(bn, x, BatchNorm::new(channels))
}
