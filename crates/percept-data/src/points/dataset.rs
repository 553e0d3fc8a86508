use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::cloud::{read_merged_f16, read_nuscenes_cloud, read_velodyne};
use super::error::{PointsError, read_text};
use super::frame::{Box3d, LidarConvention, LidarFrame, ObjectClass};
use super::label::read_labels_for;
use super::nuscenes::{NuScenes, find_table_folder};
use super::semantic_kitti::SemanticKitti;

/// LiDAR frames from wherever a user points: a whole dataset folder or one cloud.
#[derive(Debug)]
pub enum LidarDataset {
    /// A nuScenes folder.
    NuScenes(Box<NuScenes>),
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
            Self::SingleCloud(_) => 1,
        }
    }

    /// Frame `index`; nuScenes folders merge up to `sweeps` sweeps, other layouts have one.
    pub fn frame(&self, index: usize, sweeps: usize) -> Result<LidarFrame, PointsError> {
        match self {
            Self::NuScenes(dataset) => dataset.frame(index, sweeps),
            Self::SemanticKitti(dataset) => dataset.frame(index),
            Self::SingleCloud(path) if index == 0 => single_cloud(path),
            Self::SingleCloud(path) => Err(PointsError::NoSuchFrame {
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
        return Ok(LidarFrame::from_points(
            LidarConvention::NuScenes,
            read_merged_f16(path)?,
        ));
    }
    if name.ends_with(".pcd.bin") {
        let mut frame =
            LidarFrame::from_points(LidarConvention::NuScenes, read_nuscenes_cloud(path)?);
        let annotations = path.with_file_name("annotations.json");
        if annotations.is_file() {
            frame.boxes = Some(read_annotations(&annotations)?);
        }
        return Ok(frame);
    }
    let mut frame = LidarFrame::from_points(LidarConvention::Kitti, read_velodyne(path)?);
    let label_path = path.with_extension("label");
    if label_path.is_file() {
        frame.labels = Some(read_labels_for(&label_path, frame.points.len())?);
    }
    Ok(frame)
}

#[derive(Deserialize)]
struct Annotations {
    instances: Vec<AnnotatedBox>,
}

#[derive(Deserialize)]
struct AnnotatedBox {
    class: Option<String>,
    box_xyzlwhyaw: [f64; 7],
    velocity: [Option<f64>; 2],
    num_lidar_pts: usize,
}

/// Reads the boxes of a single keyframe's `annotations.json`, which stand in the LiDAR frame; those outside
/// of the ten classes are left out.
pub fn read_annotations(path: &Path) -> Result<Vec<Box3d>, PointsError> {
    let text = nan_to_null(&read_text(path)?);
    let annotations: Annotations =
        serde_json::from_str(&text).map_err(|source| PointsError::Json {
            path: path.to_path_buf(),
            source,
        })?;
    let mut boxes = Vec::new();
    for (row, annotated) in annotations.instances.into_iter().enumerate() {
        let Some(class) = annotated.class.as_deref().and_then(ObjectClass::from_name) else {
            continue;
        };
        let [x, y, z, length, width, height, yaw_rad] = annotated.box_xyzlwhyaw;
        if ![length, width, height].iter().all(|v| *v > 0.0) {
            return Err(PointsError::invalid(
                path,
                format!("instance {row}: a box without extent"),
            ));
        }
        boxes.push(Box3d {
            class,
            centre: [x, y, z],
            size: [length, width, height],
            yaw_rad,
            velocity: match annotated.velocity {
                [Some(x), Some(y)] => Some([x, y]),
                _ => None,
            },
            lidar_points: annotated.num_lidar_pts,
            instance: row as u32 + 1,
        });
    }
    Ok(boxes)
}

/// Python writes unknown numbers as NaN, which JSON does not have.
fn nan_to_null(text: &str) -> String {
    let mut pieces = text.split('"');
    let mut clean = pieces.next().unwrap_or_default().replace("NaN", "null");
    // Every second piece stands between quotation marks; an escaped mark only swaps the roles within its string.
    let mut in_string = true;
    for piece in pieces {
        clean.push('"');
        clean.push_str(&if in_string {
            piece.to_owned()
        } else {
            piece.replace("NaN", "null")
        });
        in_string = !in_string || piece.ends_with('\\');
    }
    clean
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANNOTATIONS: &str = r#"{"instances": [
        {"class": "car", "box_xyzlwhyaw": [1, 2, 3, 4.5, 2, 1.5, 0.1], "velocity": [NaN, NaN], "num_lidar_pts": 7},
        {"class": null, "box_xyzlwhyaw": [1, 2, 3, 4, 2, 1, 0], "velocity": [0, 0], "num_lidar_pts": 0},
        {"class": "bus", "box_xyzlwhyaw": [0, 0, 0, 9, 3, 3, 1], "velocity": [1, -2], "num_lidar_pts": 1}
    ]}"#;

    fn read(text: &str) -> Result<Vec<Box3d>, PointsError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read_annotations(file.path())
    }

    #[test]
    fn annotations_with_unknown_velocities_read() {
        let boxes = read(ANNOTATIONS).unwrap();
        let told: Vec<_> = boxes
            .iter()
            .map(|b| (b.class, b.velocity, b.lidar_points))
            .collect();
        assert_eq!(
            told,
            [
                (ObjectClass::Car, None, 7),
                (ObjectClass::Bus, Some([1.0, -2.0]), 1)
            ]
        );
        assert_eq!(
            nan_to_null(r#"["NaN \"NaN", NaN]"#),
            r#"["NaN \"NaN", null]"#
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn damaged_annotations_give_boxes_or_a_typed_error(at in 0..ANNOTATIONS.len(), byte in 32..127u8, cut: bool) {
            let mut bytes = ANNOTATIONS.as_bytes().to_vec();
            bytes[at] = byte;
            if cut {
                bytes.truncate(at);
            }
            let text = String::from_utf8(bytes).unwrap();
            match read(&text) {
                Ok(boxes) => prop_assert!(boxes.iter().all(|b| b.size.iter().all(|v| *v > 0.0))),
                Err(PointsError::Json { .. } | PointsError::Invalid { .. }) => {}
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
