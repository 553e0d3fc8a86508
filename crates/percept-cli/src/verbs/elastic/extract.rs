//! `percept elastic extract`: a part as a network of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use percept_data::safetensors::write_safetensors;
use percept_engine::{Recalibration, Statistics};
use percept_graph::{Graph, NodeId, Slicing, Tensor, WeightSource};
use percept_models::{Card, Model};
use percept_report::{count, counted};
use serde_json::json;

use super::spread_batches;
use crate::fail::{Blame, Fail, Result};
use crate::inputs::{InputArgs, batch};
use crate::model::ModelArgs;
use crate::options::{Common, EngineArgs, parse_weights};
use crate::outcome::Outcome;
use crate::progress;

/// Write a part of an elastic network as weights of its own, which give the same bits
#[derive(clap::Args)]
pub struct ExtractArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// File to write
    #[arg(long, value_name = "FILE.safetensors", value_parser = parse_weights)]
    to: PathBuf,
    /// Measure the batch norms behind the first narrowed layer (of the whole network: all) anew on this many samples of --input, in batches of --batch
    /// [default batch: 8]
    #[arg(long, value_name = "SAMPLES")]
    recalibrate: Option<usize>,
}

pub fn run(args: &ExtractArgs, common: &Common) -> Result<Outcome> {
    let model = args.input.shape.sized(args.model.build()?)?;
    if model.whole.is_none() && args.recalibrate.is_none() {
        return Err(
            Fail::usage("nothing is narrowed: the part would be the whole network")
                .hint("choose one with --granularity, or with --set"),
        );
    }
    let whole = model.whole.as_ref().unwrap_or(&model.graph);
    let slicing = Slicing::between(whole, &model.graph).bug()?;
    let weights = args.model.load(&model, common)?;
    let statistics = match args.recalibrate {
        Some(samples) => measure(args, &model, &slicing, &weights, samples, common)?,
        None => Vec::new(),
    };
    let fresh: BTreeMap<&str, &Vec<f32>> = statistics
        .iter()
        .map(|(name, values)| (name.as_str(), values))
        .collect();
    let tensors = model.graph.params().iter().map(|param| {
        let values = match fresh.get(param.name.as_str()) {
            Some(values) => (*values).clone(),
            None => weights
                .read(&param.name, &param.shape)
                .bad_input()?
                .into_owned(),
        };
        let tensor = Tensor::from_values(param.shape.clone(), values).bug()?;
        Ok((param.name.clone(), tensor))
    });
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    let card = Card::of(&model, model.classes.to_vec());
    write_safetensors(&args.to, &tensors, &BTreeMap::from([card.metadata()]))?;
    let (kept, of) = (model.graph.parameter_count(), whole.parameter_count());
    let text = format!(
        "{}: {} of {} parameters, {:.2} %; {} measured anew\n",
        args.to.display(),
        count(kept as u64),
        count(of as u64),
        100.0 * kept as f64 / of as f64,
        counted(statistics.len() / 2, "batch norm")
    );
    let record = json!({
        "model": model.name, "file": args.to.display().to_string(), "params": kept, "of": of,
        "settings": card.settings, "recalibrated": statistics.len() / 2,
    });
    Ok(Outcome::new(text, record))
}

/// The first node that has a part of its parameters only.
pub fn first_narrowed(graph: &Graph, slicing: &Slicing) -> Option<NodeId> {
    let narrowed = graph.nodes().iter().find(|node| {
        let mut names = node.params.iter().map(|&id| &graph.param(id).name);
        names.any(|name| slicing.part(name).is_some())
    });
    narrowed.map(|node| node.id)
}

fn measure(
    args: &ExtractArgs,
    model: &Model,
    slicing: &Slicing,
    weights: &Arc<dyn WeightSource>,
    samples: usize,
    common: &Common,
) -> Result<Statistics> {
    let first = first_narrowed(&model.graph, slicing);
    // Of the whole network, all batch norms.
    let Some(first) = first.or(model.graph.nodes().first().map(|node| node.id)) else {
        return Ok(Vec::new());
    };
    let each = args.input.shape.batch.unwrap_or(8);
    if each < 2 || samples < 2 {
        return Err(Fail::usage(
            "statistics need batches of two samples at least",
        ));
    }
    let mut input = args.input.clone();
    // As many as are asked for, where percept makes them itself.
    input.shape.batch = Some(samples);
    let cpu = common.cpu()?;
    let source = input.open(model, &cpu)?;
    let samples = samples.min(source.len());
    let options = args.engine.options();
    let mut calibration = Recalibration::new(
        &model.graph,
        first,
        Arc::clone(weights),
        common.cpu()?,
        options,
    )?;
    let bar = progress::bar(common, samples, "measuring");
    for indices in spread_batches(samples, each) {
        if indices.len() < 2 {
            return Err(Fail::bad_input("no batch of two samples to measure on"));
        }
        let examples = indices
            .into_iter()
            .map(|index| Ok(model.example(&cpu, &source.sample(index)?)?));
        let examples = batch(model, examples.collect::<Result<Vec<_>>>()?)?;
        calibration.add(&examples.taken_by(&model.graph))?;
        bar.inc(examples.samples as u64);
    }
    bar.finish_and_clear();
    Ok(calibration.statistics())
}
