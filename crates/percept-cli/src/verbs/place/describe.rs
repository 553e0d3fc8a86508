//! Samples to places: what a network says of each, and where it was.

use std::path::PathBuf;
use std::sync::Arc;

use percept_data::{POSITION, Sample, Samples};
use percept_engine::Program;
use percept_graph::Tensor;
use percept_models::Model;
use percept_models::answer::{Answer, AnswerKind};
use percept_places::{Mode, Place, PlaceIndex};
use percept_report::counted;
use percept_samples::{Given, OpenOptions, Places, open};
use percept_world::{WorldConfig, WorldKind};

use super::{IndexFile, NetworkArgs};
use crate::fail::{Blame, Fail, Result};
use crate::inputs::{ShapeArgs, note_left_out};
use crate::options::{Common, EngineArgs};
use crate::progress;

/// What is described.
#[derive(clap::Args, Clone, Debug)]
pub struct SourceArgs {
    /// Folders of frames, LiDAR files, or tensors; PART=PATH for one part [default: a synthetic town]
    #[arg(long, value_name = "[PART=]PATH", num_args = 1..)]
    pub input: Vec<Given>,
    /// Where each frame was: lines of x,y in metres, or of the 12 numbers of a KITTI pose; the first line for the first frame
    #[arg(long, value_name = "CSV")]
    pub poses: Option<PathBuf>,
    /// Seed of the synthetic town
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Frames of each drive through the synthetic town
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub frames: u32,
    /// Drives through the synthetic town: the first is indexed, the others are queries
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=100))]
    pub passes: u32,
    /// Height and width of a part, such as camera=64x176
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// Which drives of the synthetic town.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drives {
    First,
    Later,
}

/// Samples to describe.
pub struct Described {
    pub samples: Box<dyn Samples>,
    /// The samples that are wanted.
    pub wanted: std::ops::Range<usize>,
    /// Positions by sample, where a file tells them.
    poses: Option<Vec<[f64; 2]>>,
    /// Frames of a drive, where it is the synthetic town.
    pub frames_per_pass: Option<usize>,
}

impl SourceArgs {
    pub fn open(&self, model: &Model, drives: Drives, threads: usize) -> Result<Described> {
        if self.input.is_empty() {
            let frames = self.frames as usize;
            let config = WorldConfig {
                passes: self.passes as usize,
                frames_per_pass: frames,
                ..WorldConfig::new(WorldKind::Places, self.seed)
            };
            let places = Places::new(model, config, threads)?;
            let wanted = match drives {
                Drives::First => 0..frames,
                Drives::Later => frames..places.len(),
            };
            return Ok(Described {
                samples: Box::new(places),
                wanted,
                poses: None,
                frames_per_pass: Some(frames),
            });
        }
        let options = OpenOptions {
            threads,
            ..OpenOptions::default()
        };
        let samples = open(model, &self.input, &options)?;
        let poses = self.poses.as_deref().map(read_poses).transpose()?;
        if let Some(poses) = &poses
            && poses.len() < samples.len()
        {
            return Err(Fail::bad_input(format!(
                "--poses has {} for {}",
                counted(poses.len(), "line"),
                counted(samples.len(), "frame")
            )));
        }
        Ok(Described {
            wanted: 0..samples.len(),
            samples,
            poses,
            frames_per_pass: None,
        })
    }
}

/// The ground positions in a file of poses.
fn read_poses(path: &std::path::Path) -> Result<Vec<[f64; 2]>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
        .bad_input()?;
    let mut poses = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let cells = text.split([',', ' ', '\t']).filter(|cell| !cell.is_empty());
        let numbers: std::result::Result<Vec<f64>, _> = cells.map(str::parse).collect();
        match numbers.as_deref() {
            Ok([x, y]) => poses.push([*x, *y]),
            // A KITTI pose [R | t], rows one behind the other: x to the right, z forward.
            Ok([_, _, _, x, _, _, _, _, _, _, _, z]) => poses.push([*x, *z]),
            Ok([]) => {}
            // A head.
            Err(_) if line == 0 => {}
            _ => {
                return Err(Fail::bad_input(format!(
                    "{}, line {}: expected x,y or the 12 numbers of a pose",
                    path.display(),
                    line + 1
                )));
            }
        }
    }
    Ok(poses)
}

/// A network, ready to describe.
pub struct Describer {
    pub model: Model,
    program: Program,
}

/// An index, and what describes places for it.
#[derive(clap::Args, Clone, Debug)]
pub struct DescribeArgs {
    #[command(flatten)]
    pub index: IndexFile,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

impl DescribeArgs {
    /// The index, for reading, and a network whose descriptors it takes.
    pub fn ask(&self, common: &Common) -> Result<(PlaceIndex, Describer)> {
        let index = PlaceIndex::read(&self.index.path)?;
        let describer = Describer::new(self, common)?;
        index.check(&describer.mode()?)?;
        note_recovery(&index, common);
        if index.is_empty() {
            return Err(Fail::bad_input(format!(
                "{}: it holds no places",
                self.index.path.display()
            )));
        }
        Ok((index, describer))
    }
}

/// Says what an index lost before it was opened.
pub fn note_recovery(index: &PlaceIndex, common: &Common) {
    let recovery = index.recovery();
    if recovery.torn_bytes > 0 {
        common.note(format_args!(
            "{}: the last {} bytes were cut off while they were written, and are left out",
            index.path().display(),
            recovery.torn_bytes
        ));
    }
    for damaged in &recovery.damaged {
        common.note(format_args!(
            "{}: damaged from byte {} to {}; places there are lost",
            index.path().display(),
            damaged.start,
            damaged.end
        ));
    }
}

impl Describer {
    pub fn new(args: &DescribeArgs, common: &Common) -> Result<Self> {
        let engine = &args.engine;
        let chosen = args.network.chosen()?;
        let model = args.source.shape.sized(chosen.build()?)?;
        if model.head.kind() != AnswerKind::Descriptor {
            return Err(Fail::usage(format!(
                "{} gives {}, no descriptors",
                model.name,
                model.head.kind()
            )));
        }
        let weights = chosen.load(&model, common)?;
        let graph = engine.form(&model).clone();
        let program = Program::new(graph, Arc::clone(&weights), common.cpu()?, engine.options());
        Ok(Self { model, program })
    }

    /// What its descriptors are.
    pub fn mode(&self) -> Result<Mode> {
        let outputs = self.model.graph.outputs();
        let shape = outputs.first().map(|(_, value)| {
            let shape = &self.model.graph.value(*value).ty.shape;
            shape.last().and_then(percept_graph::Dim::as_const)
        });
        let descriptor = shape
            .flatten()
            .and_then(|width| usize::try_from(width).ok());
        Ok(Mode {
            network: self.model.name.to_owned(),
            without: self
                .model
                .left_out
                .iter()
                .map(|part| (*part).to_owned())
                .collect(),
            descriptor: descriptor
                .ok_or_else(|| anyhow::anyhow!("descriptors of a known size"))
                .bug()?,
        })
    }

    /// The CPU that it runs on.
    pub fn cpu(&self) -> &percept_kernels::Cpu {
        self.program.cpu()
    }

    /// Describes the wanted samples one by one. What cannot be read is named and left out.
    pub fn each(
        &mut self,
        described: &Described,
        common: &Common,
        mut taken: impl FnMut(usize, Place, &Sample) -> Result<()>,
    ) -> Result<usize> {
        let bar = progress::bar(common, described.wanted.len(), "describing");
        let mut skipped = 0;
        for index in described.wanted.clone() {
            match described.samples.sample(index).and_then(|sample| {
                let example = self.model.example(self.program.cpu(), &sample)?;
                Ok((sample, example))
            }) {
                Err(error) if described.wanted.len() == 1 => return Err(error.into()),
                Err(error) => {
                    skipped += 1;
                    bar.suspend(|| eprintln!("skipped: {error}"));
                }
                Ok((sample, example)) => {
                    bar.suspend(|| note_left_out(&sample, common));
                    let position = described.position(index, &sample);
                    let place = self.describe(sample, &example, position)?;
                    taken(index, place.0, &place.1)?;
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(skipped)
    }

    fn describe(
        &mut self,
        sample: Sample,
        example: &percept_data::Example,
        position: Option<[f64; 2]>,
    ) -> Result<(Place, Sample)> {
        let outputs = self.program.run(&example.taken_by(&self.model.graph))?;
        let outputs: Vec<(&str, Tensor<'_>)> = outputs
            .iter()
            .map(|(name, tensor)| (name, tensor.borrowed()))
            .collect();
        let samples = std::slice::from_ref(&sample);
        let answers = self.model.read(&outputs, example, samples).bad_input()?;
        let Some(Answer::Descriptor(answer)) = answers.into_iter().next() else {
            return Err(Fail::bad_input(format!("{}: no descriptor", sample.name)));
        };
        let place = Place {
            name: sample.name.clone(),
            position,
            descriptor: answer.values,
        };
        Ok((place, sample))
    }
}

impl Described {
    fn position(&self, index: usize, sample: &Sample) -> Option<[f64; 2]> {
        if let Some(poses) = &self.poses {
            return poses.get(index).copied();
        }
        match *sample.tensor(POSITION).ok()?.to_f64() {
            [x, y, ..] => Some([x, y]),
            _ => None,
        }
    }
}
