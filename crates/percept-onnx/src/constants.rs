//! Values that depend on parameters only and that ONNX cannot compute itself.
//!
//! DINOv2 resizes its position embedding with coordinates that ONNX's Resize cannot express. For fixed input
//! sizes the result is a constant, so it is computed here and stored.

use percept_graph::{
    Bindings, Graph, Node, NodeId, Op, Resize, ResizeMode, ValueId, ValueSource, WeightSource,
};
use percept_kernels::reference;
use percept_kernels::resize::{self, ResizeShape};
use percept_kernels::strides::{Odometer, contiguous_strides};

use crate::ExportError;

/// Whether a value is made of parameters by ops that [`evaluate`] knows.
fn is_constant(graph: &Graph, value: ValueId) -> bool {
    let ValueSource::Node(node, _) = graph.value(value).source else {
        return false;
    };
    let node = graph.node(node);
    let known = matches!(
        node.op,
        Op::ParameterValue(_) | Op::Slice(_) | Op::Reshape(_) | Op::Permute(_) | Op::Resize(_)
    );
    known && node.inputs.iter().all(|&input| is_constant(graph, input))
}

/// Whether a node is stored as a constant instead of being exported: a resize of parameters.
pub(crate) fn is_folded(graph: &Graph, node: &Node) -> bool {
    matches!(node.op, Op::Resize(_)) && is_constant(graph, node.outputs[0])
}

/// The value of a constant node.
pub(crate) fn evaluate(
    graph: &Graph,
    bindings: &Bindings,
    weights: &dyn WeightSource,
    node: NodeId,
) -> Result<Vec<f32>, ExportError> {
    let node = graph.node(node);
    let shape = graph.value_shape(node.outputs[0], bindings)?;
    let (Some(&input), op) = (node.inputs.first(), &node.op) else {
        let param = graph.param(node.params[0]);
        return Ok(weights.read(&param.name, &param.shape)?.into_owned());
    };
    let ValueSource::Node(source, _) = graph.value(input).source else {
        unreachable!("{} is constant", node.name)
    };
    let x = evaluate(graph, bindings, weights, source)?;
    let in_shape = graph.value_shape(input, bindings)?;
    let strides = contiguous_strides(&in_shape);
    Ok(match op {
        Op::Reshape(_) => x,
        Op::Slice(slice) => gather(&x[slice.start * strides[slice.axis]..], &shape, &strides),
        Op::Permute(permute) => {
            let strides: Vec<usize> = permute.order.iter().map(|&axis| strides[axis]).collect();
            gather(&x, &shape, &strides)
        }
        Op::Resize(op) => resize(op, &x, &in_shape, &shape),
        _ => unreachable!("{} is constant", node.name),
    })
}

fn gather(x: &[f32], shape: &[usize], strides: &[usize]) -> Vec<f32> {
    Odometer::new(shape, strides)
        .map(|offset| x[offset])
        .collect()
}

fn resize(op: &Resize, x: &[f32], from: &[usize], to: &[usize]) -> Vec<f32> {
    let (input, output) = ([from[2], from[3]], [to[2], to[3]]);
    if input == output {
        return x.to_vec();
    }
    let how = match op.mode {
        ResizeMode::Nearest => resize::Resize::NEAREST,
        ResizeMode::Bilinear => resize::Resize::BILINEAR,
        ResizeMode::Bicubic => resize::Resize::BICUBIC,
        ResizeMode::BilinearAntialias => resize::Resize::ANTIALIASED_BILINEAR,
        ResizeMode::BicubicAntialias => resize::Resize::ANTIALIASED_BICUBIC,
    };
    let how = how.with_step([op.step(input[0], output[0]), op.step(input[1], output[1])]);
    let planes = from[0] * from[1];
    let shape = ResizeShape {
        planes,
        input,
        output,
    };
    let mut y = vec![0.0; shape.out_len()];
    reference::resize(&how, &shape, x, &mut y);
    y
}
