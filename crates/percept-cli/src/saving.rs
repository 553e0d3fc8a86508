//! What a training step does to hold less memory, as options.

use percept_report::bytes;
use percept_train::{Fitted, TrainConfig};

use crate::fail::{Fail, Result};

/// How a training step saves memory
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Memory of a training step")]
pub struct SavingArgs {
    /// Type in which values wait for the backward pass; sums and gradients stay f32, so no loss needs scaling [default: f32]
    #[arg(long, value_name = "TYPE", value_parser = ["f32", "f16", "bf16"])]
    activations: Option<String>,
    /// Compute these modules again in the backward pass instead of keeping their values, to the same bits: `layer1,layer2`,
    /// `elementwise` (norms and activations), or `auto` with --max-memory
    #[arg(long, value_name = "MODULE,..")]
    recompute: Option<String>,
    /// Memory that a step may take, such as 450MiB: as much is computed again as that needs
    #[arg(long, value_name = "BYTES")]
    max_memory: Option<String>,
}

impl SavingArgs {
    /// As settings of a run.
    pub fn settings(&self) -> Vec<String> {
        let settings = [
            ("activations", &self.activations),
            ("recompute", &self.recompute),
            ("max_memory", &self.max_memory),
        ];
        let given = settings
            .into_iter()
            .filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?)));
        given.collect()
    }

    /// The settings of a step that is measured.
    pub fn config(&self) -> Result<TrainConfig> {
        TrainConfig::parse("", self.settings()).map_err(Fail::usage)
    }

    /// Refuses them for what has a loss but no step: nothing waits there for a backward pass that could be saved.
    pub fn refuse_for_loss(&self, model: &str) -> Result<()> {
        match self.settings().is_empty() {
            true => Ok(()),
            false => Err(Fail::usage(format!(
                "{model} is a loss alone, without a step that --activations, --recompute and --max-memory could change"
            ))
            .hint("leave them out, or measure the network that is taught with it")),
        }
    }

    /// Refuses what only a training step can do.
    pub fn require(&self, train: bool) -> Result<()> {
        match train || self.settings().is_empty() {
            true => Ok(()),
            false => Err(Fail::usage(
                "--activations, --recompute and --max-memory are about training steps; add --train",
            )),
        }
    }
}

/// What a limit led to, in words.
pub fn describe(fitted: &Fitted) -> String {
    format!(
        "to stay within --max-memory a step computes again: {}; it takes {}",
        fitted.again,
        bytes(fitted.bytes)
    )
}
