//! Local feature aggregation: what a point learns from its neighbours, in two rounds, and the thinning after it.
//!
//! It has two forms. The plain one reads like the paper and has a value for each step, of the size [P, K, C]; the lean one has
//! an op for each round, which never holds such a value.

use percept_graph::{
    Activation, Binary, BinaryKind, Builder, Dim, Expand, Gather, Initializer, Linear,
    LinearWeight, Reduce, ReduceKind, Softmax, ValueId,
};
use percept_kernels::points::Join;

use super::aggregation::{Layer, LocalAggregation, RoundWeights};
use super::config::{RandLaNet, Variant};
use super::fold::{MlpParameters, parameter};
use super::levels::LevelValues;
use super::mlp::{LEAKY, LEAKY_SLOPE, SharedMlp};
use super::moments::EncodingMoments;
use super::neighbour_max::neighbour_max;
use super::neighbourhood::{POSITION_CHANNELS, PositionOrder, list_mask};

/// In which form aggregations are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A value for each step.
    Plain,
    /// An op for each round.
    Lean,
    /// The same, with the statistics of the batch in the norms inside of rounds.
    LeanTraining,
}

impl RandLaNet {
    /// The encoder of a level: features [P, in] to [P, 2 width].
    pub(super) fn encoder(
        &self,
        b: &mut Builder,
        form: Form,
        depth: usize,
        x: ValueId,
        level: &LevelValues,
    ) -> ValueId {
        let (inputs, width) = (self.encoder_input(depth), self.encoder[depth]);
        let half = width / 2;
        b.module(&depth.to_string(), "LocalFeatureAggregation", |b| {
            let (narrow, wide) = match self.variant {
                Variant::Faithful => (SharedMlp::NORM, SharedMlp::NORM),
                Variant::Seed { .. } => (SharedMlp::BARE, SharedMlp::BARE),
            };
            let features = self.shared_mlp(b, "mlp1", x, [inputs, half], narrow.then(LEAKY));
            let features = self.aggregate(b, form, features, [width, half], level);
            let features = self.shared_mlp(b, "mlp2", features, [width, 2 * width], wide);
            let shortcut = self.shared_mlp(b, "shortcut", x, [inputs, 2 * width], SharedMlp::NORM);
            let sum = b.add("add", features, shortcut);
            b.leaf("lrelu", Activation::LeakyRelu { slope: 0.01 }, &[sum])
        })
    }

    /// Both rounds: encoded positions beside features, pooled by attention; features [P, width / 2] to [P, width].
    fn aggregate(
        &self,
        b: &mut Builder,
        form: Form,
        features: ValueId,
        widths: [usize; 2],
        level: &LevelValues,
    ) -> ValueId {
        match form {
            Form::Plain => self.aggregate_plainly(b, features, widths, level),
            Form::Lean | Form::LeanTraining => {
                self.aggregate_leanly(b, form, features, widths, level)
            }
        }
    }

    fn aggregate_leanly(
        &self,
        b: &mut Builder,
        form: Form,
        features: ValueId,
        [width, half]: [usize; 2],
        level: &LevelValues,
    ) -> ValueId {
        let (join, slope, again) = match self.variant {
            Variant::Faithful => (Join::Neighbours, LEAKY_SLOPE, true),
            Variant::Seed { .. } => (Join::Own, 0.0, false),
        };
        let moments = EncodingMoments { join, slope };
        let mut encodings: Vec<Layer> = Vec::new();
        for (name, inputs) in [
            ("lse1", POSITION_CHANNELS),
            ("lse2", if again { half } else { POSITION_CHANNELS }),
        ] {
            b.module(name, "LocalSpatialEncoding", |b| {
                let mlp = MlpParameters::declare(b, "mlp", [inputs, half]);
                let layer = match form {
                    Form::LeanTraining => {
                        // The second encoding of the faithful network takes what the first one gives.
                        let taken = encodings.first().copied().filter(|_| again);
                        let moments = moments.call(b, "moments", level, taken);
                        mlp.folded_in_training(b, self, moments)
                    }
                    _ => mlp.folded(b, self),
                };
                encodings.push(layer);
                layer.0
            });
        }
        let rounds = match again {
            true => [(encodings[0], None), (encodings[0], Some(encodings[1]))],
            false => [(encodings[0], None), (encodings[1], None)],
        };
        let mut x = features;
        for (name, (encode, encode_again), outputs) in
            [("pool1", rounds[0], half), ("pool2", rounds[1], width)]
        {
            x = b.module(name, "AttentivePooling", |b| {
                let (scores, mlp, activation) = self.pool_names();
                let shape = match self.variant {
                    Variant::Faithful => vec![width, width],
                    Variant::Seed { .. } => vec![width, width, 1, 1],
                };
                let score = b.module(scores, "Linear", |b| {
                    // A bias adds the same to all neighbours, which a softmax does not see.
                    b.unread_parameter("bias", &[width]);
                    parameter(b, "weight", &shape, Initializer::FanIn(width))
                });
                let op = LocalAggregation {
                    join,
                    slope,
                    again: encode_again.is_some(),
                };
                let weights = RoundWeights {
                    encode,
                    encode_again,
                    score,
                };
                let pooled = op.call(b, "aggregation", level, x, weights);
                self.shared_mlp(
                    b,
                    mlp,
                    pooled,
                    [width, outputs],
                    SharedMlp::NORM.then(activation),
                )
            });
        }
        x
    }

    /// The names of a pool's scores and of its MLP, and the MLP's activation.
    fn pool_names(&self) -> (&'static str, &'static str, Activation) {
        match self.variant {
            Variant::Faithful => ("score_fn.0", "mlp", LEAKY),
            Variant::Seed { .. } => ("score_mlp.conv", "output_mlp", Activation::Relu),
        }
    }

    fn aggregate_plainly(
        &self,
        b: &mut Builder,
        features: ValueId,
        [width, half]: [usize; 2],
        level: &LevelValues,
    ) -> ValueId {
        let order = match self.variant {
            Variant::Faithful => PositionOrder::DistanceFirst,
            Variant::Seed { .. } => PositionOrder::DistanceLast,
        };
        let positions = order.call(b, "positions", level);
        let mask = list_mask(b, "mask", level);
        let (first, encoded) = self.encode(
            b,
            "lse1",
            positions,
            [POSITION_CHANNELS, half],
            features,
            level,
        );
        let features = self.pool(b, "pool1", first, mask, [width, half]);
        // The second round encodes what the first made of the positions, or the positions once more.
        let (positions, channels) = match self.variant {
            Variant::Faithful => (encoded, half),
            Variant::Seed { .. } => (positions, POSITION_CHANNELS),
        };
        let (second, _) = self.encode(b, "lse2", positions, [channels, half], features, level);
        self.pool(b, "pool2", second, mask, [width, width])
    }

    /// Local spatial encoding: positions [P·K, in], mapped, beside features [P·K, half]; and the mapped positions alone.
    fn encode(
        &self,
        b: &mut Builder,
        name: &str,
        positions: ValueId,
        [inputs, half]: [usize; 2],
        features: ValueId,
        level: &LevelValues,
    ) -> (ValueId, ValueId) {
        let mut encoded = positions;
        let joined = b.module(name, "LocalSpatialEncoding", |b| match self.variant {
            Variant::Faithful => {
                encoded = self.shared_mlp(
                    b,
                    "mlp",
                    positions,
                    [inputs, half],
                    SharedMlp::NORM.then(LEAKY),
                );
                let features = gather(b, "neighbours", features, level.neighbours);
                b.concat("concat", &[features, encoded], 1)
            }
            Variant::Seed { .. } => {
                encoded = self.shared_mlp(
                    b,
                    "mlp",
                    positions,
                    [inputs, half],
                    SharedMlp::NORM.then(Activation::Relu),
                );
                let features = self.repeated(b, features, half);
                b.concat("concat", &[encoded, features], 1)
            }
        });
        (joined, encoded)
    }

    /// A point's own features once for each neighbour: [P, C] to [P·K, C].
    fn repeated(&self, b: &mut Builder, x: ValueId, channels: usize) -> ValueId {
        let points = b.shape(x)[0].clone();
        let k: Dim = self.neighbours.into();
        let once = b.reshape("own", x, [points.clone(), 1.into(), channels.into()]);
        let shape = vec![points.clone(), k.clone(), channels.into()];
        let repeated = b.call("repeated", Expand { shape }, &[once]);
        b.reshape("rows", repeated, [points * k, channels.into()])
    }

    /// Attentive pooling: the sum over neighbours of x [P·K, width], weighted by a softmax of their scores, and an MLP.
    fn pool(
        &self,
        b: &mut Builder,
        name: &str,
        x: ValueId,
        mask: ValueId,
        [width, outputs]: [usize; 2],
    ) -> ValueId {
        b.module(name, "AttentivePooling", |b| {
            let scores = Linear::new(width, width);
            let (name, mlp, activation) = self.pool_names();
            let scores = scores.stored(match self.variant {
                Variant::Faithful => LinearWeight::Matrix,
                Variant::Seed { .. } => LinearWeight::Pointwise,
            });
            let scores = b.leaf(name, scores, &[x]);
            let k: Dim = self.neighbours.into();
            let points = b.shape(mask)[0].clone();
            let by_point = [points.clone(), k, width.into()];
            let scores = b.reshape("scores", scores, by_point.clone());
            let scores = b.add("listed", scores, mask);
            let scores = b.permute("by_channel", scores, &[0, 2, 1]);
            let weights = b.call("softmax", Softmax, &[scores]);
            let weights = b.permute("by_neighbour", weights, &[0, 2, 1]);
            let x = b.reshape("values", x, by_point);
            let pooled = weighted_sum(b, x, weights, [points, width.into()]);
            self.shared_mlp(
                b,
                mlp,
                pooled,
                [width, outputs],
                SharedMlp::NORM.then(activation),
            )
        })
    }

    /// Features [P, C] of the points that the next level keeps.
    pub(super) fn thinned(
        &self,
        b: &mut Builder,
        form: Form,
        depth: usize,
        x: ValueId,
        level: &LevelValues,
    ) -> ValueId {
        let name = format!("sampled{depth}");
        match (self.variant, form) {
            // Points are dropped, and what they learnt with them.
            (Variant::Seed { .. }, _) => b.call(&name, Gather, &[x, level.kept]),
            (Variant::Faithful, Form::Lean | Form::LeanTraining) => {
                neighbour_max(b, &name, x, level)
            }
            (Variant::Faithful, Form::Plain) => b.module(&name, "MaxOverNeighbours", |b| {
                let lists = b.call("lists", Gather, &[level.neighbours, level.kept]);
                let [points, k] = [0, 1].map(|axis| b.shape(lists)[axis].clone());
                let channels = b.shape(x)[1].clone();
                let rows = gather(b, "neighbours", x, lists);
                let by_point = b.reshape("values", rows, [points.clone(), k, channels.clone()]);
                let max = Reduce {
                    kind: ReduceKind::Max,
                    axes: vec![1],
                };
                let max = b.call("max", max, &[by_point]);
                b.reshape("rows", max, [points, channels])
            }),
        }
    }
}

/// The rows of x [P, C] that lists i32 [Q, K] name: [Q·K, C].
pub(super) fn gather(b: &mut Builder, name: &str, x: ValueId, lists: ValueId) -> ValueId {
    let indices = b.flatten("flat_lists", lists, 0);
    b.call(name, Gather, &[x, indices])
}

/// Σ over the middle axis of values [P, K, C] · weights, as rows.
pub(super) fn weighted_sum(
    b: &mut Builder,
    values: ValueId,
    weights: ValueId,
    rows: [Dim; 2],
) -> ValueId {
    let weighted = b.call(
        "weighted",
        Binary {
            kind: BinaryKind::Mul,
        },
        &[values, weights],
    );
    let sum = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![1],
    };
    let sum = b.call("sum", sum, &[weighted]);
    b.reshape("pooled", sum, rows)
}
