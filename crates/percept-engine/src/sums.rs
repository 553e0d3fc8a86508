//! What becomes of the sums of a layer in integers, for whoever writes such layers down.

use std::collections::BTreeMap;

use percept_graph::{Amax, Graph, NodeId, Op, Per, WeightError, WeightSource};
use percept_kernels::int8::ByteScale;

use crate::EngineError;
use crate::lowering::Lowered;
use crate::ops::integers::{follow, row_steps};
use crate::passes;
use crate::weights::{BIAS, ChannelAffine};

/// `sum · factor + shift`, one of each for each output channel, in the very floats of [`Integers::Exact`](crate::Integers::Exact).
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct SumScale {
    pub factors: Vec<f32>,
    pub shifts: Option<Vec<f32>>,
}

impl SumScale {
    /// That of a layer behind a quantiser with a known range, with the batch norm or layer scale that follows folded in. Where
    /// weights have a scale for each input channel, their sums are of numbers already, and only the input is counted in steps.
    pub fn of(
        graph: &Graph,
        weights: &dyn WeightSource,
        layer: NodeId,
        follower: Option<NodeId>,
    ) -> Result<Option<SumScale>, EngineError> {
        let node = graph.node(layer);
        let Some((grid, input)) = graph.grids(node) else {
            return Ok(None);
        };
        let (Amax::Static(amax), Some(outputs)) = (input.amax, output_channels(&node.op)) else {
            return Ok(None);
        };
        let read = |node: &percept_graph::Node, position: usize| -> Result<Vec<f32>, WeightError> {
            let param = graph.param(node.params[position]);
            let values = weights.read(&param.name, &param.shape)?.into_owned();
            weights.release(&param.name);
            Ok(values)
        };
        let affine = follower.map(|follower| {
            let follower = graph.node(follower);
            ChannelAffine::of(follower, |position| Ok(read(follower, position)?))
        });
        let affine = affine.transpose()?;
        let mut factors = match (&node.op, grid.per) {
            (Op::ConvTranspose2d(_), Per::Channel) => vec![1.0; outputs],
            _ => row_steps(&read(node, 0)?, grid, outputs),
        };
        follow(
            &mut factors,
            affine.as_ref().map(|affine| affine.scale.as_slice()),
        );
        let step = ByteScale::reaching(amax, true).scale;
        factors.iter_mut().for_each(|factor| *factor *= step);
        let bias = (node.params.len() > BIAS).then(|| read(node, BIAS));
        let shifts = ChannelAffine::fold(affine.as_ref(), bias.transpose()?);
        Ok(Some(SumScale { factors, shifts }))
    }
}

fn output_channels(op: &Op) -> Option<usize> {
    match op {
        Op::Conv2d(conv) => Some(conv.out_channels),
        Op::ConvTranspose2d(op) => Some(op.conv.out_channels),
        Op::Linear(op) => Some(op.out_features),
        _ => None,
    }
}

/// The batch norms and layer scales that the engine folds into the layers in front of them, by those layers.
pub fn followers(graph: &Graph) -> BTreeMap<NodeId, NodeId> {
    let mut lowered = Lowered::new(graph);
    passes::fold(graph, &mut lowered);
    let steps = lowered.steps.iter();
    steps
        .filter_map(|step| Some((step.node, step.fused.follower?)))
        .collect()
}
