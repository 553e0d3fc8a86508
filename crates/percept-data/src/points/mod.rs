//! Point clouds with their truth: readers of the public layouts, one frame type for all of them.
//!
//! Real and synthetic folders take the same path: [`LidarDataset::open`] recognises the layout,
//! [`LidarDataset::frame`] gives a [`LidarFrame`]. Every reader answers a broken file with a [`PointsError`]
//! that names it.

pub mod augment;
mod camera;
mod cloud;
mod dataset;
mod error;
mod file;
mod frame;
mod keyframe;
mod label;
pub mod nuscenes;
pub mod pose;
mod semantic_kitti;
mod trajectory;

pub use camera::{CAMERA_CHANNELS, Camera};
pub use cloud::{
    Cloud, encode_nuscenes_cloud, encode_velodyne, read_merged_f16, read_nuscenes_cloud,
    read_velodyne,
};
pub use dataset::LidarDataset;
pub use error::PointsError;
pub use file::{PlyPoints, PointCloud, PointFormat, read_frame, read_points, write_ply};
pub use frame::{
    Box3d, EGO_HALF_EXTENT_M, LidarConvention, LidarFrame, ObjectClass, Point, append_older_sweep,
    box_edges,
};
pub use label::{
    LEARNED_CLASS_IDS, LEARNED_CLASS_NAMES, PointLabel, encode_labels, read_labels,
    read_labels_for, write_labels,
};
pub use pose::{Pose, Quaternion};
pub use semantic_kitti::SemanticKitti;
pub use trajectory::{encode_pose, encode_poses, read_lidar_to_camera, read_poses, read_times_us};
