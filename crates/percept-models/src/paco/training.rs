//! The training graph: two views in, the loss and its terms out. Its scopes are the components that a profile shows.

use std::sync::Arc;

use percept_graph::{
    AdaptiveAvgPool2d, Affine, Builder, Conv2d, CrossEntropy, CustomOp, Dim, Graph, GraphError,
    Initializer, Op, Reduce, ReduceKind, ValueId,
};

use super::consistency::{Consistency, Prototypes};
use super::covariance::Covariance;
use super::focus::{FocusedCrossEntropy, Strength};
use super::pac::Contrast;
use super::parts::{EachOnce, WindowMeans};
use super::pool::PoolDistances;
use super::sampler::PartSampler;
use super::scene::Measure;
use super::selection::{Negatives, PartMatching};
use super::spread::Shrinkage;
use super::{Objective, Paco};
use crate::lesson::TrainingGraph;

/// The inputs of the training graph that hold the two views, each [N, 3, H, W].
pub const VIEWS: [&str; 2] = ["image", "image_2"];

/// The input of the training graph that holds the classes, i32 [N].
pub const LABELS: &str = "labels";

/// The side of the windows that the published objective weighs images by.
const PUBLISHED_FOCUS: usize = 5;
/// How much the stable objective shrinks covariances towards the same spread everywhere.
const STABLE_RHO: f64 = 0.1;

impl Paco {
    /// The loss of a batch, before it is differentiated: [`VIEWS`] and [`LABELS`] to `loss` and its terms `ce` and, where they
    /// have a weight, `pac` and `soc`. `logits` [N, classes] are those of both views together.
    pub fn training_graph(&self) -> Result<Graph, GraphError> {
        let mut b = Builder::new("PaCo");
        let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
        let shape = [n.clone(), 3.into(), h, w];
        let views = VIEWS.map(|name| b.input(name, shape.clone()));
        let labels = b.integer_input(LABELS, [n]);
        let image = b.concat("views", &views, 0);
        let features = self.backbone.build(&mut b, image);
        self.loss(&mut b, features, labels, self.backbone.channels());
        b.finish()
    }

    /// The training graph with the names that a trainer needs.
    pub fn training(&self) -> Result<TrainingGraph, GraphError> {
        let mut terms = vec!["ce"];
        terms.extend((self.lambda_pac > 0.0).then_some("pac"));
        terms.extend((self.eta_soc > 0.0).then_some("soc"));
        Ok(TrainingGraph {
            graph: self.training_graph()?,
            loss: "loss",
            terms,
        })
    }

    /// The loss alone, from `features` [2N, channels, H, W] of both views and [`LABELS`].
    pub fn loss_graph(&self, channels: usize) -> Result<Graph, GraphError> {
        let mut b = Builder::new("PaCo");
        let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
        let labels = b.integer_input(LABELS, [n.clone()]);
        let features = b.input("features", [n * 2, channels.into(), h, w]);
        self.loss(&mut b, features, labels, channels);
        b.finish()
    }

    /// The contrast alone: `parts` [2N, parts, d] of both views and [`LABELS`] to `loss`. Of the published objective, whose
    /// covariances are those of the parts.
    pub fn contrast_graph(&self) -> Result<Graph, GraphError> {
        let mut b = Builder::new("PaCo");
        let n = Dim::symbol("N");
        let labels = b.integer_input(LABELS, [n.clone()]);
        let parts = b.input("parts", [n * 2, self.parts.into(), self.d.into()]);
        let once = b.call("once", custom(EachOnce), &[parts]);
        let [_, factors] = self.covariance(&mut b, parts, once);
        let loss = self.contrast(&mut b, parts, [parts, once, factors], labels);
        b.output("loss", loss);
        b.finish()
    }

    fn covariance(&self, b: &mut Builder, samples: ValueId, multiplicity: ValueId) -> [ValueId; 2] {
        let covariance = Covariance {
            measure: self.measure(),
        };
        several(b, "covariance", covariance, &[samples, multiplicity])
    }

    fn loss(&self, b: &mut Builder, features: ValueId, labels: ValueId, channels: usize) {
        b.name("features", features);
        let [peaks, multiplicity] = self.sample(b, features);
        let reduction = Conv2d::new(channels, self.d, 1).no_bias();
        let reduced = b.conv2d("dim_reduction", features, reduction);
        let logits = self.logits(b, features, channels);
        let ce = self.cross_entropy(b, features, peaks, logits, labels);
        let mut terms = vec![("ce", 1.0, ce)];

        let rows = b.permute("parts.rows", reduced, &[0, 2, 3, 1]);
        let means = WindowMeans {
            window: self.window,
        };
        let parts = b.call("parts", custom(means), &[rows, peaks]);
        let samples = match self.objective {
            Objective::Published => parts,
            Objective::Stable => {
                let [v, h, w, d] = [0, 1, 2, 3].map(|axis| b.shape(rows)[axis].clone());
                b.reshape("parts.samples", rows, [v, h * w, d])
            }
        };
        let [sigma, factors] = self.covariance(b, samples, multiplicity);
        let samples = [samples, multiplicity, factors];
        if self.lambda_pac > 0.0 {
            terms.push((
                "pac",
                self.lambda_pac,
                self.contrast(b, parts, samples, labels),
            ));
        }
        if self.eta_soc > 0.0 {
            terms.push(("soc", self.eta_soc, self.consistency(b, sigma, labels)));
        } else {
            self.unread_prototypes(b);
        }

        let total = b.module("loss", "Loss", |b| {
            let scaled = terms
                .iter()
                .map(|&(name, weight, term)| match weight == 1.0 {
                    true => term,
                    false => b.call(name, Affine::scaled(weight as f32), &[term]),
                });
            let scaled: Vec<ValueId> = scaled.collect();
            let (first, others) = scaled.split_first().expect("there is cross-entropy");
            others
                .iter()
                .fold(*first, |sum, &term| b.add("add", sum, term))
        });
        b.output("loss", total);
        for (name, _, term) in terms {
            b.output(name, term);
        }
        b.output("logits", logits);
    }

    /// How distances between parts are measured.
    fn measure(&self) -> Measure {
        let (eps, tau) = (self.eps, self.eps);
        Measure {
            form: self.loss,
            shrinkage: match self.objective {
                Objective::Published => Shrinkage::Ridge { eps, tau },
                Objective::Stable => Shrinkage::Trace { rho: STABLE_RHO },
            },
            normalised: self.objective == Objective::Stable,
        }
    }

    /// The peaks of every view, and how often each sample counts.
    fn sample(&self, b: &mut Builder, features: ValueId) -> [ValueId; 2] {
        let mut outputs = [features; 2];
        b.module("part_sampler", "PartSampler", |b| {
            let mean = Reduce {
                kind: ReduceKind::Mean,
                axes: vec![1],
            };
            let mean = b.call("mean", mean, &[features]);
            let logits = b.conv2d("spatial_conv", mean, Conv2d::new(1, 1, 1).no_bias());
            let sampler = PartSampler {
                parts: self.parts,
                window: self.window,
                objective: self.objective,
            };
            outputs = several(b, "peaks", sampler, &[features, logits]);
            outputs[0]
        });
        outputs
    }

    /// The classifier on the mean of both views.
    fn logits(&self, b: &mut Builder, features: ValueId, channels: usize) -> ValueId {
        let pool = AdaptiveAvgPool2d { output: [1, 1] };
        let x = b.call("pool", pool, &[features]);
        let images = b.shape(features)[0].floor_div(2);
        let x = b.reshape("both_views", x, [2.into(), images.clone(), channels.into()]);
        let mean = Reduce {
            kind: ReduceKind::Mean,
            axes: vec![0],
        };
        let x = b.call("mean", mean, &[x]);
        let x = b.reshape("flatten", x, [images, channels.into()]);
        b.linear("classifier", x, channels, self.classes)
    }

    fn cross_entropy(
        &self,
        b: &mut Builder,
        features: ValueId,
        peaks: ValueId,
        logits: ValueId,
        labels: ValueId,
    ) -> ValueId {
        if self.gamma == 0.0 {
            let plain = CrossEntropy { smoothing: 0.0 };
            return b.call("cross_entropy", plain, &[logits, labels]);
        }
        let window = match self.objective {
            Objective::Published => PUBLISHED_FOCUS,
            Objective::Stable => self.window,
        };
        b.module("cross_entropy", "FocusedCrossEntropy", |b| {
            let strength = b.call("strength", custom(Strength { window }), &[features, peaks]);
            let focused = FocusedCrossEntropy {
                objective: self.objective,
                gamma: self.gamma,
            };
            b.call("focused", custom(focused), &[logits, labels, strength])
        })
    }

    /// PaC: distances, matches, negatives, and the loss that they select.
    fn contrast(
        &self,
        b: &mut Builder,
        parts: ValueId,
        [samples, multiplicity, factors]: [ValueId; 3],
        labels: ValueId,
    ) -> ValueId {
        let measure = self.measure();
        let operands = [parts, samples, multiplicity, factors];
        b.module("pac", "PartContrast", |b| {
            let pool = custom(PoolDistances { measure });
            let distances = b.call("negatives_pool", pool, &operands);
            let matching = PartMatching {
                cost: self.matching,
            };
            let matches = b.call("matching", custom(matching), &[parts, distances]);
            let negatives = Negatives {
                objective: self.objective,
                hardest: self.hardest,
            };
            let selected = [distances, matches, labels];
            let negatives = b.call("negatives", custom(negatives), &selected);
            let contrast = Contrast {
                measure,
                margin: self.alpha,
            };
            let operands = [&operands[..], &[matches, negatives]].concat();
            let [loss, near, far] = several(b, "contrast", contrast, &operands);
            b.name("positive_distance", near);
            b.name("negative_distance", far);
            loss
        })
    }

    /// SoC, and how the prototypes of the classes follow.
    fn consistency(&self, b: &mut Builder, sigma: ValueId, labels: ValueId) -> ValueId {
        let objective = self.objective;
        let square = [self.classes, self.d, self.d];
        let prototypes = b.buffer("class_prototypes", &square, Initializer::Zeros);
        let counts = b.buffer("class_counts", &[self.classes], Initializer::Zeros);
        let operands = [sigma, prototypes, counts, labels];
        b.module("soc", "Consistency", |b| {
            let beta = self.beta;
            let consistency = Consistency { objective, beta };
            let loss = b.call("consistency", custom(consistency), &operands);
            let [next, next_counts] = several(b, "prototypes", Prototypes { objective }, &operands);
            b.buffer_becomes(prototypes, next);
            b.buffer_becomes(counts, next_counts);
            loss
        })
    }
}

fn custom(op: impl CustomOp + 'static) -> Op {
    Op::Custom(Arc::new(op))
}

/// The outputs of a node with several.
fn several<const OUTPUTS: usize>(
    b: &mut Builder,
    name: &str,
    op: impl CustomOp + 'static,
    inputs: &[ValueId],
) -> [ValueId; OUTPUTS] {
    let outputs = b.call_many(name, custom(op), inputs);
    // After an error, which the builder has kept, there is one output only.
    std::array::from_fn(|i| outputs.get(i).copied().unwrap_or(outputs[0]))
}
