//! `percept bench paco --train`: what the form of the loss, the backbone, and the size of the parts cost in training.

mod tables;

use std::collections::BTreeMap;

use percept_engine::Recording;
use percept_models::Model;
use percept_report::{Grouping, Order, Profile, Selection, StepProfile};
use percept_train::Learner;
use serde::Serialize;
use serde_json::json;

use super::{Args, Setting, Subject};
use crate::fail::{Fail, Result};
use crate::model;
use crate::options::{Common, available_threads};
use crate::outcome::Outcome;
use crate::progress;
use tables::{changes, components, steps};

/// The network that the report is about.
pub const MODEL: &str = "paco";
const BATCHES: [usize; 2] = [8, 32];
const REPEATS: u64 = 3;

/// What is varied; d and r as the backbone's rows have them.
struct Variant {
    backbone: &'static str,
    loss: &'static str,
    d: usize,
    r: usize,
}

const fn variant(backbone: &'static str, loss: &'static str, d: usize, r: usize) -> Variant {
    Variant {
        backbone,
        loss,
        d,
        r,
    }
}

/// From what was published to everything that the customer's report recommends, one change at a time.
const VARIANTS: [Variant; 5] = [
    variant("resnet50", "naive", 64, 5),
    variant("resnet50", "exact", 64, 5),
    variant("efficientnet-b0", "naive", 64, 5),
    variant("efficientnet-b0", "exact", 64, 5),
    variant("efficientnet-b0", "exact", 32, 3),
];
/// The components of the customer's table, with the modules that make them.
const COMPONENTS: [(&str, &[&str]); 8] = [
    (
        "loss: contrast, consistency, classes",
        &[
            "pac.negatives",
            "pac.contrast",
            "soc",
            "cross_entropy",
            "loss",
        ],
    ),
    ("negatives pool: its distances", &["pac.negatives_pool"]),
    ("backbone, both views", &["backbone", "views"]),
    ("part sampling", &["part_sampler", "parts"]),
    ("matching", &["pac.matching"]),
    ("covariance", &["covariance"]),
    ("dimension reduction", &["dim_reduction"]),
    ("classifier", &["pool", "mean", "classifier"]),
];
/// The component that is no part of the loss or of the parts; the classifier and the update are none either.
const BACKBONE: usize = 2;
const CLASSIFIER: usize = 7;

/// A measured variant at one batch.
#[derive(Serialize)]
struct Row {
    backbone: &'static str,
    loss: &'static str,
    d: usize,
    r: usize,
    batch: usize,
    size: [usize; 2],
    inference_ms: f64,
    step_ms: f64,
    forward_ms: f64,
    backward_ms: f64,
    update_ms: f64,
    components_ms: Vec<f64>,
    memory_bytes: usize,
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let varied = ["backbone", "loss", "d", "r"];
    let set = args
        .model
        .set
        .iter()
        .filter_map(|text| text.split_once('='));
    if let Some((key, _)) = set.clone().find(|(key, _)| varied.contains(&key.trim())) {
        let message = format!("--set {key}: it is one of the things that this report compares");
        return Err(
            Fail::usage(message).hint("`percept profile paco --train` profiles one setting")
        );
    }
    if !args.size.is_empty() {
        let message = "--size: this report compares pictures of one size";
        return Err(Fail::usage(message).hint("--set image_size=N sets it"));
    }
    let threads = match common.threads[..] {
        [] => available_threads(),
        [threads] => threads,
        _ => return Err(Fail::usage("--threads takes one number in this report")),
    };
    let batches = if args.batch.is_empty() {
        &BATCHES[..]
    } else {
        &args.batch
    };
    let repeats = args.repeats.unwrap_or(REPEATS);
    common.note(format_args!(
        "steps of seconds each, and of up to a minute with the naive loss at batch 32: this takes some minutes"
    ));
    let bar = progress::bar(common, batches.len() * VARIANTS.len(), "measuring");
    let mut rows: Vec<Row> = Vec::new();
    for &batch in batches {
        for variant in &VARIANTS {
            rows.push(measure(
                args,
                common,
                variant,
                Setting {
                    batch: Some(batch),
                    size: None,
                    threads,
                },
                repeats,
            )?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let objective = set.clone().find(|(key, _)| key.trim() == "objective");
    let objective = objective.map_or("published", |(_, objective)| objective.trim());
    let [height, width] = rows.first().map_or([0; 2], |row| row.size);
    let mut text = format!(
        "PaCo-2, {objective} objective, two views of {height}x{width}, {threads} threads; medians of {repeats} steps (naive: of 1)\n\n{}\n",
        steps(&rows)
    );
    for rows in rows.chunks(VARIANTS.len()) {
        text += &format!(
            "batch {}: what each change brings\n\n{}\n",
            rows[0].batch,
            changes(rows)
        );
        text += &format!(
            "batch {}, ResNet-50: where a step goes\n\n{}\n",
            rows[0].batch,
            components(&rows[..2])
        );
    }
    let record = json!({
        "model": MODEL, "settings": args.model.set, "objective": objective, "threads": threads, "repeats": repeats,
        "components": COMPONENTS.map(|(name, _)| name), "rows": rows,
    });
    Ok(Outcome::new(text, record))
}

fn measure(
    args: &Args,
    common: &Common,
    variant: &Variant,
    setting: Setting,
    repeats: u64,
) -> Result<Row> {
    // The customer's report is about the published objective; --set has the last word.
    let mut set = vec![
        "objective=published".to_owned(),
        "matching=cosine".to_owned(),
        "hardest=0".to_owned(),
    ];
    set.extend(args.model.set.iter().cloned());
    let Variant {
        backbone,
        loss,
        d,
        r,
    } = *variant;
    set.extend([
        format!("backbone={backbone}"),
        format!("loss={loss}"),
        format!("d={d}"),
        format!("r={r}"),
    ]);
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    last.extend(set.iter().filter_map(|text| text.split_once('=')));
    let set: Vec<String> = last
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let model = model::build(MODEL, &set)?;
    let inference_ms = inference(args, common, &model, &setting)?;

    let batch = setting.batch.unwrap_or(1);
    let learner = Learner::classifier(&model, 0.0, None).map_err(Fail::usage)?;
    let mut step = Subject::step(&learner, batch, setting.threads)?;
    // A naive loss takes so long that one step tells enough.
    let steps = if loss == "naive" { 1 } else { repeats };
    let mut recording = Recording::default();
    for run in 0..=steps {
        step.run((run > 0).then_some(&mut recording))?;
    }
    let program = step.program();
    let bindings = recording.runs[0].bindings.clone();
    let memory = program.memory_at_peak(&bindings);
    let memory_bytes = memory.total_bytes();
    let profile = Profile::new(program.step_infos(&bindings)?, &recording, memory, 0.0);
    let profile = StepProfile::new(profile, [0.0], []);
    let modules = profile.rows(Selection {
        grouping: Grouping::Module { depth: 2 },
        order: Order::Execution,
        top: None,
    });
    let tops = || modules.iter().filter(|row| row.depth == 1);
    let component = |(_, names): (&str, &[&str])| {
        let own = modules
            .iter()
            .filter(|row| names.contains(&row.name.as_str()));
        own.map(|row| row.forward_ms + row.backward_ms).sum()
    };
    Ok(Row {
        backbone,
        loss,
        d,
        r,
        batch,
        size: learner.size,
        inference_ms,
        step_ms: profile.step_ms(),
        forward_ms: tops().map(|row| row.forward_ms).sum(),
        backward_ms: tops().map(|row| row.backward_ms).sum(),
        update_ms: tops().map(|row| row.update_ms).sum(),
        components_ms: COMPONENTS.map(component).to_vec(),
        memory_bytes,
    })
}

/// One view through the network that answers.
fn inference(args: &Args, common: &Common, model: &Model, setting: &Setting) -> Result<f64> {
    let cpu = common.cpu_with(setting.threads)?;
    let weights = args.model.load(
        model,
        &Common {
            quiet: true,
            ..common.clone()
        },
    )?;
    let inputs = args.source.example(model, &setting.shape(), &cpu, common)?;
    let mut subject = Subject::inference(model, &weights, inputs, cpu, args.engine.options());
    subject.run(None)?;
    Ok(subject.measure(REPEATS, || ())?.wall_ms.median)
}

impl Row {
    /// Everything of the step that an ordinary classifier's would not have.
    fn loss_and_parts_ms(&self) -> f64 {
        let components = self.components_ms.iter().enumerate();
        let own = components.filter(|(place, _)| ![BACKBONE, CLASSIFIER].contains(place));
        own.map(|(_, ms)| ms).sum()
    }
}
