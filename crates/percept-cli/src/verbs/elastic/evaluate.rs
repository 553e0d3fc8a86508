//! What the parts that a search found are worth on a route that it did not see.

use std::collections::BTreeMap;
use std::sync::Arc;

use percept_data::{POSITION, Samples as _};
use percept_engine::Program;
use percept_graph::{Choice, PriceList, Scored, Tensor, Unit};
use percept_metrics::retrieval::PairedDifference;
use percept_models::Model;
use percept_places::NEAR_M;
use percept_report::Table;
use percept_samples::Places;
use percept_world::{Heading, Pass, WorldConfig, WorldKind};
use serde::Serialize;

use super::judge::Route;
use super::score::Scorer;
use crate::fail::{Fail, Result};
use crate::inputs::batch;
use crate::options::Common;
use crate::progress;

/// Drives of the route: the first is the database, then another lane and the other way round.
const DRIVES: usize = 3;
/// Frames at once.
const BATCH: usize = 8;

/// A part on the route.
#[derive(Debug, Serialize)]
pub struct Evaluated {
    pub choice: String,
    /// Of what the whole network costs.
    pub share: f64,
    /// Recall@1 with its own database, and with that of the whole network.
    pub own: f64,
    pub whole_database: f64,
    /// The same for the queries that go the same way as the database, and the other way.
    pub same_heading: f64,
    pub opposite_heading: f64,
    /// Own database less that of the whole network alone, and the whole network's database less that.
    pub own_less_whole: PairedDifference,
    pub whole_database_less_whole: PairedDifference,
}

/// A program, and what it said so far.
struct Asked {
    program: Program,
    rows: Vec<Vec<f32>>,
}

/// Evaluates parts on a route of `frames` frames a drive through the town of `seed`. The first of `parts` is the whole network.
pub fn evaluate(
    scorer: &mut Scorer<'_>,
    model: &Model,
    prices: &PriceList,
    unit: Unit,
    parts: &[&Scored],
    [seed, frames]: [u64; 2],
    common: &Common,
) -> Result<Vec<Evaluated>> {
    let frames = frames as usize;
    let choices: Vec<Choice> = parts.iter().map(|p| prices.choice(&p.levels)).collect();
    let mut asked = Vec::new();
    for choice in &choices {
        let (graph, weights) = scorer.network(choice)?;
        let program = Program::new(graph, Arc::new(weights), common.cpu()?, scorer.options());
        asked.push(Asked {
            program,
            rows: Vec::new(),
        });
    }
    let config = WorldConfig {
        passes: DRIVES,
        frames_per_pass: frames,
        ..WorldConfig::new(WorldKind::Places, seed)
    };
    let cpu = common.cpu()?;
    let route = Places::new(model, config, cpu.threads())?;
    let mut positions = Vec::new();
    let bar = progress::bar(common, route.len(), "evaluating");
    for start in (0..route.len()).step_by(BATCH) {
        let mut examples = Vec::new();
        for index in start..route.len().min(start + BATCH) {
            let sample = route.sample(index)?;
            let [x, y, ..] = *sample.tensor(POSITION)?.to_f64() else {
                return Err(Fail::bad_input("a frame without a position"));
            };
            positions.push([x, y]);
            examples.push(model.example(&cpu, &sample)?);
            bar.inc(1);
        }
        let tensors: BTreeMap<String, Tensor<'static>> =
            batch(model, examples)?.tensors.into_iter().collect();
        for asked in &mut asked {
            asked.ask(&tensors)?;
        }
    }
    bar.finish_and_clear();
    let Some(whole) = asked.first().map(|whole| whole.rows.clone()) else {
        return Ok(Vec::new());
    };
    let of = |database: Option<&Vec<Vec<f32>>>| Route {
        positions: positions.clone(),
        database: 0..frames,
        near_m: NEAR_M,
        whole: database.cloned(),
    };
    let [alone, with_whole] = [of(None), of(Some(&whole))];
    let reference = alone.right(&whole);
    let is_opposite =
        |query: usize| Pass::new(seed, (frames + query) / frames).heading == Heading::Opposite;
    let cost = |scored: &Scored| unit.of(scored.price) as f64;
    let evaluated = parts.iter().zip(&choices).zip(&asked);
    Ok(evaluated
        .map(|((scored, choice), asked)| {
            let own = alone.right(&asked.rows);
            let mixed = with_whole.right(&asked.rows);
            let heading = |opposite: bool| {
                let chosen = own.iter().enumerate();
                share(
                    chosen
                        .filter(|(q, _)| is_opposite(*q) == opposite)
                        .map(|(_, r)| *r),
                )
            };
            Evaluated {
                choice: choice.to_string(),
                share: cost(scored) / cost(parts[0]).max(1.0),
                own: share(own.iter().copied()),
                whole_database: share(mixed.iter().copied()),
                same_heading: heading(false),
                opposite_heading: heading(true),
                own_less_whole: PairedDifference::of(&own, &reference),
                whole_database_less_whole: PairedDifference::of(&mixed, &reference),
            }
        })
        .collect())
}

/// The share of queries that were answered right, of those that could be.
fn share(right: impl Iterator<Item = Option<bool>>) -> f64 {
    let known: Vec<bool> = right.flatten().collect();
    known.iter().filter(|right| **right).count() as f64 / known.len().max(1) as f64
}

impl Asked {
    fn ask(&mut self, tensors: &BTreeMap<String, Tensor<'static>>) -> Result<()> {
        let inputs = self.program.graph().inputs().iter();
        let names: Vec<String> = inputs.map(|input| input.name.clone()).collect();
        let inputs: Vec<(&str, &Tensor<'_>)> = names
            .iter()
            .filter_map(|name| Some((name.as_str(), tensors.get(name)?)))
            .collect();
        let outputs = self.program.run(&inputs)?;
        if let Some((_, first)) = outputs.iter().next() {
            let samples = first.shape().first().copied().unwrap_or(1).max(1);
            let values = first.to_f32();
            let width = (values.len() / samples).max(1);
            self.rows.extend(values.chunks(width).map(<[f32]>::to_vec));
        }
        Ok(())
    }
}

/// All of them, for people.
pub fn table(evaluated: &[Evaluated]) -> String {
    let mut table = Table::new(&[
        "<configuration",
        "cost",
        "recall@1",
        "less than whole by",
        "same heading",
        "opposite",
        "whole's database",
        "less than whole by",
    ]);
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let interval = |d: &PairedDifference| {
        let [mean, low, high] = [d.mean, d.high, d.low].map(|v| -100.0 * v);
        format!("{mean:.1} ({low:.1} to {high:.1})")
    };
    for part in evaluated {
        table.row([
            part.choice.clone(),
            percent(part.share),
            percent(part.own),
            interval(&part.own_less_whole),
            percent(part.same_heading),
            percent(part.opposite_heading),
            percent(part.whole_database),
            interval(&part.whole_database_less_whole),
        ]);
    }
    table.render()
}
