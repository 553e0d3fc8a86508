//! Layers in integers: a layer takes over the quantiser in front of it, and values between such layers stay bytes.

use std::collections::{BTreeMap, BTreeSet};

use percept_graph::{Amax, Graph, Op, Per, Sign, ValueId, ValueSource};
use percept_kernels::int8::ByteScale;

use crate::bytes::{ByteForm, Layout};
use crate::lowering::{Lowered, LoweredNode};
use crate::options::Integers;

/// Below this the grid has nothing but zero.
const SMALLEST_AMAX: f32 = 1.0 / (1u32 << 24) as f32;

/// Has contractions that follow a quantiser of 8 bits with a known range read its input, and multiply bytes.
pub fn inputs(graph: &Graph, lowered: &mut Lowered) {
    let producers = lowered.producers();
    for i in 0..lowered.steps.len() {
        let Some(scale) = byte_input(graph, &lowered.steps[i]) else {
            continue;
        };
        let quantizer = producers.get(&lowered.steps[i].inputs[0]);
        let Some(quantizer) = quantizer.map(|&position| lowered.steps[position].clone()) else {
            continue;
        };
        let step = &mut lowered.steps[i];
        step.inputs[0] = quantizer.inputs[0];
        step.fused.input_bytes = Some(scale);
        step.absorbed.push(quantizer.node);
    }
    let read: BTreeSet<ValueId> = lowered.steps.iter().flat_map(|step| step.reads()).collect();
    let idle = |step: &LoweredNode| {
        let output = step.outputs[0];
        let is_quantizer = matches!(graph.node(step.node).op, Op::FakeQuantize(_));
        is_quantizer && !read.contains(&output) && !lowered.is_kept(output)
    };
    let steps = lowered.steps.iter().enumerate();
    let idle = steps
        .filter(|(_, step)| idle(step))
        .map(|(i, _)| i)
        .collect();
    lowered.remove(&idle);
}

/// The bytes that a step multiplies, when it stands behind a quantiser and has such a kernel.
fn byte_input(graph: &Graph, step: &LoweredNode) -> Option<ByteScale> {
    let node = graph.node(step.node);
    let (weight, grid) = graph.grids(node)?;
    let has_kernel = match &node.op {
        Op::Conv2d(conv) => {
            let [inputs, outputs] =
                [conv.in_channels, conv.out_channels].map(|channels| channels / conv.groups);
            let whole_quads = inputs.is_multiple_of(4) && outputs.is_multiple_of(4);
            let fits = conv.groups == 1 || whole_quads || (inputs, outputs) == (1, 1);
            fits && step.fused.input_scale.is_none()
        }
        // Its channels are those of the input, over which sums run: only one scale for all can be taken out of them.
        Op::ConvTranspose2d(op) => {
            let conv = &op.conv;
            let apart = conv.kernel == conv.stride && conv.dilation == [1; 2];
            let whole = conv.padding == [0; 2] && op.output_padding == [0; 2];
            let quads = conv.groups == 1 && conv.out_channels.is_multiple_of(4);
            weight.per == Per::Tensor && apart && whole && quads
        }
        Op::Linear(_) | Op::SparseConv3d(_) => true,
        _ => false,
    };
    match grid.amax {
        Amax::Static(amax) if has_kernel && grid.bits == 8 && amax > SMALLEST_AMAX => {
            Some(ByteScale::reaching(amax, grid.sign == Sign::Signed))
        }
        _ => None,
    }
}

/// What the readers of a value ask of it, so far.
#[derive(Clone, Copy, PartialEq)]
enum Demand {
    Floats,
    /// Either, in this layout when bytes.
    Either(Layout),
    Bytes(ByteForm),
}

impl Demand {
    fn and(self, other: Demand) -> Demand {
        match (self, other) {
            (a, b) if a == b => a,
            (Demand::Either(layout), Demand::Bytes(form))
            | (Demand::Bytes(form), Demand::Either(layout))
                if layout == form.layout =>
            {
                Demand::Bytes(form)
            }
            _ => Demand::Floats,
        }
    }
}

/// Decides which values are bytes: those that kernels on bytes make and all readers take, by one scale.
pub fn values(graph: &Graph, lowered: &mut Lowered, integers: Integers) {
    let mut demands: BTreeMap<ValueId, Demand> = BTreeMap::new();
    let varying = varying(graph, lowered);
    for step in lowered.steps.iter().rev() {
        // Readers come later, so what they ask of the output is known.
        let output = step.outputs.first().copied();
        let wanted = output.and_then(|output| match demands.get(&output) {
            Some(Demand::Bytes(form)) if !lowered.is_kept(output) && varying.contains(&output) => {
                Some(*form)
            }
            _ => None,
        });
        let made = made_layout(graph, step);
        if let (Some(output), Some(form)) = (output, wanted)
            && (made == Some(form.layout) || passes_bytes(graph, step, form))
        {
            lowered.forms.insert(output, form);
        }
        for (position, value) in step.reads().enumerate() {
            let is_residual = step.fused.residual.is_some() && position + 1 == step.reads().count();
            let demand = match (step.fused.input_bytes, made, wanted) {
                (Some(scale), Some(layout), _) if position == 0 => {
                    Demand::Bytes(ByteForm { scale, layout })
                }
                (Some(_), Some(layout), _) if is_residual && integers == Integers::Kernels => {
                    Demand::Either(layout)
                }
                (None, _, Some(form)) if passes_bytes(graph, step, form) => Demand::Bytes(form),
                _ => Demand::Floats,
            };
            // The residual is read as the output is shaped, the other operand as the node has it.
            let read_as = match is_residual {
                true => output,
                false => graph.node(step.node).inputs.get(position).copied(),
            };
            let keeps_shape = read_as.is_some_and(|read| keeps_shape(graph, value, read, demand));
            let demand = if keeps_shape { demand } else { Demand::Floats };
            let demand = demands
                .get(&value)
                .map_or(demand, |other| other.and(demand));
            demands.insert(value, demand);
        }
    }
    drop_half_ways(graph, lowered);
}

/// The sum of two pointwise convolutions of bytes, as where a block of a network changes its width: both are summed in one tile, and the
/// floats between them never lie in memory. Behind a sparse map each layer is asked for what it reaches, so there they stay two.
pub fn shortcuts(graph: &Graph, lowered: &mut Lowered) {
    if graph
        .nodes()
        .iter()
        .any(|node| matches!(node.op, Op::SparseToDense(_)))
    {
        return;
    }
    let (producers, sole_readers) = (lowered.producers(), lowered.sole_readers());
    let mut removed = BTreeSet::new();
    for i in 0..lowered.steps.len() {
        let Some(residual) = lowered.steps[i].fused.residual else {
            continue;
        };
        let Some(&first) = producers.get(&residual) else {
            continue;
        };
        let (step, shortcut) = (&lowered.steps[i], &lowered.steps[first]);
        let alone = sole_readers.get(&residual) == Some(&i) && !removed.contains(&i);
        let is_plain = shortcut.reads().count() == 1 && shortcut.fused.activation.is_none();
        let is_unit =
            matches!(&graph.node(shortcut.node).op, Op::Conv2d(conv) if conv.stride == [1; 2]);
        let both = [step, shortcut]
            .into_iter()
            .all(|step| is_pointwise_on_bytes(graph, lowered, step));
        if alone && is_plain && is_unit && both {
            let shortcut = shortcut.clone();
            let step = &mut lowered.steps[i];
            step.fused.residual = None;
            step.absorbed.push(shortcut.node);
            step.absorbed.extend(&shortcut.absorbed);
            step.fused.shortcut = Some(Box::new(shortcut));
            removed.insert(first);
        }
    }
    lowered.remove(&removed);
}

fn is_pointwise_on_bytes(graph: &Graph, lowered: &Lowered, step: &LoweredNode) -> bool {
    let Op::Conv2d(conv) = &graph.node(step.node).op else {
        return false;
    };
    let is_pointwise = conv.kernel == [1; 2] && conv.padding == [0; 2] && conv.groups == 1;
    is_pointwise && step.fused.input_bytes.is_some() && lowered.forms.contains_key(&step.inputs[0])
}

/// Values that depend on the inputs. The others are computed once, as the graph has them.
fn varying(graph: &Graph, lowered: &Lowered) -> BTreeSet<ValueId> {
    let mut varying: BTreeSet<ValueId> = graph
        .value_ids()
        .filter(|&value| !matches!(graph.value(value).source, ValueSource::Node(..)))
        .collect();
    for step in &lowered.steps {
        if step.reads().any(|value| varying.contains(&value)) {
            varying.extend(&step.outputs);
        }
    }
    varying
}

/// How a kernel on bytes lays out what it reads and makes.
fn made_layout(graph: &Graph, step: &LoweredNode) -> Option<Layout> {
    step.fused.input_bytes?;
    match graph.node(step.node).op {
        Op::Conv2d(_) | Op::ConvTranspose2d(_) => Some(Layout::Quads),
        _ => Some(Layout::Rows),
    }
}

/// Whether a step gives bytes of this form from the same bytes.
fn passes_bytes(graph: &Graph, step: &LoweredNode, form: ByteForm) -> bool {
    form.layout == Layout::Quads
        && match &graph.node(step.node).op {
            Op::MaxPool2d(_) => true,
            Op::Concat(concat) => concat.axis == 1 && joins_quads(graph, step),
            _ => false,
        }
}

/// Whether the channels of all operands are whole quads, so that quads of their concatenation are theirs.
fn joins_quads(graph: &Graph, step: &LoweredNode) -> bool {
    step.inputs.iter().all(|&value| {
        let channels = graph.value(value).ty.shape.get(1);
        let channels = channels.and_then(|channels| channels.as_const());
        channels.is_some_and(|channels| channels % 4 == 0)
    })
}

/// Whether a value that is read as another one has its shape, as far as the layout of bytes depends on it.
fn keeps_shape(graph: &Graph, value: ValueId, read: ValueId, demand: Demand) -> bool {
    let [own, read] = [value, read].map(|value| &graph.value(value).ty.shape);
    match demand {
        Demand::Floats => true,
        Demand::Either(Layout::Rows)
        | Demand::Bytes(ByteForm {
            layout: Layout::Rows,
            ..
        }) => own.last() == read.last(),
        _ => own == read,
    }
}

/// A step that only passes bytes on needs them on both sides.
fn drop_half_ways(graph: &Graph, lowered: &mut Lowered) {
    loop {
        let half = lowered.steps.iter().find(|step| {
            let passes = step.fused.input_bytes.is_none();
            let is_one = matches!(graph.node(step.node).op, Op::MaxPool2d(_) | Op::Concat(_));
            let to = step.outputs.first().and_then(|to| lowered.forms.get(to));
            let mut from = step.inputs.iter().map(|from| lowered.forms.get(from));
            passes && is_one && from.any(|from| from != to)
        });
        let Some(half) = half else { return };
        let ends: Vec<ValueId> = half.inputs.iter().chain(&half.outputs).copied().collect();
        for value in ends {
            lowered.forms.remove(&value);
        }
    }
}
