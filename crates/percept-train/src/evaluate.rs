//! A network on samples that it does not train on, and a network that a plan asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use percept_data::loader::{EpochPlan, Loader, LoaderConfig, Order, Position, Skipped};
use percept_data::{Example, Samples};
use percept_engine::{Options, Outputs, Program};
use percept_graph::{Graph, Tensor, WeightSource};
use percept_kernels::Cpu;
use percept_models::LessonError;
use percept_models::lesson::{
    Asked, Figure, FigureTable, Goal, Judged, Lesson, Metric, NamedOutputs,
};

use crate::TrainError;
use crate::stepper::Stepper;

/// How an evaluation is run; none of it changes its answer.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationOptions {
    /// Samples at once.
    pub batch: usize,
    /// Threads of the network, and as many to read samples.
    pub threads: usize,
    /// Whether a sample that cannot be used is an error.
    pub strict: bool,
}

/// What an evaluation found.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// The figure that decides.
    pub goal: Goal,
    /// How the answers were.
    pub figures: Vec<Figure>,
    /// In rows.
    pub tables: Vec<FigureTable>,
    /// How many samples were judged.
    pub samples: u64,
    /// Samples that could not be used.
    pub skipped: Vec<Skipped>,
    /// How long it took.
    pub took: Duration,
}

impl Evaluated {
    /// What a metric says, over so many samples.
    pub fn by(metric: &dyn Metric, samples: u64, begun: Instant) -> Self {
        Self {
            goal: metric.goal(),
            figures: metric.figures(),
            tables: metric.tables(),
            samples,
            skipped: Vec::new(),
            took: begun.elapsed(),
        }
    }

    /// The figure of this key.
    pub fn figure(&self, key: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.key == key)
    }

    /// The figure that decides; no number where there is none.
    pub fn decisive(&self) -> f64 {
        let figure = self.figure(self.goal.figure);
        figure.map_or(f64::NAN, |figure| figure.value.as_f64())
    }
}

/// Runs a lesson's network over all samples of a dataset. `on_batch` hears how many are done.
pub fn evaluate(
    lesson: &dyn Lesson,
    weights: Arc<dyn WeightSource>,
    dataset: Arc<dyn Samples>,
    options: &EvaluationOptions,
    on_batch: impl FnMut(u64),
) -> Result<Evaluated, TrainError> {
    evaluate_graph(
        lesson,
        lesson.inference(),
        weights,
        dataset,
        options,
        on_batch,
    )
}

/// The same with the lesson's network in another form, such as with quantisers.
pub fn evaluate_graph(
    lesson: &dyn Lesson,
    graph: Graph,
    weights: Arc<dyn WeightSource>,
    dataset: Arc<dyn Samples>,
    options: &EvaluationOptions,
    mut on_batch: impl FnMut(u64),
) -> Result<Evaluated, TrainError> {
    let mut metric = lesson.judge(&dataset);
    evaluate_by(
        &mut *metric,
        lesson,
        graph,
        weights,
        dataset,
        options,
        &mut on_batch,
    )
}

/// The same with a metric that stays, for whoever wants its curves or the answers themselves.
pub fn evaluate_by(
    metric: &mut dyn Metric,
    lesson: &dyn Lesson,
    graph: Graph,
    weights: Arc<dyn WeightSource>,
    dataset: Arc<dyn Samples>,
    options: &EvaluationOptions,
    on_batch: &mut dyn FnMut(u64),
) -> Result<Evaluated, TrainError> {
    let begun = Instant::now();
    let mut samples = 0;
    let skipped = run_over(
        lesson,
        graph,
        weights,
        dataset,
        Order::Given,
        options,
        &mut |judged| {
            metric.add(judged)?;
            samples += judged.samples.len() as u64;
            on_batch(samples);
            Ok(())
        },
    )?;
    Ok(Evaluated {
        skipped,
        ..Evaluated::by(metric, samples, begun)
    })
}

/// Runs the network that answers over samples in an order, and gives those that could not be used.
pub fn run_over(
    lesson: &dyn Lesson,
    graph: Graph,
    weights: Arc<dyn WeightSource>,
    dataset: Arc<dyn Samples>,
    order: Order,
    options: &EvaluationOptions,
    hear: &mut dyn FnMut(&Judged<'_>) -> Result<(), LessonError>,
) -> Result<Vec<Skipped>, TrainError> {
    let config = LoaderConfig {
        batch: options.batch,
        order,
        strict: options.strict,
        workers: options.threads,
        ..LoaderConfig::default()
    };
    let loader = Loader::start(dataset, lesson.evaluation(), config, Position::default())?;
    let cpu = Cpu::new(options.threads)?;
    let mut program = Program::new(graph, weights, cpu, Options::default());
    let mut skipped = Vec::new();
    for batch in loader {
        let mut batch = batch?;
        skipped.append(&mut batch.skipped);
        for examples in &batch.parts {
            let names: Vec<String> = inputs_of(&program);
            let outputs = program.run(&named_inputs(&names, examples))?;
            hear(&Judged {
                outputs: &named(&outputs),
                examples,
                samples: &batch.samples,
            })?;
        }
    }
    Ok(skipped)
}

/// The names of the inputs that a program takes.
fn inputs_of(program: &Program) -> Vec<String> {
    let inputs = program.graph().inputs().iter();
    inputs.map(|input| input.name.clone()).collect()
}

/// Those tensors of an example that a graph takes.
fn named_inputs<'a>(names: &'a [String], examples: &'a Example) -> Vec<(&'a str, &'a Tensor<'a>)> {
    let given = |name: &'a String| Some((name.as_str(), examples.get(name)?));
    names.iter().filter_map(given).collect()
}

/// Outputs as a lesson reads them.
pub(crate) fn named<'a>(outputs: &'a Outputs<'_>) -> NamedOutputs<'a> {
    let tensors = outputs.iter();
    NamedOutputs::new(tensors.map(|(name, tensor)| (name, tensor.borrowed())))
}

/// The network that a run trains, as a plan may ask it.
pub(crate) struct Pupil<'a> {
    pub(crate) stepper: &'a mut Stepper,
    pub(crate) lesson: &'a dyn Lesson,
    pub(crate) training: &'a Arc<dyn Samples>,
    pub(crate) options: EvaluationOptions,
}

impl Asked for Pupil<'_> {
    fn samples(&self) -> usize {
        self.training.len()
    }

    fn occurring(&self, sample: usize) -> Vec<usize> {
        self.training.occurring(sample)
    }

    fn ask(
        &mut self,
        samples: &[usize],
        hear: &mut dyn FnMut(&Judged<'_>) -> Result<(), LessonError>,
    ) -> Result<(), LessonError> {
        let asked = |error: TrainError| LessonError::Asked(error.into());
        let weights = self.stepper.parameters();
        let weights = Arc::new(weights.map_err(|error| asked(error.into()))?);
        let plan = EpochPlan::of_samples(samples.to_vec());
        let order = Order::Planned(Arc::new(plan));
        let training = Arc::clone(self.training);
        let graph = self.lesson.inference();
        run_over(
            self.lesson,
            graph,
            weights,
            training,
            order,
            &self.options,
            hear,
        )
        .map_err(asked)?;
        Ok(())
    }
}
