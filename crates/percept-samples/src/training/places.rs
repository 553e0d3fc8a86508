//! Places to learn from: towns of the synthetic world, toured several times, rendered once and kept as small as networks see them.

use percept_data::images::RgbImage;
use percept_data::random::hash;
use percept_data::{Datum, POSITION, Sample, SampleError, Samples, SettingError};
use percept_graph::Tensor;
use percept_kernels::Cpu;
use percept_models::lcpr::{CAMERA, RANGE, range_image};
use percept_world::{CameraRig, PictureSize, World, WorldConfig, WorldKind};
use serde::{Deserialize, Serialize};

use crate::places::position;

/// How much of the world, and how large it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
        }
    }
}

/// What the seed of held-out towns differs by.
const HELD_OUT: u64 = 0x7465_7374;
/// Metres between towns, so that no place of one is near a place of another.
const BETWEEN_TOWNS_M: f64 = 10_000.0;

impl PlacesSettings {
    /// Renders drives to learn from, and drives through other towns to be judged by.
    pub(super) fn render(&self, cpu: &Cpu) -> Result<[Toured; 2], SettingError> {
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
        let size = PictureSize::new(width, height).expect("sides were checked");
        let rig = CameraRig::nuscenes(size);
        let training = self.tour(cpu, &rig, self.seed, self.towns, self.frames);
        let other = hash(self.seed, HELD_OUT, 0);
        let testing = self.tour(cpu, &rig, other, self.testing_towns, self.testing_frames);
        Ok([training, testing])
    }

    fn tour(&self, cpu: &Cpu, rig: &CameraRig, seed: u64, towns: usize, frames: usize) -> Toured {
        let mut kept = Vec::with_capacity(towns * self.passes * frames);
        for town in 0..towns {
            let mut world = World::new(WorldConfig {
                passes: self.passes,
                frames_per_pass: frames,
                ..WorldConfig::new(WorldKind::Places, hash(seed, 0, town as u64))
            });
            for index in 0..self.passes * frames {
                let views = world.views(cpu, index, rig).into_iter();
                let [x, y, z] = world.ego_to_world(index).translation;
                kept.push(Kept {
                    images: views.map(|view| view.view.image).collect(),
                    metres: range_image(&world.frame(cpu, index), self.range).metres,
                    position: [x + town as f64 * BETWEEN_TOWNS_M, y, z],
                    drive: index / frames,
                });
            }
        }
        Toured {
            range: self.range,
            kept,
        }
    }
}

struct Kept {
    images: Vec<RgbImage>,
    metres: Vec<f32>,
    position: [f64; 3],
    drive: usize,
}

/// Frames of all drives through all towns.
pub(super) struct Toured {
    range: [usize; 2],
    kept: Vec<Kept>,
}

impl Samples for Toured {
    fn len(&self) -> usize {
        self.kept.len()
    }

    fn name(&self, index: usize) -> String {
        format!("a toured town, frame {index}")
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let kept = &self.kept[index];
        let shape = [1, 1, self.range[0], self.range[1]];
        let range = Tensor::from_values(shape, kept.metres.clone());
        let range = range.map_err(|error| SampleError::Unusable {
            sample: self.name(index),
            reason: error.to_string(),
        })?;
        Ok(
            Sample::of(self.name(index), CAMERA, Datum::Images(kept.images.clone()))
                .with(RANGE, Datum::Tensor(range))
                .with(POSITION, position(kept.position))
                .with("drive", Datum::Class(kept.drive)),
        )
    }
}
