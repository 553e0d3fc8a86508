//! nuScenes' detection metric over the answers of a network, in the sensor's frame.
//!
//! Frames are judged one by one, so that it does not matter which frame of reference boxes are in: ranges are measured from the
//! sensor, and the attributes of truth follow from its speed, like those of predictions.

use percept_data::points::{ObjectClass, Pose};
use percept_metrics::detection::{
    ClassInSlice, DetectionFigures, DetectionSettings, ErrorKind, FramePredictions, FrameTruth,
    GlobalBox, MAX_BOXES, Prediction, evaluate,
};

use super::super::detect::{DETECTIONS, found_boxes};
use super::super::{BOX_VALUES, TRUE_BOX_COUNTS, TRUE_BOXES};
use super::sweeps::BOX_POINTS;
use crate::lesson::{
    Better, Figure, FigureTable, FigureValue, Goal, Judged, LessonError, Metric, tensor_of,
};

/// What was found in the sweeps so far, and what is there.
#[derive(Debug)]
pub(super) struct DetectionJudge {
    settings: DetectionSettings,
    truth: Vec<FrameTruth>,
    predictions: Vec<FramePredictions>,
}

impl DetectionJudge {
    /// Of a network that sees as far as this.
    pub(super) fn new(range_m: f64) -> Self {
        Self {
            settings: DetectionSettings::default().within_m(range_m),
            truth: Vec::new(),
            predictions: Vec::new(),
        }
    }

    /// The figures; none before there are boxes on both sides.
    fn scored(&self) -> Option<DetectionFigures> {
        evaluate(&self.truth, &self.predictions, &self.settings).ok()
    }
}

impl Metric for DetectionJudge {
    fn add(&mut self, batch: &Judged<'_>) -> Result<(), LessonError> {
        let samples = batch.samples.len();
        let found = found_boxes(batch.outputs.get(DETECTIONS)?, samples);
        let truth = true_boxes(batch)?;
        for (found, (sample, boxes)) in found.into_iter().zip(batch.samples.iter().zip(truth)) {
            let token = sample.to_string();
            let mut boxes_found: Vec<Prediction> = found
                .iter()
                .filter_map(|d| {
                    let class = *ObjectClass::ALL.get(d.class)?;
                    let velocity = Some(d.velocity.map(f64::from));
                    let (centre, size) = (d.center.map(f64::from), d.size.map(f64::from));
                    let yaw_rad = f64::from(d.yaw);
                    let here = &Pose::IDENTITY;
                    Some(Prediction {
                        found: GlobalBox::from_sensor(class, centre, size, yaw_rad, velocity, here),
                        score: f64::from(d.score),
                    })
                })
                .collect();
            boxes_found.sort_by(|a, b| b.score.total_cmp(&a.score));
            boxes_found.truncate(MAX_BOXES);
            self.truth.push(FrameTruth {
                token: token.clone(),
                ego: [0.0; 2],
                boxes,
                bicycle_racks: Vec::new(),
            });
            self.predictions.push(FramePredictions {
                token,
                boxes: boxes_found,
            });
        }
        Ok(())
    }

    fn goal(&self) -> Goal {
        Goal {
            figure: "map",
            better: Better::Higher,
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let scored = self.scored();
        let of = |read: fn(&DetectionFigures) -> f64| scored.as_ref().map_or(f64::NAN, read);
        let mut figures = vec![
            Figure::number("map", "mAP", of(|f| f.mean_average_precision)),
            Figure::number("nds", "NDS", of(|f| f.nds)),
        ];
        let named = [
            ("mate_m", "mATE (m)"),
            ("mase", "mASE"),
            ("maoe_rad", "mAOE (rad)"),
            ("mave_m_s", "mAVE (m/s)"),
            ("maae", "mAAE"),
        ];
        for (kind, (key, title)) in named.into_iter().enumerate() {
            let value = scored.as_ref().map_or(f64::NAN, |f| f.mean_errors[kind]);
            figures.push(Figure::number(key, title, value));
        }
        figures
    }

    fn tables(&self) -> Vec<FigureTable> {
        let Some(figures) = self.scored() else {
            return Vec::new();
        };
        vec![classes(&figures), slices(&figures)]
    }
}

/// The true boxes of every sample of a batch.
fn true_boxes(batch: &Judged<'_>) -> Result<Vec<Vec<GlobalBox>>, LessonError> {
    let counts = tensor_of(batch.examples, TRUE_BOX_COUNTS)?.values::<i32>()?;
    let rows = tensor_of(batch.examples, TRUE_BOXES)?.values::<f32>()?;
    let points = tensor_of(batch.examples, BOX_POINTS)?.values::<i32>()?;
    let mut rows = rows.as_chunks::<BOX_VALUES>().0.iter().zip(points);
    let boxes = counts.iter().map(|&count| {
        let own = rows.by_ref().take(count.max(0) as usize);
        own.filter_map(|(row, &points)| {
            let [x, y, z, length, width, height, yaw, vx, vy, class] = row.map(f64::from);
            let class = *ObjectClass::ALL.get(class as usize)?;
            let velocity = (!vx.is_nan()).then_some([vx, vy]);
            let (centre, size) = ([x, y, z], [length, width, height]);
            let here = &Pose::IDENTITY;
            Some(GlobalBox {
                points: Some(points.max(0) as u64),
                ..GlobalBox::from_sensor(class, centre, size, yaw, velocity, here)
            })
        })
        .collect()
    });
    Ok(boxes.collect())
}

fn classes(figures: &DetectionFigures) -> FigureTable {
    let columns = [
        ("class", "class"),
        ("truths", "there"),
        ("ap", "AP"),
        ("trans_err", "translation (m)"),
        ("scale_err", "scale"),
        ("orient_err", "orientation (rad)"),
        ("vel_err", "velocity (m/s)"),
        ("attr_err", "attribute"),
    ];
    let mut table = FigureTable::new("classes", columns);
    for class in &figures.classes {
        let mut row = vec![
            FigureValue::Text(class.class.name().to_owned()),
            FigureValue::Count(class.truths as u64),
            FigureValue::Number(class.average_precision),
        ];
        let errors = ErrorKind::ALL.iter().zip(class.errors);
        row.extend(errors.map(|(_, error)| FigureValue::Number(error.unwrap_or(f64::NAN))));
        table.rows.push(row);
    }
    table
}

fn slices(figures: &DetectionFigures) -> FigureTable {
    let columns = [
        ("slice", "of objects"),
        ("truths", "there"),
        ("found", "found within 2 m"),
        ("map", "mAP"),
    ];
    let mut table = FigureTable::new("slices", columns);
    for slice in &figures.slices {
        let sum = |count: fn(&ClassInSlice) -> usize| -> u64 {
            slice.classes.iter().map(|class| count(class) as u64).sum()
        };
        table.rows.push(vec![
            FigureValue::Text(slice.slice.name()),
            FigureValue::Count(sum(|class| class.truths)),
            FigureValue::Count(sum(|class| class.found)),
            FigureValue::Number(slice.mean_average_precision().unwrap_or(f64::NAN)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use percept_data::Example;
    use percept_graph::Tensor;

    use super::*;
    use crate::lesson::NamedOutputs;

    /// A car ahead and a pedestrian beside it, in each of two sweeps.
    const TRUTH: [[f32; BOX_VALUES]; 2] = [
        [10.0, 0.0, -1.0, 4.0, 2.0, 1.5, 0.1, 5.0, 0.5, 0.0],
        [8.0, 4.0, -1.0, 0.7, 0.7, 1.8, 0.0, 0.0, 0.0, 8.0],
    ];

    fn tensor(shape: &[usize], values: Vec<f32>) -> Tensor<'static> {
        Tensor::from_values(shape, values).unwrap()
    }

    fn judged(rows: Vec<f32>) -> DetectionJudge {
        let counts = |values: Vec<i32>| Tensor::from_values([values.len()], values).unwrap();
        let examples = Example {
            samples: 2,
            tensors: vec![
                (
                    TRUE_BOXES.to_owned(),
                    tensor(&[4, BOX_VALUES], [TRUTH, TRUTH].concat().concat()),
                ),
                (TRUE_BOX_COUNTS.to_owned(), counts(vec![2, 2])),
                (BOX_POINTS.to_owned(), counts(vec![9; 4])),
            ],
        };
        let detections = tensor(&[rows.len() / 12, 12], rows);
        let outputs = NamedOutputs::new([(DETECTIONS, detections.borrowed())]);
        let mut judge = DetectionJudge::new(25.6);
        let batch = Judged {
            outputs: &outputs,
            examples: &examples,
            samples: &[4, 7],
        };
        judge.add(&batch).unwrap();
        judge
    }

    #[test]
    fn boxes_that_are_right_are_worth_their_classes() {
        let mut rows = Vec::new();
        for sample in [0.0, 1.0] {
            for [x, y, z, length, width, height, yaw, vx, vy, class] in TRUTH {
                rows.extend([
                    sample, class, 0.9, x, y, z, length, width, height, yaw, vx, vy,
                ]);
            }
        }
        let judge = judged(rows);
        let figures = judge.figures();
        // Two of ten classes are there, and found.
        assert_eq!((figures[0].key, figures[1].key), ("map", "nds"));
        assert!(
            (figures[0].value.as_f64() - 0.2).abs() < 1e-9,
            "{figures:?}"
        );
        let tables = judge.tables();
        assert_eq!(tables[0].rows.len(), 10);
        assert_eq!(tables[0].rows[0][1], FigureValue::Count(2));
        assert!(!tables[1].rows.is_empty());
    }

    #[test]
    fn without_answers_there_is_no_figure() {
        let judge = judged(Vec::new());
        assert!(judge.figures()[0].value.as_f64().is_nan());
        assert!(judge.tables().is_empty());
    }
}
