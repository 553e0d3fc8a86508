//! Features: made, read, halved, and what that changes.

use std::hint::black_box;
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;
use percept_data::Example;
use percept_engine::{Options, Recording};
use percept_kernels::Cpu;
use percept_models::lesson::Lesson;
use percept_models::study::pipeline::{Figure, Kept};
use percept_report::Profile;
use percept_train::features::{CutLesson, FeatureType, Features};

use super::super::super::Subject;
use super::super::modules_of;
use super::{Amount, Bench, Measurements, median_ms};
use crate::fail::{Blame, Result};
use crate::features::blame;

/// How often the bar moves.
pub const STEPS: usize = 5;
/// Samples whose features are made at once.
const TOGETHER: usize = 2;
/// Making features takes seconds, so few runs must do.
const MAKING_REPEATS: u64 = 2;

/// The lesson behind features that are made on the way, and behind kept ones.
pub struct Lessons {
    pub made: CutLesson,
    pub kept: CutLesson,
}

pub fn measure(bench: &Bench<'_>, measured: &mut Measurements) -> Result<Lessons> {
    let made = bench.cut(&bench.settled, None)?;
    let making_ms = making(made.features(), &bench.example)?;
    measured.set(Figure::FeaturesMade, Amount::Ms(making_ms));
    let widening = pictures(bench) as f64 * widening(bench)?;
    measured.set(Figure::FeaturesOfHalves, Amount::Ms(making_ms + widening));
    bench.bar.inc(1);

    let together = made
        .preparation()
        .batch(vec![bench.example.clone(); TOGETHER]);
    let together = making(made.features(), &together.bad_input()?)? / TOGETHER as f64;
    measured.set(Figure::FeaturesTogether, Amount::Ms(together));
    bench.bar.inc(1);

    if let Some(quick) = bench.study.quick {
        let quick = bench.cut(&bench.varied(quick)?, None)?;
        let quick = making(quick.features(), &bench.example)?;
        measured.set(Figure::FeaturesQuick, Amount::Ms(quick));
    }
    bench.bar.inc(1);

    let mut answers = Vec::new();
    let mut kept = None;
    for (kind, name) in [(FeatureType::F32, Kept::F32), (FeatureType::F16, Kept::F16)] {
        let cut = bench.cut(&bench.settled, Some(kind))?;
        let completed = reading(bench, cut.features(), name, measured)?;
        let mut subject = behind_features(bench, &cut, completed)?;
        answers.push(subject.outputs()?);
        measured.inference = components(bench, &mut subject)?;
        kept = Some(cut);
        bench.bar.inc(1);
    }
    let [single, halved] =
        [0, 1].map(|kind| answers[kind].iter().flat_map(|(_, t)| t.to_f32().to_vec()));
    let moved = single.zip(halved).map(|(a, b)| f64::from((a - b).abs()));
    measured.set(
        Figure::AnswersMoved,
        Amount::Difference(moved.fold(0.0, f64::max)),
    );
    Ok(Lessons {
        made,
        kept: kept.expect("two were made"),
    })
}

/// How many features a sample has.
fn pictures(bench: &Bench<'_>) -> usize {
    bench.settled.learner.lesson.recurring().len()
}

/// Milliseconds that features take which are kept nowhere. The first run gets ready.
fn making(features: &Features, example: &Example) -> Result<f64> {
    let make = || {
        let mut example = example.clone();
        features.complete(&mut example).map_err(blame)
    };
    make()?;
    median_ms(MAKING_REPEATS, make)
}

/// Makes and keeps features, and measures what it takes to find and read them; gives the whole example.
fn reading(
    bench: &Bench<'_>,
    features: &Features,
    kept: Kept,
    measured: &mut Measurements,
) -> Result<Example> {
    let needs = features.needs(&bench.example).map_err(blame)?;
    let bytes = needs.iter().map(|need| need.bytes).sum();
    measured.set(Figure::FeaturesBytes(kept), Amount::Bytes(bytes));
    let complete = |example: &mut Example| features.complete(example).map_err(blame);
    let mut whole = bench.example.clone();
    complete(&mut whole)?;
    let copies = median_ms(bench.repeats, || {
        black_box(bench.example.clone());
        Ok(())
    })?;
    let copied_and_read = median_ms(bench.repeats, || complete(&mut bench.example.clone()))?;
    let read = (copied_and_read - copies).max(0.0);
    measured.set(Figure::FeaturesRead(kept), Amount::Ms(read));
    Ok(whole)
}

/// Milliseconds that it takes to widen all weights of the frozen part once.
fn widening(bench: &Bench<'_>) -> Result<f64> {
    let graphs = bench.settled.learner.lesson.graphs();
    let freeze = &bench.settled.config.freeze;
    let params = graphs
        .iter()
        .take(1)
        .flat_map(|training| training.graph.params());
    let frozen = params.filter(|param| !freeze.trains(&param.name));
    let largest = frozen.clone().map(|param| param.elements()).max();
    let halves = vec![f16::ONE; largest.unwrap_or(0)];
    let mut singles = vec![0.0f32; halves.len()];
    let sizes: Vec<usize> = frozen.map(|param| param.elements()).collect();
    median_ms(bench.repeats, || {
        for &size in &sizes {
            halves[..size].convert_to_f32_slice(&mut singles[..size]);
            black_box(&singles);
        }
        Ok(())
    })
}

/// The network behind its features, on one sample.
fn behind_features(bench: &Bench<'_>, cut: &CutLesson, mut example: Example) -> Result<Subject> {
    let graph = cut.inference();
    let takes = |name: &str| graph.inputs().iter().any(|input| input.name == name);
    example.tensors.retain(|(name, _)| takes(name));
    let cpu = Cpu::new(bench.threads).bad_input()?;
    let weights = Arc::clone(&bench.weights);
    Ok(Subject::of_graph(
        graph,
        &weights,
        example,
        cpu,
        Options::default(),
    ))
}

/// What each component of an inference takes, and what belongs to none.
fn components(bench: &Bench<'_>, subject: &mut Subject) -> Result<Vec<f64>> {
    subject.run(None)?;
    let mut recording = Recording::default();
    let whole_ms = median_ms(bench.repeats, || subject.run(Some(&mut recording)))?;
    let program = subject.program();
    let bindings = &recording.runs[0].bindings;
    let memory = program.memory_at_peak(bindings);
    let profile = Profile::new(program.step_infos(bindings)?, &recording, memory, 0.0);
    let rows = profile.rows(modules_of(bench.study.components));
    let of = |scopes: &[&str]| -> f64 {
        let own = rows
            .iter()
            .filter(|row| scopes.contains(&row.name.as_str()));
        own.map(|row| row.time_ms.median).sum()
    };
    let parts: Vec<f64> = bench
        .study
        .components
        .iter()
        .map(|c| of(c.scopes))
        .collect();
    let clock_ms: f64 = rows
        .iter()
        .filter(|row| row.depth == 1)
        .map(|row| row.time_ms.median)
        .sum();
    Ok(split(&parts, clock_ms, whole_ms))
}

/// CPU milliseconds of some parts of a whole, and of the rest: nodes are timed by the clock, which also counts what other programs
/// take.
pub fn split(parts: &[f64], clock_ms: f64, whole_ms: f64) -> Vec<f64> {
    let rest = (clock_ms - parts.iter().sum::<f64>()).max(0.0);
    let scale = whole_ms / clock_ms.max(f64::MIN_POSITIVE);
    parts.iter().chain([&rest]).map(|ms| ms * scale).collect()
}
