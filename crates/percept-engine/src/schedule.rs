//! The calls of one segment for one set of sizes: kernels chosen, weights packed, constants computed, buffers planned.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use percept_graph::{Bindings, Graph, GraphError, Op, ValueId, ValueSource};
use percept_kernels::Cpu;

use crate::EngineError;
use crate::join::{Joined, joinable};
use crate::kernel::Kernel;
use crate::lowering::{Lowered, Step};
use crate::options::{Memory, Options};
use crate::plan::{Lifetime, Plan};
use crate::prepare::Weights;
use crate::state::{States, updates};
use crate::training::Sizes;

/// Where a kernel finds a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// In the arena.
    Arena(Range<usize>),
    /// Where state lives from run to run.
    State(Range<usize>),
    /// With the caller: an input of the graph.
    Input(usize),
    /// Computed once: it depends on parameters and sizes only.
    Constant(Arc<[f32]>),
}

impl Place {
    /// The arena range, when it is there.
    pub fn arena(&self) -> Option<Range<usize>> {
        match self {
            Place::Arena(range) => Some(range.clone()),
            _ => None,
        }
    }

    /// The range of state, when it is there.
    pub fn state(&self) -> Option<Range<usize>> {
        match self {
            Place::State(range) => Some(range.clone()),
            _ => None,
        }
    }
}

/// One kernel call, fully decided.
pub struct Call {
    /// Which step.
    pub step: usize,
    /// What runs.
    pub kernel: Kernel,
    /// What it reads, without the operand that is overwritten in place.
    pub reads: Vec<Place>,
    /// What it writes; nothing when the step ends the segment by defining sizes.
    pub writes: Vec<Place>,
    /// Whether an operand is overwritten.
    pub in_place: bool,
    /// Outputs that start as a copy of what lives elsewhere.
    pub starts: Vec<(usize, Place)>,
}

impl Call {
    /// A concatenation whose inputs were written in place: nothing is left to do.
    fn joined(step: usize) -> Self {
        Self {
            step,
            kernel: Kernel::Joined,
            reads: Vec::new(),
            writes: Vec::new(),
            in_place: true,
            starts: Vec::new(),
        }
    }
}

/// A planned segment.
pub struct Schedule {
    /// Calls in order.
    pub calls: Vec<Call>,
    /// The arena.
    pub plan: Plan,
    constants: BTreeMap<ValueId, Arc<[f32]>>,
}

/// What scheduling reads.
pub struct Context<'a> {
    /// Where kernels will run.
    pub cpu: &'a Cpu,
    /// What is run.
    pub graph: &'a Graph,
    /// Its steps.
    pub lowered: &'a Lowered,
    /// What outlives a run.
    pub states: &'a States,
    /// How.
    pub options: Options,
    /// Sizes known so far.
    pub bindings: &'a Bindings,
}

impl Schedule {
    /// Plans the steps `segment` behind `earlier`, whose last step has just defined the sizes of its outputs.
    pub fn new(
        context: &Context<'_>,
        weights: &mut Weights,
        segment: Range<usize>,
        is_last: bool,
        earlier: Option<&Schedule>,
    ) -> Result<Schedule, EngineError> {
        let lowered = context.lowered;
        let mut constants = earlier
            .map(|schedule| schedule.constants.clone())
            .unwrap_or_default();
        let mut kernels: Vec<(usize, Kernel)> = Vec::new();
        for index in segment.clone() {
            let step = &lowered.steps[index];
            let kernel = context.kernel(step, weights)?;
            let defines = matches!(kernel, Kernel::Defining(_));
            let is_constant = step.reads().all(|value| constants.contains_key(&value));
            if !defines && is_constant && step.outputs.len() == 1 {
                let value = context.constant(step, &kernel, &constants)?;
                constants.insert(step.outputs[0], value);
            } else {
                kernels.push((index, kernel));
            }
        }
        let needed = |value: &ValueId| {
            let read = lowered.steps.iter().any(|step| {
                step.reads().any(|read| read == *value)
                    && step.outputs.iter().any(|out| !constants.contains_key(out))
            });
            read || lowered.is_kept(*value)
        };
        let kept: Vec<ValueId> = constants
            .keys()
            .copied()
            .filter(|value| needed(value))
            .collect();
        constants.retain(|value, _| kept.contains(value));

        // The step that ends a segment defines sizes: only the next segment can place what it gives.
        let placed_here = |index: usize| is_last || index + 1 != segment.end;
        let last_use = last_uses(lowered);
        let mut lifetimes = Vec::new();
        if let Some(before) = segment.start.checked_sub(1) {
            for &value in &lowered.steps[before].outputs {
                lifetimes.push(context.lifetime(value, before, &last_use)?);
            }
        }
        for (index, kernel) in kernels.iter().filter(|(index, _)| placed_here(*index)) {
            let step = &lowered.steps[*index];
            for (position, &value) in step.outputs.iter().enumerate() {
                if context.states.home(value).is_some() {
                    continue;
                }
                let mut life = context.lifetime(value, *index, &last_use)?;
                if position == 0 {
                    life.may_replace = replaceable(step, *index, kernel, &last_use);
                }
                lifetimes.push(life);
            }
        }
        let earlier_plan = earlier
            .map(|schedule| schedule.plan.clone())
            .unwrap_or_default();
        let joined = match context.options.memory {
            Memory::Frugal => {
                let bytes_of: BTreeMap<ValueId, usize> = lifetimes
                    .iter()
                    .map(|life| (life.value, life.bytes))
                    .collect();
                let bytes = |value| bytes_of.get(&value).copied().unwrap_or(0);
                joinable(lowered, &kernels, &last_use, bytes)
            }
            Memory::Keep => Joined::new(),
        };
        let plan = Plan::extend(&earlier_plan, &lifetimes, &joined, context.options.memory);
        let mut schedule = Schedule {
            calls: Vec::new(),
            plan,
            constants,
        };
        for (index, kernel) in kernels {
            let writes_here = placed_here(index);
            if let Some(part) = lowered.steps[index].inputs.first()
                && joined
                    .get(part)
                    .is_some_and(|(host, _)| lowered.steps[index].outputs == [*host])
            {
                schedule.calls.push(Call::joined(index));
                continue;
            }
            let call = schedule.call(context, index, kernel, writes_here)?;
            schedule.calls.push(call);
        }
        Ok(schedule)
    }

    fn call(
        &self,
        context: &Context<'_>,
        index: usize,
        kernel: Kernel,
        writes_here: bool,
    ) -> Result<Call, EngineError> {
        let step = &context.lowered.steps[index];
        let shared = |value: ValueId| {
            self.plan.buffer_of.get(&value) == self.plan.buffer_of.get(&step.outputs[0])
        };
        let overwritten = kernel.in_place_operand(step).filter(|&operand| {
            let value = step.reads().nth(operand);
            value.is_some_and(|value| self.plan.buffer_of.contains_key(&value) && shared(value))
        });
        let mut writes = Vec::new();
        for &value in step.outputs.iter().filter(|_| writes_here) {
            writes.push(self.place(context, value)?);
        }
        let updates = updates(&context.graph.node(step.node).op);
        let (mut reads, mut starts) = (Vec::new(), Vec::new());
        for (operand, value) in step.reads().enumerate() {
            if overwritten == Some(operand) {
                continue;
            }
            let place = self.place(context, value)?;
            match updates.iter().find(|(_, updated)| *updated == operand) {
                Some(&(output, _)) if place == writes[output] => {}
                Some(&(output, _)) => starts.push((output, place)),
                None => reads.push(place),
            }
        }
        Ok(Call {
            step: index,
            kernel,
            reads,
            writes,
            in_place: overwritten.is_some(),
            starts,
        })
    }

    /// Where a value is.
    pub fn place(&self, context: &Context<'_>, value: ValueId) -> Result<Place, EngineError> {
        if let Some(values) = self.constants.get(&value) {
            return Ok(Place::Constant(Arc::clone(values)));
        }
        if let Some(home) = context.states.home(value) {
            return Ok(Place::State(home));
        }
        Ok(match context.graph.value(value).source {
            ValueSource::Input(position) => Place::Input(position),
            ValueSource::State(position) => Place::State(context.states.range(position)),
            ValueSource::Node(..) => {
                let range = self
                    .plan
                    .range(value)
                    .expect("a value is planned before it is read");
                Place::Arena(range.start..range.start + context.bytes(value)?)
            }
        })
    }

    /// Bytes of constants held for these sizes.
    pub fn constant_bytes(&self) -> usize {
        self.constants.values().map(|values| 4 * values.len()).sum()
    }
}

impl Context<'_> {
    fn shape(&self, value: ValueId) -> Result<Vec<usize>, GraphError> {
        self.graph.value_shape(value, self.bindings)
    }

    fn bytes(&self, value: ValueId) -> Result<usize, EngineError> {
        Ok(4 * self.shape(value)?.iter().product::<usize>())
    }

    fn lifetime(
        &self,
        value: ValueId,
        born: usize,
        last_use: &BTreeMap<ValueId, usize>,
    ) -> Result<Lifetime, EngineError> {
        let last_use = last_use.get(&value).copied().unwrap_or(born);
        Ok(Lifetime {
            value,
            bytes: self.bytes(value)?,
            born,
            last_use,
            may_replace: None,
        })
    }

    fn kernel(&self, step: &Step, weights: &mut Weights) -> Result<Kernel, EngineError> {
        // A node reads its inputs under their own shapes, which a reshape in front may have changed.
        let node = self.graph.node(step.node);
        let mut inputs = Vec::new();
        for (i, &value) in node.inputs.iter().enumerate() {
            let fused_away = step.fused.input_scale.is_some() && i == 0;
            inputs.push(self.shape(if fused_away { step.inputs[0] } else { value })?);
        }
        let outputs = match &node.op {
            Op::Custom(_) | Op::ActiveSites(_) | Op::Rulebook(_) => Vec::new(),
            _ => {
                let shapes = node.outputs.iter().map(|&value| self.shape(value));
                shapes.collect::<Result<_, _>>()?
            }
        };
        let sizes = Sizes {
            inputs: &inputs,
            outputs: &outputs,
            bindings: self.bindings,
        };
        Kernel::prepare(
            self.cpu,
            self.graph,
            step,
            self.options.mode,
            weights,
            &sizes,
        )
    }

    fn constant(
        &self,
        step: &Step,
        kernel: &Kernel,
        constants: &BTreeMap<ValueId, Arc<[f32]>>,
    ) -> Result<Arc<[f32]>, EngineError> {
        if let Kernel::Parameter(values) = kernel {
            return Ok(Arc::clone(values));
        }
        let reads: Vec<&[f32]> = step.reads().map(|value| &*constants[&value]).collect();
        let mut y = vec![0.0; self.bytes(step.outputs[0])? / 4];
        match kernel {
            Kernel::Training(kernel) => {
                let failed = |message| EngineError::Custom {
                    node: self.graph.node(step.node).name.clone(),
                    message,
                };
                let run = kernel.run(self.cpu, &reads, false, &mut [&mut y]);
                run.map_err(failed)?;
            }
            kernel => kernel.run(self.cpu, &reads, &mut y),
        }
        Ok(y.into())
    }
}

/// The last step that reads each value; outputs of the graph are never done with.
pub fn last_uses(lowered: &Lowered) -> BTreeMap<ValueId, usize> {
    let mut last = BTreeMap::new();
    for (i, step) in lowered.steps.iter().enumerate() {
        last.extend(step.reads().map(|value| (value, i)));
    }
    last.extend(lowered.kept().map(|value| (value, usize::MAX)));
    last
}

/// The operand that the kernel may overwrite: it can, this is the operand's last use, and it reads it once.
fn replaceable(
    step: &Step,
    index: usize,
    kernel: &Kernel,
    last_use: &BTreeMap<ValueId, usize>,
) -> Option<ValueId> {
    let value = step.reads().nth(kernel.in_place_operand(step)?)?;
    let reads_once = step.reads().filter(|read| *read == value).count() == 1;
    (reads_once && last_use.get(&value) == Some(&index)).then_some(value)
}
