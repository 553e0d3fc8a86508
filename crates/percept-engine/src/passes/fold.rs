//! Folds per-channel scales that follow a linear op into its weights and bias.

use std::collections::BTreeSet;

use percept_graph::{Graph, Op};

use crate::lowering::{Lowered, LoweredNode};

/// A convolution or a linear map of rows, then BatchNorm: w' = w · γ/σ, b' = (b - μ) · γ/σ + β.
pub fn batch_norms(graph: &Graph, lowered: &mut Lowered) {
    absorb_next(graph, lowered, |first, next, step, later| {
        let fits = match (first, next) {
            (Op::Conv2d(_) | Op::ConvTranspose2d(_) | Op::SparseConv3d(_), Op::BatchNorm(_)) => {
                true
            }
            // The channels of rows are the last axis; those of longer shapes are not.
            (Op::Linear(_), Op::BatchNorm(_)) => graph.value(later.inputs[0]).ty.shape.len() == 2,
            _ => false,
        };
        if fits {
            step.fused.follower = Some(later.node);
        }
        fits
    });
}

/// Linear, then LayerScale: w' = γ w, b' = γ b.
pub fn layer_scales(graph: &Graph, lowered: &mut Lowered) {
    absorb_next(graph, lowered, |first, next, step, later| {
        let alone = step.fused.follower.is_none();
        let fits = alone && matches!((first, next), (Op::Linear(_), Op::LayerScale(_)));
        if fits {
            step.fused.follower = Some(later.node);
        }
        fits
    });
}

/// Lets each step absorb the step that alone reads its output, where `take` agrees (and notes it in the step).
pub fn absorb_next(
    graph: &Graph,
    lowered: &mut Lowered,
    take: impl Fn(&Op, &Op, &mut LoweredNode, &LoweredNode) -> bool,
) {
    let sole_readers = lowered.sole_readers();
    let mut removed = BTreeSet::new();
    for i in 0..lowered.steps.len() {
        let [output] = lowered.steps[i].outputs[..] else {
            continue;
        };
        let Some(&j) = sole_readers.get(&output) else {
            continue;
        };
        let later = lowered.steps[j].clone();
        let (first, next) = (
            &graph.node(lowered.steps[i].node).op,
            &graph.node(later.node).op,
        );
        if later.inputs == [output] && take(first, next, &mut lowered.steps[i], &later) {
            lowered.steps[i].absorb(&later);
            removed.insert(j);
        }
    }
    lowered.remove(&removed);
}
