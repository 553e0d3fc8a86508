use std::fs::File;
use std::path::{Path, PathBuf};

use super::cloud::{read_merged_f16, read_nuscenes_cloud, read_velodyne};
use super::error::PointsError;
use super::frame::{LidarConvention, LidarFrame, ObjectClass};
use super::keyframe::{ANNOTATION_FILE, is_keyframe_folder, read_boxes, read_keyframe_folder};
use super::label::read_labels_for;
use super::nuscenes::{NuScenes, find_table_folder};
use super::semantic_kitti::SemanticKitti;

/// LiDAR frames from wherever a user points: a whole dataset folder or one cloud.
#[derive(Debug)]
pub enum LidarDataset {
    /// A nuScenes folder.
    NuScenes(Box<NuScenes>),
    /// A folder with one keyframe of nuScenes: `LIDAR_TOP.pcd.bin`, and where there are, `CAM_*.jpg` and `annotations.json`.
    Keyframe(PathBuf),
    /// A SemanticKITTI folder.
    SemanticKitti(SemanticKitti),
    /// One cloud: `*.pcd.bin` (with `annotations.json` beside it, where there is one), `*.bin` (with
    /// `*.label` beside it, where there is one), or merged sweeps `*_fp16x5.bin`.
    SingleCloud(PathBuf),
}

impl LidarDataset {
    /// Recognises the layout at `path`.
    pub fn open(path: &Path) -> Result<Self, PointsError> {
        if path.is_dir() {
            if path.join("sequences").is_dir() {
                return Ok(Self::SemanticKitti(SemanticKitti::open(path)?));
            }
            if is_keyframe_folder(path) {
                return Ok(Self::Keyframe(path.to_path_buf()));
            }
            find_table_folder(path)?;
            return Ok(Self::NuScenes(Box::new(NuScenes::open(path)?)));
        }
        File::open(path).map_err(|source| PointsError::io(path, source))?;
        if !file_name(path).ends_with(".bin") {
            return Err(PointsError::UnknownLayout {
                path: path.to_path_buf(),
            });
        }
        Ok(Self::SingleCloud(path.to_path_buf()))
    }

    /// How many frames there are.
    pub fn frames(&self) -> usize {
        match self {
            Self::NuScenes(dataset) => dataset.frames(),
            Self::SemanticKitti(dataset) => dataset.frames(),
            Self::Keyframe(_) | Self::SingleCloud(_) => 1,
        }
    }

    /// The detection classes that are annotated in frame `index`, each once, in the order of their numbers. Only the tables of
    /// a nuScenes folder tell; elsewhere, and where they contradict themselves, there are none.
    pub fn classes_in(&self, index: usize) -> Vec<ObjectClass> {
        let Self::NuScenes(dataset) = self else {
            return Vec::new();
        };
        let annotations = dataset.annotations(index).unwrap_or_default();
        let occurs = |class: &ObjectClass| annotations.iter().any(|a| a.class == Some(*class));
        ObjectClass::ALL.into_iter().filter(occurs).collect()
    }

    /// Frame `index`; nuScenes folders merge up to `sweeps` sweeps, other layouts have one.
    pub fn frame(&self, index: usize, sweeps: usize) -> Result<LidarFrame, PointsError> {
        match self {
            Self::NuScenes(dataset) => dataset.frame(index, sweeps),
            Self::SemanticKitti(dataset) => dataset.frame(index),
            Self::Keyframe(folder) if index == 0 => read_keyframe_folder(folder),
            Self::SingleCloud(path) if index == 0 => single_cloud(path),
            Self::Keyframe(path) | Self::SingleCloud(path) => Err(PointsError::NoSuchFrame {
                path: path.clone(),
                index,
                frames: 1,
            }),
        }
    }
}

fn single_cloud(path: &Path) -> Result<LidarFrame, PointsError> {
    let name = file_name(path);
    if name.ends_with("_fp16x5.bin") {
        return Ok(LidarFrame::from_cloud(
            LidarConvention::NuScenes,
            read_merged_f16(path)?,
        ));
    }
    if name.ends_with(".pcd.bin") {
        let cloud = read_nuscenes_cloud(path)?;
        let mut frame = LidarFrame::from_cloud(LidarConvention::NuScenes, cloud);
        let annotations = path.with_file_name(ANNOTATION_FILE);
        if annotations.is_file() {
            frame.boxes = Some(read_boxes(&annotations)?);
        }
        return Ok(frame);
    }
    let cloud = read_velodyne(path)?;
    let label_path = path.with_extension("label");
    let labels = if label_path.is_file() {
        Some(cloud.of_kept(read_labels_for(&label_path, cloud.rows())?))
    } else {
        None
    };
    Ok(LidarFrame {
        labels,
        ..LidarFrame::from_cloud(LidarConvention::Kitti, cloud)
    })
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
