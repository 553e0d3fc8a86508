//! `percept train`: from pictures to a trained classifier.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use percept_report::Table;
use percept_train::checkpoint::latest;
use percept_train::{Ending, Event, Finished, RunOptions, StepReport, Trainer, settings_of};
use serde_json::json;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::fail::{Blame, Result};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::progress;
use crate::training::{BIRDS, Settled, Sources, blame, settle};

/// Train a classifier on photographs, or on the built-in birds
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept train resnet18                                    the built-in birds
  percept train resnet18 --out run --resume                 go on where it was stopped or killed
  percept train efficientnet-b0 --data photos --epochs 30   a folder a class, train/ and val/, or CUB-200-2011
  percept train resnet18 --config run.toml --set schedule.rate=0.05 --set optimiser.kind=adamw

Settings of a run (TOML, or --set; the network's own, such as width, need no prefix):
  epochs, batch, parts (a batch in so many parts, to save memory), size, seed, label_smoothing, clip_norm,
  evaluate_every (epochs), patience (evaluations), optimiser.kind (sgd: momentum, weight_decay, nesterov;
  adamw: betas, eps, weight_decay), schedule.rate, schedule.warmup_epochs, schedule.decay.kind (constant,
  cosine: floor, step: every_epochs, factor), augment.flip, augment.crop.scale, augment.jitter.brightness,
  checkpoint.every_steps, checkpoint.every_seconds, checkpoint.keep_last, data.hold_out, data.birds.classes

The folder gets checkpoints (the newest and best.safetensors, which are weight files too) and metrics.jsonl. Ctrl-C
saves and stops; a second one stops at once. A killed run resumes to the same bits, at any number of threads.")]
pub struct Args {
    /// Network, as `percept models` lists them: any that classifies
    model: String,
    /// Settings of the run
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Set something about the network or the run; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Pictures: a folder a class, train/ and val/ of such, or CUB-200-2011 [default: built-in birds]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Passes over the data
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,
    /// Go on with the run in --out
    #[arg(long)]
    resume: bool,
    /// Stop at a picture that cannot be read, instead of skipping it
    #[arg(long)]
    strict: bool,
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let folder = match &common.out {
        Some(folder) => folder.clone(),
        None => PathBuf::from("runs").join(&args.model),
    };
    let threads = common.cpu()?.threads();
    let mut set = args.set.clone();
    set.extend(args.epochs.map(|epochs| format!("epochs={epochs}")));
    let begun = match args.resume && folder.is_dir() {
        true => {
            latest(&folder)
                .map_err(|error| blame(error.into()))?
                .snapshot
        }
        false => None,
    };
    let settled = settle(Sources {
        model: &args.model,
        base: begun.and_then(|(_, snapshot)| settings_of(&snapshot.state)),
        file: args.config.as_deref(),
        set,
        data: args.data.clone(),
        birds: BIRDS,
    })?;
    describe(&settled, common);
    let Settled {
        learner,
        data,
        config,
        ..
    } = settled;
    let options = RunOptions {
        folder: folder.clone(),
        resume: args.resume,
        strict: args.strict,
        threads,
    };
    let trainer = Trainer::new(learner, config, data, options).map_err(blame)?;
    let stop = stop_on_interrupt()?;
    let bar = progress::bar(common, 0, "training");
    let finished = {
        let mut watch = Watch::new(&bar, common);
        trainer.run(&stop, &mut |event| watch.hear(&event))
    };
    bar.finish_and_clear();
    let finished = finished.map_err(blame)?;
    Ok(report(&args.model, &folder, &finished))
}

fn describe(settled: &Settled, common: &Common) {
    let (data, config) = (&settled.data, &settled.config);
    let source = match &config.data.folder {
        Some(folder) => folder.display().to_string(),
        None => "built-in birds".to_owned(),
    };
    common.note(format_args!(
        "{}: {} parameters; {source}: {} classes, {} pictures to train with, {} to test with, at {}x{}",
        settled.model.name,
        settled.model.graph.parameter_count(),
        data.training.classes().len(),
        data.training.len(),
        data.testing.len(),
        settled.learner.size[0],
        settled.learner.size[1],
    ));
    if !data.ignored.is_empty() {
        common.note(format_args!(
            "{} files are no pictures and were passed over; the first is {}",
            data.ignored.len(),
            data.ignored[0].display()
        ));
    }
}

/// Set by the first Ctrl-C; the second ends the process, with the code by which shells know an interrupt.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    // In this order: the first one finds the flag unset.
    flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&stop)).bug()?;
    flag::register(SIGINT, Arc::clone(&stop)).bug()?;
    Ok(stop)
}

/// Tells people what a run does.
struct Watch<'a> {
    bar: &'a ProgressBar,
    common: &'a Common,
    epoch: Vec<StepReport>,
}

impl<'a> Watch<'a> {
    fn new(bar: &'a ProgressBar, common: &'a Common) -> Self {
        Self {
            bar,
            common,
            epoch: Vec::new(),
        }
    }

    fn note(&self, text: impl std::fmt::Display) {
        self.bar.suspend(|| self.common.note(text));
    }

    fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::Resumed { step } => self.note(format_args!("going on behind step {step}")),
            Event::Damaged(damaged) => self.note(format_args!("set aside: {}", damaged.error)),
            Event::Skipped(picture) => self.note(format_args!("skipped: {picture}")),
            Event::Step(report) => self.step(report),
            Event::Evaluated {
                epoch,
                evaluated,
                is_best,
            } => {
                let top1 = 100.0 * evaluated.scores.top1().unwrap_or(f64::NAN);
                let best = if *is_best { ", the best so far" } else { "" };
                self.note(format_args!(
                    "epoch {}: {}test top-1 {top1:.1} %{best}",
                    epoch + 1,
                    self.summary()
                ));
                for picture in &evaluated.skipped {
                    self.note(format_args!("skipped: {picture}"));
                }
                self.epoch.clear();
            }
        }
    }

    fn step(&mut self, report: &StepReport) {
        self.bar.set_length(report.steps);
        self.bar.set_position(report.step);
        self.bar.set_message(format!(
            "epoch {}/{}, loss {:.3}, {:.0} images/s, {:.0} % waiting, {} s to go;",
            report.epoch + 1,
            report.epochs,
            report.loss,
            report.images_per_second,
            100.0 * report.waiting_share,
            report.remaining.as_secs(),
        ));
        self.epoch.push(*report);
    }

    /// The steps since the last evaluation.
    fn summary(&self) -> String {
        let count = self.epoch.len() as f64;
        if self.epoch.is_empty() {
            return String::new();
        }
        let mean = |of: fn(&StepReport) -> f64| self.epoch.iter().map(of).sum::<f64>() / count;
        // Rates average as their inverses: all steps have as many pictures.
        let rate = 1.0 / mean(|step| 1.0 / step.images_per_second);
        format!(
            "loss {:.3}, accuracy {:.1} %, rate {:.2e}, {rate:.0} images/s, {:.0} % waiting; ",
            mean(|step| step.loss),
            100.0 * mean(|step| step.accuracy.unwrap_or(f64::NAN)),
            self.epoch.last().map_or(0.0, |step| step.rate),
            100.0 * mean(|step| step.waiting_share),
        )
    }
}

fn report(model: &str, folder: &std::path::Path, finished: &Finished) -> Outcome {
    let percent =
        |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{:.1} %", 100.0 * s));
    let ending = match finished.ending {
        Ending::Complete => "complete",
        Ending::OutOfPatience => "no longer getting better",
        Ending::Stopped => "stopped; --resume goes on",
    };
    let last = finished.last.as_ref().map(|last| &last.scores);
    let best = finished.best;
    let mut table = Table::new(&["<what", "<is"]);
    table.row(["ending".to_owned(), ending.to_owned()]);
    table.row(["steps".to_owned(), finished.steps.to_string()]);
    table.row([
        "time".to_owned(),
        format!("{:.1} s", finished.took.as_secs_f64()),
    ]);
    table.row([
        "test top-1".to_owned(),
        percent(last.and_then(|l| l.top1())),
    ]);
    table.row([
        "test top-5".to_owned(),
        percent(last.and_then(|l| l.top5())),
    ]);
    if let Some(best) = best {
        let text = format!("{}, at step {}", percent(Some(best.metric)), best.step);
        table.row(["best top-1".to_owned(), text]);
    }
    if finished.skipped > 0 {
        table.row(["pictures skipped".to_owned(), finished.skipped.to_string()]);
    }
    table.row([
        "newest".to_owned(),
        finished.checkpoint.display().to_string(),
    ]);
    let best_path = folder.join("best.safetensors");
    if best_path.exists() {
        table.row(["best".to_owned(), best_path.display().to_string()]);
    }
    let record = json!({
        "model": model, "ending": ending, "steps": finished.steps, "seconds": finished.took.as_secs_f64(),
        "top1": last.and_then(|l| l.top1()), "top5": last.and_then(|l| l.top5()),
        "best": best, "skipped": finished.skipped,
        "checkpoint": finished.checkpoint.display().to_string(),
    });
    Outcome::new(table.render(), record)
}
