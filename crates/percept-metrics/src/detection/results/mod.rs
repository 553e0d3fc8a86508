//! Files of predictions in the layout that nuScenes takes for submission.
//!
//! `{"meta": {"use_camera": .., ..}, "results": {frame: [box, ..], ..}}`; a box has `sample_token`, `translation`,
//! `size` (width, length, height), `rotation` (w, x, y, z), `velocity`, `detection_name`, `detection_score` and
//! `attribute_name` (`""` for none). Frames keep the order of the file, which decides between equal scores.
//!
//! A file is read box by box, and refused at the first frame with too many of them. An unknown velocity is `NaN` as
//! Python writes it, which is no JSON, or `null`.

mod box_record;
mod not_a_number;

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::boxes::FramePredictions;
use super::filter::MAX_BOXES;
pub(super) use box_record::BoxRecord;
use not_a_number::{NanAsNull, NullAsNan};

/// What the predictions were made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Sources {
    pub use_camera: bool,
    pub use_lidar: bool,
    pub use_radar: bool,
    pub use_map: bool,
    pub use_external: bool,
}

/// A file of predictions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// What they were made from.
    pub sources: Sources,
    /// In the order of the file.
    pub frames: Vec<FramePredictions>,
}

/// Why a file of predictions cannot be read or written.
#[derive(Debug, Error)]
pub enum ResultsError {
    /// The file cannot be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It does not hold predictions.
    #[error("{}: not a file of nuScenes detections: {source}", path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
}

impl Results {
    /// Reads `path`.
    pub fn read(path: &Path) -> Result<Self, ResultsError> {
        let file = File::open(path).map_err(|source| ResultsError::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::from_reader(BufReader::new(file)).map_err(|source| {
            let path = path.to_owned();
            if source.is_io() {
                let source = source.into();
                return ResultsError::Io { path, source };
            }
            ResultsError::Layout { path, source }
        })
    }

    /// Reads a file's contents.
    pub fn from_reader(contents: impl Read) -> Result<Self, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_reader(NanAsNull::new(contents));
        let results = Self::deserialize(&mut reader)?;
        reader.end()?;
        Ok(results)
    }

    /// Writes `path`, beside it first, so that the file is there whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), ResultsError> {
        let io = |source| ResultsError::Io {
            path: path.to_owned(),
            source,
        };
        let folder = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let beside = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")));
        let beside = beside.map_err(io)?;
        let mut writer = BufWriter::new(beside.as_file());
        self.to_writer(&mut writer).map_err(|e| io(e.into()))?;
        writer.flush().map_err(io)?;
        drop(writer);
        beside.persist(path).map_err(|error| io(error.error))?;
        Ok(())
    }

    /// Writes a file's contents.
    pub fn to_writer(&self, writer: impl Write) -> Result<(), serde_json::Error> {
        self.serialize(&mut serde_json::Serializer::with_formatter(
            writer, NullAsNan,
        ))
    }
}

impl Serialize for Results {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut file = serializer.serialize_map(Some(2))?;
        file.serialize_entry("meta", &self.sources)?;
        file.serialize_entry("results", &FramesByToken(&self.frames))?;
        file.end()
    }
}

struct FramesByToken<'a>(&'a [FramePredictions]);

impl Serialize for FramesByToken<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|frame| {
            let boxes = frame.boxes.iter();
            let boxes = boxes.map(|prediction| BoxRecord::of(&frame.token, prediction));
            (&frame.token, boxes.collect::<Vec<_>>())
        }))
    }
}

impl<'de> Deserialize<'de> for Results {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FileVisitor)
    }
}

struct FileVisitor;

impl<'de> Visitor<'de> for FileVisitor {
    type Value = Results;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with \"meta\" and \"results\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut file: A) -> Result<Results, A::Error> {
        let (mut sources, mut frames) = (None, None);
        while let Some(key) = file.next_key::<String>()? {
            match key.as_str() {
                "meta" => sources = Some(file.next_value()?),
                "results" if frames.is_some() => return Err(A::Error::duplicate_field("results")),
                "results" => frames = Some(file.next_value_seed(FramesVisitor)?),
                _ => {
                    file.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Results {
            sources: sources.unwrap_or_default(),
            frames: frames.ok_or_else(|| A::Error::missing_field("results"))?,
        })
    }
}

struct FramesVisitor;

impl<'de> DeserializeSeed<'de> for FramesVisitor {
    type Value = Vec<FramePredictions>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FramesVisitor {
    type Value = Vec<FramePredictions>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a list of boxes for each frame")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut file: A) -> Result<Self::Value, A::Error> {
        let mut frames = Vec::new();
        let mut seen = HashSet::new();
        while let Some(token) = file.next_key::<String>()? {
            if !seen.insert(token.clone()) {
                let what = format_args!("frame {token:?} stands twice");
                return Err(A::Error::custom(what));
            }
            frames.push(file.next_value_seed(FrameVisitor { token })?);
        }
        Ok(frames)
    }
}

struct FrameVisitor {
    token: String,
}

impl<'de> DeserializeSeed<'de> for FrameVisitor {
    type Value = FramePredictions;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for FrameVisitor {
    type Value = FramePredictions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX_BOXES} boxes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut file: A) -> Result<Self::Value, A::Error> {
        let mut boxes = Vec::new();
        while let Some(record) = file.next_element::<BoxRecord>()? {
            let fault = |what: String| {
                let place = format!("frame {:?}, box {}", self.token, boxes.len());
                A::Error::custom(format_args!("{place}: {what}"))
            };
            if boxes.len() == MAX_BOXES {
                return Err(fault(format!("more than {MAX_BOXES} boxes in a frame")));
            }
            if record.sample_token != self.token {
                let what = format!("it names another frame, {:?}", record.sample_token);
                return Err(fault(what));
            }
            let prediction = record.into_prediction().map_err(fault)?;
            boxes.push(prediction);
        }
        let token = self.token;
        Ok(FramePredictions { token, boxes })
    }
}
