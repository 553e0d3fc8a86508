//! Labels of points: intersection over union.
//!
//! Of a class c, with tp points that are c and were labelled c: IoU = tp / (points that are c + points labelled c - tp), and mIoU
//! is its mean over classes. As SemanticKITTI does it, points whose truth is the ignored class count nowhere. A point that
//! is labelled as the ignored class although its truth is another was missed. A class that neither occurs nor is
//! ever answered has no IoU and is left out of the mean; benchmarks fix their list of classes, so [`Confusion::mean_iou_of`]
//! takes one.

use serde::Serialize;
use thiserror::Error;

/// How often each class (truth) was given each label (answer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    ignored: Option<usize>,
    /// [truth, answer].
    points: Vec<u64>,
}

/// Points of one class that were given another label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConfusedPair {
    /// Their class.
    pub truth: usize,
    /// The label that they were given.
    pub answer: usize,
    /// How many.
    pub points: u64,
}

/// Labels that do not belong together.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[allow(missing_docs)]
pub enum SegmentationError {
    /// A list is longer than another.
    #[error("{truths} true labels, {answers} answers and {distances} distances: expected as many")]
    Length {
        truths: usize,
        answers: usize,
        distances: usize,
    },
    /// A label beyond the classes.
    #[error(
        "point {point} has the {side} label {label}: expected one of {classes} classes, from 0"
    )]
    Label {
        point: usize,
        side: &'static str,
        label: u16,
        classes: usize,
    },
    /// A distance is no number.
    #[error("point {point} is {distance_m} m away")]
    Distance { point: usize, distance_m: f64 },
    /// Edges of distances that do not ascend.
    #[error("edges of distances must ascend: {0} m comes before {1} m")]
    Edges(f64, f64),
}

impl Confusion {
    /// Of labels below `classes`, before any point. Points that are `ignored` will not count.
    pub fn new(classes: usize, ignored: Option<usize>) -> Self {
        Self {
            classes,
            ignored,
            points: vec![0; classes * classes],
        }
    }

    /// Counts points. Nothing is counted when there is an error.
    pub fn add(&mut self, truths: &[u16], answers: &[u16]) -> Result<(), SegmentationError> {
        self.check(truths, answers)?;
        for (&truth, &answer) in truths.iter().zip(answers) {
            self.count(truth, answer);
        }
        Ok(())
    }

    /// Adds the points of another of the same classes.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(
            (self.classes, self.ignored),
            (other.classes, other.ignored),
            "confusions of different classes"
        );
        for (mine, theirs) in self.points.iter_mut().zip(&other.points) {
            *mine += theirs;
        }
    }

    fn count(&mut self, truth: u16, answer: u16) {
        if Some(usize::from(truth)) != self.ignored {
            self.points[usize::from(truth) * self.classes + usize::from(answer)] += 1;
        }
    }

    fn check(&self, truths: &[u16], answers: &[u16]) -> Result<(), SegmentationError> {
        if truths.len() != answers.len() {
            return Err(SegmentationError::Length {
                truths: truths.len(),
                answers: answers.len(),
                distances: truths.len(),
            });
        }
        for (labels, side) in [(truths, "true"), (answers, "answered")] {
            let beyond = |label: &u16| usize::from(*label) >= self.classes;
            if let Some(point) = labels.iter().position(beyond) {
                return Err(SegmentationError::Label {
                    point,
                    side,
                    label: labels[point],
                    classes: self.classes,
                });
            }
        }
        Ok(())
    }

    /// Points of class `truth` that were labelled `answer`; 0 beyond the classes.
    pub fn points(&self, truth: usize, answer: usize) -> u64 {
        let row = self.points.chunks_exact(self.classes.max(1)).nth(truth);
        row.and_then(|row| row.get(answer)).copied().unwrap_or(0)
    }

    /// Points that counted.
    pub fn counted(&self) -> u64 {
        self.points.iter().sum()
    }

    /// Points of `class`.
    pub fn truths(&self, class: usize) -> u64 {
        (0..self.classes)
            .map(|answer| self.points(class, answer))
            .sum()
    }

    /// Points that were labelled `class`.
    pub fn answers(&self, class: usize) -> u64 {
        (0..self.classes)
            .map(|truth| self.points(truth, class))
            .sum()
    }

    /// Intersection over union of a class, 0 to 1; nothing for the ignored class, and for one that never occurs.
    pub fn iou(&self, class: usize) -> Option<f64> {
        let right = self.points(class, class);
        let union = self.truths(class) + self.answers(class) - right;
        (Some(class) != self.ignored && union > 0).then(|| right as f64 / union as f64)
    }

    /// Mean over every class that has one.
    pub fn mean_iou(&self) -> Option<f64> {
        mean((0..self.classes).filter_map(|class| self.iou(class)))
    }

    /// Mean over `classes`, where one without points or answers counts as 0.
    pub fn mean_iou_of(&self, classes: &[usize]) -> Option<f64> {
        mean(classes.iter().map(|&class| self.iou(class).unwrap_or(0.0)))
    }

    /// The classes with at least this share of the points that counted.
    pub fn classes_with_share(&self, least: f64) -> Vec<usize> {
        let counted = self.counted() as f64;
        let has_share = |&class: &usize| {
            let truths = self.truths(class);
            truths > 0 && truths as f64 >= least * counted
        };
        (0..self.classes).filter(has_share).collect()
    }

    /// Share of points with the right label.
    pub fn accuracy(&self) -> Option<f64> {
        let right: u64 = (0..self.classes)
            .map(|class| self.points(class, class))
            .sum();
        let counted = self.counted();
        (counted > 0).then(|| right as f64 / counted as f64)
    }

    /// The pairs that were confused most often, at most `limit`; equals by class.
    pub fn most_confused(&self, limit: usize) -> Vec<ConfusedPair> {
        let mut pairs = Vec::new();
        for truth in 0..self.classes {
            for answer in 0..self.classes {
                let points = self.points(truth, answer);
                if truth != answer && points > 0 {
                    pairs.push(ConfusedPair {
                        truth,
                        answer,
                        points,
                    });
                }
            }
        }
        pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.points), pair.truth, pair.answer));
        pairs.truncate(limit);
        pairs
    }
}

/// Confusions by distance from the sensor.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfusionByDistance {
    edges_m: Vec<f64>,
    /// One between each two neighbouring edges.
    parts: Vec<Confusion>,
}

impl ConfusionByDistance {
    /// Between each two neighbours of `edges_m`, which ascend; points at the lower edge belong to a part, at the upper not.
    pub fn new(
        classes: usize,
        ignored: Option<usize>,
        edges_m: &[f64],
    ) -> Result<Self, SegmentationError> {
        let ascends =
            |pair: &&[f64]| pair[0].partial_cmp(&pair[1]) == Some(std::cmp::Ordering::Less);
        if let Some(pair) = edges_m.windows(2).find(|pair| !ascends(pair)) {
            return Err(SegmentationError::Edges(pair[0], pair[1]));
        }
        Ok(Self {
            edges_m: edges_m.to_vec(),
            parts: vec![Confusion::new(classes, ignored); edges_m.len().saturating_sub(1)],
        })
    }

    /// Counts points by their distance; those outside of all edges count nowhere, and nothing is counted when there is an
    /// error.
    pub fn add(
        &mut self,
        truths: &[u16],
        answers: &[u16],
        distances_m: &[f64],
    ) -> Result<(), SegmentationError> {
        if distances_m.len() != truths.len() {
            return Err(SegmentationError::Length {
                truths: truths.len(),
                answers: answers.len(),
                distances: distances_m.len(),
            });
        }
        if let Some(point) = distances_m.iter().position(|d| d.is_nan()) {
            return Err(SegmentationError::Distance {
                point,
                distance_m: distances_m[point],
            });
        }
        if let Some(part) = self.parts.first() {
            part.check(truths, answers)?;
        }
        for ((&truth, &answer), distance_m) in truths.iter().zip(answers).zip(distances_m) {
            let edges_below = self.edges_m.partition_point(|edge| edge <= distance_m);
            let part = edges_below.checked_sub(1);
            if let Some(part) = part.and_then(|part| self.parts.get_mut(part)) {
                part.count(truth, answer);
            }
        }
        Ok(())
    }

    /// Each part with its edges in metres, from the nearest.
    pub fn parts(&self) -> impl Iterator<Item = ([f64; 2], &Confusion)> {
        let edges = self.edges_m.windows(2).map(|edges| [edges[0], edges[1]]);
        edges.zip(&self.parts)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), v| (sum + v, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_small_case_by_hand() {
        let mut confusion = Confusion::new(4, Some(0));
        let truths = [0, 1, 1, 1, 2, 2, 0];
        let answers = [1, 1, 2, 0, 2, 2, 2];
        confusion.add(&truths, &answers).unwrap();
        assert_eq!(confusion.counted(), 5);
        assert_eq!(confusion.iou(0), None);
        assert_eq!(confusion.iou(1), Some(1.0 / 3.0));
        assert_eq!(confusion.iou(2), Some(2.0 / 3.0));
        assert_eq!(confusion.iou(3), None);
        assert_eq!(confusion.mean_iou(), Some(0.5));
        assert_eq!(confusion.mean_iou_of(&[1, 2, 3]), Some(1.0 / 3.0));
        assert_eq!(confusion.classes_with_share(0.5), [1]);
        assert_eq!(confusion.accuracy(), Some(0.6));
        let pair = |truth, answer| ConfusedPair {
            truth,
            answer,
            points: 1,
        };
        assert_eq!(confusion.most_confused(9), [pair(1, 0), pair(1, 2)]);
        assert_eq!(confusion.most_confused(1), [pair(1, 0)]);
    }

    #[test]
    fn nothing_gives_no_figure() {
        let mut confusion = Confusion::new(3, None);
        assert_eq!((confusion.mean_iou(), confusion.accuracy()), (None, None));
        let error = confusion.add(&[0, 1], &[0]).unwrap_err().to_string();
        assert!(error.contains("2 true labels, 1 answers"), "{error}");
        let error = confusion.add(&[0, 3], &[0, 1]).unwrap_err().to_string();
        assert!(error.contains("point 1 has the true label 3"), "{error}");
        assert_eq!(confusion.counted(), 0);
        assert!(ConfusionByDistance::new(3, None, &[0.0, 10.0, 10.0]).is_err());
        assert!(ConfusionByDistance::new(3, None, &[0.0, f64::NAN]).is_err());
        let mut parts = ConfusionByDistance::new(3, None, &[0.0, 10.0]).unwrap();
        assert!(parts.add(&[0], &[0], &[f64::NAN]).is_err());
        assert!(parts.add(&[0], &[0], &[]).is_err());
    }

    proptest! {
        #[test]
        fn equals_counting_sets(
            points in prop::collection::vec((0_u16..5, 0_u16..5, 0.0..60.0_f64), 0..200),
        ) {
            let truths: Vec<u16> = points.iter().map(|p| p.0).collect();
            let answers: Vec<u16> = points.iter().map(|p| p.1).collect();
            let distances: Vec<f64> = points.iter().map(|p| p.2).collect();
            let edges = [0.0, 10.0, 25.0, 50.0];
            let mut by_distance = ConfusionByDistance::new(5, Some(0), &edges).unwrap();
            by_distance.add(&truths, &answers, &distances).unwrap();
            let mut merged = Confusion::new(5, Some(0));
            for ([from, to], part) in by_distance.parts() {
                merged.merge(part);
                for class in 1..5 {
                    let inside: Vec<_> = points
                        .iter()
                        .filter(|p| p.0 != 0 && p.2 >= from && p.2 < to)
                        .collect();
                    let both = inside.iter().filter(|p| p.0 == class && p.1 == class).count();
                    let either = inside.iter().filter(|p| p.0 == class || p.1 == class).count();
                    let slow = (either > 0).then(|| both as f64 / either as f64);
                    prop_assert_eq!(part.iou(usize::from(class)), slow);
                }
            }
            let near: Vec<usize> = (0..points.len()).filter(|&i| distances[i] < 50.0).collect();
            let mut whole = Confusion::new(5, Some(0));
            let pick = |labels: &[u16]| near.iter().map(|&i| labels[i]).collect::<Vec<_>>();
            whole.add(&pick(&truths), &pick(&answers)).unwrap();
            prop_assert_eq!(whole, merged);
        }
    }
}
