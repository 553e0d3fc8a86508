//! The loss of places: a place must be nearer to itself seen again than to any other, by a margin.
//!
//! Triplets (anchor, positive, negative) are rows of the descriptors, given as inputs. With d(a, b) = ‖a - b + 1e-6‖, as PyTorch's
//! `TripletMarginLoss`: max(0, d(anchor, positive) - d(anchor, negative) + margin).

use percept_graph::{
    Affine, Binary, BinaryKind, Builder, Choice, Dim, Gather, Graph, GraphError, Normalize, Reduce,
    ReduceKind, ValueId,
};

use super::{DESCRIPTOR, Lcpr};

/// The inputs that name the rows of each triplet, i32 [T].
pub const TRIPLET: [&str; 3] = ["anchor", "positive", "negative"];

/// How much nearer a positive must be.
pub const MARGIN: f32 = 0.5;

/// Added to differences, as PyTorch does.
const EPS: f32 = 1e-6;

/// Over which triplets the loss is a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mean {
    /// All of them.
    All,
    /// Those that still break the margin, so that the many easy ones do not drown them.
    Active,
}

impl Lcpr {
    /// The loss of a batch, before it is differentiated: `camera`, `range` and [`TRIPLET`] to `loss`, at these levels of the
    /// network's axes; the descriptors are an output too, and `active` is the share of triplets that break the margin.
    pub fn training_graph(&self, choice: &Choice, mean: Mean) -> Result<Graph, GraphError> {
        let graph = self.graph(choice)?;
        let descriptors = graph.find(DESCRIPTOR)?;
        let mut b = Builder::resume(graph).choosing(choice);
        let rows = TRIPLET.map(|name| b.integer_input(name, [Dim::symbol("T")]));
        let mut active = None;
        let loss = b.module("loss", "TripletMarginLoss", |b| {
            let [anchor, positive, negative] =
                [0, 1, 2].map(|i| b.call(TRIPLET[i], Gather, &[descriptors, rows[i]]));
            let near = distance(b, anchor, positive);
            let far = distance(b, anchor, negative);
            let apart = minus(b, near, far);
            let apart = b.call("margin", Affine::scaled(1.0).shifted(MARGIN), &[apart]);
            let hinge = b.relu("hinge", apart);
            let nothing = b.call("nothing", Affine::scaled(0.0), &[hinge]);
            let greater = Binary {
                kind: BinaryKind::Greater,
            };
            let breaks = b.call("breaks", greater, &[hinge, nothing]);
            let share = b.call("share", over_all(ReduceKind::Mean), &[breaks]);
            active = Some(b.reshape("active", share, []));
            let loss = match mean {
                Mean::All => b.call("mean", over_all(ReduceKind::Mean), &[hinge]),
                Mean::Active => {
                    let sum = b.call("sum", over_all(ReduceKind::Sum), &[hinge]);
                    let count = b.call("count", over_all(ReduceKind::Sum), &[breaks]);
                    // Never a division by nothing, and no other number than the count where there is one.
                    let count = b.call("some", Affine::scaled(1.0).shifted(1e-12), &[count]);
                    let divided = Binary {
                        kind: BinaryKind::Div,
                    };
                    b.call("mean", divided, &[sum, count])
                }
            };
            b.reshape("number", loss, [])
        });
        b.output("loss", loss);
        if let Some(active) = active {
            b.output("active", active);
        }
        b.finish()
    }
}

fn over_all(kind: ReduceKind) -> Reduce {
    Reduce {
        kind,
        axes: vec![0, 1],
    }
}

fn minus(b: &mut Builder, left: ValueId, right: ValueId) -> ValueId {
    let kind = BinaryKind::Sub;
    b.call("minus", Binary { kind }, &[left, right])
}

/// ‖a - b + eps‖ of each row, as Σ x · x / ‖x‖, whose gradient is that of the length.
fn distance(b: &mut Builder, left: ValueId, right: ValueId) -> ValueId {
    let x = minus(b, left, right);
    let x = b.call("apart", Affine::scaled(1.0).shifted(EPS), &[x]);
    let unit = b.call("unit", Normalize::default(), &[x]);
    let along = b.mul("along", x, unit);
    let sum = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![1],
    };
    b.call("distance", sum, &[along])
}
