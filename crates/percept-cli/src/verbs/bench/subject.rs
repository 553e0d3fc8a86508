//! What is run again and again: an inference, or a training step.

use std::sync::Arc;
use std::time::Instant;

use percept_data::Example;
use percept_data::loader::Batch;
use percept_engine::{Memory, Options, Program, Recording};
use percept_graph::{DType, Graph, Tensor, ValueId, WeightSource, differentiate};
use percept_kernels::{Cpu, machine};
use percept_models::Model;
use percept_report::Spread;
use percept_train::{Fitted, Learner, Probe, TrainConfig, batch_of};

use crate::fail::Result;
use crate::training::{blame, rehearsing};

/// Something to measure, with its inputs in memory.
pub enum Subject {
    Graph {
        program: Box<Program>,
        inputs: Example,
    },
    Step {
        probe: Box<Probe>,
        batch: Batch,
    },
}

/// One run.
pub struct Timed {
    pub wall_ms: f64,
    pub cpu_ms: f64,
}

/// How long something takes.
pub fn timed<T>(run: impl FnOnce() -> T) -> Timed {
    let cpu_before = machine::process_cpu_seconds();
    let start = Instant::now();
    run();
    let wall_ms = start.elapsed().as_secs_f64() * 1e3;
    let cpu_seconds = machine::process_cpu_seconds()
        .zip(cpu_before)
        .map(|(after, before)| after - before);
    Timed {
        wall_ms,
        cpu_ms: cpu_seconds.map_or(wall_ms, |seconds| seconds * 1e3),
    }
}

/// What a subject is, once it ran.
pub struct Facts {
    pub macs: u64,
    pub memory_bytes: usize,
}

/// Times of some runs.
pub struct Times {
    pub wall_ms: Spread,
    pub cpu_ms: Spread,
}

impl Subject {
    pub fn inference(
        model: &Model,
        weights: &Arc<dyn WeightSource>,
        inputs: Example,
        cpu: Cpu,
        options: Options,
    ) -> Self {
        let form = model.form(options.memory == Memory::Frugal);
        Self::of_graph(form.clone(), weights, inputs, cpu, options)
    }

    /// Whether a network is a loss, of which only the gradients by its inputs are measured.
    pub fn is_loss(model: &Model) -> bool {
        let mut outputs = model.graph.outputs().iter();
        outputs.any(|(name, _)| name == "loss")
    }

    /// A training step on noise: the whole step of a network that is taught, or the gradients of a `loss` by its inputs.
    pub fn training(
        model: &Model,
        weights: &Arc<dyn WeightSource>,
        inputs: Example,
        cpu: Cpu,
        options: Options,
        config: &TrainConfig,
    ) -> Result<Self> {
        if Self::is_loss(model) {
            let graph = with_input_gradients(model.graph.clone())?;
            return Ok(Self::of_graph(graph, weights, inputs, cpu, options));
        }
        let first = inputs.tensors.first();
        let size = first.and_then(|(_, image)| match image.shape()[..] {
            [_, _, height, width] => Some([height, width]),
            _ => None,
        });
        let learner = rehearsing(model, size)?;
        Self::step(&learner, inputs.samples, cpu.threads(), config)
    }

    /// Inferences of a graph.
    pub fn of_graph(
        graph: Graph,
        weights: &Arc<dyn WeightSource>,
        inputs: Example,
        cpu: Cpu,
        options: Options,
    ) -> Self {
        let program = Box::new(Program::new(graph, Arc::clone(weights), cpu, options));
        Self::Graph { program, inputs }
    }

    /// A learner's step on noise.
    pub fn step(
        learner: &Learner,
        samples: usize,
        threads: usize,
        config: &TrainConfig,
    ) -> Result<Self> {
        let rehearsal = learner.lesson.rehearsal(samples);
        let batch = batch_of(rehearsal.map_err(|error| blame(error.into()))?);
        let config = TrainConfig {
            batch: samples,
            ..config.clone()
        };
        let probe = Probe::new(learner, &config, threads).map_err(blame)?;
        Ok(Self::Step {
            probe: Box::new(probe),
            batch,
        })
    }

    /// The shapes of what goes in.
    pub fn shapes(&self) -> Vec<(&str, &[usize])> {
        match self {
            Subject::Graph { inputs, .. } => {
                let shapes = inputs.tensors.iter();
                shapes
                    .map(|(name, tensor)| (name.as_str(), tensor.shape()))
                    .collect()
            }
            Subject::Step { batch, .. } => {
                let tensors = batch.parts.iter().flat_map(|part| &part.tensors);
                let shapes = tensors.map(|(name, tensor)| (name.as_str(), tensor.shape()));
                shapes.collect()
            }
        }
    }

    /// How many samples go in at once.
    pub fn samples(&self) -> usize {
        match self {
            Subject::Graph { inputs, .. } => inputs.samples,
            Subject::Step { batch, .. } => batch.samples.len(),
        }
    }

    pub fn program(&self) -> &Program {
        match self {
            Subject::Graph { program, .. } => program,
            Subject::Step { probe, .. } => probe.program(),
        }
    }

    /// What a limit of memory led to, where there is one.
    pub fn fitted(&self) -> Option<&Fitted> {
        match self {
            Subject::Graph { .. } => None,
            Subject::Step { probe, .. } => probe.fitted(),
        }
    }

    /// Runs once.
    pub fn run(&mut self, recording: Option<&mut Recording>) -> Result<()> {
        match self {
            Subject::Graph { program, inputs } => {
                program.run_recorded(&named(inputs), recording)?;
            }
            Subject::Step { probe, batch } => probe.run(batch, recording).map_err(blame)?,
        }
        Ok(())
    }

    /// Runs once more, for what comes out. A training step has nothing to show.
    pub fn outputs(&mut self) -> Result<Vec<(String, Tensor<'static>)>> {
        match self {
            Subject::Graph { program, inputs } => Ok(program.run(&named(inputs))?.to_tensors()),
            Subject::Step { .. } => Ok(Vec::new()),
        }
    }

    /// Runs once and looks at what was prepared for it.
    pub fn facts(&mut self) -> Result<Facts> {
        let mut recording = Recording::default();
        self.run(Some(&mut recording))?;
        let program = self.program();
        let bindings = &recording.runs[0].bindings;
        Ok(Facts {
            macs: program.graph().total_macs(bindings)?,
            memory_bytes: program.memory_at_peak(bindings).total_bytes(),
        })
    }

    pub fn timed(&mut self) -> Result<Timed> {
        let mut ran = Ok(());
        let time = timed(|| ran = self.run(None));
        ran.map(|()| time)
    }

    /// Times of `repeats` runs; `on_run` hears of each.
    pub fn measure(&mut self, repeats: u64, on_run: impl Fn()) -> Result<Times> {
        let (mut wall_ms, mut cpu_ms) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            let time = self.timed()?;
            wall_ms.push(time.wall_ms);
            cpu_ms.push(time.cpu_ms);
            on_run();
        }
        Ok(Times {
            wall_ms: Spread::of(wall_ms),
            cpu_ms: Spread::of(cpu_ms),
        })
    }
}

fn named(inputs: &Example) -> Vec<(&str, &Tensor<'static>)> {
    let inputs = inputs.tensors.iter();
    inputs
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect()
}

/// A graph with the output `loss` and the gradients of it by every input that has one.
fn with_input_gradients(graph: Graph) -> Result<Graph> {
    let loss = graph.find("loss")?;
    let inputs = graph.inputs().iter();
    let inputs: Vec<(String, ValueId)> = inputs
        .filter(|input| graph.value(input.value).ty.dtype == DType::F32)
        .map(|input| (input.name.clone(), input.value))
        .collect();
    let values: Vec<ValueId> = inputs.iter().map(|(_, value)| *value).collect();
    let differentiated = differentiate(graph, loss, &values)?;
    let mut graph = differentiated.graph;
    for (name, value) in inputs {
        if let Some(&gradient) = differentiated.gradients.get(&value) {
            graph = graph.with_output(&format!("{name}.gradient"), gradient);
        }
    }
    Ok(graph)
}
