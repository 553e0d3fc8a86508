//! The network that a verb is about: built from the zoo, with its weights.

use std::sync::Arc;

use clap::Args;
use percept_data::safetensors::Safetensors;
use percept_data::{Assembled, LoadReport, ModelWeights, TensorSource, open_weights};
use percept_graph::WeightSource;
use percept_models::zoo::{self, Entry};
use percept_models::{Card, Model, ModelError, Settings};
use percept_samples::Given;

use crate::fail::{Blame, Fail, Result};
use crate::options::Common;

/// Which network, configured how.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Network, as `percept models` lists them
    pub model: String,
    /// Configure the network; may be given several times (`percept models NAME` lists the keys)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Weights: .safetensors, or a PyTorch .pth/.pt checkpoint; SCOPE=FILE for those of one module; or `seeded` [default: those
    /// that come with the network, or seeded]
    #[arg(long, value_name = "[SCOPE=]FILE", num_args = 1..)]
    pub weights: Vec<Given>,
}

/// What `--weights` says.
enum Chosen<'a> {
    Seeded,
    Shipped(&'static [u8]),
    Files(&'a [Given]),
}

impl ModelArgs {
    /// Builds the network as the card of its weights describes it.
    pub fn build(&self) -> Result<Model> {
        build_for(&self.model, &self.set, &self.weights)
    }

    /// The same, with seeded weights where none are named.
    pub fn or_seeded(&self) -> Self {
        let mut args = self.clone();
        if args.weights.is_empty() {
            args.weights = vec![Given {
                part: None,
                path: SEEDED.into(),
            }];
        }
        args
    }

    /// Its weights, checked to fit; says on stderr where they come from.
    pub fn load(&self, model: &Model, common: &Common) -> Result<Arc<dyn WeightSource>> {
        let entry = zoo::find(model.name)?;
        let (weights, report) = match Chosen::of(entry, &self.weights)? {
            Chosen::Seeded => {
                let weights = ModelWeights::seeded(model.family, &model.graph);
                common.note(format_args!("weights: {}", weights.describe()));
                return Ok(Arc::new(weights));
            }
            Chosen::Shipped(bytes) => {
                let source: Box<dyn TensorSource> = Box::new(shipped(entry, bytes)?);
                ModelWeights::of(source, &model.graph).bug()?
            }
            Chosen::Files([Given { part: None, path }]) => {
                let layouts = model.other_layouts.iter();
                let layouts = layouts.map(|layout| (layout.name, layout.renames.as_slice()));
                ModelWeights::open(path, &model.graph, layouts)?
            }
            Chosen::Files(files) => {
                let pieces = files.iter().map(|file| {
                    let source = open_weights(&file.path)?;
                    Ok((file.part.clone(), source))
                });
                let pieces = pieces.collect::<Result<Vec<_>>>()?;
                ModelWeights::of(Box::new(Assembled::new(pieces)), &model.graph).bad_input()?
            }
        };
        common.note(describe_load(&report));
        Ok(Arc::new(weights))
    }
}

/// The word for weights that follow from names.
const SEEDED: &str = "seeded";

impl<'a> Chosen<'a> {
    fn of(entry: &Entry, given: &'a [Given]) -> Result<Self> {
        let is_seeded = |given: &Given| given.part.is_none() && given.path.as_os_str() == SEEDED;
        match given {
            [] => Ok(entry.shipped.map_or(Self::Seeded, Self::Shipped)),
            [only] if is_seeded(only) => Ok(Self::Seeded),
            files if files.iter().any(is_seeded) => Err(Fail::usage(
                "--weights seeded stands alone: every parameter comes from its name",
            )),
            files => Ok(Self::Files(files)),
        }
    }

    /// The card of the weights of the whole network.
    fn card(&self, entry: &Entry) -> Result<Option<Card>> {
        match self {
            Self::Seeded => Ok(None),
            Self::Shipped(bytes) => Ok(Card::of_weights(&shipped(entry, bytes)?)?),
            Self::Files(files) => {
                let whole = files.iter().find(|file| file.part.is_none());
                Ok(whole
                    .map(|file| Card::read(&file.path))
                    .transpose()?
                    .flatten())
            }
        }
    }
}

/// The weights that come with a network.
fn shipped(entry: &Entry, bytes: &'static [u8]) -> Result<Safetensors> {
    let name = format!("trained weights that come with {}", entry.name);
    Safetensors::embedded(&name, bytes).bug()
}

/// Builds a network of the zoo with `--set` options and `--weights`, whose card settles what was not set.
pub fn build_for(name: &str, set: &[String], weights: &[Given]) -> Result<Model> {
    let asked = Settings::parse(set).map_err(ModelError::from)?;
    let entry = zoo::find(name).map_err(|error| blame(name, error))?;
    let chosen = Chosen::of(entry, weights)?;
    let build = |settings: &Settings| entry.build(settings).map_err(|error| blame(name, error));
    match chosen.card(entry)? {
        None => build(&asked),
        Some(card) => {
            let settings = card.settings_for(name, &asked).map_err(|error| {
                let fail = Fail::from(error);
                match chosen {
                    Chosen::Shipped(_) => fail.hint("--weights seeded takes other settings"),
                    _ => fail,
                }
            })?;
            Ok(build(&settings)?.described_by(&card))
        }
    }
}

/// Builds a network of the zoo with `--set` options alone.
pub fn build(name: &str, set: &[String]) -> Result<Model> {
    let settings = Settings::parse(set).map_err(ModelError::from)?;
    zoo::build(name, &settings).map_err(|error| blame(name, error))
}

/// An unknown name comes with the nearest one.
fn blame(name: &str, error: ModelError) -> Fail {
    let hint = match &error {
        ModelError::UnknownModel {
            suggestion: Some(nearest),
            ..
        } => Some(format!("did you mean `{nearest}`?")),
        ModelError::UnknownModel { .. } => Some("`percept models` lists them".to_owned()),
        ModelError::Settings(_) => Some(format!("`percept models {name}` lists the settings")),
        _ => None,
    };
    Fail {
        hint,
        ..Fail::from(error)
    }
}

fn describe_load(report: &LoadReport) -> String {
    match report.unexpected.len() {
        0 => format!("weights: {}, {} tensors", report.weights, report.matched),
        extra => format!(
            "weights: {}, {} tensors; {extra} more were not needed",
            report.weights, report.matched
        ),
    }
}
