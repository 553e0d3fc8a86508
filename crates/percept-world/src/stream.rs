//! Frames straight from the world, without a disk.

use std::collections::HashMap;
use std::str::FromStr;

use percept_kernels::Cpu;

use percept_data::points::pose::{add_scaled, wrap_angle};
use percept_data::points::{Box3d, LidarFrame, ObjectClass, Pose, append_older_sweep};

use super::camera::{CameraRig, CameraView, Moment};
use super::lidar::{Lidar, Sweep};
use super::objects::Rider;
use super::scene::{Scene, Tour};
use super::visits::{Pass, Revisit, revisits};
use super::weather::Weather;
use percept_data::random::{Draws, hash};

/// Which dataset the world imitates: its sensor, its rhythm, its conventions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorldKind {
    /// 32 beams at 20 Hz, keyframes at 2 Hz with boxes, scenes of 40 keyframes, each in another town.
    NuScenes,
    /// 64 beams at 10 Hz, every scan a frame with point labels, one sequence through one town.
    SemanticKitti,
    /// As nuScenes, with six cameras, through one town in several passes of [`WorldConfig::frames_per_pass`] keyframes: the
    /// first is the database, later ones come by the same places in another lane, light and traffic.
    Places,
}

impl FromStr for WorldKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "nuscenes" => Ok(Self::NuScenes),
            "semantickitti" => Ok(Self::SemanticKitti),
            "places" => Ok(Self::Places),
            _ => Err(format!(
                "unknown kind {name:?}: expected nuscenes, semantickitti or places"
            )),
        }
    }
}

impl std::fmt::Display for WorldKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NuScenes => "nuscenes",
            Self::SemanticKitti => "semantickitti",
            Self::Places => "places",
        })
    }
}

/// Which world to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldConfig {
    /// The dataset to imitate.
    pub kind: WorldKind,
    /// Everything follows from it.
    pub seed: u64,
    /// Sweeps merged into a frame, 1..=10 (the frame's own and older ones).
    pub sweeps: usize,
    /// How often the tour of a world of places is driven.
    pub passes: usize,
    /// Keyframes of each of these drives.
    pub frames_per_pass: usize,
}

impl WorldConfig {
    /// The world of `seed` with one sweep a frame; of places, three passes of forty frames.
    pub fn new(kind: WorldKind, seed: u64) -> Self {
        Self {
            kind,
            seed,
            sweeps: 1,
            passes: 3,
            frames_per_pass: KEYFRAMES_PER_SCENE,
        }
    }
}

/// The most sweeps that one frame merges: nuScenes has ten between two keyframes.
pub const MAX_SWEEPS: usize = 10;

/// Keyframes of one nuScenes scene: twenty seconds.
pub const KEYFRAMES_PER_SCENE: usize = 40;

/// A moment before which the first sweeps of a scene can look back.
const SCENE_START_S: f64 = 1.0;
/// 2024-01-01 in microseconds: any number would do that reads like a time.
const FIRST_TIMESTAMP_US: i64 = 1_704_067_200_000_000;
const SCENE_GAP_US: i64 = 60_000_000;
/// Between two passes: a day.
const PASS_GAP_US: i64 = 86_400_000_000;
const KEYFRAME_GAP_S: f64 = 0.5;

/// The streams of random numbers.
mod purpose {
    pub(super) const SCENE: u64 = 10;
    pub(super) const NOISE: u64 = 11;
    pub(super) const PICTURES: u64 = 12;
    pub(super) const WEATHER: u64 = 13;
}

/// A deterministic world: any frame of it, in any order, on any number of threads, always the same bits.
///
/// ```
/// use percept_world::{World, WorldConfig, WorldKind};
/// use percept_kernels::Cpu;
///
/// let cpu = Cpu::new(2)?;
/// let mut world = World::new(WorldConfig::new(WorldKind::NuScenes, 7));
/// let frame = world.frame(&cpu, 3);
/// assert_eq!(frame.points.len(), 34_688);
/// assert_eq!(frame.labels.as_ref().map(Vec::len), Some(frame.points.len()));
/// # Ok::<(), percept_kernels::CpuError>(())
/// ```
#[derive(Debug)]
pub struct World {
    config: WorldConfig,
    lidar: Lidar,
    /// The towns that were looked at last, with their numbers, the latest first.
    towns: Vec<(usize, Scene)>,
}

/// The true box of an object, upright in the world.
#[derive(Clone, Debug)]
pub(crate) struct TrueBox {
    /// The object's number in its scene.
    pub(crate) body: usize,
    pub(crate) class: ObjectClass,
    pub(crate) rider: Rider,
    /// Length, width, height.
    pub(crate) size: [f64; 3],
    /// The middle of the box.
    pub(crate) box_to_world: Pose,
    pub(crate) velocity: [f64; 3],
    pub(crate) lidar_points: usize,
}

impl TrueBox {
    pub(crate) fn in_sensor(&self, world_to_sensor: &Pose) -> Box3d {
        let pose = world_to_sensor.compose(&self.box_to_world);
        let velocity = world_to_sensor.rotate(self.velocity);
        Box3d {
            class: self.class,
            centre: pose.translation,
            size: self.size,
            yaw_rad: wrap_angle(pose.yaw_rad()),
            velocity: Some([velocity[0], velocity[1]]),
            lidar_points: self.lidar_points,
            instance: self.body as u32 + 1,
        }
    }
}

impl World {
    /// The world of `config`; towns are built when their first frame is asked for. Sweeps beyond
    /// [`MAX_SWEEPS`] are not made.
    pub fn new(config: WorldConfig) -> Self {
        let lidar = match config.kind {
            WorldKind::NuScenes | WorldKind::Places => Lidar::nuscenes(),
            WorldKind::SemanticKitti => Lidar::kitti(),
        };
        Self {
            config: WorldConfig {
                sweeps: config.sweeps.clamp(1, MAX_SWEEPS),
                ..config
            },
            lidar,
            towns: Vec::new(),
        }
    }

    /// What the world was made from.
    pub fn config(&self) -> &WorldConfig {
        &self.config
    }

    /// The sensor on the roof.
    pub fn lidar(&self) -> &Lidar {
        &self.lidar
    }

    /// Frame `index` with its truth.
    pub fn frame(&mut self, cpu: &Cpu, index: usize) -> LidarFrame {
        let key = self.sweep(cpu, index, 0);
        let world_to_sensor = key.sensor_to_world.inverse();
        let boxes = self.true_boxes(index, &key);
        let mut points = key.points;
        let mut labels = key.labels;
        for back in 1..self.config.sweeps {
            let older = self.sweep(cpu, index, back);
            let sweep_to_frame = world_to_sensor.compose(&older.sensor_to_world);
            let age_s = back as f64 * self.lidar.period_s();
            append_older_sweep(
                &mut points,
                &older.points,
                &sweep_to_frame,
                age_s as f32,
                |kept| {
                    labels.push(older.labels[kept]);
                },
            );
        }
        LidarFrame {
            labels: Some(labels),
            boxes: Some(
                boxes
                    .iter()
                    .map(|b| b.in_sensor(&world_to_sensor))
                    .collect(),
            ),
            sensor_to_world: key.sensor_to_world,
            timestamp_us: self.timestamp_us(index, 0),
            ..LidarFrame::from_points(self.lidar.convention(), points)
        }
    }

    /// What the cameras of `rig` see in frame `index`.
    pub fn views(&mut self, cpu: &Cpu, index: usize, rig: &CameraRig) -> Vec<CameraView> {
        self.views_under(cpu, index, rig, &self.weather(index))
    }

    /// What they would see in another weather.
    pub fn views_under(
        &mut self,
        cpu: &Cpu,
        index: usize,
        rig: &CameraRig,
        weather: &Weather,
    ) -> Vec<CameraView> {
        let moment = Moment {
            end_s: self.time_s(index, 0),
            timestamp_us: self.timestamp_us(index, 0),
            key: hash(
                self.config.seed,
                purpose::PICTURES,
                self.town_of(index) as u64,
            ),
            number: index as u64,
        };
        let lidar = self.lidar.clone();
        rig.look(cpu, self.scene(index), &lidar, weather, moment)
    }

    /// Every frame in turn, for ever.
    pub fn into_stream(self, cpu: &Cpu) -> WorldStream<'_> {
        WorldStream {
            world: self,
            cpu,
            next: 0,
        }
    }

    /// The weather of frame `index`: every town and every pass has its own.
    pub fn weather(&self, index: usize) -> Weather {
        let town = self.town_of(index);
        match self.config.kind {
            WorldKind::Places => Pass::new(self.config.seed, town).weather,
            WorldKind::NuScenes | WorldKind::SemanticKitti => Weather::drawn(&mut Draws::of(&[
                self.config.seed,
                purpose::WEATHER,
                town as u64,
            ])),
        }
    }

    /// The pass that frame `index` belongs to; only a world of places has passes.
    pub fn pass(&self, index: usize) -> Option<Pass> {
        let pass = || Pass::new(self.config.seed, self.town_of(index));
        (self.config.kind == WorldKind::Places).then(pass)
    }

    /// How many frames a world of places has; other worlds go on for ever.
    pub fn frames(&self) -> Option<usize> {
        let passes = self.config.passes * self.config.frames_per_pass;
        (self.config.kind == WorldKind::Places).then_some(passes)
    }

    /// The pose of the ego vehicle at frame `index`, without looking at anything.
    pub fn ego_to_world(&mut self, index: usize) -> Pose {
        let end_s = self.time_s(index, 0);
        self.scene(index).ego_to_world(end_s)
    }

    /// The pairs of frames that show one place: a frame of a later pass, and one of the first within
    /// [`REVISIT_M`](crate::REVISIT_M). Other worlds have none.
    pub fn revisits(&mut self) -> Vec<Revisit> {
        let frames = self.frames().unwrap_or(0);
        let places: Vec<[f64; 3]> = (0..frames)
            .map(|index| self.ego_to_world(index).translation)
            .collect();
        let passes: Vec<Vec<[f64; 3]>> = places
            .chunks(self.config.frames_per_pass.max(1))
            .map(<[_]>::to_vec)
            .collect();
        revisits(&passes)
    }

    /// Keyframes of a scene.
    pub(crate) fn frames_per_scene(&self) -> usize {
        match self.config.kind {
            WorldKind::NuScenes | WorldKind::SemanticKitti => KEYFRAMES_PER_SCENE,
            WorldKind::Places => self.config.frames_per_pass.max(1),
        }
    }

    /// The number of the town that frame `index` shows.
    pub(crate) fn town_of(&self, index: usize) -> usize {
        match self.config.kind {
            WorldKind::NuScenes | WorldKind::Places => index / self.frames_per_scene(),
            WorldKind::SemanticKitti => 0,
        }
    }

    /// When the sweep `back` turns before frame `index` ends, in its town's time.
    pub(crate) fn time_s(&self, index: usize, back: usize) -> f64 {
        let frame_s = match self.config.kind {
            WorldKind::NuScenes | WorldKind::Places => {
                (index % self.frames_per_scene()) as f64 * KEYFRAME_GAP_S
            }
            WorldKind::SemanticKitti => index as f64 * 0.1,
        };
        SCENE_START_S + frame_s - back as f64 * self.lidar.period_s()
    }

    /// The same moment on the recording's clock.
    pub(crate) fn timestamp_us(&self, index: usize, back: usize) -> i64 {
        let gap_us = match self.config.kind {
            WorldKind::NuScenes | WorldKind::SemanticKitti => SCENE_GAP_US,
            WorldKind::Places => PASS_GAP_US,
        };
        let town_us = self.town_of(index) as i64 * gap_us;
        FIRST_TIMESTAMP_US + town_us + (self.time_s(index, back) * 1e6).round() as i64
    }

    /// The sweep `back` turns before frame `index` ends.
    pub(crate) fn sweep(&mut self, cpu: &Cpu, index: usize, back: usize) -> Sweep {
        let end_s = self.time_s(index, back);
        let noise_seed = hash(self.config.seed, purpose::NOISE, self.town_of(index) as u64);
        let number = (end_s / self.lidar.period_s()).round() as u64;
        let lidar = self.lidar.clone();
        lidar.sweep(cpu, self.scene(index), noise_seed, number, end_s)
    }

    /// The boxes of all objects that the frame's own sweep met.
    ///
    /// An object that moves is boxed where it was when the turn passed it, which is where its points are (and
    /// where people annotate it).
    pub(crate) fn true_boxes(&mut self, index: usize, key: &Sweep) -> Vec<TrueBox> {
        let end_s = self.time_s(index, 0);
        let mut counts: HashMap<u16, usize> = HashMap::new();
        for label in key.labels.iter().filter(|label| label.instance != 0) {
            *counts.entry(label.instance).or_default() += 1;
        }
        let mut seen: Vec<(u16, usize)> = counts.into_iter().collect();
        seen.sort_unstable();
        let world_to_sensor = key.sensor_to_world.inverse();
        let (period_s, lidar) = (self.lidar.period_s(), self.lidar.clone());
        let scene = self.scene(index);
        seen.into_iter()
            .map(|(instance, lidar_points)| {
                let body_index = usize::from(instance) - 1;
                let body = &scene.bodies[body_index];
                let (end, velocity) = scene.body_in_sweep(body_index, end_s, period_s);
                let pass_s = lidar.pass_time_s(world_to_sensor.apply(end.translation));
                let mut middle = add_scaled(end.translation, pass_s, velocity);
                middle[2] += 0.5 * body.size[2];
                TrueBox {
                    body: body_index,
                    class: body.class,
                    rider: body.rider,
                    size: body.size,
                    box_to_world: Pose {
                        translation: middle,
                        ..end
                    },
                    velocity,
                    lidar_points,
                }
            })
            .collect()
    }

    /// The town of frame `index`, built if it is not the one that was looked at last.
    pub(crate) fn scene(&mut self, index: usize) -> &Scene {
        let number = self.town_of(index);
        match self.towns.iter().position(|(known, _)| *known == number) {
            Some(place) => self.towns[..=place].rotate_right(1),
            None => {
                // Streets are driven in order; places are asked for in any order, and have a town for each pass.
                let kept = match self.config.kind {
                    WorldKind::NuScenes | WorldKind::SemanticKitti => 1,
                    WorldKind::Places => self.config.passes.max(1),
                };
                self.towns.truncate(kept - 1);
                self.towns.insert(0, (number, self.build_town(number)));
            }
        }
        &self.towns[0].1
    }

    fn build_town(&self, number: usize) -> Scene {
        let seed = self.config.seed;
        match self.config.kind {
            WorldKind::NuScenes | WorldKind::SemanticKitti => {
                Scene::new(hash(seed, purpose::SCENE, number as u64))
            }
            WorldKind::Places => {
                let tour = Tour {
                    pass: Pass::new(seed, number),
                    start_s: SCENE_START_S,
                    covered_s: self.config.frames_per_pass as f64 * KEYFRAME_GAP_S,
                };
                Scene::toured(hash(seed, purpose::SCENE, 0), &tour)
            }
        }
    }
}

/// The endless stream of a world's frames, for a training loop.
#[derive(Debug)]
pub struct WorldStream<'a> {
    world: World,
    cpu: &'a Cpu,
    next: usize,
}

impl Iterator for WorldStream<'_> {
    type Item = LidarFrame;

    fn next(&mut self) -> Option<LidarFrame> {
        let frame = self.world.frame(self.cpu, self.next);
        self.next += 1;
        Some(frame)
    }
}
