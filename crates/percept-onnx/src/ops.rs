//! Each op of a graph as standard ONNX operators.

use percept_graph::{
    Activation, AdaptiveAvgPool2d, Attention, BinaryKind, Conv2d, Linear, LinearWeight, MatMul,
    Node, Op, ReduceKind, Resize, ResizeMode, ResizeScale,
};

use crate::ExportError;
use crate::lowering::{Lowering, unsupported};
use crate::schema::Attribute;

use Attribute::{Float, Int, Ints, Text};

/// Adds the ONNX nodes of one node.
pub(crate) fn lower_node(l: &mut Lowering<'_>, node: &Node) -> Result<(), ExportError> {
    if !l.graph.states().is_empty() {
        return Err(unsupported(node, "a training graph has state"));
    }
    let mut inputs = l.input_names(node);
    match &node.op {
        Op::Conv2d(conv) => {
            inputs.extend((0..node.params.len()).map(|i| l.weight(node, i)));
            l.define(node, "Conv", inputs, conv_attributes(conv));
        }
        Op::ConvTranspose2d(op) => {
            inputs.extend((0..node.params.len()).map(|i| l.weight(node, i)));
            let mut attributes = conv_attributes(&op.conv);
            attributes.push(("output_padding", ints(op.output_padding)));
            l.define(node, "ConvTranspose", inputs, attributes);
        }
        Op::Linear(op) => linear(l, node, op, inputs)?,
        Op::MatMul(op) => mat_mul(l, node, op, inputs)?,
        Op::Attention(op) => attention(l, node, op, inputs)?,
        Op::BatchNorm(op) => {
            inputs.extend((0..4).map(|i| l.weight(node, i)));
            l.define(
                node,
                "BatchNormalization",
                inputs,
                vec![("epsilon", Float(op.eps))],
            );
        }
        Op::LayerNorm(op) => {
            inputs.extend((0..2).map(|i| l.weight(node, i)));
            let attributes = vec![("axis", Int(-1)), ("epsilon", Float(op.eps))];
            l.define(node, "LayerNormalization", inputs, attributes);
        }
        Op::LayerScale(_) => {
            inputs.push(l.weight(node, 0));
            l.define(node, "Mul", inputs, vec![]);
        }
        Op::Activation(op) => activation(l, node, *op, inputs),
        Op::Softmax(_) => l.define(node, "Softmax", inputs, vec![("axis", Int(-1))]),
        Op::Binary(op) => {
            let name = match op.kind {
                BinaryKind::Add => "Add",
                BinaryKind::Sub => "Sub",
                BinaryKind::Mul => "Mul",
                BinaryKind::Div => "Div",
                BinaryKind::Max => "Max",
                BinaryKind::Min => "Min",
                BinaryKind::Greater | BinaryKind::Equal => {
                    return Err(unsupported(
                        node,
                        "ONNX compares to booleans, not to numbers",
                    ));
                }
            };
            l.define(node, name, inputs, vec![]);
        }
        Op::MaxPool2d(op) => {
            let attributes = window(op.kernel, op.stride, op.padding);
            l.define(node, "MaxPool", inputs, attributes);
        }
        Op::AvgPool2d(op) => {
            let mut attributes = window(op.kernel, op.stride, op.padding);
            attributes.push(("count_include_pad", Int(op.count_include_pad.into())));
            l.define(node, "AveragePool", inputs, attributes);
        }
        Op::AdaptiveAvgPool2d(op) => adaptive_avg_pool(l, node, op, inputs)?,
        Op::Reduce(op) => {
            let name = match op.kind {
                ReduceKind::Sum => "ReduceSum",
                ReduceKind::Mean => "ReduceMean",
                ReduceKind::Max => "ReduceMax",
                ReduceKind::Min => "ReduceMin",
            };
            inputs.push(l.integers(node, "axes", op.axes.iter().copied()));
            // No axes means none here, but all in ONNX.
            let attributes = vec![("keepdims", Int(1)), ("noop_with_empty_axes", Int(1))];
            l.define(node, name, inputs, attributes);
        }
        Op::Resize(op) => resize(l, node, op, inputs)?,
        Op::Reshape(_) => {
            let shape = l.shape(node.outputs[0])?;
            inputs.push(l.integers(node, "shape", shape));
            // A size of 0 is 0, not "as in the input".
            l.define(node, "Reshape", inputs, vec![("allowzero", Int(1))]);
        }
        Op::Permute(op) => {
            let order = ints(op.order.iter().copied());
            l.define(node, "Transpose", inputs, vec![("perm", order)]);
        }
        Op::Concat(op) => l.define(node, "Concat", inputs, vec![("axis", Int(op.axis as i64))]),
        Op::Slice(op) => {
            let length = op.length.eval(l.bindings)?;
            inputs.push(l.integers(node, "starts", [op.start]));
            inputs.push(l.integers(node, "ends", [op.start + length]));
            inputs.push(l.integers(node, "axes", [op.axis]));
            l.define(node, "Slice", inputs, vec![]);
        }
        Op::Expand(_) => {
            let shape = l.shape(node.outputs[0])?;
            inputs.push(l.integers(node, "shape", shape));
            l.define(node, "Expand", inputs, vec![]);
        }
        Op::ParameterValue(_) => {
            let name = l.weight(node, 0);
            l.alias(node.outputs[0], name);
        }
        Op::Dropout(_) => l.alias(node.outputs[0], inputs.remove(0)),
        Op::ActiveSites(_) | Op::Rulebook(_) | Op::SparseConv3d(_) | Op::SparseToDense(_) => {
            return Err(unsupported(node, "sparse convolutions have no ONNX form"));
        }
        Op::Custom(_) => return Err(unsupported(node, "custom ops have no ONNX form")),
        Op::ActivationGradient(_)
        | Op::AdamW(_)
        | Op::AdaptiveAvgPool2dGradient(_)
        | Op::Affine(_)
        | Op::AttentionGradient(_)
        | Op::AvgPool2dGradient(_)
        | Op::BatchNormGradient(_)
        | Op::BatchNormTraining(_)
        | Op::ClipFactor(_)
        | Op::Constant(_)
        | Op::Conv2dInputGradient(_)
        | Op::Conv2dWeightGradient(_)
        | Op::CrossEntropy(_)
        | Op::CrossEntropyGradient(_)
        | Op::DenseToSparse(_)
        | Op::Gather(_)
        | Op::LayerNormGradient(_)
        | Op::MaxPool2dGradient(_)
        | Op::Pad(_)
        | Op::RandomDropout(_)
        | Op::ResizeGradient(_)
        | Op::ScatterAdd(_)
        | Op::Sgd(_)
        | Op::SoftmaxGradient(_)
        | Op::SparseConv3dInputGradient(_)
        | Op::SparseConv3dWeightGradient(_) => {
            return Err(unsupported(node, "it belongs to training"));
        }
    }
    Ok(())
}

fn ints(values: impl IntoIterator<Item = usize>) -> Attribute {
    Ints(values.into_iter().map(|value| value as i64).collect())
}

/// The same padding at the beginning and at the end of both axes.
fn pads([rows, columns]: [usize; 2]) -> Attribute {
    ints([rows, columns, rows, columns])
}

fn window(kernel: usize, stride: usize, padding: usize) -> Vec<(&'static str, Attribute)> {
    vec![
        ("kernel_shape", ints([kernel; 2])),
        ("strides", ints([stride; 2])),
        ("pads", pads([padding; 2])),
    ]
}

fn conv_attributes(conv: &Conv2d) -> Vec<(&'static str, Attribute)> {
    vec![
        ("kernel_shape", ints(conv.kernel)),
        ("strides", ints(conv.stride)),
        ("pads", pads(conv.padding)),
        ("dilations", ints(conv.dilation)),
        ("group", Int(conv.groups as i64)),
    ]
}

/// Gemm takes matrices only; for more axes MatMul broadcasts a weight that is stored as [in, out].
fn linear(
    l: &mut Lowering<'_>,
    node: &Node,
    op: &Linear,
    mut inputs: Vec<String>,
) -> Result<(), ExportError> {
    if op.weight != LinearWeight::Matrix {
        return Err(unsupported(node, "its weight is stored as a convolution's"));
    }
    let has_bias = node.params.len() == 2;
    if l.shape(node.inputs[0])?.len() == 2 {
        inputs.extend((0..node.params.len()).map(|i| l.weight(node, i)));
        l.define(node, "Gemm", inputs, vec![("transB", Int(1))]);
        return Ok(());
    }
    inputs.push(l.transposed_weight(node));
    if has_bias {
        let product = l.step(node, "product", "MatMul", inputs, vec![]);
        let bias = l.weight(node, 1);
        l.define(node, "Add", vec![product, bias], vec![]);
    } else {
        l.define(node, "MatMul", inputs, vec![]);
    }
    Ok(())
}

fn mat_mul(
    l: &mut Lowering<'_>,
    node: &Node,
    op: &MatMul,
    inputs: Vec<String>,
) -> Result<(), ExportError> {
    let transposed = [(op.transpose_a, "a"), (op.transpose_b, "b")];
    let mut operands = Vec::new();
    for (index, (name, (transpose, suffix))) in inputs.into_iter().zip(transposed).enumerate() {
        operands.push(if transpose {
            let rank = l.shape(node.inputs[index])?.len();
            let order = ints((0..rank - 2).chain([rank - 1, rank - 2]));
            l.step(node, suffix, "Transpose", vec![name], vec![("perm", order)])
        } else {
            name
        });
    }
    l.define(node, "MatMul", operands, vec![]);
    Ok(())
}

/// softmax(q kᵀ · scale) v on heads [N, heads, T, D / heads].
fn attention(
    l: &mut Lowering<'_>,
    node: &Node,
    op: &Attention,
    inputs: Vec<String>,
) -> Result<(), ExportError> {
    let [n, t, _] = l
        .shape(node.inputs[0])?
        .try_into()
        .expect("the shape rule has passed");
    let parts = ["q", "k", "v"].map(|part| format!("{}/{part}", node.name));
    let split = format!("{}/split", node.name);
    l.push(
        split,
        "Split",
        inputs,
        parts.to_vec(),
        vec![("axis", Int(2)), ("num_outputs", Int(3))],
    );
    let heads_shape = l.integers(node, "heads_shape", [n, t, op.heads, op.head_width()]);
    let orders = [
        ("q", [0, 2, 1, 3]),
        ("k", [0, 2, 3, 1]),
        ("v", [0, 2, 1, 3]),
    ];
    let mut heads = Vec::new();
    for (part, (name, order)) in parts.into_iter().zip(orders) {
        let inputs = vec![part, heads_shape.clone()];
        let split = l.step(node, &format!("{name}_heads"), "Reshape", inputs, vec![]);
        let perm = vec![("perm", ints(order))];
        heads.push(l.step(
            node,
            &format!("{name}_ready"),
            "Transpose",
            vec![split],
            perm,
        ));
    }
    let [q, k, v] = heads.try_into().expect("three parts");
    let scale = l.scalar(node, "scale", 1.0 / (op.head_width() as f32).sqrt());
    let q = l.step(node, "q_scaled", "Mul", vec![q, scale], vec![]);
    let scores = l.step(node, "scores", "MatMul", vec![q, k], vec![]);
    let weights = l.step(
        node,
        "weights",
        "Softmax",
        vec![scores],
        vec![("axis", Int(-1))],
    );
    let mixed = l.step(node, "mixed", "MatMul", vec![weights, v], vec![]);
    let perm = vec![("perm", ints([0, 2, 1, 3]))];
    let tokens = l.step(node, "tokens", "Transpose", vec![mixed], perm);
    let shape = l.integers(node, "shape", [n, t, op.width]);
    l.define(node, "Reshape", vec![tokens, shape], vec![]);
    Ok(())
}

fn activation(l: &mut Lowering<'_>, node: &Node, op: Activation, inputs: Vec<String>) {
    match op {
        Activation::Relu => l.define(node, "Relu", inputs, vec![]),
        Activation::LeakyRelu { slope } => {
            l.define(node, "LeakyRelu", inputs, vec![("alpha", Float(slope))]);
        }
        Activation::Sigmoid => l.define(node, "Sigmoid", inputs, vec![]),
        Activation::Tanh => l.define(node, "Tanh", inputs, vec![]),
        Activation::Silu => {
            let gate = l.step(node, "sigmoid", "Sigmoid", inputs.clone(), vec![]);
            l.define(node, "Mul", [inputs, vec![gate]].concat(), vec![]);
        }
        // x · (1 + erf(x / √2)) / 2: in this order engines recognise and fuse it.
        Activation::Gelu => {
            let x = inputs[0].clone();
            let root = l.scalar(node, "sqrt2", std::f32::consts::SQRT_2);
            let one = l.scalar(node, "one", 1.0);
            let half = l.scalar(node, "half", 0.5);
            let scaled = l.step(node, "scaled", "Div", vec![x.clone(), root], vec![]);
            let erf = l.step(node, "erf", "Erf", vec![scaled], vec![]);
            let shifted = l.step(node, "shifted", "Add", vec![erf, one], vec![]);
            let product = l.step(node, "product", "Mul", vec![x, shifted], vec![]);
            l.define(node, "Mul", vec![product, half], vec![]);
        }
    }
}

fn adaptive_avg_pool(
    l: &mut Lowering<'_>,
    node: &Node,
    op: &AdaptiveAvgPool2d,
    inputs: Vec<String>,
) -> Result<(), ExportError> {
    if op.output == [1, 1] {
        l.define(node, "GlobalAveragePool", inputs, vec![]);
        return Ok(());
    }
    let shape = l.shape(node.inputs[0])?;
    let input = [shape[2], shape[3]];
    if [0, 1]
        .iter()
        .any(|&i| op.output[i] == 0 || !input[i].is_multiple_of(op.output[i]))
    {
        let reason = format!("a map of {input:?} has no equal bins of {:?}", op.output);
        return Err(unsupported(node, reason));
    }
    let bin = [input[0] / op.output[0], input[1] / op.output[1]];
    let attributes = vec![("kernel_shape", ints(bin)), ("strides", ints(bin))];
    l.define(node, "AveragePool", inputs, attributes);
    Ok(())
}

fn resize(
    l: &mut Lowering<'_>,
    node: &Node,
    op: &Resize,
    inputs: Vec<String>,
) -> Result<(), ExportError> {
    let (from, to) = (l.shape(node.inputs[0])?, l.shape(node.outputs[0])?);
    if from == to {
        l.define(node, "Identity", inputs, vec![]);
        return Ok(());
    }
    if let ResizeScale::OutputOffset(_) = op.scale {
        return Err(unsupported(node, "ONNX derives the scale from the sizes"));
    }
    let half_pixel = ("coordinate_transformation_mode", Text("half_pixel"));
    let cubic = |a| ("cubic_coeff_a", Float(a));
    let attributes = match op.mode {
        ResizeMode::Nearest => vec![
            ("mode", Text("nearest")),
            ("coordinate_transformation_mode", Text("asymmetric")),
            ("nearest_mode", Text("floor")),
        ],
        ResizeMode::Bilinear => vec![("mode", Text("linear")), half_pixel],
        ResizeMode::Bicubic => vec![("mode", Text("cubic")), cubic(-0.75), half_pixel],
        // Antialiased filters are cut at the edge and normalised, which ONNX calls exclude_outside.
        ResizeMode::BilinearAntialias => vec![
            ("mode", Text("linear")),
            ("antialias", Int(1)),
            ("exclude_outside", Int(1)),
            half_pixel,
        ],
        ResizeMode::BicubicAntialias => vec![
            ("mode", Text("cubic")),
            cubic(-0.5),
            ("antialias", Int(1)),
            ("exclude_outside", Int(1)),
            half_pixel,
        ],
    };
    let sizes = l.integers(node, "sizes", to);
    let absent = String::new();
    let inputs = vec![inputs[0].clone(), absent.clone(), absent, sizes];
    l.define(node, "Resize", inputs, attributes);
    Ok(())
}
