//! A program: a graph with packed weights, ready to run again and again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use percept_graph::{Bindings, Graph, GraphError, Tensor, WeightSource};
use percept_kernels::{Arena, Cpu};

use crate::EngineError;
use crate::empty::{EmptyResponses, Reached, tracked_steps};
use crate::lowering::Lowered;
use crate::operands::View;
use crate::options::{Empty, Memory, Mode, Options};
use crate::outputs::Outputs;
use crate::passes;
use crate::precision::PrecisionPlan;
use crate::probe::{Observe, Recording};
use crate::profile::require_memory;
use crate::schedule::{Call, Context, Place, Schedule};
use crate::segment::segments;
use crate::state::States;
use crate::weights::Weights;

/// Schedules kept. Where data defines sizes, nearly every input brings new ones.
const MAX_SCHEDULES: usize = 256;

/// A graph lowered, packed and planned for a CPU.
///
/// Plans and packed weights are made when a size is first seen and kept, so a steady stream of inputs of one size
/// allocates nothing.
pub struct Program {
    pub(crate) graph: Graph,
    pub(crate) lowered: Lowered,
    segments: Vec<Range<usize>>,
    pub(crate) options: Options,
    precision: PrecisionPlan,
    pub(crate) cpu: Cpu,
    pub(crate) weights: Weights,
    schedules: BTreeMap<ScheduleKey, Arc<Schedule>>,
    /// The schedules' keys, oldest first.
    schedule_order: VecDeque<ScheduleKey>,
    pub(crate) arena: Arena,
    pub(crate) states: States,
    /// What outlives a run; empty until it is loaded.
    pub(crate) state: Arena,
    planning: Duration,
    /// Steps that know their answer to an empty map.
    pub(crate) tracked: BTreeSet<usize>,
    pub(crate) empty: Option<EmptyResponses>,
}

/// Segment, sizes, and how a batch is computed.
type ScheduleKey = (usize, Bindings, Batch);

/// How a batch is computed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Batch {
    /// In slices, where that is faster.
    Sliced,
    /// At once, for those who look at layers.
    Whole,
}

/// What it took to get ready, apart from running.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Preparation {
    /// Reading or generating weights.
    pub reading: Duration,
    /// Folding and packing weights.
    pub packing: Duration,
    /// Choosing kernels and planning buffers.
    pub planning: Duration,
    /// Packed weights and vectors.
    pub weight_bytes: usize,
    /// The arena.
    pub arena_bytes: usize,
    /// Working memory of the threads.
    pub scratch_bytes: usize,
}

impl Program {
    /// Lowers a graph. Weights are read and packed when the first input's size is known.
    pub fn new(graph: Graph, weights: Arc<dyn WeightSource>, cpu: Cpu, options: Options) -> Self {
        let mut lowered = Lowered::new(&graph);
        passes::run(&graph, &mut lowered, options.integers);
        let states = States::new(&graph, &mut lowered);
        let segments = segments(&graph, &lowered);
        // In exact mode there is no Winograd, so no tile to skip.
        let tracked = match (options.empty, options.mode) {
            (Empty::Ignore, _) | (_, Mode::Exact) => BTreeSet::new(),
            _ if !graph.states().is_empty() => BTreeSet::new(),
            _ => tracked_steps(&graph, &lowered),
        };
        Self {
            graph,
            lowered,
            segments,
            options,
            precision: PrecisionPlan::new(),
            cpu,
            weights: Weights::new(weights),
            schedules: BTreeMap::new(),
            schedule_order: VecDeque::new(),
            arena: Arena::default(),
            states,
            state: Arena::default(),
            planning: Duration::ZERO,
            tracked,
            empty: None,
        }
    }

    /// The same program with layers in the precisions of a plan.
    pub fn with_precision(mut self, plan: PrecisionPlan) -> Result<Self, EngineError> {
        plan.check(&self.graph)?;
        self.precision = plan;
        self.schedules.clear();
        self.schedule_order.clear();
        Ok(self)
    }

    /// The graph it runs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The CPU it runs on.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// How it runs.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Where its weights come from.
    pub fn weights_description(&self) -> String {
        self.weights.source().describe()
    }

    /// What getting ready has taken so far.
    pub fn preparation(&self) -> Preparation {
        Preparation {
            reading: self.weights.reading,
            packing: self.weights.packing,
            planning: self.planning,
            weight_bytes: self.weights.bytes()
                + self.empty.as_ref().map_or(0, EmptyResponses::bytes),
            arena_bytes: self.arena.len(),
            scratch_bytes: self.cpu.scratch_bytes(),
        }
    }

    /// Bytes held for runs so far: values, state, packed weights and working memory.
    pub fn held_bytes(&self) -> usize {
        let Preparation {
            weight_bytes,
            arena_bytes,
            scratch_bytes,
            ..
        } = self.preparation();
        weight_bytes + arena_bytes + scratch_bytes + self.state.len()
    }

    /// Gets ready for inputs of these shapes, without running. Sizes that only a run defines are planned when it gets there.
    pub fn prepare(&mut self, shapes: &[(&str, Vec<usize>)]) -> Result<Bindings, EngineError> {
        let bindings = self.graph.bind(shapes)?;
        let schedule = self.schedule(0, &bindings, Batch::Sliced, None)?;
        self.arena.ensure(schedule.plan.arena_bytes);
        Ok(bindings)
    }

    /// Bytes of values and state that inputs of these shapes are known to need before a run: values whose size only a run defines
    /// do not count.
    pub fn planned_bytes(&mut self, shapes: &[(&str, Vec<usize>)]) -> Result<usize, EngineError> {
        let bindings = self.graph.bind(shapes)?;
        let schedule = self.schedule(0, &bindings, Batch::Sliced, None)?;
        Ok(schedule.plan.arena_bytes + self.states.bytes())
    }

    /// Runs on these inputs.
    pub fn run(&mut self, inputs: &[(&str, &Tensor<'_>)]) -> Result<Outputs<'_>, EngineError> {
        self.run_recorded(inputs, None)
    }

    /// Runs, noting the time of every step in `recording`.
    pub fn run_recorded(
        &mut self,
        inputs: &[(&str, &Tensor<'_>)],
        recording: Option<&mut Recording>,
    ) -> Result<Outputs<'_>, EngineError> {
        self.run_watched(inputs, recording, None)
    }

    /// Runs, showing `observe` what each layer with weights is about to multiply. Layers stay fused as they are.
    pub fn run_observed(
        &mut self,
        inputs: &[(&str, &Tensor<'_>)],
        observe: &mut Observe<'_>,
    ) -> Result<Outputs<'_>, EngineError> {
        self.run_watched(inputs, None, Some(observe))
    }

    fn run_watched(
        &mut self,
        inputs: &[(&str, &Tensor<'_>)],
        mut recording: Option<&mut Recording>,
        mut observe: Option<&mut Observe<'_>>,
    ) -> Result<Outputs<'_>, EngineError> {
        let started = Instant::now();
        self.load_state()?;
        let (mut bindings, inputs) = self.bind_inputs(inputs)?;
        let mut schedule: Option<Arc<Schedule>> = None;
        let mut defined: Vec<Tensor<'static>> = Vec::new();
        let mut reached = Reached::default();
        let batch = match observe {
            Some(_) => Batch::Whole,
            None => Batch::Sliced,
        };
        for segment in 0..self.segments.len() {
            let next = self.schedule(segment, &bindings, batch, schedule.as_deref())?;
            if segment == 0 {
                self.arena.ensure(next.plan.arena_bytes);
            } else {
                self.arena.grow(size_class(next.plan.arena_bytes));
                self.store_defined(
                    &self.segments[segment - 1].clone(),
                    &next,
                    std::mem::take(&mut defined),
                )?;
            }
            self.learn_empty_map(segment, &next);
            for call in &next.calls {
                if let Some(observe) = observe.as_deref_mut() {
                    self.show(call, &inputs, &bindings, observe)?;
                }
                let Some(recording) = recording.as_deref_mut() else {
                    defined = self.execute(call, &inputs, &mut bindings, &mut reached)?;
                    continue;
                };
                let begin = Instant::now();
                defined = self.execute(call, &inputs, &mut bindings, &mut reached)?;
                recording.push(call.step, begin.duration_since(started), begin.elapsed());
            }
            schedule = Some(next);
        }
        let schedule = schedule.expect("a graph has at least one segment");
        self.store_state(&schedule, &bindings)?;
        if let Some(recording) = recording {
            recording.finish(started.elapsed(), &bindings, reached.computed);
        }
        self.outputs(&schedule, &inputs, &bindings)
    }

    /// The schedules of all segments that a run with these sizes has gone through.
    pub(crate) fn schedules_for(&self, bindings: &Bindings) -> Vec<&Schedule> {
        let is_part = |known: &Bindings| {
            known
                .iter()
                .all(|(symbol, size)| bindings.get(symbol) == Some(size))
        };
        let found = self
            .schedules
            .iter()
            .filter(|((_, known, batch), _)| *batch == Batch::Sliced && is_part(known));
        found.map(|(_, schedule)| &**schedule).collect()
    }

    /// The calls of such a run, in order.
    pub(crate) fn calls(&self, bindings: &Bindings) -> Vec<(&Schedule, &Call)> {
        let schedules = self.schedules_for(bindings);
        schedules
            .into_iter()
            .flat_map(|schedule| schedule.calls.iter().map(move |call| (schedule, call)))
            .collect()
    }

    /// What places of values depend on.
    pub(crate) fn context<'a>(&'a self, bindings: &'a Bindings) -> Context<'a> {
        Context {
            cpu: &self.cpu,
            graph: &self.graph,
            lowered: &self.lowered,
            states: &self.states,
            options: self.options,
            precision: &self.precision,
            bindings,
            turns: 1,
        }
    }

    fn bind_inputs<'i>(
        &self,
        inputs: &[(&str, &'i Tensor<'_>)],
    ) -> Result<BoundInputs<'i>, EngineError> {
        let shapes: Vec<(&str, Vec<usize>)> = inputs
            .iter()
            .map(|(name, tensor)| (*name, tensor.shape().to_vec()))
            .collect();
        let bindings = self.graph.bind_symbols(&shapes)?;
        // Looking at every size of the network takes longer than some of its layers: known sizes were looked at.
        let key = (0, bindings.clone(), Batch::Sliced);
        if !self.schedules.contains_key(&key) {
            self.graph.check_sizes(&bindings)?;
        }
        let mut slices = Vec::new();
        for input in self.graph.inputs() {
            let given = inputs.iter().find(|(name, _)| *name == input.name);
            let (_, tensor) = given.ok_or_else(|| GraphError::MissingInput {
                name: input.name.clone(),
            })?;
            let (expected, got) = (self.graph.value(input.value).ty.dtype, tensor.dtype());
            if got != expected {
                let input = input.name.clone();
                return Err(EngineError::InputType {
                    input,
                    expected,
                    got,
                });
            }
            slices.push(View::of(tensor));
        }
        Ok((bindings, slices))
    }

    /// The schedule of a segment for these sizes, made when they are new.
    fn schedule(
        &mut self,
        segment: usize,
        bindings: &Bindings,
        batch: Batch,
        earlier: Option<&Schedule>,
    ) -> Result<Arc<Schedule>, EngineError> {
        let key = (segment, bindings.clone(), batch);
        if let Some(schedule) = self.schedules.get(&key) {
            return Ok(Arc::clone(schedule));
        }
        require_memory(&self.graph, bindings, self.options.memory)?;
        let start = Instant::now();
        let weights_before = self.weights.reading + self.weights.packing;
        let context = Context {
            cpu: &self.cpu,
            graph: &self.graph,
            lowered: &self.lowered,
            states: &self.states,
            options: self.options,
            precision: &self.precision,
            bindings,
            turns: 1,
        };
        // Readers of values are known where all is planned at once, the parts of maps that are empty where the batch is, and state is one
        // for all samples.
        let may_slice = batch == Batch::Sliced
            && self.options.memory == Memory::Frugal
            && self.segments.len() == 1
            && self.tracked.is_empty()
            && self.graph.states().is_empty();
        let is_last = segment + 1 == self.segments.len();
        let schedule = Schedule::new(
            &context,
            &mut self.weights,
            self.segments[segment].clone(),
            is_last,
            earlier,
            may_slice,
        )?;
        let on_weights = self.weights.reading + self.weights.packing - weights_before;
        self.planning += start.elapsed().saturating_sub(on_weights);
        let schedule = Arc::new(schedule);
        if self.schedule_order.len() >= MAX_SCHEDULES
            && let Some(oldest) = self.schedule_order.pop_front()
        {
            self.schedules.remove(&oldest);
        }
        self.schedule_order.push_back(key.clone());
        self.schedules.insert(key, Arc::clone(&schedule));
        Ok(schedule)
    }

    /// Computes the answers to the empty map when a segment needs them for the first time.
    fn learn_empty_map(&mut self, segment: usize, schedule: &Schedule) {
        let steps = self.segments[segment].clone();
        if self.empty.is_some() || self.tracked.range(steps).next().is_none() {
            return;
        }
        let start = Instant::now();
        let calls = &schedule.calls;
        self.empty = Some(EmptyResponses::compute(
            &self.cpu,
            &self.lowered,
            &self.tracked,
            calls,
        ));
        self.weights.packing += start.elapsed();
    }

    /// Puts the tensors that ended a segment where the next segment's plan wants them.
    fn store_defined(
        &mut self,
        ended: &Range<usize>,
        schedule: &Schedule,
        tensors: Vec<Tensor<'static>>,
    ) -> Result<(), EngineError> {
        let step = &self.lowered.steps[ended.end - 1];
        for (&value, tensor) in step.outputs.iter().zip(tensors) {
            let Some(range) = schedule.plan.range(value) else {
                continue;
            };
            let range = range.start..range.start + tensor.bytes().len();
            let broken = |source| EngineError::Plan {
                node: self.graph.node(step.node).name.clone(),
                source,
            };
            let (_, mut writes) = self.arena.views(&[], &[range]).map_err(broken)?;
            writes[0].copy_from_slice(tensor.bytes());
        }
        Ok(())
    }

    fn outputs<'p>(
        &'p mut self,
        schedule: &Schedule,
        inputs: &[View<'_>],
        bindings: &Bindings,
    ) -> Result<Outputs<'p>, EngineError> {
        let mut places = Vec::new();
        let mut shapes = Vec::new();
        for (_, value) in self.graph.outputs() {
            shapes.push(self.graph.value_shape(*value, bindings)?);
            places.push(schedule.place(&self.context(bindings), self.lowered.root(*value))?);
        }
        let ranges: Vec<Range<usize>> = places.iter().filter_map(Place::arena).collect();
        let states: Vec<Range<usize>> = places.iter().filter_map(Place::state).collect();
        let broken = |source| EngineError::Plan {
            node: "outputs".to_owned(),
            source,
        };
        let (views, _) = self.arena.views(&ranges, &[]).map_err(broken)?;
        let mut views = views.into_iter();
        let (states, _) = self.state.views(&states, &[]).map_err(broken)?;
        let mut states = states.into_iter();
        let mut tensors = Vec::new();
        for (((name, value), shape), place) in self.graph.outputs().iter().zip(shapes).zip(places) {
            let bytes: Cow<'p, [u8]> = match place {
                Place::Arena(_) => Cow::Borrowed(views.next().expect("one view a range")),
                Place::State(_) => Cow::Borrowed(states.next().expect("one view a range")),
                Place::Input(position, _) => inputs[position].bytes().to_vec().into(),
                Place::Constant(tensor, _) => tensor.bytes().to_vec().into(),
            };
            let dtype = self.graph.value(*value).ty.dtype;
            tensors.push((name.as_str(), Tensor::new(dtype, shape, bytes)?));
        }
        Ok(Outputs::new(tensors))
    }
}

/// The sizes that inputs settle, and their elements as kernels read them.
type BoundInputs<'i> = (Bindings, Vec<View<'i>>);

/// Room for this many bytes and somewhat more, where the data defines the size: the next input, a little larger, then fits.
fn size_class(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(1))
}
