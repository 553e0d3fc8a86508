//! The masks of a recording.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::PairsError;
use crate::error::FileError;
use crate::masks::{CocoRle, Rle};

/// `annotation.json` of a take: masks by object, camera and frame. Masks stay as text until they are asked for: a dataset
/// has millions, and a pair needs two.
#[derive(Debug)]
pub(super) struct Annotation {
    path: PathBuf,
    content: Content,
}

#[derive(Debug, Deserialize)]
struct Content {
    masks: BTreeMap<String, BTreeMap<String, BTreeMap<String, CocoRle>>>,
    #[serde(default)]
    subsample_idx: Vec<u32>,
}

impl Annotation {
    pub(super) fn read(path: PathBuf) -> Result<Self, PairsError> {
        let content = read_json(&path)?;
        Ok(Self { path, content })
    }

    /// The mask of an object in a frame of a camera, where it is seen.
    pub(super) fn mask(
        &self,
        object: &str,
        camera: &str,
        frame: u32,
    ) -> Result<Option<Rle>, PairsError> {
        let cameras = self.content.masks.get(object);
        let frames = cameras.and_then(|cameras| cameras.get(camera));
        let Some(mask) = frames.and_then(|frames| frames.get(&frame.to_string())) else {
            return Ok(None);
        };
        let mask = Rle::try_from(mask).map_err(|fault| PairsError::Mask {
            path: self.path.clone(),
            place: place(object, camera, frame),
            fault,
        })?;
        Ok(Some(mask))
    }

    /// The mask of an object that a pair says is seen.
    pub(super) fn seen_mask(
        &self,
        object: &str,
        camera: &str,
        frame: u32,
    ) -> Result<Rle, PairsError> {
        let mask = self.mask(object, camera, frame)?;
        mask.ok_or_else(|| PairsError::NoMask {
            path: self.path.clone(),
            place: place(object, camera, frame),
        })
    }

    /// The frames that the evaluation looks at.
    pub(super) fn subsampled_frames(&self) -> &[u32] {
        &self.content.subsample_idx
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn place(object: &str, camera: &str, frame: u32) -> String {
    format!("`{object}` in frame {frame} of `{camera}`")
}

pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, PairsError> {
    let file = std::fs::read(path).map_err(|error| FileError::new(path, error))?;
    serde_json::from_slice(&file).map_err(|source| PairsError::Json {
        path: path.to_owned(),
        source,
    })
}
