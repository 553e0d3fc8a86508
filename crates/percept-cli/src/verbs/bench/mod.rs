//! `percept bench`: how fast a network is, over batches, sizes and threads.

mod study;
mod subject;

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;

use percept_graph::WeightSource;
use percept_kernels::machine;
use percept_models::Model;
use percept_report::{Table, bytes, counted, milliseconds};
use serde_json::{Value, json};

use crate::fail::{Blame, Fail, Result};
use crate::inputs::{ShapeArgs, SourceArgs, unit};
use crate::model::ModelArgs;
use crate::options::{Common, EngineArgs, PartSize, available_threads, parse_batch, parse_points};
use crate::outcome::Outcome;
use crate::progress;
use crate::saving::{self, SavingArgs};
use subject::{Facts, Subject, Times};
pub use subject::{Timed, timed};

/// Measure a network or a single layer: median, spread, throughput, memory
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept bench resnet50 --batch 1,8 --threads 1,2
  percept bench resnet18 --batch 6 --size 256x704
  percept bench centerpoint --input nuscenes/ --batch 1,4  sweeps per second
  percept bench conv2d --set in_channels=128 --set out_channels=128 --set kernel=3 \\
      --set padding=1 --size 180
  percept bench resnet50 --train --batch 8                 training steps
  percept bench resnet50 --train --batch 8 --activations f16 --recompute elementwise
  percept bench resnet50 --train --batch 8 --max-memory 450MiB
  percept bench randlanet --points 45056,131072 --batch 1  how time and memory grow
  percept bench paco --study cost                          what its parts cost in training

Times are wall times of one inference (or training step) on inputs in memory, weights packed; a warm-up comes first.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Samples at once; several as a list
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = parse_batch)]
    batch: Vec<usize>,
    /// Height and width of the input, such as 224 or 256x704, or PART=HxW; several as a list
    #[arg(long, value_name = "[PART=]HxW,..", value_delimiter = ',')]
    size: Vec<PartSize>,
    /// Measure training steps
    #[arg(long, conflicts_with_all = ["weights", "input"])]
    train: bool,
    /// Compare what the network's own study compares, such as `cost` of paco, with what a published report says
    #[arg(long, value_name = "NAME", conflicts_with_all = ["train", "paced"])]
    study: Option<String>,
    /// Points of a cloud, for the network's study over clouds: time, memory, frugal against keep; several as a list
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = parse_points, conflicts_with_all = ["weights", "train", "paced", "size"])]
    points: Vec<usize>,
    /// Measure one row of a study here, and leave its outputs in this file: how a study starts its rows
    #[arg(long, value_name = "FILE", hide = true, requires = "study")]
    row: Option<PathBuf>,
    /// Held-out samples that a study judges by [default: as many as the study says]
    #[arg(long, value_name = "N", requires = "study")]
    samples: Option<usize>,
    #[command(flatten)]
    saving: SavingArgs,
    #[command(flatten)]
    source: SourceArgs,
    /// Measured runs of each setting [default: 15; with --train 5, of a study 3]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    repeats: Option<u64>,
    /// Runs before measuring [default: 3; with --train 1]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    warmup: Option<u64>,
    /// Run once for each line on stdin and answer with a JSON line: for comparisons in turns with other engines
    #[arg(long)]
    paced: bool,
}

/// One combination of the lists.
struct Setting {
    batch: Option<usize>,
    size: Option<PartSize>,
    threads: usize,
}

pub fn run(args: &Args, common: &Common) -> Result<Option<Outcome>> {
    args.saving.require(args.train)?;
    let study = match (&args.study, args.points.is_empty()) {
        (Some(name), _) => Some(name.as_str()),
        (None, true) => None,
        (None, false) => Some(crate::study::over_clouds(&args.model.model)?),
    };
    if let Some(name) = study {
        return study::run(args, common, name).map(Some);
    }
    // A training step begins with seeded weights, whatever comes with the network.
    let named = if args.train {
        args.model.or_seeded()
    } else {
        args.model.clone()
    };
    let model = named.build()?;
    if Subject::is_loss(&model) {
        args.saving.refuse_for_loss(&args.model.model)?;
    }
    let settings = settings(args, common);
    let (warmup, repeats) = args.runs();
    // Bad sizes and thread counts are found before anything is measured.
    for setting in &settings {
        let shape = setting.shape();
        shape.shapes(&shape.sized(model.clone())?)?;
        common.cpu_with(setting.threads)?;
    }
    let weights = named.load(&model, common)?;
    if args.paced && settings.len() > 1 {
        return Err(Fail::usage(
            "--paced measures one setting; give one --batch, --size and --threads",
        ));
    }
    if args.paced {
        return paced(args, common, &model, &weights, &settings[0]).map(|()| None);
    }
    let rate_name = format!("{}/s", unit(&model));
    let mut table = Table::new(&[
        "<input",
        "threads",
        "median ms",
        "p10",
        "p90",
        &rate_name,
        "GFLOP/s",
        "memory",
    ]);
    let mut records: Vec<Value> = Vec::new();
    let bar = progress::bar(
        common,
        settings.len() * (warmup + repeats) as usize,
        "measuring",
    );
    for setting in &settings {
        let mut subject = args.subject(common, &model, &weights, setting)?;
        if let Some(fitted) = subject.fitted() {
            bar.suspend(|| common.note(saving::describe(fitted)));
        }
        let Facts { macs, memory_bytes } = subject.facts()?;
        bar.inc(1);
        for _ in 1..warmup {
            subject.run(None)?;
            bar.inc(1);
        }
        let Times { wall_ms, cpu_ms } = subject.measure(repeats, || bar.inc(1))?;
        let shapes = subject.shapes();
        let described: Vec<String> = shapes
            .iter()
            .map(|(name, shape)| format!("{name} {shape:?}"))
            .collect();
        let samples = subject.samples();
        let seconds = wall_ms.median * 1e-3;
        let (throughput, rate) = (samples as f64 / seconds, 2e-9 * macs as f64 / seconds);
        table.row([
            described.join(", "),
            setting.threads.to_string(),
            milliseconds(wall_ms.median),
            milliseconds(wall_ms.p10),
            milliseconds(wall_ms.p90),
            format!("{throughput:.2}"),
            format!("{rate:.1}"),
            bytes(memory_bytes as u64),
        ]);
        records.push(json!({
            "inputs": shapes.iter().map(|(name, shape)| json!({"name": name, "shape": shape})).collect::<Vec<_>>(),
            "threads": setting.threads, "wall_ms": wall_ms, "cpu_ms": cpu_ms,
            "samples": samples, "samples_per_s": throughput, "macs": macs, "gflops_per_s": rate, "memory_bytes": memory_bytes,
        }));
    }
    bar.finish_and_clear();
    let peak = machine::peak_resident_bytes();
    let record = json!({
        "model": args.model.model, "settings": args.model.config.set, "engine": args.engine.describe(),
        "weights": weights.describe(), "training": args.train, "repeats": repeats, "rows": records, "peak_resident_bytes": peak,
    });
    let foot = peak.map_or_else(String::new, |peak| {
        format!(", process peak {}", bytes(peak))
    });
    let text = format!(
        "{}, {}, {} each{foot}\n\n{}\nmemory: arena, weights and working memory. GFLOP/s: 2 MACs / time, effective where Winograd is used.\n",
        args.model.model,
        args.engine.describe(),
        counted(repeats, if args.train { "training step" } else { "run" }),
        table.render()
    );
    Ok(Some(Outcome::new(text, record)))
}

impl Args {
    /// Runs to warm up and to measure.
    fn runs(&self) -> (u64, u64) {
        let (warmup, repeats) = if self.train { (1, 5) } else { (3, 15) };
        (
            self.warmup.unwrap_or(warmup),
            self.repeats.unwrap_or(repeats),
        )
    }

    fn subject(
        &self,
        common: &Common,
        model: &Model,
        weights: &Arc<dyn WeightSource>,
        setting: &Setting,
    ) -> Result<Subject> {
        let cpu = common.cpu_with(setting.threads)?;
        let shape = setting.shape();
        let model = shape.sized(model.clone())?;
        let inputs = self.source.example(&model, &shape, &cpu, common)?;
        let options = self.engine.options();
        match self.train {
            true => {
                let config = self.saving.config()?;
                Subject::training(&model, weights, inputs, cpu, options, &config)
            }
            false => Ok(Subject::inference(&model, weights, inputs, cpu, options)),
        }
    }
}

impl Setting {
    fn shape(&self) -> ShapeArgs {
        ShapeArgs {
            batch: self.batch,
            size: self.size.iter().cloned().collect(),
        }
    }
}

fn settings(args: &Args, common: &Common) -> Vec<Setting> {
    let or_default = |values: &[usize]| -> Vec<Option<usize>> {
        if values.is_empty() {
            vec![None]
        } else {
            values.iter().copied().map(Some).collect()
        }
    };
    let sizes: Vec<Option<PartSize>> = if args.size.is_empty() {
        vec![None]
    } else {
        args.size.iter().cloned().map(Some).collect()
    };
    let mut settings = Vec::new();
    for threads in or_default(&common.threads) {
        for size in &sizes {
            for batch in or_default(&args.batch) {
                settings.push(Setting {
                    batch,
                    size: size.clone(),
                    threads: threads.unwrap_or_else(available_threads),
                });
            }
        }
    }
    settings
}

/// The worker side of bench/peers: one run for each line that comes, until the end of stdin.
fn paced(
    args: &Args,
    common: &Common,
    model: &Model,
    weights: &Arc<dyn WeightSource>,
    setting: &Setting,
) -> Result<()> {
    let mut subject = args.subject(common, model, weights, setting)?;
    for _ in 0..args.runs().0 {
        subject.run(None)?;
    }
    pace(setting.threads, || subject.timed())
}

/// Says that it is ready, runs once for each line of stdin and tells the time, and ends with the memory that was needed.
pub fn pace(threads: usize, mut run: impl FnMut() -> Result<Timed>) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let mut say = |line: Value| {
        writeln!(stdout, "{line}")
            .and_then(|()| stdout.flush())
            .bad_input()
    };
    say(
        json!({"ready": true, "engine": "percept", "version": env!("CARGO_PKG_VERSION"), "threads": threads}),
    )?;
    for line in std::io::stdin().lock().lines() {
        line.bad_input()?;
        let time = run()?;
        say(json!({"wall_ms": time.wall_ms, "cpu_ms": time.cpu_ms}))?;
    }
    say(json!({"peak_memory_bytes": machine::peak_resident_bytes()}))
}
