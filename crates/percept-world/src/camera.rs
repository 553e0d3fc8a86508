//! The six cameras of the nuScenes cars.

use percept_data::points::{CAMERA_CHANNELS, Camera, Pose, Quaternion};
use percept_kernels::Cpu;

use super::error::WorldError;
use super::lidar::Lidar;
use super::scene::Scene;
use super::view::{PictureSize, Shot, View, take};
use super::weather::{Illumination, Weather};
use percept_data::random::hash;

/// The size for which nuScenes gives its intrinsics.
const FULL_SIZE: [f64; 2] = [1600.0, 900.0];

/// Where a camera stands on the vehicle, and what it sees.
#[derive(Clone, Debug, PartialEq)]
pub struct CameraMount {
    channel: &'static str,
    /// Focal length, and the middle of the picture, in pixels of the full size.
    focal: f64,
    middle: [f64; 2],
    camera_to_ego: Pose,
}

/// Cameras that take pictures of one size together.
#[derive(Clone, Debug, PartialEq)]
pub struct CameraRig {
    mounts: Vec<CameraMount>,
    size: PictureSize,
}

/// What one camera of a rig saw: the picture, its truth, and where the camera was.
#[derive(Clone, Debug, PartialEq)]
pub struct CameraView {
    /// The picture and what its pixels show.
    pub view: View,
    /// The camera at that moment. Its path is where [`make`](crate::make) would write the picture; nothing is there.
    pub camera: Camera,
}

impl CameraRig {
    /// The six cameras with the calibration of a nuScenes car. A smaller picture shows the same, so one of another shape is
    /// squeezed, as networks take them.
    pub fn nuscenes(size: PictureSize) -> Self {
        // Focal length, middle, rotation and place on the vehicle, in the order of the channels.
        let mount = |channel, focal, middle, rotation, place| {
            Quaternion(rotation)
                .to_pose(place)
                .map(|camera_to_ego| CameraMount {
                    channel,
                    focal,
                    middle,
                    camera_to_ego,
                })
        };
        let [front, front_right, back_right, back, back_left, front_left] = CAMERA_CHANNELS;
        let mounts = [
            mount(
                front,
                1266.4,
                [816.3, 491.5],
                [0.4998, -0.503, 0.4998, -0.4974],
                [1.701, 0.016, 1.511],
            ),
            mount(
                front_right,
                1260.8,
                [808.0, 495.3],
                [0.206, -0.2027, 0.6825, -0.6714],
                [1.551, -0.493, 1.496],
            ),
            mount(
                back_right,
                1259.5,
                [807.3, 501.2],
                [0.1228, -0.1324, -0.7004, 0.6905],
                [1.015, -0.481, 1.562],
            ),
            mount(
                back,
                809.2,
                [829.2, 481.8],
                [0.5038, -0.4974, -0.4942, 0.5045],
                [0.028, 0.003, 1.579],
            ),
            mount(
                back_left,
                1256.7,
                [792.1, 492.8],
                [0.6924, -0.7032, -0.1165, 0.112],
                [1.036, 0.485, 1.591],
            ),
            mount(
                front_left,
                1272.6,
                [826.6, 479.8],
                [0.6757, -0.6736, 0.2121, -0.2112],
                [1.524, 0.495, 1.509],
            ),
        ];
        let mounts = mounts.into_iter().flatten().collect();
        Self { mounts, size }
    }

    /// Only the cameras of these channels, in the rig's order.
    pub fn only(self, channels: &[&str]) -> Result<Self, WorldError> {
        let known = |name: &&&str| !CAMERA_CHANNELS.contains(name);
        if let Some(name) = channels.iter().find(known) {
            return Err(WorldError::UnknownChannel {
                name: (*name).to_owned(),
            });
        }
        let mounts = self.mounts.into_iter();
        Ok(Self {
            mounts: mounts.filter(|m| channels.contains(&m.channel)).collect(),
            ..self
        })
    }

    /// The channels, in order.
    pub fn channels(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.mounts.iter().map(|mount| mount.channel)
    }

    /// The size of every picture.
    pub fn size(&self) -> PictureSize {
        self.size
    }

    pub(crate) fn mounts(&self) -> &[CameraMount] {
        &self.mounts
    }

    /// Looks at `scene` during the LiDAR's turn that ends at `end_s`: each camera when the turn passes it, as the
    /// recording cars do, so that the boxes of the turn lie on what the pictures show.
    pub(crate) fn look(
        &self,
        cpu: &Cpu,
        scene: &Scene,
        lidar: &Lidar,
        weather: &Weather,
        moment: Moment,
    ) -> Vec<CameraView> {
        let sky_seed = hash(moment.key, 0, 0) as u32;
        let light = Illumination::outdoors(weather, sky_seed);
        let here = scene.ego_to_world(moment.end_s).translation;
        let moving = scene.moving_solids(here, REACH_M, moment.end_s, lidar.period_s());
        let exposures: Vec<(f64, Pose)> = self
            .mounts
            .iter()
            .map(|mount| {
                let time_s = lidar.pass_time_s(mount.axis_in(lidar));
                (time_s, scene.ego_to_world(moment.end_s + time_s))
            })
            .collect();
        let shots: Vec<Shot<'_>> = self
            .mounts
            .iter()
            .zip(&exposures)
            .enumerate()
            .map(|(number, (mount, (time_s, ego_to_world)))| Shot {
                stage: scene.stage(&moving),
                light: &light,
                size: self.size,
                intrinsics: mount.intrinsics(self.size),
                camera_to_world: ego_to_world.compose(&mount.camera_to_ego),
                time_s: *time_s,
                key: hash(moment.key, 1 + moment.number, number as u64),
            })
            .collect();
        let views = take(cpu, &shots).into_iter();
        let described = self.mounts.iter().zip(exposures);
        views
            .zip(described)
            .map(|(view, (mount, (time_s, ego_to_world)))| {
                let timestamp_us = moment.timestamp_us + (time_s * 1e6).round() as i64;
                let camera = Camera {
                    channel: mount.channel.to_owned(),
                    path: picture_name(mount.channel, timestamp_us).into(),
                    intrinsics: mount.intrinsics(self.size),
                    camera_to_ego: mount.camera_to_ego,
                    ego_to_world,
                    timestamp_us,
                };
                CameraView { view, camera }
            })
            .collect()
    }
}

/// When a rig looks, and the words that its noise and its clouds follow from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) end_s: f64,
    pub(crate) timestamp_us: i64,
    /// Of the drive.
    pub(crate) key: u64,
    /// Of the frame.
    pub(crate) number: u64,
}

/// Traffic farther away is not drawn.
const REACH_M: f64 = 220.0;

/// Where a camera's picture belongs in a nuScenes folder.
pub(crate) fn picture_name(channel: &str, timestamp_us: i64) -> String {
    format!("samples/{channel}/percept-synthetic__{channel}__{timestamp_us}.jpg")
}

impl CameraMount {
    /// The channel's name.
    pub fn channel(&self) -> &'static str {
        self.channel
    }

    /// Where the camera stands on the vehicle.
    pub fn camera_to_ego(&self) -> &Pose {
        &self.camera_to_ego
    }

    /// The matrix from the camera's frame to pixels of a picture of `size`.
    pub fn intrinsics(&self, size: PictureSize) -> [[f64; 3]; 3] {
        let x = size.width() as f64 / FULL_SIZE[0];
        let y = size.height() as f64 / FULL_SIZE[1];
        [
            [self.focal * x, 0.0, self.middle[0] * x],
            [0.0, self.focal * y, self.middle[1] * y],
            [0.0, 0.0, 1.0],
        ]
    }

    /// A point far along the camera's axis, in the LiDAR's frame.
    fn axis_in(&self, lidar: &Lidar) -> [f64; 3] {
        let far = self.camera_to_ego.apply([0.0, 0.0, 100.0]);
        lidar.sensor_to_ego().inverse().apply(far)
    }
}
