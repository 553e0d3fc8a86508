//! What `train` and `eval` share: settings from files and options, the network that learns, its data, and whose mistake
//! an error is.

use std::path::{Path, PathBuf};

use percept_data::loader::LoaderError;
use percept_models::Model;
use percept_models::zoo::{self, Entry};
use percept_train::checkpoint::CheckpointError;
use percept_train::{
    ConfigError, DataError, Learner, LearnerError, Snapshot, TrainConfig, TrainData, TrainError,
    settings_of,
};

use crate::fail::{Blame, Exit, Fail, Result};
use crate::model;

/// What birds are learned with when nobody says otherwise.
pub const BIRDS: &str = include_str!("../configs/birds.toml");

/// Where the settings of a run come from, the later over the earlier: `base`, a TOML file, `--set`, options of their own.
pub struct Sources<'a> {
    /// Network, as `percept models` lists them.
    pub model: &'a str,
    /// The settings of a checkpoint; the defaults when none.
    pub base: Option<TrainConfig>,
    /// A TOML file.
    pub file: Option<&'a Path>,
    /// `KEY=VALUE` texts; a key of the network configures it, others configure the run.
    pub set: Vec<String>,
    /// A folder of pictures.
    pub data: Option<PathBuf>,
    /// Settings in TOML, below all others, where the pictures are the built-in birds.
    pub birds: &'a str,
}

/// A run that is settled: what learns, from what, how.
pub struct Settled {
    pub model: Model,
    pub learner: Learner,
    pub data: TrainData,
    pub config: TrainConfig,
}

/// Settles everything that a run or an evaluation needs.
pub fn settle(sources: Sources<'_>) -> Result<Settled> {
    let entry = zoo::find(sources.model).map_err(|_| unknown(sources.model))?;
    let mut config = sources.config(entry)?;
    let data = config
        .data
        .open(config.seed, config.size)
        .map_err(blame_data)?;
    let classes = data.training.classes().len();
    if entry
        .settings
        .iter()
        .any(|setting| setting.name == "classes")
    {
        let classes = || classes.to_string();
        config
            .network
            .entry("classes".to_owned())
            .or_insert_with(classes);
    }
    let texts = config
        .network
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let model = model::build(sources.model, &texts.collect::<Vec<_>>())?;
    let learner = learner(&model, &config)?;
    Ok(Settled {
        model,
        learner,
        data,
        config,
    })
}

/// The network with its loss.
fn learner(model: &Model, config: &TrainConfig) -> Result<Learner> {
    let size = config.size.map(|side| [side, side]);
    Learner::classifier(model, config.label_smoothing, size).map_err(|error| match error {
        LearnerError::Graph(error) => Fail::from(error),
        error @ LearnerError::OwnLoss { .. } => Fail::usage(error).hint("leave it out"),
        error @ LearnerError::NotAClassifier { .. } => {
            Fail::usage(error).hint("`percept models` lists those whose task is to classify")
        }
    })
}

fn unknown(name: &str) -> Fail {
    // The zoo's own error, with the nearest name as a hint.
    match model::build(name, &[]) {
        Err(fail) => fail,
        Ok(_) => Fail::usage(format!("no model is named `{name}`")),
    }
}

impl Sources<'_> {
    fn config(&self, entry: &Entry) -> Result<TrainConfig> {
        let text = match self.file {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
                .bad_input()?,
            None => String::new(),
        };
        let is_networks = |key: &str| entry.settings.iter().any(|setting| setting.name == key);
        let set: Vec<String> = self
            .set
            .iter()
            .map(|text| match text.split_once('=') {
                Some((key, _)) if is_networks(key.trim()) => format!("network.{text}"),
                _ => text.clone(),
            })
            .collect();
        let with = |base: &TrainConfig| {
            let mut config = base
                .with(&text, &set)
                .map_err(|error| self.blame_config(error))?;
            if let Some(folder) = &self.data {
                config.data.folder = Some(folder.clone());
            }
            Ok(config)
        };
        if let Some(base) = &self.base {
            return with(base);
        }
        let config = with(&TrainConfig::default())?;
        if config.data.folder.is_some() {
            return Ok(config);
        }
        let mut birds = TrainConfig::parse(self.birds, [""; 0]).bug()?;
        birds.network.retain(|key, _| is_networks(key));
        with(&birds)
    }

    fn blame_config(&self, error: ConfigError) -> Fail {
        match (self.file, &error) {
            (Some(path), ConfigError::Toml(_)) if self.set.is_empty() => {
                Fail::bad_input(format!("{}: {error}", path.display()))
            }
            _ => Fail::usage(error).hint(format!(
                "`percept models {}` lists the network's settings, `percept train --help` those of a run",
                self.model
            )),
        }
    }
}

/// The settings of the run that a checkpoint belongs to; none when the file is no checkpoint of a run.
pub fn settings_of_checkpoint(path: &Path) -> Result<Option<TrainConfig>> {
    match Snapshot::read(path) {
        Ok(snapshot) => Ok(settings_of(&snapshot.state)),
        Err(CheckpointError::NotACheckpoint { .. } | CheckpointError::File(_)) => Ok(None),
        Err(error) => Err(blame(error.into())),
    }
}

fn blame_data(error: DataError) -> Fail {
    match error {
        DataError::Dataset(error) => Fail::bad_input(error),
        DataError::Setting(error) => Fail::usage(error),
    }
}

/// Whose mistake an error of a run is, and what can be done.
pub fn blame(error: TrainError) -> Fail {
    let hint = match &error {
        TrainError::RunExists { .. } => {
            Some("--resume goes on with it; --out names another folder")
        }
        TrainError::OtherRun { .. } => {
            Some("leave the setting as it was, or begin a new run in another folder (--out)")
        }
        TrainError::Checkpoint(CheckpointError::OtherModel { .. }) => {
            Some("name the network of that run, or another folder (--out)")
        }
        TrainError::Checkpoint(error) if error.is_disk_full() => {
            Some("earlier checkpoints are whole: make room, then go on with --resume")
        }
        TrainError::Loader(LoaderError::BadImage(_)) => Some("without --strict it is skipped"),
        TrainError::Classes { .. } => Some("leave `classes` out, and it is taken from the data"),
        TrainError::NotFinite { .. } => {
            Some("a lower schedule.rate, more schedule.warmup_epochs or clip_norm=1 often help")
        }
        _ => None,
    };
    let fail = match error {
        TrainError::NotFinite { .. } => Fail {
            exit: Exit::CheckFailed,
            ..Fail::usage(error)
        },
        TrainError::Engine(error) => error.into(),
        TrainError::Graph(error) => error.into(),
        TrainError::Setting(_)
        | TrainError::Cpu(_)
        | TrainError::RunExists { .. }
        | TrainError::OtherRun { .. }
        | TrainError::Classes { .. }
        | TrainError::Checkpoint(CheckpointError::OtherModel { .. })
        | TrainError::Loader(LoaderError::Setting(_) | LoaderError::TooLarge { .. }) => {
            Fail::usage(error)
        }
        TrainError::Loader(LoaderError::WorkerDied)
        | TrainError::Checkpoint(CheckpointError::WriterDied) => Fail {
            exit: Exit::Bug,
            ..Fail::usage(error)
        },
        error => Fail::bad_input(error),
    };
    match hint {
        Some(hint) => fail.hint(hint),
        None => fail,
    }
}
