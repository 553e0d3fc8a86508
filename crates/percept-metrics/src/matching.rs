//! Masks that were found in another view, as the public evaluation of O-MaMa scores them.
//!
//! - IoU = pixels in both / (pixels in either + 1e-7).
//! - Contour F: contours a pixel wide; a pixel of one is right when it lies within a disk of some pixel of the other, whose radius is
//!   0.8 % of the picture's diagonal, rounded up. F = 2 precision recall / (precision + recall).
//! - Location: the distance between the middles of the boxes around both, as a share of the diagonal.
//! - Visibility: whether the object is in view at all. Balanced accuracy is the mean of the shares told right of those that are
//!   and of those that are not.

use percept_data::masks::{MaskFault, Rle};
use serde::Serialize;

/// Keeps the IoU of two empty masks a number.
const IOU_FLOOR: f64 = 1e-7;
/// How far contours may be apart, as a share of the diagonal.
const CONTOUR_REACH: f64 = 0.008;

/// How well one mask was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MaskScore {
    /// Intersection over union.
    pub iou: f64,
    /// F of the contours.
    pub contour_f: f64,
    /// Distance of the middles, as a share of the diagonal.
    pub location: f64,
}

impl MaskScore {
    /// Scores an answer; the truth is brought to its size by the nearest pixel.
    pub fn of(truth: &Rle, answer: &Rle) -> Result<Self, MaskFault> {
        let truth = truth.resized_nearest(answer.height(), answer.width())?;
        let both = truth.intersection_area(answer)? as f64;
        let either = (truth.area() + answer.area()) as f64 - both;
        Ok(Self {
            iou: both / (either + IOU_FLOOR),
            contour_f: contour_f(&truth, answer)?,
            location: location(&truth, answer),
        })
    }
}

fn diagonal(mask: &Rle) -> f64 {
    (mask.height() as f64).hypot(mask.width() as f64)
}

fn contour_f(truth: &Rle, answer: &Rle) -> Result<f64, MaskFault> {
    let radius = (CONTOUR_REACH * diagonal(answer)).ceil() as u32;
    let (of_truth, of_answer) = (truth.contour(), answer.contour());
    let share = |of: &Rle, near: &Rle| -> Result<f64, MaskFault> {
        Ok(of.intersection_area(&near.dilated(radius))? as f64 / of.area() as f64)
    };
    let (precision, recall) = match (of_answer.is_empty(), of_truth.is_empty()) {
        (true, true) => (1.0, 1.0),
        (true, false) => (1.0, 0.0),
        (false, true) => (0.0, 1.0),
        (false, false) => (share(&of_answer, &of_truth)?, share(&of_truth, &of_answer)?),
    };
    Ok(match precision + recall > 0.0 {
        true => 2.0 * precision * recall / (precision + recall),
        false => 0.0,
    })
}

fn location(truth: &Rle, answer: &Rle) -> f64 {
    let ([x, y], [u, v]) = (middle(truth), middle(answer));
    (x - u).hypot(y - v) / diagonal(answer)
}

/// The middle of the box around a mask, in whole pixels. Of an empty one the public evaluation takes half the height and half the
/// width, in this order.
fn middle(mask: &Rle) -> [f64; 2] {
    match mask.bounding_box() {
        Some(found) => [
            f64::from((2 * found.x + found.width - 1) / 2),
            f64::from((2 * found.y + found.height - 1) / 2),
        ],
        None => [mask.height() as f64 / 2.0, mask.width() as f64 / 2.0],
    }
}

/// The mean over the answers that occur of the share told right: (truth, answer) of each object. Nothing without objects.
pub fn balanced_accuracy(visible: impl IntoIterator<Item = (bool, bool)>) -> Option<f64> {
    let mut counts = [[0u64; 2]; 2];
    for (truth, answer) in visible {
        counts[usize::from(truth)][usize::from(answer)] += 1;
    }
    let shares: Vec<f64> = (0..2)
        .filter(|&truth| counts[truth].iter().sum::<u64>() > 0)
        .map(|truth| counts[truth][truth] as f64 / counts[truth].iter().sum::<u64>() as f64)
        .collect();
    let sum: f64 = shares.iter().sum();
    (!shares.is_empty()).then(|| sum / shares.len() as f64)
}

/// The confidence above which an object counts as visible that gives the best balanced accuracy: (truth, confidence) of each.
/// Of equally good ones the lowest.
pub fn calibrated_threshold(confidences: &[(bool, f64)]) -> Option<f64> {
    let mut thresholds: Vec<f64> = confidences.iter().map(|(_, c)| *c).collect();
    thresholds.retain(|confidence| confidence.is_finite());
    thresholds.sort_by(f64::total_cmp);
    thresholds.dedup();
    let score = |threshold: f64| {
        let answers = confidences.iter().map(|&(truth, c)| (truth, c > threshold));
        balanced_accuracy(answers)
    };
    // One below all, so that "everything is visible" is tried too.
    let least = thresholds.first()?.next_down();
    let mut best = (least, score(least)?);
    for &threshold in &thresholds {
        let value = score(threshold)?;
        if value > best.1 {
            best = (threshold, value);
        }
    }
    Some(best.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn mask(rle: &Value) -> Rle {
        let side = |axis: usize| rle["size"][axis].as_u64().unwrap() as usize;
        Rle::from_coco_text(side(0), side(1), rle["counts"].as_str().unwrap()).unwrap()
    }

    #[test]
    fn figures_of_the_public_evaluation() {
        let golden = include_str!("../tests/fixtures/omama_metrics.json");
        let golden: Value = serde_json::from_str(golden).unwrap();
        let cases = golden["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 6);
        for case in cases {
            let (truth, answer) = (mask(&case["gt"]), mask(&case["pred"]));
            let score = MaskScore::of(&truth, &answer).unwrap();
            for (name, got) in [
                ("iou", score.iou),
                ("contour_f", score.contour_f),
                ("location", score.location),
            ] {
                let expected = case[name].as_f64().unwrap();
                assert!((got - expected).abs() < 1e-9, "{name}: {got} {expected}");
            }
        }
        for case in golden["balanced_acc"].as_array().unwrap() {
            let answers = |name: &str| -> Vec<bool> {
                let values = case[name].as_array().unwrap().iter();
                values.map(|value| value == 1).collect()
            };
            let got = balanced_accuracy(answers("gt").into_iter().zip(answers("pred")));
            let expected = case["val"].as_f64().unwrap();
            assert!((got.unwrap() - expected).abs() < 1e-9, "{got:?} {expected}");
        }
    }

    #[test]
    fn empty_masks_and_no_objects_have_an_answer() {
        let empty = Rle::empty(10, 20).unwrap();
        let score = MaskScore::of(&empty, &empty).unwrap();
        assert_eq!(
            (score.iou, score.contour_f, score.location),
            (0.0, 1.0, 0.0)
        );
        assert_eq!(balanced_accuracy([]), None);
        assert_eq!(calibrated_threshold(&[]), None);
        assert_eq!(calibrated_threshold(&[(true, f64::NAN)]), None);
    }

    proptest! {
        #[test]
        fn no_threshold_is_better_than_the_calibrated_one(
            rows in prop::collection::vec((any::<bool>(), 0u8..12), 1..30),
            other in 0u8..14,
        ) {
            let rows: Vec<(bool, f64)> = rows.iter().map(|&(t, c)| (t, f64::from(c))).collect();
            let accuracy = |threshold: f64| balanced_accuracy(rows.iter().map(|&(t, c)| (t, c > threshold))).unwrap();
            let best = calibrated_threshold(&rows).unwrap();
            prop_assert!(accuracy(best) >= accuracy(f64::from(other) - 0.5));
        }
    }
}
