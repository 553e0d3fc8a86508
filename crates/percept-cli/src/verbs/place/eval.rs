//! `percept place eval`: how often places are found again.

use std::collections::BTreeMap;

use percept_places::{Evaluation, NEAR_M, Place, evaluate};
use percept_report::{Table, counted};
use percept_world::{Heading, Pass};
use serde_json::json;

use super::describe::{DescribeArgs, Drives};
use crate::fail::{Fail, Result};
use crate::options::Common;
use crate::outcome::Outcome;

/// Describe frames whose positions are known and count how often an index finds their places
#[derive(clap::Args)]
pub struct EvalArgs {
    #[command(flatten)]
    describe: DescribeArgs,
    /// Metres within which an answer is right
    #[arg(long, value_name = "METRES", default_value_t = NEAR_M)]
    near: f64,
}

/// Places from which on searches are worth an index as bytes.
const MANY_PLACES: usize = 20_000;

pub fn run(args: &EvalArgs, common: &Common) -> Result<Outcome> {
    let DescribeArgs { source, .. } = &args.describe;
    let (mut index, mut describer) = args.describe.ask(common)?;
    let cpu = common.cpu()?;
    if index.len() >= MANY_PLACES {
        index.compress(&cpu);
    }
    let source = source.open(&describer.model, Drives::Later, cpu.threads())?;
    let mut by_way: BTreeMap<&'static str, Vec<Place>> = BTreeMap::new();
    let mut all: Vec<Place> = Vec::new();
    describer.each(&source, common, |number, place, _| {
        if let Some(frames) = source.frames_per_pass {
            let way = match Pass::new(args.describe.source.seed, number / frames).heading {
                Heading::Same => "same heading, other lane",
                Heading::Opposite => "opposite heading",
            };
            by_way.entry(way).or_default().push(place.clone());
        }
        all.push(place);
        Ok(())
    })?;
    if all.iter().all(|place| place.position.is_none()) {
        return Err(Fail::usage("no query has a known position").hint("--poses tells them"));
    }
    let mut rows: Vec<(&str, Evaluation)> = Vec::new();
    for (way, places) in &by_way {
        rows.push((way, evaluate(&index, &cpu, places, args.near)?));
    }
    rows.push(("all", evaluate(&index, &cpu, &all, args.near)?));
    let mut table = Table::new(&[
        "<queries",
        "count",
        "with place",
        "recall@1",
        "@5",
        "@10",
        "@20",
        "F1",
        "F1 (public)",
    ]);
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.1} %", 100.0 * share),
        None => "-".to_owned(),
    };
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    for (way, figures) in &rows {
        let head = [
            (*way).to_owned(),
            figures.queries.to_string(),
            figures.with_place.to_string(),
        ];
        let recall = figures.recall.iter().map(|recall| percent(recall.share));
        let f1 = [figures.max_f1, figures.max_f1_public].map(number);
        table.row(head.into_iter().chain(recall).chain(f1));
    }
    let text = format!(
        "{}, right within {} m\n\n{}",
        counted(index.len(), "place"),
        args.near,
        table.render()
    );
    let figures: serde_json::Map<String, serde_json::Value> = rows
        .iter()
        .map(|(way, figures)| ((*way).to_owned(), json!(figures)))
        .collect();
    let record = json!({
        "index": index.path().display().to_string(), "places": index.len(), "near_m": args.near,
        "figures": figures,
    });
    Ok(Outcome::new(text, record))
}
