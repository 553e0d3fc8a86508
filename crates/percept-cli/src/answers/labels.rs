//! Labels of points: how many of each class, a label per row in files, and the ground from above in colours.

use std::path::Path;

use percept_data::arrays::write_npy_integers;
use percept_data::points::{LidarFrame, PlyPoints, PointLabel, write_labels, write_ply};
use percept_data::{Datum, Sample};
use percept_models::answer::PointLabels;
use percept_picture::{BirdsEye, DrawnPoint, Picture, PointColours, class_colours, draw_birds_eye};
use percept_report::{Table, counted};
use serde_json::{Value, json};

use super::nothing_to_draw_on;
use crate::fail::{Fail, Result};

/// Metres from the sensor to the edge of a picture: beyond it, points are too few to look at.
const PICTURE_REACH_M: f64 = 50.0;

pub fn text(name: &str, labels: &PointLabels) -> String {
    let points = labels.classes.len();
    let mut table = Table::new(&["<class", "points", "share"]);
    for (class, count) in labels.counts() {
        let share = 100.0 * count as f64 / points as f64;
        table.row([
            labels.class_name(class),
            count.to_string(),
            format!("{share:.1} %"),
        ]);
    }
    format!(
        "{name}: {}\n\n{}\n",
        counted(points, "point"),
        table.render()
    )
}

pub fn record(labels: &PointLabels) -> Value {
    let counts = labels.counts().into_iter();
    let classes: Value = counts
        .map(|(class, count)| {
            json!({"class": class, "name": labels.class_name(class), "points": count})
        })
        .collect();
    json!({"points": labels.classes.len(), "classes": classes})
}

/// How names of files end that take labels.
pub const ENDINGS: [&str; 3] = ["label", "npy", "ply"];

/// Writes a label per row of the sample's file, in the form that the name tells: `.label` has raw ids, `.npy` classes,
/// `.ply` the points themselves with colours and how sure the network is.
pub fn save(path: &Path, sample: &Sample, labels: &PointLabels) -> Result<()> {
    let frame = frame(sample)?;
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("label") => {
            let label = |class| PointLabel { class, instance: 0 };
            let raw: Vec<PointLabel> = labels.raw().into_iter().map(label).collect();
            let rows = frame.of_rows(&raw, PointLabel::default());
            write_labels(path, &rows).map_err(Fail::bad_input)
        }
        Some("npy") => {
            let rows = frame.of_rows(&labels.classes, 0);
            Ok(write_npy_integers(path, &rows)?)
        }
        _ => {
            let palette = match labels.colours.is_empty() {
                true => class_colours(&names(labels)),
                false => labels.colours.to_vec(),
            };
            let classes = || labels.classes.iter().map(|class| usize::from(*class));
            let colours: Vec<[u8; 3]> = classes()
                .map(|class| palette.get(class).copied().unwrap_or_default())
                .collect();
            let numbers: Vec<f32> = classes().map(|class| class as f32).collect();
            let positions: Vec<[f32; 3]> = frame.points.iter().map(|p| p.position).collect();
            let points = PlyPoints {
                positions: &positions,
                colours: Some(&colours),
                scalars: &[("label", &numbers), ("confidence", &labels.confidence)],
            };
            write_ply(path, &points).map_err(Fail::bad_input)
        }
    }
}

pub fn picture(sample: &Sample, labels: &PointLabels) -> Result<Picture> {
    let frame = frame(sample)?;
    let points: Vec<DrawnPoint> = frame
        .points
        .iter()
        .zip(&labels.classes)
        .map(|(point, class)| DrawnPoint {
            position: point.position,
            intensity: point.intensity,
            class: Some(usize::from(*class)),
            ..DrawnPoint::default()
        })
        .collect();
    let names = names(labels);
    let colours = match labels.colours.is_empty() {
        true => PointColours::Class(&names),
        false => PointColours::Painted {
            names: &names,
            colours: &labels.colours,
        },
    };
    Ok(draw_birds_eye(&BirdsEye {
        title: &format!("{}: {}", sample.name, counted(points.len(), "point")),
        points: &points,
        colours,
        forward_rad: frame.convention.forward_rad(),
        reach_m: PICTURE_REACH_M,
        ..BirdsEye::default()
    }))
}

fn names(labels: &PointLabels) -> Vec<&str> {
    labels.names.iter().map(String::as_str).collect()
}

fn frame(sample: &Sample) -> Result<&LidarFrame> {
    let found = sample.parts.iter().find_map(|(_, datum)| match datum {
        Datum::Frame(frame) => Some(&**frame),
        _ => None,
    });
    found.ok_or_else(|| nothing_to_draw_on(sample, "points"))
}

#[cfg(test)]
mod tests {
    use percept_data::arrays::read_npy_integers;
    use percept_data::points::{LEARNED_CLASS_NAMES, read_labels, read_points};
    use percept_kernels::Cpu;
    use percept_world::{World, WorldConfig, WorldKind};

    use super::*;

    /// A scan of the world with its truth as the answer, as if a row at the front and one at the end had been NaN.
    fn answered() -> (Sample, PointLabels) {
        let mut world = World::new(WorldConfig::new(WorldKind::SemanticKitti, 5));
        let mut frame = world.frame(&Cpu::new(1).unwrap(), 0);
        let truth = frame.labels.clone().unwrap();
        let classes: Vec<u16> = truth.iter().map(|l| u16::from(l.learned_class())).collect();
        frame.dropped_rows = vec![0, truth.len() + 1];
        let mut raw_ids = [0; LEARNED_CLASS_NAMES.len()];
        for label in &truth {
            raw_ids[usize::from(label.learned_class())] = label.class;
        }
        let labels = PointLabels {
            confidence: vec![0.5; classes.len()],
            classes,
            names: LEARNED_CLASS_NAMES.map(str::to_owned).into(),
            raw_ids: raw_ids.into(),
            colours: [].into(),
        };
        let sample = Sample::of("scan", "points", Datum::Frame(Box::new(frame)));
        (sample, labels)
    }

    #[test]
    fn every_row_of_the_file_gets_its_label() {
        let ((sample, labels), folder) = (answered(), tempfile::tempdir().unwrap());
        let path = |ending: &str| folder.path().join("x").with_extension(ending);
        for ending in ENDINGS {
            save(&path(ending), &sample, &labels).unwrap();
        }
        let count = labels.classes.len();
        let rows = read_npy_integers(&path("npy")).unwrap();
        assert_eq!((rows.len(), rows[0], rows[count + 1]), (count + 2, 0, 0));
        let expected: Vec<u32> = labels.classes.iter().map(|c| u32::from(*c)).collect();
        assert_eq!(rows[1..=count], expected);
        let raw = read_labels(&path("label")).unwrap();
        assert_eq!(raw.len(), count + 2);
        let learned = raw[1..=count]
            .iter()
            .map(|label| u32::from(label.learned_class()));
        assert!(learned.eq(expected));
        assert_eq!(read_points(&path("ply"), None).unwrap().len(), count);
    }

    #[test]
    fn own_colours_are_drawn_and_written() {
        let ((sample, mut labels), folder) = (answered(), tempfile::tempdir().unwrap());
        labels.colours = vec![[1, 2, 3]; labels.names.len()].into();
        let path = folder.path().join("x.ply");
        save(&path, &sample, &labels).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.windows(3).any(|rgb| rgb == [1, 2, 3]));
        let pixels = picture(&sample, &labels).unwrap().to_pixels();
        let drawn = (0..pixels.height())
            .any(|y| (0..pixels.width()).any(|x| pixels.at(x, y) == Some([1, 2, 3])));
        assert!(drawn);
    }

    #[test]
    fn classes_are_counted_for_people_and_programs() {
        let (sample, labels) = answered();
        let text = text(&sample.name, &labels);
        assert!(text.contains("road") && text.contains(" %"), "{text}");
        let record = record(&labels);
        let classes = record["classes"].as_array().unwrap();
        let total: u64 = classes.iter().map(|c| c["points"].as_u64().unwrap()).sum();
        assert_eq!(total, labels.classes.len() as u64);
        let svg = picture(&sample, &labels).unwrap().to_svg();
        assert!(svg.contains("road"));
    }
}
