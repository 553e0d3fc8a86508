//! The records of the nuScenes JSON tables, field by field as the public schema names them.

use serde::{Deserialize, Serialize};

use crate::points::pose::Quaternion;

macro_rules! record {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub struct $name { pub token: String, $($(#[$field_doc])* pub $field: $type),* }

        impl Record for $name {
            fn token(&self) -> &str { &self.token }
        }
    };
}

/// Something that a token names.
pub trait Record {
    /// The name, unique in its table.
    fn token(&self) -> &str;
}

record! {
    /// A property that may change while the category stays: moving, parked, with rider.
    Attribute { name: String, description: String }
}
record! {
    /// A sensor as mounted on one vehicle; the pose takes the sensor's frame to the ego's.
    CalibratedSensor {
        sensor_token: String,
        translation: [f64; 3],
        rotation: Quaternion,
        /// Empty for a LiDAR, 3x3 for a camera.
        camera_intrinsic: Vec<Vec<f64>>,
    }
}
record! {
    /// What an object is, e.g. `vehicle.car`.
    Category {
        name: String,
        description: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        index: Option<u32>,
    }
}
record! {
    /// The vehicle's pose at a moment; takes its frame to the global one.
    EgoPose { timestamp: i64, rotation: Quaternion, translation: [f64; 3] }
}
record! {
    /// One object through a scene.
    Instance {
        category_token: String,
        nbr_annotations: usize,
        first_annotation_token: String,
        last_annotation_token: String,
    }
}
record! {
    /// A recording.
    Log { logfile: String, vehicle: String, date_captured: String, location: String }
}
record! {
    /// A map picture.
    Map { category: String, filename: String, log_tokens: Vec<String> }
}
record! {
    /// A keyframe.
    Sample { timestamp: i64, prev: String, next: String, scene_token: String }
}
record! {
    /// The box of an instance at a keyframe, in the global frame.
    SampleAnnotation {
        sample_token: String,
        instance_token: String,
        visibility_token: String,
        attribute_tokens: Vec<String>,
        translation: [f64; 3],
        /// Width, length, height.
        size: [f64; 3],
        rotation: Quaternion,
        prev: String,
        next: String,
        num_lidar_pts: usize,
        num_radar_pts: usize,
    }
}
record! {
    /// One recording of one sensor.
    SampleData {
        sample_token: String,
        ego_pose_token: String,
        calibrated_sensor_token: String,
        timestamp: i64,
        fileformat: String,
        is_key_frame: bool,
        /// Pixels; 0 for a LiDAR.
        height: u32,
        width: u32,
        filename: String,
        prev: String,
        next: String,
    }
}
record! {
    /// Twenty seconds of driving.
    Scene {
        log_token: String,
        nbr_samples: usize,
        first_sample_token: String,
        last_sample_token: String,
        name: String,
        description: String,
    }
}
record! {
    /// A sensor's kind and place, e.g. `LIDAR_TOP`.
    Sensor { channel: String, modality: String }
}
record! {
    /// How much of an object the cameras see, in four steps.
    Visibility { level: String, description: String }
}

/// All tables, as they stand in the files.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Tables {
    pub attribute: Vec<Attribute>,
    pub calibrated_sensor: Vec<CalibratedSensor>,
    pub category: Vec<Category>,
    pub ego_pose: Vec<EgoPose>,
    pub instance: Vec<Instance>,
    pub log: Vec<Log>,
    pub map: Vec<Map>,
    pub sample: Vec<Sample>,
    pub sample_annotation: Vec<SampleAnnotation>,
    pub sample_data: Vec<SampleData>,
    pub scene: Vec<Scene>,
    pub sensor: Vec<Sensor>,
    pub visibility: Vec<Visibility>,
}
