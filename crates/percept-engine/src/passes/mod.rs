//! The rewrites between lowering and planning, each with one job.

mod fold;
mod fuse;
mod quantize;
mod train;

use percept_graph::Graph;

use crate::lowering::Lowered;
use crate::options::Integers;

/// Folds what follows layers into their weights.
pub fn fold(graph: &Graph, lowered: &mut Lowered) {
    fold::batch_norms(graph, lowered);
    fold::layer_scales(graph, lowered);
}

/// Runs every pass, in the one order that works: a fold must see the bare convolution, and what
/// is pooled must be known to be no bytes.
///
/// Where parameters are state there is nothing to fold, and hardly a value that the backward pass does not read as well.
pub fn run(graph: &Graph, lowered: &mut Lowered, integers: Integers) {
    if !graph.states().is_empty() {
        train::activations(graph, lowered);
        train::kept(graph, lowered);
        fuse::residuals(graph, lowered);
        return;
    }
    fold(graph, lowered);
    fuse::input_scales(graph, lowered);
    fuse::residuals(graph, lowered);
    fuse::activations(graph, lowered);
    if integers != Integers::Simulate {
        quantize::inputs(graph, lowered);
        quantize::values(graph, lowered, integers);
        quantize::shortcuts(graph, lowered);
    }
    fuse::depthwise_convs(graph, lowered);
    fuse::max_pools(graph, lowered);
}
