use std::collections::BTreeMap;
use std::path::Path;

use flate2::Crc;
use percept_data::loader::{EpochPlan, Position};
use percept_data::safetensors::{Safetensors, write_safetensors};
use percept_data::weights::TensorSource;
use percept_graph::Tensor;
use percept_models::Card;
use serde::{Deserialize, Serialize};

use super::CheckpointError;
use crate::schedule::Schedule;

const VERSION_KEY: &str = "percept.checkpoint";
const VERSION: &str = "1";
const STATE_KEY: &str = "percept.run";
const SEAL_KEY: &str = "percept.crc32";
/// The plan of the epoch under way, as i64.
const PLAN_SAMPLES: &str = "epoch.plan.samples";
const PLAN_GROUP_ENDS: &str = "epoch.plan.group_ends";

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
    /// The network, for whoever reads the file as weights; those of older runs have none.
    pub card: Option<Card>,
    /// The plan of an epoch that is under way, where it followed from weights that are gone.
    pub plan: Option<EpochPlan>,
    /// Every tensor that the next step reads; parameters under their public names, so that the file is a weight file too.
    pub tensors: Vec<(String, Tensor<'static>)>,
}

impl Snapshot {
    /// Writes the file, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        let state = serde_json::to_string(&self.state).map_err(bad_state(path))?;
        let card = self.card.as_ref().map(Card::metadata);
        let planned = self.plan.as_ref().map(plan_tensors).unwrap_or_default();
        let own = self.tensors.iter();
        let own = own.map(|(name, tensor)| (name.clone(), tensor.borrowed()));
        let tensors: Vec<(String, Tensor<'_>)> = own.chain(planned).collect();
        let seal = seal(
            &state,
            card.as_ref().map(|(_, text)| text.as_str()),
            &tensors,
        );
        let mut metadata = BTreeMap::from([
            (VERSION_KEY.to_owned(), VERSION.to_owned()),
            (SEAL_KEY.to_owned(), seal),
            (STATE_KEY.to_owned(), state),
        ]);
        metadata.extend(card);
        Ok(write_safetensors(path, &tensors, &metadata)?)
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
        let card = file.metadata().get(Card::KEY);
        let mut tensors: Vec<(String, Tensor<'static>)> = Vec::new();
        for name in file.names() {
            tensors.push((name.to_owned(), file.read(name)?.into_owned()));
        }
        if seal(state, card.map(String::as_str), &tensors) != *expected {
            let path = path.to_owned();
            return Err(CheckpointError::Damaged { path });
        }
        let card = card.map(|card| serde_json::from_str(card)).transpose();
        Ok(Self {
            state: serde_json::from_str(state).map_err(bad_state(path))?,
            card: card.map_err(bad_state(path))?,
            plan: take_plan(&mut tensors),
            tensors,
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

fn bad_state(path: &Path) -> impl FnOnce(serde_json::Error) -> CheckpointError {
    let path = path.to_owned();
    |error| CheckpointError::State {
        path,
        reason: error.to_string(),
    }
}

/// A plan as tensors.
fn plan_tensors(plan: &EpochPlan) -> Vec<(String, Tensor<'static>)> {
    let tensor = |name: &str, places: &[usize]| {
        let places: Vec<i64> = places.iter().map(|&place| place as i64).collect();
        let tensor = Tensor::from_values([places.len()], places).expect("as many as there are");
        (name.to_owned(), tensor)
    };
    let ends = plan.group_ends().map(|ends| tensor(PLAN_GROUP_ENDS, ends));
    [tensor(PLAN_SAMPLES, plan.samples())]
        .into_iter()
        .chain(ends)
        .collect()
}

/// Removes the plan from among the tensors of a file.
fn take_plan(tensors: &mut Vec<(String, Tensor<'static>)>) -> Option<EpochPlan> {
    let mut take = |name: &str| {
        let place = tensors.iter().position(|(known, _)| known == name)?;
        let (_, tensor) = tensors.remove(place);
        let places = tensor.values::<i64>().ok()?.iter();
        places.map(|&place| usize::try_from(place).ok()).collect()
    };
    let (samples, ends): (Option<Vec<usize>>, _) = (take(PLAN_SAMPLES), take(PLAN_GROUP_ENDS));
    EpochPlan::from_parts(samples?, ends)
}

/// The checksum over everything that a checkpoint says, in an order of its own.
fn seal(state: &str, card: Option<&str>, tensors: &[(String, Tensor<'_>)]) -> String {
    let mut ordered: Vec<_> = tensors.iter().collect();
    ordered.sort_by_key(|(name, _)| name);
    let mut crc = Crc::new();
    let mut part = |bytes: &[u8]| {
        crc.update(&(bytes.len() as u64).to_le_bytes());
        crc.update(bytes);
    };
    part(state.as_bytes());
    if let Some(card) = card {
        part(card.as_bytes());
    }
    for (name, tensor) in ordered {
        part(name.as_bytes());
        part(format!("{} {:?}", tensor.dtype(), tensor.shape()).as_bytes());
        part(tensor.bytes());
    }
    format!("{:08x}", crc.sum())
}
