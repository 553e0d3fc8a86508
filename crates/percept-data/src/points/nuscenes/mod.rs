//! nuScenes folders: JSON tables beside `.pcd.bin` clouds, real or written by the synthetic world.

mod annotations;
mod cameras;
pub mod tables;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Component, Path, PathBuf};

use serde::de::DeserializeOwned;

use super::cloud::{Cloud, read_nuscenes_cloud};
use super::error::PointsError;
use super::frame::{LidarConvention, LidarFrame, append_older_sweep};
use super::pose::Pose;
use tables::{CalibratedSensor, Record, SampleData, Sensor, Tables};

pub use annotations::{Annotation, BICYCLE_RACK};

/// The channel of the LiDAR on the roof.
pub const LIDAR_CHANNEL: &str = "LIDAR_TOP";

/// What the table of sensors calls a camera.
pub const CAMERA_MODALITY: &str = "camera";

/// An opened nuScenes folder.
#[derive(Debug)]
pub struct NuScenes {
    root: PathBuf,
    table_folder: PathBuf,
    tables: Tables,
    ego_pose_rows: HashMap<String, usize>,
    calibrated_sensor_rows: HashMap<String, usize>,
    sensor_rows: HashMap<String, usize>,
    sample_data_rows: HashMap<String, usize>,
    annotation_rows: HashMap<String, usize>,
    /// For each sample: the rows of its LiDAR and camera keyframes in `sample_data`, and those of its annotations.
    samples: Vec<SampleRows>,
    sample_row_of_token: HashMap<String, usize>,
    instance_rows: HashMap<String, usize>,
    category_rows: HashMap<String, usize>,
    attribute_rows: HashMap<String, usize>,
}

#[derive(Debug)]
struct SampleRows {
    lidar: usize,
    cameras: Vec<usize>,
    annotations: Vec<usize>,
}

impl NuScenes {
    /// Opens `root`, which holds `v1.0-*/` (the last by name if there are several), `samples/` and `sweeps/`.
    pub fn open(root: &Path) -> Result<Self, PointsError> {
        let folder = find_table_folder(root)?;
        let tables = Tables {
            attribute: load(&folder, "attribute")?,
            calibrated_sensor: load(&folder, "calibrated_sensor")?,
            category: load(&folder, "category")?,
            ego_pose: load(&folder, "ego_pose")?,
            instance: load(&folder, "instance")?,
            log: load(&folder, "log")?,
            map: load(&folder, "map")?,
            sample: load(&folder, "sample")?,
            sample_annotation: load(&folder, "sample_annotation")?,
            sample_data: load(&folder, "sample_data")?,
            scene: load(&folder, "scene")?,
            sensor: load(&folder, "sensor")?,
            visibility: load(&folder, "visibility")?,
        };
        Self::index(root.to_path_buf(), folder, tables)
    }

    fn index(root: PathBuf, table_folder: PathBuf, tables: Tables) -> Result<Self, PointsError> {
        let missing = |table, token: &str| PointsError::MissingRecord {
            root: table_folder.clone(),
            table,
            token: token.to_owned(),
        };
        let sensor_rows = rows_by_token(&tables.sensor);
        let calibrated_sensor_rows = rows_by_token(&tables.calibrated_sensor);

        let sensor = |data: &SampleData| -> Result<&Sensor, PointsError> {
            let token = &data.calibrated_sensor_token;
            let row = calibrated_sensor_rows
                .get(token)
                .ok_or_else(|| missing("calibrated_sensor", token))?;
            let token = &tables.calibrated_sensor[*row].sensor_token;
            let row = sensor_rows
                .get(token)
                .ok_or_else(|| missing("sensor", token))?;
            Ok(&tables.sensor[*row])
        };
        let mut lidar_of_sample = HashMap::new();
        let mut cameras_of_sample: HashMap<&str, Vec<usize>> = HashMap::new();
        for (row, data) in tables.sample_data.iter().enumerate() {
            if !data.is_key_frame {
                continue;
            }
            let sensor = sensor(data)?;
            if sensor.channel == LIDAR_CHANNEL {
                lidar_of_sample.insert(data.sample_token.clone(), row);
            } else if sensor.modality == CAMERA_MODALITY {
                let cameras = cameras_of_sample.entry(&data.sample_token).or_default();
                cameras.push(row);
            }
        }
        let mut annotations_of_sample: HashMap<&str, Vec<usize>> = HashMap::new();
        for (row, annotation) in tables.sample_annotation.iter().enumerate() {
            annotations_of_sample
                .entry(&annotation.sample_token)
                .or_default()
                .push(row);
        }
        let samples = tables
            .sample
            .iter()
            .map(|sample| {
                let lidar = lidar_of_sample.get(&sample.token).ok_or_else(|| {
                    missing("sample_data (LIDAR_TOP keyframe of sample)", &sample.token)
                })?;
                let annotations = annotations_of_sample
                    .remove(sample.token.as_str())
                    .unwrap_or_default();
                let cameras = cameras_of_sample
                    .remove(sample.token.as_str())
                    .unwrap_or_default();
                Ok(SampleRows {
                    lidar: *lidar,
                    cameras,
                    annotations,
                })
            })
            .collect::<Result<_, PointsError>>()?;
        Ok(Self {
            ego_pose_rows: rows_by_token(&tables.ego_pose),
            sensor_rows: rows_by_token(&tables.sensor),
            sample_data_rows: rows_by_token(&tables.sample_data),
            annotation_rows: rows_by_token(&tables.sample_annotation),
            sample_row_of_token: rows_by_token(&tables.sample),
            instance_rows: rows_by_token(&tables.instance),
            category_rows: rows_by_token(&tables.category),
            attribute_rows: rows_by_token(&tables.attribute),
            calibrated_sensor_rows,
            samples,
            root,
            table_folder,
            tables,
        })
    }

    /// The tables as they were read.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// How many keyframes there are.
    pub fn frames(&self) -> usize {
        self.samples.len()
    }

    /// Keyframe `index` with up to `sweeps` sweeps merged (1: the keyframe alone) and its boxes of the ten
    /// detection classes, in the keyframe's sensor frame. At a scene's start fewer sweeps exist.
    pub fn frame(&self, index: usize, sweeps: usize) -> Result<LidarFrame, PointsError> {
        let rows = self.sample_rows(index)?;
        let key = &self.tables.sample_data[rows.lidar];
        let sensor_to_world = self.sensor_to_world(key)?;
        let world_to_sensor = sensor_to_world.inverse();
        let Cloud {
            mut points,
            dropped_rows,
        } = read_nuscenes_cloud(&self.data_path(key)?)?;
        let mut dropped_non_finite = dropped_rows.len();
        let mut previous = key;
        for _ in 1..sweeps {
            if previous.prev.is_empty() {
                break;
            }
            previous = &self.tables.sample_data
                [self.row(&self.sample_data_rows, "sample_data", &previous.prev)?];
            let cloud = read_nuscenes_cloud(&self.data_path(previous)?)?;
            dropped_non_finite += cloud.dropped_rows.len();
            let sweep_to_frame = world_to_sensor.compose(&self.sensor_to_world(previous)?);
            let age_s = seconds_between(previous.timestamp, key.timestamp);
            append_older_sweep(
                &mut points,
                &cloud.points,
                &sweep_to_frame,
                age_s as f32,
                |_| {},
            );
        }
        Ok(LidarFrame {
            convention: LidarConvention::NuScenes,
            points,
            labels: None,
            dropped_non_finite,
            dropped_rows,
            boxes: Some(self.sensor_boxes(rows, &world_to_sensor)?),
            cameras: self.cameras(&rows.cameras)?,
            sensor_to_world,
            timestamp_us: key.timestamp,
        })
    }

    /// The name of keyframe `index`.
    pub fn sample_token(&self, index: usize) -> Result<&str, PointsError> {
        self.sample_rows(index)?;
        Ok(&self.tables.sample[index].token)
    }

    /// Where the vehicle was when the LiDAR's keyframe `index` was recorded: its frame to the global one.
    pub fn ego_pose(&self, index: usize) -> Result<Pose, PointsError> {
        let rows = self.sample_rows(index)?;
        self.ego_to_world(&self.tables.sample_data[rows.lidar])
    }

    /// Where the LiDAR was when keyframe `index` was recorded: its frame to the global one.
    pub fn lidar_pose(&self, index: usize) -> Result<Pose, PointsError> {
        let rows = self.sample_rows(index)?;
        self.sensor_to_world(&self.tables.sample_data[rows.lidar])
    }

    fn sample_rows(&self, index: usize) -> Result<&SampleRows, PointsError> {
        self.samples
            .get(index)
            .ok_or_else(|| PointsError::NoSuchFrame {
                path: self.root.clone(),
                index,
                frames: self.samples.len(),
            })
    }

    fn sensor_to_world(&self, data: &SampleData) -> Result<Pose, PointsError> {
        let sensor_to_ego = self.sensor_to_ego(self.calibrated_sensor(data)?)?;
        Ok(self.ego_to_world(data)?.compose(&sensor_to_ego))
    }

    fn calibrated_sensor(&self, data: &SampleData) -> Result<&CalibratedSensor, PointsError> {
        let row = self.row(
            &self.calibrated_sensor_rows,
            "calibrated_sensor",
            &data.calibrated_sensor_token,
        )?;
        Ok(&self.tables.calibrated_sensor[row])
    }

    fn sensor_to_ego(&self, calibrated: &CalibratedSensor) -> Result<Pose, PointsError> {
        calibrated
            .rotation
            .to_pose(calibrated.translation)
            .ok_or_else(|| {
                self.invalid(format!(
                    "calibrated_sensor {:?}: not a pose",
                    calibrated.token
                ))
            })
    }

    fn ego_to_world(&self, data: &SampleData) -> Result<Pose, PointsError> {
        let row = self.row(&self.ego_pose_rows, "ego_pose", &data.ego_pose_token)?;
        let ego = &self.tables.ego_pose[row];
        ego.rotation
            .to_pose(ego.translation)
            .ok_or_else(|| self.invalid(format!("ego_pose {:?}: not a pose", ego.token)))
    }

    /// The file of a record; a table must not lead outside of its folder.
    fn data_path(&self, data: &SampleData) -> Result<PathBuf, PointsError> {
        let relative = Path::new(&data.filename);
        if !relative
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
        {
            return Err(self.invalid(format!(
                "sample_data {:?}: file name {:?}",
                data.token, data.filename
            )));
        }
        Ok(self.root.join(relative))
    }

    fn row(
        &self,
        rows: &HashMap<String, usize>,
        table: &'static str,
        token: &str,
    ) -> Result<usize, PointsError> {
        rows.get(token)
            .copied()
            .ok_or_else(|| self.missing(table, token))
    }

    fn missing(&self, table: &'static str, token: &str) -> PointsError {
        PointsError::MissingRecord {
            root: self.table_folder.clone(),
            table,
            token: token.to_owned(),
        }
    }

    fn invalid(&self, what: String) -> PointsError {
        PointsError::invalid(&self.table_folder, what)
    }
}

/// The table folder of a nuScenes root: the last `v1.0-*` by name.
pub(crate) fn find_table_folder(root: &Path) -> Result<PathBuf, PointsError> {
    let entries = std::fs::read_dir(root).map_err(|source| PointsError::io(root, source))?;
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|source| PointsError::io(root, source))?
            .path();
        let versioned = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("v1.0-"));
        if versioned && path.is_dir() {
            folders.push(path);
        }
    }
    folders
        .into_iter()
        .max()
        .ok_or_else(|| PointsError::UnknownLayout {
            path: root.to_path_buf(),
        })
}

/// In floating point, because hostile times may be too far apart for an integer.
fn seconds_between(from_us: i64, to_us: i64) -> f64 {
    (to_us as f64 - from_us as f64) * 1e-6
}

fn load<T: DeserializeOwned>(folder: &Path, table: &str) -> Result<Vec<T>, PointsError> {
    let path = folder.join(format!("{table}.json"));
    let file = File::open(&path).map_err(|source| PointsError::io(&path, source))?;
    serde_json::from_reader(BufReader::new(file))
        .map_err(|source| PointsError::Json { path, source })
}

fn rows_by_token<T: Record>(records: &[T]) -> HashMap<String, usize> {
    records
        .iter()
        .enumerate()
        .map(|(row, record)| (record.token().to_owned(), row))
        .collect()
}
