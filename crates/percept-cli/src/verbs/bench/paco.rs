//! `percept bench paco --train`: what the form of the loss, the backbone, and the size of the parts cost in training.

use std::collections::BTreeMap;

use percept_engine::Recording;
use percept_models::Model;
use percept_report::{
    Grouping, Order, Profile, Selection, StepProfile, Table, milliseconds, percent,
};
use percept_train::Learner;
use serde::Serialize;
use serde_json::json;

use super::{Args, Setting, Subject};
use crate::fail::{Fail, Result};
use crate::model;
use crate::options::{Common, available_threads};
use crate::outcome::Outcome;
use crate::progress;

/// The network that the report is about.
pub const MODEL: &str = "paco";
const BATCHES: [usize; 2] = [8, 32];
const REPEATS: u64 = 3;
/// Batches of an epoch and epochs of a run, as the customer's report counts.
const EPOCH: f64 = 1000.0;
const EPOCHS: f64 = 100.0;
/// The customer's report (seed 003): inference and training step in milliseconds. It says 220x, 89.7 minutes, 149.5 hours.
const CUSTOMER: (f64, f64) = (22.59, 13_266.0);

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
/// Changes between two of [`VARIANTS`].
const CHANGES: [(&str, usize, usize); 4] = [
    ("the exact loss (ResNet-50)", 0, 1),
    ("EfficientNet-B0 (exact loss)", 1, 3),
    ("d 32, r 3 (EfficientNet-B0, exact loss)", 3, 4),
    ("all three", 0, 4),
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
    let mut text = format!(
        "PaCo-2, {objective} objective, two views of 224x224, {threads} threads; medians of {repeats} steps (naive: of 1)\n\n{}\n",
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
    let inputs = args.input(setting).seeded_tensors(model)?;
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

/// (step / inference, an epoch in minutes, a run in hours).
fn consequences(inference_ms: f64, step_ms: f64) -> [String; 3] {
    let epoch_minutes = step_ms * EPOCH / 60e3;
    [
        format!("{:.0}x", step_ms / inference_ms),
        format!("{epoch_minutes:.1} min"),
        format!("{:.1} h", epoch_minutes * EPOCHS / 60.0),
    ]
}

fn steps(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "<backbone",
        "batch",
        "<loss",
        "d",
        "r",
        "inference ms",
        "step ms",
        "forward",
        "backward",
        "update",
        "loss+parts",
        "of step",
        "step/inference",
        "1000 steps",
        "100 x 1000",
        "memory",
    ]);
    for row in rows {
        let cells = [
            row.backbone.to_owned(),
            row.batch.to_string(),
            row.loss.to_owned(),
            row.d.to_string(),
            row.r.to_string(),
        ];
        let loss = row.loss_and_parts_ms();
        let times = [
            row.inference_ms,
            row.step_ms,
            row.forward_ms,
            row.backward_ms,
            row.update_ms,
            loss,
        ];
        let times = times
            .map(milliseconds)
            .into_iter()
            .chain([percent(loss / row.step_ms)]);
        let consequences = consequences(row.inference_ms, row.step_ms).into_iter();
        let memory = percept_report::bytes(row.memory_bytes as u64);
        table.row(
            cells
                .into_iter()
                .chain(times)
                .chain(consequences)
                .chain([memory]),
        );
    }
    let (inference_ms, step_ms) = CUSTOMER;
    let head = ["customer's report", "8", "naive", "64", "5"]
        .map(str::to_owned)
        .into_iter();
    let times = [milliseconds(inference_ms), milliseconds(step_ms)];
    let blank = std::iter::repeat_n(String::new(), 5);
    table.row(
        head.chain(times)
            .chain(blank)
            .chain(consequences(inference_ms, step_ms)),
    );
    format!(
        "{}\n`customer's report` is seed 003 on its own machine; it says 220x, 89.7 minutes and 149.5 hours of the same two times.\n",
        table.render()
    )
}

fn changes(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "<change",
        "step ms before",
        "after",
        "faster",
        "hours saved in 100 x 1000 steps",
    ]);
    for (name, before, after) in CHANGES {
        let [before, after] = [rows[before].step_ms, rows[after].step_ms];
        let hours = (before - after) * EPOCH * EPOCHS / 3.6e6;
        table.row([
            name.to_owned(),
            milliseconds(before),
            milliseconds(after),
            format!("{:.2}x", before / after),
            format!("{hours:.1}"),
        ]);
    }
    table.render()
}

/// The customer's table: the same components, forward and backward, with one loss and the other.
fn components(rows: &[Row]) -> String {
    let mut header = vec!["<component".to_owned()];
    for row in rows {
        header.extend([format!("{} ms", row.loss), "share".to_owned()]);
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    let mut line = |name: &str, of: &dyn Fn(&Row) -> f64| {
        let cells = rows
            .iter()
            .flat_map(|row| [milliseconds(of(row)), percent(of(row) / row.step_ms)]);
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    for (place, (name, _)) in COMPONENTS.iter().enumerate() {
        line(name, &|row| row.components_ms[place]);
    }
    line("update", &|row| row.update_ms);
    line("the step", &|row| row.step_ms);
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_customers_times_have_these_consequences() {
        assert_eq!(
            consequences(CUSTOMER.0, CUSTOMER.1),
            ["587x", "221.1 min", "368.5 h"]
        );
    }
}
