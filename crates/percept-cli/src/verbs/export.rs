//! `percept export`: the network as an ONNX file, or its weights alone with their card.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ArgGroup;
use half::f16;
use percept_data::open_weights;
use percept_data::safetensors::write_safetensors;
use percept_data::seeded::seeded_values;
use percept_graph::{PART_SEPARATOR, Tensor, WeightSource};
use percept_models::{Card, Model, zoo};
use percept_onnx::ExportError;
use percept_report::{bytes, counted};
use serde_json::json;

use crate::fail::{Fail, Result};
use crate::inputs::ShapeArgs;
use crate::model::{ModelArgs, find};
use crate::options::{Common, parse_weights};
use crate::outcome::Outcome;

/// Write a network with its weights as ONNX, or the weights alone as .safetensors
#[derive(clap::Args)]
#[command(group = ArgGroup::new("target").required(true).args(["onnx", "safetensors"]))]
#[command(after_help = "Examples:
  percept export resnet50 --onnx resnet50.onnx
  percept export dinov2-vitb14 --size 518 --batch 2 --weights dinov2.safetensors \\
      --onnx dinov2.onnx
  percept export resnet18 --weights runs/resnet18/best.safetensors \\
      --safetensors resnet18.safetensors --half

An ONNX file is made for one input size. ONNX Runtime and OpenVINO run it as it is. A .safetensors file has what the network reads, \
without what a checkpoint keeps for the next step of training and without modules that stay seeded, and the card that tells its settings and classes.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    input: ShapeArgs,
    /// ONNX file to write
    #[arg(long, value_name = "FILE")]
    onnx: Option<PathBuf>,
    /// File of weights to write
    #[arg(long, value_name = "FILE", value_parser = parse_weights)]
    safetensors: Option<PathBuf>,
    /// Write matrices of weights in half precision; vectors, such as statistics, stay as they are
    #[arg(long, requires = "safetensors")]
    half: bool,
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let model = args.input.sized(args.model.build()?)?;
    match (&args.safetensors, &args.onnx) {
        (Some(path), _) => {
            let weights = args.model.load(&model, common)?;
            write_weights(args, path, &model, &*weights)
        }
        (None, Some(path)) => write_onnx(args, path, &model, common),
        (None, None) => {
            Err(Fail::usage("nothing to write").hint("--onnx FILE or --safetensors FILE"))
        }
    }
}

/// The weights that a network reads, and their card.
fn write_weights(
    args: &Args,
    path: &Path,
    model: &Model,
    weights: &dyn WeightSource,
) -> Result<Outcome> {
    let entry = find(model.name)?;
    let mut tensors = Vec::new();
    for parameter in model.graph.params() {
        let values = weights.read(&parameter.name, &parameter.shape);
        let values = values.map_err(Fail::bad_input)?.into_owned();
        let seeded = || seeded_values(model.family, &parameter.name, &parameter.shape);
        if entry.may_be_seeded(&parameter.name) && values == seeded() {
            continue;
        }
        let is_half = args.half && parameter.shape.len() > 1;
        let tensor = if is_half {
            let halves: Vec<f16> = values.iter().map(|value| f16::from_f32(*value)).collect();
            let lost =
                (0..values.len()).find(|&at| values[at].is_finite() != halves[at].is_finite());
            if let Some(at) = lost {
                let reason = format!(
                    "{}: {} is too large for half precision",
                    parameter.name, values[at]
                );
                return Err(Fail::bad_input(reason).hint("leave --half out"));
            }
            Tensor::from_values(parameter.shape.clone(), halves)
        } else {
            Tensor::from_values(parameter.shape.clone(), values)
        };
        tensors.push((parameter.name.clone(), tensor.map_err(Fail::bad_input)?));
    }
    if let (None, Some(file)) = (&model.whole, args.model.whole_file()) {
        tensors.extend(statistics_of_parts(file)?);
    }
    let card = Card::of(model, model.classes.to_vec());
    write_safetensors(path, &tensors, &BTreeMap::from([card.metadata()]))?;
    let size: usize = tensors.iter().map(|(_, tensor)| tensor.bytes().len()).sum();
    let text = format!(
        "{}: {}, {}\n",
        path.display(),
        counted(tensors.len(), "tensor"),
        bytes(size as u64)
    );
    let record = json!({
        "model": args.model.model, "file": path.display().to_string(), "tensors": tensors.len(), "bytes": size,
    });
    Ok(Outcome::new(text, record))
}

/// What training kept for parts of an elastic network beside the whole one.
fn statistics_of_parts(file: &Path) -> Result<Vec<(String, Tensor<'static>)>> {
    let source = open_weights(file)?;
    let names = source.names().into_iter();
    let names = names.filter(|name| name.contains(PART_SEPARATOR));
    let tensors = names.map(|name| {
        let tensor = source.read(name).map_err(Fail::bad_input)?;
        Ok((name.to_owned(), tensor.into_owned()))
    });
    tensors.collect()
}

fn write_onnx(args: &Args, path: &Path, model: &Model, common: &Common) -> Result<Outcome> {
    let shapes = args.input.shapes(model)?;
    let bindings = model.graph.bind(&shapes)?;
    let weights = args.model.load(model, common)?;
    let exported = percept_data::atomic::write_atomically(path, |file| {
        percept_onnx::export(&model.graph, &bindings, &*weights, file)
    })
    .map_err(|error| blame(path, model, error))?;
    let inputs: Vec<String> = shapes
        .iter()
        .map(|(name, shape)| format!("{name} {shape:?}"))
        .collect();
    let text = format!(
        "{}: {}, {}, {}; input {}\n",
        path.display(),
        counted(exported.nodes, "node"),
        counted(exported.initializers, "initializer"),
        bytes(exported.bytes),
        inputs.join(", ")
    );
    let record = json!({
        "model": args.model.model, "file": path.display().to_string(), "nodes": exported.nodes,
        "initializers": exported.initializers, "bytes": exported.bytes,
        "inputs": shapes.iter().map(|(name, shape)| json!({"name": name, "shape": shape})).collect::<Vec<_>>(),
        "outputs": model.graph.outputs().iter().map(|(name, _)| name).collect::<Vec<_>>(),
    });
    Ok(Outcome::new(text, record))
}

/// An op without an ONNX form is the network's: its parts may do.
fn blame(path: &Path, model: &Model, error: ExportError) -> Fail {
    let message = format!("{}: {error}", path.display());
    if !matches!(error, ExportError::Unsupported { .. }) {
        return Fail::bad_input(message);
    }
    let prefix = format!("{}-", model.name);
    let parts: Vec<&str> = zoo::entries()
        .map(|entry| entry.name)
        .filter(|name| name.starts_with(&prefix))
        .collect();
    match parts.is_empty() {
        true => Fail::usage(message),
        false => Fail::usage(message).hint(format!("of the same network: {}", parts.join(", "))),
    }
}
