use std::path::PathBuf;

use super::pose::Pose;
use crate::error::FileError;
use crate::images::{RgbImage, read_image};

/// The six cameras of nuScenes, clockwise from the front: the order in which networks take them.
pub const CAMERA_CHANNELS: [&str; 6] = [
    "CAM_FRONT",
    "CAM_FRONT_RIGHT",
    "CAM_BACK_RIGHT",
    "CAM_BACK",
    "CAM_BACK_LEFT",
    "CAM_FRONT_LEFT",
];

/// A pinhole camera at the moment of a frame, and the picture that it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Camera {
    /// Its name in the dataset, e.g. `CAM_FRONT`.
    pub channel: String,
    /// The picture: JPEG or PNG. Whether it is there is seen when it is read.
    pub path: PathBuf,
    /// Row-major 3x3 matrix from the camera's frame (x to the right, y down, z forward) to pixels.
    pub intrinsics: [[f64; 3]; 3],
    /// Where the camera is on the vehicle.
    pub camera_to_ego: Pose,
    /// Where the vehicle was when the picture was taken, which is not quite when the LiDAR's sweep ended.
    pub ego_to_world: Pose,
    /// Microseconds.
    pub timestamp_us: i64,
}

impl Camera {
    /// Reads the picture; the error names its file.
    pub fn image(&self) -> Result<RgbImage, FileError> {
        read_image(&self.path)
    }

    /// Where the camera was when the picture was taken.
    pub fn camera_to_world(&self) -> Pose {
        self.ego_to_world.compose(&self.camera_to_ego)
    }

    /// The pixel (x, y) on which a point of the world falls, whether or not it is inside the picture, and the
    /// point's depth in metres; none for what is not in front of the camera.
    pub fn project(&self, in_world: [f64; 3]) -> Option<([f64; 2], f64)> {
        let [x, y, z] = self.camera_to_world().inverse().apply(in_world);
        let [[fx, skew, cx], [_, fy, cy], _] = self.intrinsics;
        (z > 0.0).then(|| ([(fx * x + skew * y) / z + cx, fy * y / z + cy], z))
    }
}

/// Nearer than this to the camera's plane nothing is drawn.
const NEAREST_M: f64 = 0.1;

impl Camera {
    /// Where the line between two points of the world falls on the picture; what of it is behind the camera is cut off.
    pub fn project_line(&self, ends: [[f64; 3]; 2]) -> Option<[[f64; 2]; 2]> {
        let to_camera = self.camera_to_world().inverse();
        let [a, b] = ends.map(|end| to_camera.apply(end));
        let cut = |inner: [f64; 3], outer: [f64; 3]| {
            let share = (NEAREST_M - inner[2]) / (outer[2] - inner[2]);
            std::array::from_fn(|i| inner[i] + share * (outer[i] - inner[i]))
        };
        let [a, b] = match [a, b].map(|end| end[2] >= NEAREST_M) {
            [true, true] => [a, b],
            [true, false] => [a, cut(a, b)],
            [false, true] => [cut(b, a), b],
            [false, false] => return None,
        };
        let [[fx, skew, cx], [_, fy, cy], _] = self.intrinsics;
        Some([a, b].map(|[x, y, z]| [(fx * x + skew * y) / z + cx, fy * y / z + cy]))
    }
}

/// Whether a matrix can be a pinhole camera's.
pub(super) fn is_pinhole(intrinsics: &[[f64; 3]; 3]) -> bool {
    let finite = intrinsics.iter().flatten().all(|v| v.is_finite());
    let [[fx, ..], [zero, fy, _], last] = *intrinsics;
    finite && fx > 0.0 && fy > 0.0 && zero == 0.0 && last == [0.0, 0.0, 1.0]
}

/// Brings cameras into the order of [`CAMERA_CHANNELS`]; others follow by name.
pub(super) fn sort_cameras(cameras: &mut [Camera]) {
    let place = |channel: &str| CAMERA_CHANNELS.iter().position(|known| *known == channel);
    cameras.sort_by(|a, b| {
        let key = |camera: &Camera| place(&camera.channel).unwrap_or(CAMERA_CHANNELS.len());
        key(a).cmp(&key(b)).then_with(|| a.channel.cmp(&b.channel))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ahead_falls_into_the_middle_of_the_picture() {
        // Looking along the ego's x axis, one metre up; the ego stands at (10, 0).
        let camera = Camera {
            channel: "CAM_FRONT".to_owned(),
            path: PathBuf::new(),
            intrinsics: [[100.0, 0.0, 80.0], [0.0, 100.0, 45.0], [0.0, 0.0, 1.0]],
            camera_to_ego: Pose {
                rotation: [[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]],
                translation: [0.0, 0.0, 1.0],
            },
            ego_to_world: Pose {
                translation: [10.0, 0.0, 0.0],
                ..Pose::IDENTITY
            },
            timestamp_us: 0,
        };
        assert_eq!(camera.project([30.0, 0.0, 1.0]), Some(([80.0, 45.0], 20.0)));
        // Two metres to the left and one metre below the camera's axis.
        assert_eq!(camera.project([30.0, 2.0, 0.0]), Some(([70.0, 50.0], 20.0)));
        assert_eq!(camera.project([5.0, 0.0, 1.0]), None);
        // A line that comes from behind begins at the camera's plane.
        let line = camera.project_line([[5.0, 0.0, 0.0], [30.0, 0.0, 0.0]]);
        let [from, to] = line.expect("its farther half is seen");
        assert!((to[0] - 80.0).abs() < 1e-9 && (to[1] - 50.0).abs() < 1e-9 && from[1] > 1000.0);
        assert_eq!(
            camera.project_line([[5.0, 0.0, 0.0], [9.0, 0.0, 0.0]]),
            None
        );
    }

    #[test]
    fn matrices_that_are_no_cameras_are_told_apart() {
        let good = [[100.0, 0.0, 80.0], [0.0, 100.0, 45.0], [0.0, 0.0, 1.0]];
        assert!(is_pinhole(&good));
        for (row, column, value) in [(0, 0, 0.0), (1, 1, -1.0), (2, 2, 2.0), (0, 2, f64::NAN)] {
            let mut bad = good;
            bad[row][column] = value;
            assert!(!is_pinhole(&bad), "{bad:?}");
        }
    }
}
