//! `percept profile --train`: where a training step's time and memory go, with the data that feed it.

use std::sync::Arc;
use std::time::Duration;

use percept_data::loader::{Batch, Position};
use percept_engine::Recording;
use percept_kernels::machine;
use percept_report::{Profile, Spread, StepProfile, chrome_trace, counted, milliseconds};
use percept_train::{Batches, InitialParameters, Probe, TrainConfig};
use serde_json::json;

use super::{Args, HOLDERS_SHOWN, WARM_UP_RUNS, memory_record, resident_line};
use crate::fail::{Fail, Result};
use crate::features;
use crate::model::starting;
use crate::options::Common;
use crate::outcome::{Outcome, write_text};
use crate::progress;
use crate::saving;
use crate::training::{Settled, Sources, blame, settle};

/// Steps take seconds where inference takes a fraction.
const REPEATS: u64 = 5;
/// What the published networks are compared by.
const BATCH: usize = 8;
/// Components of a step that its tree shows; `--by module --depth N` has more.
const TREE_DEPTH: usize = 1;

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let cpu = common.cpu()?;
    let (threads, isa) = (cpu.threads(), cpu.isa());
    let peak_gflops = machine::peak_gflops(&cpu);
    drop(cpu);
    let mut settled = settle(Sources {
        model: &args.model.model,
        base: None,
        card: None,
        file: None,
        set: settings(args)?,
        data: args.data.clone(),
        start: Vec::new(),
        suits_built_in: false,
    })?;
    settled.learner.start = starting(&args.model.config.weights, &settled.model, common)?;
    let initial = Arc::new(InitialParameters::of(&settled.learner, settled.config.seed)) as _;
    let features = args
        .features
        .cut(&mut settled.learner, &settled.config, &initial, threads)?;
    let Settled {
        learner,
        data,
        config,
        ..
    } = settled;
    let repeats = args.repeats.unwrap_or(REPEATS) as usize;
    let endless = TrainConfig {
        epochs: u64::MAX,
        ..config
    };
    let lesson = Arc::clone(&learner.lesson);
    let batches = Batches::new(lesson, &endless, data.training, false, threads);
    let mut batches = batches.start(Position::default(), None).map_err(blame)?;
    let mut probe = Probe::new(&learner, &endless, threads).map_err(blame)?;
    let mut recording = Recording::default();
    let mut waited: Vec<Duration> = Vec::new();
    let mut shapes: Vec<(String, Vec<usize>)> = Vec::new();
    let bar = progress::bar(common, WARM_UP_RUNS + repeats, "profiling");
    for step in 0..WARM_UP_RUNS + repeats {
        let batch = probe.next_batch(&mut batches).map_err(blame)?;
        let batch = batch.expect("epochs never end");
        shapes = shapes_of(&batch);
        let is_recorded = step >= WARM_UP_RUNS;
        if is_recorded {
            waited.push(batch.waited);
        }
        let ran = probe.run(&batch, is_recorded.then_some(&mut recording));
        ran.map_err(blame)?;
        bar.inc(1);
    }
    bar.finish_and_clear();

    let program = probe.program();
    let bindings = recording.runs[0].bindings.clone();
    let infos = program.step_infos(&bindings)?;
    if let Some(path) = &args.trace {
        let trace = chrome_trace(&infos, &recording, &args.model.model);
        write_text(path, &trace.to_string())?;
    }
    let memory = program.memory_at_peak(&bindings);
    let profile = Profile::new(infos, &recording, memory, peak_gflops);
    let parameters: Vec<(String, u64)> = learner
        .lesson
        .graphs()
        .iter()
        .take(1)
        .flat_map(|training| training.graph.params())
        .filter(|parameter| parameter.trainable)
        .map(|parameter| (parameter.name.clone(), parameter.elements() as u64))
        .collect();
    let waited = waited.iter().map(|time| time.as_secs_f64() * 1e3);
    let profile = StepProfile::new(profile, waited, parameters);

    let (wall, waiting) = (profile.profile().wall_ms(), profile.waited_ms());
    let inputs = describe_inputs(&shapes);
    let Spread { median, p10, p90 } = wall;
    let head = format!(
        "{}, training, {} {} ({inputs}); {}, {isa}, measured peak {peak_gflops:.1} GFLOP/s\n\
         a step takes {} ms (p10..p90 {}..{}, {}) and waits {} ms for data\n",
        args.model.model,
        endless.batch,
        learner.lesson.samples(),
        counted(threads, "thread"),
        milliseconds(median),
        milliseconds(p10),
        milliseconds(p90),
        counted(repeats, "step"),
        milliseconds(waiting.median),
    );
    let text = format!(
        "{head}\n{}\n{}\n{}{}",
        profile.tree_table(TREE_DEPTH),
        profile.table(args.selection()),
        profile.profile().memory_table(HOLDERS_SHOWN),
        resident_line(),
    );
    let fitted = probe.fitted().map(|fitted| saving::describe(fitted) + "\n");
    let text = text + &fitted.unwrap_or_default();
    let kept = features
        .as_ref()
        .map(|features| features::text(features) + "\n");
    let text = text + &kept.unwrap_or_default();
    let tree = profile.tree(TREE_DEPTH).into_iter();
    let tree = tree.map(|(depth, name, ms)| json!({"depth": depth, "name": name, "time_ms": ms}));
    let record = json!({
        "model": args.model.model, "settings": args.model.config.set,
        "samples": endless.batch, "sizes": learner.card.sizes,
        "inputs": shapes.iter().map(|(name, shape)| json!({"name": name, "shape": shape})).collect::<Vec<_>>(),
        "threads": threads, "isa": isa.to_string(), "peak_gflops_per_s": peak_gflops, "repeats": repeats,
        "wall_ms": wall, "waited_ms": waiting,
        "step": tree.collect::<Vec<_>>(), "rows": profile.rows(args.selection()),
        "memory_at_peak": memory_record(profile.profile().memory()),
        "peak_resident_bytes": machine::peak_resident_bytes(),
    });
    let mut record = record;
    if let Some(features) = &features {
        record["features"] = features::record(features);
    }
    Ok(Outcome::new(text, record))
}

/// The tensors of a batch by name and shape.
fn shapes_of(batch: &Batch) -> Vec<(String, Vec<usize>)> {
    let tensors = batch.parts.iter().flat_map(|part| &part.tensors);
    let shapes = tensors.map(|(name, tensor)| (name.clone(), tensor.shape().to_vec()));
    shapes.collect()
}

fn describe_inputs(shapes: &[(String, Vec<usize>)]) -> String {
    let described: Vec<String> = shapes
        .iter()
        .map(|(name, shape)| format!("{name} {shape:?}"))
        .collect();
    described.join(", ")
}

/// `--set`, `--batch`, `--size` and `--seed` as settings of a run.
fn settings(args: &Args) -> Result<Vec<String>> {
    let batch = args.input.shape.batch.unwrap_or(BATCH);
    let mut set = vec![
        format!("batch={batch}"),
        format!("seed={}", args.input.source.seed),
    ];
    for size in &args.input.shape.size {
        let [height, width] = size.size.0;
        if height != width {
            return Err(Fail::usage(format!(
                "--size {height}x{width}: pictures to train with are square"
            )));
        }
        set.push(format!("size={height}"));
    }
    set.extend(args.saving.settings());
    set.extend(args.model.config.set.iter().cloned());
    Ok(set)
}
