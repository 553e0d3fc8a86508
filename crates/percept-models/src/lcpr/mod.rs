//! LCPR: "LCPR: A Multi-Scale Attention-Based LiDAR-Camera Fusion Network for Place Recognition" (Zhou et al., 2023), in the
//! layout of its public code.
//!
//! Six cameras around a vehicle and a range image of its LiDAR go through two ResNet-18s. Behind every stage a fusion block lets
//! the columns of the panorama and of the range image attend to each other. NetVLAD makes a descriptor of each, and both
//! together, normalised, say where the vehicle is.
//!
//! Its widths are elastic: one set of weights holds many networks ([`Lcpr::graph`] takes a [`Choice`]).

mod entries;
mod fusion;
mod intake;
mod lesson;
mod netvlad;
mod range_image;
mod studies;
mod triplet;

use percept_graph::{
    Builder, Choice, Conv2d, Dim, Graph, GraphError, MaxPool2d, Normalize, Resize, ResizeMode,
    ResizeScale,
};

use crate::resnet::{Stage, conv_bn};
pub(crate) use entries::ENTRIES;
use fusion::{Fusion, VertConv, panorama};
pub use intake::{CAMERA, PlaceIntake, RANGE};
use netvlad::NetVlad;
pub use range_image::{RangeImage, range_image};
pub use triplet::{MARGIN, Mean, TRIPLET};

/// Cameras around the vehicle.
pub const CAMERAS: usize = 6;

/// Levels of an elastic axis.
pub(crate) const LEVELS: usize = 4;

/// The output: [N, 2 * descriptor], rows of length one.
pub const DESCRIPTOR: &str = "descriptor";

/// What can be chosen about LCPR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lcpr {
    /// Channels of the first stage; each further one has twice as many.
    pub width: usize,
    /// Features of a column in front of NetVLAD.
    pub features: usize,
    /// NetVLAD's clusters.
    pub clusters: usize,
    /// Numbers that each of the two modalities has in the descriptor.
    pub descriptor: usize,
}

impl Lcpr {
    /// As published: 31,139,651 parameters.
    pub const PUBLIC: Lcpr = Lcpr {
        width: 64,
        features: 256,
        clusters: 32,
        descriptor: 128,
    };

    /// Small enough to be trained on a plain CPU.
    pub const SMALL: Lcpr = Lcpr {
        width: 16,
        features: 64,
        clusters: 8,
        descriptor: 64,
    };

    /// The network: `camera` [N, 6, 3, H, W] and `range` [N, 1, HL, WL] to `descriptor`, at these levels of its axes.
    pub fn graph(&self, choice: &Choice) -> Result<Graph, GraphError> {
        let mut b = Builder::new("LCPR").choosing(choice);
        let [n, h, w, hl, wl] = ["N", "H", "W", "HL", "WL"].map(Dim::symbol);
        let camera = b.input(
            CAMERA,
            [n.clone(), CAMERAS.into(), 3.into(), h.clone(), w.clone()],
        );
        let range = b.input(RANGE, [n.clone(), 1.into(), hl, wl]);
        let stem = self.width;

        // The cameras are samples of their own until their columns stand side by side.
        let x = b.reshape(
            "cameras",
            camera,
            [n * CAMERAS, 3.into(), h.clone(), w.clone()],
        );
        let height = b.axis("camera.height", LEVELS);
        let x = match height.is_whole() {
            true => x,
            false => {
                let shrunk = Resize {
                    mode: ResizeMode::BilinearAntialias,
                    size: [height.of_size(&h), w],
                    scale: ResizeScale::Sizes,
                };
                b.call("shrunk", shrunk, &[x])
            }
        };
        let conv = Conv2d::new(3, stem, 7).stride(2).padding(3);
        let x = conv_bn(&mut b, "conv1_i", "bn1_i", x, conv);
        let x = b.relu("relu_i", x);
        let pool = MaxPool2d {
            kernel: 3,
            stride: 2,
            padding: 1,
        };
        let x = b.leaf("maxpool", pool, &[x]);
        let mut x_i = Stage::of_two(stem, stem, 1).build(&mut b, "layer1_i", "stage1.inner", x);
        let mut x_l = b.conv2d("conv_l", range, Conv2d::new(1, stem, 1));

        for stage in 1..=4 {
            let channels = stem << (stage - 1);
            if stage > 1 {
                let blocks = Stage::of_two(channels / 2, channels, 2);
                let axis = format!("stage{stage}.inner");
                x_i = blocks.build(&mut b, &format!("layer{stage}_i"), &axis, x_i);
                x_l = blocks.build(&mut b, &format!("layer{stage}_l"), &axis, x_l);
            }
            let (f_i, f_l) = Fusion { channels }.build(&mut b, stage, x_i, x_l);
            x_i = b.add(&format!("sum{stage}.i"), x_i, f_i);
            x_l = b.add(&format!("sum{stage}.l"), x_l, f_l);
        }

        let last = stem << 3;
        let level = b.axis("final.mid", LEVELS);
        let columns = VertConv {
            channels: last,
            mid: level.of(last / 2),
            out: self.features,
        };
        let y_i = columns.build(&mut b, "v_conv_i", x_i, panorama);
        let y_l = columns.build(&mut b, "v_conv_l", x_l, |_, y| y);
        let pool = NetVlad {
            features: self.features,
            clusters: self.clusters,
            out: self.descriptor,
        };
        let y_i = pool.build(&mut b, "netvlad_i", y_i);
        let y_l = pool.build(&mut b, "netvlad_l", y_l);
        let both = b.concat("both", &[y_i, y_l], 1);
        let both = netvlad::channel_attention(&mut b, both);
        let descriptor = b.call("normalize", Normalize::default(), &[both]);
        b.output(DESCRIPTOR, descriptor);
        b.finish()
    }
}
