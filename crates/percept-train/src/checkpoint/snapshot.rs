use std::collections::BTreeMap;
use std::path::Path;

use flate2::Crc;
use percept_data::loader::Position;
use percept_data::safetensors::{Safetensors, write_safetensors};
use percept_data::weights::TensorSource;
use percept_graph::Tensor;
use serde::{Deserialize, Serialize};

use super::CheckpointError;
use crate::schedule::Schedule;

const VERSION_KEY: &str = "percept.checkpoint";
const VERSION: &str = "1";
const STATE_KEY: &str = "percept.run";
const SEAL_KEY: &str = "percept.crc32";

/// Where a run stands, beside its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// The network.
    pub model: String,
    /// The settings of the whole run, as they were given.
    pub config: serde_json::Value,
    /// The optimiser and its settings.
    pub optimiser: serde_json::Value,
    /// The learning rate over the run.
    pub schedule: Schedule,
    /// What all random numbers come from.
    pub seed: u64,
    /// Steps that are done.
    pub step: u64,
    /// Where the data goes on.
    pub position: Position,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// Evaluations since that one.
    pub unimproved: u64,
}

/// The best evaluation of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// Steps that were done.
    pub step: u64,
    /// What was reached.
    pub metric: f64,
}

/// A run at one moment: its state and its tensors (parameters, running statistics, moments of the optimiser) by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Where the run stands.
    pub state: RunState,
    /// Every tensor that the next step reads; parameters under their public names, so that the file is a weight file too.
    pub tensors: Vec<(String, Tensor<'static>)>,
}

impl Snapshot {
    /// Writes the file, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        let state = serde_json::to_string(&self.state).map_err(|error| CheckpointError::State {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let tensors = self.tensors.iter();
        let seal = seal(
            &state,
            tensors.map(|(name, tensor)| (name.as_str(), tensor)),
        );
        let metadata = BTreeMap::from([
            (VERSION_KEY.to_owned(), VERSION.to_owned()),
            (SEAL_KEY.to_owned(), seal),
            (STATE_KEY.to_owned(), state),
        ]);
        Ok(write_safetensors(path, &self.tensors, &metadata)?)
    }

    /// Reads a file and checks that it is, to the bit, what was written.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let file = Safetensors::open(path)?;
        let metadata = |key: &'static str| {
            let path = path.to_owned();
            let missing = CheckpointError::NotACheckpoint { path, key };
            file.metadata().get(key).ok_or(missing)
        };
        let version = metadata(VERSION_KEY)?;
        if version != VERSION {
            return Err(CheckpointError::Version {
                path: path.to_owned(),
                found: version.clone(),
                expected: VERSION,
            });
        }
        let (state, expected) = (metadata(STATE_KEY)?, metadata(SEAL_KEY)?);
        let mut tensors = Vec::new();
        for name in file.names() {
            tensors.push((name.to_owned(), file.read(name)?));
        }
        let found = seal(
            state,
            tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)),
        );
        if found != *expected {
            let path = path.to_owned();
            return Err(CheckpointError::Damaged { path });
        }
        let state = serde_json::from_str(state).map_err(|error| CheckpointError::State {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let tensors = tensors.into_iter();
        Ok(Self {
            state,
            tensors: tensors
                .map(|(name, tensor)| (name, tensor.into_owned()))
                .collect(),
        })
    }

    /// Refuses a checkpoint of another network.
    pub fn expect_model(&self, model: &str, path: &Path) -> Result<(), CheckpointError> {
        if self.state.model == model {
            return Ok(());
        }
        Err(CheckpointError::OtherModel {
            path: path.to_owned(),
            found: self.state.model.clone(),
            expected: model.to_owned(),
        })
    }
}

/// The checksum over everything that a checkpoint says, in an order of its own.
fn seal<'a>(state: &str, tensors: impl Iterator<Item = (&'a str, &'a Tensor<'a>)>) -> String {
    let mut ordered: Vec<_> = tensors.collect();
    ordered.sort_by_key(|(name, _)| *name);
    let mut crc = Crc::new();
    let mut part = |bytes: &[u8]| {
        crc.update(&(bytes.len() as u64).to_le_bytes());
        crc.update(bytes);
    };
    part(state.as_bytes());
    for (name, tensor) in ordered {
        part(name.as_bytes());
        part(format!("{} {:?}", tensor.dtype(), tensor.shape()).as_bytes());
        part(tensor.bytes());
    }
    format!("{:08x}", crc.sum())
}
