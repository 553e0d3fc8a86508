//! `percept inspect`: what a network or a weight file is made of.

use std::path::Path;

use clap::ValueEnum;
use percept_data::{TensorSource as _, open_weights};
use percept_engine::{Memory, estimate_memory};
use percept_graph::{Bindings, Graph, module_tree, storage_rows, storage_table};
use percept_models::Card;
use percept_report::{Table, bytes, count, counted};
use percept_samples::Given;
use serde_json::{Value, json};

use crate::fail::{Blame, Result};
use crate::inputs::ShapeArgs;
use crate::model;
use crate::outcome::Outcome;
use crate::quantization;

/// Show a network's modules, parameters, MACs and memory; or the tensors of a weight file
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept inspect resnet50
  percept inspect resnet50 --show storage --depth 2
  percept inspect dinov2-vitb14 --set registers=4 --size 518 --show cost,memory
  percept inspect checkpoint.pth")]
pub struct Args {
    /// Network, or a .safetensors, .pth or .pt file
    #[arg(value_name = "MODEL|FILE")]
    what: String,
    /// Configure the network; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Show the network as the card of these weights describes it
    #[arg(long, value_name = "FILE")]
    weights: Vec<Given>,
    #[command(flatten)]
    input: ShapeArgs,
    /// Sections to show
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["tree", "storage", "cost", "memory"])]
    show: Vec<Section>,
    /// Name components in the storage table
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=32))]
    depth: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    /// The module tree, as PyTorch prints it
    Tree,
    /// Parameters by module
    Storage,
    /// MACs and other arithmetic by op
    Cost,
    /// Memory of a run
    Memory,
}

pub fn run(args: &Args) -> Result<Outcome> {
    let path = Path::new(&args.what);
    let looks_like_file = path.extension().is_some_and(|e| {
        ["safetensors", "pth", "pt", "tar", "bin", "ckpt"]
            .iter()
            .any(|known| e == *known)
    });
    if looks_like_file || path.is_file() {
        return inspect_file(path);
    }
    let model = model::build_for(&args.what, &args.set, &args.weights)?;
    let model = args.input.sized(model)?;
    let shapes = args.input.shapes(&model)?;
    let bindings = model.graph.bind(&shapes)?;
    let graph = &model.graph;
    let depth = args.depth as usize;
    let mut sections = Vec::new();
    if quantization::is_quantized(graph) {
        sections.push(quantization::table(graph));
    }
    for section in &args.show {
        sections.push(match section {
            Section::Tree => module_tree(graph),
            Section::Storage => storage_table(graph, depth),
            Section::Cost => cost_table(graph, &bindings)?,
            Section::Memory => memory_table(graph, &bindings)?,
        });
    }
    let inputs: Vec<String> = shapes
        .iter()
        .map(|(name, shape)| format!("{name} {shape:?}"))
        .collect();
    let macs = graph.total_macs(&bindings)?;
    let head = format!(
        "{}: {} parameters; {} MACs{} for {}\n",
        args.what,
        thousands(graph.parameter_count() as u64),
        thousands(macs),
        match graph.macs_depend_on_data(&bindings)? {
            true => " and those of the sparse layers, by data,",
            false => "",
        },
        inputs.join(", ")
    );
    let record = json!({
        "model": args.what,
        "settings": args.set,
        "parameters": graph.parameter_count(),
        "macs": macs,
        "inputs": shapes.iter().map(|(name, shape)| json!({"name": name, "shape": shape})).collect::<Vec<_>>(),
        "outputs": graph.outputs().iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "storage": storage_rows(graph, depth).iter().map(|row| json!({
            "name": row.name, "depth": row.depth, "elements": row.elements, "shape": row.shape,
        })).collect::<Vec<_>>(),
        "cost_by_op": graph.costs_by_kind(&bindings)?.iter().map(|(kind, total)| json!({
            "op": kind, "nodes": total.nodes, "macs": total.macs, "other_ops": total.other_ops,
            "nodes_with_cost_by_data": total.unknown,
        })).collect::<Vec<_>>(),
        "memory": memory_record(graph, &bindings)?,
        "quantized_layers": quantization::plan_record(graph),
        "tree": module_tree(graph),
    });
    Ok(Outcome::new(
        format!("{head}\n{}", sections.join("\n")),
        record,
    ))
}

fn cost_table(graph: &Graph, bindings: &Bindings) -> Result<String> {
    let mut table = Table::new(&["<op", "nodes", "MACs", "other operations"]);
    let (mut macs, mut other) = (0, 0);
    for (kind, total) in graph.costs_by_kind(bindings)? {
        macs += total.macs;
        other += total.other_ops;
        let note = |value: u64| {
            if total.unknown > 0 {
                format!("{} + by data", thousands(value))
            } else {
                thousands(value)
            }
        };
        table.row([
            kind.to_owned(),
            total.nodes.to_string(),
            note(total.macs),
            note(total.other_ops),
        ]);
    }
    table.row([
        "all".to_owned(),
        graph.nodes().len().to_string(),
        thousands(macs),
        thousands(other),
    ]);
    Ok(table.render())
}

fn memory_table(graph: &Graph, bindings: &Bindings) -> Result<String> {
    let frugal = estimate_memory(graph, bindings, Memory::Frugal)?;
    let keep = estimate_memory(graph, bindings, Memory::Keep)?;
    let mut table = Table::new(&["<memory of a run, estimated", "bytes"]);
    table.row([
        match quantization::is_quantized(graph) {
            true => "parameters and buffers, f32 and integers".to_owned(),
            false => "parameters and buffers, f32".to_owned(),
        },
        bytes(frugal.parameter_bytes),
    ]);
    table.row(["inputs".to_owned(), bytes(frugal.input_bytes)]);
    table.row([
        "intermediate values, freed and reused (frugal)".to_owned(),
        bytes(frugal.arena_bytes),
    ]);
    table.row([
        "intermediate values, all kept (keep)".to_owned(),
        bytes(keep.arena_bytes),
    ]);
    Ok(table.render())
}

fn memory_record(graph: &Graph, bindings: &Bindings) -> Result<Value> {
    let frugal = estimate_memory(graph, bindings, Memory::Frugal)?;
    let keep = estimate_memory(graph, bindings, Memory::Keep)?;
    Ok(json!({
        "parameter_bytes": frugal.parameter_bytes, "input_bytes": frugal.input_bytes,
        "arena_bytes_frugal": frugal.arena_bytes, "arena_bytes_keep": keep.arena_bytes,
    }))
}

fn inspect_file(path: &Path) -> Result<Outcome> {
    let source = open_weights(path)?;
    let mut table = Table::new(&["<tensor", "<type", "<shape", "elements"]);
    let mut records = Vec::new();
    let mut total = 0u64;
    for name in source.names() {
        let shape = source.shape(name).unwrap_or_default();
        let elements: u64 = shape.iter().map(|&side| side as u64).product();
        let dtype = source
            .dtype(name)
            .map_or_else(|| "unknown".to_owned(), |dtype| dtype.to_string());
        total += elements;
        table.row([
            name.to_owned(),
            dtype.clone(),
            format!("{shape:?}"),
            thousands(elements),
        ]);
        records.push(json!({"name": name, "dtype": dtype, "shape": shape}));
    }
    let size = std::fs::metadata(path)
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
        .bad_input()?
        .len();
    let card = Card::of_weights(&*source)?;
    let head = format!(
        "{}: {}, {} elements, {}\n{}\n",
        source.describe(),
        counted(records.len(), "tensor"),
        count(total),
        bytes(size),
        card.as_ref().map_or_else(String::new, card_text),
    );
    let record = json!({
        "file": path.display().to_string(), "tensors": records, "elements": total, "bytes": size, "card": card,
    });
    Ok(Outcome::new(head + &table.render(), record))
}

/// What a file's card says, in a few lines.
fn card_text(card: &Card) -> String {
    let settings = card.settings.iter();
    let settings: Vec<String> = settings.map(|(k, v)| format!("{k}={v}")).collect();
    let mut text = format!("weights of {} ({})", card.network, settings.join(", "));
    for (part, [height, width]) in &card.sizes {
        text += &format!(", {part} {height}x{width}");
    }
    text.push('\n');
    if !card.classes.is_empty() {
        text += &format!(
            "{} classes: {}\n",
            card.classes.len(),
            card.classes.join(", ")
        );
    }
    text
}

/// 25557032 as 25,557,032.
fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::thousands;

    #[test]
    fn digits_are_grouped() {
        assert_eq!(
            ["7", "999", "1,000", "25,557,032"],
            [7, 999, 1000, 25_557_032]
                .map(thousands)
                .each_ref()
                .map(String::as_str)
        );
    }
}
