//! `percept bench MODEL --study NAME`: what each row of a network's study costs, and what its report says.

mod cloud_row;
mod cloud_tables;
mod clouds;
mod inference;
mod pipeline;
mod quantized;
mod tables;

use std::collections::BTreeMap;

use percept_engine::Recording;
use percept_models::Model;
use percept_models::study::{Component, Measured, StepStudy, Study, StudyRow};
use percept_report::{Grouping, Order, Profile, Selection, StepProfile};
use percept_train::TrainConfig;
use serde::Serialize;
use serde_json::json;

use super::{Args, Setting, Subject};
use crate::fail::{Blame, Fail, Result};
use crate::model;
use crate::options::{Common, available_threads};
use crate::outcome::Outcome;
use crate::progress;
use crate::study;
use crate::training::rehearsing;
use tables::{changes, claims, components, steps};

const REPEATS: u64 = 3;

/// A measured row at one batch.
#[derive(Serialize)]
struct Row {
    #[serde(skip)]
    number: usize,
    row: &'static str,
    set: BTreeMap<&'static str, &'static str>,
    batch: usize,
    sizes: BTreeMap<String, [usize; 2]>,
    inference_ms: f64,
    step_ms: f64,
    forward_ms: f64,
    backward_ms: f64,
    update_ms: f64,
    components_ms: Vec<f64>,
    memory_bytes: usize,
}

pub fn run(args: &Args, common: &Common, name: &str) -> Result<Outcome> {
    let study = study::find(&args.model.model, name)?;
    study::refuse_varied(study, &args.model.config.set)?;
    if let Measured::Clouds(measured) = &study.measured {
        return match &args.row {
            Some(outputs) => cloud_row::run(args, common, study, measured, outputs),
            None => clouds::run(args, common, study, measured),
        };
    }
    if let Measured::Inference(measured) = &study.measured {
        return inference::run(args, common, study, measured);
    }
    if let Measured::Pipeline(measured) = &study.measured {
        return pipeline::run(args, common, study, measured);
    }
    if let Measured::Quantized(measured) = &study.measured {
        return quantized::run(args, common, study, measured);
    }
    if !args.model.config.weights.is_empty() {
        let message =
            format!("the study {name} is about settings, which --weights would contradict");
        return Err(Fail::usage(message).hint("leave --weights out"));
    }
    if !args.points.is_empty() || !args.source.input.is_empty() {
        let message = format!("the study {name} makes its own samples");
        return Err(Fail::usage(message).hint("leave --points and --input out"));
    }
    let Measured::Steps(measured) = &study.measured else {
        let message = format!(
            "the study {name} of {} is one of trainings",
            args.model.model
        );
        let hint = format!(
            "`percept train {} --study {name}` runs it",
            args.model.model
        );
        return Err(Fail::usage(message).hint(hint));
    };
    if !args.size.is_empty() {
        let message = "--size: a study compares samples of one size";
        return Err(Fail::usage(message).hint("a setting of the network may set it (--set)"));
    }
    let threads = match common.threads[..] {
        [] => available_threads(),
        [threads] => threads,
        _ => return Err(Fail::usage("--threads takes one number in a study")),
    };
    let batches = match args.batch[..] {
        [] => measured.batches,
        _ => &args.batch,
    };
    let repeats = args.repeats.unwrap_or(REPEATS);
    common.note(format_args!(
        "{}: {}; this takes some minutes",
        study.name, study.about
    ));
    let bar = progress::bar(common, batches.len() * study.rows.len(), "measuring");
    let mut rows: Vec<Row> = Vec::new();
    for &batch in batches {
        for number in 0..study.rows.len() {
            let setting = Setting {
                batch: Some(batch),
                size: None,
                threads,
            };
            // Of what takes so long, one step tells enough.
            let repeats = if measured.slow.contains(&number) {
                1
            } else {
                repeats
            };
            rows.push(measure(
                args, common, study, measured, number, setting, repeats,
            )?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let text = report(args, study, measured, &rows, threads, repeats);
    let record = json!({
        "model": args.model.model, "study": study.name, "settings": args.model.config.set, "shared": pairs(study.shared),
        "threads": threads, "repeats": repeats,
        "components": measured.components.iter().map(|component| component.name).collect::<Vec<_>>(),
        "rows": rows,
    });
    Ok(Outcome::new(text, record))
}

fn report(
    args: &Args,
    study: &Study,
    measured: &StepStudy,
    rows: &[Row],
    threads: usize,
    repeats: u64,
) -> String {
    let sizes = rows.first().into_iter().flat_map(|row| &row.sizes);
    let sizes: Vec<String> = sizes
        .map(|(part, [height, width])| format!(", {part} {height}x{width}"))
        .collect();
    let shared: Vec<String> = study
        .shared
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    let mut text = format!(
        "{}, {}: {}\n{}{}; {threads} threads; medians of {repeats} steps (of 1 where a row is slow)\n\n{}\n",
        args.model.model,
        study.name,
        study.about,
        shared.join(", "),
        sizes.concat(),
        steps(study, measured, rows),
    );
    if let Some(claims) = claims(measured, rows) {
        text += &format!("what the published report says\n\n{claims}\n");
    }
    for rows in rows.chunks(study.rows.len()) {
        let batch = rows[0].batch;
        text += &format!(
            "batch {batch}: what each change brings\n\n{}\n",
            changes(measured, rows)
        );
        let table = components(measured, rows);
        text += &format!("batch {batch}: where a step goes\n\n{table}\n");
    }
    text
}

/// The modules of a profile, as deep as components name them.
fn modules_of(components: &[Component]) -> Selection {
    let scopes = components.iter().flat_map(|component| component.scopes);
    let depth = scopes.map(|scope| scope.split('.').count()).max();
    Selection {
        grouping: Grouping::Module {
            depth: depth.unwrap_or(1),
        },
        order: Order::Execution,
        top: None,
    }
}

/// Settings as a record has them.
fn pairs(set: &[(&'static str, &'static str)]) -> BTreeMap<&'static str, &'static str> {
    set.iter().copied().collect()
}

fn measure(
    args: &Args,
    common: &Common,
    study: &Study,
    measured: &StepStudy,
    number: usize,
    setting: Setting,
    repeats: u64,
) -> Result<Row> {
    let row: &StudyRow = &study.rows[number];
    let model = model::build(
        &args.model.model,
        &study::settings(study, row, &args.model.config.set),
    )?;
    let inference_ms = inference(args, common, &model, &setting)?;
    let batch = setting.batch.unwrap_or(1);
    let learner = rehearsing(&model, None)?;
    let run = row.run.iter().map(|(key, value)| format!("{key}={value}"));
    let config = TrainConfig::parse("", run).bug()?;
    let mut step = Subject::step(&learner, batch, setting.threads, &config)?;
    let mut recording = Recording::default();
    for run in 0..=repeats {
        step.run((run > 0).then_some(&mut recording))?;
    }
    let program = step.program();
    let bindings = recording.runs[0].bindings.clone();
    let memory = program.memory_at_peak(&bindings);
    let memory_bytes = memory.total_bytes();
    let profile = Profile::new(program.step_infos(&bindings)?, &recording, memory, 0.0);
    let profile = StepProfile::new(profile, [0.0], []);
    let modules = profile.rows(modules_of(measured.components));
    let tops = || modules.iter().filter(|row| row.depth == 1);
    let component = |scopes: &[&str]| {
        let own = modules
            .iter()
            .filter(|row| scopes.contains(&row.name.as_str()));
        own.map(|row| row.forward_ms + row.backward_ms).sum()
    };
    Ok(Row {
        number,
        row: row.title,
        set: row.set.iter().chain(row.run).copied().collect(),
        batch,
        sizes: learner.card.sizes.clone(),
        inference_ms,
        step_ms: profile.step_ms(),
        forward_ms: tops().map(|row| row.forward_ms).sum(),
        backward_ms: tops().map(|row| row.backward_ms).sum(),
        update_ms: tops().map(|row| row.update_ms).sum(),
        components_ms: measured
            .components
            .iter()
            .map(|c| component(c.scopes))
            .collect(),
        memory_bytes,
    })
}

/// The network that answers, on the same samples.
fn inference(args: &Args, common: &Common, model: &Model, setting: &Setting) -> Result<f64> {
    let cpu = common.cpu_with(setting.threads)?;
    let quiet = Common {
        quiet: true,
        ..common.clone()
    };
    let weights = args.model.load(model, &quiet)?;
    let inputs = args.source.example(model, &setting.shape(), &cpu, common)?;
    let mut subject = Subject::inference(model, &weights, inputs, cpu, args.engine.options());
    subject.run(None)?;
    Ok(subject.measure(REPEATS, || ())?.wall_ms.median)
}

impl Row {
    /// Everything of the step that an ordinary training would not have.
    fn own_ms(&self, measured: &StepStudy) -> f64 {
        let components = measured.components.iter().zip(&self.components_ms);
        let own = components.filter(|(component, _)| component.is_own);
        own.map(|(_, ms)| ms).sum()
    }
}
