//! What a LiDAR detector found: a table, a record and a picture.

use std::path::Path;

use percept_data::atomic::write_atomically;
use percept_data::points::{EGO_HALF_EXTENT_M, LidarConvention, PointCloud};
use percept_models::centerpoint::CLASS_NAMES;
use percept_models::centerpoint::decode::Detection;
use percept_picture::{BirdsEye, DrawnBox, DrawnPoint, draw_birds_eye};
use percept_report::Table;
use serde_json::{Value, json};

use crate::fail::{Blame, Result};

/// Metres from the sensor to the edge of a picture: as far as the widest range that CenterPoint is trained for.
const PICTURE_REACH_M: f64 = 54.0;

/// The detections of one sample.
pub struct Found {
    /// What was looked at.
    pub name: String,
    /// Best first.
    pub boxes: Vec<Detection>,
}

impl Found {
    /// Sorts the boxes by score; equal ones stay in the network's order.
    pub fn new(name: String, mut boxes: Vec<Detection>) -> Self {
        boxes.sort_by(|a, b| b.score.total_cmp(&a.score));
        Self { name, boxes }
    }

    /// The `top` best boxes, and how many there are of each class.
    pub fn table(&self, top: usize) -> String {
        let mut table = Table::new(&[
            "<class", "score", "x m", "y m", "z m", "length", "width", "height", "yaw °", "vx m/s",
            "vy",
        ]);
        for found in self.boxes.iter().take(top) {
            let metres = |value: f32| format!("{value:.2}");
            let (center, size) = (found.center.map(metres), found.size.map(metres));
            let [vx, vy] = found.velocity.map(metres);
            let [x, y, z] = center;
            let [length, width, height] = size;
            table.row([
                CLASS_NAMES[found.class].to_owned(),
                format!("{:.3}", found.score),
                x,
                y,
                z,
                length,
                width,
                height,
                format!("{:.0}", found.yaw.to_degrees()),
                vx,
                vy,
            ]);
        }
        let count = self.boxes.len();
        let more = match count.saturating_sub(top) {
            0 => String::new(),
            more => format!("... and {more} more (--top shows them)\n"),
        };
        let classes: Vec<String> = (0..CLASS_NAMES.len())
            .map(|class| {
                (
                    class,
                    self.boxes.iter().filter(|b| b.class == class).count(),
                )
            })
            .filter(|(_, count)| *count > 0)
            .map(|(class, count)| format!("{count} {}", CLASS_NAMES[class]))
            .collect();
        let summary = match count {
            0 => "no boxes".to_owned(),
            _ => format!("{count} boxes: {}", classes.join(", ")),
        };
        match count {
            0 => format!("{}: {summary}\n", self.name),
            _ => format!("{}: {summary}\n\n{}{more}", self.name, table.render()),
        }
    }

    /// Every box.
    pub fn record(&self) -> Value {
        let boxes = self.boxes.iter().map(|found| {
            json!({
                "class": CLASS_NAMES[found.class], "class_id": found.class, "score": found.score,
                "center_m": found.center, "size_m": found.size, "yaw_rad": found.yaw,
                "velocity_m_per_s": found.velocity,
            })
        });
        json!({"input": self.name, "boxes": boxes.collect::<Vec<_>>()})
    }

    /// Draws the points and the boxes from above.
    pub fn write_picture(&self, path: &Path, cloud: &PointCloud) -> Result<()> {
        let boxes: Vec<DrawnBox> = self.boxes.iter().map(drawn).collect();
        let (rows, _) = cloud.values.as_chunks::<{ PointCloud::CHANNELS }>();
        let points: Vec<DrawnPoint> = rows
            .iter()
            .filter(|[x, y, ..]| x.abs() >= EGO_HALF_EXTENT_M || y.abs() >= EGO_HALF_EXTENT_M)
            .map(|&[x, y, z, intensity, age_s]| DrawnPoint {
                position: [x, y, z],
                intensity,
                old: age_s != 0.0,
                ..DrawnPoint::default()
            })
            .collect();
        let picture = draw_birds_eye(&BirdsEye {
            title: &format!("{}: {} boxes", self.name, boxes.len()),
            points: &points,
            boxes: &boxes,
            box_classes: &CLASS_NAMES,
            forward_rad: LidarConvention::NuScenes.forward_rad(),
            reach_m: PICTURE_REACH_M,
            ..BirdsEye::default()
        });
        let png = picture.to_png();
        let written: std::io::Result<()> = write_atomically(path, |file| file.write_all(&png));
        written
            .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
            .bad_input()
    }
}

fn drawn(found: &Detection) -> DrawnBox {
    let ([x, y, _], [length, width, _]) = (found.center, found.size);
    DrawnBox {
        class: found.class,
        centre: [x, y].map(f64::from),
        size: [length, width].map(f64::from),
        yaw_rad: f64::from(found.yaw),
        velocity: Some(found.velocity.map(f64::from)),
        score: f64::from(found.score),
    }
}
