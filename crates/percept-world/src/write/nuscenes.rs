use std::collections::HashMap;

use percept_kernels::Cpu;

use crate::camera::{CameraRig, CameraView, picture_name};
use crate::error::WorldError;
use crate::lidar::Sweep;
use crate::objects::Rider;
use crate::stream::{TrueBox, World};
use percept_data::images::encode_grey_png;
use percept_data::points::nuscenes::tables::{
    Attribute, CalibratedSensor, Category, EgoPose, Instance, Log, Map, Sample, SampleAnnotation,
    SampleData, Scene, Sensor, Tables, Visibility,
};
use percept_data::points::nuscenes::{CAMERA_MODALITY, LIDAR_CHANNEL};
use percept_data::points::{ObjectClass, Pose, Quaternion, encode_nuscenes_cloud};
use percept_data::random::hash;

use super::Folder;

const VERSION: &str = "v1.0-synthetic";
/// Query token, database token, metres between them.
const REVISITS_FILE: &str = "revisits.csv";
const MAP_FILE: &str = "maps/synthetic.png";
/// Slower than this is standing.
const MOVING_M_S: f64 = 0.2;

pub(super) fn write(
    cpu: &Cpu,
    world: &mut World,
    frames: usize,
    cameras: Option<&CameraRig>,
    folder: &mut Folder,
    progress: &mut dyn FnMut(usize),
) -> Result<(), WorldError> {
    let per_scene = world.frames_per_scene();
    let mut writer = Writer::new(world, cameras, folder);
    for index in 0..frames {
        if index % per_scene == 0 {
            writer.begin_scene(index, (frames - index).min(per_scene));
        }
        writer.keyframe(cpu, index)?;
        progress(index + 1);
    }
    if writer.world.frames().is_some() {
        writer.revisits()?;
    }
    writer.finish()
}

/// The attributes of the public schema.
const ATTRIBUTES: [&str; 8] = [
    "vehicle.moving",
    "vehicle.stopped",
    "vehicle.parked",
    "cycle.with_rider",
    "cycle.without_rider",
    "pedestrian.sitting_lying_down",
    "pedestrian.standing",
    "pedestrian.moving",
];

struct Writer<'a> {
    world: &'a mut World,
    cameras: Option<&'a CameraRig>,
    folder: &'a mut Folder,
    tables: Tables,
    categories: HashMap<ObjectClass, String>,
    attributes: HashMap<&'static str, String>,
    /// Rows in the instance table of this scene's objects, and of each one's last annotation.
    tracks: HashMap<usize, Track>,
    /// The last rows of this scene, for the links to their successors.
    last_sample: Option<usize>,
    /// By sensor: the LiDAR's, then the cameras'.
    last_data: Vec<Option<usize>>,
}

/// A recording of one sensor.
struct Recording<'a> {
    /// The sensor's row in its tables.
    sensor: usize,
    timestamp: i64,
    is_key_frame: bool,
    ego_to_world: &'a Pose,
    fileformat: &'a str,
    /// Width and height; 0 for a LiDAR.
    size: [usize; 2],
    filename: String,
}

#[derive(Clone, Copy)]
struct Track {
    instance: usize,
    last_annotation: usize,
}

impl<'a> Writer<'a> {
    fn new(world: &'a mut World, cameras: Option<&'a CameraRig>, folder: &'a mut Folder) -> Self {
        let seed = world.config().seed;
        let mut tables = Tables::default();
        let lidar = (
            LIDAR_CHANNEL,
            "lidar",
            *world.lidar().sensor_to_ego(),
            Vec::new(),
        );
        let mounts = cameras
            .iter()
            .flat_map(|rig| rig.mounts().iter().map(|m| (m, rig.size())));
        let mounts = mounts.map(|(mount, size)| {
            let intrinsics = mount.intrinsics(size).map(Vec::from).to_vec();
            (
                mount.channel(),
                CAMERA_MODALITY,
                *mount.camera_to_ego(),
                intrinsics,
            )
        });
        let sensors = std::iter::once(lidar).chain(mounts).enumerate();
        for (row, (channel, modality, mount, camera_intrinsic)) in sensors {
            let sensor_token = token(seed, "sensor", row);
            tables.calibrated_sensor.push(CalibratedSensor {
                token: token(seed, "calibrated_sensor", row),
                sensor_token: sensor_token.clone(),
                translation: mount.translation,
                rotation: Quaternion::from_pose(&mount),
                camera_intrinsic,
            });
            tables.sensor.push(Sensor {
                token: sensor_token,
                channel: channel.into(),
                modality: modality.into(),
            });
        }
        let last_data = vec![None; tables.sensor.len()];
        let mut categories = HashMap::new();
        for class in ObjectClass::ALL {
            let token = token(seed, "category", class.id());
            categories.insert(class, token.clone());
            tables.category.push(Category {
                token,
                name: class.category().into(),
                description: format!("A synthetic {}.", class.name().replace('_', " ")),
                index: None,
            });
        }
        let mut attributes = HashMap::new();
        for (row, name) in ATTRIBUTES.into_iter().enumerate() {
            let token = token(seed, "attribute", row);
            attributes.insert(name, token.clone());
            tables.attribute.push(Attribute {
                token,
                name: name.into(),
                description: String::new(),
            });
        }
        for (level, share) in ["v0-40", "v40-60", "v60-80", "v80-100"]
            .into_iter()
            .enumerate()
        {
            let description = format!("visibility of whole object is {share} %");
            tables.visibility.push(Visibility {
                token: (level + 1).to_string(),
                level: share.into(),
                description,
            });
        }
        Self {
            world,
            cameras,
            folder,
            tables,
            categories,
            attributes,
            tracks: HashMap::new(),
            last_sample: None,
            last_data,
        }
    }

    fn token(&self, table: &str, row: usize) -> String {
        token(self.world.config().seed, table, row)
    }

    fn begin_scene(&mut self, index: usize, samples: usize) {
        let number = self.tables.scene.len();
        let seed = self.world.config().seed;
        let log = Log {
            token: self.token("log", number),
            logfile: format!("percept-synthetic-{number:04}"),
            vehicle: "percept".into(),
            date_captured: "2024-01-01".into(),
            location: "synthetic".into(),
        };
        let first_row = self.tables.sample.len();
        self.tables.scene.push(Scene {
            token: self.token("scene", number),
            log_token: log.token.clone(),
            nbr_samples: samples,
            first_sample_token: self.token("sample", first_row),
            last_sample_token: self.token("sample", first_row + samples - 1),
            name: format!("scene-{:04}", number + 1),
            description: match self.world.pass(index) {
                Some(pass) => format!("Town of seed {seed}, {}", pass.words()),
                None => format!("Town {number} of seed {seed}"),
            },
        });
        self.tables.log.push(log);
        self.tracks.clear();
        self.last_sample = None;
        self.last_data.fill(None);
    }

    fn keyframe(&mut self, cpu: &Cpu, index: usize) -> Result<(), WorldError> {
        let sample = self.token("sample", self.tables.sample.len());
        for back in (0..self.world.config().sweeps).rev() {
            let sweep = self.world.sweep(cpu, index, back);
            self.cloud(
                &sample,
                &sweep,
                self.world.timestamp_us(index, back),
                back == 0,
            )?;
            if back > 0 {
                continue;
            }
            let prev = self
                .last_sample
                .map(|row| self.tables.sample[row].token.clone())
                .unwrap_or_default();
            if let Some(row) = self.last_sample {
                self.tables.sample[row].next = sample.clone();
            }
            self.last_sample = Some(self.tables.sample.len());
            let scene_token = self
                .tables
                .scene
                .last()
                .map(|scene| scene.token.clone())
                .unwrap_or_default();
            self.tables.sample.push(Sample {
                token: sample.clone(),
                timestamp: self.world.timestamp_us(index, 0),
                prev,
                next: String::new(),
                scene_token,
            });
            for true_box in self.world.true_boxes(index, &sweep) {
                self.annotation(&sample, &true_box);
            }
            self.pictures(cpu, &sample, index)?;
        }
        self.folder.summary.frames += 1;
        Ok(())
    }

    fn cloud(
        &mut self,
        sample: &str,
        sweep: &Sweep,
        timestamp: i64,
        is_key_frame: bool,
    ) -> Result<(), WorldError> {
        let log = self
            .tables
            .log
            .last()
            .map(|log| log.logfile.as_str())
            .unwrap_or_default();
        let kind = if is_key_frame { "samples" } else { "sweeps" };
        let filename =
            format!("{kind}/{LIDAR_CHANNEL}/{log}__{LIDAR_CHANNEL}__{timestamp}.pcd.bin");
        self.folder
            .write(&filename, &encode_nuscenes_cloud(&sweep.points))?;
        self.folder.summary.clouds += 1;
        self.folder.summary.points += sweep.points.len();
        self.recording(
            sample,
            Recording {
                sensor: 0,
                timestamp,
                is_key_frame,
                ego_to_world: &sweep.ego_to_world,
                fileformat: "pcd",
                size: [0, 0],
                filename,
            },
        );
        Ok(())
    }

    /// What the cameras see in a keyframe.
    fn pictures(&mut self, cpu: &Cpu, sample: &str, index: usize) -> Result<(), WorldError> {
        let Some(rig) = self.cameras else {
            return Ok(());
        };
        for (number, CameraView { view, camera }) in
            self.world.views(cpu, index, rig).into_iter().enumerate()
        {
            let filename = picture_name(&camera.channel, camera.timestamp_us);
            self.folder.write_jpeg(&filename, &view.image)?;
            self.recording(
                sample,
                Recording {
                    sensor: 1 + number,
                    timestamp: camera.timestamp_us,
                    is_key_frame: true,
                    ego_to_world: &camera.ego_to_world,
                    fileformat: "jpg",
                    size: [view.image.width, view.image.height],
                    filename,
                },
            );
        }
        Ok(())
    }

    fn recording(&mut self, sample: &str, recording: Recording<'_>) {
        let row = self.tables.sample_data.len();
        let token = self.token("sample_data", row);
        self.tables.ego_pose.push(EgoPose {
            token: token.clone(),
            timestamp: recording.timestamp,
            rotation: Quaternion::from_pose(recording.ego_to_world),
            translation: recording.ego_to_world.translation,
        });
        let last = self.last_data[recording.sensor].replace(row);
        let prev = last
            .map(|row| self.tables.sample_data[row].token.clone())
            .unwrap_or_default();
        if let Some(last) = last {
            self.tables.sample_data[last].next = token.clone();
        }
        self.tables.sample_data.push(SampleData {
            ego_pose_token: token.clone(),
            token,
            sample_token: sample.into(),
            calibrated_sensor_token: self.token("calibrated_sensor", recording.sensor),
            timestamp: recording.timestamp,
            fileformat: recording.fileformat.into(),
            is_key_frame: recording.is_key_frame,
            width: recording.size[0] as u32,
            height: recording.size[1] as u32,
            filename: recording.filename,
            prev,
            next: String::new(),
        });
    }

    /// Which keyframes of later passes show a place of the first.
    fn revisits(&mut self) -> Result<(), WorldError> {
        let mut text = "query,database,metres\n".to_owned();
        for revisit in self.world.revisits() {
            let [query, database] =
                [revisit.query, revisit.database].map(|row| self.token("sample", row));
            text += &format!("{query},{database},{:.3}\n", revisit.metres);
        }
        self.folder.write(REVISITS_FILE, text.as_bytes())
    }

    fn annotation(&mut self, sample: &str, true_box: &TrueBox) {
        let row = self.tables.sample_annotation.len();
        let token = self.token("sample_annotation", row);
        let track = self.tracks.get(&true_box.body).copied();
        let (instance, prev) = match track {
            Some(Track {
                instance,
                last_annotation,
            }) => {
                let last = &mut self.tables.sample_annotation[last_annotation];
                last.next = token.clone();
                (instance, last.token.clone())
            }
            None => {
                let instance = self.tables.instance.len();
                self.tables.instance.push(Instance {
                    token: self.token("instance", instance),
                    category_token: self.categories[&true_box.class].clone(),
                    nbr_annotations: 0,
                    first_annotation_token: token.clone(),
                    last_annotation_token: String::new(),
                });
                (instance, String::new())
            }
        };
        self.tracks.insert(
            true_box.body,
            Track {
                instance,
                last_annotation: row,
            },
        );
        let record = &mut self.tables.instance[instance];
        record.nbr_annotations += 1;
        record.last_annotation_token = token.clone();
        let [length, width, height] = true_box.size;
        let attribute = attribute(true_box).map(|name| self.attributes[name].clone());
        self.tables.sample_annotation.push(SampleAnnotation {
            token,
            sample_token: sample.into(),
            instance_token: record.token.clone(),
            visibility_token: "4".into(),
            attribute_tokens: attribute.into_iter().collect(),
            translation: true_box.box_to_world.translation,
            size: [width, length, height],
            rotation: Quaternion::from_pose(&true_box.box_to_world),
            prev,
            next: String::new(),
            num_lidar_pts: true_box.lidar_points,
            num_radar_pts: 0,
        });
        self.folder.summary.boxes += 1;
    }

    fn finish(mut self) -> Result<(), WorldError> {
        // The public tools insist on a map picture; ours is blank.
        let png = encode_grey_png(16, 16, &[0; 16 * 16])
            .map_err(WorldError::io(&self.folder.root.join(MAP_FILE)))?;
        self.folder.write(MAP_FILE, &png)?;
        self.tables.map.push(Map {
            token: self.token("map", 0),
            category: "semantic_prior".into(),
            filename: MAP_FILE.into(),
            log_tokens: self
                .tables
                .log
                .iter()
                .map(|log| log.token.clone())
                .collect(),
        });
        let Tables {
            attribute,
            calibrated_sensor,
            category,
            ego_pose,
            instance,
            log,
            map,
            sample,
            sample_annotation,
            sample_data,
            scene,
            sensor,
            visibility,
        } = &self.tables;
        let path = |table: &str| format!("{VERSION}/{table}.json");
        self.folder.write_json(&path("attribute"), attribute)?;
        self.folder
            .write_json(&path("calibrated_sensor"), calibrated_sensor)?;
        self.folder.write_json(&path("category"), category)?;
        self.folder.write_json(&path("ego_pose"), ego_pose)?;
        self.folder.write_json(&path("instance"), instance)?;
        self.folder.write_json(&path("log"), log)?;
        self.folder.write_json(&path("map"), map)?;
        self.folder.write_json(&path("sample"), sample)?;
        self.folder
            .write_json(&path("sample_annotation"), sample_annotation)?;
        self.folder.write_json(&path("sample_data"), sample_data)?;
        self.folder.write_json(&path("scene"), scene)?;
        self.folder.write_json(&path("sensor"), sensor)?;
        self.folder.write_json(&path("visibility"), visibility)
    }
}

fn attribute(true_box: &TrueBox) -> Option<&'static str> {
    let moving = true_box.velocity.iter().map(|v| v * v).sum::<f64>().sqrt() > MOVING_M_S;
    Some(match true_box.class {
        ObjectClass::Barrier | ObjectClass::TrafficCone => return None,
        ObjectClass::Pedestrian if moving => "pedestrian.moving",
        ObjectClass::Pedestrian => "pedestrian.standing",
        ObjectClass::Motorcycle | ObjectClass::Bicycle => match true_box.rider {
            Rider::Present => "cycle.with_rider",
            Rider::Absent => "cycle.without_rider",
        },
        _ if moving => "vehicle.moving",
        _ => "vehicle.parked",
    })
}

/// The name of a record: 32 hexadecimal digits, a function of the seed, the table and the row.
fn token(seed: u64, table: &str, row: usize) -> String {
    let stream = table
        .bytes()
        .fold(0, |stream, byte| hash(stream, 20, u64::from(byte)));
    format!(
        "{:016x}{:016x}",
        hash(seed, stream, row as u64),
        hash(!seed, stream, row as u64)
    )
}
