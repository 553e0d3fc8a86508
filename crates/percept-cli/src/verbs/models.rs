//! `percept models`: the zoo.

use percept_models::{Model, zoo};
use percept_report::{Table, count};
use serde_json::{Value, json};

use crate::fail::Result;
use crate::model;
use crate::options::Size;
use crate::outcome::Outcome;

/// List the networks, or the settings of one
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept models                every network with parameters and MACs
  percept models dinov2-vitb14  what can be set about one")]
pub struct Args {
    /// Show the settings of this network
    model: Option<String>,
}

pub fn run(args: &Args) -> Result<Outcome> {
    match &args.model {
        Some(name) => settings(name),
        None => list(),
    }
}

fn list() -> Result<Outcome> {
    let mut table = Table::new(&["<name", "parameters", "MACs", "<what"]);
    let mut records: Vec<Value> = Vec::new();
    for entry in zoo::entries() {
        let model = model::build(entry.name, &[])?;
        let shapes = model.input_shapes(1);
        let bindings = model.graph.bind(&shapes)?;
        let macs = model.graph.total_macs(&bindings)?;
        let parameters = model.graph.parameter_count();
        table.row([
            entry.name.to_owned(),
            count(parameters as u64),
            match model.graph.macs_depend_on_data(&bindings)? {
                true => format!("{} + by data", count(macs)),
                false => count(macs),
            },
            entry.description.to_owned(),
        ]);
        records.push(json!({
            "name": entry.name, "description": entry.description, "answer": model.head.kind().to_string(),
            "inputs": shapes.iter().map(|(name, shape)| json!({"name": name, "shape": shape})).collect::<Vec<_>>(),
            "outputs": model.graph.outputs().iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "parts": parts(&model), "parameters": parameters, "macs": macs,
        }));
    }
    let text = table.render_within(WIDTH)
        + "\nMACs: multiply-adds for one input. `percept models NAME` lists inputs and settings.\n";
    Ok(Outcome::new(text, json!({"models": records})))
}

/// Characters of a line.
const WIDTH: usize = 98;

fn settings(name: &str) -> Result<Outcome> {
    let model = model::build(name, &[])?;
    let entry = zoo::find(name)?;
    let mut settings = Table::new(&["<setting", "<default", "<what"]);
    for setting in entry.settings {
        settings.row([
            setting.name.to_owned(),
            setting.default_text(),
            setting.help.to_owned(),
        ]);
    }
    let mut inputs = Table::new(&["<part of a sample", "<kind", "<size", "<what"]);
    for part in model.intake.parts() {
        inputs.row([
            part.name.to_owned(),
            part.kind.to_string(),
            part.size
                .map_or("-".to_owned(), |size| Size(size).to_string()),
            part.what.to_owned(),
        ]);
    }
    let shapes = model.input_shapes(1);
    let shapes: Vec<String> = shapes
        .iter()
        .map(|(name, shape)| format!("{name} {shape:?}"))
        .collect();
    let text = format!(
        "{}: {}; gives {}\ninputs of one sample: {}\n\n{}\n{}",
        entry.name,
        entry.description,
        model.head.kind(),
        shapes.join(", "),
        inputs.render_within(WIDTH),
        settings.render_within(WIDTH)
    );
    let settings = entry.settings.iter().map(|setting| {
        json!({"name": setting.name, "default": setting.default_text(), "help": setting.help})
    });
    let record = json!({
        "name": entry.name, "description": entry.description, "answer": model.head.kind().to_string(),
        "parts": parts(&model), "settings": settings.collect::<Vec<_>>(),
    });
    Ok(Outcome::new(text, record))
}

fn parts(model: &Model) -> Value {
    let parts = model.intake.parts().iter();
    parts
        .map(|part| {
            json!({"name": part.name, "kind": part.kind.to_string(), "size": part.size, "what": part.what})
        })
        .collect()
}
