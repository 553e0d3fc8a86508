//! The slow way: every node as it is written, on reference kernels, in f32 or f64.
//!
//! Nothing is fused, folded, planned or parallel here. It is what the fast engine is checked against.

mod training;

use std::collections::BTreeMap;

use percept_graph::{Bindings, DType, Graph, Node, Op, StateKind, Tensor, ValueId, WeightSource};
use percept_kernels::attention::HeadsView;
use percept_kernels::reference::{self, Real, gradient};
use percept_kernels::strides::{Odometer, broadcast_strides, contiguous_strides};
use percept_kernels::{Cpu, Isa};

use crate::defining::Defining;
use crate::segment::bind_output;
use crate::{EngineError, shapes};

/// A dense tensor of the reference engine.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct RealTensor<T> {
    pub shape: Vec<usize>,
    pub data: Vec<T>,
}

impl<T: Real> RealTensor<T> {
    fn of(tensor: &Tensor<'_>) -> Self {
        let values = tensor.to_f64();
        Self {
            shape: tensor.shape().to_vec(),
            data: values.iter().map(|&value| T::from_f64(value)).collect(),
        }
    }
}

/// Runs a graph on reference kernels and returns its outputs, in order.
pub fn run_reference<T: Real>(
    graph: &Graph,
    weights: &dyn WeightSource,
    inputs: &[(&str, &Tensor<'_>)],
) -> Result<Vec<(String, RealTensor<T>)>, EngineError> {
    let shapes: Vec<(&str, Vec<usize>)> = inputs
        .iter()
        .map(|(name, tensor)| (*name, tensor.shape().to_vec()))
        .collect();
    let mut bindings = graph.bind(&shapes)?;
    let mut values: BTreeMap<ValueId, RealTensor<T>> = BTreeMap::new();
    for input in graph.inputs() {
        let (_, tensor) = inputs
            .iter()
            .find(|(name, _)| *name == input.name)
            .expect("bind checked the names");
        let (expected, got) = (graph.value(input.value).ty.dtype, tensor.dtype());
        if got != expected {
            let input = input.name.clone();
            return Err(EngineError::InputType {
                input,
                expected,
                got,
            });
        }
        values.insert(input.value, RealTensor::of(tensor));
    }
    for state in graph.states() {
        let shape = graph.value_shape(state.value, &bindings)?;
        let data = match state.kind {
            StateKind::Parameter | StateKind::Buffer => read(weights, &state.name, &shape)?,
            StateKind::Moment => vec![T::ZERO; shape.iter().product()],
        };
        values.insert(state.value, RealTensor { shape, data });
    }
    let mut last_use: BTreeMap<ValueId, usize> = BTreeMap::new();
    for node in graph.nodes() {
        last_use.extend(node.inputs.iter().map(|&value| (value, node.id.index())));
    }
    last_use.extend(
        graph
            .outputs()
            .iter()
            .map(|(_, value)| (*value, usize::MAX)),
    );
    for node in graph.nodes() {
        let args: Vec<&RealTensor<T>> = node.inputs.iter().map(|value| &values[value]).collect();
        let outputs = if let Some(outputs) = define(graph, node, &args)? {
            for (&value, tensor) in node.outputs.iter().zip(&outputs) {
                bind_output(&graph.value(value).ty, &tensor.shape, &mut bindings)
                    .map_err(|message| failed(node, message))?;
            }
            outputs
        } else {
            let params = read_params(graph, node, weights, &args)?;
            let shapes = node.outputs.iter();
            let shapes: Vec<Vec<usize>> = shapes
                .map(|&value| graph.value_shape(value, &bindings))
                .collect::<Result<_, _>>()?;
            let computed = compute(node, &args, &params, &shapes, &bindings)?;
            let tensors = shapes.into_iter().zip(computed);
            tensors
                .map(|(shape, data)| RealTensor { shape, data })
                .collect()
        };
        values.extend(node.outputs.iter().copied().zip(outputs));
        values.retain(|value, _| {
            last_use
                .get(value)
                .is_some_and(|&last| last > node.id.index())
        });
    }
    Ok(graph
        .outputs()
        .iter()
        .map(|(name, value)| (name.clone(), values[value].clone()))
        .collect())
}

fn read<T: Real>(
    weights: &dyn WeightSource,
    name: &str,
    shape: &[usize],
) -> Result<Vec<T>, EngineError> {
    let values = weights.read(name, shape)?;
    Ok(values.iter().map(|&v| T::from_f64(f64::from(v))).collect())
}

/// The parameters of a node: its own, or the values that stand for them where parameters are state.
fn read_params<T: Real>(
    graph: &Graph,
    node: &Node,
    weights: &dyn WeightSource,
    args: &[&RealTensor<T>],
) -> Result<Vec<Vec<T>>, EngineError> {
    if let Some(values) = node.param_values() {
        let values = &args[args.len() - values.len()..];
        return Ok(values.iter().map(|arg| arg.data.clone()).collect());
    }
    let params = node.params.iter().map(|&id| graph.param(id));
    params
        .map(|param| read(weights, &param.name, &param.shape))
        .collect()
}

fn compute<T: Real>(
    node: &Node,
    args: &[&RealTensor<T>],
    params: &[Vec<T>],
    shapes: &[Vec<usize>],
    bindings: &Bindings,
) -> Result<Vec<Vec<T>>, EngineError> {
    let empty = |shape: &Vec<usize>| vec![T::ZERO; shape.iter().product()];
    let mut outputs: Vec<Vec<T>> = shapes.iter().map(empty).collect();
    let (y, others) = outputs.split_first_mut().expect("a node has an output");
    let shape = shapes[0].as_slice();
    let x = args.first().map_or(&[][..], |arg| &arg.data);
    let dims = args.first().map_or(&[][..], |arg| &arg.shape);
    let bias = |wanted: bool| wanted.then(|| params[1].as_slice());
    match &node.op {
        Op::Conv2d(conv) => {
            reference::conv2d(&shapes::conv(conv, dims), x, &params[0], bias(conv.bias), y);
        }
        Op::ConvTranspose2d(op) => {
            let shape = shapes::conv_transpose(op, dims);
            reference::conv_transpose2d(&shape, x, &params[0], bias(op.conv.bias), y);
        }
        Op::Linear(op) => {
            let rows = x.len() / op.in_features.max(1);
            reference::linear(
                [rows, op.in_features, op.out_features],
                x,
                &op.as_matrix(&params[0]),
                bias(op.bias),
                y,
            );
        }
        Op::MatMul(op) => {
            let shape = shapes::matmul(op, dims, &args[1].shape);
            reference::matmul(&shape, x, &args[1].data, y);
        }
        Op::BatchNorm(op) => {
            let [weight, shift, mean, variance] = params else {
                unreachable!("declared by the op")
            };
            let eps = T::from_f64(f64::from(op.eps));
            let scale: Vec<T> = weight
                .iter()
                .zip(variance)
                .map(|(&w, &v)| w / (v + eps).sqrt())
                .collect();
            let moved = shift
                .iter()
                .zip(mean)
                .zip(&scale)
                .map(|((&b, &m), &s)| b - m * s)
                .collect::<Vec<T>>();
            reference::batch_norm(&shapes::channels(dims), x, &scale, &moved, y);
        }
        Op::LayerNorm(op) => {
            reference::layer_norm(x, &params[0], &params[1], T::from_f64(f64::from(op.eps)), y);
        }
        Op::Activation(op) => reference::unary(shapes::activation(*op), x, y),
        Op::Softmax(_) => reference::softmax(dims.last().copied().unwrap_or(1), x, y),
        Op::Attention(op) => {
            let shape = shapes::attention(op, dims);
            let [q, k, v] = HeadsView::packed_qkv(x, &shape);
            reference::attention(
                &shape,
                T::from_f64(shapes::attention_scale(op)),
                q,
                k,
                v,
                None,
                y,
            );
        }
        Op::MaxPool2d(op) => reference::max_pool2d(&shapes::max_pool(op, dims), x, y),
        Op::AvgPool2d(op) => {
            reference::avg_pool2d(&shapes::avg_pool(op, dims), op.count_include_pad, x, y);
        }
        Op::AdaptiveAvgPool2d(op) => {
            reference::adaptive_avg_pool2d(dims[0] * dims[1], [dims[2], dims[3]], op.output, x, y);
        }
        Op::Binary(op) => {
            let b = args[1];
            reference::binary(shapes::binary(op.kind), x, dims, &b.data, &b.shape, y);
        }
        Op::LayerScale(op) => {
            let scale = shapes::binary(percept_graph::BinaryKind::Mul);
            reference::binary(scale, x, dims, &params[0], &[op.features], y);
        }
        Op::Reduce(op) => reference::reduce(shapes::reduce(op.kind), dims, &op.axes, x, y),
        Op::Resize(op) => match shapes::resize(op, dims, shape) {
            Some((how, sizes)) => reference::resize(&how, &sizes, x, y),
            None => y.copy_from_slice(x),
        },
        Op::Reshape(_) | Op::Dropout(_) => y.copy_from_slice(x),
        Op::Permute(op) => {
            let strides = contiguous_strides(dims);
            let strides: Vec<usize> = op.order.iter().map(|&axis| strides[axis]).collect();
            gather(x, shape, &strides, y);
        }
        Op::Expand(_) => gather(x, shape, &broadcast_strides(dims, shape), y),
        Op::Slice(op) => {
            let strides = contiguous_strides(dims);
            gather(&x[op.start * strides[op.axis]..], shape, &strides, y);
        }
        Op::Concat(op) => concat(args, op.axis, y),
        Op::ParameterValue(_) => y.copy_from_slice(&params[0]),
        Op::SparseConv3d(op) => {
            let (pairs, starts) = (&args[2].data, &args[3].data);
            let group_of = |pair: usize| starts.partition_point(|start| index(*start) <= pair) - 1;
            let (inputs, outputs, taps) = (op.in_channels, op.out_channels, op.window.taps());
            if op.bias {
                for (at, y) in y.iter_mut().enumerate() {
                    *y = params[1][at % outputs];
                }
            }
            for (pair, rows) in pairs.chunks_exact(2).enumerate() {
                let (to, from, tap) = (index(rows[0]), index(rows[1]), group_of(pair) % taps);
                for k in 0..outputs {
                    for c in 0..inputs {
                        let w = params[0][(k * taps + tap) * inputs + c];
                        y[to * outputs + k] += w * x[from * inputs + c];
                    }
                }
            }
        }
        Op::SparseToDense(op) => {
            let [depth, height, width] = op.cells;
            let channels = dims[1];
            for (site, x) in args[1].data.chunks_exact(4).zip(x.chunks_exact(channels)) {
                let [n, z, row, column] = [0, 1, 2, 3].map(|axis| index(site[axis]));
                for (c, &x) in x.iter().enumerate() {
                    let plane = (n * channels + c) * depth + z;
                    y[(plane * height + row) * width + column] = x;
                }
            }
        }
        Op::Affine(op) => training::affine(op, x, bindings, y)?,
        Op::Constant(op) => y.fill(T::from_f64(f64::from(op.value))),
        Op::Pad(op) => {
            let strides = contiguous_strides(shape);
            let start = op.before * strides[op.axis];
            for (&x, offset) in x.iter().zip(Odometer::new(dims, &strides)) {
                y[start + offset] = x;
            }
        }
        Op::Gather(_) => training::gather(args[1], x, shape, y).map_err(|m| failed(node, m))?,
        Op::ScatterAdd(_) => {
            training::scatter_add(args[1], x, shape, y).map_err(|m| failed(node, m))?;
        }
        Op::ActivationGradient(op) => {
            let activation = shapes::activation(op.activation);
            gradient::activation_gradient(activation, x, &args[1].data, y);
        }
        Op::SoftmaxGradient(_) => {
            let width = dims.last().copied().unwrap_or(1);
            gradient::softmax_gradient(width, x, &args[1].data, y);
        }
        Op::AttentionGradient(op) => {
            let sizes = shapes::attention(&op.attention, dims);
            let scale = T::from_f64(shapes::attention_scale(&op.attention));
            gradient::packed_attention_gradient(&sizes, scale, x, &args[2].data, y);
        }
        Op::Conv2dInputGradient(op) => {
            let sizes = shapes::conv(&op.conv, shape);
            gradient::conv2d_input_gradient(&sizes, x, &args[1].data, y);
        }
        Op::Conv2dWeightGradient(op) => {
            let sizes = shapes::conv(&op.conv, dims);
            gradient::conv2d_weight_gradient(&sizes, x, &args[1].data, y);
        }
        Op::BatchNormTraining(op) => {
            training::batch_norm(&op.norm, &shapes::channels(dims), x, params, y, others);
        }
        Op::BatchNormGradient(op) => {
            training::batch_norm_gradient(op, &shapes::channels(dims), args, y, others);
        }
        Op::LayerNormGradient(op) => {
            let eps = T::from_f64(f64::from(op.norm.eps));
            let [dgamma, dbeta] = others else {
                unreachable!("three outputs")
            };
            let (dy, gamma) = (&args[1].data, &args[2].data);
            gradient::layer_norm_gradient(eps, x, dy, gamma, y, dgamma, dbeta);
        }
        Op::MaxPool2dGradient(op) => {
            let sizes = shapes::max_pool(&op.pool, dims);
            gradient::max_pool2d_gradient(&sizes, x, &args[1].data, y);
        }
        Op::AvgPool2dGradient(op) => {
            let sizes = shapes::avg_pool(&op.pool, shape);
            gradient::avg_pool2d_gradient(&sizes, op.pool.count_include_pad, x, y);
        }
        Op::AdaptiveAvgPool2dGradient(_) => {
            let (input, output) = ([shape[2], shape[3]], [dims[2], dims[3]]);
            let planes = dims[0] * dims[1];
            gradient::adaptive_avg_pool2d_gradient(planes, input, output, x, y);
        }
        Op::ResizeGradient(op) => match shapes::resize(&op.resize, shape, dims) {
            Some((how, sizes)) => gradient::resize_gradient(&how, &sizes, x, y),
            None => y.copy_from_slice(x),
        },
        Op::SparseConv3dInputGradient(op) => {
            let sizes = shapes::sparse_conv(&op.conv);
            let pairs = training::pairs(&sizes, args[1], args[2]);
            gradient::sparse_input_gradient(&sizes, pairs, &args[3].data, x, y);
        }
        Op::SparseConv3dWeightGradient(op) => {
            let sizes = shapes::sparse_conv(&op.conv);
            let pairs = training::pairs(&sizes, args[2], args[3]);
            gradient::sparse_weight_gradient(&sizes, pairs, x, &args[1].data, y);
        }
        Op::DenseToSparse(op) => training::dense_to_sparse(op, x, args[1], y),
        Op::RandomDropout(op) => training::dropout(op, x, args[1], y),
        Op::CrossEntropy(_) | Op::CrossEntropyGradient(_) => {
            training::cross_entropy(&node.op, args, y).map_err(|m| failed(node, m))?;
        }
        Op::Sgd(op) => training::sgd(op, args, y, others),
        Op::AdamW(op) => training::adam_w(op, args, y, others),
        Op::ClipFactor(op) => training::clip_factor(op, args, y),
        Op::ActiveSites(_) | Op::Rulebook(_) | Op::Custom(_) => {
            unreachable!("`define` has computed these")
        }
    }
    Ok(outputs)
}

/// The outputs of a node that defines sizes; `None` for the others. Selections are exact, so the fast kernels serve here too.
fn define<T: Real>(
    graph: &Graph,
    node: &Node,
    args: &[&RealTensor<T>],
) -> Result<Option<Vec<RealTensor<T>>>, EngineError> {
    let dims: Vec<Vec<usize>> = args.iter().map(|arg| arg.shape.clone()).collect();
    let Some(kernel) = Defining::of(graph, node, &dims) else {
        return Ok(None);
    };
    let numbers = args.iter().zip(graph.input_types(node));
    let memory: Vec<Vec<f32>> = numbers
        .map(|(arg, ty)| {
            let values = arg.data.iter().map(|value| value.to_f64());
            match ty.dtype {
                DType::I32 => bytemuck::cast_vec(values.map(|value| value as i32).collect()),
                _ => values.map(|value| value as f32).collect(),
            }
        })
        .collect();
    let reads: Vec<&[f32]> = memory.iter().map(Vec::as_slice).collect();
    let cpu = Cpu::with_isa(1, Isa::Portable)?;
    let outputs = kernel
        .run(&cpu, &reads)
        .map_err(|message| failed(node, message))?;
    Ok(Some(outputs.iter().map(RealTensor::of).collect()))
}

fn failed(node: &Node, message: String) -> EngineError {
    EngineError::Custom {
        node: node.name.clone(),
        message,
    }
}

/// A number that stands for a row or a site.
fn index<T: Real>(value: T) -> usize {
    value.to_f64() as usize
}

fn gather<T: Copy>(x: &[T], shape: &[usize], strides: &[usize], y: &mut [T]) {
    for (y, offset) in y.iter_mut().zip(Odometer::new(shape, strides)) {
        *y = x[offset];
    }
}

fn concat<T: Copy>(args: &[&RealTensor<T>], axis: usize, y: &mut [T]) {
    let row = |arg: &RealTensor<T>| arg.shape[axis..].iter().product::<usize>();
    let width: usize = args.iter().map(|arg| row(arg)).sum();
    let mut start = 0;
    for arg in args {
        let row = row(arg);
        if row > 0 {
            for (from, to) in arg.data.chunks_exact(row).zip(y.chunks_exact_mut(width)) {
                to[start..start + row].copy_from_slice(from);
            }
        }
        start += row;
    }
}
