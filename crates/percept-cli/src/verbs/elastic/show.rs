//! `percept elastic show`: what parts of a network cost, exactly, without running them.

use percept_graph::{Axis, Choice, Graph, GraphError, Price, PriceList};
use percept_models::zoo::Entry;
use percept_models::{Model, Settings};
use percept_report::{Table, count, counted};
use serde_json::{Value, json};

use crate::fail::{Blame, Fail, Result};
use crate::inputs::ShapeArgs;
use crate::model::{self, ModelArgs};
use crate::outcome::Outcome;

/// Show the elastic axes of a network, and the parameters and MACs of its parts
#[derive(clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    input: ShapeArgs,
}

/// The network with other levels of its axes.
pub fn narrowed(
    entry: &Entry,
    model: &Model,
    choice: &Choice,
) -> std::result::Result<Graph, GraphError> {
    let mut settings = Settings::none();
    for (name, value) in model.settings.iter() {
        let setting = entry.settings.iter().find(|setting| setting.name == name);
        let levels = setting.and_then(|setting| setting.levels_of(choice));
        settings = settings.with(name, levels.unwrap_or(value));
    }
    let built = entry.build(&settings);
    built.map(|model| model.graph).map_err(|error| match error {
        percept_models::ModelError::Graph(error) => error,
        other => GraphError::BadConfig {
            node: entry.name.to_owned(),
            message: other.to_string(),
        },
    })
}

pub fn run(args: &ShowArgs) -> Result<Outcome> {
    let model = args.input.sized(args.model.build()?)?;
    let entry = model::find(model.name)?;
    let chosen: Vec<Axis> = model.graph.axes().to_vec();
    let settable = |axis: &Axis| {
        let mut settings = entry.settings.iter();
        let lowest = Choice::whole().with(&axis.name, 1);
        settings.any(|setting| {
            setting
                .levels_of(&lowest)
                .is_some_and(|levels| levels != setting.default_text())
        })
    };
    if chosen.is_empty() || !chosen.iter().all(settable) {
        return Err(Fail::usage(format!("{} has no elastic axes", model.name)));
    }
    let shapes = args.input.shapes(&model)?;
    let prices = PriceList::new(|choice| narrowed(entry, &model, choice), &shapes).bad_input()?;
    let whole_levels: Vec<usize> = prices.axes().iter().map(|axis| axis.levels).collect();
    let whole = prices.price(&whole_levels);
    let configurations: f64 = whole_levels.iter().map(|levels| *levels as f64).product();

    let mut table = Table::new(&["<part", "parameters", "share", "MACs", "share"]);
    let mut rows: Vec<Value> = Vec::new();
    let mut row = |part: String, price: Price| {
        let share = |part: u64, whole: u64| format!("{:.2} %", 100.0 * part as f64 / whole as f64);
        table.row([
            part.clone(),
            count(price.params),
            share(price.params, whole.params),
            count(price.macs),
            share(price.macs, whole.macs),
        ]);
        rows.push(json!({"part": part, "params": price.params, "macs": price.macs}));
    };
    row("whole".to_owned(), whole);
    let own: Vec<usize> = chosen.iter().map(|axis| axis.level).collect();
    if own != whole_levels {
        row("chosen".to_owned(), prices.price(&own));
    }
    for (place, axis) in prices.axes().iter().enumerate() {
        let mut levels = whole_levels.clone();
        levels[place] = 1;
        row(
            format!("{} at 1 of {}", axis.name, axis.levels),
            prices.price(&levels),
        );
    }
    row(
        "every axis at 1".to_owned(),
        prices.price(&vec![1; whole_levels.len()]),
    );
    let text = format!(
        "{}: {}, {configurations} configurations, priced exactly\n\n{}",
        model.name,
        counted(whole_levels.len(), "elastic axis"),
        table.render()
    );
    let axes: Vec<Value> = chosen
        .iter()
        .map(|axis| json!({"name": axis.name, "levels": axis.levels, "level": axis.level}))
        .collect();
    let record = json!({
        "model": model.name, "axes": axes, "configurations": configurations, "parts": rows,
    });
    Ok(Outcome::new(text, record))
}
