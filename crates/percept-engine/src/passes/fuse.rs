//! Fuses what surrounds a contraction into its kernel: the scale of its input, the residual and the
//! activation of its output. Each saves a trip of a whole tensor through memory.

use std::collections::BTreeSet;

use percept_graph::{Binary, BinaryKind, Conv2d, Graph, Op, ValueId};

use super::fold::absorb_next;
use crate::lowering::{Fused, Lowered, LoweredNode};
use crate::ops::has_depthwise_kernel;

/// x · s with s [N, C, 1, 1] in front of a pointwise convolution (squeeze and excite): scaled while packing.
pub fn input_scales(graph: &Graph, lowered: &mut Lowered) {
    let sole_readers = lowered.sole_readers();
    let mut removed = BTreeSet::new();
    for i in 0..lowered.steps.len() {
        let step = &lowered.steps[i];
        let (&[scaled], &[x, scale]) = (&step.outputs[..], &step.inputs[..]) else {
            continue;
        };
        let is_product = matches!(
            graph.node(step.node).op,
            Op::Binary(Binary {
                kind: BinaryKind::Mul
            })
        );
        let Some(&j) = sole_readers.get(&scaled) else {
            continue;
        };
        if !is_product
            || !is_channel_scale(graph, x, scale)
            || !is_pointwise(graph, &lowered.steps[j])
        {
            continue;
        }
        let node = lowered.steps[i].node;
        let conv = &mut lowered.steps[j];
        conv.inputs = vec![x];
        conv.fused.input_scale = Some(scale);
        conv.absorbed.push(node);
        removed.insert(i);
    }
    lowered.remove(&removed);
}

fn is_channel_scale(graph: &Graph, x: ValueId, scale: ValueId) -> bool {
    let (x, scale) = (&graph.value(x).ty.shape, &graph.value(scale).ty.shape);
    x.len() == 4
        && scale.len() == 4
        && x[..2] == scale[..2]
        && scale[2..].iter().all(|d| d.as_const() == Some(1))
}

fn is_pointwise(graph: &Graph, step: &LoweredNode) -> bool {
    match &graph.node(step.node).op {
        Op::Conv2d(Conv2d {
            kernel: [1, 1],
            stride: [1, 1],
            padding: [0, 0],
            groups: 1,
            ..
        }) => step.fused.input_scale.is_none(),
        _ => false,
    }
}

/// conv(x) + r or linear(x) + r, and in training the gradient of a value that somebody else reads too: added while the tile is in the cache. Of two candidates the later one is taken, because
/// the other operand exists by then.
pub fn residuals(graph: &Graph, lowered: &mut Lowered) {
    let sole_readers = lowered.sole_readers();
    let producers = lowered.producers();
    let mut removed = BTreeSet::new();
    for j in 0..lowered.steps.len() {
        let sum = lowered.steps[j].clone();
        let &[a, b] = &sum.inputs[..] else { continue };
        let is_sum = matches!(
            graph.node(sum.node).op,
            Op::Binary(Binary {
                kind: BinaryKind::Add
            })
        );
        if !is_sum || a == b || graph.value(a).ty != graph.value(b).ty {
            continue;
        }
        let exists_before = |value: ValueId, i: usize| producers.get(&value).is_none_or(|&p| p < i);
        let candidate = |value: ValueId, other: ValueId| {
            let &i = producers.get(&value)?;
            let step = &lowered.steps[i];
            let op = &graph.node(step.node).op;
            let contraction = match graph.states().is_empty() {
                true => matches!(op, Op::Conv2d(_) | Op::Linear(_) | Op::SparseConv3d(_)),
                false => matches!(op, Op::Conv2dInputGradient(_)),
            };
            let free = step.fused.residual.is_none()
                && step.fused.activation.is_none()
                && !removed.contains(&i);
            let fits = contraction
                && free
                && sole_readers.get(&value) == Some(&j)
                && exists_before(other, i);
            fits.then_some((i, other))
        };
        if let Some((i, other)) = candidate(a, b).max(candidate(b, a)) {
            lowered.steps[i].fused.residual = Some(other);
            lowered.steps[i].absorb(&sum);
            removed.insert(j);
        }
    }
    lowered.remove(&removed);
}

/// An activation behind a contraction: applied while the tile is in registers.
pub fn activations(graph: &Graph, lowered: &mut Lowered) {
    absorb_next(graph, lowered, |first, next, step, _| match (first, next) {
        (
            Op::Conv2d(_) | Op::ConvTranspose2d(_) | Op::Linear(_) | Op::SparseConv3d(_),
            Op::Activation(activation),
        ) if step.fused.activation.is_none() => {
            step.fused.activation = Some(*activation);
            true
        }
        _ => false,
    });
}

/// A depthwise convolution behind a dense one, both on floats: computed a few channels at a time, so that the map between them is never
/// made.
pub fn depthwise_convs(graph: &Graph, lowered: &mut Lowered) {
    let forms = lowered.forms.clone();
    let plain = |fused: &Fused| {
        fused.residual.is_none() && fused.input_scale.is_none() && fused.input_bytes.is_none()
    };
    absorb_next(graph, lowered, |first, next, step, later| {
        let (Op::Conv2d(first), Op::Conv2d(second)) = (first, next) else {
            return false;
        };
        let mut values = step.outputs.iter().chain(&later.outputs);
        let on_floats = values.all(|value| !forms.contains_key(value));
        let fits = plain(&step.fused)
            && plain(&later.fused)
            && on_floats
            && has_depthwise_kernel(first, second);
        if fits {
            step.fused.depthwise = Some(Box::new(later.clone()));
        }
        fits
    });
}

/// A pooling behind a convolution on floats: done sample by sample, so that the map, often the largest of all, is never made.
pub fn max_pools(graph: &Graph, lowered: &mut Lowered) {
    let forms = lowered.forms.clone();
    absorb_next(graph, lowered, |first, next, step, later| {
        let (Op::Conv2d(_), Op::MaxPool2d(pool)) = (first, next) else {
            return false;
        };
        let fused = &mut step.fused;
        let alone =
            fused.residual.is_none() && fused.input_scale.is_none() && fused.depthwise.is_none();
        let values = step.outputs.iter().chain(&later.outputs);
        let on_floats = fused.input_bytes.is_none()
            && values.into_iter().all(|value| !forms.contains_key(value));
        if alone && on_floats {
            fused.max_pool = Some(pool.clone());
        }
        alone && on_floats
    });
}
