//! Cameras of a small folder of tables.

use std::path::Path;

use serde::Serialize;

use super::tables::*;
use super::*;
use crate::points::cloud::encode_nuscenes_cloud;
use crate::points::frame::Point;
use crate::points::pose::Quaternion;

const INTRINSICS: [[f64; 3]; 3] = [[800.0, 0.0, 80.0], [0.0, 800.0, 45.0], [0.0, 0.0, 1.0]];

fn write<T: Serialize>(tables: &Path, name: &str, records: &[T]) {
    let json = serde_json::to_vec(records).unwrap();
    std::fs::write(tables.join(format!("{name}.json")), json).unwrap();
}

/// One keyframe: the LiDAR, a camera at the back and one in front, and a picture between keyframes.
fn tables() -> Tables {
    let channels = [
        (LIDAR_CHANNEL, "lidar"),
        ("CAM_BACK", "camera"),
        ("CAM_FRONT", "camera"),
    ];
    let still = Quaternion([1.0, 0.0, 0.0, 0.0]);
    let mut tables = Tables::default();
    for (row, (channel, modality)) in channels.into_iter().enumerate() {
        tables.sensor.push(Sensor {
            token: format!("sensor-{channel}"),
            channel: channel.into(),
            modality: modality.into(),
        });
        tables.calibrated_sensor.push(CalibratedSensor {
            token: format!("mounted-{channel}"),
            sensor_token: format!("sensor-{channel}"),
            translation: [0.0, 0.0, 1.5],
            rotation: still,
            camera_intrinsic: match modality {
                "camera" => INTRINSICS.map(|row| row.to_vec()).to_vec(),
                _ => Vec::new(),
            },
        });
        tables.ego_pose.push(EgoPose {
            token: format!("ego-{channel}"),
            timestamp: row as i64,
            rotation: still,
            translation: [row as f64, 0.0, 0.0],
        });
        for is_key_frame in [true, false] {
            let extension = if modality == "camera" {
                "jpg"
            } else {
                "pcd.bin"
            };
            let folder = if is_key_frame { "samples" } else { "sweeps" };
            tables.sample_data.push(SampleData {
                token: format!("{folder}-{channel}"),
                sample_token: "sample".into(),
                ego_pose_token: format!("ego-{channel}"),
                calibrated_sensor_token: format!("mounted-{channel}"),
                timestamp: 100 + row as i64,
                fileformat: extension.into(),
                is_key_frame,
                height: 90,
                width: 160,
                filename: format!("{folder}/{channel}/a.{extension}"),
                prev: String::new(),
                next: String::new(),
            });
        }
    }
    tables.sample.push(Sample {
        token: "sample".into(),
        timestamp: 100,
        prev: String::new(),
        next: String::new(),
        scene_token: "scene".into(),
    });
    tables
}

fn folder_of(tables: &Tables) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("v1.0-mini");
    let clouds = root.path().join("samples").join(LIDAR_CHANNEL);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(&clouds).unwrap();
    let point = Point {
        position: [1.0, 2.0, 3.0],
        intensity: 4.0,
        age_s: 0.0,
        ring: Some(5),
    };
    let mut cloud = encode_nuscenes_cloud(&[point; 2]);
    cloud[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(clouds.join("a.pcd.bin"), cloud).unwrap();
    write(&folder, "attribute", &tables.attribute);
    write(&folder, "calibrated_sensor", &tables.calibrated_sensor);
    write(&folder, "category", &tables.category);
    write(&folder, "ego_pose", &tables.ego_pose);
    write(&folder, "instance", &tables.instance);
    write(&folder, "log", &tables.log);
    write(&folder, "map", &tables.map);
    write(&folder, "sample", &tables.sample);
    write(&folder, "sample_annotation", &tables.sample_annotation);
    write(&folder, "sample_data", &tables.sample_data);
    write(&folder, "scene", &tables.scene);
    write(&folder, "sensor", &tables.sensor);
    write(&folder, "visibility", &tables.visibility);
    root
}

fn first_frame(tables: &Tables) -> Result<LidarFrame, PointsError> {
    NuScenes::open(folder_of(tables).path())?.frame(0, 1)
}

#[test]
fn a_frame_has_its_cameras_in_order() {
    let root = folder_of(&tables());
    let frame = NuScenes::open(root.path()).unwrap().frame(0, 1).unwrap();
    assert_eq!((frame.points.len(), frame.dropped_non_finite), (1, 1));
    let channels: Vec<_> = frame.cameras.iter().map(|c| c.channel.as_str()).collect();
    assert_eq!(channels, ["CAM_FRONT", "CAM_BACK"]);
    let front = frame.camera("CAM_FRONT").unwrap();
    assert_eq!(front.intrinsics, INTRINSICS);
    assert_eq!(front.timestamp_us, 102);
    assert_eq!(front.camera_to_ego.translation, [0.0, 0.0, 1.5]);
    assert_eq!(front.camera_to_world().translation, [2.0, 0.0, 1.5]);
    assert_eq!(front.path, root.path().join("samples/CAM_FRONT/a.jpg"));
    // No picture was written: what is missing is named.
    let error = front.image().unwrap_err().to_string();
    assert!(error.contains("samples/CAM_FRONT/a.jpg"), "{error}");
    let error = frame.camera("CAM_SIDE").unwrap_err().to_string();
    assert_eq!(
        error,
        "no camera CAM_SIDE: the frame has CAM_FRONT, CAM_BACK"
    );
}

#[test]
fn cameras_that_cannot_be_are_told() {
    let mut narrow = tables();
    narrow.calibrated_sensor[2].camera_intrinsic[1].pop();
    let mut flat = tables();
    flat.calibrated_sensor[2].camera_intrinsic[0][0] = 0.0;
    for broken in [narrow, flat] {
        let error = first_frame(&broken).unwrap_err().to_string();
        assert!(error.contains("mounted-CAM_FRONT"), "{error}");
    }
    let mut outside = tables();
    for data in &mut outside.sample_data {
        data.filename = data.filename.replace("samples/CAM", "../CAM");
    }
    let error = first_frame(&outside).unwrap_err().to_string();
    assert!(error.contains("../CAM_BACK"), "{error}");
    let mut nowhere = tables();
    nowhere.ego_pose.pop();
    let error = first_frame(&nowhere).unwrap_err().to_string();
    assert!(error.contains("ego-CAM_FRONT"), "{error}");
}
