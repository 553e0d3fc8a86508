//! `percept eval`: how well a trained network does, by its own metric.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum;
use percept_data::points::nuscenes::NuScenes;
use percept_data::{Sample, SampleError, Samples};
use percept_graph::WeightSource;
use percept_models::lesson::{Curves, FigureTable, FigureValue, Lesson, Metric};
use percept_picture::{Axis, Chart, Panel, Picture, Series};
use percept_report::{Table, counted};
use percept_train::features::Features;
use percept_train::{Evaluated, EvaluationOptions, evaluate_by};
use serde_json::json;

use crate::fail::{Fail, Result};
use crate::features::{self, FeatureArgs};
use crate::model::ModelArgs;
use crate::options::{Common, parse_picture};
use crate::outcome::{Outcome, write_picture};
use crate::progress;
use crate::training::{Settled, blame, blame_lesson, settle_answers, settle_judged};

/// Test a network by its metric: of a classifier top-1, top-5, every class, the most confused pairs
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept eval resnet18 --weights runs/resnet18/best.safetensors   on the test pictures of its run
  percept eval resnet18 --weights run/best.safetensors --split training
  percept eval resnet18 --weights seeded                           what no training is worth
  percept eval resnet50 --weights resnet50.pth --data imagenet --json
  percept eval randlanet --data sequences/08 --split whole         every scan of a folder
  percept eval centerpoint-small --data nuscenes --split whole --save answers.json \\
      --curves curves.png
  percept eval centerpoint --data nuscenes --results answers.json  somebody's answers

A checkpoint of `percept train` knows its network's settings, its sizes and its data; other weights need --set and \
--data where the defaults do not fit.")]
pub struct Args {
    #[command(flatten)]
    network: ModelArgs,
    /// Pictures: a folder a class, train/ and val/ of such, or CUB-200-2011; sweeps: a nuScenes folder; labelled scans:
    /// SemanticKITTI's layout, or .bin and .label files [default: those of the run, or what is built in]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Which samples [default: testing, with --results whole]
    #[arg(long, value_enum)]
    split: Option<SplitArg>,
    /// Judge the answers of a file in the public layout (of detectors nuScenes') instead of the network's
    #[arg(long, value_name = "FILE", conflicts_with_all = ["weights", "save"])]
    results: Option<PathBuf>,
    /// Write the network's answers in that layout
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Draw the metric's curves, such as precision over recall, as .png or .svg
    #[arg(long, value_name = "FILE", value_parser = parse_picture)]
    curves: Option<PathBuf>,
    /// Samples at once [default: what suits the network]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Stop at a sample that cannot be read, instead of skipping it
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    features: FeatureArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SplitArg {
    /// Those to test with
    Testing,
    /// Those to train with
    Training,
    /// All there are, such as a folder of which nothing was learned
    Whole,
}

/// Samples of two datasets, one behind the other.
struct Joined([Arc<dyn Samples>; 2]);

impl Joined {
    fn find(&self, index: usize) -> (&dyn Samples, usize) {
        let [first, second] = &self.0;
        match index.checked_sub(first.len()) {
            None => (&**first, index),
            Some(behind) => (&**second, behind),
        }
    }
}

impl Samples for Joined {
    fn keyframe(&self, index: usize) -> Option<(&NuScenes, usize)> {
        let (part, within) = self.find(index);
        part.keyframe(within)
    }

    fn len(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }

    fn classes(&self) -> &[String] {
        self.0[0].classes()
    }

    fn name(&self, index: usize) -> String {
        let (part, within) = self.find(index);
        part.name(within)
    }

    fn sample(&self, index: usize) -> std::result::Result<Sample, SampleError> {
        let (part, within) = self.find(index);
        part.sample(within)
    }
}

/// Who answers: a file, or a network, with what makes the features of its frozen part.
enum Asked<'a> {
    File(&'a Path),
    Network(Arc<dyn WeightSource>, Option<Arc<Features>>),
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let network = &args.network;
    let settle = match args.results {
        Some(_) => settle_answers,
        None => settle_judged,
    };
    let settled = settle(network, args.data.clone())?;
    let Settled {
        model,
        mut learner,
        data,
        config,
        ..
    } = settled;
    let split = args.split.unwrap_or(match args.results {
        Some(_) => SplitArg::Whole,
        None => SplitArg::Testing,
    });
    let dataset: Arc<dyn Samples> = match split {
        SplitArg::Testing => data.testing,
        SplitArg::Training => data.training,
        SplitArg::Whole => Arc::new(Joined([data.training, data.testing])),
    };
    // Answers in a file need no network.
    let asked = match &args.results {
        Some(path) => Asked::File(path),
        None => {
            let weights = network.load(&model, common)?;
            let threads = common.cpu()?.threads();
            let features = args
                .features
                .cut(&mut learner, &config, &weights, threads)?;
            Asked::Network(weights, features)
        }
    };
    let lesson = &*learner.lesson;
    if dataset.is_empty() {
        let nothing = format!("there are no {} to judge by", lesson.samples());
        return Err(Fail::bad_input(nothing).hint("--split whole takes all that there are"));
    }
    let classes = dataset.classes().len();
    let (metric, evaluated, source, features) = match asked {
        Asked::File(path) => {
            let begun = Instant::now();
            let metric = lesson.judge_file(&dataset, path).map_err(blame_lesson)?;
            let evaluated = Evaluated::by(&*metric, dataset.len() as u64, begun);
            (metric, evaluated, path.display().to_string(), None)
        }
        Asked::Network(weights, features) => {
            let source = weights.describe();
            let (metric, evaluated) = ask(args, common, lesson, weights, dataset)?;
            (metric, evaluated, source, features)
        }
    };
    if let Some(fault) = metric.fault() {
        return Err(Fail::bad_input(fault));
    }
    if let Some(path) = &args.save {
        metric.save(path).map_err(blame_lesson)?;
    }
    if let Some(path) = &args.curves {
        write_picture(path, &drawn(&network.model, &*metric)?)?;
    }
    for sample in &evaluated.skipped {
        common.note(format_args!("skipped: {sample}"));
    }
    let mut outcome = report(
        &network.model,
        &source,
        lesson.samples(),
        classes,
        &evaluated,
    );
    if let Some(features) = &features {
        outcome.text += &format!("\n{}\n", features::text(features));
        outcome.record["features"] = features::record(features);
    }
    Ok(outcome)
}

/// Runs the network over the samples.
fn ask(
    args: &Args,
    common: &Common,
    lesson: &dyn Lesson,
    weights: Arc<dyn WeightSource>,
    dataset: Arc<dyn Samples>,
) -> Result<(Box<dyn Metric>, Evaluated)> {
    let options = EvaluationOptions {
        batch: args.batch.unwrap_or(lesson.judged_at_once()),
        threads: common.cpu()?.threads(),
        strict: args.strict,
    };
    let mut graph = lesson.inference();
    if let Some(plan) = args.network.plan()? {
        graph = plan.quantize(graph)?;
    }
    let bar = progress::bar(common, dataset.len(), "testing");
    let mut metric = lesson.judge(&dataset);
    let mut on_batch = |done| bar.set_position(done);
    let evaluated = evaluate_by(
        &mut *metric,
        lesson,
        graph,
        weights,
        dataset,
        &options,
        &mut on_batch,
    );
    bar.finish_and_clear();
    Ok((metric, evaluated.map_err(blame)?))
}

/// The curves of a metric, a panel each.
fn drawn(model: &str, metric: &dyn Metric) -> Result<Picture> {
    let curves = metric.curves();
    if curves.is_empty() {
        let nothing = format!("the metric of {model} has no curves to draw");
        return Err(Fail::usage(nothing).hint("leave --curves out"));
    }
    let panel = |curves: &Curves| Panel {
        title: curves.title.clone(),
        x: Axis::linear(curves.x),
        y: Axis::linear(curves.y),
        series: curves
            .lines
            .iter()
            .map(|(name, points)| Series::line(name, points.clone()))
            .collect(),
        ..Panel::default()
    };
    let chart = Chart {
        title: model.to_owned(),
        panels: curves.iter().map(panel).collect(),
        columns: 0,
    };
    Ok(chart.draw())
}

fn report(
    model: &str,
    weights: &str,
    samples: &str,
    classes: usize,
    evaluated: &Evaluated,
) -> Outcome {
    let seconds = evaluated.took.as_secs_f64();
    let figures = evaluated.figures.iter();
    let figures: Vec<String> = figures
        .map(|f| format!("{} {}", f.title, f.value))
        .collect();
    let mut text = format!(
        "{}: {}, {} {samples} of {} in {seconds:.2} s\n",
        model,
        figures.join(", "),
        evaluated.samples,
        counted(classes, "class"),
    );
    for table in evaluated
        .tables
        .iter()
        .filter(|table| !table.rows.is_empty())
    {
        text += "\n";
        text += &rendered(table);
    }
    if !evaluated.skipped.is_empty() {
        let _ = writeln!(text, "\n{} {samples} were skipped", evaluated.skipped.len());
    }
    let mut record = json!({
        "model": model, "weights": weights,
        "samples": evaluated.samples, "seconds": seconds,
        "skipped": evaluated.skipped.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    for figure in &evaluated.figures {
        record[figure.key] = figure.value.to_json();
    }
    for table in &evaluated.tables {
        record[table.key] = table.to_json();
    }
    Outcome::new(text, record)
}

/// A metric's table for people: names to the left, numbers to the right.
fn rendered(table: &FigureTable) -> String {
    let is_text = |column: usize| {
        let first = table.rows.first().and_then(|row| row.get(column));
        matches!(first, Some(FigureValue::Text(_)))
    };
    let titles = table.columns.iter().enumerate();
    let titles: Vec<String> = titles
        .map(|(place, column)| match is_text(place) {
            true => format!("<{}", column.title),
            false => column.title.to_owned(),
        })
        .collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut lines = Table::new(&titles);
    for row in &table.rows {
        lines.row(row.iter().map(ToString::to_string));
    }
    lines.render()
}
