//! Boxes: a table of the best, all of them for programs, and the ground from above.

use percept_data::points::{EGO_HALF_EXTENT_M, PointCloud};
use percept_data::{Datum, Sample};
use percept_models::answer::{Boxes, FoundBox};
use percept_picture::{BirdsEye, DrawnBox, DrawnPoint, Picture, draw_birds_eye};
use percept_report::{Table, counted};
use serde_json::{Value, json};

use super::nothing_to_draw_on;
use crate::fail::Result;
use crate::surround::{SolidBox, camera_pictures, draw_around};

const TOP: usize = 20;

pub fn text(name: &str, boxes: &Boxes, top: Option<usize>) -> String {
    let (count, top) = (boxes.found.len(), top.unwrap_or(TOP));
    if count == 0 {
        return format!("{name}: no boxes\n");
    }
    let mut table = Table::new(&[
        "<class", "score", "x m", "y m", "z m", "length", "width", "height", "yaw °", "vx m/s",
        "vy",
    ]);
    for found in boxes.found.iter().take(top) {
        let metres = |value: f32| format!("{value:.2}");
        let (center, size) = (found.center.map(metres), found.size.map(metres));
        let velocity = found.velocity.map(metres);
        let head = [boxes.class_name(found.class), format!("{:.3}", found.score)];
        let yaw = [format!("{:.0}", found.yaw.to_degrees())];
        let cells = head.into_iter().chain(center).chain(size);
        table.row(cells.chain(yaw).chain(velocity));
    }
    let more = match count.saturating_sub(top) {
        0 => String::new(),
        more => format!("... and {more} more (--top shows them)\n"),
    };
    let classes: Vec<String> = boxes
        .counts()
        .into_iter()
        .map(|(class, count)| format!("{count} {}", boxes.class_name(class)))
        .collect();
    let classes = classes.join(", ");
    format!(
        "{name}: {}: {classes}\n\n{}{more}",
        counted(count, "box"),
        table.render()
    )
}

pub fn record(boxes: &Boxes) -> Value {
    let found = boxes.found.iter().map(|found| {
        json!({
            "class": boxes.class_name(found.class), "class_id": found.class, "score": found.score,
            "center_m": found.center, "size_m": found.size, "yaw_rad": found.yaw,
            "velocity_m_per_s": found.velocity,
        })
    });
    found.collect()
}

/// The columns of a table to save, and its rows.
pub const COLUMNS: [&str; 11] = [
    "class",
    "score",
    "x_m",
    "y_m",
    "z_m",
    "length_m",
    "width_m",
    "height_m",
    "yaw_rad",
    "vx_m_per_s",
    "vy_m_per_s",
];

pub fn rows(boxes: &Boxes) -> Vec<[String; 11]> {
    let row = |found: &FoundBox| {
        let ([x, y, z], [length, width, height]) = (found.center, found.size);
        let [vx, vy] = found.velocity;
        let numbers = [
            found.score,
            x,
            y,
            z,
            length,
            width,
            height,
            found.yaw,
            vx,
            vy,
        ];
        let class = boxes.class_name(found.class);
        let mut cells = std::iter::once(class).chain(numbers.map(|number| number.to_string()));
        std::array::from_fn(|_| cells.next().unwrap_or_default())
    };
    boxes.found.iter().map(row).collect()
}

/// Boxes that score lower are drawn only where there is no better one: a detector names many that it hardly believes in, because
/// its metric asks for them.
const SURE: f32 = 0.3;

/// What a picture shows of the boxes, and its title.
fn shown<'b>(name: &str, boxes: &'b Boxes) -> (Vec<&'b FoundBox>, String) {
    let all = boxes.found.len();
    let sure = boxes.found.iter().filter(|found| found.score >= SURE);
    let sure: Vec<&FoundBox> = sure.collect();
    match sure.len() {
        0 => (
            boxes.found.iter().collect(),
            format!("{name}: {}", counted(all, "box")),
        ),
        count if count == all => (sure, format!("{name}: {}", counted(all, "box"))),
        count => {
            let title = format!("{name}: {count} boxes that score {SURE} or more, of {all}");
            (sure, title)
        }
    }
}

/// The points and the boxes from above, as far as the network looks, and what the frame's cameras saw around them.
pub fn picture(sample: &Sample, boxes: &Boxes) -> Result<Picture> {
    let frame = sample.parts.iter().find_map(|(_, datum)| match datum {
        Datum::Frame(frame) => Some(frame),
        _ => None,
    });
    let frame = frame.ok_or_else(|| nothing_to_draw_on(sample, "points"))?;
    let cloud = PointCloud::from_frame(frame);
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
    let (shown, title) = shown(&sample.name, boxes);
    let drawn: Vec<DrawnBox> = shown.iter().map(|found| drawn(found)).collect();
    let classes: Vec<&str> = boxes.names.iter().map(String::as_str).collect();
    let ground = BirdsEye {
        title: &title,
        points: &points,
        boxes: &drawn,
        box_classes: &classes,
        forward_rad: frame.convention.forward_rad(),
        reach_m: f64::from(boxes.reach_m),
        ..BirdsEye::default()
    };
    let pictures = camera_pictures(frame)?;
    if pictures.is_empty() {
        return Ok(draw_birds_eye(&ground));
    }
    let solid = |found: &FoundBox| {
        SolidBox::new(
            found.class,
            found.center.map(f64::from),
            found.size.map(f64::from),
            f64::from(found.yaw),
        )
    };
    let solids: Vec<SolidBox> = shown.into_iter().map(solid).collect();
    draw_around(&ground, &pictures, &frame.sensor_to_world, &solids)
}

fn drawn(found: &FoundBox) -> DrawnBox {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(scores: &[f32]) -> Boxes {
        let found = scores.iter().map(|&score| FoundBox {
            class: 0,
            score,
            center: [0.0; 3],
            size: [1.0; 3],
            yaw: 0.0,
            velocity: [0.0; 2],
        });
        Boxes::new(found.collect(), vec!["car".to_owned()].into(), 10.0)
    }

    #[test]
    fn a_picture_shows_what_the_network_is_sure_of() {
        let title = |scores: &[f32]| {
            let boxes = scored(scores);
            let (shown, title) = shown("a sweep", &boxes);
            (shown.len(), title)
        };
        let some = "a sweep: 2 boxes that score 0.3 or more, of 3";
        assert_eq!(title(&[0.9, 0.1, 0.4]), (2, some.to_owned()));
        assert_eq!(title(&[0.2, 0.1]), (2, "a sweep: 2 boxes".to_owned()));
        assert_eq!(title(&[0.5, 0.6]), (2, "a sweep: 2 boxes".to_owned()));
    }
}
