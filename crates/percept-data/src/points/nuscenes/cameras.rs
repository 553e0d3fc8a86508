//! The cameras of a keyframe.

use super::NuScenes;
use super::tables::{CalibratedSensor, SampleData};
use crate::points::camera::{Camera, is_pinhole, sort_cameras};
use crate::points::error::PointsError;

impl NuScenes {
    /// The cameras behind these rows of `sample_data`.
    pub(super) fn cameras(&self, rows: &[usize]) -> Result<Vec<Camera>, PointsError> {
        let read = |&row: &usize| self.camera(&self.tables.sample_data[row]);
        let mut cameras = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        sort_cameras(&mut cameras);
        Ok(cameras)
    }

    fn camera(&self, data: &SampleData) -> Result<Camera, PointsError> {
        let calibrated = self.calibrated_sensor(data)?;
        let sensor = self.row(&self.sensor_rows, "sensor", &calibrated.sensor_token)?;
        Ok(Camera {
            channel: self.tables.sensor[sensor].channel.clone(),
            path: self.data_path(data)?,
            intrinsics: intrinsics(calibrated).ok_or_else(|| {
                let what = "camera_intrinsic is not a pinhole camera's matrix of 3x3";
                self.invalid(format!("calibrated_sensor {:?}: {what}", calibrated.token))
            })?,
            camera_to_ego: self.sensor_to_ego(calibrated)?,
            ego_to_world: self.ego_to_world(data)?,
            timestamp_us: data.timestamp,
        })
    }
}

fn intrinsics(calibrated: &CalibratedSensor) -> Option<[[f64; 3]; 3]> {
    let rows = calibrated.camera_intrinsic.iter();
    let rows: Vec<[f64; 3]> = rows
        .map(|row| row.as_slice().try_into().ok())
        .collect::<Option<_>>()?;
    rows.try_into().ok().filter(is_pinhole)
}
