//! LiDAR sweeps as inputs: from files, or from the synthetic world.

use std::path::PathBuf;

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
        if !model.takes_points() {
            return match files {
                [] => input.seeded_tensors(model),
                _ => Err(Fail::usage(format!(
                    "{} takes no LiDAR points, so it is measured on a seeded input",
                    model.name
                ))),
            };
        }
        let batch = input.batch.unwrap_or(1);
        let samples: Vec<Vec<f32>> = match files {
            [] => {
                let config = WorldConfig {
                    sweeps: self.sweeps,
                    ..WorldConfig::new(WorldKind::NuScenes, input.seed)
                };
                let mut world = World::new(config);
                (0..batch)
                    .map(|frame| values(&world.frame(cpu, frame).points))
                    .collect()
            }
            files => files
                .iter()
                .map(|path| {
                    let points = percept_data::points::read_nuscenes_cloud(path).bad_input()?;
                    Ok(values(&points))
                })
                .collect::<Result<_>>()?,
        };
        let samples: Vec<&[f32]> = samples.iter().map(Vec::as_slice).collect();
        let inputs = centerpoint::inputs(&samples);
        Ok(inputs
            .map(|(name, tensor)| (name.to_owned(), tensor))
            .into())
    }
}

/// x, y, z, intensity and age of each point.
fn values(points: &[Point]) -> Vec<f32> {
    let row = |point: &Point| {
        let [x, y, z] = point.position;
        [x, y, z, point.intensity, point.age_s]
    };
    points.iter().flat_map(row).collect()
}
