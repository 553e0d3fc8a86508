//! What a program knows about its own steps: the part of a profile that no clock is needed for.

use std::collections::BTreeMap;

use percept_graph::{Bindings, Graph, Operator, ValueSource};

use percept_kernels::machine::machine_memory_bytes;

use crate::EngineError;
use crate::join::Joined;
use crate::lowering::Lowered;
use crate::options::{Integers, Memory};
use crate::passes;
use crate::plan::{Lifetime, Plan};
use crate::program::Program;
use crate::schedule::{Call, Schedule, last_uses};

/// A step, for tables.
#[derive(Clone, Debug)]
pub struct StepInfo {
    /// Position in the program.
    pub step: usize,
    /// Name of the node that the time stands at: the heaviest of those fused.
    pub name: String,
    /// Its op.
    pub kind: &'static str,
    /// How it is computed, when there is a choice.
    pub algorithm: Option<String>,
    /// How often it is called in a run: once for each slice of a batch.
    pub turns: usize,
    /// Nodes computed on the way: name and op.
    pub absorbed: Vec<(String, &'static str)>,
    /// Multiply-adds of all of them; `None` when they depend on data.
    pub macs: Option<u64>,
    /// Other arithmetic of all of them; `None` when it depends on data.
    pub other_ops: Option<u64>,
    /// Bytes that come into being here: 0 when an operand is overwritten.
    pub allocated_bytes: usize,
    /// Bytes of intermediate values held while it runs.
    pub live_bytes: usize,
    /// Packed weights.
    pub weight_bytes: usize,
    /// Computed once when the sizes were new, not at every run.
    pub is_constant: bool,
}

/// Something that holds memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Holder {
    pub name: String,
    pub bytes: usize,
}

/// What holds memory when the intermediate values are largest.
#[derive(Clone, Debug)]
pub struct MemoryAtPeak {
    /// The step that runs then.
    pub step: String,
    /// Intermediate values, largest first, by the node that made them.
    pub values: Vec<Holder>,
    /// Their sum.
    pub live_bytes: usize,
    /// The arena; above `live_bytes` by what the plan could not fill.
    pub arena_bytes: usize,
    /// Packed weights, constants of these sizes included.
    pub weight_bytes: usize,
    /// Working memory of the threads.
    pub scratch_bytes: usize,
    /// Parameters, running statistics and moments of a training graph.
    pub state_bytes: usize,
}

impl MemoryAtPeak {
    /// Everything together.
    pub fn total_bytes(&self) -> usize {
        self.arena_bytes + self.weight_bytes + self.scratch_bytes + self.state_bytes
    }
}

impl Program {
    /// Every step for sizes that have been prepared, in order.
    pub fn step_infos(&self, bindings: &Bindings) -> Result<Vec<StepInfo>, EngineError> {
        let calls = self.calls(bindings);
        let mut infos = Vec::new();
        for (index, step) in self.lowered.steps.iter().enumerate() {
            let turns = calls.iter().filter(|(_, call)| call.step == index);
            let turns: Vec<&(&Schedule, &Call)> = turns.collect();
            let call = turns.first();
            let node = self.graph.node(step.node);
            let mut cost = self.graph.node_cost(node, bindings)?;
            for &id in &step.absorbed {
                let absorbed = self.graph.node_cost(self.graph.node(id), bindings)?;
                cost.macs = cost.macs.zip(absorbed.macs).map(|(a, b)| a + b);
                cost.other_ops = cost.other_ops.zip(absorbed.other_ops).map(|(a, b)| a + b);
            }
            // Turns write the parts of one value, or all of them to the same place.
            let written: BTreeMap<usize, usize> = turns
                .iter()
                .filter(|(_, call)| !call.in_place)
                .flat_map(|(_, call)| call.writes.iter().filter_map(|to| to.place.arena()))
                .map(|range| (range.start, range.len()))
                .collect();
            infos.push(StepInfo {
                step: index,
                name: node.name.clone(),
                kind: node.op.kind(),
                algorithm: call.and_then(|(_, call)| call.kernel.algorithm.clone()),
                turns: turns.len(),
                absorbed: step
                    .absorbed
                    .iter()
                    .map(|&id| self.name_and_kind(id))
                    .collect(),
                macs: cost.macs,
                other_ops: cost.other_ops,
                allocated_bytes: written.values().sum(),
                live_bytes: call.map_or(0, |(schedule, _)| schedule.plan.live_bytes(index)),
                weight_bytes: [step.node]
                    .iter()
                    .chain(&step.absorbed)
                    .map(|&id| self.weights.node_bytes(id))
                    .sum(),
                is_constant: call.is_none(),
            });
        }
        Ok(infos)
    }

    fn name_and_kind(&self, id: percept_graph::NodeId) -> (String, &'static str) {
        let node = self.graph.node(id);
        (node.name.clone(), node.op.kind())
    }

    /// What holds memory when the intermediate values of a run of these sizes are largest.
    pub fn memory_at_peak(&self, bindings: &Bindings) -> MemoryAtPeak {
        let schedules = self.schedules_for(bindings);
        let constants: usize = schedules
            .last()
            .map_or(0, |schedule| schedule.constant_bytes());
        let steps = 0..self.lowered.steps.len();
        let last = schedules.last();
        let busiest = steps.max_by_key(|&step| {
            // Of equal steps the first: where the memory is first needed.
            (
                last.map_or(0, |schedule| schedule.plan.live_bytes(step)),
                std::cmp::Reverse(step),
            )
        });
        let mut values = Vec::new();
        if let (Some(step), Some(schedule)) = (busiest, last) {
            for buffer in schedule
                .plan
                .buffers
                .iter()
                .filter(|buffer| buffer.is_live(step))
            {
                // A buffer that was overwritten in place belongs to its first value: that is who asked for the memory.
                if let ValueSource::Node(node, _) = self.graph.value(buffer.values[0]).source {
                    values.push(Holder {
                        name: self.graph.node(node).name.clone(),
                        bytes: buffer.range.len(),
                    });
                }
            }
        }
        values.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        let preparation = self.preparation();
        MemoryAtPeak {
            step: busiest.map_or_else(String::new, |step| {
                self.graph.node(self.lowered.steps[step].node).name.clone()
            }),
            live_bytes: values.iter().map(|holder| holder.bytes).sum(),
            values,
            arena_bytes: last.map_or(0, |schedule| schedule.plan.arena_bytes),
            weight_bytes: preparation.weight_bytes + constants,
            scratch_bytes: preparation.scratch_bytes,
            state_bytes: self.states.bytes(),
        }
    }
}

/// What a run will need, before anything is packed.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct MemoryEstimate {
    pub parameter_bytes: u64,
    pub input_bytes: u64,
    pub arena_bytes: u64,
}

/// Estimates the memory of a run from the graph alone. Values whose size only a run defines do not count.
pub fn estimate_memory(
    graph: &Graph,
    bindings: &Bindings,
    memory: Memory,
) -> Result<MemoryEstimate, EngineError> {
    let mut lowered = Lowered::new(graph);
    passes::run(graph, &mut lowered, Integers::Simulate);
    let last_use = last_uses(&lowered);
    let mut lifetimes = Vec::new();
    for (born, step) in lowered.steps.iter().enumerate() {
        for &value in &step.outputs {
            let bytes = graph.value_bytes(value, bindings)? as usize;
            let last_use = last_use.get(&value).copied().unwrap_or(born);
            lifetimes.push(Lifetime {
                value,
                bytes,
                born,
                last_use,
                may_replace: None,
            });
        }
    }
    let inputs = graph
        .inputs()
        .iter()
        .map(|input| graph.value_bytes(input.value, bindings));
    Ok(MemoryEstimate {
        parameter_bytes: graph.params().iter().map(|param| param.bytes()).sum(),
        input_bytes: inputs.sum::<Result<u64, _>>()?,
        arena_bytes: Plan::extend(&Plan::default(), &lifetimes, &Joined::new(), memory).arena_bytes
            as u64,
    })
}

/// Refuses sizes whose intermediate values and inputs the machine has no memory for.
pub fn require_memory(
    graph: &Graph,
    bindings: &Bindings,
    memory: Memory,
) -> Result<(), EngineError> {
    let estimate = estimate_memory(graph, bindings, memory)?;
    let needed_bytes = estimate.arena_bytes.saturating_add(estimate.input_bytes);
    match machine_memory_bytes() {
        Some((_, limit_bytes)) if needed_bytes > limit_bytes => Err(EngineError::TooLarge {
            needed_bytes,
            limit_bytes,
        }),
        _ => Ok(()),
    }
}
