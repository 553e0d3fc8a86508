//! Sweeps with their boxes: towns of the synthetic world, rendered once and kept in memory, or frames of a nuScenes folder.

use std::path::Path;
use std::sync::OnceLock;

use percept_data::points::augment::{ObjectBank, PasteCounts};
use percept_data::points::nuscenes::NuScenes;
use percept_data::points::{
    Box3d, LidarConvention, LidarDataset, LidarFrame, ObjectClass, Point, PointsError,
};
use percept_data::random::{Draws, hash};
use percept_data::{Datum, Sample, SampleError, Samples, SettingError};
use percept_kernels::Cpu;
use percept_models::centerpoint::OBJECTS;
use percept_world::{MAX_SWEEPS, World, WorldConfig, WorldKind};
use serde::{Deserialize, Serialize};

/// How much of the world.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorldSettings {
    /// Everything in it follows from this; held-out towns have another.
    pub seed: u64,
    /// Frames to learn from.
    pub frames: usize,
    /// Frames to be judged by, in other towns.
    pub testing_frames: usize,
    /// Every so many keyframes one is taken, so that frames differ.
    pub every: usize,
    /// Sweeps merged into a frame; of a folder's frames too.
    pub sweeps: usize,
    /// Points further away than this are not kept, metres.
    pub reach_m: f64,
}

impl Default for WorldSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            frames: 1500,
            testing_frames: 300,
            every: 4,
            sweeps: 1,
            reach_m: 40.0,
        }
    }
}

/// Frames of a folder that objects to paste are cut from.
const BANK_FRAMES: usize = 200;
/// Objects of a class that are kept.
const BANK_CAPACITY: usize = 400;
/// Points on an object that is kept.
const BANK_MIN_POINTS: usize = 5;
/// How many times as many objects are offered to a frame as it takes.
const OFFER: usize = 4;

/// The part of a sample with the points and the boxes.
const POINTS: &str = "points";
/// What the seed of held-out towns differs by.
const HELD_OUT: u64 = 0x7465_7374;
/// What the draws of offered objects are for.
const OFFERED: u64 = 0x6f66_6665;

impl WorldSettings {
    /// Renders frames to learn from, and frames of other towns to be judged by.
    pub(crate) fn render(&self, cpu: &Cpu) -> Result<[Sweeps; 2], SettingError> {
        let Self {
            frames,
            testing_frames,
            every,
            sweeps,
            ..
        } = *self;
        SettingError::unless(frames > 0, "data.world.frames", frames, "at least 1")?;
        let some = testing_frames > 0;
        SettingError::unless(
            some,
            "data.world.testing_frames",
            testing_frames,
            "at least 1",
        )?;
        SettingError::unless(every > 0, "data.world.every", every, "at least 1")?;
        let merges = (1..=MAX_SWEEPS).contains(&sweeps);
        SettingError::unless(merges, "data.world.sweeps", sweeps, "1 to 10")?;
        let training = self.town_frames(cpu, self.seed, frames);
        let testing = self.town_frames(cpu, hash(self.seed, HELD_OUT, 0), testing_frames);
        let held_out = "a street of a held-out town";
        Ok([
            Sweeps::new("a street", Source::Kept(training, self.reach_m), true),
            Sweeps::new(held_out, Source::Kept(testing, self.reach_m), false),
        ])
    }

    fn town_frames(&self, cpu: &Cpu, seed: u64, count: usize) -> Vec<LidarFrame> {
        let mut world = World::new(WorldConfig {
            sweeps: self.sweeps,
            ..WorldConfig::new(WorldKind::NuScenes, seed)
        });
        let frames = (0..count).map(|i| near(world.frame(cpu, i * self.every), self.reach_m));
        frames.collect()
    }
}

/// A frame without what is far, and without what no detector reads.
fn near(frame: LidarFrame, reach_m: f64) -> LidarFrame {
    let is_near = |point: &&Point| point.ground_range_m() <= reach_m;
    LidarFrame {
        points: frame.points.iter().filter(is_near).copied().collect(),
        labels: None,
        cameras: Vec::new(),
        ..frame
    }
}

/// Sweeps of a nuScenes folder: the last `hold_out` of its frames are to be judged by.
pub(crate) fn read_folder(
    folder: &Path,
    hold_out: f64,
    sweeps: usize,
) -> Result<[Sweeps; 2], PointsError> {
    let count = LidarDataset::open(folder)?.frames();
    let held_out = ((count as f64 * hold_out) as usize).min(count);
    let part = |first: usize, count: usize| -> Result<Source, PointsError> {
        Ok(Source::Folder {
            dataset: LidarDataset::open(folder)?,
            first,
            count,
            sweeps,
        })
    };
    let name = folder.display().to_string();
    let training = Sweeps::new(&name, part(0, count - held_out)?, true);
    let testing = Sweeps::new(&name, part(count - held_out, held_out)?, false);
    Ok([training, testing])
}

enum Source {
    /// In memory, with the points up to so many metres away.
    Kept(Vec<LidarFrame>, f64),
    /// Read when asked for.
    Folder {
        dataset: LidarDataset,
        first: usize,
        count: usize,
        sweeps: usize,
    },
}

impl Source {
    fn len(&self) -> usize {
        match self {
            Self::Kept(frames, _) => frames.len(),
            Self::Folder { count, .. } => *count,
        }
    }

    /// The classes of what is there to be found.
    fn classes_in(&self, index: usize) -> Vec<ObjectClass> {
        match self {
            Self::Kept(frames, reach_m) => {
                let boxes = frames[index].boxes.as_deref().unwrap_or_default();
                let seen = |class: &ObjectClass| {
                    let is_seen = |b: &Box3d| {
                        let [x, y, _] = b.centre;
                        b.class == *class
                            && b.lidar_points > 0
                            && x * x + y * y <= reach_m * reach_m
                    };
                    boxes.iter().any(is_seen)
                };
                ObjectClass::ALL.into_iter().filter(seen).collect()
            }
            Self::Folder { dataset, first, .. } => dataset.classes_in(first + index),
        }
    }

    /// The objects of its frames; of a folder those of the first, and what cannot be read is told when it is learned from.
    fn bank(&self) -> ObjectBank {
        let mut bank = ObjectBank::new(BANK_CAPACITY, BANK_MIN_POINTS);
        let mut add = |frame: &LidarFrame| {
            bank.add(&frame.points, frame.boxes.as_deref().unwrap_or_default());
        };
        match self {
            Self::Kept(frames, _) => frames.iter().for_each(add),
            Self::Folder { .. } => {
                let frames = (0..self.len().min(BANK_FRAMES)).map(|index| self.frame(index));
                frames.flatten().for_each(|frame| add(&frame));
            }
        }
        bank
    }

    fn frame(&self, index: usize) -> Result<LidarFrame, PointsError> {
        match self {
            Self::Kept(frames, _) => Ok(frames[index].clone()),
            Self::Folder {
                dataset,
                first,
                sweeps,
                ..
            } => dataset.frame(first + index, *sweeps),
        }
    }
}

/// Sweeps with their boxes and, to learn from, objects of other sweeps.
pub(crate) struct Sweeps {
    name: String,
    source: Source,
    /// Whether objects of other sweeps are offered with each.
    offers: bool,
    /// Those, since they were first asked for.
    bank: OnceLock<ObjectBank>,
    classes: Vec<String>,
}

impl Sweeps {
    fn new(name: &str, source: Source, offers: bool) -> Self {
        Self {
            name: name.to_owned(),
            source,
            offers,
            bank: OnceLock::new(),
            classes: ObjectClass::ALL
                .map(|class| class.name().to_owned())
                .to_vec(),
        }
    }

    /// Objects that could be pasted into a frame: several times as many as it takes, none over another.
    fn offer(&self, bank: &ObjectBank, index: usize) -> LidarFrame {
        let (mut points, mut boxes) = (Vec::new(), Vec::new());
        let counts = PasteCounts(PasteCounts::default().0.map(|count| OFFER * count));
        bank.paste(
            &mut points,
            &mut boxes,
            &counts,
            &mut Draws::new(index as u64, OFFERED),
        );
        LidarFrame {
            boxes: Some(boxes),
            ..LidarFrame::from_points(LidarConvention::NuScenes, points)
        }
    }
}

impl Samples for Sweeps {
    fn len(&self) -> usize {
        self.source.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn occurring(&self, index: usize) -> Vec<usize> {
        let classes = self.source.classes_in(index).into_iter();
        classes.map(ObjectClass::id).collect()
    }

    fn keyframe(&self, index: usize) -> Option<(&NuScenes, usize)> {
        match &self.source {
            Source::Folder {
                dataset: LidarDataset::NuScenes(folder),
                first,
                ..
            } => Some((folder, first + index)),
            _ => None,
        }
    }

    fn name(&self, index: usize) -> String {
        format!("{}, frame {index}", self.name)
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let frame = Datum::Frame(Box::new(self.source.frame(index)?));
        let sample = Sample::of(self.name(index), POINTS, frame);
        if !self.offers {
            return Ok(sample);
        }
        let bank = self.bank.get_or_init(|| self.source.bank());
        let objects = Datum::Frame(Box::new(self.offer(bank, index)));
        Ok(sample.with(OBJECTS, objects))
    }
}
