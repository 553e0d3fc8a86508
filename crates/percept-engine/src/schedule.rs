//! The calls of one segment for one set of sizes: kernels chosen, weights packed, constants computed, buffers planned.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use percept_graph::{Bindings, DType, Graph, GraphError, Tensor, ValueId, ValueSource};
use percept_kernels::Cpu;

use crate::EngineError;
use crate::join::{Joined, joinable};
use crate::kernel::{Kernel, Work};
use crate::lowering::{Lowered, LoweredNode};
use crate::operands::{Operands, View, ViewMut};
use crate::ops::{Execute, Prepare};
use crate::options::{Memory, Options};
use crate::plan::{Lifetime, Plan};
use crate::precision::PrecisionPlan;
use crate::slices::Slices;
use crate::state::States;
use crate::weights::Weights;

/// Where a kernel finds a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// In the arena.
    Arena(Range<usize>),
    /// Where state lives from run to run.
    State(Range<usize>),
    /// With the caller: bytes of an input of the graph.
    Input(usize, Range<usize>),
    /// Computed once: it depends on parameters and sizes only.
    Constant(Arc<Tensor<'static>>, Range<usize>),
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

    /// Where some of the bytes are.
    pub fn part(&self, bytes: &Range<usize>) -> Place {
        let of = |range: &Range<usize>| range.start + bytes.start..range.start + bytes.end;
        match self {
            Place::Arena(range) => Place::Arena(of(range)),
            Place::State(range) => Place::State(of(range)),
            Place::Input(position, range) => Place::Input(*position, of(range)),
            Place::Constant(tensor, range) => Place::Constant(Arc::clone(tensor), of(range)),
        }
    }
}

/// A value's place, and what it holds.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Located {
    pub place: Place,
    pub dtype: DType,
}

/// One kernel call, fully decided.
#[derive(Clone)]
pub struct Call {
    /// Which step.
    pub step: usize,
    /// What runs; all turns of a step have one kernel.
    pub kernel: Arc<Kernel>,
    /// What it reads; `None` for an operand that lies in the output it becomes.
    pub reads: Vec<Option<Located>>,
    /// What it writes; nothing when the step ends the segment by defining sizes.
    pub writes: Vec<Located>,
    /// Whether an operand that dies here is overwritten.
    pub in_place: bool,
    /// A concatenation whose parts were written where they belong: nothing is left to do.
    pub joined: bool,
}

/// A planned segment.
pub struct Schedule {
    /// Calls in order.
    pub calls: Vec<Call>,
    /// The arena.
    pub plan: Plan,
    constants: Constants,
}

/// Values computed once.
type Constants = BTreeMap<ValueId, Arc<Tensor<'static>>>;

/// What scheduling reads.
#[derive(Clone, Copy)]
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
    /// In which precision.
    pub precision: &'a PrecisionPlan,
    /// Sizes known so far.
    pub bindings: &'a Bindings,
    /// How often a kernel is called for a batch.
    pub turns: usize,
}

impl Schedule {
    /// Plans the steps `segment` behind `earlier`, whose last step has just defined the sizes of its outputs. A batch may be computed
    /// in slices, or not.
    pub fn new(
        context: &Context<'_>,
        weights: &mut Weights,
        segment: Range<usize>,
        is_last: bool,
        earlier: Option<&Schedule>,
        may_slice: bool,
    ) -> Result<Schedule, EngineError> {
        let lowered = context.lowered;
        let mut constants = earlier
            .map(|schedule| schedule.constants.clone())
            .unwrap_or_default();
        let mut kernels: Vec<(usize, Kernel)> = Vec::new();
        for index in segment.clone() {
            let step = &lowered.steps[index];
            let kernel = context.kernel(step, weights)?;
            let is_constant = step.reads().all(|value| constants.contains_key(&value));
            if !kernel.defines_sizes() && is_constant && step.outputs.len() == 1 {
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
        let slices = match may_slice {
            true => Slices::choose(context, &mut kernels, weights)?,
            false => Slices::default(),
        };

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
        slices.fit(context, &mut lifetimes)?;
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
                joinable(context.graph, lowered, &kernels, &last_use, bytes)
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
                schedule.calls.push(Call {
                    step: index,
                    kernel: Arc::new(kernel),
                    reads: Vec::new(),
                    writes: Vec::new(),
                    in_place: true,
                    joined: true,
                });
                continue;
            }
            let call = schedule.call(context, index, kernel, writes_here)?;
            schedule.calls.push(call);
        }
        schedule.calls = slices.in_turns(context, schedule.calls)?;
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
        let overwritten = kernel.in_place_operand.filter(|&operand| {
            let value = step.reads().nth(operand);
            value.is_some_and(|value| self.plan.buffer_of.contains_key(&value) && shared(value))
        });
        let mut writes = Vec::new();
        for &value in step.outputs.iter().filter(|_| writes_here) {
            writes.push(self.locate(context, value)?);
        }
        let updates = context.graph.node(step.node).op.updates();
        let mut reads = Vec::new();
        for (operand, value) in step.reads().enumerate() {
            let located = self.locate(context, value)?;
            let updated = updates.iter().find(|(_, updated)| *updated == operand);
            let is_there = updated.is_some_and(|&(output, _)| writes[output] == located);
            let lies_in_output = is_there || overwritten == Some(operand);
            reads.push((!lies_in_output).then_some(located));
        }
        Ok(Call {
            step: index,
            kernel: Arc::new(kernel),
            reads,
            writes,
            in_place: overwritten.is_some(),
            joined: false,
        })
    }

    fn locate(&self, context: &Context<'_>, value: ValueId) -> Result<Located, EngineError> {
        Ok(Located {
            place: self.place(context, value)?,
            dtype: context.dtype(value),
        })
    }

    /// Where a value is.
    pub fn place(&self, context: &Context<'_>, value: ValueId) -> Result<Place, EngineError> {
        if let Some(values) = self.constants.get(&value) {
            let bytes = 0..values.bytes().len();
            return Ok(Place::Constant(Arc::clone(values), bytes));
        }
        if let Some(home) = context.states.home(value) {
            return Ok(Place::State(home));
        }
        Ok(match context.graph.value(value).source {
            ValueSource::Input(position) => Place::Input(position, 0..context.bytes(value)?),
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
        let constants = self.constants.values();
        constants.map(|tensor| tensor.bytes().len()).sum()
    }
}

impl Context<'_> {
    fn shape(&self, value: ValueId) -> Result<Vec<usize>, GraphError> {
        self.graph.value_shape(value, self.bindings)
    }

    fn dtype(&self, value: ValueId) -> DType {
        match self.lowered.forms.contains_key(&value) {
            true => DType::I8,
            false => self.graph.value(value).ty.dtype,
        }
    }

    /// Memory of a value.
    pub fn bytes(&self, value: ValueId) -> Result<usize, EngineError> {
        if let Some(form) = self.lowered.forms.get(&value) {
            return Ok(form.bytes(&self.shape(value)?));
        }
        let elements: usize = self.shape(value)?.iter().product();
        Ok(elements * self.dtype(value).size_bytes())
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

    /// The kernel of a step for these sizes.
    pub fn kernel(&self, step: &LoweredNode, weights: &mut Weights) -> Result<Kernel, EngineError> {
        // A node reads its inputs under their own shapes, which a reshape in front may have changed.
        let node = self.graph.node(step.node);
        let mut inputs = Vec::new();
        for (i, &value) in node.inputs.iter().enumerate() {
            let fused_away = step.fused.input_scale.is_some() && i == 0;
            inputs.push(self.shape(if fused_away { step.inputs[0] } else { value })?);
        }
        let outputs = node.outputs.iter().map(|&value| self.shape(value));
        let outputs: Option<Vec<Vec<usize>>> = match outputs.collect() {
            Ok(shapes) => Some(shapes),
            Err(GraphError::UnboundSymbol { .. }) => None,
            Err(other) => return Err(other.into()),
        };
        node.op.prepare(&mut Prepare {
            cpu: self.cpu,
            graph: self.graph,
            step,
            mode: self.options.mode,
            integers: self.options.integers,
            precision: self.precision,
            forms: &self.lowered.forms,
            inputs: &inputs,
            outputs: outputs.as_deref(),
            bindings: self.bindings,
            turns: self.turns,
            weights,
        })
    }

    fn constant(
        &self,
        step: &LoweredNode,
        kernel: &Kernel,
        constants: &Constants,
    ) -> Result<Arc<Tensor<'static>>, EngineError> {
        let fill = match &kernel.work {
            Work::Constant(value) => return Ok(Arc::clone(value)),
            Work::Fill(fill) => fill,
            Work::Define(_) => unreachable!("sizes that a run defines are no constants"),
        };
        let value = step.outputs[0];
        let mut y = Tensor::zeros(self.dtype(value), self.shape(value)?)?;
        let reads = step.reads().map(|read| Some(View::of(&constants[&read])));
        let mut io = Operands::new(reads.collect(), vec![ViewMut::of(&mut y)]);
        fill(self.cpu, &mut io).map_err(|message| EngineError::Node {
            node: self.graph.node(step.node).name.clone(),
            message,
        })?;
        Ok(Arc::new(y))
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
    step: &LoweredNode,
    index: usize,
    kernel: &Kernel,
    last_use: &BTreeMap<ValueId, usize>,
) -> Option<ValueId> {
    let value = step.reads().nth(kernel.in_place_operand?)?;
    let reads_once = step.reads().filter(|read| *read == value).count() == 1;
    (reads_once && last_use.get(&value) == Some(&index)).then_some(value)
}
