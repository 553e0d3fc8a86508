//! NetVLAD with context gating, and the attention over channels behind it.

use percept_graph::{
    Activation, BatchNorm, Binary, BinaryKind, Builder, Conv2d, MatMul, Normalize, Reduce,
    ReduceKind, Softmax, ValueId,
};

use super::LEVELS;

/// Columns [N, F, 1, S] to a vector [N, out]: how the columns that belong to each cluster lie around its centre.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetVlad {
    pub(super) features: usize,
    pub(super) clusters: usize,
    pub(super) out: usize,
}

impl NetVlad {
    pub(super) fn build(&self, b: &mut Builder, name: &str, columns: ValueId) -> ValueId {
        let features = self.features;
        let clusters = b.axis("netvlad.clusters", LEVELS).of(self.clusters);
        let out = b.axis("descriptor", LEVELS).of(self.out);
        let shape = b.shape(columns);
        let (n, samples) = (shape[0].clone(), shape[3].clone());
        b.module(name, "NetVLADLoupe", |b| {
            let rows = b.reshape(
                "rows",
                columns,
                [n.clone(), features.into(), samples.clone()],
            );
            // [N, S, F], and as one list for the products with parameters.
            let x = b.permute("samples", rows, &[0, 2, 1]);
            let list = b.reshape("list", x, [&n * &samples, features.into()]);
            let weights = b.parameter("cluster_weights", &[features, clusters]);
            let assigned = b.call("assign", MatMul::default(), &[list, weights]);
            let assigned = b.batch_norm("bn1", assigned, BatchNorm::rows(clusters));
            let assigned = b.call("softmax", Softmax, &[assigned]);
            let a = b.reshape("shares", assigned, [n.clone(), samples, clusters.into()]);

            // Vᵀ [N, K, F] = Aᵀ X - (Σ A) centres, whose rows are normalised one by one.
            let turned = MatMul {
                transpose_a: true,
                ..MatMul::default()
            };
            let sums = b.call("sums", turned, &[a, x]);
            let total = Reduce {
                kind: ReduceKind::Sum,
                axes: vec![1],
            };
            let total = b.call("total", total, &[a]);
            let total = b.permute("total_column", total, &[0, 2, 1]);
            let centres = b.parameter("cluster_weights2", &[1, features, clusters]);
            let centres = b.permute("centres", centres, &[0, 2, 1]);
            let centres = b.mul("weighted", total, centres);
            let minus = Binary {
                kind: BinaryKind::Sub,
            };
            let v = b.call("residuals", minus, &[sums, centres]);
            let v = b.call("intra", Normalize::default(), &[v]);
            let v = b.permute("by_feature", v, &[0, 2, 1]);
            let v = b.flatten("flatten", v, 1);
            let v = b.call("unit", Normalize::default(), &[v]);

            let hidden = b.parameter("hidden1_weights", &[features * clusters, out]);
            b.in_factors(hidden, &[&[features, clusters], &[out]]);
            let v = b.call("hidden", MatMul::default(), &[v, hidden]);
            unread_norm(b, "bn2", out);
            context_gating(b, v, out)
        })
    }
}

/// A normalisation that the public state dict has and whose call is commented out.
fn unread_norm(b: &mut Builder, name: &str, width: usize) {
    for parameter in ["weight", "bias"] {
        b.unread_parameter(&format!("{name}.{parameter}"), &[width]);
    }
    for buffer in ["running_mean", "running_var"] {
        b.unread_buffer(&format!("{name}.{buffer}"), &[width]);
    }
}

/// v · sigmoid(BN(v W)).
fn context_gating(b: &mut Builder, v: ValueId, width: usize) -> ValueId {
    b.module("context_gating", "GatingContext", |b| {
        let weights = b.parameter("gating_weights", &[width, width]);
        let gates = b.call("gates", MatMul::default(), &[v, weights]);
        let gates = b.batch_norm("bn1", gates, BatchNorm::rows(width));
        let gates = b.leaf("sigmoid", Activation::Sigmoid, &[gates]);
        b.mul("gate", v, gates)
    })
}

/// x · sigmoid(three taps over the neighbours of each number of x [N, D]); the taps mix the last number of the cameras with the
/// first of the LiDAR.
pub(super) fn channel_attention(b: &mut Builder, x: ValueId) -> ValueId {
    let shape = b.shape(x);
    b.module("eca", "eca_layer", |b| {
        let [n, width] = [0, 1].map(|axis| shape[axis].clone());
        let row = b.reshape("row", x, [n, 1.into(), 1.into(), width]);
        let taps = b.conv2d("conv", row, Conv2d::rows(1, 1, 3).no_bias());
        let shares = b.leaf("sigmoid", Activation::Sigmoid, &[taps]);
        let shares = b.reshape("shares", shares, shape.clone());
        b.mul("scale", x, shares)
    })
}
