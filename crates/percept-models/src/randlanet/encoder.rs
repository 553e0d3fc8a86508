//! Local feature aggregation: what a point learns from its neighbours, in two rounds, and the thinning after it.

use percept_graph::{
    Activation, Binary, BinaryKind, Builder, Dim, Expand, Gather, Linear, LinearWeight, Reduce,
    ReduceKind, Softmax, ValueId,
};

use super::config::{RandLaNet, Variant};
use super::levels::LevelValues;
use super::mlp::{LEAKY, SharedMlp};
use super::neighbourhood::{POSITION_CHANNELS, PositionOrder, list_mask};

impl RandLaNet {
    /// The encoder of a level: features [P, in] to [P, 2 width].
    pub(super) fn encoder(
        &self,
        b: &mut Builder,
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
            let features = self.aggregate(b, features, [width, half], level);
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
            let (scores, mlp, activation) = match self.variant {
                Variant::Faithful => (b.leaf("score_fn.0", scores, &[x]), "mlp", LEAKY),
                Variant::Seed { .. } => {
                    let scores = scores.stored(LinearWeight::Pointwise);
                    (
                        b.leaf("score_mlp.conv", scores, &[x]),
                        "output_mlp",
                        Activation::Relu,
                    )
                }
            };
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
        depth: usize,
        x: ValueId,
        level: &LevelValues,
    ) -> ValueId {
        let name = format!("sampled{depth}");
        match self.variant {
            // Points are dropped, and what they learnt with them.
            Variant::Seed { .. } => b.call(&name, Gather, &[x, level.kept]),
            Variant::Faithful => b.module(&name, "MaxOverNeighbours", |b| {
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
