//! `percept bench`: how fast a network is, over batches, sizes and threads.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Instant;

use percept_engine::Program;
use percept_graph::WeightSource;
use percept_kernels::machine;
use percept_models::Model;
use percept_report::{Spread, Table, bytes, milliseconds};
use serde_json::{Value, json};

use crate::fail::{Blame, Fail, Result};
use crate::inputs::{InputArgs, Tensors};
use crate::model::ModelArgs;
use crate::options::{Common, EngineArgs, Size, available_threads, parse_batch};
use crate::outcome::Outcome;
use crate::points::SourceArgs;
use crate::progress;

/// Measure a network or a single layer: median, spread, throughput, memory
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept bench resnet50 --batch 1,8 --threads 1,2
  percept bench resnet18 --batch 6 --size 256x704
  percept bench conv2d --set in_channels=128 --set out_channels=128 --set kernel=3 --set padding=1 --size 180

Times are wall times of one inference on inputs in memory, weights packed; a warm-up comes first.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Samples at once; several as a list
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = parse_batch)]
    batch: Vec<usize>,
    /// Height and width of the input, such as 224 or 256x704; several as a list
    #[arg(long, value_name = "HxW,..", value_delimiter = ',')]
    size: Vec<Size>,
    #[command(flatten)]
    source: SourceArgs,
    /// Seed of the input
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Measured runs of each setting
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    repeats: u64,
    /// Runs before measuring
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    warmup: u64,
    /// Run once for each line on stdin and answer with a JSON line: for comparisons in turns with other engines
    #[arg(long)]
    paced: bool,
}

/// One combination of the lists.
struct Setting {
    batch: Option<usize>,
    size: Option<Size>,
    threads: usize,
}

struct Measured {
    wall_ms: Spread,
    cpu_ms: Spread,
    memory_bytes: usize,
}

pub fn run(args: &Args, common: &Common) -> Result<Option<Outcome>> {
    let model = args.model.build()?;
    let settings = settings(args, common);
    // Bad sizes and thread counts are found before anything is measured.
    for setting in &settings {
        args.input(setting).shapes(&model)?;
        common.cpu_with(setting.threads)?;
    }
    let weights = args.model.load(&model, common)?;
    if args.paced && settings.len() > 1 {
        return Err(Fail::usage(
            "--paced measures one setting; give one --batch, --size and --threads",
        ));
    }
    if args.paced {
        return paced(args, common, &model, weights, &settings[0]).map(|()| None);
    }
    let mut table = Table::new(&[
        "<input",
        "threads",
        "median ms",
        "p10",
        "p90",
        "inputs/s",
        "GFLOP/s",
        "memory",
    ]);
    let mut records: Vec<Value> = Vec::new();
    let bar = progress::bar(
        common,
        settings.len() * (args.warmup + args.repeats) as usize,
        "measuring",
    );
    for setting in &settings {
        let cpu = common.cpu_with(setting.threads)?;
        let input = args.input(setting);
        let tensors = args.source.tensors(&model, &input, &cpu)?;
        let shapes: Vec<(&str, Vec<usize>)> = tensors
            .iter()
            .map(|(n, t)| (n.as_str(), t.shape.clone()))
            .collect();
        let macs = model.graph.total_macs(&model.graph.bind(&shapes)?)?;
        let measured = measure(args, common, &model, &weights, &tensors, setting, &bar)?;
        let described: Vec<String> = tensors
            .iter()
            .map(|(name, tensor)| format!("{name} {:?}", tensor.shape))
            .collect();
        let samples = tensors
            .first()
            .map_or(1, |(_, tensor)| tensor.shape.first().copied().unwrap_or(1));
        let seconds = measured.wall_ms.median * 1e-3;
        let (throughput, rate) = (samples as f64 / seconds, 2e-9 * macs as f64 / seconds);
        table.row([
            described.join(", "),
            setting.threads.to_string(),
            milliseconds(measured.wall_ms.median),
            milliseconds(measured.wall_ms.p10),
            milliseconds(measured.wall_ms.p90),
            format!("{throughput:.2}"),
            format!("{rate:.1}"),
            bytes(measured.memory_bytes as u64),
        ]);
        records.push(json!({
            "inputs": tensors.iter().map(|(name, tensor)| json!({"name": name, "shape": tensor.shape})).collect::<Vec<_>>(),
            "threads": setting.threads, "wall_ms": measured.wall_ms, "cpu_ms": measured.cpu_ms,
            "inputs_per_s": throughput, "macs": macs, "gflops_per_s": rate, "memory_bytes": measured.memory_bytes,
        }));
    }
    bar.finish_and_clear();
    let peak = machine::peak_resident_bytes();
    let record = json!({
        "model": args.model.model, "settings": args.model.set, "engine": args.engine.describe(),
        "weights": weights.describe(), "repeats": args.repeats, "rows": records, "peak_resident_bytes": peak,
    });
    let foot = peak.map_or_else(String::new, |peak| {
        format!(", process peak {}", bytes(peak))
    });
    let text = format!(
        "{}, {}, {} runs each{foot}\n\n{}\nmemory: arena, packed weights and working memory. GFLOP/s: 2 MACs / time, effective where Winograd is used.\n",
        args.model.model,
        args.engine.describe(),
        args.repeats,
        table.render()
    );
    Ok(Some(Outcome::new(text, record)))
}

impl Args {
    fn input(&self, setting: &Setting) -> InputArgs {
        InputArgs {
            batch: setting.batch,
            size: setting.size,
            seed: self.seed,
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
    let sizes: Vec<Option<Size>> = if args.size.is_empty() {
        vec![None]
    } else {
        args.size.iter().copied().map(Some).collect()
    };
    let mut settings = Vec::new();
    for threads in or_default(&common.threads) {
        for &size in &sizes {
            for batch in or_default(&args.batch) {
                settings.push(Setting {
                    batch,
                    size,
                    threads: threads.unwrap_or_else(available_threads),
                });
            }
        }
    }
    settings
}

fn measure(
    args: &Args,
    common: &Common,
    model: &Model,
    weights: &Arc<dyn WeightSource>,
    tensors: &Tensors,
    setting: &Setting,
    bar: &indicatif::ProgressBar,
) -> Result<Measured> {
    let cpu = common.cpu_with(setting.threads)?;
    let mut program = Program::new(
        model.graph.clone(),
        Arc::clone(weights),
        cpu,
        args.engine.options(),
    );
    let named: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    for _ in 0..args.warmup {
        program.run(&named)?;
        bar.inc(1);
    }
    let (mut wall_ms, mut cpu_ms) = (Vec::new(), Vec::new());
    for _ in 0..args.repeats {
        let time = timed(&mut program, &named)?;
        wall_ms.push(time.wall_ms);
        cpu_ms.push(time.cpu_ms);
        bar.inc(1);
    }
    let preparation = program.preparation();
    Ok(Measured {
        wall_ms: Spread::of(wall_ms),
        cpu_ms: Spread::of(cpu_ms),
        memory_bytes: preparation.arena_bytes
            + preparation.weight_bytes
            + preparation.scratch_bytes,
    })
}

struct Timed {
    wall_ms: f64,
    cpu_ms: f64,
}

fn timed(program: &mut Program, inputs: &[(&str, &percept_graph::Tensor)]) -> Result<Timed> {
    let cpu_before = machine::process_cpu_seconds();
    let start = Instant::now();
    program.run(inputs)?;
    let wall_ms = start.elapsed().as_secs_f64() * 1e3;
    let cpu_seconds = machine::process_cpu_seconds()
        .zip(cpu_before)
        .map(|(after, before)| after - before);
    Ok(Timed {
        wall_ms,
        cpu_ms: cpu_seconds.map_or(wall_ms, |seconds| seconds * 1e3),
    })
}

/// The worker side of bench/peers: one inference for each line that comes, until the end of stdin.
fn paced(
    args: &Args,
    common: &Common,
    model: &Model,
    weights: Arc<dyn WeightSource>,
    setting: &Setting,
) -> Result<()> {
    let cpu = common.cpu_with(setting.threads)?;
    let input = args.input(setting);
    let tensors = args.source.tensors(model, &input, &cpu)?;
    let mut program = Program::new(model.graph.clone(), weights, cpu, args.engine.options());
    let named: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    for _ in 0..args.warmup {
        program.run(&named)?;
    }
    let mut stdout = std::io::stdout().lock();
    let mut say = |line: Value| {
        writeln!(stdout, "{line}")
            .and_then(|()| stdout.flush())
            .bad_input()
    };
    say(
        json!({"ready": true, "engine": "percept", "version": env!("CARGO_PKG_VERSION"), "threads": setting.threads}),
    )?;
    for line in std::io::stdin().lock().lines() {
        line.bad_input()?;
        let time = timed(&mut program, &named)?;
        say(json!({"wall_ms": time.wall_ms, "cpu_ms": time.cpu_ms}))?;
    }
    say(json!({"peak_memory_bytes": machine::peak_resident_bytes()}))
}
