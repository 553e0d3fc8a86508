//! Fuses activations of training graphs.

use std::collections::BTreeSet;

use percept_graph::{Activation, Graph, Op};

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
