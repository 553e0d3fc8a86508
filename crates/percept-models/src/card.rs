//! What a weight file says about itself: the network, its settings, its classes and the sizes of its inputs.
//!
//! percept writes the card into the metadata of every weight file that it makes, so that whoever reads the file needs no
//! setting again: a run of 16 classes at 64x64 pixels is described by its own checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use percept_data::{FileError, TensorSource, open_weights};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::intake::Sizes;
use crate::{Model, Setting, Settings, zoo};

/// The network that weights belong to, and how it was set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The network's name in the zoo.
    pub network: String,
    /// Every setting that it was built with.
    pub settings: BTreeMap<String, String>,
    /// The names of its classes, by index; empty where it tells none.
    #[serde(default)]
    pub classes: Vec<String>,
    /// Height and width of the parts of a sample that have a size, such as `image`.
    #[serde(default)]
    pub sizes: Sizes,
}

/// Why the card of a file cannot be used.
#[derive(Debug, Error)]
pub enum CardError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its metadata holds no card of ours.
    #[error("{path}: its card is damaged: {reason}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The weights are of another network.
    #[error("the weights are of `{found}`, not of `{asked}`")]
    OtherNetwork {
        /// The card's network.
        found: String,
        /// The network that was asked for.
        asked: String,
    },
    /// A setting contradicts the card.
    #[error("{name}={asked} contradicts the weights, which have {name}={found}")]
    Contradiction {
        /// The setting.
        name: String,
        /// Its value on the card.
        found: String,
        /// The value that was asked for.
        asked: String,
    },
}

impl Card {
    /// Where the card stands in a file's metadata.
    pub const KEY: &str = "percept.card";

    /// The card of a configured network with these classes.
    pub fn of(model: &Model, classes: Vec<String>) -> Self {
        let settings = model.settings.iter();
        Self {
            network: model.name.to_owned(),
            settings: settings.map(|(k, v)| (k.to_owned(), v)).collect(),
            classes,
            sizes: model.sizes.clone(),
        }
    }

    /// The card as metadata: its key and its text.
    pub fn metadata(&self) -> (String, String) {
        let text = serde_json::to_string(self).expect("texts and numbers are JSON");
        (Self::KEY.to_owned(), text)
    }

    /// The card of a weight file; none where the file has none, as those that others made.
    pub fn read(path: &Path) -> Result<Option<Self>, CardError> {
        Self::of_weights(&*open_weights(path)?)
    }

    /// The card of opened weights; none where they have none.
    pub fn of_weights(weights: &dyn TensorSource) -> Result<Option<Self>, CardError> {
        let damaged = |error: serde_json::Error| CardError::Damaged {
            path: weights.describe(),
            reason: error.to_string(),
        };
        let text = weights.metadata(Self::KEY);
        text.map(|text| serde_json::from_str(text).map_err(damaged))
            .transpose()
    }

    /// The settings to build `network` with: those of the card, among which the asked ones must be. Of weights that are whole
    /// along elastic axes, any part may be asked for; and what each run chooses may be anything.
    pub fn settings_for(&self, network: &str, asked: &Settings) -> Result<Settings, CardError> {
        if self.network != network {
            return Err(CardError::OtherNetwork {
                found: self.network.clone(),
                asked: network.to_owned(),
            });
        }
        let declared = zoo::find(network).map_or(&[][..], |entry| entry.settings);
        let is_free = |name: &str, value: &str| {
            let setting = declared.iter().find(|setting| setting.name == name);
            let is_whole = |s: &Setting| s.is_elastic() && s.default_text() == value;
            setting.is_some_and(|s| s.is_of_run || is_whole(s))
        };
        let mut settings = asked.clone();
        for (name, found) in &self.settings {
            match asked.get(name) {
                Some(_) if is_free(name, found) => {}
                Some(value) if value != found => {
                    return Err(CardError::Contradiction {
                        name: name.clone(),
                        found: found.clone(),
                        asked: value.to_owned(),
                    });
                }
                _ => settings = settings.with(name, found),
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use percept_data::safetensors::write_safetensors;

    use super::*;

    fn card() -> Card {
        let settings = Settings::parse(["classes=3", "width=8"]).unwrap();
        let model = zoo::build("resnet18", &settings).unwrap();
        Card::of(&model, ["a", "b", "c"].map(str::to_owned).to_vec())
    }

    #[test]
    fn what_each_run_chooses_may_differ_from_the_card() {
        let model = zoo::build("randlanet", &Settings::parse(["grid=0.2"]).unwrap()).unwrap();
        let card = Card::of(&model, Vec::new());
        let asked = Settings::parse(["votes=2"]).unwrap();
        let settings = card.settings_for("randlanet", &asked).unwrap();
        assert_eq!(
            (settings.get("votes"), settings.get("grid")),
            (Some("2"), Some("0.2"))
        );
        let asked = Settings::parse(["neighbours=8"]).unwrap();
        assert!(card.settings_for("randlanet", &asked).is_err());
    }

    fn written(metadata: &BTreeMap<String, String>) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        write_safetensors(&path, &[], metadata).unwrap();
        (folder, path)
    }

    #[test]
    fn a_card_survives_its_file() {
        let (_folder, path) = written(&BTreeMap::from([card().metadata()]));
        assert_eq!(Card::read(&path).unwrap(), Some(card()));
        let (_folder, path) = written(&BTreeMap::new());
        assert_eq!(Card::read(&path).unwrap(), None);
        let torn = BTreeMap::from([(Card::KEY.to_owned(), "{\"network\":".to_owned())]);
        let (_folder, path) = written(&torn);
        let error = Card::read(&path).unwrap_err().to_string();
        assert!(error.contains("its card is damaged"), "{error}");
    }

    #[test]
    fn settings_come_from_the_card_and_contradictions_name_both() {
        let none = Settings::none();
        let settings = card().settings_for("resnet18", &none).unwrap();
        assert_eq!(settings.get("width"), Some("8"));
        let part = Settings::parse(["widths=1,2,3,4"]).unwrap();
        let settings = card().settings_for("resnet18", &part).unwrap();
        assert_eq!(settings.get("widths"), Some("1,2,3,4"));
        let same = Settings::parse(["classes=3"]).unwrap();
        assert!(card().settings_for("resnet18", &same).is_ok());
        let other = Settings::parse(["classes=4"]).unwrap();
        let error = card().settings_for("resnet18", &other).unwrap_err();
        assert_eq!(
            error.to_string(),
            "classes=4 contradicts the weights, which have classes=3"
        );
        let error = card().settings_for("resnet34", &none).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the weights are of `resnet18`, not of `resnet34`"
        );
    }
}
