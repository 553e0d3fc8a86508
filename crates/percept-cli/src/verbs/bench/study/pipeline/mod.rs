//! A study of a whole pipeline: what each stage of a sample takes, in inference and in training, with features made and kept, and
//! what each section of a published text is worth.

mod checkpoints;
mod features;
mod figures;
mod pieces;
mod steps;
mod tables;

use std::path::Path;
use std::sync::Arc;

use indicatif::ProgressBar;
use percept_data::{Example, SampleKey};
use percept_graph::WeightSource;
use percept_kernels::Cpu;
use percept_models::study::Study;
use percept_models::study::pipeline::PipelineStudy;
use percept_train::InitialParameters;
use percept_train::features::{CutLesson, FeatureOptions, FeatureType};
use serde_json::json;

use super::super::Args;
use crate::fail::{Blame, Fail, Result};
use crate::features::blame as blame_features;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::progress;
use crate::study;
use crate::training::{Settled, Sources, settle};
use figures::{Amount, Measurements};

const REPEATS: u64 = 5;

/// What everything is measured with.
struct Bench<'a> {
    study: &'a PipelineStudy,
    model: &'a str,
    /// Settings of the study, and the user's.
    set: Vec<String>,
    settled: Settled,
    weights: Arc<dyn WeightSource>,
    /// A sample of the data as the network learns from it, without features.
    example: Example,
    batch: usize,
    threads: usize,
    repeats: u64,
    scratch: &'a Path,
    bar: ProgressBar,
}

pub fn run(args: &Args, common: &Common, study: &Study, of: &PipelineStudy) -> Result<Outcome> {
    if !args.model.config.weights.is_empty() {
        return Err(Fail::usage("a study of a pipeline measures seeded weights")
            .hint("leave --weights out: times are the same"));
    }
    if !args.points.is_empty() || !args.source.input.is_empty() || !args.size.is_empty() {
        let message = format!("the study {} makes its own samples", study.name);
        return Err(Fail::usage(message).hint("leave --points, --input and --size out"));
    }
    // With one thread stages add up, whoever runs them.
    let threads = match common.threads[..] {
        [] => 1,
        [threads] => threads,
        _ => return Err(Fail::usage("--threads takes one number in a study")),
    };
    let batch = match args.batch[..] {
        [] => of.batch,
        [batch] => batch,
        _ => return Err(Fail::usage("--batch takes one number in this study")),
    };
    common.note(format_args!(
        "{}: {}; this takes some minutes",
        study.name, study.about
    ));
    let scratch = tempfile::tempdir().bad_input()?;
    let set = study::shared_settings(study, &args.model.config.set);
    let settled = settled(&args.model.model, &set)?;
    let sample = settled.data.training.sample(0).bad_input()?;
    let mut pieces = (of.pieces)(&settled.model, &sample, scratch.path()).bad_input()?;
    let steps = pieces.len() + features::STEPS + steps::STEPS + checkpoints::STEPS;
    let preparation = settled.learner.lesson.preparation();
    let cpu = Cpu::new(1).bad_input()?;
    let example = preparation.prepare(&cpu, &sample, &SampleKey::default());
    let bench = Bench {
        study: of,
        model: &args.model.model,
        set,
        weights: Arc::new(InitialParameters::of(&settled.learner, settled.config.seed)),
        settled,
        example: example.bad_input()?,
        batch,
        threads,
        repeats: args.repeats.unwrap_or(REPEATS),
        scratch: scratch.path(),
        bar: progress::bar(common, steps, "measuring"),
    };
    let mut measured = Measurements::default();
    pieces::measure(&bench, &mut pieces, &mut measured)?;
    let lessons = features::measure(&bench, &mut measured)?;
    let mut probe = steps::measure(&bench, lessons, &mut measured)?;
    checkpoints::measure(&bench, &mut probe, &mut measured)?;
    bench.bar.finish_and_clear();

    let tree = measured.tree(of, &bench.settled.config);
    let shown = tables::Shown {
        study: of,
        measured: &measured,
        tree: &tree,
    };
    let samples = bench.settled.learner.lesson.samples();
    let text = format!(
        "{}, {}: {}\n{}, {threads} threads, {batch} {samples} in a step, medians of {} runs; ms are for one of the {samples}\n\n{}\n{}\n{}",
        args.model.model,
        study.name,
        study.about,
        sample.name,
        bench.repeats,
        shown.tree_table(),
        shown.share_text(),
        shown.sections(),
    );
    let record = json!({
        "model": args.model.model, "study": study.name, "settings": args.model.config.set, "sample": sample.name,
        "threads": threads, "batch": batch, "repeats": bench.repeats,
        "tree": shown.tree_record(), "share": shown.share_record(), "sections": shown.section_records(),
    });
    Ok(Outcome::new(text, record))
}

/// The network that learns, with its data and with the settings that suit them.
fn settled(model: &str, set: &[String]) -> Result<Settled> {
    settle(Sources {
        model,
        base: None,
        card: None,
        file: None,
        set: set.to_vec(),
        data: None,
        start: Vec::new(),
        suits_built_in: true,
    })
}

impl Bench<'_> {
    /// The lesson without what is frozen, whose features are kept in the scratch folder, or nowhere.
    fn cut(&self, settled: &Settled, kept: Option<FeatureType>) -> Result<CutLesson> {
        let options = FeatureOptions {
            folder: kept.map(|_| self.scratch.join("features")),
            kind: kept.unwrap_or(FeatureType::F32),
            threads: self.threads,
            ..FeatureOptions::nowhere()
        };
        let freeze = &settled.config.freeze;
        let weights: Arc<dyn WeightSource> =
            Arc::new(InitialParameters::of(&settled.learner, settled.config.seed));
        let cut = CutLesson::new(&settled.learner.lesson, freeze, &weights, &options);
        let cut = cut.map_err(blame_features)?;
        cut.ok_or_else(|| Fail::usage(format!("{} has no features to keep", self.model)))
    }

    /// The same network with one more setting.
    fn varied(&self, (key, value): (&str, &str)) -> Result<Settled> {
        let mut set = self.set.clone();
        set.push(format!("{key}={value}"));
        settled(self.model, &set)
    }
}

/// The median of CPU milliseconds over some runs.
fn median_ms(repeats: u64, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..repeats {
        let mut ran = Ok(());
        let time = super::super::subject::timed(|| ran = run());
        ran?;
        times.push(time.cpu_ms);
    }
    Ok(percept_report::Spread::of(times).median)
}
