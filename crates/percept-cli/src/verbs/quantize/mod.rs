//! `percept quantize`: weights as integers, ranges from samples, and what it costs.

mod report;
mod source;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use percept_data::Example;
use percept_data::safetensors::SafetensorsWriter;
use percept_engine::{PrecisionPlan, RoundedWeights};
use percept_graph::{Per, WeightGrid, WeightSource};
use percept_models::{Card, Model};
use percept_samples::Given;
use percept_tune::{
    Budget, Calibration, Calibrator, LayerSensitivity, Layers, Recipe, Scheme, Spent, Subject,
    TuneError, sensitivity, within_budget, write_quantized,
};

use percept_report::counted;

use crate::fail::{Exit, Fail, Result};
use crate::inputs::ShapeArgs;
use crate::model::ModelArgs;
use crate::options::{Common, EngineArgs, parse_picture, parse_weights};
use crate::outcome::{Outcome, write_picture};
use crate::progress;
use crate::training::settings_to_keep;
pub use source::First;
use source::Watched;

/// Turn a network's weights into integers, with ranges calibrated on samples, layer by layer where a budget is given
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept quantize resnet50 --weights resnet50.pth --calibrate photos/ \\
      --to resnet50.i8.safetensors
  percept quantize centerpoint-small --layers dense --to small.i8.safetensors  maps alone
  percept quantize centerpoint-small --wide backbone_3d.conv_input --to mixed.safetensors
  percept quantize resnet50 --calibrate resnet50.i8.calibration.safetensors --calibrator mse \\
      --to b.safetensors
  percept quantize centerpoint-small --sensitivity --picture layers.svg
  percept quantize resnet18 --budget sqnr=30dB --to mixed.safetensors

The file holds weights as integers, what one integer stands for, the network's card and the plan: every verb takes it by --weights.
Histograms of what layers multiply are kept beside it, so that another calibrator needs no second pass.
Without --calibrate the network's default samples are taken: right for a try, not for use.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    shape: ShapeArgs,
    /// How ranges of inputs are known
    #[arg(long, value_enum, default_value = "static")]
    scheme: SchemeArg,
    /// Samples to calibrate on: files, folders or tensors as `run --input` takes them; or a .calibration.safetensors file
    #[arg(long, value_name = "[PART=]PATH", num_args = 1..)]
    calibrate: Vec<Given>,
    /// Samples to calibrate on at most; where none are named, so many are made
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    samples: u64,
    /// Inputs of points: sweeps merged into a sample
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    sweeps: u64,
    /// Seed of samples that percept makes
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How a range is chosen: max, percentile, percentile=99.9, mse or entropy
    #[arg(long, value_name = "NAME", default_value = "max")]
    calibrator: Calibrator,
    /// Which layers become integers
    #[arg(long, value_enum, default_value = "all")]
    layers: LayersArg,
    /// Bits of a weight
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(2..=8))]
    weight_bits: u8,
    /// Bits of an input
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(2..=16))]
    input_bits: u8,
    /// One scale for a whole tensor of weights, instead of one for each channel
    #[arg(long)]
    per_tensor: bool,
    /// Leave this scope in f32; may be given several times
    #[arg(long, value_name = "SCOPE")]
    float: Vec<String>,
    /// Give inputs of this scope 16 bits; may be given several times
    #[arg(long, value_name = "SCOPE")]
    wide: Vec<String>,
    /// Tell what each layer gains and loses alone
    #[arg(long)]
    sensitivity: bool,
    /// With --sensitivity: also tell how many points of the network's own metric each layer loses alone
    #[arg(long, requires = "sensitivity")]
    judge: bool,
    /// Take layers only as far as this may be lost: sqnr=30dB at the outputs, or metric=-0.5 points of the network's own metric
    #[arg(long, value_name = "BUDGET")]
    budget: Option<Budget>,
    /// What a budget is spent for
    #[arg(long, value_enum, default_value = "time")]
    gain: GainArg,
    /// Samples that noise is measured on
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    measured: u64,
    /// Samples that the metric is measured on at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    judged: u64,
    /// File to write; `--out FILE.safetensors` does too
    #[arg(long, value_name = "FILE.safetensors", value_parser = parse_weights)]
    to: Option<PathBuf>,
    /// Draw gain against loss of all layers into this .svg or .png file
    #[arg(long, value_name = "FILE", requires = "sensitivity", value_parser = parse_picture)]
    picture: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SchemeArg {
    /// Measured beforehand, on samples
    Static,
    /// Measured in every run
    Dynamic,
    /// Weights of 8 bits, inputs of 16 measured in every run
    WeightOnly,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LayersArg {
    /// Convolutions of maps and linear layers
    Dense,
    /// Sparse convolutions too
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GainArg {
    /// Milliseconds, measured here
    Time,
    /// Bytes of weights
    Bytes,
}

impl Args {
    fn recipe(&self) -> Recipe {
        let scheme = match self.scheme {
            SchemeArg::Static => Scheme::Static,
            SchemeArg::Dynamic => Scheme::Dynamic,
            SchemeArg::WeightOnly => Scheme::WeightOnly,
        };
        Recipe {
            calibrator: self.calibrator,
            weight: WeightGrid {
                bits: self.weight_bits,
                per: match self.per_tensor {
                    true => Per::Tensor,
                    false => Per::Channel,
                },
            },
            input_bits: self.input_bits,
            layers: match self.layers {
                LayersArg::Dense => Layers::Dense,
                LayersArg::All => Layers::All,
            },
            float: self.float.clone(),
            wide: self.wide.clone(),
            ..Recipe::new(scheme)
        }
    }

    fn made_by(&self, calibration: Option<&Calibration>) -> String {
        let scheme = match self.scheme {
            SchemeArg::Static => "static",
            SchemeArg::Dynamic => "dynamic",
            SchemeArg::WeightOnly => "weight-only",
        };
        let mut text = format!(
            "{scheme}, w{}a{}",
            self.weight_bits,
            self.recipe().input_bits()
        );
        if let (SchemeArg::Static, Some(seen)) = (self.scheme, calibration) {
            let over = counted(seen.samples(), "sample");
            text += &format!(", {} over {over}", self.calibrator);
        }
        if let Some(budget) = &self.budget {
            text += &format!(", within {budget}");
        }
        text
    }
}

/// What was found on the way to the plan.
struct Found {
    plan: PrecisionPlan,
    layers: Option<Vec<LayerSensitivity>>,
    spent: Option<Spent>,
}

/// Whether a path names a file of weights.
pub fn is_weights(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "safetensors")
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let target = args.to.as_deref();
    let target = target.or(common.out.as_deref().filter(|path| is_weights(path)));
    if target.is_none() && !args.sensitivity {
        return Err(Fail::usage("nothing to do").hint("--to FILE.safetensors, or --sensitivity"));
    }
    let model = args.shape.sized(args.model.build()?)?;
    if model
        .graph
        .params()
        .iter()
        .any(|param| param.grid.is_some())
    {
        let message = "these weights are quantised already";
        return Err(Fail::usage(message).hint("quantise the floats that they were made of"));
    }
    if let Some(path) = target {
        // A folder that takes no file is told before the work.
        SafetensorsWriter::create(path)?;
    }
    let weights = args.model.load(&model, common)?;
    // Layers inside of a lean form's own ops stay floats: torn out of them they would cost more than integers gain.
    let form = args.engine.form(&model);
    let recipe = args.recipe();
    let Watched {
        calibration,
        measured,
        source,
    } = source::watch(args, &model, &weights, &recipe, common)?;
    let subject = Subject {
        graph: form,
        weights: Arc::clone(&weights),
        threads: common.cpu()?.threads(),
        options: args.engine.options(),
        samples: &measured,
    };
    let found = find(args, &subject, &recipe, calibration.as_ref(), common)?;
    let noise = subject.noise(&found.plan).map_err(blame)?;
    let takes = subject.takes(&found.plan).map_err(blame)?;
    let quantized = found.plan.quantize(form.clone())?;
    let written = target.map(|path| {
        write(
            args,
            path,
            &model,
            &quantized,
            &weights,
            calibration.as_ref(),
        )
    });
    let written = written.transpose()?;
    if let (Some(path), Some(layers)) = (&args.picture, &found.layers) {
        write_picture(path, &report::chart(model.name, layers).draw())?;
    }
    Ok(report::report(&report::Told {
        args,
        model: &model,
        quantized: &quantized,
        source: &source,
        calibration: calibration.as_ref(),
        found: &found,
        noise: &noise,
        measured: count(&measured),
        takes,
        threads: subject.threads,
        written: written.as_ref(),
    }))
}

/// The plan: of the whole recipe, or of what a budget allows.
fn find(
    args: &Args,
    subject: &Subject<'_>,
    recipe: &Recipe,
    calibration: Option<&Calibration>,
    common: &Common,
) -> Result<Found> {
    let whole = recipe.plan(subject.graph, calibration).map_err(blame)?;
    if !args.sensitivity && args.budget.is_none() {
        return Ok(Found {
            plan: whole,
            layers: None,
            spent: None,
        });
    }
    let bar = progress::bar(common, 1, "layers alone");
    let layers = sensitivity(subject, recipe, calibration, |done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let mut layers = layers.map_err(blame)?;
    let is_by_metric = matches!(args.budget, Some(Budget::Metric(_)));
    let judge = (args.judge || is_by_metric)
        .then(|| source::Judge::new(args, subject, common))
        .transpose()?;
    if let (true, Some(judge)) = (args.judge, &judge) {
        for layer in &mut layers {
            let plan = PrecisionPlan::new().with(&layer.name, layer.grids);
            layer.metric_loss = Some(judge.loss(&plan).map_err(blame)?);
        }
    }
    let Some(budget) = args.budget else {
        return Ok(Found {
            plan: whole,
            layers: Some(layers),
            spent: None,
        });
    };
    let gain = |layer: &LayerSensitivity| match args.gain {
        GainArg::Time => layer.saved_ms(),
        GainArg::Bytes => layer.float_bytes as f64 - layer.integer_bytes as f64,
    };
    let spent = within_budget(&layers, gain, budget, |plan| match (&budget, &judge) {
        (Budget::Metric(_), Some(judge)) => judge.loss(plan),
        _ => Ok(subject.total_noise(plan)?.sqnr_db()),
    });
    let spent = spent.map_err(blame)?;
    if spent.plan.is_float() && !args.sensitivity {
        let message = format!(
            "no layer in integers fits {budget}: {} gain nothing here, {} cost too much",
            spent.without_gain.len(),
            spent.refused.len()
        );
        let hint =
            "--gain bytes counts bytes instead of milliseconds; --sensitivity tells of each layer";
        return Err(Fail {
            exit: Exit::CheckFailed,
            ..Fail::usage(message).hint(hint)
        });
    }
    Ok(Found {
        plan: spent.plan.clone(),
        layers: args.sensitivity.then_some(layers),
        spent: Some(spent),
    })
}

/// What was written.
struct Written {
    path: PathBuf,
    /// Bytes of integers, of steps, and of floats.
    bytes: [u64; 3],
    calibration: Option<PathBuf>,
}

fn write(
    args: &Args,
    path: &Path,
    model: &Model,
    quantized: &percept_graph::Graph,
    weights: &Arc<dyn WeightSource>,
    calibration: Option<&Calibration>,
) -> Result<Written> {
    let rounded = RoundedWeights::new(Arc::clone(weights), quantized);
    let card = Card::of(model, model.classes.to_vec());
    let made_by = args.made_by(calibration);
    let settings = args.model.whole_file().map(settings_to_keep).transpose()?;
    let metadata = settings.flatten().into_iter().chain([card.metadata()]);
    let bytes = write_quantized(path, quantized, &rounded, made_by, metadata);
    let bytes = bytes.map_err(blame)?;
    let calibration = calibration.map(|calibration| {
        let beside = Calibration::beside(path);
        calibration.write(&beside, model.name, [card.metadata()])?;
        Ok::<_, Fail>(beside)
    });
    Ok(Written {
        path: path.to_owned(),
        bytes,
        calibration: calibration.transpose()?,
    })
}

/// Whose mistake an error of tuning is.
pub fn blame(error: TuneError) -> Fail {
    match error {
        TuneError::Engine(error) => Fail::from(error),
        TuneError::File(error) => Fail::from(error),
        error @ TuneError::NotANumber { .. } => {
            Fail::bad_input(error).hint("look at the sample; --calibrate takes others")
        }
        error @ TuneError::NotCalibrated { .. } => {
            Fail::bad_input(error).hint("calibrate on samples that use the whole network")
        }
        error @ (TuneError::OtherNetwork { .. } | TuneError::NoLayers) => Fail::usage(error),
        error => Fail::bad_input(error),
    }
}

/// Examples in memory for measuring.
type Measured = Vec<Example>;

/// The samples of all of them.
fn count(examples: &[Example]) -> usize {
    examples.iter().map(|example| example.samples).sum()
}
