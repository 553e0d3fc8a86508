//! The slow way: every node as it is written, on reference kernels, in f32 or f64.
//!
//! Nothing is fused, folded, planned or parallel here. It is what the fast engine is checked against.

use std::collections::BTreeMap;

use percept_graph::{DType, Graph, Node, Op, Tensor, ValueId, WeightSource};
use percept_kernels::attention::HeadsView;
use percept_kernels::reference::{self, Real};
use percept_kernels::strides::{Odometer, broadcast_strides, contiguous_strides};
use percept_kernels::{Cpu, Isa};

use crate::defining::{Defining, as_integers, in_memory, numbers_of};
use crate::segment::bind_output;
use crate::{EngineError, shapes};

/// A dense tensor of the reference engine.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct RealTensor<T> {
    pub shape: Vec<usize>,
    pub data: Vec<T>,
}

/// Runs a graph on reference kernels and returns its outputs, in order.
pub fn run_reference<T: Real>(
    graph: &Graph,
    weights: &dyn WeightSource,
    inputs: &[(&str, &Tensor)],
) -> Result<Vec<(String, RealTensor<T>)>, EngineError> {
    let shapes: Vec<(&str, Vec<usize>)> = inputs
        .iter()
        .map(|(name, t)| (*name, t.shape.clone()))
        .collect();
    let mut bindings = graph.bind(&shapes)?;
    let mut values: BTreeMap<ValueId, RealTensor<T>> = BTreeMap::new();
    for input in graph.inputs() {
        let (_, tensor) = inputs
            .iter()
            .find(|(name, _)| *name == input.name)
            .expect("bind checked the names");
        let data = tensor
            .data
            .iter()
            .map(|&v| T::from_f64(f64::from(v)))
            .collect();
        values.insert(
            input.value,
            RealTensor {
                shape: tensor.shape.clone(),
                data,
            },
        );
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
            let params = read_params(graph, node, weights)?;
            let shape = graph.value_shape(node.outputs[0], &bindings)?;
            let data = compute(node, &args, &params, &shape)?;
            vec![RealTensor { shape, data }]
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

fn read_params<T: Real>(
    graph: &Graph,
    node: &Node,
    weights: &dyn WeightSource,
) -> Result<Vec<Vec<T>>, EngineError> {
    let read = |&id| -> Result<Vec<T>, EngineError> {
        let param = graph.param(id);
        let values = weights.read(&param.name, &param.shape)?;
        Ok(values.iter().map(|&v| T::from_f64(f64::from(v))).collect())
    };
    node.params.iter().map(read).collect()
}

fn compute<T: Real>(
    node: &Node,
    args: &[&RealTensor<T>],
    params: &[Vec<T>],
    shape: &[usize],
) -> Result<Vec<T>, EngineError> {
    let mut y = vec![T::ZERO; shape.iter().product()];
    let x = args.first().map_or(&[][..], |arg| &arg.data);
    let dims = args.first().map_or(&[][..], |arg| &arg.shape);
    let bias = |wanted: bool| wanted.then(|| params[1].as_slice());
    match &node.op {
        Op::Conv2d(conv) => {
            reference::conv2d(
                &shapes::conv(conv, dims),
                x,
                &params[0],
                bias(conv.bias),
                &mut y,
            );
        }
        Op::ConvTranspose2d(op) => {
            let shape = shapes::conv_transpose(op, dims);
            reference::conv_transpose2d(&shape, x, &params[0], bias(op.conv.bias), &mut y);
        }
        Op::Linear(op) => {
            let rows = x.len() / op.in_features.max(1);
            reference::linear(
                [rows, op.in_features, op.out_features],
                x,
                &params[0],
                bias(op.bias),
                &mut y,
            );
        }
        Op::MatMul(op) => {
            let shape = shapes::matmul(op, dims, &args[1].shape);
            reference::matmul(&shape, x, &args[1].data, &mut y);
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
            reference::batch_norm(&shapes::channels(dims), x, &scale, &moved, &mut y);
        }
        Op::LayerNorm(op) => {
            reference::layer_norm(
                x,
                &params[0],
                &params[1],
                T::from_f64(f64::from(op.eps)),
                &mut y,
            );
        }
        Op::Activation(op) => reference::unary(shapes::activation(*op), x, &mut y),
        Op::Softmax(_) => reference::softmax(dims.last().copied().unwrap_or(1), x, &mut y),
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
                &mut y,
            );
        }
        Op::MaxPool2d(op) => reference::max_pool2d(&shapes::max_pool(op, dims), x, &mut y),
        Op::AvgPool2d(op) => {
            reference::avg_pool2d(&shapes::avg_pool(op, dims), op.count_include_pad, x, &mut y);
        }
        Op::AdaptiveAvgPool2d(op) => {
            reference::adaptive_avg_pool2d(
                dims[0] * dims[1],
                [dims[2], dims[3]],
                op.output,
                x,
                &mut y,
            );
        }
        Op::Binary(op) => {
            let b = args[1];
            reference::binary(shapes::binary(op.kind), x, dims, &b.data, &b.shape, &mut y);
        }
        Op::LayerScale(op) => {
            let scale = shapes::binary(percept_graph::BinaryKind::Mul);
            reference::binary(scale, x, dims, &params[0], &[op.features], &mut y);
        }
        Op::Reduce(op) => reference::reduce(shapes::reduce(op.kind), dims, &op.axes, x, &mut y),
        Op::Resize(op) => match shapes::resize(op, dims, shape) {
            Some((how, sizes)) => reference::resize(&how, &sizes, x, &mut y),
            None => y.copy_from_slice(x),
        },
        Op::Reshape(_) | Op::Dropout(_) => y.copy_from_slice(x),
        Op::Permute(op) => {
            let strides = contiguous_strides(dims);
            let strides: Vec<usize> = op.order.iter().map(|&axis| strides[axis]).collect();
            gather(x, shape, &strides, &mut y);
        }
        Op::Expand(_) => gather(x, shape, &broadcast_strides(dims, shape), &mut y),
        Op::Slice(op) => {
            let strides = contiguous_strides(dims);
            gather(&x[op.start * strides[op.axis]..], shape, &strides, &mut y);
        }
        Op::Concat(op) => concat(args, op.axis, &mut y),
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
        Op::ActiveSites(_) | Op::Rulebook(_) | Op::Custom(_) => {
            unreachable!("`define` has computed these")
        }
    }
    Ok(y)
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
                DType::I32 => in_memory(values.map(|value| value as i32).collect()),
                _ => values.map(|value| value as f32).collect(),
            }
        })
        .collect();
    let reads: Vec<&[f32]> = memory.iter().map(Vec::as_slice).collect();
    let cpu = Cpu::with_isa(1, Isa::Portable)?;
    let outputs = kernel
        .run(&cpu, &reads)
        .map_err(|message| failed(node, message))?;
    let widened = outputs
        .into_iter()
        .zip(graph.output_types(node))
        .map(|(output, ty)| {
            let values = match ty.dtype {
                DType::I32 => numbers_of(as_integers(&output.data)),
                _ => output.data,
            };
            RealTensor {
                shape: output.shape,
                data: values.iter().map(|&v| T::from_f64(f64::from(v))).collect(),
            }
        });
    Ok(Some(widened.collect()))
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
