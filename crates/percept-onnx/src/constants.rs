//! Values that depend on parameters only and that ONNX cannot compute itself.
//!
//! DINOv2 resizes its position embedding with coordinates that ONNX's Resize cannot express. For fixed input
//! sizes the result is a constant, so the reference engine computes it, and it is stored.

use percept_graph::{Graph, Node, Op, ValueId, ValueSource};

/// Whether a value is made of parameters alone.
fn is_constant(graph: &Graph, value: ValueId) -> bool {
    let ValueSource::Node(node, _) = graph.value(value).source else {
        return false;
    };
    let node = graph.node(node);
    node.inputs.iter().all(|&input| is_constant(graph, input))
}

/// Whether a node is stored as a constant instead of being exported: a resize of parameters.
pub(crate) fn is_folded(graph: &Graph, node: &Node) -> bool {
    matches!(node.op, Op::Resize(_)) && is_constant(graph, node.outputs[0])
}
