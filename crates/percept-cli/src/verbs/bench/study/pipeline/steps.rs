//! Training steps: what they take in several forms, and how long they wait for their data.

use std::sync::Arc;
use std::time::Instant;

use percept_data::loader::Position;
use percept_engine::Recording;
use percept_models::study::pipeline::{Feed, Figure, Form};
use percept_report::{Profile, StepProfile};
use percept_train::features::CutLesson;
use percept_train::{Batches, ELEMENTWISE, Learner, Probe, TrainConfig, batch_of};

use super::super::modules_of;
use super::features::{Lessons, split};
use super::{Amount, Bench, Measurements, median_ms};
use crate::fail::{Blame, Result};
use crate::options::available_threads;
use crate::training::{Settled, blame};

/// How often the bar moves.
pub const STEPS: usize = 7;
/// What a batch is divided into to save memory.
const PARTS: usize = 4;
/// Steps that show how long a training waits: before, which empty what was made ahead, and measured.
const FED: [usize; 2] = [4, 6];
/// The same where each sample takes seconds.
const FED_SLOWLY: [usize; 2] = [1, 3];

/// A step that was measured.
struct Measured {
    probe: Probe,
    step_ms: f64,
    profile: StepProfile,
    memory_bytes: usize,
}

pub fn measure(bench: &Bench<'_>, lessons: Lessons, measured: &mut Measurements) -> Result<Probe> {
    let Lessons { made, kept } = lessons;
    let [made, kept] = [made, kept].map(|cut| learner(&bench.settled, cut));
    let config = &bench.settled.config;
    let whole = step(bench, &kept, config, bench.batch)?;
    let samples = bench.batch as f64;
    let phases = whole.profile.rows(modules_of(bench.study.components));
    let of = |scopes: &[&str]| -> f64 {
        let own = phases
            .iter()
            .filter(|row| scopes.contains(&row.name.as_str()));
        own.map(|row| row.forward_ms).sum()
    };
    let top = || phases.iter().filter(|row| row.depth == 1);
    let forward: f64 = top().map(|row| row.forward_ms).sum();
    let backward: f64 = top().map(|row| row.backward_ms).sum();
    let update: f64 = top().map(|row| row.update_ms).sum();
    let components = bench.study.components.iter();
    let parts: Vec<f64> = components.map(|component| of(component.scopes)).collect();
    let step_ms = whole.step_ms / samples;
    let by_phase = split(&[forward, backward], forward + backward + update, step_ms);
    let forward_ms = by_phase[0];
    (measured.backward_ms, measured.update_ms) = (by_phase[1], by_phase[2]);
    measured.forward = split(&parts, forward, forward_ms);
    let mut set = |form, ms: f64, bytes: usize| {
        measured.set(Figure::Step(form), Amount::Ms(ms));
        measured.set(Figure::StepMemory(form), Amount::Bytes(bytes as u64));
    };
    set(Form::Whole, step_ms, whole.memory_bytes);
    bench.bar.inc(1);

    let again = recomputing(bench, config)?;
    let again = step(bench, &kept, &again, bench.batch)?;
    set(
        Form::Recomputed,
        again.step_ms / samples,
        again.memory_bytes,
    );
    drop(again);
    bench.bar.inc(1);

    let part = (bench.batch / PARTS).max(1);
    let parts = step(bench, &kept, config, part)?;
    set(Form::Parts, parts.step_ms / part as f64, parts.memory_bytes);
    drop(parts);
    bench.bar.inc(1);

    let fewer = bench.varied(bench.study.fewer)?;
    let lesson = bench.cut(&fewer, None)?;
    let fewer = step(bench, &learner(&fewer, lesson), &fewer.config, bench.batch)?;
    set(Form::Fewer, fewer.step_ms / samples, fewer.memory_bytes);
    drop(fewer);
    bench.bar.inc(1);
    let feeds = [
        (Feed::Made, &made, 1, 1, FED_SLOWLY),
        (Feed::OneWorker, &kept, bench.batch, 1, FED),
        (
            Feed::AllWorkers,
            &kept,
            bench.batch,
            available_threads(),
            FED,
        ),
    ];
    for (feed, learner, batch, workers, steps) in feeds {
        let (waiting, pace) = fed(bench, learner, batch, workers, steps)?;
        measured.set(Figure::Waiting(feed), Amount::Share(waiting));
        measured.set(Figure::Pace(feed), Amount::PerSecond(pace));
        bench.bar.inc(1);
    }
    Ok(whole.probe)
}

/// The same run, which computes again what it can.
fn recomputing(bench: &Bench<'_>, config: &TrainConfig) -> Result<TrainConfig> {
    let scopes = bench.study.components.iter().flat_map(|c| c.scopes);
    let modules: Vec<&str> = scopes.copied().chain([ELEMENTWISE]).collect();
    let setting = format!("recompute={}", modules.join(","));
    config.with("", [setting]).bug()
}

fn learner(settled: &Settled, cut: CutLesson) -> Learner {
    Learner {
        lesson: Arc::new(cut),
        ..settled.learner.clone()
    }
}

/// Some steps on noise.
fn step(
    bench: &Bench<'_>,
    learner: &Learner,
    config: &TrainConfig,
    samples: usize,
) -> Result<Measured> {
    let noise = learner.lesson.rehearsal(samples);
    let noise = batch_of(noise.map_err(|error| blame(error.into()))?);
    let mut probe = Probe::new(learner, config, bench.threads).map_err(blame)?;
    probe.run(&noise, None).map_err(blame)?;
    let mut recording = Recording::default();
    let step_ms = median_ms(bench.repeats, || {
        probe.run(&noise, Some(&mut recording)).map_err(blame)
    })?;
    let bindings = &recording.runs[0].bindings;
    let program = probe.program();
    let infos = program.step_infos(bindings)?;
    let memory = program.memory_at_peak(bindings);
    let memory_bytes = memory.total_bytes();
    let profile = Profile::new(infos, &recording, memory, 0.0);
    Ok(Measured {
        profile: StepProfile::new(profile, [0.0], []),
        probe,
        step_ms,
        memory_bytes,
    })
}

/// A training on the study's data: the part of its time that waits, and samples in a second.
fn fed(
    bench: &Bench<'_>,
    learner: &Learner,
    batch: usize,
    workers: usize,
    [before, steps]: [usize; 2],
) -> Result<(f64, f64)> {
    let endless = TrainConfig {
        epochs: u64::MAX,
        batch,
        ..bench.settled.config.clone()
    };
    let samples = Arc::clone(&bench.settled.data.training);
    let lesson = Arc::clone(&learner.lesson);
    let batches = Batches::new(lesson, &endless, samples, false, workers);
    let mut stream = batches.start(Position::default(), None).map_err(blame)?;
    let mut probe = Probe::new(learner, &endless, bench.threads).map_err(blame)?;
    let (mut waited, mut seen) = (0.0, 0);
    let mut begun = Instant::now();
    for step in 0..before + steps {
        if step == before {
            (waited, seen, begun) = (0.0, 0, Instant::now());
        }
        let batch = probe.next_batch(&mut stream).map_err(blame)?;
        let batch = batch.expect("epochs never end");
        waited += batch.waited.as_secs_f64();
        seen += batch.samples.len();
        probe.run(&batch, None).map_err(blame)?;
    }
    let took = begun.elapsed().as_secs_f64();
    Ok((waited / took, seen as f64 / took))
}
