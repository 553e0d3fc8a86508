//! The rewrites between lowering and planning, each with one job.

mod fold;
mod fuse;
mod train;

use percept_graph::Graph;

use crate::lowering::Lowered;

/// Runs every pass, in the one order that works: a fold must see the bare convolution, an activation must come last.
///
/// Where parameters are state there is nothing to fold, and hardly a value that the backward pass does not read as well.
pub fn run(graph: &Graph, lowered: &mut Lowered) {
    if !graph.states().is_empty() {
        train::activations(graph, lowered);
        fuse::residuals(graph, lowered);
        return;
    }
    fold::batch_norms(graph, lowered);
    fold::layer_scales(graph, lowered);
    fuse::input_scales(graph, lowered);
    fuse::residuals(graph, lowered);
    fuse::activations(graph, lowered);
}
