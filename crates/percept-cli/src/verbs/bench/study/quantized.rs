//! A study of ways to quantise a network: its metric in each, with paired intervals over samples; time, bytes, and layers by type.

use std::sync::Arc;

use percept_data::loader::Order;
use percept_data::{Example, Samples};
use percept_engine::{PrecisionPlan, RoundedWeights};
use percept_graph::{Graph, Per, WeightGrid, WeightSource};
use percept_models::Model;
use percept_models::lesson::{Figure, FigureTable, FigureValue, Lesson, Metric};
use percept_models::study::{QuantizeStudy, Ranges, Study, Way};
use percept_report::{Table, bytes};
use percept_train::{EvaluationOptions, run_over};
use percept_tune::{Calibration, Layers, Recipe, Scheme};
use serde_json::{Value, json};

use super::super::{Args, Subject};
use crate::fail::{Fail, Result};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::progress;
use crate::quantization;
use crate::training::{blame, settle_judged};
use crate::verbs::quantize::{First, blame as blame_tuning};

const REPEATS: u64 = 5;
/// Groups of samples that are left out in turn, for intervals.
const GROUPS: usize = 10;
/// Half the width of an interval of 95 % in standard errors, of as many groups.
const STUDENT: f64 = 2.262;

/// What is known of one way.
struct Row {
    way: &'static Way,
    figures: Vec<Figure>,
    /// The figures without each group of samples.
    without: Vec<Vec<Figure>>,
    tables: Vec<FigureTable>,
    wall_ms: f64,
    cpu_ms: f64,
    disk_bytes: u64,
    peak_bytes: usize,
    layers: quantization::Shares,
}

pub fn run(
    args: &Args,
    common: &Common,
    study: &Study,
    measured: &QuantizeStudy,
) -> Result<Outcome> {
    let network = &args.model;
    let settled = settle_judged(network, None)?;
    let (model, lesson, data) = (settled.model, settled.learner.lesson, settled.data);
    let weights = network.load(&model, common)?;
    let samples = args.samples.unwrap_or(measured.samples);
    let dataset: Arc<dyn Samples> = Arc::new(First {
        samples: data.testing,
        count: samples,
    });
    if dataset.is_empty() {
        return Err(Fail::bad_input(format!(
            "there are no {} to judge by",
            lesson.samples()
        )));
    }
    common.note(format_args!(
        "{}: {} ways on {} {}; this takes some minutes",
        study.name,
        measured.ways.len(),
        dataset.len(),
        lesson.samples()
    ));
    let graph = lesson.inference();
    let (calibration, first) =
        calibrate(common, &model, &graph, &weights, &*data.training, measured)?;
    let bar = progress::bar(common, measured.ways.len() * dataset.len(), "judging");
    let mut rows = Vec::new();
    for way in measured.ways {
        let plan = plan_of(way, &graph, &calibration)?;
        let quantized = plan.quantize(graph.clone())?;
        let rounded: Arc<dyn WeightSource> =
            Arc::new(RoundedWeights::new(Arc::clone(&weights), &quantized));
        let judged = judge(
            common,
            &*lesson,
            quantized.clone(),
            &rounded,
            &dataset,
            || bar.inc(1),
        )?;
        let cpu = common.cpu()?;
        let inputs = Example {
            samples: first.samples,
            tensors: first
                .tensors
                .iter()
                .filter(|(name, _)| graph.inputs().iter().any(|input| input.name == *name))
                .cloned()
                .collect(),
        };
        let mut subject = Subject::of_graph(
            quantized.clone(),
            &rounded,
            inputs,
            cpu,
            args.engine.options(),
        );
        let facts = subject.facts()?;
        let times = subject.measure(args.repeats.unwrap_or(REPEATS), || {})?;
        rows.push(Row {
            way,
            figures: judged.whole.figures(),
            without: judged
                .without
                .iter()
                .map(|metric| metric.figures())
                .collect(),
            tables: judged.whole.tables(),
            wall_ms: times.wall_ms.median,
            cpu_ms: times.cpu_ms.median,
            disk_bytes: quantized.params().iter().map(|param| param.bytes()).sum(),
            peak_bytes: facts.memory_bytes,
            layers: quantization::shares(&quantized),
        });
    }
    bar.finish_and_clear();
    let text = report(
        network.model.as_str(),
        &weights.describe(),
        dataset.len(),
        lesson.samples(),
        measured,
        &rows,
    );
    Ok(Outcome::new(
        text,
        record(&network.model, study, dataset.len(), &rows),
    ))
}

/// Histograms over the first samples of the training data, and the first of them.
fn calibrate(
    common: &Common,
    model: &Model,
    graph: &Graph,
    weights: &Arc<dyn WeightSource>,
    training: &dyn Samples,
    measured: &QuantizeStudy,
) -> Result<(Calibration, Example)> {
    let cpu = common.cpu()?;
    let mut program = percept_engine::Program::new(
        graph.clone(),
        Arc::clone(weights),
        common.cpu()?,
        percept_engine::Options::default(),
    );
    let mut calibration = Calibration::new(graph);
    let mut first = None;
    for index in 0..training.len().min(measured.calibrated) {
        let sample = training.sample(index)?;
        let example = model.example(&cpu, &sample)?;
        calibration
            .watch(&mut program, &example, &sample.name)
            .map_err(blame_tuning)?;
        first.get_or_insert(example);
    }
    let first = first.ok_or_else(|| Fail::bad_input("there is nothing to calibrate on"))?;
    Ok((calibration, first))
}

fn plan_of(way: &Way, graph: &Graph, calibration: &Calibration) -> Result<PrecisionPlan> {
    let scheme = match way.ranges {
        Ranges::Float => return Ok(PrecisionPlan::new()),
        Ranges::Static => Scheme::Static,
        Ranges::Dynamic => Scheme::Dynamic,
        Ranges::WeightOnly => Scheme::WeightOnly,
    };
    let recipe = Recipe {
        weight: WeightGrid {
            bits: way.weight_bits,
            per: Per::Channel,
        },
        layers: match way.sparse {
            true => Layers::All,
            false => Layers::Dense,
        },
        wide: way.wide.iter().map(|scope| (*scope).to_owned()).collect(),
        float: way.float.iter().map(|scope| (*scope).to_owned()).collect(),
        ..Recipe::new(scheme)
    };
    recipe.plan(graph, Some(calibration)).map_err(blame_tuning)
}

/// A metric over all samples, and one without each group of them.
struct Judged {
    whole: Box<dyn Metric>,
    without: Vec<Box<dyn Metric>>,
}

fn judge(
    common: &Common,
    lesson: &dyn Lesson,
    graph: Graph,
    weights: &Arc<dyn WeightSource>,
    dataset: &Arc<dyn Samples>,
    on_sample: impl Fn(),
) -> Result<Judged> {
    let metric = || lesson.metric(dataset.classes());
    let mut judged = Judged {
        whole: metric(),
        without: (0..GROUPS).map(|_| metric()).collect(),
    };
    let options = EvaluationOptions {
        batch: 1,
        threads: common.cpu()?.threads(),
        strict: true,
    };
    let mut number = 0;
    let data = Arc::clone(dataset);
    run_over(
        lesson,
        graph,
        Arc::clone(weights),
        data,
        Order::Given,
        &options,
        &mut |answer| {
            judged.whole.add(answer)?;
            for (group, metric) in judged.without.iter_mut().enumerate() {
                if group != number % GROUPS {
                    metric.add(answer)?;
                }
            }
            number += 1;
            on_sample();
            Ok(())
        },
    )
    .map_err(blame)?;
    Ok(judged)
}

/// How much a figure differs from the first row's, and half of the width of its interval: groups of samples are left out in
/// turn, of both rows the same.
fn paired(row: &Row, first: &Row, at: usize) -> (f64, f64) {
    let value = |figures: &[Figure]| figures[at].value.as_f64();
    let difference = value(&row.figures) - value(&first.figures);
    let parts = row.without.iter().zip(&first.without);
    let parts: Vec<f64> = parts.map(|(a, b)| value(a) - value(b)).collect();
    (difference, half_interval(&parts))
}

/// Half of an interval of 95 % by the jackknife: from the estimates without each group.
fn half_interval(parts: &[f64]) -> f64 {
    let count = parts.len() as f64;
    let mean = parts.iter().sum::<f64>() / count;
    let squares: f64 = parts.iter().map(|part| (part - mean).powi(2)).sum();
    STUDENT * ((count - 1.0) / count * squares).sqrt()
}

fn report(
    network: &str,
    weights: &str,
    samples: usize,
    unit: &str,
    study: &QuantizeStudy,
    rows: &[Row],
) -> String {
    let mut text = format!(
        "{network} ({weights}) on {samples} held-out {unit}, against the first row; intervals of 95 % over {unit}, paired\n\n"
    );
    let shown = study.figures.iter().filter_map(|key| {
        let figures = &rows.first()?.figures;
        figures.iter().position(|figure| figure.key == *key)
    });
    let shown: Vec<usize> = shown.collect();
    let mut titles = vec!["<way".to_owned(), "<layers".to_owned()];
    if let Some(first) = rows.first() {
        for &at in &shown {
            titles.push(first.figures[at].title.clone());
            titles.push("points".to_owned());
        }
    }
    titles.extend(["ms", "CPU ms", "on disk", "at the peak"].map(str::to_owned));
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut table = Table::new(&titles);
    for row in rows {
        let mut cells = vec![row.way.title.to_owned(), row.layers.text()];
        for &at in &shown {
            cells.push(row.figures[at].value.to_string());
            let (difference, half) = paired(row, &rows[0], at);
            cells.push(format!("{:+.2} ± {:.2}", 100.0 * difference, 100.0 * half));
        }
        cells.extend([
            format!("{:.1}", row.wall_ms),
            format!("{:.1}", row.cpu_ms),
            bytes(row.disk_bytes),
            bytes(row.peak_bytes as u64),
        ]);
        table.row(cells);
    }
    text += &table.render();
    text += &by_class(study, rows);
    for claim in study.says {
        text += &format!("\nthe report says: {claim}");
    }
    if !study.says.is_empty() {
        text.push('\n');
    }
    text
}

/// One column of the metric's table of classes, in all ways.
fn by_class(study: &QuantizeStudy, rows: &[Row]) -> String {
    let [table, column] = study.by_class;
    let of_row = |row: &Row| -> Option<Vec<(String, FigureValue)>> {
        let table = row.tables.iter().find(|known| known.key == table)?;
        let at = table.columns.iter().position(|known| known.key == column)?;
        let cells = table.rows.iter();
        Some(
            cells
                .map(|cells| (cells[0].to_string(), cells[at].clone()))
                .collect(),
        )
    };
    let Some(first) = rows.first().and_then(of_row) else {
        return String::new();
    };
    let mut titles = vec!["<way"];
    titles.extend(first.iter().map(|(class, _)| class.as_str()));
    let mut table = Table::new(&titles);
    for row in rows {
        let cells = of_row(row).unwrap_or_default();
        let cells = cells.into_iter().map(|(_, value)| value.to_string());
        table.row(std::iter::once(row.way.title.to_owned()).chain(cells));
    }
    format!("\n{column} of each class\n{}", table.render())
}

fn record(network: &str, study: &Study, samples: usize, rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let figures: serde_json::Map<String, Value> = row
            .figures
            .iter()
            .enumerate()
            .map(|(at, figure)| {
                let (difference, half) = paired(row, &rows[0], at);
                let value = json!({"value": figure.value.to_json(), "difference": difference, "half_interval": half});
                (figure.key.to_owned(), value)
            })
            .collect();
        json!({
            "way": row.way.title, "figures": figures, "wall_ms": row.wall_ms, "cpu_ms": row.cpu_ms,
            "disk_bytes": row.disk_bytes, "peak_bytes": row.peak_bytes, "layers": row.layers.text(),
            "tables": row.tables.iter().map(|table| (table.key.to_owned(), table.to_json())).collect::<serde_json::Map<_, _>>(),
        })
    };
    json!({
        "model": network, "study": study.name, "samples": samples, "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_the_known_one() {
        // Means without each of ten numbers: the jackknife gives the standard error of the mean.
        let numbers: Vec<f64> = (0..10).map(f64::from).collect();
        let total: f64 = numbers.iter().sum();
        let parts: Vec<f64> = numbers.iter().map(|x| (total - x) / 9.0).collect();
        let mean = total / 10.0;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 9.0;
        let expected = STUDENT * (variance / 10.0).sqrt();
        assert!((half_interval(&parts) - expected).abs() < 1e-12);
        assert_eq!(half_interval(&[0.5; 10]), 0.0);
    }
}
