//! `percept train`: from data to a trained network.

mod study;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use percept_models::Lesson;
use percept_report::{Table, counted};
use percept_samples::Given;
use percept_train::checkpoint::latest;
use percept_train::{Ending, Finished, InitialParameters, RunOptions, Trainer, settings_of};
use serde_json::json;

use crate::fail::Result;
use crate::features::{self, FeatureArgs};
use crate::interrupt::stop_on_interrupt;
use crate::model::starting;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::progress;
use crate::saving::SavingArgs;
use crate::training::{Settled, Sources, blame, settle};
use watch::Watch;

/// Train a network on data of yours, or on what is built in
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept train resnet18                                        the built-in birds
  percept train resnet18 --out run --resume                     go on where it was stopped
  percept train efficientnet-b0 --data photos --epochs 30       a folder a class, or CUB-200-2011
  percept train resnet18 --weights resnet18.pth --data photos --set freeze=layer1,layer2
  percept train paco --study ablation                           what each term of its loss brings
  percept train resnet50 --max-memory 450MiB --activations f16  more computing, less memory
  percept train resnet18 --config run.toml --set schedule.rate=0.05 --set optimiser.kind=adamw

Settings of a run (TOML, or --set; the network's own, such as width, need no prefix):
epochs, batch, parts (a batch in so many parts, to save memory), activations, recompute, max_memory, size, seed, label_smoothing, clip_norm, \
freeze (modules), evaluate_every (epochs), patience (evaluations), optimiser.kind (sgd: momentum, weight_decay, nesterov; \
adamw: betas, eps, weight_decay), schedule.rate, schedule.warmup_epochs, schedule.decay.kind (constant, \
cosine: floor, step: every_epochs, factor), augment.flip, augment.crop.scale, augment.jitter.brightness, \
checkpoint.every_steps, checkpoint.every_seconds, checkpoint.keep_last, data.hold_out, data.birds.classes

The folder gets checkpoints (the newest and best.safetensors, which are weight files too), metrics.jsonl and its curves \
as a picture, curves.svg. `freeze=backbone,head.conv` leaves what is in these modules as it is. Ctrl-C saves and stops; a second one stops at once. A killed run resumes to the same bits, at any number of threads.")]
pub struct Args {
    /// Network, as `percept models` lists them
    model: String,
    /// Settings of the run
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Set something about the network or the run; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Pictures: a folder a class, train/ and val/ of such, or CUB-200-2011; sweeps: a nuScenes folder; labelled scans:
    /// SemanticKITTI's layout, or .bin and .label files [default: built-in birds, or towns of the synthetic world]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Weights to begin with; what of them does not fit (a head of other classes) begins anew. SCOPE=FILE for one module
    #[arg(long, value_name = "[SCOPE=]FILE", num_args = 1..)]
    weights: Vec<String>,
    /// Passes over the data
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,
    /// Go on with the run in --out
    #[arg(long)]
    resume: bool,
    /// Write TensorBoard event files too, into the folder `tensorboard` of the run
    #[arg(long)]
    tensorboard: bool,
    /// Train every row of one of the network's own studies, with several seeds, and tell what helped: `ablation` of paco
    #[arg(long, value_name = "NAME")]
    study: Option<String>,
    /// Seeds of --study
    #[arg(long, value_name = "N", default_value_t = 3, requires = "study",
          value_parser = clap::value_parser!(u64).range(2..=10))]
    seeds: u64,
    /// Stop at a sample that cannot be read, instead of skipping it
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    saving: SavingArgs,
    #[command(flatten)]
    features: FeatureArgs,
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let stop = stop_on_interrupt()?;
    let folder = match (&common.out, &args.study) {
        (Some(folder), _) => folder.clone(),
        (None, None) => PathBuf::from("runs").join(&args.model),
        (None, Some(study)) => PathBuf::from("runs").join(format!("{}-{study}", args.model)),
    };
    let mut set = args.set.clone();
    set.extend(args.epochs.map(|epochs| format!("epochs={epochs}")));
    set.extend(args.saving.settings());
    if let Some(name) = &args.study {
        return study::run(args, name, common, &folder, &set, &stop);
    }
    let trained = args.train(common, &folder, set, args.resume, &stop)?;
    Ok(report(&args.model, &folder, &trained))
}

/// What a text names, which every text does.
fn given(text: &str) -> Given {
    text.parse().unwrap_or_else(|never| match never {})
}

/// A run that ended, and what it was about.
struct Trained {
    finished: Finished,
    lesson: Arc<dyn Lesson>,
    classes: Vec<String>,
    /// How long the data took to open or render, which is no part of the run.
    opening: Duration,
}

impl Args {
    /// The settings of a run: those of the run in `folder` where it is to be resumed, and what was asked for.
    fn settle(
        &self,
        common: &Common,
        folder: &Path,
        set: Vec<String>,
        resume: bool,
    ) -> Result<Settled> {
        let begun = match resume && folder.is_dir() {
            true => {
                latest(folder)
                    .map_err(|error| blame(error.into()))?
                    .snapshot
            }
            false => None,
        };
        let is_new = begun.is_none();
        let mut settled = settle(Sources {
            model: &self.model,
            base: begun.and_then(|(_, snapshot)| settings_of(&snapshot.state)),
            card: None,
            file: self.config.as_deref(),
            set,
            data: self.data.clone(),
            start: self.weights.clone(),
            suits_built_in: true,
        })?;
        let start = settled.config.start.iter();
        let start: Vec<Given> = start.map(|text| given(text)).collect();
        // A checkpoint has everything but what was frozen and left out of it.
        if is_new || !settled.learner.lesson.recurring().is_empty() {
            settled.learner.start = starting(&start, &settled.model, common)?;
        }
        Ok(settled)
    }

    /// One run, watched.
    fn train(
        &self,
        common: &Common,
        folder: &Path,
        set: Vec<String>,
        resume: bool,
        stop: &AtomicBool,
    ) -> Result<Trained> {
        let threads = common.cpu()?.threads();
        let mut settled = self.settle(common, folder, set, resume)?;
        describe(&settled, common);
        let initial = InitialParameters::of(&settled.learner, settled.config.seed);
        let features = self.features.cut(
            &mut settled.learner,
            &settled.config,
            &(Arc::new(initial) as _),
            threads,
        )?;
        let Settled {
            learner,
            data,
            config,
            opening,
            ..
        } = settled;
        let lesson = Arc::clone(&learner.lesson);
        let classes = data.training.classes().to_vec();
        let options = RunOptions {
            folder: folder.to_owned(),
            resume,
            strict: self.strict,
            threads,
            tensorboard: self.tensorboard,
        };
        let trainer = Trainer::new(learner, config, data, options).map_err(blame)?;
        let bar = progress::bar(common, 0, "training");
        let finished = {
            let mut watch = Watch::new(&bar, common, lesson.samples());
            trainer.run(stop, &mut |event| watch.hear(&event))
        };
        bar.finish_and_clear();
        if let Some(features) = &features {
            common.note(features::text(features));
        }
        Ok(Trained {
            finished: finished.map_err(blame)?,
            lesson,
            classes,
            opening,
        })
    }
}

fn describe(settled: &Settled, common: &Common) {
    let (data, config) = (&settled.data, &settled.config);
    let source = match &config.data.folder {
        Some(folder) => folder.display().to_string(),
        None => settled.built_in.to_owned(),
    };
    let samples = settled.learner.lesson.samples();
    let sizes = settled.learner.card.sizes.values();
    let sizes: Vec<String> = sizes
        .map(|[height, width]| format!(", at {height}x{width}"))
        .collect();
    common.note(format_args!(
        "{}: {} parameters; {source}: {}, {} {samples} to train with, {} to test with{}; ready in {:.1} s",
        settled.model.name,
        settled.model.graph.parameter_count(),
        counted(data.training.classes().len(), "class"),
        data.training.len(),
        data.testing.len(),
        sizes.concat(),
        settled.opening.as_secs_f64(),
    ));
    if !data.ignored.is_empty() {
        common.note(format_args!(
            "{} files are no {samples} and were passed over; the first is {}",
            data.ignored.len(),
            data.ignored[0].display()
        ));
    }
}

fn report(model: &str, folder: &Path, trained: &Trained) -> Outcome {
    let (finished, samples) = (&trained.finished, trained.lesson.samples());
    let ending = match finished.ending {
        Ending::Complete => "complete",
        Ending::OutOfPatience => "no longer getting better",
        Ending::Stopped => "stopped; --resume goes on",
    };
    let figures = finished.last.iter().flat_map(|last| &last.figures);
    let best = finished.best;
    let mut table = Table::new(&["<what", "<is"]);
    table.row(["ending".to_owned(), ending.to_owned()]);
    table.row(["steps".to_owned(), finished.steps.to_string()]);
    table.row([
        "time".to_owned(),
        format!("{:.1} s", finished.took.as_secs_f64()),
    ]);
    table.row([
        "data ready in".to_owned(),
        format!("{:.1} s", trained.opening.as_secs_f64()),
    ]);
    for figure in figures.clone() {
        table.row([format!("test {}", figure.title), figure.value.to_string()]);
    }
    if let (Some(best), Some(last)) = (best, &finished.last)
        && let Some(figure) = last.figure(last.goal.figure)
    {
        let value = figure.value.with_number(best.metric);
        let text = format!("{value}, at step {}", best.step);
        table.row([format!("best {}", figure.title), text]);
    }
    if finished.skipped > 0 {
        table.row([format!("{samples} skipped"), finished.skipped.to_string()]);
    }
    table.row([
        "newest".to_owned(),
        finished.checkpoint.display().to_string(),
    ]);
    let best_path = folder.join("best.safetensors");
    if best_path.exists() {
        table.row(["best".to_owned(), best_path.display().to_string()]);
    }
    let mut record = json!({
        "model": model, "ending": ending, "steps": finished.steps, "seconds": finished.took.as_secs_f64(),
        "data_seconds": trained.opening.as_secs_f64(), "best": best, "skipped": finished.skipped,
        "checkpoint": finished.checkpoint.display().to_string(),
    });
    for figure in figures {
        record[figure.key] = figure.value.to_json();
    }
    Outcome::new(table.render(), record)
}
