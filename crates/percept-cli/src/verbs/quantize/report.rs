//! What quantising did, for people and for programs.

use std::fmt::Write;

use percept_engine::Precision;
use percept_graph::{Graph, Node};
use percept_models::Model;
use percept_picture::{Axis, Better, Chart, Panel, Series};
use percept_report::{Table, bytes, counted, milliseconds};
use percept_tune::{BothMs, Calibration, LayerSensitivity, Noise, outlier_advice};
use serde_json::{Value, json};

use super::{Args, Found, Written};
use crate::outcome::Outcome;
use crate::quantization;

/// Signal to noise below which answers are hardly those of floats, decibels.
const LOUD_DB: f64 = 20.0;

/// Everything that is told.
pub struct Told<'a> {
    pub args: &'a Args,
    pub model: &'a Model,
    pub quantized: &'a Graph,
    /// Where the samples come from.
    pub source: &'a str,
    pub calibration: Option<&'a Calibration>,
    pub found: &'a Found,
    pub noise: &'a [(String, Noise)],
    /// Samples that it was measured on.
    pub measured: usize,
    /// What a run takes in floats and so.
    pub takes: BothMs,
    pub threads: usize,
    pub written: Option<&'a Written>,
}

pub fn report(told: &Told<'_>) -> Outcome {
    let mut text = summary(told);
    if let Some(layers) = &told.found.layers {
        text += "\n";
        text += &sensitivities(layers);
        text += &outliers(told.model, layers);
    }
    if let Some(spent) = &told.found.spent {
        text += "\n";
        text += &spending(told, spent);
    }
    Outcome::new(text, record(told))
}

fn summary(told: &Told<'_>) -> String {
    let mut text = format!(
        "{}: {}\n",
        told.model.name,
        told.args.made_by(told.calibration)
    );
    let shares = quantization::shares(told.quantized);
    let _ = writeln!(text, "ranges from {}", told.source);
    let _ = writeln!(text, "layers: {}", shares.text());
    if let Some(written) = told.written {
        let total: u64 = written.bytes.iter().sum();
        let before: u64 = told.model.graph.params().iter().map(|p| p.bytes()).sum();
        let [integers, steps, floats] = written.bytes;
        let _ = writeln!(
            text,
            "{}: {}, {:.2} of the floats' {} (integers {}, steps {}, floats {})",
            written.path.display(),
            bytes(total),
            total as f64 / before.max(1) as f64,
            bytes(before),
            bytes(integers),
            bytes(steps),
            bytes(floats),
        );
        if let Some(path) = &written.calibration {
            let _ = writeln!(text, "histograms: {}", path.display());
        }
    }
    let noise: Vec<String> = told
        .noise
        .iter()
        .map(|(name, noise)| format!("{name} {:.1} dB", noise.sqnr_db()))
        .collect();
    let mut total = Noise::default();
    told.noise.iter().for_each(|(_, noise)| total.join(*noise));
    let _ = writeln!(
        text,
        "signal to noise on {}: {:.1} dB{}",
        counted(told.measured, "sample"),
        total.sqnr_db(),
        match noise.len() {
            0 | 1 => String::new(),
            2..=8 => format!(" ({})", noise.join(", ")),
            _ => format!(" ({}, ..)", noise[..6].join(", ")),
        }
    );
    text += &time(told);
    if total.sqnr_db() < LOUD_DB && told.args.budget.is_none() {
        text += "more than a tenth of the answers is noise: --budget sqnr=30dB leaves in floats what costs most, --sensitivity names it\n";
    }
    let zero = zero_channels(told);
    if !zero.is_empty() {
        let _ = writeln!(
            text,
            "always zero, so any range does: inputs of {}",
            zero.join(", ")
        );
    }
    text
}

/// What a run takes, and whether that pays.
fn time(told: &Told<'_>) -> String {
    let [float, integer] = told.takes.map(milliseconds);
    let ratio = told.takes[0] / told.takes[1];
    let threads = counted(told.threads, "thread");
    let pays = match (ratio > 1.0, told.args.budget) {
        (true, _) => "",
        (false, None) => {
            ": integers do not pay for all layers here; --budget takes those that gain"
        }
        (false, Some(_)) => ": integers do not pay here",
    };
    format!("a run takes {integer} ms, {float} ms in floats ({ratio:.2}x, {threads}){pays}\n")
}

/// Quantised layers whose input was never anything but zero.
fn zero_channels(told: &Told<'_>) -> Vec<String> {
    let Some(calibration) = told.calibration else {
        return Vec::new();
    };
    let layers = told.quantized.nodes().iter();
    let quantized = layers.filter(|node| told.quantized.grids(node).is_some());
    let is_zero = |node: &&Node| {
        calibration
            .of(&node.name)
            .is_some_and(|seen| seen.amax() == 0.0)
    };
    quantized
        .filter(is_zero)
        .map(|node| node.name.clone())
        .collect()
}

fn sensitivities(layers: &[LayerSensitivity]) -> String {
    let has_metric = layers.iter().any(|layer| layer.metric_loss.is_some());
    let mut titles = vec![
        "<layer",
        "<op",
        "<inputs",
        "amax",
        "own dB",
        "network dB",
        "f32 ms",
        "saved ms",
        "saved bytes",
    ];
    if has_metric {
        titles.push("points lost");
    }
    let mut table = Table::new(&titles);
    for layer in layers {
        let mut row = vec![
            layer.name.clone(),
            layer.kind.to_owned(),
            layer.grids.precision().to_string(),
            layer.grids.input.amax.to_string(),
            decibels(layer.own_db),
            decibels(layer.network_db),
            format!("{:.3}", layer.float_ms),
            format!("{:.3}", layer.saved_ms()),
            bytes(layer.float_bytes.saturating_sub(layer.integer_bytes)),
        ];
        if has_metric {
            row.push(
                layer
                    .metric_loss
                    .map_or_else(String::new, |loss| format!("{loss:.2}")),
            );
        }
        table.row(row);
    }
    table.render()
}

fn decibels(db: f64) -> String {
    match db.is_finite() {
        true => format!("{db:.1}"),
        false => "no noise".to_owned(),
    }
}

fn outliers(model: &Model, layers: &[LayerSensitivity]) -> String {
    let mut text = String::new();
    for layer in layers {
        if let Some(advice) = outlier_advice(&model.graph, layer) {
            let _ = writeln!(text, "{}: {advice}", layer.name);
        }
    }
    match text.is_empty() {
        true => text,
        false => format!("\nlayers whose noise stands out, and what helps:\n{text}"),
    }
}

fn spending(told: &Told<'_>, spent: &percept_tune::Spent) -> String {
    let unit = match told.args.budget {
        Some(percept_tune::Budget::Metric(_)) => "points lost",
        _ => "dB",
    };
    let mut text = format!(
        "budget: {} layers in integers, {} cost too much, {} gain nothing; {:.2} {unit} measured, {} plans tried\n",
        spent.taken.len(),
        spent.refused.len(),
        spent.without_gain.len(),
        spent.measured,
        spent.trials,
    );
    if !spent.without_gain.is_empty() {
        let some: Vec<&str> = spent
            .without_gain
            .iter()
            .take(8)
            .map(String::as_str)
            .collect();
        let rest = spent.without_gain.len() - some.len();
        let more = if rest > 0 {
            format!(" and {rest} more")
        } else {
            String::new()
        };
        let _ = writeln!(text, "integers do not pay here: {}{more}", some.join(", "));
    }
    text
}

fn record(told: &Told<'_>) -> Value {
    let finite = |db: f64| {
        if db.is_finite() {
            json!(db)
        } else {
            Value::Null
        }
    };
    let noise: serde_json::Map<String, Value> = told
        .noise
        .iter()
        .map(|(name, noise)| (name.clone(), finite(noise.sqnr_db())))
        .collect();
    let layers = told.found.layers.as_ref().map(|layers| {
        let layers = layers.iter().map(|layer| {
            json!({
                "name": layer.name, "op": layer.kind,
                "unit": layer.unit, "own_db": finite(layer.own_db), "network_db": finite(layer.network_db),
                "float_ms": layer.float_ms, "integer_ms": layer.integer_ms,
                "float_bytes": layer.float_bytes, "integer_bytes": layer.integer_bytes,
                "metric_loss": layer.metric_loss,
                "remedies": layer.remedies.iter().map(|(name, gained)| json!({"what": name, "gained_db": gained})).collect::<Vec<_>>(),
                "advice": outlier_advice(&told.model.graph, layer),
            })
        });
        layers.collect::<Vec<_>>()
    });
    let spent = told.found.spent.as_ref().map(|spent| {
        json!({
            "taken": spent.taken, "refused": spent.refused, "without_gain": spent.without_gain,
            "measured": finite(spent.measured), "trials": spent.trials,
        })
    });
    let shares = quantization::shares(told.quantized);
    json!({
        "model": told.model.name, "made_by": told.args.made_by(told.calibration), "samples": told.source,
        "layers": {"i8": shares.count(Precision::I8), "i16": shares.count(Precision::I16), "f32": shares.count(Precision::F32)},
        "plan": quantization::plan_record(told.quantized),
        "sqnr_db": noise,
        "ms": {"floats": told.takes[0], "integers": told.takes[1], "threads": told.threads},
        "file": told.written.map(|written| written.path.display().to_string()),
        "bytes": told.written.map(|written| json!({
            "integers": written.bytes[0], "steps": written.bytes[1], "floats": written.bytes[2],
        })),
        "sensitivity": layers, "budget": spent,
    })
}

/// Gain against loss, a dot for each layer.
pub fn chart(network: &str, layers: &[LayerSensitivity]) -> Chart {
    let shown: Vec<&LayerSensitivity> = layers
        .iter()
        .filter(|layer| layer.network_db.is_finite())
        .collect();
    let panel = |title: &str, x: Axis, gain: &dyn Fn(&LayerSensitivity) -> f64| Panel {
        title: title.to_owned(),
        x,
        y: Axis::linear("signal to noise of the network, dB"),
        series: vec![
            Series::dots(
                "a layer alone in integers",
                shown
                    .iter()
                    .map(|layer| [gain(layer), layer.network_db])
                    .collect(),
            )
            .labelled(shown.iter().map(|layer| layer.name.as_str())),
        ],
        front: Some([Better::Higher, Better::Higher]),
    };
    Chart {
        title: format!("{network}: what each layer gains and loses in integers"),
        panels: vec![
            panel(
                "Time",
                Axis::linear("saved, ms"),
                &LayerSensitivity::saved_ms,
            ),
            panel("Weights", Axis::linear("saved, KiB"), &|layer| {
                (layer.float_bytes as f64 - layer.integer_bytes as f64) / 1024.0
            }),
        ],
        columns: 2,
    }
}
