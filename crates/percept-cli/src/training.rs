//! What `train` and `eval` share: settings from files and options, the network that learns, its data, and whose mistake
//! an error is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use percept_data::loader::LoaderError;
use percept_data::safetensors::Safetensors;
use percept_models::zoo::{self, Entry};
use percept_models::{Card, Course, LessonError, LessonOptions, Model, Settings, nearest_of};
use percept_samples::training::{DataError, TrainData};
use percept_train::checkpoint::CheckpointError;
use percept_train::features::{CutLesson, FeatureOptions};
use percept_train::{
    ConfigError, Frozen, InitialParameters, Learner, Snapshot, TrainConfig, TrainError, settings_of,
};

use crate::fail::{Blame, Exit, Fail, Result};
use crate::model::{self, ModelArgs};

/// Where the settings of a run come from, the later over the earlier: `base`, a TOML file, `--set`, options of their own.
pub struct Sources<'a> {
    /// Network, as `percept models` lists them.
    pub model: &'a str,
    /// The settings of a checkpoint; the defaults when none.
    pub base: Option<TrainConfig>,
    /// A TOML file.
    pub file: Option<&'a Path>,
    /// The card of the weights, where they have one: the network is as it says.
    pub card: Option<Card>,
    /// `KEY=VALUE` texts; a key of the network configures it, others configure the run.
    pub set: Vec<String>,
    /// A folder of samples.
    pub data: Option<PathBuf>,
    /// Weight files to begin with, as `[SCOPE=]FILE`.
    pub start: Vec<String>,
    /// Whether the settings that suit the built-in data stand below all others, where that is what is learned from.
    pub suits_built_in: bool,
}

/// A run that is settled: what learns, from what, how.
pub struct Settled {
    pub model: Model,
    pub learner: Learner,
    pub data: TrainData,
    /// What is learned from where no folder is named.
    pub built_in: &'static str,
    /// How long it took to open the data, or to render them.
    pub opening: Duration,
    pub config: TrainConfig,
}

/// Settles everything that a run or an evaluation needs.
pub fn settle(sources: Sources<'_>) -> Result<Settled> {
    let entry = model::find(sources.model)?;
    let course = course(entry)?;
    let mut config = sources.config(entry, &course)?;
    if let Some(card) = &sources.card {
        describe_by(card, entry, &sources.set, &mut config)?;
    }
    let looks = config.network.get("direction");
    if let Some(direction) =
        looks.and_then(|text| serde_json::from_value(text.as_str().into()).ok())
    {
        config.data.pairs.direction = direction;
    }
    let begun = Instant::now();
    let data = config
        .data
        .open(course.data, config.seed, config.size)
        .map_err(blame_data)?;
    let opening = begun.elapsed();
    let classes = data.training.classes();
    let mut settings = entry.settings.iter();
    if settings.any(|setting| setting.name == "classes") {
        let network = &mut config.network;
        let of_network = network.entry("classes".to_owned());
        of_network.or_insert_with(|| classes.len().to_string());
    }
    let texts = config
        .network
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let model = model::build(sources.model, &texts.collect::<Vec<_>>())?;
    let options = config.lesson_options();
    let learner = Learner::new(&model, &course, &options, classes).map_err(blame_lesson)?;
    Ok(Settled {
        model,
        learner,
        data,
        built_in: course.data.built_in(),
        opening,
        config,
    })
}

/// Settles what is needed to judge a network by its metric: as its checkpoint or its card says.
pub fn settle_judged(network: &ModelArgs, data: Option<PathBuf>) -> Result<Settled> {
    settle_by(network, network.card()?, data)
}

/// Settles what is needed to judge answers that somebody else's network gave: no weights have a say in it.
pub fn settle_answers(network: &ModelArgs, data: Option<PathBuf>) -> Result<Settled> {
    settle_by(network, None, data)
}

fn settle_by(network: &ModelArgs, card: Option<Card>, data: Option<PathBuf>) -> Result<Settled> {
    let base = network.whole_file().map(settings_of_checkpoint);
    settle(Sources {
        model: &network.model,
        base: base.transpose()?.flatten(),
        card,
        file: None,
        set: network.settings(),
        data,
        start: Vec::new(),
        suits_built_in: true,
    })
}

/// Sets a network up as the card of its weights says; a setting of the user's that contradicts it is an error.
fn describe_by(card: &Card, entry: &Entry, set: &[String], config: &mut TrainConfig) -> Result<()> {
    let given = || set.iter().filter_map(|text| text.split_once('='));
    let of_network = given().filter_map(|(key, value)| {
        let key = key.trim();
        let key = key.strip_prefix("network.").unwrap_or(key);
        let is_networks = entry.settings.iter().any(|setting| setting.name == key);
        is_networks.then_some((key, value.trim()))
    });
    let asked = of_network.fold(Settings::none(), |asked, (k, v)| asked.with(k, v));
    card.settings_for(entry.name, &asked)
        .map_err(|error| Fail::usage(error).hint("leave the setting out"))?;
    let settled = card.settings.iter();
    let settled = settled.filter(|(name, _)| asked.get(name).is_none());
    let settled = settled.map(|(name, value)| (name.clone(), value.clone()));
    config.network.extend(settled);
    let has_size = given().any(|(key, _)| key.trim() == "size");
    if let Some([side, _]) = card.sizes.values().next().filter(|_| !has_size) {
        config.size = Some(*side);
    }
    Ok(())
}

/// How a network of the zoo is taught.
pub fn course(entry: &'static Entry) -> Result<Course> {
    entry.course.ok_or_else(|| {
        let error = LessonError::NoLesson { model: entry.name };
        blame_lesson(error)
    })
}

/// A network as it learns with no settings of its own, to be measured: without what it freezes, which would be kept.
pub fn rehearsing(model: &Model, size: Option<[usize; 2]>) -> Result<Learner> {
    let course = course(model::find(model.name)?)?;
    let options = LessonOptions {
        size,
        ..LessonOptions::default()
    };
    let mut learner = Learner::unjudged(model, &course, &options).map_err(blame_lesson)?;
    let weights = Arc::new(InitialParameters::of(&learner, 0)) as _;
    let frozen = Frozen::modules(course.frozen.iter().copied());
    let cut = CutLesson::new(
        &learner.lesson,
        &frozen,
        &weights,
        &FeatureOptions::nowhere(),
    );
    if let Some(cut) = cut.map_err(crate::features::blame)? {
        learner.lesson = Arc::new(cut);
    }
    Ok(learner)
}

/// Whose mistake it is that a network cannot be taught or judged.
pub fn blame_lesson(error: LessonError) -> Fail {
    match error {
        LessonError::Graph(error) => Fail::from(error),
        error @ LessonError::OwnLoss { .. } => Fail::usage(error).hint("leave it out"),
        error @ (LessonError::NoLesson { .. } | LessonError::NotAClassifier { .. }) => {
            let taught = zoo::entries().filter(|entry| entry.course.is_some());
            let taught: Vec<&str> = taught.map(|entry| entry.name).collect();
            Fail::usage(error).hint(format!("those that can be trained: {}", taught.join(", ")))
        }
        error @ LessonError::Classes { .. } => {
            Fail::usage(error).hint("leave `classes` out, and it is taken from the data")
        }
        error @ LessonError::Answers(_) => Fail::bad_input(error),
        error => Fail::usage(error),
    }
}

impl Sources<'_> {
    fn config(&self, entry: &Entry, course: &Course) -> Result<TrainConfig> {
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
            if !self.start.is_empty() {
                config.start = self.start.clone();
            }
            if config.freeze.is_empty() {
                config.freeze = Frozen::modules(course.frozen.iter().copied());
            }
            Ok(config)
        };
        if let Some(base) = &self.base {
            return with(base);
        }
        // Settings that suit the built-in data may be what makes the user's make sense: a mistake is looked for behind them.
        let config = with(&TrainConfig::default());
        let names_folder = |config: &TrainConfig| config.data.folder.is_some();
        if self.data.is_some() || !self.suits_built_in || config.as_ref().is_ok_and(names_folder) {
            return config;
        }
        let mut suiting = TrainConfig::parse(course.built_in, [""; 0]).bug()?;
        suiting.network.retain(|key, _| is_networks(key));
        with(&suiting)
    }

    fn blame_config(&self, error: ConfigError) -> Fail {
        match (self.file, &error) {
            (Some(path), ConfigError::Toml(_)) if self.set.is_empty() => {
                Fail::bad_input(format!("{}: {error}", path.display()))
            }
            _ => Fail::usage(briefly(&error)).hint(format!(
                "`percept models {}` lists the network's settings, `percept train --help` those of a run",
                self.model
            )),
        }
    }
}

/// What is wrong with settings, in one line: of the names that there are, the nearest.
fn briefly(error: &ConfigError) -> String {
    let text = error.to_string();
    let Some((unknown, known)) = text.split_once(", expected one of ") else {
        return text;
    };
    let Some((before, name)) = unknown.trim_end_matches('`').rsplit_once('`') else {
        return text;
    };
    let known = known.split('`').skip(1).step_by(2);
    let near: Vec<String> = nearest_of(name, known, 3)
        .into_iter()
        .map(|name| format!("`{name}`"))
        .collect();
    let before = before.replace("unknown field ", "there is no setting ");
    format!("{before}`{name}`; the nearest are {}", near.join(", "))
}

/// Where weights that were made of a checkpoint keep the settings of its run.
pub const SETTINGS_KEY: &str = "percept.settings";

/// The settings of the run that a checkpoint belongs to, or that weights were made of; none when the file knows of no run.
pub fn settings_of_checkpoint(path: &Path) -> Result<Option<TrainConfig>> {
    match Snapshot::read(path) {
        Ok(snapshot) => Ok(settings_of(&snapshot.state)),
        Err(CheckpointError::NotACheckpoint { .. } | CheckpointError::File(_)) => {
            Ok(kept_settings(path))
        }
        Err(error) => Err(blame(error.into())),
    }
}

fn kept_settings(path: &Path) -> Option<TrainConfig> {
    let file = Safetensors::open(path).ok()?;
    serde_json::from_str(file.metadata().get(SETTINGS_KEY)?).ok()
}

/// The settings of the run that weights come from, as metadata of what is made of them.
pub fn settings_to_keep(path: &Path) -> Result<Option<(String, String)>> {
    let settings = settings_of_checkpoint(path)?;
    let text = settings.and_then(|settings| serde_json::to_string(&settings).ok());
    Ok(text.map(|text| (SETTINGS_KEY.to_owned(), text)))
}

fn blame_data(error: DataError) -> Fail {
    match error {
        DataError::Dataset(error) => Fail::bad_input(error),
        DataError::Points(error) => Fail::bad_input(error),
        DataError::Open(error) => Fail::bad_input(error),
        DataError::Machine(error) => Fail::usage(error),
        DataError::Setting(error) => Fail::usage(error),
        error @ DataError::Store(_) => Fail::bad_input(error),
        error @ DataError::NoFolder { .. } => Fail::usage(error),
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
        TrainError::Loader(LoaderError::BadSample(_)) => Some("without --strict it is skipped"),
        TrainError::MemoryLimit { .. } => Some(
            "--activations f16, a smaller batch, or a batch in parts (--set parts=2) takes less",
        ),
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
        TrainError::Lesson(error @ LessonError::Asked(_)) => Fail::bad_input(error),
        TrainError::Lesson(error) => return blame_lesson(error),
        TrainError::Setting(_)
        | TrainError::Cpu(_)
        | TrainError::RunExists { .. }
        | TrainError::OtherRun { .. }
        | TrainError::UnknownModule { .. }
        | TrainError::UnknownRecomputed { .. }
        | TrainError::MemoryLimit { .. }
        | TrainError::AllFrozen
        | TrainError::Checkpoint(CheckpointError::OtherModel { .. })
        | TrainError::Loader(LoaderError::Setting(_)) => Fail::usage(error),
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
