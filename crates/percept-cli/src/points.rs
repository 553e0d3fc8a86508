//! LiDAR sweeps as inputs: from files, or from the synthetic world.

use std::path::{Path, PathBuf};

use clap::Args;
use percept_data::points::{
    LidarDataset, LidarFrame, PointCloud, PointFormat, PointsError, read_points,
};
use percept_kernels::Cpu;
use percept_models::{Model, centerpoint};
use percept_world::{MAX_SWEEPS, World, WorldConfig, WorldKind};

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
    /// LiDAR networks: sweeps merged into a sample, of the synthetic world or of a folder
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_sweeps)]
    sweeps: usize,
    /// LiDAR networks: which frame of a folder
    #[arg(long, value_name = "N", default_value_t = 0)]
    frame: usize,
    /// LiDAR networks: how files store points: nuscenes, kitti, f16x5, pcd, ply or npy [default: by name and length]
    #[arg(long, value_name = "FORMAT")]
    format: Option<PointFormat>,
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
    pub cloud: PointCloud,
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
            return tensors_of(&self.sweeps(input, files, cpu)?);
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
                cloud: cloud_of(&world.frame(cpu, frame)),
            })
            .collect())
    }

    /// A file with one cloud, or one frame of a nuScenes or SemanticKITTI folder.
    fn read(&self, path: &Path) -> Result<Sweep> {
        if path.is_dir() {
            let folder = LidarDataset::open(path).bad_input()?;
            if self.frame >= folder.frames() {
                let message = format!(
                    "--frame {}: {} has {} frames",
                    self.frame,
                    path.display(),
                    folder.frames()
                );
                return Err(Fail::usage(message));
            }
            let frame = folder.frame(self.frame, self.sweeps).bad_input()?;
            return Ok(Sweep {
                name: format!("{}, frame {}", path.display(), self.frame),
                cloud: cloud_of(&frame),
            });
        }
        if self.sweeps > 1 {
            return Err(Fail::usage(format!(
                "--sweeps {}: {} is one file; sweeps are merged from a nuScenes folder",
                self.sweeps,
                path.display()
            )));
        }
        let cloud = read_points(path, self.format).map_err(|error| {
            let hint = matches!(
                error,
                PointsError::AmbiguousFormat { .. } | PointsError::UnknownFormat { .. }
            );
            let fail = Fail::bad_input(error.to_string());
            match hint {
                true => fail.hint("say it with --format nuscenes, kitti, f16x5, pcd, ply or npy"),
                false => fail,
            }
        })?;
        Ok(Sweep {
            name: path.display().to_string(),
            cloud,
        })
    }
}

fn cloud_of(frame: &LidarFrame) -> PointCloud {
    PointCloud::from_frame(frame)
}

/// The inputs of a LiDAR network for these sweeps.
pub fn tensors_of(sweeps: &[Sweep]) -> Result<Tensors> {
    let samples: Vec<&[f32]> = sweeps.iter().map(|s| s.cloud.values.as_slice()).collect();
    let inputs = centerpoint::inputs(&samples).bug()?;
    Ok(inputs
        .map(|(name, tensor)| (name.to_owned(), tensor))
        .into())
}
