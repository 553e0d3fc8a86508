//! What a run learns from: a folder of pictures, sweeps, scans or pairs, or the built-in birds, towns or rooms.

mod pairs;
mod places;
mod scans;
mod sweeps;
mod town;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use percept_data::classification::birds::Split;
use percept_data::classification::{Birds, BirdsConfig, DatasetError, HoldOut, read_images};
use percept_data::points::PointsError;
use percept_data::{Samples, SettingError};
use percept_kernels::{Cpu, CpuError};
use percept_models::lesson::DataKind;
use percept_store::StoreError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::OpenError;
pub use pairs::{Looking, PairSettings};
pub use places::PlacesSettings;
pub use scans::ScanSettings;
pub use sweeps::WorldSettings;

/// Side of the birds where nobody asks for another.
const BIRD_SIDE: usize = 64;
/// Threads that towns are rendered with.
const RENDERING_THREADS: usize = 2;

/// Which samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// Photographs: a folder a class, `train` and `val`, or CUB-200-2011; sweeps: a nuScenes folder; labelled scans:
    /// SemanticKITTI's layout, or `.bin` files with `.label` files beside them; pairs of views: O-MaMa's layout, or a folder a
    /// pair. What is built in when none.
    pub folder: Option<PathBuf>,
    /// The share of each class, or of the last frames, that is held out for testing, where the folder does not say.
    pub hold_out: f64,
    /// The built-in birds.
    pub birds: BirdsSettings,
    /// The built-in towns, as sweeps.
    pub world: WorldSettings,
    /// The built-in towns that are toured several times.
    pub places: PlacesSettings,
    /// The built-in towns, as labelled scans.
    pub scans: ScanSettings,
    /// The built-in rooms, seen from two sides.
    pub pairs: PairSettings,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            folder: None,
            hold_out: 0.2,
            birds: BirdsSettings::default(),
            world: WorldSettings::default(),
            places: PlacesSettings::default(),
            scans: ScanSettings::default(),
            pairs: PairSettings::default(),
        }
    }
}

/// How many birds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BirdsSettings {
    /// Classes.
    pub classes: usize,
    /// Pictures of each class to train with.
    pub per_class: usize,
    /// Pictures of each class to test with.
    pub testing_per_class: usize,
}

impl Default for BirdsSettings {
    fn default() -> Self {
        Self {
            classes: 16,
            per_class: 100,
            testing_per_class: 25,
        }
    }
}

/// Samples to learn from and samples to be judged by.
#[derive(Clone)]
#[allow(missing_docs)]
pub struct TrainData {
    pub training: Arc<dyn Samples>,
    pub testing: Arc<dyn Samples>,
    /// Files among them that are no samples.
    pub ignored: Vec<PathBuf>,
}

/// Why there is no data.
#[derive(Debug, Error)]
pub enum DataError {
    /// The folder.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A folder of sweeps.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// A folder of scans.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Threads to render the world with.
    #[error(transparent)]
    Machine(#[from] CpuError),
    /// A folder where none can be taken.
    #[error("data.folder: {reason}")]
    NoFolder {
        /// Why.
        reason: &'static str,
    },
    /// A setting that makes no sense.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The folder that keeps what was rendered.
    #[error("data.places.cache: {0}")]
    Store(#[from] StoreError),
}

impl DataConfig {
    /// Finds the samples. `side` is that of drawn birds; the seed decides what is held out.
    pub fn open(
        &self,
        kind: DataKind,
        seed: u64,
        side: Option<usize>,
    ) -> Result<TrainData, DataError> {
        match kind {
            DataKind::Pictures => self.pictures(seed, side),
            DataKind::Sweeps => self.sweeps(),
            DataKind::Places => self.toured(),
            DataKind::Scans => self.scans(),
            DataKind::Pairs => self.pairs(),
        }
    }

    fn held_out(&self) -> Result<f64, SettingError> {
        let share = self.hold_out;
        let is_fine = (0.0..1.0).contains(&share);
        SettingError::unless(is_fine, "data.hold_out", share, "0 to below 1")?;
        Ok(share)
    }

    fn sweeps(&self) -> Result<TrainData, DataError> {
        let [training, testing] = match &self.folder {
            Some(folder) => sweeps::read_folder(folder, self.held_out()?, self.world.sweeps)?,
            None => self.world.render(&Cpu::new(RENDERING_THREADS)?)?,
        };
        Ok(TrainData {
            training: Arc::new(training),
            testing: Arc::new(testing),
            ignored: Vec::new(),
        })
    }

    fn toured(&self) -> Result<TrainData, DataError> {
        if self.folder.is_some() {
            let reason = "places are learned from the synthetic world alone as yet";
            return Err(DataError::NoFolder { reason });
        }
        let [training, testing] = self.places.render(&Cpu::new(RENDERING_THREADS)?)?;
        Ok(TrainData {
            training: Arc::new(training),
            testing: Arc::new(testing),
            ignored: Vec::new(),
        })
    }

    fn scans(&self) -> Result<TrainData, DataError> {
        let [training, testing] = match &self.folder {
            Some(folder) => scans::read_folder(folder, self.held_out()?)?,
            None => self.scans.render(&Cpu::new(RENDERING_THREADS)?)?,
        };
        Ok(TrainData {
            training: Arc::new(training),
            testing: Arc::new(testing),
            ignored: Vec::new(),
        })
    }

    fn pairs(&self) -> Result<TrainData, DataError> {
        let [training, testing] = match &self.folder {
            Some(folder) => {
                let direction = self.pairs.direction.into();
                pairs::read_folder(folder, direction, self.held_out()?)?
            }
            None => {
                let rooms = self.pairs.rooms(RENDERING_THREADS)?;
                rooms.map(|part| -> Arc<dyn Samples> { Arc::new(part) })
            }
        };
        Ok(TrainData {
            training,
            testing,
            ignored: Vec::new(),
        })
    }

    fn pictures(&self, seed: u64, side: Option<usize>) -> Result<TrainData, DataError> {
        let share = self.held_out()?;
        match &self.folder {
            Some(folder) => read_folder(folder, HoldOut { share, seed }),
            None => Ok(self.birds.draw(side.unwrap_or(BIRD_SIDE))?),
        }
    }
}

fn read_folder(folder: &Path, hold_out: HoldOut) -> Result<TrainData, DataError> {
    let found = read_images(folder, hold_out)?;
    Ok(TrainData {
        training: Arc::new(found.images.training),
        testing: Arc::new(found.images.testing),
        ignored: found.ignored,
    })
}

impl BirdsSettings {
    fn draw(&self, side: usize) -> Result<TrainData, SettingError> {
        let birds = |split, per_class| -> Result<Arc<dyn Samples>, SettingError> {
            Ok(Arc::new(Birds::new(BirdsConfig {
                classes: self.classes,
                per_class,
                side,
                split,
                ..BirdsConfig::default()
            })?))
        };
        Ok(TrainData {
            training: birds(Split::Training, self.per_class)?,
            testing: birds(Split::Testing, self.testing_per_class)?,
            ignored: Vec::new(),
        })
    }
}
