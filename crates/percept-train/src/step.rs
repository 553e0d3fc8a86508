//! One step on a batch, whole or in parts, and the state that it moves.

use std::collections::BTreeMap;
use std::sync::Arc;

use percept_data::loader::Batch;
use percept_data::random::key;
use percept_engine::{EngineError, Options, Program, Recording, TrainStep};
use percept_graph::{
    LEARNING_RATE, PART_SHARE, RANDOM_COUNTER, StateKind, Tensor, TensorError, WeightSource,
};
use percept_kernels::Cpu;

use crate::parameters::LearnedParameters;
use crate::{Learner, TrainConfig, TrainError};

/// The counters of dropout are i32, but older runs had them as f32, which count exactly to here: a resumed run goes on with
/// the same numbers.
const COUNTER_LIMIT: u64 = 1 << 24;

/// A learner at work.
pub(crate) struct Step {
    /// The whole step, or the gradients of a part.
    network: TrainStep,
    /// The update by summed gradients, where a batch comes in parts.
    update: Option<TrainStep>,
    views: Vec<String>,
    loss: String,
    metrics: Vec<String>,
    parts: usize,
    seed: u64,
}

/// What a step tells, as means over its pictures.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepOutcome {
    /// What is to fall.
    pub loss: f64,
    /// Further metrics of the learner by name.
    pub metrics: BTreeMap<String, f64>,
    /// The share of pictures whose class came first; none without logits.
    pub accuracy: Option<f64>,
}

/// Which step it is and how far it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepInputs {
    /// Steps that are done.
    pub done: u64,
    /// The learning rate.
    pub rate: f64,
}

impl Step {
    pub(crate) fn new(
        learner: &Learner,
        config: &TrainConfig,
        weights: Arc<dyn WeightSource>,
        threads: usize,
    ) -> Result<Self, TrainError> {
        let (training, graph) = (config.training(), learner.training.clone());
        let step = |graph, weights| {
            TrainStep::new(graph, weights, Cpu::new(threads)?, Options::default())
                .map_err(TrainError::from)
        };
        let (network, update) = if config.parts == 1 {
            let whole = training.graph(graph, &learner.loss, |_| true)?;
            (step(whole, weights)?, None)
        } else {
            let halves = training.in_parts(graph, &learner.loss, |_| true)?;
            let network = step(halves.gradients, Arc::clone(&weights))?;
            (network, Some(step(halves.update, weights)?))
        };
        Ok(Self {
            network,
            update,
            views: learner.views.clone(),
            loss: learner.loss.clone(),
            metrics: learner.metrics.clone(),
            parts: config.parts,
            seed: config.seed,
        })
    }

    /// Moves the state by one batch; the times of the network's nodes go to `recording`.
    pub(crate) fn run(
        &mut self,
        batch: &Batch,
        inputs: StepInputs,
        mut recording: Option<&mut Recording>,
    ) -> Result<StepOutcome, EngineError> {
        let images = batch.labels.len();
        let mut outcome = StepOutcome::default();
        let mut right = None;
        let most = images.div_ceil(self.parts);
        for (part, begin) in (0..images).step_by(most.max(1)).enumerate() {
            let end = (begin + most).min(images);
            let share = (end - begin) as f64 / images as f64;
            let counter = inputs.done * self.parts as u64 + part as u64;
            let part = part_inputs(&self.views, batch, begin..end)?;
            let scalars = [
                (LEARNING_RATE, Tensor::scalar(inputs.rate as f32)),
                (PART_SHARE, Tensor::scalar(share as f32)),
                (RANDOM_COUNTER, random_counter(self.seed, counter)),
            ];
            let wanted = self.network.program().graph().inputs().to_vec();
            let given: Vec<(&str, &Tensor<'_>)> = wanted
                .iter()
                .filter_map(|input| {
                    let scalar = scalars.iter().find(|(name, _)| *name == input.name);
                    let part = part.iter().find(|(name, _)| *name == input.name);
                    let tensor = scalar.map(|(_, t)| t).or(part.map(|(_, t)| t))?;
                    Some((input.name.as_str(), tensor))
                })
                .collect();
            let outputs = match recording.as_deref_mut() {
                Some(recording) => self.network.step_recorded(&given, recording)?,
                None => self.network.step(&given)?,
            };
            let value = |name: &str| {
                let values = outputs.get(name)?.to_f64();
                values.first().copied()
            };
            outcome.loss += share * value(&self.loss).unwrap_or(f64::NAN);
            for name in &self.metrics {
                let mean = outcome.metrics.entry(name.clone()).or_insert(0.0);
                *mean += share * value(name).unwrap_or(f64::NAN);
            }
            if let Some(logits) = outputs.get("logits") {
                let labels = &batch.labels[begin..end];
                *right.get_or_insert(0) += count_right(&logits.to_f32(), labels);
            }
        }
        outcome.accuracy = right.map(|right: usize| right as f64 / images as f64);
        self.update(inputs.rate)?;
        Ok(outcome)
    }

    /// Moves the parameters by the sums of the parts' gradients, which begin at zero again.
    fn update(&mut self, rate: f64) -> Result<(), EngineError> {
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
            let tensor = match name.as_str() {
                LEARNING_RATE => Tensor::scalar(rate as f32),
                name => self.network.state(name)?,
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
            if name != LEARNING_RATE {
                sum.values_mut::<f32>()?.fill(0.0);
                self.network.set_state(name, &sum)?;
            }
        }
        Ok(())
    }

    /// Everything that the next step reads, by name: parameters, running statistics, moments.
    pub(crate) fn state(&mut self) -> Result<Vec<(String, Tensor<'static>)>, EngineError> {
        let mut tensors = Vec::new();
        for (name, is_network) in self.state_names() {
            let tensor = match (&mut self.update, is_network) {
                (Some(update), false) => update.state(&name)?,
                _ => self.network.state(&name)?,
            };
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
        for (name, is_network) in self.state_names() {
            let Some(tensor) = tensors.get(name.as_str()) else {
                return Err(EngineError::UnknownState { name });
            };
            if is_network {
                self.network.set_state(&name, tensor)?;
            }
            if let Some(update) = &mut self.update
                && update.program().graph().state(&name).is_some()
            {
                update.set_state(&name, tensor)?;
            }
        }
        Ok(())
    }

    /// The state to keep, and whether the network's part has it. Sums of gradients are zero between steps.
    fn state_names(&self) -> Vec<(String, bool)> {
        let states = self.network.program().graph().states().iter();
        let kept = states.filter(|state| self.update.is_none() || state.kind != StateKind::Moment);
        let network = kept.map(|state| (state.name.clone(), true));
        let update = self.update.iter().flat_map(|update| {
            let states = update.program().graph().states().iter();
            let moments = states.filter(|state| state.kind == StateKind::Moment);
            moments.map(|state| (state.name.clone(), false))
        });
        network.chain(update).collect()
    }

    /// What runs the step, or a part of it.
    pub(crate) fn program(&self) -> &Program {
        self.network.program()
    }

    /// The parameters as they are now, for a network that infers.
    pub(crate) fn parameters(&mut self) -> Result<LearnedParameters, EngineError> {
        Ok(LearnedParameters::new(self.state()?))
    }
}

/// What a part of a batch brings to the network: its views and labels.
pub(crate) fn part_inputs(
    views: &[String],
    batch: &Batch,
    part: std::ops::Range<usize>,
) -> Result<Vec<(String, Tensor<'static>)>, TensorError> {
    let mut inputs = Vec::new();
    for (name, view) in views.iter().zip(&batch.views) {
        let (shape, pixels) = view.read::<f32>()?;
        let picture: usize = shape[1..].iter().product();
        let pixels = pixels[part.start * picture..part.end * picture].to_vec();
        let shape = [&[part.len()], &shape[1..]].concat();
        inputs.push((name.clone(), Tensor::from_values(shape, pixels)?));
    }
    let labels = batch.labels[part].to_vec();
    let labels = Tensor::from_values([labels.len()], labels)?;
    inputs.push(("labels".to_owned(), labels));
    Ok(inputs)
}

/// What dropout follows from: the seed, folded, and the part of the run.
pub(crate) fn random_counter(seed: u64, count: u64) -> Tensor<'static> {
    let seed = key(&[seed, u64::from_le_bytes(*b"dropout.")]);
    let counters = [seed, count].map(|counter| (counter % COUNTER_LIMIT) as i32);
    Tensor::from_values([2], counters.to_vec()).expect("two counters")
}

fn count_right(logits: &[f32], labels: &[i32]) -> usize {
    let classes = logits.len() / labels.len().max(1);
    let rows = logits.chunks_exact(classes.max(1)).zip(labels);
    let answer = |row: &[f32]| {
        let best = row
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        best.map(|(class, _)| class as i32)
    };
    rows.filter(|(row, label)| answer(row) == Some(**label))
        .count()
}
