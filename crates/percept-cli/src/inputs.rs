//! What goes into a network: seeded tensors, raw tensors from a file, or images.

use std::path::{Path, PathBuf};

use clap::Args;
use percept_data::TensorSource as _;
use percept_data::safetensors::Safetensors;
use percept_data::seeded::{Family, seeded_values};
use percept_engine::{Memory, require_memory};
use percept_graph::{DType, Tensor};
use percept_models::Model;

use crate::fail::{Blame, Fail, Result};
use crate::options::{Size, parse_batch};

/// The shape and the seed of inputs that percept makes itself.
#[derive(Args, Clone, Debug)]
pub struct InputArgs {
    /// Samples at once
    #[arg(long, value_name = "N", value_parser = parse_batch)]
    pub batch: Option<usize>,
    /// Height and width of the input, such as 224 or 256x704
    #[arg(long, value_name = "HxW")]
    pub size: Option<Size>,
    /// Seed of the input that percept makes; 0 is the public reference stream
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

/// The tensors of one run, by input name.
pub type Tensors = Vec<(String, Tensor<'static>)>;

impl InputArgs {
    /// The shapes of all inputs.
    pub fn shapes(&self, model: &Model) -> Result<Vec<(&'static str, Vec<usize>)>> {
        let shapes = model.input_shapes(self.batch, self.size.map(|size| size.0))?;
        model.graph.bind(&shapes)?;
        Ok(shapes)
    }

    /// Seeded values for all inputs. (Points come from the synthetic world instead: see [`crate::points`].)
    pub fn seeded_tensors(&self, model: &Model) -> Result<Tensors> {
        let shapes = self.shapes(model)?;
        // Before the input itself takes the memory.
        require_memory(&model.graph, &model.graph.bind(&shapes)?, Memory::Frugal)?;
        Ok(shapes
            .into_iter()
            .map(|(name, shape)| (name.to_owned(), self.seeded(model, name, shape)))
            .collect())
    }

    /// The seeded values of one input: the stream `input.NAME`, or `input.NAME#SEED`; integers count.
    pub fn seeded(&self, model: &Model, name: &str, shape: Vec<usize>) -> Tensor<'static> {
        if is_integer(model, name) {
            return counting(shape);
        }
        let stream = match self.seed {
            0 => format!("input.{name}"),
            seed => format!("input.{name}#{seed}"),
        };
        let values = seeded_values(Family::Vision, &stream, &shape);
        Tensor::from_values(shape, values).expect("as many values as the shape says")
    }
}

fn is_integer(model: &Model, input: &str) -> bool {
    let inputs = model.graph.inputs().iter();
    inputs
        .filter(|known| known.name == input)
        .any(|known| model.graph.value(known.value).ty.dtype == DType::I32)
}

/// Whole numbers from 0: labels of samples that are all of different classes.
fn counting(shape: Vec<usize>) -> Tensor<'static> {
    let numbers: Vec<i32> = (0i32..).take(shape.iter().product()).collect();
    Tensor::from_values(shape, numbers).expect("as many values as the shape says")
}

/// A tensor that a file holds, as a network's input takes it: f32, or whole numbers where it counts.
pub fn read_input(
    file: &Safetensors,
    stored: &str,
    model: &Model,
    input: &str,
) -> Result<Tensor<'static>> {
    let tensor = file.read(stored).bad_input()?;
    let shape = tensor.shape();
    let named = |error| anyhow::anyhow!("`{stored}`: {error}");
    let read = match is_integer(model, input) {
        true => Tensor::from_values(
            shape,
            tensor.to_i32().map_err(named).bad_input()?.into_owned(),
        ),
        false => Tensor::from_values(shape, tensor.to_f32().into_owned()),
    };
    read.map_err(named).bad_input()
}

/// Raw input tensors from a safetensors file: `NAME` or `input.NAME` for each input.
///
/// A network with one input takes the file's only tensor under any name.
pub fn read_input_tensors(path: &Path, model: &Model) -> Result<Tensors> {
    let file = Safetensors::open(path)?;
    let mut tensors = Vec::new();
    for input in model.graph.inputs() {
        let prefixed = format!("input.{}", input.name);
        let names = file.names();
        let stored = match names
            .iter()
            .find(|name| **name == input.name || **name == prefixed)
        {
            Some(name) => name,
            None if model.graph.inputs().len() == 1 && names.len() == 1 => names[0],
            None => {
                let message = format!("{}: no tensor is named `{}`", path.display(), input.name);
                return Err(
                    Fail::bad_input(message).hint(format!("the file has: {}", names.join(", ")))
                );
            }
        };
        let tensor = read_input(&file, stored, model, &input.name)?;
        tensors.push((input.name.clone(), tensor));
    }
    Ok(tensors)
}

/// Image files: the given ones, and those inside given folders, in the order of their names.
pub fn image_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let read = |error: std::io::Error| anyhow::anyhow!("{}: {error}", path.display());
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(read).bad_input()? {
            let file = entry.map_err(read).bad_input()?.path();
            let extension = file
                .extension()
                .and_then(|e| e.to_str())
                .unwrap_or_default()
                .to_ascii_lowercase();
            if ["jpg", "jpeg", "png"].contains(&extension.as_str()) {
                inside.push(file);
            }
        }
        if inside.is_empty() {
            return Err(Fail::bad_input(format!(
                "{}: the folder has no .jpg or .png files",
                path.display()
            )));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}
