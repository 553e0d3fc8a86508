//! The rewrites between lowering and planning, each with one job.

mod fold;
mod fuse;

use percept_graph::Graph;

use crate::lowering::Lowered;

/// Runs every pass, in the one order that works: a fold must see the bare convolution, an activation must come last.
pub fn run(graph: &Graph, lowered: &mut Lowered) {
    fold::batch_norms(graph, lowered);
    fold::layer_scales(graph, lowered);
    fuse::input_scales(graph, lowered);
    fuse::residuals(graph, lowered);
    fuse::activations(graph, lowered);
}
