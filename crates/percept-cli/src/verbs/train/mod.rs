//! `percept train`: from pictures to a trained classifier.

mod ablation;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use percept_report::Table;
use percept_train::checkpoint::latest;
use percept_train::{Ending, Finished, RunOptions, Trainer, settings_of};
use serde_json::json;

use crate::fail::Result;
use crate::interrupt::stop_on_interrupt;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::progress;
use crate::training::{BIRDS, Settled, Sources, blame, settle};
use watch::Watch;

/// Train a classifier on photographs, or on the built-in birds
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept train resnet18                                    the built-in birds
  percept train resnet18 --out run --resume                 go on where it was stopped or killed
  percept train efficientnet-b0 --data photos --epochs 30   a folder a class, train/ and val/, or CUB-200-2011
  percept train paco --ablation                             what each term of PaCo-2's loss brings: 12 runs
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
    /// Train with and without each term of the loss, with several seeds, and tell what helped (`paco`)
    #[arg(long)]
    ablation: bool,
    /// Seeds of --ablation
    #[arg(long, value_name = "N", default_value_t = 3, requires = "ablation",
          value_parser = clap::value_parser!(u64).range(2..=10))]
    seeds: u64,
    /// Stop at a picture that cannot be read, instead of skipping it
    #[arg(long)]
    strict: bool,
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let stop = stop_on_interrupt()?;
    let folder = match (&common.out, args.ablation) {
        (Some(folder), _) => folder.clone(),
        (None, false) => PathBuf::from("runs").join(&args.model),
        (None, true) => PathBuf::from("runs").join(format!("{}-ablation", args.model)),
    };
    let mut set = args.set.clone();
    set.extend(args.epochs.map(|epochs| format!("epochs={epochs}")));
    if args.ablation {
        return ablation::run(args, common, &folder, &set, &stop);
    }
    let finished = args.train(common, &folder, set, args.resume, &stop)?;
    Ok(report(&args.model, &folder, &finished))
}

impl Args {
    /// The settings of a run: those of the run in `folder` where it is to be resumed, and what was asked for.
    fn settle(&self, folder: &Path, set: Vec<String>, resume: bool) -> Result<Settled> {
        let begun = match resume && folder.is_dir() {
            true => {
                latest(folder)
                    .map_err(|error| blame(error.into()))?
                    .snapshot
            }
            false => None,
        };
        settle(Sources {
            model: &self.model,
            base: begun.and_then(|(_, snapshot)| settings_of(&snapshot.state)),
            file: self.config.as_deref(),
            set,
            data: self.data.clone(),
            birds: BIRDS,
        })
    }

    /// One run, watched.
    fn train(
        &self,
        common: &Common,
        folder: &Path,
        set: Vec<String>,
        resume: bool,
        stop: &AtomicBool,
    ) -> Result<Finished> {
        let threads = common.cpu()?.threads();
        let settled = self.settle(folder, set, resume)?;
        describe(&settled, common);
        let Settled {
            learner,
            data,
            config,
            ..
        } = settled;
        let options = RunOptions {
            folder: folder.to_owned(),
            resume,
            strict: self.strict,
            threads,
        };
        let trainer = Trainer::new(learner, config, data, options).map_err(blame)?;
        let bar = progress::bar(common, 0, "training");
        let finished = {
            let mut watch = Watch::new(&bar, common);
            trainer.run(stop, &mut |event| watch.hear(&event))
        };
        bar.finish_and_clear();
        finished.map_err(blame)
    }
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
