//! PaCo-2: fine-grained classification by parts. Two views of an image show the same parts; part-aware contrast (PaC) pulls
//! matching parts together in the image's own metric, and second-order consistency (SoC) makes both views spread alike.
//!
//! Inference is a backbone and a classifier; everything else belongs to training.

mod consistency;
mod covariance;
mod entries;
mod focus;
mod metric;
mod pac;
mod parts;
mod pool;
mod sampler;
mod scene;
mod selection;
mod spread;
mod studies;
mod training;
mod triplets;
mod wide;
mod windows;

use percept_graph::{AdaptiveAvgPool2d, Builder, Graph, GraphError, ValueId};

use crate::efficientnet::{self, Layout};
use crate::image_input;
use crate::resnet::{ResNet, ResNetConfig};
pub(crate) use entries::{CONTRAST, ENTRIES};
pub use training::{LABELS, VIEWS};
use windows::windows;

/// The network before the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Backbone {
    /// Of the configuration, the classes mean nothing here.
    ResNet(ResNet, ResNetConfig),
    EfficientNetB0,
}

impl Backbone {
    /// The published one.
    pub const RESNET50: Backbone = Backbone::ResNet(ResNet::R50, ResNetConfig::PUBLISHED);

    fn channels(self) -> usize {
        match self {
            Backbone::ResNet(network, config) => network.channels(&config),
            Backbone::EfficientNetB0 => efficientnet::HEAD_CHANNELS,
        }
    }

    /// The last map [V, C, H, W] of images, under timm's names.
    fn build(self, b: &mut Builder, image: ValueId) -> ValueId {
        match self {
            Backbone::ResNet(network, config) => b.module("backbone", "ResNet", |b| {
                network.features(b, &config, image)
            }),
            Backbone::EfficientNetB0 => b.module("backbone", "EfficientNet", |b| {
                efficientnet::backbone(b, Layout::Timm, image)
            }),
        }
    }
}

/// What training minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Repaired: negatives from other images of other classes, covariances of all pixels of the parts, SoC that does not care
    /// about scale, weights without a gradient.
    Stable,
    /// As published, which collapses: for parity.
    Published,
}

/// How the contrast is computed; all forms give the same loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossForm {
    /// One factor an image, all distances from whitened parts.
    Exact,
    /// Through the Gram matrix of the samples: for few samples in many dimensions.
    Gram,
    /// As published: one factorisation for every pair of parts, in a pool with repetitions.
    Naive,
}

/// What makes parts of two views belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// The distance in the image's metric.
    Mahalanobis,
    /// 1 - cos: what the published training starts with.
    Cosine,
}

/// The network and its objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paco {
    /// What makes the features.
    pub backbone: Backbone,
    /// Classes of the classifier.
    pub classes: usize,
    /// Dimensions of a part.
    pub d: usize,
    /// Side of a part's window, in pixels of the last map.
    pub window: usize,
    /// Parts of a view.
    pub parts: usize,
    /// What training minimises.
    pub objective: Objective,
    /// How the contrast is computed.
    pub loss: LossForm,
    /// How parts are matched.
    pub matching: Matching,
    /// Only so many of the nearest candidates can be a negative; `None` for all.
    pub hardest: Option<usize>,
    /// Weight of PaC; without one it is left out.
    pub lambda_pac: f64,
    /// Weight of SoC; without one it is left out.
    pub eta_soc: f64,
    /// Margin of the contrast.
    pub alpha: f64,
    /// Weight of the prototypes in SoC.
    pub beta: f64,
    /// How much the strength of the parts weighs in the cross-entropy.
    pub gamma: f64,
    /// What the published covariances get on their diagonal, once each and once their mean.
    pub eps: f64,
}

impl Paco {
    /// The stable objective.
    pub const STABLE: Paco = Paco {
        backbone: Backbone::RESNET50,
        classes: 200,
        d: 64,
        window: 5,
        parts: 4,
        objective: Objective::Stable,
        loss: LossForm::Exact,
        matching: Matching::Mahalanobis,
        hardest: Some(16),
        lambda_pac: 1.0,
        eta_soc: 0.1,
        alpha: 0.2,
        beta: 0.05,
        gamma: 0.1,
        eps: 1e-5,
    };

    /// The published objective at the start of its training.
    pub const PUBLISHED: Paco = Paco {
        objective: Objective::Published,
        matching: Matching::Cosine,
        hardest: None,
        ..Paco::STABLE
    };

    /// The network in inference: `image` [N, 3, H, W] to `logits` [N, classes].
    ///
    /// What only training reads is declared, so that a checkpoint loads whole.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut b = Builder::new("PaCo");
        let image = image_input(&mut b, 1);
        let features = self.backbone.build(&mut b, image);
        b.name("features", features);
        b.unread_parameter("part_sampler.spatial_conv.weight", &[1, 1, 1, 1]);
        let channels = self.backbone.channels();
        b.unread_parameter("dim_reduction.weight", &[self.d, channels, 1, 1]);
        let pool = AdaptiveAvgPool2d { output: [1, 1] };
        let x = b.call("pool", pool, &[features]);
        let x = b.flatten("flatten", x, 1);
        let logits = b.linear("classifier", x, channels, self.classes);
        self.unread_prototypes(&mut b);
        b.output("logits", logits);
        b.finish()
    }

    /// Declares the prototypes where nothing reads them, so that every graph of the network has the same state.
    fn unread_prototypes(&self, b: &mut Builder) {
        b.unread_buffer("class_prototypes", &[self.classes, self.d, self.d]);
        b.unread_buffer("class_counts", &[self.classes]);
    }
}
