use std::path::{Path, PathBuf};

use super::cloud::read_velodyne;
use super::error::PointsError;
use super::frame::{LidarConvention, LidarFrame};
use super::label::read_labels_for;
use super::pose::Pose;
use super::trajectory::{read_lidar_to_camera, read_poses, read_times_us};

/// An opened SemanticKITTI folder: `sequences/NN/{velodyne,labels}/NNNNNN.*` with `poses.txt`, `calib.txt`, `times.txt`.
///
/// Labels, poses and times may be missing, as in the hidden test sequences.
#[derive(Debug)]
pub struct SemanticKitti {
    root: PathBuf,
    sequences: Vec<Sequence>,
}

#[derive(Debug)]
struct Sequence {
    folder: PathBuf,
    scans: Vec<PathBuf>,
    /// The LiDAR's poses, in the LiDAR frame of the first scan.
    poses: Option<Vec<Pose>>,
    times_us: Option<Vec<i64>>,
}

impl SemanticKitti {
    /// Opens `root`, which holds `sequences/`.
    pub fn open(root: &Path) -> Result<Self, PointsError> {
        let folder = root.join("sequences");
        if !folder.is_dir() {
            return Err(PointsError::UnknownLayout {
                path: root.to_path_buf(),
            });
        }
        let sequences = sorted_entries(&folder)?
            .into_iter()
            .filter(|path| path.join("velodyne").is_dir())
            .map(|path| Sequence::open(&path))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            root: root.to_path_buf(),
            sequences,
        })
    }

    /// How many scans there are, over all sequences.
    pub fn frames(&self) -> usize {
        self.sequences
            .iter()
            .map(|sequence| sequence.scans.len())
            .sum()
    }

    /// Scan `index`, counted through all sequences in order.
    pub fn frame(&self, index: usize) -> Result<LidarFrame, PointsError> {
        let mut within = index;
        for sequence in &self.sequences {
            if within < sequence.scans.len() {
                return sequence.frame(within);
            }
            within -= sequence.scans.len();
        }
        Err(PointsError::NoSuchFrame {
            path: self.root.clone(),
            index,
            frames: self.frames(),
        })
    }
}

impl Sequence {
    fn open(folder: &Path) -> Result<Self, PointsError> {
        let scans: Vec<_> = sorted_entries(&folder.join("velodyne"))?
            .into_iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "bin"))
            .collect();
        let one_a_scan = |path: &Path, found: usize| {
            if found == scans.len() {
                return Ok(());
            }
            Err(PointsError::invalid(
                path,
                format!("{found} lines for {} scans", scans.len()),
            ))
        };
        let pose_path = folder.join("poses.txt");
        let poses = if pose_path.is_file() {
            let camera_poses = read_poses(&pose_path)?;
            one_a_scan(&pose_path, camera_poses.len())?;
            let lidar_to_camera = read_lidar_to_camera(&folder.join("calib.txt"))?;
            let camera_to_lidar = lidar_to_camera.inverse();
            let in_lidar_frame =
                |pose: &Pose| camera_to_lidar.compose(pose).compose(&lidar_to_camera);
            Some(camera_poses.iter().map(in_lidar_frame).collect())
        } else {
            None
        };
        let time_path = folder.join("times.txt");
        let times_us = if time_path.is_file() {
            let times = read_times_us(&time_path)?;
            one_a_scan(&time_path, times.len())?;
            Some(times)
        } else {
            None
        };
        Ok(Self {
            folder: folder.to_path_buf(),
            scans,
            poses,
            times_us,
        })
    }

    fn frame(&self, index: usize) -> Result<LidarFrame, PointsError> {
        let scan = &self.scans[index];
        let cloud = read_velodyne(scan)?;
        let label_path = self
            .folder
            .join("labels")
            .join(scan.file_name().unwrap_or_default())
            .with_extension("label");
        let labels = if label_path.is_file() {
            Some(cloud.of_kept(read_labels_for(&label_path, cloud.rows())?))
        } else {
            None
        };
        Ok(LidarFrame {
            labels,
            sensor_to_world: self
                .poses
                .as_ref()
                .map_or(Pose::IDENTITY, |poses| poses[index]),
            timestamp_us: self.times_us.as_ref().map_or(0, |times| times[index]),
            ..LidarFrame::from_cloud(LidarConvention::Kitti, cloud)
        })
    }
}

fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>, PointsError> {
    let entries = std::fs::read_dir(folder).map_err(|source| PointsError::io(folder, source))?;
    let mut paths = entries
        .map(|entry| {
            entry
                .map(|e| e.path())
                .map_err(|source| PointsError::io(folder, source))
        })
        .collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}
