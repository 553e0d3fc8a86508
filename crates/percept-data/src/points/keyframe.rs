//! A folder with one keyframe of nuScenes: `LIDAR_TOP.pcd.bin`, the pictures `CAM_*.jpg`, and `annotations.json` with the
//! calibration and the boxes in the LiDAR's frame.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::camera::{Camera, is_pinhole, sort_cameras};
use super::cloud::read_nuscenes_cloud;
use super::error::{PointsError, read_text};
use super::frame::{Box3d, LidarConvention, LidarFrame, ObjectClass};
use super::nuscenes::LIDAR_CHANNEL;
use super::pose::Pose;
use super::trajectory::ROTATION_TOLERANCE;

/// The name of the file with calibration and boxes.
pub(super) const ANNOTATION_FILE: &str = "annotations.json";

/// Whether `folder` holds a single keyframe.
pub(super) fn is_keyframe_folder(folder: &Path) -> bool {
    folder.join(cloud_name()).is_file()
}

/// The keyframe of a folder; without `annotations.json` it is points alone.
pub(super) fn read_keyframe_folder(folder: &Path) -> Result<LidarFrame, PointsError> {
    let cloud = read_nuscenes_cloud(&folder.join(cloud_name()))?;
    let frame = LidarFrame::from_cloud(LidarConvention::NuScenes, cloud);
    let path = folder.join(ANNOTATION_FILE);
    if !path.is_file() {
        return Ok(frame);
    }
    let annotations = Annotations::read(&path)?;
    let sensor_to_world = annotations.lidar_to_world(&path)?;
    Ok(LidarFrame {
        boxes: Some(annotations.boxes(&path)?),
        cameras: annotations.cameras(&path, &sensor_to_world)?,
        sensor_to_world,
        ..frame
    })
}

/// Reads the boxes of an `annotations.json`; those outside of the ten classes are left out.
pub(super) fn read_boxes(path: &Path) -> Result<Vec<Box3d>, PointsError> {
    Annotations::read(path)?.boxes(path)
}

fn cloud_name() -> String {
    format!("{LIDAR_CHANNEL}.pcd.bin")
}

type Matrix = [[f64; 4]; 4];

#[derive(Deserialize)]
struct Annotations {
    ego2global: Option<Matrix>,
    lidar2ego: Option<Matrix>,
    #[serde(default)]
    cameras: BTreeMap<String, AnnotatedCamera>,
    instances: Vec<AnnotatedBox>,
}

#[derive(Deserialize)]
struct AnnotatedCamera {
    cam2img: [[f64; 3]; 3],
    cam2ego: Matrix,
    /// From the sweep's moment to the picture's, the vehicle's motion between them included.
    lidar2cam: Option<Matrix>,
}

#[derive(Deserialize)]
struct AnnotatedBox {
    class: Option<String>,
    box_xyzlwhyaw: [f64; 7],
    velocity: [Option<f64>; 2],
    num_lidar_pts: usize,
}

impl Annotations {
    fn read(path: &Path) -> Result<Self, PointsError> {
        let text = nan_to_null(&read_text(path)?);
        serde_json::from_str(&text).map_err(|source| PointsError::Json {
            path: path.to_path_buf(),
            source,
        })
    }

    fn lidar_to_world(&self, path: &Path) -> Result<Pose, PointsError> {
        let lidar_to_ego = known_pose(path, "lidar2ego", &self.lidar2ego)?;
        Ok(known_pose(path, "ego2global", &self.ego2global)?.compose(&lidar_to_ego))
    }

    fn cameras(&self, path: &Path, lidar_to_world: &Pose) -> Result<Vec<Camera>, PointsError> {
        let ego_to_world = known_pose(path, "ego2global", &self.ego2global)?;
        let read = |(channel, camera): (&String, &AnnotatedCamera)| {
            let invalid = |what| PointsError::invalid(path, format!("{channel}: {what}"));
            if channel.contains(['/', '\\']) {
                return Err(invalid("not the name of a camera"));
            }
            if !is_pinhole(&camera.cam2img) {
                return Err(invalid("cam2img is not a pinhole camera's matrix"));
            }
            let camera_to_ego =
                pose(&camera.cam2ego).ok_or_else(|| invalid("cam2ego is no pose"))?;
            let ego_to_world = match &camera.lidar2cam {
                None => ego_to_world,
                Some(matrix) => {
                    let lidar_to_camera =
                        pose(matrix).ok_or_else(|| invalid("lidar2cam is no pose"))?;
                    let camera_to_world = lidar_to_world.compose(&lidar_to_camera.inverse());
                    camera_to_world.compose(&camera_to_ego.inverse())
                }
            };
            Ok(Camera {
                channel: channel.clone(),
                path: path.with_file_name(format!("{channel}.jpg")),
                intrinsics: camera.cam2img,
                camera_to_ego,
                ego_to_world,
                timestamp_us: 0,
            })
        };
        let mut cameras = self
            .cameras
            .iter()
            .map(read)
            .collect::<Result<Vec<_>, _>>()?;
        sort_cameras(&mut cameras);
        Ok(cameras)
    }

    fn boxes(&self, path: &Path) -> Result<Vec<Box3d>, PointsError> {
        let mut boxes = Vec::new();
        for (row, annotated) in self.instances.iter().enumerate() {
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
}

/// The pose of a matrix, or the one that moves nothing where the file has no such matrix.
fn known_pose(path: &Path, name: &str, matrix: &Option<Matrix>) -> Result<Pose, PointsError> {
    match matrix {
        None => Ok(Pose::IDENTITY),
        Some(matrix) => {
            pose(matrix).ok_or_else(|| PointsError::invalid(path, format!("{name} is no pose")))
        }
    }
}

fn pose(matrix: &Matrix) -> Option<Pose> {
    let (rows, last) = matrix.as_flattened().split_first_chunk::<12>()?;
    let pose = Pose::from_rows(rows);
    (last == [0.0, 0.0, 0.0, 1.0] && pose.is_rigid(ROTATION_TOLERANCE)).then_some(pose)
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

#[cfg(test)]
mod tests {
    use super::super::dataset::LidarDataset;
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
        read_boxes(file.path())
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

    fn turned(translation: [f64; 3]) -> String {
        let [x, y, z] = translation;
        format!("[[0, -1, 0, {x}], [1, 0, 0, {y}], [0, 0, 1, {z}], [0, 0, 0, 1]]")
    }

    /// A folder whose LiDAR is turned by a quarter on the vehicle; the picture was taken when it had driven on by 0.5 m.
    fn folder_with(cameras: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let json = format!(
            r#"{{"ego2global": {}, "lidar2ego": {}, "cameras": {cameras}, "instances": []}}"#,
            turned([100.0, 0.0, 0.0]),
            turned([1.0, 0.0, 2.0]),
        );
        std::fs::write(folder.path().join(ANNOTATION_FILE), json).unwrap();
        std::fs::write(folder.path().join("LIDAR_TOP.pcd.bin"), [0; 40]).unwrap();
        folder
    }

    fn camera(lidar2cam: &str) -> String {
        format!(
            r#"{{"cam2img": [[9, 0, 8], [0, 9, 4], [0, 0, 1]], "cam2ego": {}{lidar2cam}}}"#,
            turned([1.0, 0.0, 2.0])
        )
    }

    #[test]
    fn a_keyframe_folder_is_one_frame_with_its_cameras() {
        // Camera and LiDAR share a mounting, so half a metre between the moments is half a metre between the two.
        let moved = r#", "lidar2cam": [[1, 0, 0, -0.5], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]"#;
        let cameras = format!(
            r#"{{"CAM_BACK": {}, "CAM_FRONT": {}}}"#,
            camera(""),
            camera(moved)
        );
        let folder = folder_with(&cameras);
        let dataset = LidarDataset::open(folder.path()).unwrap();
        assert_eq!(dataset.frames(), 1);
        let frame = dataset.frame(0, 1).unwrap();
        assert_eq!((frame.points.len(), frame.boxes), (2, Some(Vec::new())));
        assert_eq!(frame.sensor_to_world.translation, [100.0, 1.0, 2.0]);
        let channels: Vec<_> = frame.cameras.iter().map(|c| c.channel.as_str()).collect();
        assert_eq!(channels, ["CAM_FRONT", "CAM_BACK"]);
        let [front, back] = &frame.cameras[..] else {
            panic!("two cameras");
        };
        assert_eq!(back.ego_to_world.translation, [100.0, 0.0, 0.0]);
        assert_eq!(front.camera_to_world().translation, [99.5, 1.0, 2.0]);
        let error = front.image().unwrap_err().to_string();
        assert!(error.contains("CAM_FRONT.jpg"), "{error}");
        assert!(matches!(
            dataset.frame(1, 1),
            Err(PointsError::NoSuchFrame { index: 1, .. })
        ));
    }

    #[test]
    fn cameras_that_cannot_be_are_told() {
        let good = camera("");
        for (from, to, expected) in [
            ("[[9,", "[[0,", "CAM_FRONT: cam2img"),
            ("[0, 0, 0, 1]]", "[0, 0, 0, 2]]", "CAM_FRONT: cam2ego"),
            ("[0, -1, 0, 1]", "[0, -2, 0, 1]", "CAM_FRONT: cam2ego"),
            ("[0, -1, 0, 1]", "[0, -1, 0, NaN]", "null"),
        ] {
            let broken = good.replace(from, to);
            assert_ne!(broken, good);
            let folder = folder_with(&format!(r#"{{"CAM_FRONT": {broken}}}"#));
            let error = read_keyframe_folder(folder.path()).unwrap_err().to_string();
            assert!(
                error.contains(expected) && error.contains(ANNOTATION_FILE),
                "{error}"
            );
        }
        let folder = folder_with(&format!(r#"{{"../CAM": {good}}}"#));
        assert!(read_keyframe_folder(folder.path()).is_err());
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
