//! The figures of nuscenes-devkit 1.2.0 on files made for it (golden/nuscenes-eval), and corrupted files.

use percept_data::points::{ObjectClass, Quaternion};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::results::{BoxRecord, Results};
use super::*;

const TOLERANCE: f64 = 1e-9;

fn edge() -> Value {
    serde_json::from_str(include_str!("../../tests/fixtures/nuscenes_edge.json")).unwrap()
}

/// A whole reference file, where `PERCEPT_SHARED` (default: `../shared`) has it.
fn shared(name: &str) -> Option<String> {
    let path = percept_testing::shared("golden/nuscenes-eval")?.join(name);
    Some(std::fs::read_to_string(path).expect("a reference"))
}

/// Truth in the layout of the references.
fn truth(file: &Value) -> Vec<FrameTruth> {
    let frames = file["results"].as_object().unwrap();
    frames
        .iter()
        .map(|(token, boxes)| {
            let ego: [f64; 3] = read(&file["ego_poses"][token]["translation"]);
            let racks = file["bike_racks"][token].as_array();
            let racks = racks.into_iter().flatten().map(|rack| BicycleRack {
                centre: read(&rack["translation"]),
                size_wlh: read(&rack["size"]),
                rotation: Quaternion(read(&rack["rotation"])),
            });
            let boxes = boxes.as_array().unwrap().iter();
            FrameTruth {
                token: token.clone(),
                ego: [ego[0], ego[1]],
                boxes: boxes
                    .map(|b| BoxRecord::deserialize(b).unwrap().into_box().unwrap())
                    .collect(),
                bicycle_racks: racks.collect(),
            }
        })
        .collect()
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// A case's predictions through the file's own reader; `null` is what the references have for NaN.
fn predictions(results: &Value) -> Result<Vec<FramePredictions>, String> {
    let file = serde_json::json!({ "meta": {}, "results": results }).to_string();
    let results = Results::from_reader(file.as_bytes()).map_err(|error| error.to_string())?;
    Ok(results.frames)
}

/// Every number of `expected` that `found` has a place for, within the tolerance.
fn compare(path: &str, found: &Value, expected: &Value) {
    match expected {
        Value::Object(fields) => {
            for (name, expected) in fields {
                compare(&format!("{path}.{name}"), &found[name], expected);
            }
        }
        Value::Array(items) => {
            assert_eq!(found.as_array().map(Vec::len), Some(items.len()), "{path}");
            for (i, expected) in items.iter().enumerate() {
                compare(&format!("{path}[{i}]"), &found[i], expected);
            }
        }
        Value::Number(number) => {
            let (found, expected) = (found.as_f64(), number.as_f64().unwrap());
            let near = found.is_some_and(|found| (found - expected).abs() <= TOLERANCE);
            assert!(near, "{path}: {found:?}, expected {expected}");
        }
        _ => assert_eq!(found, expected, "{path}"),
    }
}

fn check(name: &str, figures: &DetectionFigures, expected: &Value) {
    let found = figures.to_json();
    let parts = [
        "label_aps",
        "mean_dist_aps",
        "mean_ap",
        "label_tp_errors",
        "tp_errors",
        "tp_scores",
        "nd_score",
    ];
    for part in parts {
        compare(&format!("{name}.{part}"), &found[part], &expected[part]);
    }
    for class in &figures.classes {
        let counts = &expected["counts_after_filtering"];
        let count = |side: &str| counts[side][class.class.name()].as_u64();
        let truths = count("gt").unwrap_or(0);
        assert_eq!(class.truths as u64, truths, "{name}: {:?}", class.class);
        let predictions = count("pred").unwrap_or(0);
        assert_eq!(
            class.predictions as u64, predictions,
            "{name}: {:?}",
            class.class
        );
    }
}

#[test]
fn the_edge_cases_of_the_public_code() {
    let edge = edge();
    let cases = edge["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 23);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let (truth, mut predictions) = (truth(&case["gt"]), predictions(&case["results"]).unwrap());
        let order: Vec<String> = read(&case["frame_order_of_results"]);
        predictions.sort_by_key(|f| order.iter().position(|token| *token == f.token));
        let figures = evaluate(&truth, &predictions, &DetectionSettings::default());
        check(name, &figures.unwrap(), &case["expected"]);
    }
}

#[test]
fn what_the_public_code_takes_and_refuses() {
    let edge = edge();
    let cases = edge["validity"].as_array().unwrap();
    assert_eq!(cases.len(), 18);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let results = match case.get("results_rule") {
            Some(rule) => boxes_by_rule(name, rule),
            None => case["results"].clone(),
        };
        let truth = truth(&case["gt"]);
        let figures = predictions(&results).and_then(|predictions| {
            let settings = DetectionSettings::default();
            evaluate(&truth, &predictions, &settings).map_err(|error| error.to_string())
        });
        match case["outcome"].as_str().unwrap() {
            "accepted" => {
                let found = figures.unwrap().to_json();
                compare(name, &found["label_aps"]["car"], &case["car_aps"]);
                compare(
                    name,
                    &found["label_tp_errors"]["car"],
                    &case["car_tp_errors"],
                );
                compare(name, &found["nd_score"], &case["headline"]["NDS"]);
            }
            _ => assert!(figures.is_err(), "{name} was accepted"),
        }
    }
}

/// The 500 or 501 boxes of frame a, of which the first few are far away.
fn boxes_by_rule(name: &str, rule: &Value) -> Value {
    let count = if name == "boxes_500" { 500 } else { 501 };
    let far = if name == "boxes_501_mostly_far" {
        400
    } else {
        0
    };
    let boxes = (0..count).map(|i| {
        let mut found = rule["box_template"].clone();
        let x = if i < far { 700.0 } else { 610.0 };
        found["translation"] = serde_json::json!([x, 1200.25 + f64::from(i) / 1024.0, 1.0]);
        found
    });
    serde_json::json!({ "a": boxes.collect::<Vec<_>>(), "b": [] })
}

#[test]
fn the_main_files_of_the_public_code() {
    let files = ["gt.json", "results.json", "metrics.json", "edge.json"].map(shared);
    let [Some(gt), Some(results), Some(expected), Some(edge)] = files else {
        return;
    };
    let truth = truth(&serde_json::from_str(&gt).unwrap());
    let results = Results::from_reader(results.as_bytes()).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let settings = DetectionSettings::default();
    let figures = evaluate(&truth, &results.frames, &settings).unwrap();
    check("main", &figures, &expected);
    for (class, curves) in expected["curves"].as_object().unwrap() {
        let class = ObjectClass::from_name(class).unwrap();
        let found = &figures.classes[class.id()].curves;
        for (curve, threshold) in found.iter().zip(THRESHOLDS_M) {
            let expected = &curves[format!("{threshold:.1}")];
            let found = serde_json::to_value(curve).unwrap();
            compare("precision", &found["precision"], &expected["precision"]);
            compare("confidence", &found["confidence"], &expected["confidence"]);
            assert_eq!(
                Some(curve.reached() as u64),
                expected["max_recall_ind"].as_u64()
            );
        }
    }
    let edge: Value = serde_json::from_str(&edge).unwrap();
    for case in edge["derived"].as_array().unwrap() {
        let dropped = |side: &str| read::<Vec<String>>(&case[side]);
        let (gone, unseen) = (dropped("drop_gt_classes"), dropped("drop_pred_classes"));
        let (mut truth, mut predictions) = (truth.clone(), results.frames.clone());
        for frame in &mut truth {
            frame
                .boxes
                .retain(|b| !gone.iter().any(|n| n == b.class.name()));
        }
        for frame in &mut predictions {
            let seen = |p: &Prediction| !unseen.iter().any(|n| n == p.found.class.name());
            frame.boxes.retain(seen);
        }
        let figures = evaluate(&truth, &predictions, &settings).unwrap();
        check(case["name"].as_str().unwrap(), &figures, &case["expected"]);
    }
}

/// A frame with cars at these places (metres ahead of the vehicle), each with so many points.
fn cars(places: &[(f64, u64)]) -> FrameTruth {
    let boxes = places.iter().map(|&(x, points)| GlobalBox {
        class: ObjectClass::Car,
        centre: [x, 0.0, 0.0],
        size_wlh: [2.0, 4.0, 1.5],
        rotation: Quaternion([1.0, 0.0, 0.0, 0.0]),
        velocity: Some([0.0, 0.0]),
        attribute: Some(Attribute::VehicleParked),
        points: Some(points),
    });
    FrameTruth {
        token: "a".into(),
        ego: [0.0, 0.0],
        boxes: boxes.collect(),
        bicycle_racks: Vec::new(),
    }
}

fn found(frame: &FrameTruth, boxes: &[(usize, f64, f64)]) -> Vec<FramePredictions> {
    let boxes = boxes.iter().map(|&(like, shift, score)| {
        let mut found = frame.boxes[like].clone();
        found.centre[0] += shift;
        found.points = None;
        Prediction { found, score }
    });
    vec![FramePredictions {
        token: frame.token.clone(),
        boxes: boxes.collect(),
    }]
}

#[test]
fn slices_share_out_the_boxes_without_edges() {
    // The second car is found beyond the edge of its slice; a false alarm lies near.
    let truth = cars(&[(5.0, 3), (9.9, 20), (35.0, 100), (45.0, 0)]);
    let boxes = [(0, 0.0, 0.9), (1, 0.3, 0.8), (0, 2.9, 0.7)];
    let predictions = found(&truth, &boxes);
    let figures = evaluate(&[truth], &predictions, &DetectionSettings::default()).unwrap();
    let rows: Vec<(String, usize, usize)> = figures
        .slices
        .iter()
        .map(|s| (s.slice.name(), s.classes[0].truths, s.classes[0].found))
        .collect();
    let expected = [
        ("0-10 m", 2, 2),
        ("10-20 m", 0, 0),
        ("20-30 m", 0, 0),
        ("30-40 m", 1, 0),
        ("40-50 m", 0, 0),
        ("1-4 points", 1, 1),
        ("5-14 points", 0, 0),
        ("15-49 points", 1, 1),
        ("50 points and more", 1, 0),
    ];
    assert_eq!(rows, expected.map(|(n, t, f)| (n.to_owned(), t, f)));
    let precision = |slice: usize| figures.slices[slice].mean_average_precision();
    // The false alarm lowers the precision at full recall, one of 90 places.
    let expected = 1.0 - (1.0 / 3.0) / (90.0 * 0.9);
    assert!((precision(0).unwrap() - expected).abs() < 1e-12);
    assert_eq!((precision(1), precision(3)), (None, Some(0.0)));
}

#[test]
fn ranges_can_be_cut() {
    let truth = [cars(&[(5.0, 3), (26.0, 3)])];
    let predictions = found(&truth[0], &[(0, 0.0, 0.9)]);
    let settings = DetectionSettings::default().within_m(25.6);
    assert_eq!(settings.ranges_m, [25.6; 10]);
    let figures = evaluate(&truth, &predictions, &settings).unwrap();
    assert_eq!(figures.classes[0].truths, 1);
    assert!((figures.classes[0].average_precision - 1.0).abs() < 1e-12);
}

#[test]
fn other_frames_and_broken_numbers_are_told() {
    let truth = [cars(&[(5.0, 3)])];
    let settings = DetectionSettings::default();
    let message = |predictions: &[FramePredictions]| {
        let error = evaluate(&truth, predictions, &settings).unwrap_err();
        error.to_string()
    };
    let right = found(&truth[0], &[(0, 0.0, 0.5)]);
    let mut other = right.clone();
    other[0].token = "b".into();
    assert!(message(&other).starts_with("frame \"b\" is in the predictions only"));
    assert!(message(&[]).starts_with("frame \"a\" is in the truth only"));
    assert!(message(&[right[0].clone(), right[0].clone()]).contains("twice in the predictions"));
    let mut broken = right.clone();
    broken[0].boxes[0].found.centre[1] = f64::NAN;
    assert!(message(&broken).starts_with("frame \"a\", predicted box 0 (car): centre"));
    broken = right;
    broken[0].boxes[0].score = f64::NAN;
    assert!(message(&broken).contains("score NaN"));
}

#[test]
fn results_survive_a_round_trip() {
    let frame = cars(&[(5.0, 3), (26.0, 3)]);
    let mut frames = found(&frame, &[(0, 0.1, 0.25), (1, 0.0, 1.0 / 3.0)]);
    frames[0].boxes[0].found.velocity = None;
    frames[0].boxes[1].found.attribute = None;
    frames.push(FramePredictions {
        token: "Na\"N".into(),
        boxes: Vec::new(),
    });
    let mut results = Results {
        frames,
        ..Results::default()
    };
    results.sources.use_lidar = true;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    results.write(&path).unwrap();
    assert_eq!(Results::read(&path).unwrap(), results);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"velocity\":[NaN,NaN]"), "{text}");
    let missing = Results::read(&folder.path().join("none.json"));
    assert!(missing.unwrap_err().to_string().contains("none.json"));
    std::fs::write(&path, "{\"meta\": {}}").unwrap();
    let error = Results::read(&path).unwrap_err().to_string();
    assert!(
        error.contains("results.json") && error.contains("missing field"),
        "{error}"
    );
}

/// Two frames with one box each, as a file.
fn small_file() -> Vec<u8> {
    let frame = cars(&[(5.0, 3)]);
    let mut frames = found(&frame, &[(0, 0.1, 0.25)]);
    frames.push(FramePredictions {
        token: "b".into(),
        ..frames[0].clone()
    });
    let results = Results {
        frames,
        ..Results::default()
    };
    let mut file = Vec::new();
    results.to_writer(&mut file).unwrap();
    file
}

proptest! {
    #[test]
    fn a_corrupted_file_is_an_error_or_another_file(
        cut in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 0..4),
    ) {
        let mut file = small_file();
        file.truncate(cut.index(file.len() + 1));
        for (place, bit) in flips {
            if !file.is_empty() {
                let place = place.index(file.len());
                file[place] ^= 1 << bit;
            }
        }
        if let Ok(results) = Results::from_reader(file.as_slice()) {
            // What was read can be written and read again.
            let mut again = Vec::new();
            results.to_writer(&mut again).unwrap();
            prop_assert_eq!(Results::from_reader(again.as_slice()).unwrap(), results);
        }
    }

    /// Everything again without sorting, filtering or binary search.
    #[test]
    fn average_precision_equals_a_plain_count(
        truths in prop::collection::vec((0_u8..3, 0_u8..12), 1..12),
        boxes in prop::collection::vec((0_u8..3, 0_u8..12, 0_u8..6), 1..16),
    ) {
        let token = |frame: u8| format!("frame {frame}");
        let template = cars(&[(0.0, 1)]).boxes[0].clone();
        let at = |x: u8| GlobalBox { centre: [f64::from(x) * 0.75, 0.0, 0.0], ..template.clone() };
        let frames = (0..3).map(|frame| FrameTruth {
            token: token(frame),
            boxes: truths.iter().filter(|t| t.0 == frame).map(|t| at(t.1)).collect(),
            ..cars(&[])
        });
        let frames: Vec<FrameTruth> = frames.collect();
        let predictions: Vec<FramePredictions> = (0..3).map(|frame| FramePredictions {
            token: token(frame),
            boxes: boxes.iter().filter(|b| b.0 == frame).map(|b| Prediction {
                found: at(b.1),
                score: f64::from(b.2) / 8.0,
            }).collect(),
        }).collect();
        let figures = evaluate(&frames, &predictions, &DetectionSettings::default()).unwrap();
        let listed: Vec<(usize, u8, u8)> = (0..3).flat_map(|frame| {
            boxes.iter().filter(move |b| b.0 == frame).map(move |b| (usize::from(frame), b.1, b.2))
        }).collect();
        for (threshold, found) in THRESHOLDS_M.into_iter().zip(figures.classes[0].average_precisions) {
            let slow = slow_average_precision(&frames, &listed, threshold);
            prop_assert!((found - slow).abs() < 1e-12, "{} at {}: {}", found, threshold, slow);
        }
    }
}

fn slow_average_precision(frames: &[FrameTruth], listed: &[(usize, u8, u8)], m: f64) -> f64 {
    let positives: usize = frames.iter().map(|f| f.boxes.len()).sum();
    let mut left: Vec<Option<(usize, u8, u8)>> = listed.iter().copied().map(Some).collect();
    let mut free: Vec<Vec<Option<f64>>> = frames
        .iter()
        .map(|f| f.boxes.iter().map(|b| Some(b.centre[0])).collect())
        .collect();
    let (mut points, mut right) = (Vec::new(), 0.0);
    for visited in 1..=listed.len() {
        // The best of what is left; of equals the last.
        let best = (0..left.len())
            .filter_map(|i| left[i].map(|b| (b.2, i)))
            .max()
            .unwrap();
        let (frame, x, _) = left[best.1].take().unwrap();
        let x = f64::from(x) * 0.75;
        let distance = |truth: &Option<f64>| truth.map_or(f64::INFINITY, |t| (t - x).abs());
        let nearest = free[frame]
            .iter()
            .map(distance)
            .fold(f64::INFINITY, f64::min);
        if nearest < m {
            let taken = free[frame].iter().position(|t| distance(t) == nearest);
            free[frame][taken.unwrap()] = None;
            right += 1.0;
        }
        points.push((right / positives as f64, right / visited as f64));
    }
    if right == 0.0 {
        return 0.0;
    }
    let sum: f64 = (11..=100)
        .map(|i| {
            let recall = f64::from(i) * 0.01;
            let Some(after) = points.iter().position(|p| p.0 > recall) else {
                // At the reached recall exactly, the last point holds.
                let last = points[points.len() - 1];
                return if last.0 == recall {
                    (last.1 - 0.1).max(0.0)
                } else {
                    0.0
                };
            };
            if after == 0 {
                return (points[0].1 - 0.1).max(0.0);
            }
            let ((r0, p0), (r1, p1)) = (points[after - 1], points[after]);
            (p0 + (recall - r0) / (r1 - r0) * (p1 - p0) - 0.1).max(0.0)
        })
        .sum();
    sum / 90.0 / 0.9
}
