//! Fuses what surrounds the batch norms of training graphs.

use std::collections::{BTreeMap, BTreeSet};

use percept_graph::{Activation, Cast, DType, Graph, Op};

use crate::lowering::Lowered;

/// A ReLU behind a batch norm: applied while the channel is in the cache. The backward pass reads the norm's input and the
/// ReLU's output, never what lies between.
pub fn activations(graph: &Graph, lowered: &mut Lowered) {
    let sole_readers = lowered.sole_readers();
    let mut removed = BTreeSet::new();
    for i in 0..lowered.steps.len() {
        if !matches!(
            graph.node(lowered.steps[i].node).op,
            Op::BatchNormTraining(_) | Op::BatchNormAgain(_)
        ) {
            continue;
        }
        let Some(&j) = sole_readers.get(&lowered.steps[i].outputs[0]) else {
            continue;
        };
        let Op::Activation(activation @ Activation::Relu) = graph.node(lowered.steps[j].node).op
        else {
            continue;
        };
        let later = lowered.steps[j].clone();
        let norm = &mut lowered.steps[i];
        norm.fused.activation = Some(activation);
        norm.absorbed.push(later.node);
        norm.outputs[0] = later.outputs[0];
        removed.insert(j);
    }
    lowered.remove(&removed);
}

/// What waits for the backward pass of a batch norm's input and output: rounded while the channel is in the cache. An input is
/// rounded so that the ReLU behind the norm lets the same through where one is, and that ReLU is in the norm's step as well.
pub fn kept(graph: &Graph, lowered: &mut Lowered) {
    let mut norm_of_input = BTreeMap::new();
    let mut norm_of_output = BTreeMap::new();
    let mut removed = BTreeSet::new();
    for i in 0..lowered.steps.len() {
        let step = &lowered.steps[i];
        let from = step.inputs.first().copied();
        let (place, norm) = match &graph.node(step.node).op {
            Op::BatchNormTraining(_) => {
                norm_of_input.insert(step.inputs[0], i);
                norm_of_output.insert(step.outputs[0], i);
                continue;
            }
            Op::Cast(Cast { dtype }) if *dtype != DType::F32 => {
                let of =
                    |norms: &BTreeMap<_, usize>| from.and_then(|value| norms.get(&value).copied());
                match (of(&norm_of_input), of(&norm_of_output)) {
                    (Some(norm), _) if lowered.steps[norm].fused.activation.is_none() => (0, norm),
                    (_, Some(norm)) => (1, norm),
                    _ => continue,
                }
            }
            Op::RectifiedCast(_) => match from.and_then(|value| norm_of_input.get(&value)) {
                Some(&norm) if lowered.steps[norm].fused.activation.is_some() => (0, norm),
                _ => continue,
            },
            _ => continue,
        };
        let (node, made) = (step.node, step.outputs[0]);
        let norm = &mut lowered.steps[norm];
        if norm.fused.kept[place].is_none() {
            norm.fused.kept[place] = Some(made);
            norm.absorbed.push(node);
            removed.insert(i);
        }
    }
    for step in &mut lowered.steps {
        let kept = step.fused.kept;
        step.outputs.extend(kept.into_iter().flatten());
    }
    lowered.remove(&removed);
}
