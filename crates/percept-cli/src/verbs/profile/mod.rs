//! `percept profile`: where the time, the memory and the arithmetic go.

mod step;

use std::path::PathBuf;

use clap::ValueEnum;
use percept_engine::{MemoryAtPeak, Program, Recording};
use percept_graph::{Graph, module_tree, storage_table};
use percept_kernels::machine;
use percept_picture::{Picture, ProfileRow, draw_profile};
use percept_report::{
    Grouping, Order, Profile, Selection, Spread, bytes, chrome_trace, counted, milliseconds,
};
use serde_json::{Value, json};

use crate::caches::Caches;
use crate::fail::Result;
use crate::features::FeatureArgs;
use crate::inputs::InputArgs;
use crate::model::ModelArgs;
use crate::options::{Common, EngineArgs, parse_picture, parse_top};
use crate::outcome::{Outcome, write_picture, write_text};
use crate::progress;
use crate::saving::SavingArgs;

/// Profile a network: time, memory, MACs and rate of each layer
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept profile resnet50                                    every layer, in order
  percept profile resnet50 --by module --depth 2              the module tree
  percept profile dinov2-vitb14 --size 518 --by op --sort time
  percept profile resnet50 --batch 8 --sort memory --top 10 --trace resnet50.json
  percept profile resnet50 --by module --depth 1 --picture p.svg
  percept profile centerpoint --input sweep.pcd.bin --report  structure, stages, layers, memory
  percept profile paco --train --batch 8 --by module          a training step
  percept profile resnet50 --train --recompute layer1,layer2  modules computed again

A fused layer's time stands at the layer that computes it (`in layer1.0.conv1`). GFLOP/s = 2 MACs / time; \
of a Winograd layer it is an effective rate, because it multiplies less.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    input: InputArgs,
    /// What a row is
    #[arg(long, value_enum, default_value = "layer")]
    by: By,
    /// Name components shown by `--by module`
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=32))]
    depth: u64,
    /// Which rows come first [default: in order of execution]
    #[arg(long, value_enum)]
    sort: Option<Sort>,
    /// Show at most this many rows
    #[arg(long, value_name = "N", value_parser = parse_top)]
    top: Option<usize>,
    /// Print a whole report: structure, stages, heaviest layers by time and memory, storage
    #[arg(long, conflicts_with_all = ["by", "sort", "top"])]
    report: bool,
    /// Profile a training step, fed from pictures: forward, backward, update and waiting for data
    #[arg(long, conflicts_with_all = ["report", "weights", "input", "mode", "memory", "empty"])]
    train: bool,
    /// Pictures for --train: a folder a class, or CUB-200-2011 [default: built-in birds, drawn at the network's size]
    #[arg(long, value_name = "DIR", requires = "train")]
    data: Option<PathBuf>,
    /// Recorded runs [default: 10; with --train 5]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    repeats: Option<u64>,
    /// Draw the heaviest rows, their time and their memory, into this .svg or .png file
    #[arg(long, value_name = "FILE", conflicts_with = "train", value_parser = parse_picture)]
    picture: Option<PathBuf>,
    /// Write a trace for chrome://tracing or Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    saving: SavingArgs,
    #[command(flatten)]
    features: FeatureArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum By {
    /// One layer of the network
    Layer,
    /// A module, with those inside it
    Module,
    /// All layers of one op
    Op,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sort {
    Time,
    Memory,
    Macs,
}

const WARM_UP_RUNS: usize = 2;
const REPEATS: u64 = 10;
/// What parts of the work are called in a report of memory.
const FIRST_RUN: &str = "the first run";
const FURTHER_RUNS: &str = "further runs";
/// Values that hold memory at the peak, shown by name.
const HOLDERS_SHOWN: usize = 6;

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    args.saving.require(args.train)?;
    if args.train {
        return step::run(args, common);
    }
    let model = args.input.shape.sized(args.model.build()?)?;
    let cpu = common.cpu()?;
    let inputs = common.watch("reading the input", || {
        args.input.example(&model, &cpu, common)
    })?;
    let inputs = inputs.tensors;
    let weights = args.model.load(&model, common)?;
    let (threads, isa) = (cpu.threads(), cpu.isa());
    let peak_gflops = machine::peak_gflops(&cpu);
    let mut program = Program::new(
        args.engine.form(&model).clone(),
        weights,
        cpu,
        args.engine.options(),
    );
    let named: Vec<_> = inputs
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let mut recording = Recording::default();
    let repeats = args.repeats.unwrap_or(REPEATS) as usize;
    let bar = progress::bar(common, WARM_UP_RUNS + repeats, "profiling");
    for run in 0..WARM_UP_RUNS + repeats {
        let (what, recording) = match run {
            0 => (FIRST_RUN, None),
            run if run < WARM_UP_RUNS => (FURTHER_RUNS, None),
            _ => (FURTHER_RUNS, Some(&mut recording)),
        };
        common.watch(what, || program.run_recorded(&named, recording).map(|_| ()))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let bindings = recording.runs[0].bindings.clone();
    let infos = program.step_infos(&bindings)?;
    if let Some(path) = &args.trace {
        write_text(
            path,
            &chrome_trace(&infos, &recording, &args.model.model).to_string(),
        )?;
    }
    let profile = Profile::new(
        infos,
        &recording,
        program.memory_at_peak(&bindings),
        peak_gflops,
    );
    let selection = args.selection();
    if let Some(path) = &args.picture {
        let title = format!("{}, {}", args.model.model, counted(threads, "thread"));
        write_picture(path, &picture(&profile, selection, &title))?;
    }
    let preparation = program.preparation();
    let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
    let Spread { median, p10, p90 } = profile.wall_ms();
    let shapes: Vec<String> = inputs
        .iter()
        .map(|(name, tensor)| format!("{name} {:?}", tensor.shape()))
        .collect();
    let head = format!(
        "{}, {}; {}, {isa}, measured peak {peak_gflops:.1} GFLOP/s; {}\n\
         a run takes {} ms (p10..p90 {}..{}, {}); getting ready took {} ms for weights, {} ms for packing, {} ms for planning\n",
        args.model.model,
        shapes.join(", "),
        counted(threads, "thread"),
        args.engine.describe(),
        milliseconds(median),
        milliseconds(p10),
        milliseconds(p90),
        counted(repeats, "run"),
        milliseconds(ms(preparation.reading)),
        milliseconds(ms(preparation.packing)),
        milliseconds(ms(preparation.planning)),
    );
    let body = match args.report {
        true => report(program.graph(), &profile, args.depth as usize),
        false => profile.table(selection),
    };
    let caches = Caches::of(program.graph());
    let memory = profile.memory_table(HOLDERS_SHOWN);
    let text = format!("{head}\n{body}\n{memory}{}", caches.text());
    let record = json!({
        "model": args.model.model,
        "settings": args.model.config.set,
        "inputs": inputs.iter().map(|(name, tensor)| json!({"name": name, "shape": tensor.shape()})).collect::<Vec<_>>(),
        "threads": threads, "isa": isa.to_string(), "engine": args.engine.describe(),
        "weights": program.weights_description(),
        "peak_gflops_per_s": peak_gflops,
        "repeats": repeats,
        "wall_ms": profile.wall_ms(),
        "preparation_ms": {
            "weights": ms(preparation.reading), "packing": ms(preparation.packing), "planning": ms(preparation.planning),
        },
        "rows": profile.rows(selection),
        "memory_at_peak": memory_record(profile.memory()),
        "caches": caches.record(),
        "peak_resident_bytes": machine::peak_resident_bytes(),
    });
    Ok(Outcome::new(text + &resident_line(), record))
}

impl Args {
    fn selection(&self) -> Selection {
        Selection {
            grouping: match self.by {
                By::Layer => Grouping::Layer,
                By::Module => Grouping::Module {
                    depth: self.depth as usize,
                },
                By::Op => Grouping::Op,
            },
            order: match self.sort {
                None => Order::Execution,
                Some(Sort::Time) => Order::Time,
                Some(Sort::Memory) => Order::Memory,
                Some(Sort::Macs) => Order::Macs,
            },
            top: self.top,
        }
    }
}

/// The heaviest of the selected rows: their shares of the time, and the memory that comes into being there.
fn picture(profile: &Profile, selection: Selection, title: &str) -> Picture {
    const HEAVIEST: usize = 12;
    let heaviest = Selection {
        order: match selection.order {
            Order::Execution => Order::Time,
            chosen => chosen,
        },
        top: Some(selection.top.unwrap_or(HEAVIEST)),
        ..selection
    };
    let rows = profile.rows(heaviest);
    // The first row is the whole network, the last one what lies between the layers.
    let layers = rows.get(1..rows.len().saturating_sub(1)).unwrap_or(&[]);
    let drawn: Vec<ProfileRow> = layers
        .iter()
        .map(|row| ProfileRow {
            name: row.name.clone(),
            time_share: row.share,
            memory_bytes: row.allocated_bytes as u64,
        })
        .collect();
    draw_profile(title, &drawn)
}

/// What holds memory at the peak, for the record.
fn memory_record(memory: &MemoryAtPeak) -> Value {
    let values = memory.values.iter();
    let values = values.map(|holder| json!({"name": holder.name, "bytes": holder.bytes}));
    json!({
        "step": memory.step,
        "values": values.collect::<Vec<_>>(),
        "live_bytes": memory.live_bytes, "arena_bytes": memory.arena_bytes,
        "weight_bytes": memory.weight_bytes, "state_bytes": memory.state_bytes,
        "scratch_bytes": memory.scratch_bytes, "total_bytes": memory.total_bytes(),
    })
}

/// The process's peak as a line.
fn resident_line() -> String {
    machine::peak_resident_bytes().map_or_else(String::new, |peak| {
        format!("process peak {}\n", bytes(peak))
    })
}

/// Everything that people put into a report by hand.
fn report(graph: &Graph, profile: &Profile, depth: usize) -> String {
    const HEAVIEST: usize = 20;
    let table = |grouping, order, top| {
        profile.table(Selection {
            grouping,
            order,
            top,
        })
    };
    let sections = [
        ("Structure".to_owned(), module_tree(graph)),
        (
            "Stages: the total of everything inside each module".to_owned(),
            table(Grouping::Module { depth }, Order::Execution, None),
        ),
        (
            "Operations: all layers of a kind together".to_owned(),
            table(Grouping::Op, Order::Time, None),
        ),
        (
            format!("The {HEAVIEST} layers that take longest, each for itself"),
            table(Grouping::Layer, Order::Time, Some(HEAVIEST)),
        ),
        (
            format!("The {HEAVIEST} layers that allocate most, each for itself"),
            table(Grouping::Layer, Order::Memory, Some(HEAVIEST)),
        ),
        (
            "Storage: parameters below each name".to_owned(),
            storage_table(graph, depth),
        ),
    ];
    let written =
        sections.map(|(title, body)| format!("{title}\n{}\n\n{body}", "=".repeat(title.len())));
    written.join("\n")
}
