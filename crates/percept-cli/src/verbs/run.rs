//! `percept run`: from images or tensors to predictions or features.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use percept_data::arrays::write_npz;
use percept_data::images::read_image;
use percept_data::safetensors::write_safetensors;
use percept_engine::Program;
use percept_graph::{Graph, Tensor};
use percept_kernels::Cpu;
use percept_models::centerpoint::read_detections;
use percept_models::imagenet::{self, Prediction};
use percept_models::{Model, Task};
use percept_report::Table;
use serde_json::{Value, json};

use crate::detections::Found;
use crate::fail::{Blame, Fail, Result};
use crate::inputs::{InputArgs, Tensors, image_files, read_input_tensors};
use crate::model::ModelArgs;
use crate::options::{Common, EngineArgs};
use crate::outcome::Outcome;
use crate::points::{PointArgs, Sweep, tensors_of};
use crate::progress;
use crate::verbs::verify::find;

/// Run a network on images, raw tensors, or a seeded input
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept run resnet50 --weights resnet50.pth --input cat.jpg dog.png
  percept run resnet50 --input photos/ --batch 8 --json
  percept run dinov2-vitb14 --input cat.jpg --size 518 --save features.safetensors
  percept run resnet50 --input-tensors in.safetensors --tap layer1.0.conv2 --save out.safetensors
  percept run centerpoint --input sweep.pcd.bin --picture bev.png
  percept run centerpoint --sweeps 10 --json

Classifiers print the likeliest classes, detectors their boxes; other networks save their outputs (.safetensors or .npz).
Without --input the network runs on a seeded input, or on a sweep of the synthetic world.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    points: PointArgs,
    /// Image files (.jpg, .png) or folders of them; LiDAR sweeps for networks that take points
    #[arg(long = "input", value_name = "PATH", num_args = 1.., conflicts_with = "input_tensors")]
    files: Vec<PathBuf>,
    /// Raw input tensors: a safetensors file with one tensor for each input
    #[arg(long, value_name = "FILE")]
    input_tensors: Option<PathBuf>,
    /// Write outputs and taps to this .safetensors or .npz file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Also save the value of this scope (such as layer1.0.conv2); may be given several times
    #[arg(long, value_name = "SCOPE")]
    tap: Vec<String>,
    /// Classes or boxes to print [default: 5 classes, 20 boxes]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Detectors: draw points and boxes from above into this .png file (numbered when there are several inputs)
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

/// One run's worth of input: what it is called, its tensors, and the points that they were made from.
struct Item {
    names: Vec<String>,
    tensors: Tensors,
    sweeps: Vec<Sweep>,
}

const TOP_CLASSES: usize = 5;
const TOP_BOXES: usize = 20;

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let format = args.save.as_deref().map(SaveFormat::of).transpose()?;
    if args.save.is_none() && !args.tap.is_empty() {
        return Err(Fail::usage("--tap gives tensors, which need a place")
            .hint("add --save FILE.safetensors"));
    }
    let model = args.model.build()?;
    if args.picture.is_some() && (model.task != Task::Detect || args.input_tensors.is_some()) {
        return Err(
            Fail::usage("--picture draws the sweeps of a LiDAR detector")
                .hint("percept run centerpoint --input sweep.pcd.bin --picture bev.png"),
        );
    }
    if model.task == Task::Features && args.save.is_none() && !args.files.is_empty() {
        return Err(
            Fail::usage(format!("{} gives features, which need a place", model.name))
                .hint("add --save FILE.safetensors"),
        );
    }
    let graph = with_taps(&model.graph, &args.tap)?;
    let sources = Sources::new(args, &model)?;
    let weights = args.model.load(&model, common)?;
    let mut program = Program::new(graph, weights, common.cpu()?, args.engine.options());
    let mut saved: Tensors = Vec::new();
    let mut predictions: Vec<(String, Vec<Prediction>)> = Vec::new();
    let mut detections: Vec<Found> = Vec::new();
    let mut shapes: Vec<Value> = Vec::new();
    let bar = progress::bar(common, sources.len(), "running");
    for index in 0..sources.len() {
        let item = sources.item(index, args, &model, program.cpu())?;
        for sweep in item
            .sweeps
            .iter()
            .filter(|sweep| sweep.cloud.dropped_non_finite > 0)
        {
            let dropped = sweep.cloud.dropped_non_finite;
            common.note(format_args!(
                "{}: left out {dropped} points that are NaN or infinite",
                sweep.name
            ));
        }
        let named: Vec<_> = item
            .tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
            .collect();
        let outputs = program.run(&named)?;
        if model.task == Task::Classify {
            let logits = outputs
                .get("logits")
                .ok_or_else(|| Fail::usage("the network has no `logits`"))?;
            let classes = logits.shape().last().copied().unwrap_or(1).max(1);
            for (name, row) in item.names.iter().zip(logits.to_f32().chunks(classes)) {
                predictions.push((
                    name.clone(),
                    imagenet::top(row, args.top.unwrap_or(TOP_CLASSES)),
                ));
            }
        }
        if let Some(rows) = outputs.get("detections") {
            let found = read_detections(&rows.to_f32(), item.names.len());
            for (sample, boxes) in found.into_iter().enumerate() {
                let found = Found::new(item.names[sample].clone(), boxes);
                if let (Some(path), Some(sweep)) = (&args.picture, item.sweeps.get(sample)) {
                    let several = sources.len() * item.names.len() > 1;
                    let number = several.then_some(detections.len());
                    found.write_picture(&numbered(path, number), &sweep.cloud)?;
                }
                detections.push(found);
            }
        }
        for (name, tensor) in outputs.iter() {
            shapes.push(json!({"input": item.names, "name": name, "shape": tensor.shape()}));
        }
        if args.save.is_some() {
            let prefix = if sources.len() > 1 {
                format!("{}/", item.names.join("+"))
            } else {
                String::new()
            };
            saved.extend(
                outputs
                    .to_tensors()
                    .into_iter()
                    .map(|(name, tensor)| (format!("{prefix}{name}"), tensor)),
            );
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let (Some(path), Some(format)) = (&args.save, format) {
        format.write(path, &saved)?;
    }
    let record = json!({
        "model": args.model.model, "settings": args.model.set, "engine": args.engine.describe(),
        "weights": program.weights_description(), "input": sources.describe(),
        "outputs": shapes,
        "saved": args.save.as_ref().map(|path| path.display().to_string()),
        "detections": detections.iter().map(Found::record).collect::<Vec<_>>(),
        "pictures": args.picture.as_ref().map(|path| path.display().to_string()),
        "predictions": predictions.iter().map(|(name, top)| json!({
            "input": name,
            "top": top.iter().map(|p| json!({"class": p.class, "name": p.name, "probability": p.probability})).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    });
    Ok(Outcome::new(
        describe(args, &predictions, &detections, &saved, &sources),
        record,
    ))
}

/// The graph with every tapped scope as an output, under its own name.
fn with_taps(graph: &Graph, taps: &[String]) -> Result<Graph> {
    let mut tapped = graph.clone();
    for tap in taps {
        let value = find(graph, tap)?;
        if !tapped.outputs().iter().any(|(name, _)| name == tap) {
            tapped = tapped.with_output(tap, value);
        }
    }
    Ok(tapped)
}

/// Where inputs come from.
enum Sources {
    Seeded,
    Tensors(PathBuf),
    /// Image files, cut into batches.
    Images(Vec<Vec<PathBuf>>),
    /// Files of LiDAR sweeps, cut into batches; an empty batch is the synthetic world.
    Sweeps(Vec<Vec<PathBuf>>),
}

impl Sources {
    fn new(args: &Args, model: &Model) -> Result<Self> {
        if let Some(path) = &args.input_tensors {
            return Ok(Sources::Tensors(path.clone()));
        }
        let batches = |files: &[PathBuf]| -> Vec<Vec<PathBuf>> {
            let batch = args.input.batch.unwrap_or(1);
            files.chunks(batch).map(<[PathBuf]>::to_vec).collect()
        };
        if model.takes_points() {
            return Ok(Sources::Sweeps(match args.files.as_slice() {
                [] => vec![Vec::new()],
                files => batches(files),
            }));
        }
        if args.files.is_empty() {
            return Ok(Sources::Seeded);
        }
        if !model.takes_images() {
            return Err(
                Fail::usage(format!("{} takes no images", model.name)).hint("use --input-tensors")
            );
        }
        Ok(Sources::Images(batches(&image_files(&args.files)?)))
    }

    fn len(&self) -> usize {
        match self {
            Sources::Images(batches) | Sources::Sweeps(batches) => batches.len(),
            _ => 1,
        }
    }

    fn describe(&self) -> String {
        match self {
            Sources::Seeded => "seeded".to_owned(),
            Sources::Tensors(path) => path.display().to_string(),
            Sources::Images(batches) => {
                format!("{} images", batches.iter().map(Vec::len).sum::<usize>())
            }
            Sources::Sweeps(batches) => match batches.iter().map(Vec::len).sum::<usize>() {
                0 => "the synthetic world".to_owned(),
                count => format!("{count} sweeps"),
            },
        }
    }

    fn item(&self, index: usize, args: &Args, model: &Model, cpu: &Cpu) -> Result<Item> {
        let (names, tensors) = match self {
            Sources::Sweeps(batches) => {
                let sweeps = args.points.sweeps(&args.input, &batches[index], cpu)?;
                return Ok(Item {
                    names: sweeps.iter().map(|sweep| sweep.name.clone()).collect(),
                    tensors: tensors_of(&sweeps)?,
                    sweeps,
                });
            }
            Sources::Seeded => (
                vec!["seeded input".to_owned()],
                args.input.seeded_tensors(model)?,
            ),
            Sources::Tensors(path) => (
                vec![path.display().to_string()],
                read_input_tensors(path, model)?,
            ),
            Sources::Images(batches) => {
                let names = batches[index]
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                (names, image_batch(&batches[index], args, model)?)
            }
        };
        // The points of all samples stand in one tensor; their counts say how many samples there are.
        let first = tensors
            .iter()
            .find(|(name, _)| name == "counts")
            .or(tensors.first());
        let samples = first
            .and_then(|(_, tensor)| tensor.shape().first().copied())
            .unwrap_or(1);
        // Tensors and seeded inputs are numbered when there are several samples; images have names.
        let numbered = |name: &String| (0..samples).map(move |i| format!("{name} [{i}]")).collect();
        let names = match names.as_slice() {
            [one] if samples > 1 => numbered(one),
            _ => names,
        };
        Ok(Item {
            names,
            tensors,
            sweeps: Vec::new(),
        })
    }
}

/// The path itself, or `bev-3.png` of `bev.png`.
fn numbered(path: &Path, number: Option<usize>) -> PathBuf {
    let Some(number) = number else {
        return path.to_path_buf();
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.png"))
}

/// Decodes and preprocesses images and stacks them.
fn image_batch(files: &[PathBuf], args: &Args, model: &Model) -> Result<Tensors> {
    let (mut shape, mut stacked) = (Vec::new(), Vec::new());
    for path in files {
        let image = read_image(path)?;
        let tensor = model
            .preprocess(
                &image.pixels,
                [image.height, image.width],
                args.input.size.map(|size| size.0),
            )
            .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
            .bad_input()?;
        if shape.is_empty() {
            shape = tensor.shape().to_vec();
            shape[0] = 0;
        }
        if shape[1..] != tensor.shape()[1..] {
            let message = format!(
                "{}: becomes {:?}, the batch is {:?}",
                path.display(),
                &tensor.shape()[1..],
                &shape[1..]
            );
            return Err(Fail::bad_input(message)
                .hint("give --size, or --batch 1 for images of different sizes"));
        }
        shape[0] += 1;
        stacked.extend_from_slice(&tensor.to_f32());
    }
    let stacked = Tensor::from_values(shape, stacked).bug()?;
    Ok(vec![("image".to_owned(), stacked)])
}

#[derive(Clone, Copy)]
enum SaveFormat {
    Safetensors,
    Npz,
}

impl SaveFormat {
    fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("safetensors") => Ok(SaveFormat::Safetensors),
            Some("npz") => Ok(SaveFormat::Npz),
            _ => Err(Fail::usage(format!(
                "--save {}: expected a name that ends in .safetensors or .npz",
                path.display()
            ))),
        }
    }

    fn write(self, path: &Path, tensors: &Tensors) -> Result<()> {
        match self {
            SaveFormat::Safetensors => write_safetensors(path, tensors, &BTreeMap::new())?,
            SaveFormat::Npz => write_npz(path, tensors)?,
        }
        Ok(())
    }
}

fn describe(
    args: &Args,
    predictions: &[(String, Vec<Prediction>)],
    detections: &[Found],
    saved: &Tensors,
    sources: &Sources,
) -> String {
    let mut text = String::new();
    for (name, top) in predictions {
        let mut table = Table::new(&["probability", "<class"]);
        for prediction in top {
            let class = prediction
                .name
                .map_or_else(|| prediction.class.to_string(), str::to_owned);
            table.row([format!("{:.4}", prediction.probability), class]);
        }
        text += &format!("{name}\n{}\n", table.render());
    }
    for found in detections {
        text += &found.table(args.top.unwrap_or(TOP_BOXES));
    }
    if let Some(path) = &args.picture {
        text += &format!("\npicture: {}\n", path.display());
    }
    if let Some(path) = &args.save {
        let mut table = Table::new(&["<tensor", "<shape"]);
        for (name, tensor) in saved {
            table.row([name.clone(), format!("{:?}", tensor.shape())]);
        }
        text += &format!("{}\n{}", path.display(), table.render());
    }
    if text.is_empty() {
        text = format!(
            "ran on {}; add --save FILE.safetensors to keep the outputs\n",
            sources.describe()
        );
    }
    text
}
