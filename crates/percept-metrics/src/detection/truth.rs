//! Truth from the readers of percept-data: nuScenes folders, real or written by the world, and frames in memory.

use percept_data::points::nuscenes::{Annotation, BICYCLE_RACK, NuScenes};
use percept_data::points::{LidarFrame, PointsError};

use super::boxes::{Attribute, BicycleRack, FrameTruth, GlobalBox};

impl FrameTruth {
    /// Keyframe `index` of a nuScenes folder, as the public code reads it.
    pub fn from_nuscenes(folder: &NuScenes, index: usize) -> Result<Self, PointsError> {
        let ego = folder.ego_pose(index)?.translation;
        let annotations = folder.annotations(index)?;
        let racks = annotations.iter().filter(|a| a.category == BICYCLE_RACK);
        let bicycle_racks = racks.map(|rack| BicycleRack {
            centre: rack.record.translation,
            size_wlh: rack.record.size,
            rotation: rack.record.rotation,
        });
        Ok(Self {
            token: folder.sample_token(index)?.to_owned(),
            ego: [ego[0], ego[1]],
            bicycle_racks: bicycle_racks.collect(),
            boxes: annotations.iter().filter_map(global_box).collect(),
        })
    }

    /// A frame in memory, by the name `token`; nothing when nobody annotated it. Ranges are measured from the sensor,
    /// and attributes follow from the true speeds, because a frame knows neither the vehicle's place nor attributes.
    pub fn from_frame(token: &str, frame: &LidarFrame) -> Option<Self> {
        let [x, y, _] = frame.sensor_to_world.translation;
        let boxes = frame.boxes.as_ref()?.iter().map(|seen| GlobalBox {
            points: Some(seen.lidar_points as u64),
            ..GlobalBox::from_sensor(
                seen.class,
                seen.centre,
                seen.size,
                seen.yaw_rad,
                seen.velocity,
                &frame.sensor_to_world,
            )
        });
        Some(Self {
            token: token.to_owned(),
            ego: [x, y],
            boxes: boxes.collect(),
            bicycle_racks: Vec::new(),
        })
    }
}

/// The box of an annotation, if the metric knows its class.
fn global_box(annotation: &Annotation<'_>) -> Option<GlobalBox> {
    let record = annotation.record;
    Some(GlobalBox {
        class: annotation.class?,
        centre: record.translation,
        size_wlh: record.size,
        rotation: record.rotation,
        velocity: annotation.velocity.map(|[x, y, _]| [x, y]),
        attribute: annotation.attribute.and_then(Attribute::from_name),
        points: Some(record.num_lidar_pts as u64 + record.num_radar_pts as u64),
    })
}
