//! LiDAR sweeps as inputs: from files, or from the synthetic world.

use std::path::{Path, PathBuf};

use clap::Args;
use percept_data::points::Point;
use percept_data::world::{MAX_SWEEPS, World, WorldConfig, WorldKind};
use percept_kernels::Cpu;
use percept_models::{Model, centerpoint};

use crate::fail::{Blame, Fail, Result};
use crate::inputs::{InputArgs, Tensors, read_input_tensors};

/// What a network is measured on.
#[derive(Args, Clone, Debug)]
pub struct SourceArgs {
    /// LiDAR networks: files with a sweep each [default: the synthetic world]
    #[arg(long = "input", value_name = "FILE", num_args = 1.., conflicts_with = "input_tensors")]
    files: Vec<PathBuf>,
    /// Raw input tensors: a safetensors file with one tensor for each input
    #[arg(long, value_name = "FILE")]
    input_tensors: Option<PathBuf>,
    #[command(flatten)]
    points: PointArgs,
}

impl SourceArgs {
    /// The tensors of one run.
    pub fn tensors(&self, model: &Model, input: &InputArgs, cpu: &Cpu) -> Result<Tensors> {
        match &self.input_tensors {
            Some(path) => read_input_tensors(path, model),
            None => self.points.tensors(model, input, &self.files, cpu),
        }
    }
}

/// How sweeps are read or made.
#[derive(Args, Clone, Debug)]
pub struct PointArgs {
    /// LiDAR networks: sweeps merged into a sample, for the synthetic world
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_sweeps)]
    pub sweeps: usize,
}

fn parse_sweeps(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(sweeps) if (1..=MAX_SWEEPS).contains(&sweeps) => Ok(sweeps),
        _ => Err(format!("expected 1 to {MAX_SWEEPS} sweeps")),
    }
}

/// A cloud and what it is called.
pub struct Sweep {
    pub name: String,
    pub points: Vec<Point>,
}

impl PointArgs {
    /// The tensors of one run: of these files, or of the synthetic world's frames; of seeded values for networks that take
    /// no points.
    pub fn tensors(
        &self,
        model: &Model,
        input: &InputArgs,
        files: &[PathBuf],
        cpu: &Cpu,
    ) -> Result<Tensors> {
        if model.takes_points() {
            return Ok(tensors_of(&self.sweeps(input, files, cpu)?));
        }
        match files {
            [] => input.seeded_tensors(model),
            _ => Err(Fail::usage(format!(
                "{} takes no LiDAR points, so it is measured on a seeded input",
                model.name
            ))),
        }
    }

    /// The sweeps of these files; without files, the first frames of the synthetic world.
    pub fn sweeps(&self, input: &InputArgs, files: &[PathBuf], cpu: &Cpu) -> Result<Vec<Sweep>> {
        if !files.is_empty() {
            return files.iter().map(|path| self.read(path)).collect();
        }
        let config = WorldConfig {
            sweeps: self.sweeps,
            ..WorldConfig::new(WorldKind::NuScenes, input.seed)
        };
        let mut world = World::new(config);
        let frames = 0..input.batch.unwrap_or(1);
        Ok(frames
            .map(|frame| Sweep {
                name: format!("synthetic world, seed {}, frame {frame}", input.seed),
                points: world.frame(cpu, frame).points,
            })
            .collect())
    }

    fn read(&self, path: &Path) -> Result<Sweep> {
        let points = percept_data::points::read_nuscenes_cloud(path).bad_input()?;
        Ok(Sweep {
            name: path.display().to_string(),
            points,
        })
    }
}

/// The inputs of a LiDAR network for these sweeps.
pub fn tensors_of(sweeps: &[Sweep]) -> Tensors {
    let samples: Vec<Vec<f32>> = sweeps.iter().map(|sweep| values(&sweep.points)).collect();
    let samples: Vec<&[f32]> = samples.iter().map(Vec::as_slice).collect();
    let inputs = centerpoint::inputs(&samples);
    inputs
        .map(|(name, tensor)| (name.to_owned(), tensor))
        .into()
}

/// x, y, z, intensity and age of each point.
fn values(points: &[Point]) -> Vec<f32> {
    let row = |point: &Point| {
        let [x, y, z] = point.position;
        [x, y, z, point.intensity, point.age_s]
    };
    points.iter().flat_map(row).collect()
}
