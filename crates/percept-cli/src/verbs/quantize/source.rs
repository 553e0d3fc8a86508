//! Samples to calibrate on, and the metric that judges a plan.

use std::path::Path;
use std::sync::Arc;

use percept_data::{Sample, SampleError, Samples};
use percept_engine::{PrecisionPlan, Program, RoundedWeights};
use percept_graph::WeightSource;
use percept_models::lesson::{Better, Lesson};
use percept_models::{Card, Model, zoo};
use percept_samples::{OpenOptions, open};
use percept_train::{EvaluationOptions, evaluate_graph};
use percept_tune::{Calibration, Recipe, Subject, TuneError};

use super::{Args, Measured, blame, count};
use crate::fail::{Fail, Result};
use crate::inputs::{note_left_out, unit};
use crate::options::Common;
use crate::progress;
use crate::training::settle_judged;

/// What was seen of the samples.
pub struct Watched {
    /// Histograms, where ranges are measured beforehand.
    pub calibration: Option<Calibration>,
    /// The first samples, to measure noise on.
    pub measured: Measured,
    /// Where they come from, for people.
    pub source: String,
}

/// Runs the network over the samples and watches what its layers multiply.
pub fn watch(
    args: &Args,
    model: &Model,
    weights: &Arc<dyn WeightSource>,
    recipe: &Recipe,
    common: &Common,
) -> Result<Watched> {
    let kept = match args.calibrate.as_slice() {
        [only] if only.part.is_none() && Calibration::is_named(&only.path) => Some((
            read_kept(&only.path, model)?,
            only.path.display().to_string(),
        )),
        _ => None,
    };
    let cpu = common.cpu()?;
    let options = OpenOptions {
        count: args.samples as usize,
        seed: args.seed,
        sweeps: args.sweeps as usize,
        threads: cpu.threads(),
        ..OpenOptions::default()
    };
    let given = match &kept {
        Some(_) => &[][..],
        None => &args.calibrate,
    };
    let samples = open(model, given, &options)?;
    if samples.is_empty() {
        return Err(no_samples());
    }
    let watches = recipe.needs_calibration() && kept.is_none();
    let [at_most, measured_at_most] = [args.samples, args.measured].map(|count| count as usize);
    let wanted = match watches {
        true => at_most,
        false => at_most.min(measured_at_most),
    };
    let form = args.engine.form(model);
    let mut calibration = Calibration::new(form);
    let mut program = Program::new(
        form.clone(),
        Arc::clone(weights),
        common.cpu()?,
        args.engine.options(),
    );
    let mut measured = Measured::new();
    let mut taken = 0;
    let bar = progress::bar(common, wanted.min(samples.len()), "calibrating");
    for index in 0..samples.len() {
        if taken >= wanted {
            break;
        }
        let sample = samples.sample(index)?;
        note_left_out(&sample, common);
        // A file of tensors may hold several samples.
        let example = model.first(model.example(&cpu, &sample)?, wanted - taken);
        taken += example.samples;
        if watches {
            let watched = calibration.watch(&mut program, &example, &sample.name);
            watched.map_err(blame)?;
        }
        let missing = measured_at_most.saturating_sub(count(&measured));
        if missing > 0 {
            measured.push(model.first(example, missing));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if taken == 0 {
        return Err(no_samples());
    }
    let source = match (&kept, args.calibrate.is_empty()) {
        (Some((_, path)), _) => path.clone(),
        (None, true) => format!("{taken} {} that percept made", unit(model)),
        (None, false) => format!("{taken} {}", unit(model)),
    };
    let calibration = match kept {
        Some((calibration, _)) => Some(calibration),
        None => watches.then_some(calibration),
    };
    Ok(Watched {
        calibration,
        measured,
        source,
    })
}

/// The histograms of a file, which must be of this network with these settings.
fn read_kept(path: &Path, model: &Model) -> Result<Calibration> {
    let calibration = Calibration::read(path, model.name).map_err(blame)?;
    let Some(card) = Card::read(path)? else {
        return Ok(calibration);
    };
    let settings = Card::of(model, Vec::new()).settings;
    let weighty = zoo::find(model.name)?.settings.iter();
    for name in weighty.filter(|s| !s.is_of_run).map(|s| s.name) {
        if let (Some(found), Some(asked)) = (card.settings.get(name), settings.get(name))
            && found != asked
        {
            let path = path.display();
            let message = format!("{name}={asked} contradicts {path}, which is of {name}={found}");
            return Err(
                Fail::usage(message).hint("histograms of one network say nothing of another")
            );
        }
    }
    Ok(calibration)
}

fn no_samples() -> Fail {
    Fail::bad_input("there are no samples to calibrate on")
        .hint("--calibrate names files or a folder of them")
}

/// The network's own metric on its test samples, for plans.
pub struct Judge<'a> {
    lesson: Arc<dyn Lesson>,
    dataset: Arc<dyn Samples>,
    weights: &'a Arc<dyn WeightSource>,
    options: EvaluationOptions,
    /// The figure of the network in floats.
    float: f64,
}

impl<'a> Judge<'a> {
    /// Judges the network in floats first.
    pub fn new(args: &Args, subject: &'a Subject<'_>, common: &Common) -> Result<Self> {
        let settled = settle_judged(&args.model, None)?;
        let lesson = settled.learner.lesson;
        let dataset = Arc::new(First {
            samples: settled.data.testing,
            count: args.judged as usize,
        });
        let options = EvaluationOptions {
            batch: lesson.judged_at_once(),
            threads: common.cpu()?.threads(),
            strict: false,
        };
        let mut judge = Self {
            lesson,
            dataset,
            weights: &subject.weights,
            options,
            float: 0.0,
        };
        judge.float = judge.figure(&PrecisionPlan::new()).map_err(blame)?;
        Ok(judge)
    }

    fn figure(&self, plan: &PrecisionPlan) -> std::result::Result<f64, TuneError> {
        let graph = plan.quantize(self.lesson.inference())?;
        let weights = Arc::new(RoundedWeights::new(Arc::clone(self.weights), &graph));
        let dataset = Arc::clone(&self.dataset);
        let judged = evaluate_graph(
            &*self.lesson,
            graph,
            weights,
            dataset,
            &self.options,
            |_| {},
        );
        let judged = judged.map_err(|error| TuneError::Judged(error.into()))?;
        // Points: a share is told in percent.
        let value = 100.0 * judged.decisive();
        Ok(match judged.goal.better {
            Better::Higher => value,
            Better::Lower => -value,
        })
    }

    /// Points that a plan loses.
    pub fn loss(&self, plan: &PrecisionPlan) -> std::result::Result<f64, TuneError> {
        Ok(self.float - self.figure(plan)?)
    }
}

/// The first samples of a dataset.
pub struct First {
    /// All of them.
    pub samples: Arc<dyn Samples>,
    /// How many are taken.
    pub count: usize,
}

impl Samples for First {
    fn len(&self) -> usize {
        self.samples.len().min(self.count)
    }

    fn classes(&self) -> &[String] {
        self.samples.classes()
    }

    fn name(&self, index: usize) -> String {
        self.samples.name(index)
    }

    fn sample(&self, index: usize) -> std::result::Result<Sample, SampleError> {
        self.samples.sample(index)
    }
}
