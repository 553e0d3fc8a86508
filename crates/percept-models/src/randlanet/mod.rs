//! RandLA-Net: "Efficient Semantic Segmentation of Large-Scale Point Clouds" (Hu et al., 2020), which labels every point.
//!
//! Each level looks at a point's nearest neighbours twice, with attention, then keeps a random part of the points; the way
//! back up takes features from the nearest point that was kept. Two public networks are here: [`Variant::Faithful`]
//! (Open3D-ML, whose checkpoints load) and [`Variant::Seed`] (kalmary/RandLANet_Segmentation, by its own configuration files).

mod aggregation;
mod config;
mod encoder;
mod entries;
mod fold;
mod head;
mod intake;
mod knn_cache;
mod lesson;
mod levels;
mod loss;
mod mlp;
mod moments;
mod neighbour_max;
mod neighbourhood;
mod seed_file;
mod studies;

use std::sync::Arc;

use percept_graph::{
    Activation, Builder, Dim, Dropout, Gather, Graph, GraphError, Linear, Tensor, TensorError,
    ValueId,
};

pub use config::{RandLaNet, Variant, WidthError};
pub(crate) use entries::ENTRIES;
pub use head::PointHead;
pub(crate) use intake::CloudIntake;
pub use intake::{ScanClouds, ScanIntake};
pub use knn_cache::{CloudLevels, KnnCache, KnnError, Neighbours};
pub use lesson::{LABEL_COUNTS, ScanAugment};
pub use loss::{class_weights, weighted_cross_entropy};
pub use seed_file::SeedFileError;

use encoder::{Form, gather, weighted_sum};
use levels::{Clouds, LevelValues, PointLevels};
use mlp::{LEAKY, SharedMlp};

/// One cloud as the network takes it.
#[derive(Clone, Copy, Debug)]
pub struct Cloud<'a> {
    /// Values of each point, x, y, z first.
    pub rows: &'a [f32],
    /// A permutation of the rows: those with small numbers stay when the cloud is thinned out.
    pub priority: &'a [i32],
}

/// The inputs of some clouds: all points in one list, their priorities, and how many each cloud has.
pub fn inputs(
    channels: usize,
    clouds: &[Cloud<'_>],
) -> Result<[(&'static str, Tensor<'static>); 3], TensorError> {
    let points: Vec<f32> = clouds
        .iter()
        .flat_map(|cloud| cloud.rows)
        .copied()
        .collect();
    let priority: Vec<i32> = clouds
        .iter()
        .flat_map(|cloud| cloud.priority)
        .copied()
        .collect();
    let counts: Vec<i32> = clouds
        .iter()
        .map(|cloud| cloud.priority.len() as i32)
        .collect();
    Ok([
        (
            "points",
            Tensor::from_values([points.len() / channels.max(1), channels], points)?,
        ),
        ("priority", Tensor::from_values([priority.len()], priority)?),
        ("counts", Tensor::from_values([counts.len()], counts)?),
    ])
}

impl RandLaNet {
    /// The network: `points` [P, C] of all clouds, the `priority` i32 [P] of each point in its cloud and the `counts` i32 [N] of
    /// points to `logits` [P, classes], in the order of the points.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        self.graph_with_cache(None)
    }

    /// The same network with an op for each round of aggregation, which never holds a value for each neighbour: much less memory
    /// and time, and the same answers but for rounding. It has the same inputs, outputs and parameters.
    pub fn lean_graph(&self, cache: Option<Arc<KnnCache>>) -> Result<Graph, GraphError> {
        self.build(Form::Lean, cache)
    }

    /// The lean form as it is to be trained: the norms inside of aggregations take the statistics of the batch and move the running
    /// ones, as the others do in [`Graph::in_training`].
    pub fn lean_training_graph(&self) -> Result<Graph, GraphError> {
        self.build(Form::LeanTraining, None)
    }

    /// The same network, which takes the neighbours of clouds that it has seen from a cache.
    pub fn graph_with_cache(&self, cache: Option<Arc<KnnCache>>) -> Result<Graph, GraphError> {
        self.build(Form::Plain, cache)
    }

    /// What the network knows of its clouds before it looks at them, with the same inputs: `neighbours` i32 [P, K] and `up`
    /// i32 [P, U] of the first level. All levels are made.
    pub fn levels_graph(&self, cache: Option<Arc<KnnCache>>) -> Result<Graph, GraphError> {
        let mut b = Builder::new("PointLevels");
        let clouds = self.clouds(&mut b, cache);
        if let Some(first) = clouds.levels.first() {
            b.output("neighbours", first.neighbours);
            b.output("up", first.up);
        }
        b.finish()
    }

    fn clouds(&self, b: &mut Builder, cache: Option<Arc<KnnCache>>) -> Clouds {
        let p = Dim::symbol("P");
        let points = b.input("points", [p.clone(), self.channels_in.into()]);
        let priority = b.integer_input("priority", [p]);
        let counts = b.integer_input("counts", [Dim::symbol("N")]);
        self.levels(cache).call(b, points, priority, counts)
    }

    fn build(&self, form: Form, cache: Option<Arc<KnnCache>>) -> Result<Graph, GraphError> {
        let mut b = Builder::new("RandLANet");
        let clouds = self.clouds(&mut b, cache);
        let x = self.first_layer(&mut b, clouds.features);
        let (x, skips) = self.down(&mut b, form, x, &clouds.levels);
        let x = self.up(&mut b, x, &clouds.levels, skips);
        let logits = self.classifier(&mut b, x);
        let logits = b.call("logits", Gather, &[logits, clouds.place_of_row]);
        b.output("logits", logits);
        b.finish()
    }

    fn levels(&self, cache: Option<Arc<KnnCache>>) -> PointLevels {
        let (up, unit) = match self.variant {
            Variant::Faithful => (1, None),
            Variant::Seed { max_voxel_dim } => (3, Some(max_voxel_dim / 2.0)),
        };
        PointLevels {
            ratios: self.ratios.clone(),
            neighbours: self.neighbours,
            up,
            unit,
            cache,
        }
    }

    fn first_layer(&self, b: &mut Builder, x: ValueId) -> ValueId {
        let linear = Linear::new(self.channels_in, self.start);
        match self.variant {
            Variant::Faithful => {
                let x = b.leaf("fc0", linear, &[x]);
                let x = b.batch_norm("bn0", x, self.norm(self.start));
                b.call("activation0", LEAKY, &[x])
            }
            Variant::Seed { .. } => {
                let x = b.leaf("fc_start", linear, &[x]);
                b.module("bn_start", "Sequential", |b| {
                    let x = b.batch_norm("0", x, self.norm(self.start));
                    b.leaf("1", Activation::Tanh, &[x])
                })
            }
        }
    }

    /// The encoders: the features of the last level, and what each level hands to the decoders.
    fn down(
        &self,
        b: &mut Builder,
        form: Form,
        mut x: ValueId,
        levels: &[LevelValues],
    ) -> (ValueId, Vec<ValueId>) {
        let mut skips = Vec::new();
        b.module("encoder", "ModuleList", |b| {
            for (depth, level) in levels.iter().enumerate() {
                let encoded = self.encoder(b, form, depth, x, level);
                let thinned = self.thinned(b, form, depth, encoded, level);
                // The faithful network hands over what was sampled, and of the first level both.
                match self.variant {
                    Variant::Faithful if depth == 0 => skips.extend([encoded, thinned]),
                    Variant::Faithful => skips.push(thinned),
                    Variant::Seed { .. } => skips.push(encoded),
                }
                x = thinned;
            }
            x
        });
        let width = 2 * self.encoder[self.encoder.len() - 1];
        let mlp = match self.variant {
            Variant::Faithful => SharedMlp::NORM.then(LEAKY),
            Variant::Seed { .. } => SharedMlp::BARE.then(Activation::Relu),
        };
        (self.shared_mlp(b, "mlp", x, [width; 2], mlp), skips)
    }

    fn up(
        &self,
        b: &mut Builder,
        mut x: ValueId,
        levels: &[LevelValues],
        skips: Vec<ValueId>,
    ) -> ValueId {
        b.module("decoder", "ModuleList", |b| {
            for (step, level) in levels.iter().rev().enumerate() {
                let skip = skips[levels.len() - 1 - step];
                x = self.decoder(b, step, x, level, skip);
            }
            x
        })
    }

    /// Features from the level below, beside those of this level, mapped.
    fn decoder(
        &self,
        b: &mut Builder,
        step: usize,
        x: ValueId,
        level: &LevelValues,
        skip: ValueId,
    ) -> ValueId {
        let below = b.shape(x)[1].clone();
        let up = b.module(&format!("up{step}"), "Upsample", |b| {
            let nearest = gather(b, "nearest", x, level.up);
            let Some(weights) = level.up_weights else {
                return nearest;
            };
            let [points, count] = [0, 1].map(|axis| b.shape(weights)[axis].clone());
            let values = b.reshape(
                "values",
                nearest,
                [points.clone(), count.clone(), below.clone()],
            );
            let weights = b.reshape("weights", weights, [points.clone(), count, 1.into()]);
            weighted_sum(b, values, weights, [points, below])
        });
        let (joined, activation) = match self.variant {
            Variant::Faithful => ([skip, up], LEAKY),
            Variant::Seed { .. } => ([up, skip], Activation::Relu),
        };
        let joined = b.concat(&format!("concat{step}"), &joined, 1);
        let widths = [self.decoder_input(step), self.decoder[step]];
        let mlp = SharedMlp::NORM.transposed().then(activation);
        self.shared_mlp(b, &step.to_string(), joined, widths, mlp)
    }

    fn classifier(&self, b: &mut Builder, mut x: ValueId) -> ValueId {
        let (name, activation) = match self.variant {
            Variant::Faithful => ("fc1", LEAKY),
            Variant::Seed { .. } => ("fc_end", Activation::Relu),
        };
        b.module(name, "Sequential", |b| {
            let mut inputs = self.decoder[self.decoder.len() - 1];
            for (at, &width) in self.end.iter().enumerate() {
                let mlp = SharedMlp::NORM.then(activation);
                x = self.shared_mlp(b, &at.to_string(), x, [inputs, width], mlp);
                inputs = width;
            }
            let last = self.end.len();
            x = b.leaf(&last.to_string(), Dropout { p: self.dropout }, &[x]);
            self.shared_mlp(
                b,
                &(last + 1).to_string(),
                x,
                [inputs, self.classes],
                SharedMlp::BARE,
            )
        })
    }
}
