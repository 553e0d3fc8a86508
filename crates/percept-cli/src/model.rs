//! The network that a verb is about: built from the zoo, with its weights.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use percept_data::{LoadReport, ModelWeights};
use percept_graph::WeightSource;
use percept_models::{Model, ModelError, Settings, zoo};

use crate::fail::{Fail, Result};
use crate::options::Common;

/// Which network, configured how.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Network, as `percept models` lists them
    pub model: String,
    /// Configure the network; may be given several times (`percept models NAME` lists the keys)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Weights: .safetensors, or a PyTorch .pth/.pt checkpoint [default: seeded]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
}

impl ModelArgs {
    /// Builds the network.
    pub fn build(&self) -> Result<Model> {
        build(&self.model, &self.set)
    }

    /// Its weights, checked to fit; says on stderr where they come from.
    pub fn load(&self, model: &Model, common: &Common) -> Result<Arc<dyn WeightSource>> {
        let Some(path) = &self.weights else {
            let weights: Arc<dyn WeightSource> = Arc::new(ModelWeights::seeded(&model.graph));
            common.note(format_args!("weights: {}", weights.describe()));
            return Ok(weights);
        };
        let layouts = model
            .other_layouts
            .iter()
            .map(|layout| (layout.name, layout.renames.as_slice()));
        let (weights, report) = ModelWeights::open(path, &model.graph, layouts)?;
        common.note(describe_load(&report));
        Ok(Arc::new(weights))
    }
}

/// Builds a network of the zoo with `--set` options; an unknown name comes with the nearest one.
pub fn build(name: &str, set: &[String]) -> Result<Model> {
    let settings = Settings::parse(set).map_err(ModelError::from)?;
    zoo::build(name, &settings).map_err(|error| {
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
    })
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
