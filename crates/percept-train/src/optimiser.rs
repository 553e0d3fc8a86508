//! The optimiser of a run, as its settings name it.

use percept_data::SettingError;
use percept_graph::{AdamW, Optimiser, Sgd};
use serde::{Deserialize, Serialize};

/// An optimiser and its constants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
#[allow(missing_docs)]
pub enum OptimiserConfig {
    /// Stochastic gradient descent.
    Sgd {
        #[serde(default)]
        momentum: f32,
        #[serde(default)]
        weight_decay: f32,
        #[serde(default)]
        nesterov: bool,
    },
    /// Adam with decoupled weight decay.
    AdamW {
        #[serde(default = "default_betas")]
        betas: [f32; 2],
        #[serde(default = "default_eps")]
        eps: f32,
        #[serde(default)]
        weight_decay: f32,
    },
}

fn default_betas() -> [f32; 2] {
    AdamW::default().betas
}

fn default_eps() -> f32 {
    AdamW::default().eps
}

impl Default for OptimiserConfig {
    fn default() -> Self {
        Self::Sgd {
            momentum: 0.9,
            weight_decay: 5e-4,
            nesterov: false,
        }
    }
}

impl OptimiserConfig {
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        let share = |setting, value: f32| {
            SettingError::unless((0.0..1.0).contains(&value), setting, value, "0 to below 1")
        };
        let decay = match *self {
            Self::Sgd {
                momentum,
                weight_decay,
                ..
            } => {
                share("optimiser.momentum", momentum)?;
                weight_decay
            }
            Self::AdamW {
                betas,
                eps,
                weight_decay,
            } => {
                share("optimiser.betas", betas[0])?;
                share("optimiser.betas", betas[1])?;
                SettingError::unless(eps > 0.0, "optimiser.eps", eps, "above 0")?;
                weight_decay
            }
        };
        let is_fine = decay >= 0.0 && decay.is_finite();
        SettingError::unless(is_fine, "optimiser.weight_decay", decay, "0 or more")
    }

    /// The optimiser; `given_momentum` where the schedule brings the momentum of each step.
    pub(crate) fn optimiser(self, given_momentum: bool) -> Optimiser {
        match self {
            Self::Sgd {
                momentum,
                weight_decay,
                nesterov,
            } => Optimiser::Sgd(Sgd {
                momentum,
                weight_decay,
                nesterov,
            }),
            Self::AdamW {
                betas,
                eps,
                weight_decay,
            } => Optimiser::AdamW(AdamW {
                betas,
                eps,
                weight_decay,
                given_momentum,
            }),
        }
    }
}
