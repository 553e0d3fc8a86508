//! `percept export`: the network as an ONNX file.

use std::path::PathBuf;

use percept_models::{Model, zoo};
use percept_onnx::ExportError;
use percept_report::bytes;
use serde_json::json;

use crate::fail::{Fail, Result};
use crate::inputs::ShapeArgs;
use crate::model::ModelArgs;
use crate::options::Common;
use crate::outcome::Outcome;

/// Write a network with its weights as ONNX
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept export resnet50 --onnx resnet50.onnx
  percept export dinov2-vitb14 --size 518 --batch 2 --weights dinov2.safetensors --onnx dinov2.onnx

The file is made for one input size. ONNX Runtime and OpenVINO run it as it is.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    input: ShapeArgs,
    /// File to write
    #[arg(long, value_name = "FILE")]
    onnx: PathBuf,
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let model = args.input.sized(args.model.build()?)?;
    let shapes = args.input.shapes(&model)?;
    let bindings = model.graph.bind(&shapes)?;
    let weights = args.model.load(&model, common)?;
    let exported = percept_data::atomic::write_atomically(&args.onnx, |file| {
        percept_onnx::export(&model.graph, &bindings, &*weights, file)
    })
    .map_err(|error| blame(args, &model, error))?;
    let inputs: Vec<String> = shapes
        .iter()
        .map(|(name, shape)| format!("{name} {shape:?}"))
        .collect();
    let text = format!(
        "{}: {} nodes, {} initializers, {}; input {}\n",
        args.onnx.display(),
        exported.nodes,
        exported.initializers,
        bytes(exported.bytes),
        inputs.join(", ")
    );
    let record = json!({
        "model": args.model.model, "file": args.onnx.display().to_string(), "nodes": exported.nodes,
        "initializers": exported.initializers, "bytes": exported.bytes,
        "inputs": shapes.iter().map(|(name, shape)| json!({"name": name, "shape": shape})).collect::<Vec<_>>(),
        "outputs": model.graph.outputs().iter().map(|(name, _)| name).collect::<Vec<_>>(),
    });
    Ok(Outcome::new(text, record))
}

/// An op without an ONNX form is the network's: its parts may do.
fn blame(args: &Args, model: &Model, error: ExportError) -> Fail {
    let message = format!("{}: {error}", args.onnx.display());
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
