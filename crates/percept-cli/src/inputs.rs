//! What goes into a network: the options that name it, and the samples and tensors behind them.

use clap::Args;
use percept_data::points::PointFormat;
use percept_data::{Datum, Example, Sample, Samples};
use percept_engine::{Memory, require_memory};
use percept_kernels::Cpu;
use percept_models::Model;
use percept_models::intake::{InputShapes, PartKind};
use percept_samples::{Given, OpenOptions, open, with_points};
use percept_world::MAX_SWEEPS;

use percept_report::counted;

use crate::fail::{Fail, Result};
use crate::options::{Common, PartSize, parse_batch};

/// Where samples come from.
#[derive(Args, Clone, Debug)]
pub struct SourceArgs {
    /// What the network looks at: files, folders, or its tensors as .safetensors, .npz or .npy; PART=PATH where a sample has
    /// several parts (`percept models NAME` lists them) [default: a seeded input, or a sweep of the synthetic world]
    #[arg(long, value_name = "[PART=]PATH", num_args = 1..)]
    pub input: Vec<Given>,
    /// Seed of the input that percept makes; 0 is the public reference stream
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Inputs of points: sweeps merged into a sample, of the synthetic world or of a nuScenes folder
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_sweeps)]
    sweeps: usize,
    /// Inputs of points: the one frame of each folder that is wanted [default: all]
    #[arg(long, value_name = "N")]
    frame: Option<usize>,
    /// Inputs of points: how files store them: nuscenes, kitti, f16x5, pcd, ply or npy [default: by name and length]
    #[arg(long, value_name = "FORMAT")]
    format: Option<PointFormat>,
    /// Points of each cloud, where a verb asks for several numbers of them.
    #[arg(skip)]
    pub points: Option<usize>,
}

/// How many samples are taken at once, and how large.
#[derive(Args, Clone, Debug, Default)]
pub struct ShapeArgs {
    /// Samples at once [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_batch)]
    pub batch: Option<usize>,
    /// Height and width of the input, such as 224 or 256x704; PART=HxW where a sample has several parts
    #[arg(long, value_name = "[PART=]HxW", num_args = 1..)]
    pub size: Vec<PartSize>,
}

/// Samples, and how they are taken.
#[derive(Args, Clone, Debug)]
pub struct InputArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub shape: ShapeArgs,
}

fn parse_sweeps(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(sweeps) if (1..=MAX_SWEEPS).contains(&sweeps) => Ok(sweeps),
        _ => Err(format!("expected 1 to {MAX_SWEEPS} sweeps")),
    }
}

impl ShapeArgs {
    /// The network with the sizes asked for.
    pub fn sized(&self, model: Model) -> Result<Model> {
        let mut model = model;
        for asked in &self.size {
            model = model.sized(asked.part.as_deref(), asked.size.0)?;
        }
        Ok(model)
    }

    /// The shapes of all inputs, which the network can take.
    pub fn shapes(&self, model: &Model) -> Result<InputShapes> {
        let shapes = model.input_shapes(self.batch.unwrap_or(1));
        model.graph.bind(&shapes)?;
        Ok(shapes)
    }
}

impl InputArgs {
    /// The samples.
    pub fn open(&self, model: &Model, cpu: &Cpu) -> Result<Box<dyn Samples>> {
        self.source.open(model, &self.shape, cpu)
    }

    /// The tensors of one run.
    pub fn example(&self, model: &Model, cpu: &Cpu, common: &Common) -> Result<Example> {
        self.source.example(model, &self.shape, cpu, common)
    }
}

impl SourceArgs {
    /// The samples; as many as are taken at once where percept makes them itself.
    pub fn open(&self, model: &Model, shape: &ShapeArgs, cpu: &Cpu) -> Result<Box<dyn Samples>> {
        if self.input.is_empty() {
            // Before the input itself takes the memory.
            let sizes = model.graph.bind(&shape.shapes(model)?)?;
            require_memory(&model.graph, &sizes, Memory::Frugal)?;
        }
        let options = OpenOptions {
            count: shape.batch.unwrap_or(1),
            seed: self.seed,
            sweeps: self.sweeps,
            frame: self.frame,
            format: self.format,
            threads: cpu.threads(),
        };
        Ok(open(model, &self.input, &options)?)
    }

    /// The tensors of one run: of the first samples, and of those again where there are fewer than asked for.
    pub fn example(
        &self,
        model: &Model,
        shape: &ShapeArgs,
        cpu: &Cpu,
        common: &Common,
    ) -> Result<Example> {
        let samples = self.open(model, shape, cpu)?;
        if samples.is_empty() {
            return Err(Fail::bad_input("the input holds no samples"));
        }
        let mut examples: Vec<Example> = Vec::new();
        let (mut count, asked) = (0, shape.batch.unwrap_or(1));
        while count < asked {
            let mut sample = samples.sample(examples.len() % samples.len())?;
            if let Some(points) = self.points {
                sample = with_points(sample, points, self.seed);
            }
            note_left_out(&sample, common);
            let example = model.example(cpu, &sample)?;
            // What holds nothing would never be enough.
            count += example.samples.max(1);
            examples.push(example);
        }
        let mut all = batch(model, examples)?;
        // What only the reading of answers needs is no input.
        let taken = model.graph.inputs();
        all.tensors
            .retain(|(name, _)| taken.iter().any(|input| input.name == *name));
        Ok(all)
    }
}

/// Examples as one run takes them.
pub fn batch(model: &Model, examples: Vec<Example>) -> Result<Example> {
    model.batch(examples).map_err(|error| {
        Fail::bad_input(error).hint("give --size, or --batch 1 for samples of different sizes")
    })
}

/// Says how many points of a sample are not looked at.
pub fn note_left_out(sample: &Sample, common: &Common) {
    for (_, datum) in &sample.parts {
        if let Datum::Frame(frame) = datum
            && frame.dropped_non_finite > 0
        {
            common.note(format_args!(
                "{}: left out as NaN or infinite: {}",
                sample.name,
                counted(frame.dropped_non_finite, "point")
            ));
        }
    }
}

/// What samples of a network are called when they are counted.
pub fn unit(model: &Model) -> &'static str {
    match model.intake.parts() {
        [part] if part.kind == PartKind::Image => "images",
        [part] if matches!(part.kind, PartKind::Points(_)) => "sweeps",
        _ => "samples",
    }
}
