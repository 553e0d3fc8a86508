//! Places to learn from: towns of the synthetic world, toured several times, rendered once and kept as small as networks see them.

use std::path::PathBuf;

use percept_data::random::hash;
use percept_data::{Datum, POSITION, Sample, SampleError, Samples, SettingError};
use percept_graph::Tensor;
use percept_kernels::Cpu;
use percept_models::lcpr::{CAMERA, RANGE, range_image};
use percept_store::Cache;
use percept_world::{CameraRig, PictureSize, World, WorldConfig, WorldKind};
use serde::{Deserialize, Serialize};

use super::DataError;
use super::town::{Seen, Tour, Town};
use crate::places::position;

/// How much of the world, and how large it is seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlacesSettings {
    /// Everything in it follows from this; held-out towns have another.
    pub seed: u64,
    /// Towns to learn in.
    pub towns: usize,
    /// Drives through each town.
    pub passes: usize,
    /// Frames of each drive.
    pub frames: usize,
    /// Other towns to be judged in.
    pub testing_towns: usize,
    /// Frames of each drive through them.
    pub testing_frames: usize,
    /// Height and width of the pictures.
    pub camera: [usize; 2],
    /// Height and width of the range images.
    pub range: [usize; 2],
    /// A folder that keeps rendered towns for the next run.
    pub cache: Option<PathBuf>,
}

impl Default for PlacesSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            towns: 8,
            passes: 3,
            frames: 60,
            testing_towns: 2,
            testing_frames: 60,
            camera: [64, 176],
            range: [32, 264],
            cache: None,
        }
    }
}

/// What the seed of held-out towns differs by.
const HELD_OUT: u64 = 0x7465_7374;
/// Metres between towns, so that no place of one is near a place of another.
const BETWEEN_TOWNS_M: f64 = 10_000.0;

/// Bytes that the folder of rendered towns may hold.
const CACHE_BYTES: u64 = 8 << 30;

impl PlacesSettings {
    /// Renders drives to learn from, and drives through other towns to be judged by.
    pub(super) fn render(&self, cpu: &Cpu) -> Result<[Toured; 2], DataError> {
        for (name, value) in [
            ("data.places.towns", self.towns),
            ("data.places.frames", self.frames),
            ("data.places.testing_towns", self.testing_towns),
            ("data.places.testing_frames", self.testing_frames),
        ] {
            SettingError::unless(value > 0, name, value, "at least 1")?;
        }
        let passes = self.passes;
        SettingError::unless(passes > 1, "data.places.passes", passes, "at least 2")?;
        let [height, width] = self.camera;
        let fits = self.camera.iter().all(|side| (1..=8192).contains(side));
        let given = format!("{height}x{width}");
        SettingError::unless(fits, "data.places.camera", given, "sides of 1 to 8192")?;
        let [height, width] = self.range;
        let fits = self.range.iter().all(|side| (1..=8192).contains(side));
        let given = format!("{height}x{width}");
        SettingError::unless(fits, "data.places.range", given, "sides of 1 to 8192")?;
        let cache = self.cache.as_ref();
        let cache = cache.map(|folder| Cache::open(folder, CACHE_BYTES));
        let cache = cache.transpose()?;
        let toured = |seed: u64, towns: usize, frames: usize| -> Result<Toured, DataError> {
            let towns = (0..towns).map(|town| {
                let tour = Tour {
                    seed: hash(seed, 0, town as u64),
                    passes: self.passes,
                    frames,
                    camera: self.camera,
                    range: self.range,
                };
                tour.kept_in(cache.as_ref(), || drive(cpu, &tour))
            });
            Ok(Toured {
                towns: towns.collect::<Result<_, _>>()?,
            })
        };
        let other = hash(self.seed, HELD_OUT, 0);
        Ok([
            toured(self.seed, self.towns, self.frames)?,
            toured(other, self.testing_towns, self.testing_frames)?,
        ])
    }
}

/// Renders all drives through a town.
fn drive(cpu: &Cpu, tour: &Tour) -> Town {
    let [height, width] = tour.camera;
    let size = PictureSize::new(width, height).expect("sides were checked");
    let rig = CameraRig::nuscenes(size);
    let mut world = World::new(WorldConfig {
        passes: tour.passes,
        frames_per_pass: tour.frames,
        ..WorldConfig::new(WorldKind::Places, tour.seed)
    });
    let mut town = Town::empty(tour);
    for index in 0..tour.passes * tour.frames {
        let views = world.views(cpu, index, &rig);
        town.push(&Seen {
            images: views.into_iter().map(|view| view.view.image).collect(),
            metres: range_image(&world.frame(cpu, index), tour.range).metres,
            position: world.ego_to_world(index).translation,
        });
    }
    town
}

/// Frames of all drives through all towns.
pub(super) struct Toured {
    towns: Vec<Town>,
}

impl Samples for Toured {
    fn len(&self) -> usize {
        self.towns.iter().map(Town::len).sum()
    }

    fn name(&self, index: usize) -> String {
        format!("a toured town, frame {index}")
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let unusable = |reason: String| SampleError::Unusable {
            sample: self.name(index),
            reason,
        };
        let mut frame = index;
        for (number, town) in self.towns.iter().enumerate() {
            if frame >= town.len() {
                frame -= town.len();
                continue;
            }
            let Seen {
                images,
                metres,
                position: [x, y, z],
            } = town.seen(frame);
            let [height, width] = town.tour().range;
            let range = Tensor::from_values([1, 1, height, width], metres);
            let range = range.map_err(|error| unusable(error.to_string()))?;
            let here = [x + number as f64 * BETWEEN_TOWNS_M, y, z];
            let sample = Sample::of(self.name(index), CAMERA, Datum::Images(images));
            return Ok(sample
                .with(RANGE, Datum::Tensor(range))
                .with(POSITION, position(here))
                .with("drive", Datum::Class(frame / town.tour().frames)));
        }
        Err(unusable("no such frame".to_owned()))
    }
}
