//! From a graph to steps: what the engine really executes.
//!
//! A step is one kernel call. It starts as one node; the passes then let it absorb its neighbours
//! (a batch norm, a residual, an activation) until as few steps as possible remain.

use std::collections::{BTreeMap, BTreeSet};

use percept_graph::{Activation, Graph, MaxPool2d, NodeId, Op, ValueId};
use percept_kernels::int8::ByteScale;

use crate::bytes::ByteForms;

/// One kernel call.
#[derive(Clone, Debug)]
pub struct LoweredNode {
    /// The node whose op decides the kernel: the heaviest of those that the step computes.
    pub node: NodeId,
    /// Nodes computed on the way, in order.
    pub absorbed: Vec<NodeId>,
    /// Values read, aliases resolved.
    pub inputs: Vec<ValueId>,
    /// Values defined.
    pub outputs: Vec<ValueId>,
    /// What is done besides the node's own op.
    pub fused: Fused,
}

/// Work that a step does besides its node's own op.
#[derive(Clone, Debug, Default)]
pub struct Fused {
    /// A batch norm or a layer scale folded into the weights.
    pub follower: Option<NodeId>,
    /// A quantiser in front: the layer multiplies bytes.
    pub input_bytes: Option<ByteScale>,
    /// Factors [N, C] multiplied onto the input.
    pub input_scale: Option<ValueId>,
    /// A value added to the output, before the activation.
    pub residual: Option<ValueId>,
    /// In its place, a pointwise convolution that makes that value, which then never lies in memory.
    pub shortcut: Option<Box<LoweredNode>>,
    /// The activation applied to the output.
    pub activation: Option<Activation>,
    /// A pooling of the output, behind the activation.
    pub max_pool: Option<MaxPool2d>,
    /// The step of a depthwise convolution of the output, with what is fused into it.
    pub depthwise: Option<Box<LoweredNode>>,
    /// What a batch norm leaves for the backward pass: its input and its output, rounded. They are its last outputs.
    pub kept: [Option<ValueId>; 2],
}

impl LoweredNode {
    /// Every value that the step reads, residual, shortcut's input and scale included.
    pub fn reads(&self) -> impl Iterator<Item = ValueId> + '_ {
        let shortcut = self.fused.shortcut.as_ref().map(|step| step.inputs[0]);
        let extra = [self.fused.input_scale, self.fused.residual, shortcut];
        self.inputs
            .iter()
            .copied()
            .chain(extra.into_iter().flatten())
    }

    /// Takes over the work and the outputs of a later step.
    pub fn absorb(&mut self, later: &LoweredNode) {
        self.absorbed.push(later.node);
        self.absorbed.extend(&later.absorbed);
        self.outputs.clone_from(&later.outputs);
    }
}

/// The steps of a graph, in order, with the values that are only other names.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// Kernel calls in execution order.
    pub steps: Vec<LoweredNode>,
    /// Value -> the value whose memory it shares (itself, for most).
    roots: Vec<ValueId>,
    /// Roots of the graph's outputs: they must exist at the end.
    kept: BTreeSet<ValueId>,
    /// Values that are bytes.
    pub forms: ByteForms,
}

impl Lowered {
    /// One step a node, without the nodes that only rename their input.
    pub fn new(graph: &Graph) -> Self {
        let mut roots: Vec<ValueId> = graph.value_ids().collect();
        let mut steps = Vec::new();
        for node in graph.nodes() {
            let inputs: Vec<ValueId> = node
                .inputs
                .iter()
                .map(|&value| roots[value.index()])
                .collect();
            // A parameter that is state is a value already.
            let is_name = matches!(
                node.op,
                Op::Reshape(_) | Op::Dropout(_) | Op::ParameterValue(_)
            );
            if is_name && !inputs.is_empty() {
                roots[node.outputs[0].index()] = inputs[0];
                continue;
            }
            let outputs = node.outputs.clone();
            steps.push(LoweredNode {
                node: node.id,
                absorbed: Vec::new(),
                inputs,
                outputs,
                fused: Fused::default(),
            });
        }
        let kept = graph
            .outputs()
            .iter()
            .map(|(_, value)| roots[value.index()])
            .collect();
        Self {
            steps,
            roots,
            kept,
            forms: ByteForms::new(),
        }
    }

    /// The value whose memory holds `value`.
    pub fn root(&self, value: ValueId) -> ValueId {
        self.roots[value.index()]
    }

    /// Values that must still exist when the run ends.
    pub fn kept(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.kept.iter().copied()
    }

    /// Has a value exist until the run ends.
    pub fn keep(&mut self, value: ValueId) {
        self.kept.insert(value);
    }

    /// Whether the value must still exist when the run ends.
    pub fn is_kept(&self, value: ValueId) -> bool {
        self.kept.contains(&value)
    }

    /// Which step defines each value.
    pub fn producers(&self) -> BTreeMap<ValueId, usize> {
        let defined = self.steps.iter().enumerate();
        defined
            .flat_map(|(i, step)| step.outputs.iter().map(move |&value| (value, i)))
            .collect()
    }

    /// Values that exactly one step reads exactly once and nobody else needs, with that step.
    pub fn sole_readers(&self) -> BTreeMap<ValueId, usize> {
        let mut readers: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for (i, step) in self.steps.iter().enumerate() {
            for value in step.reads() {
                readers.entry(value).or_default().push(i);
            }
        }
        let sole = readers
            .into_iter()
            .filter(|(value, steps)| steps.len() == 1 && !self.is_kept(*value));
        sole.map(|(value, steps)| (value, steps[0])).collect()
    }

    /// Drops the steps at these positions.
    pub fn remove(&mut self, positions: &BTreeSet<usize>) {
        let mut position = 0;
        self.steps.retain(|_| {
            position += 1;
            !positions.contains(&(position - 1))
        });
    }
}
