//! A user's own classes: what label files call each, its name and its colour, from a JSON file.
//!
//! ```json
//! {"0": "nothing", "10": {"name": "car", "color": [100, 150, 245]}, "40": {"name": "road", "color": "#ff00ff"}}
//! ```
//!
//! Ids ascend with the classes of the network: the smallest above 0 is its first class. 0 is what is left out, and need not stand
//! in the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use thiserror::Error;

use super::PointLabels;

/// Names, colours and ids of the classes of a network, the one that is left out first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassFile {
    ids: Arc<[u16]>,
    names: Arc<[String]>,
    /// Empty where no class has one.
    colours: Arc<[[u8; 3]]>,
}

/// Why a file does not tell classes.
#[derive(Debug, Error)]
pub enum ClassFileError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no JSON object of names and colours.
    #[error("{path}: {reason}; expected {{\"ID\": {{\"name\": .., \"color\": [R, G, B]}}, ..}}")]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A key is no id.
    #[error("{path}: `{key}` is no id; expected a whole number from 0 to 65535")]
    Id {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// Two keys are the same id.
    #[error("{path}: id {id} stands there twice")]
    Twice {
        /// The file.
        path: PathBuf,
        /// The id.
        id: u16,
    },
    /// Some classes have a colour and this one has none, or it is none.
    #[error("{path}: id {id}: {reason}")]
    Colour {
        /// The file.
        path: PathBuf,
        /// The class.
        id: u16,
        /// What is wrong.
        reason: String,
    },
    /// The network has another number of classes.
    #[error("{path} tells {given} classes beside id 0, the network has {outputs}")]
    Count {
        /// The file.
        path: PathBuf,
        /// Ids above 0.
        given: usize,
        /// Classes of the network.
        outputs: usize,
    },
}

/// More bytes than the names of 65,536 classes take.
const MOST_BYTES: u64 = 16 << 20;

#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    Name(String),
    Both(Both),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Both {
    name: String,
    #[serde(alias = "colour")]
    color: Option<Colour>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Colour {
    Numbers([u8; 3]),
    Text(String),
}

impl Colour {
    fn rgb(&self) -> Result<[u8; 3], String> {
        match self {
            Self::Numbers(rgb) => Ok(*rgb),
            Self::Text(text) => {
                let bad = || format!("`{text}` is no colour; write #rrggbb or [R, G, B]");
                let digits = text.strip_prefix('#').filter(|digits| {
                    digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
                });
                let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                let [_, r, g, b] = number.ok_or_else(bad)?.to_be_bytes();
                Ok([r, g, b])
            }
        }
    }
}

impl ClassFile {
    /// Reads the classes of a network with so many.
    pub fn read(path: &Path, outputs: usize) -> Result<Self, ClassFileError> {
        let io = |source| ClassFileError::Io {
            path: path.to_path_buf(),
            source,
        };
        let bytes = std::fs::metadata(path).map_err(io)?.len();
        if bytes > MOST_BYTES {
            return Err(ClassFileError::Json {
                path: path.to_path_buf(),
                reason: format!("{bytes} bytes are too many"),
            });
        }
        Self::parse(&std::fs::read(path).map_err(io)?, path, outputs)
    }

    /// The same of bytes; `path` is what errors call them.
    pub fn parse(bytes: &[u8], path: &Path, outputs: usize) -> Result<Self, ClassFileError> {
        let path = path.to_path_buf();
        let told: BTreeMap<String, Told> = match serde_json::from_slice(bytes) {
            Ok(told) => told,
            Err(error) => {
                let reason = error.to_string();
                return Err(ClassFileError::Json { path, reason });
            }
        };
        let mut classes = BTreeMap::new();
        for (key, told) in told {
            let Ok(id) = key.trim().parse::<u16>() else {
                return Err(ClassFileError::Id { path, key });
            };
            let both = match told {
                Told::Name(name) => Both { name, color: None },
                Told::Both(both) => both,
            };
            if classes.insert(id, both).is_some() {
                return Err(ClassFileError::Twice { path, id });
            }
        }
        let nothing = || Both {
            name: "unlabeled".to_owned(),
            color: Some(Colour::Numbers([0; 3])),
        };
        let is_told = classes.contains_key(&0);
        let nothing = classes.remove(&0).unwrap_or_else(nothing);
        if classes.len() != outputs {
            let given = classes.len();
            return Err(ClassFileError::Count {
                path,
                given,
                outputs,
            });
        }
        let is_coloured = classes.values().any(|class| class.color.is_some())
            || is_told && nothing.color.is_some();
        classes.insert(0, nothing);
        let mut colours = Vec::new();
        for (&id, class) in classes.iter().filter(|_| is_coloured) {
            let colour = match &class.color {
                Some(colour) => colour.rgb(),
                // What is left out is drawn black.
                None if id == 0 => Ok([0; 3]),
                None => Err("it has no colour, and others have one".to_owned()),
            };
            match colour {
                Ok(rgb) => colours.push(rgb),
                Err(reason) => return Err(ClassFileError::Colour { path, id, reason }),
            }
        }
        Ok(Self {
            ids: classes.keys().copied().collect(),
            names: classes.into_values().map(|class| class.name).collect(),
            colours: colours.into(),
        })
    }

    /// Calls the classes of an answer as this file does.
    pub fn apply(&self, labels: &mut PointLabels) {
        labels.names = Arc::clone(&self.names);
        labels.raw_ids = Arc::clone(&self.ids);
        labels.colours = Arc::clone(&self.colours);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str, outputs: usize) -> Result<ClassFile, String> {
        let path = Path::new("own.json");
        ClassFile::parse(text.as_bytes(), path, outputs).map_err(|error| error.to_string())
    }

    #[test]
    fn ids_ascend_with_the_classes() {
        let text = r##"{"40": {"name": "road", "color": "#ff00Fa"}, "9": {"name": "car", "colour": [1, 2, 3]}}"##;
        let file = parsed(text, 2).unwrap();
        let mut labels = PointLabels {
            classes: vec![0, 1, 2],
            confidence: vec![1.0; 3],
            names: [].into(),
            raw_ids: [].into(),
            colours: [].into(),
        };
        file.apply(&mut labels);
        assert_eq!(labels.raw(), [0, 9, 40]);
        assert_eq!(labels.names[..], ["unlabeled", "car", "road"]);
        assert_eq!(labels.colours[..], [[0; 3], [1, 2, 3], [255, 0, 250]]);
        let file = parsed(r#"{"0": "other", "1": "grass"}"#, 1).unwrap();
        file.apply(&mut labels);
        assert_eq!(labels.names[..], ["other", "grass"]);
        assert!(labels.colours.is_empty());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let rows = [
            ("[1]", 1, "own.json: invalid type"),
            ("{\"1\": 5}", 1, "own.json: data did not match"),
            ("{\"x\": \"a\"}", 1, "`x` is no id"),
            ("{\"70000\": \"a\"}", 1, "`70000` is no id"),
            (
                "{\"1\": \"a\", \"01\": \"b\"}",
                2,
                "id 1 stands there twice",
            ),
            (
                "{\"1\": \"a\"}",
                2,
                "tells 1 classes beside id 0, the network has 2",
            ),
            (
                r##"{"1": {"name": "a", "color": "#12345"}}"##,
                1,
                "`#12345` is no colour",
            ),
            (
                r#"{"1": {"name": "a", "color": [1, 2, 3]}, "2": "b"}"#,
                2,
                "id 2: it has no colour",
            ),
            (
                r#"{"1": {"name": "a", "color": [1, 2, 300]}}"#,
                1,
                "own.json",
            ),
        ];
        for (text, outputs, expected) in rows {
            let error = parsed(text, outputs).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let missing = ClassFile::read(Path::new("no/such.json"), 1).unwrap_err();
        assert!(missing.to_string().starts_with("no/such.json"));
    }

    const WHOLE: &str = r##"{"0": "nothing", "10": {"name": "car", "color": [100, 150, 245]}, "40": {"name": "r", "color": "#ff00ff"}}"##;

    proptest! {
        #[test]
        fn damaged_files_are_read_or_refused(
            cut in 0..WHOLE.len(), at in 0..WHOLE.len(), byte in any::<u8>(), outputs in 0usize..4,
        ) {
            let path = Path::new("x.json");
            let _ = ClassFile::parse(&WHOLE.as_bytes()[..cut], path, outputs);
            let mut changed = WHOLE.as_bytes().to_vec();
            changed[at] = byte;
            if let Ok(file) = ClassFile::parse(&changed, path, outputs) {
                prop_assert_eq!(file.ids.len(), outputs + 1);
                prop_assert_eq!(file.names.len(), outputs + 1);
                prop_assert!(file.colours.is_empty() || file.colours.len() == outputs + 1);
            }
        }

        #[test]
        fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(ClassFile::parse(&bytes, Path::new("x.json"), 2).is_err());
        }
    }
}
