//! Intersection over union of every row of the scans, by class and by distance.

use percept_metrics::segmentation::{Confusion, ConfusionByDistance};

use super::super::head::labels_of_points;
use super::super::intake::{ROWS, ScanIntake};
use super::LOGITS;
use super::scans::{DISTANCES, TRUTH};
use crate::lesson::{
    Better, Figure, FigureTable, FigureValue, Goal, Judged, LessonError, Metric, tensor_of,
};

/// Edges of the distances that are told apart, metres.
const EDGES_M: [f64; 4] = [0.0, 10.0, 25.0, 50.0];
/// Classes with a smaller share of all points stay out of the second mean: a few points decide their IoU.
const COMMON_SHARE: f64 = 0.001;
/// Pairs of classes that are told.
const CONFUSED_PAIRS: usize = 10;

/// The points of all scans so far, by truth and answer.
#[derive(Debug)]
pub(super) struct SegmentationJudge {
    intake: ScanIntake,
    /// The classes, what is left out first.
    names: Vec<String>,
    whole: Confusion,
    by_distance: ConfusionByDistance,
}

impl SegmentationJudge {
    pub(super) fn new(intake: ScanIntake, names: Vec<String>) -> Self {
        let (classes, ignored) = (names.len(), Some(0));
        Self {
            intake,
            names,
            whole: Confusion::new(classes, ignored),
            by_distance: ConfusionByDistance::new(classes, ignored, &EDGES_M)
                .expect("the edges ascend"),
        }
    }

    fn name(&self, class: usize) -> FigureValue {
        FigureValue::Text(self.names.get(class).cloned().unwrap_or_default())
    }
}

impl Metric for SegmentationJudge {
    fn add(&mut self, batch: &Judged<'_>) -> Result<(), LessonError> {
        let logits = batch.outputs.get(LOGITS)?;
        let mismatch = |error: String| LessonError::Mismatch(error);
        let scans = labels_of_points(&self.intake, logits, batch.examples);
        let scans = scans.map_err(|error| mismatch(error.to_string()))?;
        let truth = tensor_of(batch.examples, TRUTH)?.values::<i32>()?;
        let distances = tensor_of(batch.examples, DISTANCES)?.values::<f32>()?;
        let rows = tensor_of(batch.examples, ROWS)?.values::<i32>()?;
        let answers: Vec<u16> = scans.into_iter().flat_map(|(classes, _)| classes).collect();
        let counted: usize = rows.iter().map(|count| (*count).max(0) as usize).sum();
        if counted != truth.len() || answers.len() != truth.len() {
            return Err(mismatch(format!(
                "{} answers for {} labels",
                answers.len(),
                truth.len()
            )));
        }
        let truth: Vec<u16> = truth.iter().map(|class| *class as u16).collect();
        let distances: Vec<f64> = distances.iter().map(|&far| f64::from(far)).collect();
        let refused =
            |error: percept_metrics::segmentation::SegmentationError| mismatch(error.to_string());
        self.by_distance
            .add(&truth, &answers, &distances)
            .map_err(refused)?;
        self.whole.add(&truth, &answers).map_err(refused)
    }

    fn goal(&self) -> Goal {
        Goal {
            figure: "miou",
            better: Better::Higher,
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let share = |value: Option<f64>| value.unwrap_or(f64::NAN);
        let common = self.whole.classes_with_share(COMMON_SHARE);
        vec![
            Figure::share("miou", "mIoU", share(mean_of_present(&self.whole))),
            Figure::share(
                "miou_common",
                format!(
                    "mIoU of the {} classes with 0.1 % of the points",
                    common.len()
                ),
                share(self.whole.mean_iou_of(&common)),
            ),
            Figure::share("accuracy", "accuracy", share(self.whole.accuracy())),
        ]
    }

    fn tables(&self) -> Vec<FigureTable> {
        match self.whole.counted() {
            0 => Vec::new(),
            _ => vec![self.classes(), self.distances(), self.confused()],
        }
    }
}

/// Classes that are not in the truth do not enter the mean.
fn mean_of_present(confusion: &Confusion) -> Option<f64> {
    confusion.mean_iou_of(&confusion.classes_with_share(0.0))
}

impl SegmentationJudge {
    fn classes(&self) -> FigureTable {
        let columns = [
            ("class", "class"),
            ("points", "points"),
            ("share", "share"),
            ("iou", "IoU"),
            ("iou_0_10_m", "0-10 m"),
            ("iou_10_25_m", "10-25 m"),
            ("iou_25_50_m", "25-50 m"),
        ];
        let mut table = FigureTable::new("classes", columns);
        let counted = self.whole.counted() as f64;
        for class in 1..self.names.len() {
            let iou = |confusion: &Confusion| {
                let present = confusion.truths(class) > 0;
                let iou = confusion.iou(class).filter(|_| present);
                FigureValue::Share(iou.unwrap_or(f64::NAN))
            };
            let points = self.whole.truths(class);
            let mut row = vec![
                self.name(class),
                FigureValue::Count(points),
                FigureValue::Share(points as f64 / counted),
                iou(&self.whole),
            ];
            row.extend(self.by_distance.parts().map(|(_, part)| iou(part)));
            table.rows.push(row);
        }
        table
    }

    fn distances(&self) -> FigureTable {
        let columns = [
            ("distance", "distance"),
            ("points", "points"),
            ("miou", "mIoU"),
            ("accuracy", "accuracy"),
        ];
        let mut table = FigureTable::new("distances", columns);
        for ([from, to], part) in self.by_distance.parts() {
            table.rows.push(vec![
                FigureValue::Text(format!("{from}-{to} m")),
                FigureValue::Count(part.counted()),
                FigureValue::Share(mean_of_present(part).unwrap_or(f64::NAN)),
                FigureValue::Share(part.accuracy().unwrap_or(f64::NAN)),
            ]);
        }
        table
    }

    fn confused(&self) -> FigureTable {
        let columns = [
            ("class", "class"),
            ("taken_for", "taken for"),
            ("points", "points"),
            ("share", "of the class"),
        ];
        let mut table = FigureTable::new("confused", columns);
        for pair in self.whole.most_confused(CONFUSED_PAIRS) {
            let share = pair.points as f64 / self.whole.truths(pair.truth) as f64;
            table.rows.push(vec![
                self.name(pair.truth),
                self.name(pair.answer),
                FigureValue::Count(pair.points),
                FigureValue::Share(share),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use percept_data::Example;
    use percept_graph::Tensor;

    use super::super::super::intake::{COUNTS, NEAREST};
    use super::*;
    use crate::lesson::NamedOutputs;

    /// Two scans: of four rows seen as three points, and of one row.
    fn judged(truth: Vec<i32>) -> Result<SegmentationJudge, LessonError> {
        let numbers = |values: Vec<i32>| Tensor::from_values([values.len()], values).unwrap();
        let rows = truth.len();
        let distances = [5.0f32, 15.0, 15.0, 60.0, 30.0];
        let examples = Example {
            samples: 2,
            tensors: vec![
                (COUNTS.to_owned(), numbers(vec![3, 1])),
                (ROWS.to_owned(), numbers(vec![4, 1])),
                (NEAREST.to_owned(), numbers(vec![0, 1, 1, 2, 0])),
                (TRUTH.to_owned(), numbers(truth)),
                (
                    DISTANCES.to_owned(),
                    Tensor::from_values([rows], distances[..rows].to_vec()).unwrap(),
                ),
            ],
        };
        // Answers: road, car, car, road.
        let logits = vec![1.0f32, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0];
        let logits = Tensor::from_values([4, 2], logits).unwrap();
        let outputs = NamedOutputs::new([(LOGITS, logits.borrowed())]);
        let intake = ScanIntake {
            channels: 3,
            grid_m: 0.06,
            votes: 1,
            seed: 0,
        };
        let names = ["unlabeled", "road", "car"].map(str::to_owned).to_vec();
        let mut judge = SegmentationJudge::new(intake, names);
        judge.add(&Judged {
            outputs: &outputs,
            examples: &examples,
            samples: &[0, 1],
        })?;
        Ok(judge)
    }

    #[test]
    fn rows_are_judged_by_class_and_distance() {
        let judge = judged(vec![1, 2, 1, 0, 2]).unwrap();
        // Road: 1 right of 3 in its union; car: 1 right of 3.
        let figures = judge.figures();
        for (figure, expected) in figures.iter().zip([1.0 / 3.0, 1.0 / 3.0, 0.5]) {
            let value = figure.value.as_f64();
            assert!((value - expected).abs() < 1e-12, "{figure:?}");
        }
        let [classes, distances, confused] = &judge.tables()[..] else {
            panic!("three tables")
        };
        assert_eq!(classes.rows.len(), 2);
        assert_eq!(classes.rows[0][1], FigureValue::Count(2));
        let points: Vec<&FigureValue> = distances.rows.iter().map(|row| &row[1]).collect();
        assert_eq!(
            points,
            [1, 2, 1].map(FigureValue::Count).iter().collect::<Vec<_>>()
        );
        assert_eq!(confused.rows.len(), 2);
    }

    #[test]
    fn other_lengths_are_refused_and_nothing_gives_no_figure() {
        let error = judged(vec![1, 2, 1]).unwrap_err().to_string();
        assert_eq!(error, "5 answers for 3 labels");
        let judge = judged(vec![0; 5]).unwrap();
        assert!(judge.figures()[0].value.as_f64().is_nan());
        assert!(judge.tables().is_empty());
    }
}
