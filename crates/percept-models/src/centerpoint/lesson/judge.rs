//! nuScenes' detection metric over the answers of a network.
//!
//! Keyframes of a nuScenes folder are judged as the public code does: truth from the tables, boxes in the global frame, ranges from
//! the vehicle. Frames from elsewhere are judged one by one in the sensor's frame, so that it does not matter which frame of
//! reference boxes are in: ranges are measured from the sensor, and the attributes of truth follow from its speed, like those of
//! predictions.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use percept_data::Samples;
use percept_data::points::nuscenes::NuScenes;
use percept_data::points::{ObjectClass, PointsError, Pose};
use percept_metrics::detection::results::{Results, Sources};
use percept_metrics::detection::{
    ClassFigures, ClassInSlice, DetectionError, DetectionFigures, DetectionSettings, ErrorKind,
    FramePredictions, FrameTruth, GlobalBox, MAX_BOXES, Prediction, RECALLS, THRESHOLDS_M,
    evaluate,
};

use super::super::detect::{DETECTIONS, found_boxes};
use super::super::{BOX_VALUES, TRUE_BOX_COUNTS, TRUE_BOXES};
use super::sweeps::BOX_POINTS;
use crate::answer::FoundBox;
use crate::lesson::{
    Better, Curves, Figure, FigureTable, FigureValue, Goal, Judged, LessonError, Metric, tensor_of,
};

/// What was found in the sweeps so far, and what is there.
pub(super) struct DetectionJudge {
    /// How far the network sees.
    range_m: f64,
    /// What is judged, where its keyframes tell more than the examples.
    samples: Option<Arc<dyn Samples>>,
    truth: Vec<FrameTruth>,
    predictions: Vec<FramePredictions>,
    /// With the ranges cut to the network's, once somebody asked.
    scored: OnceLock<Result<DetectionFigures, DetectionError>>,
}

impl DetectionJudge {
    /// Of a network that sees as far as this.
    pub(super) fn new(range_m: f32) -> Self {
        Self {
            // As somebody wrote it: 25.6 and not what f32 makes of it.
            range_m: (1e6 * f64::from(range_m)).round() / 1e6,
            samples: None,
            truth: Vec::new(),
            predictions: Vec::new(),
            scored: OnceLock::new(),
        }
    }

    /// The same, over these samples.
    pub(super) fn over(self, samples: Arc<dyn Samples>) -> Self {
        Self {
            samples: Some(samples),
            ..self
        }
    }

    /// With the answers of a file in nuScenes' layout instead of a network's.
    pub(super) fn of_file(
        range_m: f32,
        samples: &dyn Samples,
        path: &Path,
    ) -> Result<Self, LessonError> {
        let results = Results::read(path);
        let results = results.map_err(|error| LessonError::Answers(error.to_string()))?;
        let mut judge = Self {
            predictions: results.frames,
            ..Self::new(range_m)
        };
        for index in 0..samples.len() {
            let (folder, frame) = samples.keyframe(index).ok_or_else(|| {
                let reason = "answers in a file are judged by a nuScenes folder";
                LessonError::Answers(reason.to_owned())
            })?;
            let truth = FrameTruth::from_nuscenes(folder, frame).map_err(unreadable)?;
            judge.truth.push(truth);
        }
        match judge.scored() {
            Ok(_) => Ok(judge),
            Err(error) => {
                let what = format!("{}: {error}", path.display());
                Err(LessonError::Answers(what))
            }
        }
    }

    fn settings(&self) -> DetectionSettings {
        DetectionSettings::default().within_m(self.range_m)
    }

    fn scored(&self) -> &Result<DetectionFigures, DetectionError> {
        let score = || evaluate(&self.truth, &self.predictions, &self.settings());
        self.scored.get_or_init(score)
    }

    /// The figures; none before there are boxes on both sides.
    fn figures(&self) -> Option<&DetectionFigures> {
        self.scored().as_ref().ok()
    }
}

fn unreadable(error: PointsError) -> LessonError {
    LessonError::Answers(error.to_string())
}

/// A keyframe as the public code sees it, and where its sensor was.
fn keyframe(folder: &NuScenes, frame: usize) -> Result<(FrameTruth, Pose), PointsError> {
    let truth = FrameTruth::from_nuscenes(folder, frame)?;
    Ok((truth, folder.lidar_pose(frame)?))
}

/// What a network found in one sweep, the surest first; what is no number is no box.
fn predictions(found: &[FoundBox], sensor_to_global: &Pose) -> Vec<Prediction> {
    let prediction = |d: &FoundBox| {
        let class = *ObjectClass::ALL.get(d.class)?;
        let values = [&d.center[..], &d.size, &d.velocity, &[d.yaw, d.score]].concat();
        let is_box = values.iter().all(|value| value.is_finite());
        let (centre, size) = (d.center.map(f64::from), d.size.map(f64::from));
        let (yaw_rad, velocity) = (f64::from(d.yaw), Some(d.velocity.map(f64::from)));
        is_box.then(|| Prediction {
            found: GlobalBox::from_sensor(class, centre, size, yaw_rad, velocity, sensor_to_global),
            score: f64::from(d.score),
        })
    };
    let mut boxes: Vec<Prediction> = found.iter().filter_map(prediction).collect();
    boxes.sort_by(|a, b| b.score.total_cmp(&a.score));
    boxes.truncate(MAX_BOXES);
    boxes
}

impl Metric for DetectionJudge {
    fn add(&mut self, batch: &Judged<'_>) -> Result<(), LessonError> {
        let found = found_boxes(batch.outputs.get(DETECTIONS)?, batch.samples.len());
        let boxes = true_boxes(batch)?;
        let mut frames = Vec::with_capacity(batch.samples.len());
        for (found, (&sample, boxes)) in found.iter().zip(batch.samples.iter().zip(boxes)) {
            let samples = self.samples.as_ref();
            let (truth, pose) = match samples.and_then(|samples| samples.keyframe(sample)) {
                Some((folder, frame)) => keyframe(folder, frame).map_err(unreadable)?,
                None => {
                    let truth = FrameTruth {
                        token: sample.to_string(),
                        ego: [0.0; 2],
                        boxes,
                        bicycle_racks: Vec::new(),
                    };
                    (truth, Pose::IDENTITY)
                }
            };
            let answers = FramePredictions {
                token: truth.token.clone(),
                boxes: predictions(found, &pose),
            };
            frames.push((truth, answers));
        }
        let (truth, predictions): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
        self.truth.extend(truth);
        self.predictions.extend(predictions);
        self.scored = OnceLock::new();
        Ok(())
    }

    fn goal(&self) -> Goal {
        Goal {
            figure: "map",
            better: Better::Higher,
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let scored = DetectionJudge::figures(self);
        let of = |read: fn(&DetectionFigures) -> f64| scored.map_or(f64::NAN, read);
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
            let value = scored.map_or(f64::NAN, |f| f.mean_errors[kind]);
            figures.push(Figure::number(key, title, value));
        }
        figures
    }

    fn tables(&self) -> Vec<FigureTable> {
        let Some(figures) = DetectionJudge::figures(self) else {
            return Vec::new();
        };
        let official = DetectionSettings::default();
        let mut tables = vec![classes(figures), slices(figures)];
        if self.settings().ranges_m != official.ranges_m
            && let Ok(beyond) = evaluate(&self.truth, &self.predictions, &official)
        {
            let cut = format!("cut to {} m", self.range_m);
            tables.push(ranges([(&cut, figures), ("official", &beyond)]));
        }
        tables
    }

    fn curves(&self) -> Vec<Curves> {
        let figures = DetectionJudge::figures(self).into_iter();
        let classes = figures.flat_map(|figures| &figures.classes);
        let panel = |class: &ClassFigures| {
            let lines = THRESHOLDS_M.iter().zip(&class.curves);
            let lines = lines.map(|(threshold, curve)| {
                let points = (0..RECALLS).zip(&curve.precision).take(curve.reached() + 1);
                let points = points.map(|(i, &precision)| [i as f64 / 100.0, precision]);
                (format!("{threshold} m"), points.collect())
            });
            Curves {
                title: format!(
                    "{}: AP {:.3}, {} there",
                    class.class.name(),
                    class.average_precision,
                    class.truths
                ),
                x: "recall",
                y: "precision",
                lines: lines.collect(),
            }
        };
        classes.map(panel).collect()
    }

    fn fault(&self) -> Option<String> {
        match self.scored() {
            // A network that finds nothing has figures: none.
            Ok(_) | Err(DetectionError::NoBoxes { side: "predicted" }) => None,
            Err(error) => Some(error.to_string()),
        }
    }

    fn save(&self, path: &Path) -> Result<(), LessonError> {
        let samples = self.samples.as_deref();
        if samples.is_none_or(|samples| samples.is_empty() || samples.keyframe(0).is_none()) {
            let reason = "only answers to keyframes of a nuScenes folder can be saved";
            return Err(LessonError::Answers(reason.to_owned()));
        }
        let results = Results {
            sources: Sources {
                use_lidar: true,
                ..Sources::default()
            },
            frames: self.predictions.clone(),
        };
        let written = results.write(path);
        written.map_err(|error| LessonError::Answers(error.to_string()))
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

/// The same answers with the network's ranges and with the official ones.
fn ranges(rows: [(&str, &DetectionFigures); 2]) -> FigureTable {
    let car = ObjectClass::Car.id();
    let columns = [
        ("ranges", "ranges"),
        ("truths", "there"),
        ("map", "mAP"),
        ("nds", "NDS"),
        ("car_ap", "car AP"),
    ];
    let mut table = FigureTable::new("ranges", columns);
    for (name, figures) in rows {
        let truths: usize = figures.classes.iter().map(|class| class.truths).sum();
        table.rows.push(vec![
            FigureValue::Text(name.to_owned()),
            FigureValue::Count(truths as u64),
            FigureValue::Number(figures.mean_average_precision),
            FigureValue::Number(figures.nds),
            FigureValue::Number(figures.classes[car].average_precision),
        ]);
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
        let figures = Metric::figures(&judge);
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
        assert_eq!(tables[2].key, "ranges");
        assert_eq!(tables[2].rows.len(), 2);
        let curves = judge.curves();
        assert_eq!(curves.len(), 10);
        assert_eq!(curves[0].lines.len(), 4);
        assert_eq!(curves[0].lines[0].1.last(), Some(&[1.0, 1.0]));
        assert!(judge.fault().is_none());
    }

    /// A box that is no number is left out, and does not spoil the others.
    #[test]
    fn boxes_that_are_no_numbers_are_no_boxes() {
        let row = [0.0, 0.0, 0.9, 10.0, 0.0, -1.0, 4.0, 2.0, 1.5, 0.1, 5.0, 0.5];
        let mut broken = row;
        broken[6] = f32::INFINITY;
        let judge = judged([row, broken].concat());
        assert_eq!(judge.predictions[0].boxes.len(), 1);
        assert!(Metric::figures(&judge)[0].value.as_f64() > 0.0);
        let nowhere = judge
            .save(Path::new("results.json"))
            .unwrap_err()
            .to_string();
        assert!(nowhere.contains("nuScenes folder"), "{nowhere}");
    }

    #[test]
    fn without_answers_there_is_no_figure() {
        let judge = judged(Vec::new());
        assert!(Metric::figures(&judge)[0].value.as_f64().is_nan());
        assert!(judge.fault().is_none() && judge.curves().is_empty());
        assert!(judge.tables().is_empty());
    }
}
