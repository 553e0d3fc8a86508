//! The settings of a run: a TOML file, and `key=value` texts on top.

use std::collections::BTreeMap;

use percept_data::SettingError;
use percept_graph::Training;
use percept_models::LessonOptions;
use percept_samples::training::DataConfig;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::{Table, Value};

use crate::features::FeatureType;
use crate::{Activations, ByteLimit, Decay, Frozen, OptimiserConfig, Recomputed, Schedule};

/// Everything that decides what a run learns.
///
/// ```
/// use percept_train::TrainConfig;
/// let config = TrainConfig::parse("epochs = 3\n[schedule]\nrate = 0.1", ["optimiser.kind=adamw"])?;
/// assert_eq!((config.epochs, config.schedule.rate), (3, 0.1));
/// # Ok::<(), percept_train::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Passes over the data.
    pub epochs: u64,
    /// Samples in a step.
    pub batch: usize,
    /// Parts that a batch is worked through in, to save memory: their gradients are added up.
    pub parts: usize,
    /// The type in which values wait for the backward pass.
    pub activations: Activations,
    /// What the backward pass computes again instead of finding it kept.
    pub recompute: Recomputed,
    /// Memory that a step may take: as much is computed again as that needs.
    pub max_memory: Option<ByteLimit>,
    /// Side of what the network sees, where that has a size; its own when none.
    pub size: Option<usize>,
    /// What all random numbers come from: weights, order, augmentation, dropout.
    pub seed: u64,
    /// How parameters follow their gradients.
    pub optimiser: OptimiserConfig,
    /// The learning rate over the run.
    pub schedule: Schedule,
    /// Gradients whose common norm is larger are scaled down to it.
    pub clip_norm: Option<f32>,
    /// The share of a label that is spread over all classes.
    pub label_smoothing: f32,
    /// What is done to training samples: settings of the network's lesson.
    pub augment: serde_json::Map<String, serde_json::Value>,
    /// Parameters that stay as they are.
    pub freeze: Frozen,
    /// How features of frozen modules are kept.
    pub features: FeatureType,
    /// Epochs from one evaluation to the next; the last epoch is always followed by one.
    pub evaluate_every: u64,
    /// Evaluations without a better one after which the run stops; never when none.
    pub patience: Option<u64>,
    /// When checkpoints are written.
    pub checkpoint: CheckpointConfig,
    /// What is learned from.
    pub data: DataConfig,
    /// Weight files that parameters begin with, as `[SCOPE=]FILE`; what they lack begins as its layer declares.
    pub start: Vec<String>,
    /// Settings of the network, as its builder takes them.
    pub network: BTreeMap<String, String>,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            epochs: 10,
            batch: 32,
            parts: 1,
            activations: Activations::default(),
            recompute: Recomputed::default(),
            max_memory: None,
            size: None,
            seed: 0,
            optimiser: OptimiserConfig::default(),
            schedule: Schedule {
                rate: 0.05,
                warmup_epochs: 1.0,
                decay: Decay::Cosine { floor: 0.0 },
                ..Schedule::default()
            },
            clip_norm: None,
            label_smoothing: 0.0,
            augment: serde_json::Map::new(),
            freeze: Frozen::default(),
            features: FeatureType::default(),
            evaluate_every: 1,
            patience: None,
            checkpoint: CheckpointConfig::default(),
            data: DataConfig::default(),
            start: Vec::new(),
            network: BTreeMap::new(),
        }
    }
}

/// When checkpoints are written, beside those behind each evaluation and at the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Steps from one to the next.
    pub every_steps: Option<u64>,
    /// Seconds from one to the next.
    pub every_seconds: Option<f64>,
    /// How many of the newest stay; the best stays always.
    pub keep_last: usize,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            every_steps: None,
            every_seconds: Some(60.0),
            keep_last: 2,
        }
    }
}

/// What is wrong with the settings of a run.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file is no TOML, or names or values are not those of the settings.
    #[error("{0}")]
    Toml(String),
    /// A text that is no `key=value`.
    #[error("`{text}` is no setting; write key=value")]
    NotAPair {
        /// The text.
        text: String,
    },
    /// A value that makes no sense.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

impl TrainConfig {
    /// Reads a TOML text on top of the defaults, and `key=value` texts on top of that (`schedule.rate=0.1`).
    pub fn parse<S: AsRef<str>>(
        text: &str,
        set: impl IntoIterator<Item = S>,
    ) -> Result<Self, ConfigError> {
        Self::default().with(text, set)
    }

    /// The same with the settings of a TOML text and `key=value` texts on top.
    pub fn with<S: AsRef<str>>(
        &self,
        text: &str,
        set: impl IntoIterator<Item = S>,
    ) -> Result<Self, ConfigError> {
        let malformed =
            |error: toml::de::Error| ConfigError::Toml(error.to_string().trim().to_owned());
        let mut table = Table::try_from(self).map_err(|e| ConfigError::Toml(e.to_string()))?;
        merge(&mut table, text.parse::<Table>().map_err(malformed)?);
        for text in set {
            let text = text.as_ref();
            let pair = text.split_once('=').ok_or_else(|| ConfigError::NotAPair {
                text: text.to_owned(),
            })?;
            merge(&mut table, nested(pair.0.trim(), value(pair.1.trim())));
        }
        if let Some(Value::Table(network)) = table.get_mut("network") {
            network.iter_mut().for_each(|(_, value)| as_text(value));
        }
        let config: Self = table.try_into().map_err(|error: toml::de::Error| {
            ConfigError::Toml(error.message().trim().to_owned())
        })?;
        config.check()?;
        Ok(config)
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), SettingError> {
        for (setting, value) in [
            ("epochs", self.epochs),
            ("batch", self.batch as u64),
            ("evaluate_every", self.evaluate_every),
            ("checkpoint.keep_last", self.checkpoint.keep_last as u64),
        ] {
            SettingError::unless(value > 0, setting, value, "at least 1")?;
        }
        let is_fine = (1..=self.batch).contains(&self.parts);
        SettingError::unless(is_fine, "parts", self.parts, "1 to the batch")?;
        self.check_saving()?;
        for (setting, value) in [
            ("patience", self.patience),
            ("checkpoint.every_steps", self.checkpoint.every_steps),
            ("size", self.size.map(|side| side as u64)),
        ] {
            SettingError::unless(value != Some(0), setting, 0, "at least 1")?;
        }
        let is_fine = |seconds: f64| seconds >= 0.0;
        let seconds = self.checkpoint.every_seconds;
        let fine = seconds.is_none_or(is_fine);
        SettingError::unless(fine, "checkpoint.every_seconds", seconds, "0 or more")?;
        let is_fine = (0.0..1.0).contains(&self.label_smoothing);
        let smoothing = self.label_smoothing;
        SettingError::unless(is_fine, "label_smoothing", smoothing, "0 to below 1")?;
        let is_fine = self.clip_norm.is_none_or(|norm| norm > 0.0);
        SettingError::unless(is_fine, "clip_norm", self.clip_norm, "above 0")?;
        self.optimiser.check()?;
        let cycles = self.schedule.brings_momentum();
        let fits = !cycles || matches!(self.optimiser, OptimiserConfig::AdamW { .. });
        let one_of = "adamw, whose momentum a cycle moves";
        SettingError::unless(fits, "optimiser.kind", "sgd", one_of)?;
        self.schedule.check()
    }

    /// The rewrite that makes the training step.
    pub fn training(&self) -> Training {
        Training {
            optimiser: self.optimiser.optimiser(self.schedule.brings_momentum()),
            clip_norm: self.clip_norm,
        }
    }

    /// What the network's lesson takes of it.
    pub fn lesson_options(&self) -> LessonOptions {
        LessonOptions {
            size: self.size.map(|side| [side, side]),
            label_smoothing: self.label_smoothing,
            augment: self.augment.clone(),
        }
    }
}

/// `a.b` and a value as the table `[a]` with `b` inside.
fn nested(key: &str, value: Value) -> Table {
    match key.split_once('.') {
        Some((first, rest)) => Table::from_iter([(first.to_owned(), nested(rest, value).into())]),
        None => Table::from_iter([(key.to_owned(), value)]),
    }
}

/// A value as TOML reads it; what is none, such as a bare word, is a text.
fn value(text: &str) -> Value {
    let line = format!("value = {text}");
    let parsed = line.parse::<Table>().ok();
    let parsed = parsed.filter(|table| table.len() == 1);
    parsed
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The builder of a network reads texts, also of numbers.
fn as_text(value: &mut Value) {
    if !value.is_str() {
        *value = Value::String(value.to_string());
    }
}

/// Puts the settings of `over` on top. Another `kind` has other settings, so those of the old one go.
fn merge(base: &mut Table, over: Table) {
    if let (Some(new), Some(old)) = (over.get("kind"), base.get("kind"))
        && new != old
    {
        base.clear();
    }
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => merge(inner, value),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str, set: &[&str]) -> String {
        TrainConfig::parse(text, set).unwrap_err().to_string()
    }

    #[test]
    fn settings_come_from_defaults_then_the_file_then_texts() {
        let text = "batch = 16\n[optimiser]\nkind = \"sgd\"\nmomentum = 0.5\n[network]\nwidth = 8";
        let set = [
            "batch=4",
            "schedule.decay.kind=constant",
            "network.stem=half",
        ];
        let config = TrainConfig::parse(text, set).unwrap();
        assert_eq!((config.epochs, config.batch), (10, 4));
        assert_eq!(config.schedule.decay, Decay::Constant);
        let OptimiserConfig::Sgd { momentum, .. } = config.optimiser else {
            panic!("{:?}", config.optimiser)
        };
        assert_eq!(momentum, 0.5);
        let expected = [("stem", "half"), ("width", "8")];
        let network = config.network.iter();
        let network: Vec<_> = network.map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(network, expected);
    }

    #[test]
    fn another_kind_brings_its_own_settings() {
        let config =
            TrainConfig::parse("", ["optimiser.kind=adamw", "optimiser.eps=1e-6"]).unwrap();
        let expected = OptimiserConfig::AdamW {
            betas: [0.9, 0.999],
            eps: 1e-6,
            weight_decay: 0.0,
        };
        assert_eq!(config.optimiser, expected);
    }

    #[test]
    fn settings_survive_a_checkpoint() {
        let set = [
            "clip_norm=0.1",
            "seed=9",
            "schedule.rate=0.3",
            "patience=4",
            "freeze=conv1,layer1",
            "augment.crop.scale=[0.5, 1.0]",
        ];
        let config = TrainConfig::parse("", set).unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<TrainConfig>(&text).unwrap(), config);
        assert_eq!(config.with("", [""; 0]).unwrap(), config);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, set, expected) in [
            ("", "epochs=0", "epochs is 0: expected at least 1"),
            ("", "epochs=-1", "invalid value: integer `-1`"),
            ("", "batch=many", "invalid type: string \"many\""),
            ("", "epohcs=3", "unknown field `epohcs`"),
            ("", "schedule.rate=-1", "schedule.rate is -1.0"),
            ("", "optimiser.kind=lion", "unknown variant `lion`"),
            ("", "optimiser.momentum=1.5", "optimiser.momentum is 1.5"),
            ("", "schedule=fast", "expected struct Schedule"),
            ("", "label_smoothing=1", "label_smoothing is 1.0"),
            ("", "parts=33", "parts is 33: expected 1 to the batch"),
            ("", "epochs", "`epochs` is no setting; write key=value"),
            (
                "schedule.warmup_epochs = 0",
                "schedule.decay.kind=onecycle",
                "optimiser.kind is \"sgd\": expected adamw",
            ),
            ("epochs = ", "batch=1", "TOML parse error"),
            ("[schedule]\nrat = 1", "batch=1", "unknown field `rat`"),
        ] {
            let got = error(text, &[set]);
            assert!(got.contains(expected), "{text} {set}: {got}");
        }
    }
}
