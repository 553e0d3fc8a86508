//! The slow way: every node as it is written, on reference kernels, in f32 or f64.
//!
//! Nothing is fused, folded, planned or parallel here. It is what the fast engine is checked against.

use std::collections::BTreeMap;

use percept_graph::{
    Bindings, DType, Graph, GraphError, Node, NodeId, StateKind, Tensor, ValueId, ValueSource,
    WeightSource,
};
use percept_kernels::reference::Real;

use crate::EngineError;
use crate::ops::{Execute, Reference};
use crate::segment::bind_output;

/// A dense tensor of the reference engine.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct RealTensor<T> {
    pub shape: Vec<usize>,
    pub data: Vec<T>,
}

impl<T: Real> RealTensor<T> {
    pub(crate) fn of(tensor: &Tensor<'_>) -> Self {
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
            StateKind::Parameter | StateKind::Buffer => real(&state.read(weights, &shape)?),
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
        let outputs = compute(graph, node, weights, &values, &mut bindings)?;
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

/// The first output of a node that depends on parameters and sizes alone; `None` when it depends on an input.
pub fn constant_value(
    graph: &Graph,
    bindings: &Bindings,
    weights: &dyn WeightSource,
    node: NodeId,
) -> Result<Option<RealTensor<f32>>, EngineError> {
    let mut needed = vec![node];
    let mut next = 0;
    while let Some(&node) = needed.get(next) {
        for &input in &graph.node(node).inputs {
            match graph.value(input).source {
                ValueSource::Node(source, _) if needed.contains(&source) => {}
                ValueSource::Node(source, _) => needed.push(source),
                ValueSource::Input(_) | ValueSource::State(_) => return Ok(None),
            }
        }
        next += 1;
    }
    // Nodes stand in an order that they can run in.
    needed.sort_unstable();
    let (mut values, mut bindings) = (BTreeMap::new(), bindings.clone());
    for id in needed {
        let node = graph.node(id);
        let outputs = compute(graph, node, weights, &values, &mut bindings)?;
        values.extend(node.outputs.iter().copied().zip(outputs));
    }
    Ok(values.remove(&graph.node(node).outputs[0]))
}

/// The outputs of one node.
fn compute<T: Real>(
    graph: &Graph,
    node: &Node,
    weights: &dyn WeightSource,
    values: &BTreeMap<ValueId, RealTensor<T>>,
    bindings: &mut Bindings,
) -> Result<Vec<RealTensor<T>>, EngineError> {
    let failed = |message| EngineError::Node {
        node: node.name.clone(),
        message,
    };
    let args = node.inputs.iter().zip(graph.input_types(node));
    let args: Vec<(DType, &RealTensor<T>)> =
        args.map(|(value, ty)| (ty.dtype, &values[value])).collect();
    let params = read_params(graph, node, weights, &args)?;
    let shapes = node.outputs.iter();
    let shapes = shapes.map(|&value| graph.value_shape(value, bindings));
    let shapes: Vec<Vec<usize>> = match shapes.collect() {
        Ok(shapes) => shapes,
        Err(GraphError::UnboundSymbol { .. }) => Vec::new(),
        Err(other) => return Err(other.into()),
    };
    let zeros = |shape: &Vec<usize>| vec![T::ZERO; shape.iter().product()];
    let mut run = Reference {
        inputs: &args,
        params: &params,
        shapes: &shapes,
        bindings,
        outputs: shapes.iter().map(zeros).collect(),
        defined: None,
    };
    node.op.reference(&mut run).map_err(failed)?;
    let Reference {
        outputs, defined, ..
    } = run;
    let Some(defined) = defined else {
        let tensors = shapes.into_iter().zip(outputs);
        let tensors = tensors.map(|(shape, data)| RealTensor { shape, data });
        return Ok(tensors.collect());
    };
    for (&value, tensor) in node.outputs.iter().zip(&defined) {
        bind_output(&graph.value(value).ty, &tensor.shape, bindings).map_err(failed)?;
    }
    Ok(defined)
}

fn read<T: Real>(
    weights: &dyn WeightSource,
    name: &str,
    shape: &[usize],
) -> Result<Vec<T>, EngineError> {
    Ok(real(&weights.read(name, shape)?))
}

fn real<T: Real>(values: &[f32]) -> Vec<T> {
    values.iter().map(|&v| T::from_f64(f64::from(v))).collect()
}

/// The parameters of a node: its own, or the values that stand for them where parameters are state.
fn read_params<T: Real>(
    graph: &Graph,
    node: &Node,
    weights: &dyn WeightSource,
    args: &[(DType, &RealTensor<T>)],
) -> Result<Vec<Vec<T>>, EngineError> {
    if let Some(values) = node.param_values() {
        let values = &args[args.len() - values.len()..];
        return Ok(values.iter().map(|(_, arg)| arg.data.clone()).collect());
    }
    let params = node.params.iter().map(|&id| graph.param(id));
    params
        .map(|param| read(weights, &param.name, &param.shape))
        .collect()
}
