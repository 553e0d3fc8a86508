//! One step on a batch, whole or in parts, by one of several graphs, and the state that all of them move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use percept_data::loader::Batch;
use percept_data::random::key;
use percept_engine::{EngineError, Options, Program, Recording, TrainStep};
use percept_graph::{
    GraphError, LEARNING_RATE, MOMENTUM, PART_SHARE, RANDOM_COUNTER, Recompute, StateKind, Tensor,
    WeightSource,
};
use percept_kernels::Cpu;
use percept_models::lesson::{Lesson, TrainingGraph};
use percept_models::nearest;

use crate::evaluate::named;
use crate::parameters::LearnedParameters;
use crate::saving::{ELEMENTWISE, Fitted, settle};
use crate::{Learner, RunLength, Schedule, TrainConfig, TrainError};

/// The counters of dropout are i32, but older runs had them as f32, which count exactly to here: a resumed run goes on with
/// the same numbers.
const COUNTER_LIMIT: u64 = 1 << 24;

/// A learner at work.
pub(crate) struct Stepper {
    lesson: Arc<dyn Lesson>,
    variants: Vec<Variant>,
    /// Which variant has the newest value of each state.
    holders: BTreeMap<String, usize>,
    parts: usize,
    seed: u64,
    fitted: Option<Fitted>,
}

/// One of a lesson's graphs, with a copy of the state that it reads.
pub(crate) struct Variant {
    /// The whole step, or the gradients of a part.
    network: TrainStep,
    /// The update by summed gradients, where a batch comes in parts.
    update: Option<TrainStep>,
    loss: &'static str,
    terms: Vec<&'static str>,
}

/// What a step tells, as means over its samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepOutcome {
    /// What is to fall.
    pub loss: f64,
    /// The terms of the loss, and what the lesson observed, by name.
    pub figures: BTreeMap<&'static str, f64>,
}

/// Which step it is and how far it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepInputs {
    /// Steps that are done.
    pub done: u64,
    /// The learning rate.
    pub rate: f64,
    /// The momentum, where the optimiser is given one.
    pub momentum: f64,
}

impl StepInputs {
    /// Of the step behind `done` others.
    pub(crate) fn behind(done: u64, schedule: &Schedule, length: &RunLength) -> Self {
        Self {
            done,
            rate: schedule.rate_at(done, length),
            momentum: schedule.momentum_at(done, length).unwrap_or(0.0),
        }
    }

    /// As the graphs take them, by name.
    fn scalars(&self) -> [(&'static str, Tensor<'static>); 2] {
        [(LEARNING_RATE, self.rate), (MOMENTUM, self.momentum)]
            .map(|(name, value)| (name, Tensor::scalar(value as f32)))
    }
}

impl Stepper {
    pub(crate) fn new(
        learner: &Learner,
        config: &TrainConfig,
        weights: Arc<dyn WeightSource>,
        threads: usize,
    ) -> Result<Self, TrainError> {
        let (again, fitted) = settle(learner, config, &weights, threads)?;
        let graphs = learner.lesson.graphs().into_iter();
        let variant = |graph| Variant::new(graph, config, &again, &weights, threads);
        let variants: Result<Vec<Variant>, _> = graphs.map(variant).collect();
        let variants = variants.map_err(|error| name_nearest(error, learner))?;
        let mut holders = BTreeMap::new();
        for (number, variant) in variants.iter().enumerate() {
            for name in variant.state_names() {
                holders.entry(name).or_insert(number);
            }
        }
        Ok(Self {
            lesson: Arc::clone(&learner.lesson),
            variants,
            holders,
            parts: config.parts,
            seed: config.seed,
            fitted,
        })
    }

    /// What a limit of memory led to, where there is one.
    pub(crate) fn fitted(&self) -> Option<&Fitted> {
        self.fitted.as_ref()
    }

    /// Moves the state by one batch; the times of the network's nodes go to `recording`.
    pub(crate) fn run(
        &mut self,
        batch: &Batch,
        inputs: StepInputs,
        recording: Option<&mut Recording>,
    ) -> Result<StepOutcome, TrainError> {
        let chosen = self.lesson.choose(self.seed, inputs.done);
        self.hand_over_to(chosen)?;
        let first_counter = inputs.done * self.parts as u64;
        let variant = &mut self.variants[chosen];
        let outcome = variant.gradients(
            &*self.lesson,
            batch,
            &inputs,
            |part| random_counter(self.seed, first_counter + part),
            recording,
        )?;
        variant.update(&inputs)?;
        Ok(outcome)
    }

    /// Brings the newest state to the variant that is to go on.
    fn hand_over_to(&mut self, chosen: usize) -> Result<(), EngineError> {
        for name in self.variants[chosen].state_names() {
            let holder = self.holders.insert(name.clone(), chosen);
            if let Some(holder) = holder.filter(|&holder| holder != chosen) {
                let newest = self.variants[holder].state(&name)?;
                self.variants[chosen].set_state(&name, &newest)?;
            }
        }
        Ok(())
    }

    /// Everything that the next step reads, by name: parameters, running statistics, moments.
    pub(crate) fn state(&mut self) -> Result<Vec<(String, Tensor<'static>)>, EngineError> {
        let mut tensors = Vec::new();
        for name in self.state_names() {
            let holder = self.holders[&name];
            let tensor = self.variants[holder].state(&name)?;
            tensors.push((name, tensor));
        }
        Ok(tensors)
    }

    /// Goes back to where a state was taken. Every name must be there.
    pub(crate) fn restore(
        &mut self,
        tensors: &[(String, Tensor<'static>)],
    ) -> Result<(), EngineError> {
        let tensors: BTreeMap<&str, _> = tensors.iter().map(|(n, t)| (n.as_str(), t)).collect();
        for name in self.state_names() {
            let Some(tensor) = tensors.get(name.as_str()) else {
                return Err(EngineError::UnknownState { name });
            };
            let holder = self.holders[&name];
            self.variants[holder].set_state(&name, tensor)?;
        }
        Ok(())
    }

    /// The names of all state, each once, in the order of the graphs.
    fn state_names(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let names = self.variants.iter().flat_map(Variant::state_names);
        names.filter(|name| seen.insert(name.clone())).collect()
    }

    /// What runs a step by the first graph, or a part of it.
    pub(crate) fn program(&self) -> &Program {
        self.variants[0].program()
    }

    /// The parameters as they are now, for a network that infers.
    pub(crate) fn parameters(&mut self) -> Result<LearnedParameters, EngineError> {
        Ok(LearnedParameters::new(self.state()?))
    }
}

impl Variant {
    pub(crate) fn new(
        graph: TrainingGraph,
        config: &TrainConfig,
        again: &Recompute,
        weights: &Arc<dyn WeightSource>,
        threads: usize,
    ) -> Result<Self, TrainError> {
        let TrainingGraph { graph, loss, terms } = graph;
        let training = config.training();
        let trains = |name: &str| config.freeze.trains(name);
        let step = |graph| {
            let cpu = Cpu::new(threads)?;
            TrainStep::new(graph, Arc::clone(weights), cpu, Options::default())
                .map_err(TrainError::from)
        };
        let (network, update) = if config.parts == 1 {
            let whole = config.save(training.graph(graph, loss, trains)?, again)?;
            (step(whole)?, None)
        } else {
            let halves = training.in_parts(graph, loss, trains)?;
            let gradients = config.save(halves.gradients, again)?;
            (step(gradients)?, Some(step(halves.update)?))
        };
        Ok(Self {
            network,
            update,
            loss,
            terms,
        })
    }

    /// What runs the step, or the gradients of a part.
    pub(crate) fn program(&self) -> &Program {
        self.network.program()
    }

    /// Bytes that are known to be needed before a run.
    pub(crate) fn planned_bytes(
        &mut self,
        shapes: &[(String, Vec<usize>)],
    ) -> Result<usize, EngineError> {
        let shapes: Vec<_> = shapes
            .iter()
            .map(|(n, s)| (n.as_str(), s.clone()))
            .collect();
        self.network.planned_bytes(&shapes)
    }

    /// Runs the network over all parts of a batch.
    pub(crate) fn gradients(
        &mut self,
        lesson: &dyn Lesson,
        batch: &Batch,
        inputs: &StepInputs,
        counter: impl Fn(u64) -> Tensor<'static>,
        mut recording: Option<&mut Recording>,
    ) -> Result<StepOutcome, TrainError> {
        let mut outcome = StepOutcome::default();
        for (number, part) in (0..).zip(&batch.parts) {
            let share = part.samples as f64 / batch.samples.len() as f64;
            let [rate, momentum] = inputs.scalars();
            let scalars = [
                rate,
                momentum,
                (PART_SHARE, Tensor::scalar(share as f32)),
                (RANDOM_COUNTER, counter(number)),
            ];
            let wanted = self.network.program().graph().inputs().to_vec();
            let given: Vec<(&str, &Tensor<'_>)> = wanted
                .iter()
                .filter_map(|input| {
                    let scalar = scalars.iter().find(|(name, _)| *name == input.name);
                    let tensor = scalar.map(|(_, t)| t).or_else(|| part.get(&input.name))?;
                    Some((input.name.as_str(), tensor))
                })
                .collect();
            let outputs = match recording.as_deref_mut() {
                Some(recording) => self.network.step_recorded(&given, recording)?,
                None => self.network.step(&given)?,
            };
            let value = |name: &str| {
                let values = outputs.get(name).map(|tensor| tensor.to_f64());
                let first = values.and_then(|values| values.first().copied());
                first.unwrap_or(f64::NAN)
            };
            outcome.loss += share * value(self.loss);
            let terms = self.terms.iter().map(|&term| (term, value(term)));
            let observed = lesson.observe(&named(&outputs), part)?;
            for (name, value) in terms.chain(observed) {
                *outcome.figures.entry(name).or_insert(0.0) += share * value;
            }
        }
        Ok(outcome)
    }

    /// Moves the parameters by the sums of the parts' gradients, which begin at zero again.
    fn update(&mut self, numbers: &StepInputs) -> Result<(), EngineError> {
        let Some(update) = &mut self.update else {
            return Ok(());
        };
        let graph = update.program().graph();
        let names: Vec<String> = graph.inputs().iter().map(|i| i.name.clone()).collect();
        let parameters: Vec<String> = graph
            .states()
            .iter()
            .filter(|state| state.kind == StateKind::Parameter)
            .map(|state| state.name.clone())
            .collect();
        let mut inputs = Vec::new();
        for name in &names {
            let scalar = numbers.scalars().into_iter().find(|(n, _)| n == name);
            let tensor = match scalar {
                Some((_, scalar)) => scalar,
                None => self.network.state(name)?,
            };
            inputs.push((name.as_str(), tensor));
        }
        let given: Vec<_> = inputs
            .iter()
            .map(|(name, tensor)| (*name, tensor))
            .collect();
        update.step(&given)?;
        for name in &parameters {
            self.network.set_state(name, &update.state(name)?)?;
        }
        for (name, mut sum) in inputs {
            if ![LEARNING_RATE, MOMENTUM].contains(&name) {
                sum.values_mut::<f32>()?.fill(0.0);
                self.network.set_state(name, &sum)?;
            }
        }
        Ok(())
    }

    /// The state of this name, as it is now.
    fn state(&mut self, name: &str) -> Result<Tensor<'static>, EngineError> {
        match &mut self.update {
            Some(update) if self.network.program().graph().state(name).is_none() => {
                update.state(name)
            }
            _ => self.network.state(name),
        }
    }

    fn set_state(&mut self, name: &str, tensor: &Tensor<'_>) -> Result<(), EngineError> {
        if self.network.program().graph().state(name).is_some() {
            self.network.set_state(name, tensor)?;
        }
        if let Some(update) = &mut self.update
            && update.program().graph().state(name).is_some()
        {
            update.set_state(name, tensor)?;
        }
        Ok(())
    }

    /// The state to keep. Sums of gradients are zero between steps.
    fn state_names(&self) -> Vec<String> {
        let states = self.network.program().graph().states().iter();
        let network =
            states.filter(|state| self.update.is_none() || state.kind != StateKind::Moment);
        let update = self.update.iter().flat_map(|update| {
            let states = update.program().graph().states().iter();
            states.filter(|state| state.kind == StateKind::Moment)
        });
        network
            .chain(update)
            .map(|state| state.name.clone())
            .collect()
    }
}

/// A module that is not there, with the one that was probably meant.
fn name_nearest(error: TrainError, learner: &Learner) -> TrainError {
    let TrainError::Graph(GraphError::UnknownScope { name: module }) = error else {
        return error;
    };
    let graphs = learner.lesson.graphs();
    let scopes = graphs.iter().flat_map(|graph| graph.graph.scopes());
    let paths = scopes.map(|scope| scope.path.as_str());
    let paths = paths.filter(|path| !path.is_empty()).chain([ELEMENTWISE]);
    let nearest = nearest(&module, paths).map(str::to_owned);
    TrainError::UnknownRecomputed { module, nearest }
}

/// What dropout follows from: the seed, folded, and the part of the run.
pub(crate) fn random_counter(seed: u64, count: u64) -> Tensor<'static> {
    let seed = key(&[seed, u64::from_le_bytes(*b"dropout.")]);
    let counters = [seed, count].map(|counter| (counter % COUNTER_LIMIT) as i32);
    Tensor::from_values([2], counters.to_vec()).expect("two counters")
}
