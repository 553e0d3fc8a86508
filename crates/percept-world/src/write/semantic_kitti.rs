use percept_kernels::Cpu;

use crate::error::WorldError;
use crate::stream::World;
use percept_data::points::{Pose, encode_labels, encode_pose, encode_poses, encode_velodyne};

use super::Folder;

/// The LiDAR in the camera's frame: the camera looks forward, x to the right, y down.
const LIDAR_TO_CAMERA: Pose = Pose {
    rotation: [[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]],
    translation: [0.0, -0.08, -0.27],
};

pub(super) fn write(
    cpu: &Cpu,
    world: &mut World,
    frames: usize,
    folder: &mut Folder,
    progress: &mut dyn FnMut(usize),
) -> Result<(), WorldError> {
    const SEQUENCE: &str = "sequences/00";
    let mut sensor_poses = Vec::with_capacity(frames);
    let mut times = String::new();
    for index in 0..frames {
        let sweep = world.sweep(cpu, index, 0);
        folder.write(
            &format!("{SEQUENCE}/velodyne/{index:06}.bin"),
            &encode_velodyne(&sweep.points),
        )?;
        folder.write(
            &format!("{SEQUENCE}/labels/{index:06}.label"),
            &encode_labels(&sweep.labels),
        )?;
        folder.summary.clouds += 1;
        folder.summary.frames += 1;
        folder.summary.points += sweep.points.len();
        sensor_poses.push(sweep.sensor_to_world);
        let since_start_us = world.timestamp_us(index, 0) - world.timestamp_us(0, 0);
        times += &format!("{:e}\n", since_start_us as f64 * 1e-6);
        progress(index + 1);
    }
    // KITTI's poses are the camera's, seen from its first place.
    let to_first = sensor_poses.first().map_or(Pose::IDENTITY, Pose::inverse);
    let camera_to_lidar = LIDAR_TO_CAMERA.inverse();
    let camera_pose = |pose: &Pose| {
        LIDAR_TO_CAMERA
            .compose(&to_first.compose(pose))
            .compose(&camera_to_lidar)
    };
    let camera_poses: Vec<Pose> = sensor_poses.iter().map(camera_pose).collect();
    folder.write(
        &format!("{SEQUENCE}/poses.txt"),
        encode_poses(&camera_poses).as_bytes(),
    )?;
    folder.write(&format!("{SEQUENCE}/times.txt"), times.as_bytes())?;
    folder.write(
        &format!("{SEQUENCE}/calib.txt"),
        format!("Tr: {}\n", encode_pose(&LIDAR_TO_CAMERA)).as_bytes(),
    )
}
