//! `percept elastic search`: the part of a network that is worth its price.

use std::sync::Arc;

use percept_engine::{Options, Program, Recalibration, Statistics};
use percept_graph::{
    Choice, Graph, NodeId, PartWeights, PriceList, Scored, Slicing, Tensor, Unit, WeightSource,
};
use percept_models::Model;
use percept_models::zoo::Entry;
use percept_report::{Table, count};
use serde_json::{Value, json};

use super::extract::first_narrowed;
use super::show::narrowed;
use crate::fail::{Blame, Fail, Result};
use crate::inputs::{InputArgs, batch};
use crate::model::{self, ModelArgs};
use crate::options::{Common, EngineArgs};
use crate::outcome::Outcome;
use crate::progress;

/// Search the part of a network that keeps most of its answers within a budget
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept elastic search lcpr-small --budget macs=70% --samples 16
  percept elastic search lcpr --budget params=95% --fix stage1.inner,stage2.inner

Greedy: from the whole network on, each axis is tried a level lower, and what loses the least for what it saves is kept. The score
of a part is the mean cosine of its first output with the whole network's, over the samples, the batch norms of both measured on
them first: no labels are needed. Take samples of many places. Axes that change the size of that output are left alone.")]
pub struct SearchArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// What the part may cost: params=90%, macs=70%, or a number of either
    #[arg(long, value_name = "UNIT=COST")]
    budget: Budget,
    /// Samples to score on
    #[arg(long, value_name = "N", default_value_t = 16)]
    samples: usize,
    /// Axes that stay whole
    #[arg(long, value_name = "AXIS", value_delimiter = ',')]
    fix: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Budget {
    unit: Unit,
    cost: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cost {
    Share(f64),
    Number(u64),
}

impl std::str::FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || format!("`{text}` is no budget: expected params=90%, macs=70% or a number");
        let (unit, cost) = text.split_once('=').ok_or_else(wrong)?;
        let unit = match unit {
            "params" => Unit::Params,
            "macs" => Unit::Macs,
            _ => return Err(wrong()),
        };
        let cost = match cost.strip_suffix('%') {
            Some(share) => {
                let share = share
                    .parse::<f64>()
                    .ok()
                    .filter(|share| (0.0..=100.0).contains(share));
                Cost::Share(share.ok_or_else(wrong)? / 100.0)
            }
            None => Cost::Number(cost.parse().map_err(|_| wrong())?),
        };
        Ok(Self { unit, cost })
    }
}

/// What parts are compared on.
struct Scorer<'a> {
    entry: &'a Entry,
    model: &'a Model,
    weights: Arc<dyn WeightSource>,
    batches: Vec<Vec<(String, Tensor<'static>)>>,
    expected: Vec<Vec<f32>>,
    common: &'a Common,
    options: Options,
}

impl Scorer<'_> {
    fn outputs(&self, graph: &Graph, weights: Arc<dyn WeightSource>) -> Result<Vec<Vec<f32>>> {
        let cpu = self.common.cpu()?;
        let mut program = Program::new(graph.clone(), weights, cpu, self.options);
        let mut rows = Vec::new();
        for inputs in &self.batches {
            let inputs: Vec<(&str, &Tensor<'_>)> = inputs
                .iter()
                .map(|(name, tensor)| (name.as_str(), tensor))
                .collect();
            let outputs = program.run(&inputs)?;
            let Some((_, first)) = outputs.iter().next() else {
                return Err(Fail::usage("a network without an output"));
            };
            let samples = first.shape().first().copied().unwrap_or(1).max(1);
            let values = first.to_f32();
            let width = (values.len() / samples).max(1);
            rows.extend(values.chunks(width).map(<[f32]>::to_vec));
        }
        Ok(rows)
    }

    /// The statistics of batch norms from a node on.
    fn measured(
        &self,
        graph: &Graph,
        first: NodeId,
        weights: Arc<dyn WeightSource>,
    ) -> Result<Statistics> {
        let cpu = self.common.cpu()?;
        let mut measured = Recalibration::new(graph, first, weights, cpu, self.options)?;
        for inputs in &self.batches {
            let inputs: Vec<(&str, &Tensor<'_>)> = inputs
                .iter()
                .map(|(name, tensor)| (name.as_str(), tensor))
                .collect();
            measured.add(&inputs)?;
        }
        Ok(measured.statistics())
    }

    /// The mean cosine with what the whole network says.
    fn score(&self, choice: &Choice) -> Result<f64> {
        let graph = narrowed(self.entry, self.model, choice)?;
        let slicing = Slicing::between(&self.model.graph, &graph).bug()?;
        let part = || PartWeights::new(Arc::clone(&self.weights), slicing.clone());
        let weights = match first_narrowed(&graph, &slicing) {
            None => part(),
            Some(first) => {
                let statistics = self.measured(&graph, first, Arc::new(part()))?;
                part().replacing(statistics)
            }
        };
        let rows = self.outputs(&graph, Arc::new(weights))?;
        let pairs = rows.iter().zip(&self.expected);
        let sum: f64 = pairs.map(|(a, b)| cosine(a, b)).sum();
        Ok(sum / rows.len().max(1) as f64)
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(f64::MIN_POSITIVE)
}

pub fn run(args: &SearchArgs, common: &Common) -> Result<Outcome> {
    let model = args.input.shape.sized(args.model.build()?)?;
    if model.whole.is_some() {
        return Err(Fail::usage("the search begins with the whole network")
            .hint("leave --granularity and the other levels out"));
    }
    if args.samples < 2 {
        return Err(Fail::usage(
            "--samples: batch norms need two samples at least",
        ));
    }
    let entry = model::find(model.name)?;
    let shapes = args.input.shape.shapes(&model)?;
    let prices = PriceList::new(|choice| narrowed(entry, &model, choice), &shapes).bad_input()?;
    let weights = args.model.load(&model, common)?;
    let mut scorer = Scorer {
        entry,
        model: &model,
        weights: Arc::clone(&weights),
        batches: batches(args, &model, common)?,
        expected: Vec::new(),
        common,
        options: args.engine.options(),
    };
    // Parts are measured on the samples, so the whole network that they are compared with is too.
    if let Some(first) = model.graph.nodes().first() {
        let statistics = scorer.measured(&model.graph, first.id, Arc::clone(&weights))?;
        let whole = PartWeights::new(weights, Slicing::default());
        scorer.weights = Arc::new(whole.replacing(statistics));
    }
    scorer.expected = scorer.outputs(&model.graph, Arc::clone(&scorer.weights))?;
    let whole: Vec<usize> = prices.axes().iter().map(|axis| axis.levels).collect();
    let unit = args.budget.unit;
    let most = unit.of(prices.price(&whole));
    let budget = match args.budget.cost {
        Cost::Share(share) => (most as f64 * share) as u64,
        Cost::Number(number) => number,
    };
    let width = |graph: &Graph| {
        let (_, value) = graph.outputs().first()?;
        graph.value(*value).ty.shape.last().cloned()
    };
    let keeps_width = |axis: &str| {
        let lowest = narrowed(entry, &model, &Choice::whole().with(axis, 1));
        lowest.is_ok_and(|graph| width(&graph) == width(&model.graph))
    };
    let may: Vec<String> = prices
        .axes()
        .iter()
        .map(|axis| axis.name.clone())
        .filter(|axis| !args.fix.contains(axis) && keeps_width(axis))
        .collect();
    if let Some(unknown) = args
        .fix
        .iter()
        .find(|fixed| !prices.axes().iter().any(|a| a.name == **fixed))
    {
        return Err(Fail::usage(format!("--fix {unknown}: no such axis")));
    }
    // The most that a greedy search asks for.
    let steps: usize = may.len() * may.len() * 3;
    let bar = progress::bar(common, steps, "scoring");
    let found = prices.greedy(
        unit,
        budget,
        |axis| may.iter().any(|known| known == axis),
        |choice| {
            bar.inc(1);
            scorer.score(choice)
        },
    );
    bar.finish_and_clear();
    let found = found?;
    let mut table = Table::new(&["<configuration", "agreement", "parameters", "MACs", "share"]);
    let mut row = |scored: &Scored| {
        let share = 100.0 * unit.of(scored.price) as f64 / most as f64;
        table.row([
            prices.choice(&scored.levels).to_string(),
            format!("{:.5}", scored.score),
            count(scored.price.params),
            count(scored.price.macs),
            format!("{share:.2} %"),
        ]);
    };
    found.path.iter().for_each(|at| row(&found.scored[*at]));
    let last = found.path.last().map(|at| &found.scored[*at]);
    let settings: Vec<String> = last
        .map(|last| {
            let choice = prices.choice(&last.levels);
            let elastic = entry.settings.iter();
            let levels = elastic.filter_map(|s| Some((s, s.levels_of(&choice)?)));
            let changed = levels.filter(|(s, levels)| *levels != s.default_text());
            changed
                .map(|(s, levels)| format!("--set {}={levels}", s.name))
                .collect()
        })
        .unwrap_or_default();
    let text = format!(
        "{}\n{} configurations scored on {} samples; the last row: {}\n",
        table.render(),
        found.scored.len(),
        scorer.expected.len(),
        settings.join(" ")
    );
    let as_json = |scored: &Scored| -> Value {
        json!({
            "choice": prices.choice(&scored.levels).to_string(), "score": scored.score,
            "params": scored.price.params, "macs": scored.price.macs,
        })
    };
    let front: Vec<Value> = found.front(unit).into_iter().map(as_json).collect();
    let path: Vec<Value> = found
        .path
        .iter()
        .map(|at| as_json(&found.scored[*at]))
        .collect();
    let record = json!({
        "model": model.name, "budget": budget, "met": found.met, "path": path, "front": front,
        "scored": found.scored.len(), "settings": settings,
    });
    if !found.met {
        common.note("no configuration of these axes is within the budget");
    }
    Ok(Outcome {
        passed: found.met,
        ..Outcome::new(text, record)
    })
}

/// The samples, in batches of two at least.
fn batches(
    args: &SearchArgs,
    model: &Model,
    common: &Common,
) -> Result<Vec<Vec<(String, Tensor<'static>)>>> {
    let each = args.input.shape.batch.unwrap_or(8).max(2);
    let mut input = args.input.clone();
    input.shape.batch = Some(args.samples);
    let cpu = common.cpu()?;
    let source = input.open(model, &cpu)?;
    let samples = args.samples.min(source.len());
    let mut batches = Vec::new();
    for start in (0..samples).step_by(each) {
        let indices = start..samples.min(start + each);
        if indices.len() < 2 {
            break;
        }
        let examples = indices.map(|index| Ok(model.example(&cpu, &source.sample(index)?)?));
        let mut examples = batch(model, examples.collect::<Result<Vec<_>>>()?)?;
        let taken = model.graph.inputs();
        let is_taken = |name: &str| taken.iter().any(|input| input.name == name);
        examples.tensors.retain(|(name, _)| is_taken(name));
        batches.push(examples.tensors);
    }
    match batches.is_empty() {
        true => Err(Fail::bad_input("no two samples to score on")),
        false => Ok(batches),
    }
}
