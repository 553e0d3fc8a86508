//! Labelled scans as tensors: crops to learn from, whole scans to be judged by.

use percept_data::points::{LidarFrame, Point};
use percept_data::random::permutation;
use percept_data::{Example, Prepare, Sample, SampleError, SampleKey};
use percept_graph::{Tensor, TensorError};
use percept_kernels::Cpu;

use super::super::class_weights;
use super::super::intake::{COUNTS, POINTS, PRIORITY, ScanIntake};
use super::{LABEL_COUNTS, ScanAugment};
use crate::intake::{Intake, Sizes};

/// The input of the loss: the class of each point, from 1 on; 0 has none.
pub(super) const LABELS: &str = "labels";
/// The input of the loss: what each point weighs.
pub(super) const WEIGHTS: &str = "weights";
/// Beside the inputs, to be judged by: the true class of each row of a scan.
pub(super) const TRUTH: &str = "truth";
/// Beside the inputs, to be judged by: how far each row is from the sensor, metres.
pub(super) const DISTANCES: &str = "distances";

/// What the draws are for.
mod purpose {
    pub(super) const CROP: u64 = 0;
    pub(super) const MOTION: u64 = 1;
    pub(super) const SHUFFLE: u64 = 2;
}

/// Makes examples of labelled scans.
pub(super) struct PrepareScans {
    intake: ScanIntake,
    classes: usize,
    /// None where answers are judged: then scans stay as they are.
    augment: Option<ScanAugment>,
}

impl PrepareScans {
    pub(super) fn training(intake: ScanIntake, classes: usize, augment: ScanAugment) -> Self {
        Self {
            augment: Some(augment),
            ..Self::evaluation(intake, classes)
        }
    }

    pub(super) fn evaluation(intake: ScanIntake, classes: usize) -> Self {
        Self {
            intake,
            classes,
            augment: None,
        }
    }

    /// The learned class of each point.
    fn labels(&self, sample: &Sample, frame: &LidarFrame) -> Result<Vec<i32>, SampleError> {
        let labels = frame.labels.as_ref();
        let labels = labels.ok_or_else(|| unusable(sample, "it has no labels"))?;
        if labels.len() != frame.points.len() {
            let (labels, points) = (labels.len(), frame.points.len());
            return Err(unusable(
                sample,
                format!("{labels} labels for {points} points"),
            ));
        }
        let learned = labels.iter().map(|label| i32::from(label.learned_class()));
        // What a network of fewer classes does not know counts as unlabelled.
        let known = |class: i32| {
            if class as usize <= self.classes {
                class
            } else {
                0
            }
        };
        Ok(learned.map(known).collect())
    }

    fn class_weights(&self, sample: &Sample) -> Result<Vec<f32>, SampleError> {
        let counts = sample.tensor(LABEL_COUNTS)?;
        let counts = counts.values::<i64>();
        let counts = counts.map_err(|error| unusable(sample, error))?;
        let counts: Vec<u64> = counts.iter().map(|&count| count.max(0) as u64).collect();
        match counts.len() == self.classes + 1 {
            true => Ok(class_weights(&counts)),
            false => Err(unusable(
                sample,
                format!(
                    "counts of {} labels, expected {}",
                    counts.len(),
                    self.classes + 1
                ),
            )),
        }
    }

    /// A crop of the thinned scan, moved and shuffled.
    fn crop(
        &self,
        augment: &ScanAugment,
        sample: &Sample,
        frame: &LidarFrame,
        key: &SampleKey,
    ) -> Result<Example, SampleError> {
        let (positions, intensity) = ScanIntake::rows(frame);
        let thinned = self.intake.thinned(&positions, &intensity);
        let thinned = thinned.map_err(|reason| unusable(sample, reason))?;
        if thinned.points.is_empty() {
            return Err(unusable(sample, "no point of it can be looked at"));
        }
        let rows = self.labels(sample, frame)?;
        let labels = commonest(
            &thinned.cell_of_row,
            &rows,
            thinned.points.len(),
            self.classes,
        );
        let values = thinned.points.iter().zip(&thinned.features);
        let point = |(&position, &intensity): (&[f32; 3], &f32)| Point {
            position,
            intensity,
            age_s: 0.0,
            ring: None,
        };
        let points: Vec<Point> = values.map(point).collect();
        let kept = augment.crop(&points, &labels, &mut key.draws(purpose::CROP));
        let mut points: Vec<Point> = kept.iter().map(|&row| points[row]).collect();
        augment.moved(&mut points, &mut key.draws(purpose::MOTION));
        let weights = self.class_weights(sample)?;
        let labels: Vec<i32> = kept.iter().map(|&row| labels[row]).collect();
        let weigh = |label: &i32| weights.get((*label - 1) as usize).copied().unwrap_or(0.0);
        let weights: Vec<f32> = labels.iter().map(weigh).collect();
        let mut shuffle = key.draws(purpose::SHUFFLE);
        let words: Vec<u64> = points.iter().map(|_| shuffle.word()).collect();
        let ranks = permutation(points.len(), |row| words[row as usize]);
        let priority: Vec<i32> = ranks.into_iter().map(|rank| rank as i32).collect();
        self.tensors(&points, priority, labels, weights)
            .map_err(|error| unusable(sample, error))
    }

    fn tensors(
        &self,
        points: &[Point],
        priority: Vec<i32>,
        labels: Vec<i32>,
        weights: Vec<f32>,
    ) -> Result<Example, TensorError> {
        let (count, channels) = (points.len(), self.intake.channels);
        let mut rows: Vec<f32> = Vec::with_capacity(count * channels);
        for point in points {
            rows.extend(
                point
                    .position
                    .iter()
                    .chain([&point.intensity])
                    .take(channels),
            );
        }
        Ok(Example::of_one([
            (POINTS, Tensor::from_values([count, channels], rows)?),
            (PRIORITY, Tensor::from_values([count], priority)?),
            (COUNTS, Tensor::from_values([1], vec![count as i32])?),
            (LABELS, Tensor::from_values([count], labels)?),
            (WEIGHTS, Tensor::from_values([count], weights)?),
        ]))
    }

    /// The whole scan as `run` takes it, and the truth about each of its rows.
    fn whole(
        &self,
        cpu: &Cpu,
        sample: &Sample,
        frame: &LidarFrame,
    ) -> Result<Example, SampleError> {
        let truth = self.labels(sample, frame)?;
        let distances = frame.points.iter().map(|point| point.range_m() as f32);
        let distances: Vec<f32> = distances.collect();
        let rows = truth.len();
        let mut example = self.intake.example(cpu, sample, &Sizes::new())?;
        let named = |error: TensorError| unusable(sample, error);
        let truth = Tensor::from_values([rows], truth).map_err(named)?;
        let distances = Tensor::from_values([rows], distances).map_err(named)?;
        let beside = [(TRUTH.to_owned(), truth), (DISTANCES.to_owned(), distances)];
        example.tensors.extend(beside);
        Ok(example)
    }
}

impl Prepare for PrepareScans {
    fn prepare(&self, cpu: &Cpu, sample: &Sample, key: &SampleKey) -> Result<Example, SampleError> {
        let frame = sample.frame(POINTS)?;
        match &self.augment {
            Some(augment) => self.crop(augment, sample, frame, key),
            None => self.whole(cpu, sample, frame),
        }
    }
}

fn unusable(sample: &Sample, reason: impl ToString) -> SampleError {
    SampleError::Unusable {
        sample: sample.name.clone(),
        reason: reason.to_string(),
    }
}

/// The commonest label of each cell's rows; of equally common ones the smallest.
fn commonest(cell_of_row: &[i32], labels: &[i32], cells: usize, classes: usize) -> Vec<i32> {
    let width = classes + 1;
    let mut counts = vec![0u32; cells * width];
    for (&cell, &label) in cell_of_row.iter().zip(labels) {
        if let Ok(cell) = usize::try_from(cell) {
            counts[cell * width + label as usize] += 1;
        }
    }
    let most = |counts: &[u32]| {
        (1..width).fold(
            0,
            |best, at| if counts[at] > counts[best] { at } else { best },
        )
    };
    counts
        .chunks_exact(width)
        .map(|counts| most(counts) as i32)
        .collect()
}

#[cfg(test)]
mod tests {
    use percept_data::Datum;
    use percept_data::points::{LEARNED_CLASS_IDS, LidarConvention, PointLabel};

    use super::*;

    const INTAKE: ScanIntake = ScanIntake {
        channels: 4,
        grid_m: 0.06,
        votes: 1,
        seed: 0,
    };

    fn scan(points: usize, labels: Option<usize>) -> Sample {
        let point = |at: usize| Point {
            position: [(at / 2) as f32, (at % 2) as f32 * 0.01, 0.0],
            intensity: 0.25,
            age_s: 0.0,
            ring: None,
        };
        let label = |at: usize| PointLabel {
            class: LEARNED_CLASS_IDS[at / 2 % 3],
            instance: 0,
        };
        let points = (0..points).map(point).collect();
        let frame = LidarFrame {
            labels: labels.map(|count| (0..count).map(label).collect()),
            ..LidarFrame::from_points(LidarConvention::Kitti, points)
        };
        let mut counts = vec![0i64; 20];
        counts[1..3].fill(50);
        let counts = Tensor::from_values([20], counts).unwrap();
        Sample::of("a scan", POINTS, Datum::Frame(Box::new(frame)))
            .with(LABEL_COUNTS, Datum::Tensor(counts))
    }

    fn prepared(prepare: &PrepareScans, sample: &Sample, epoch: u64) -> Result<Example, String> {
        let key = SampleKey {
            epoch,
            ..SampleKey::default()
        };
        let cpu = Cpu::new(1).unwrap();
        prepare
            .prepare(&cpu, sample, &key)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn crops_hold_means_of_cells_with_their_labels_and_weights() {
        let augment = ScanAugment {
            points: 20,
            ..ScanAugment::default()
        };
        let prepare = PrepareScans::training(INTAKE, 19, augment);
        let sample = scan(100, Some(100));
        let first = prepared(&prepare, &sample, 0).unwrap();
        assert_eq!(first.get(POINTS).unwrap().shape(), [20, 4]);
        let numbers = |name: &str| first.get(name).unwrap().values::<i32>().unwrap().to_vec();
        assert_eq!(numbers(COUNTS), [20]);
        let mut ranks = numbers(PRIORITY);
        ranks.sort_unstable();
        assert!(ranks.into_iter().eq(0..20));
        let weights = first.get(WEIGHTS).unwrap().values::<f32>().unwrap();
        for (label, weight) in numbers(LABELS).into_iter().zip(weights) {
            let expected = if label == 0 { 0.0 } else { 1.0 / 0.52 };
            assert!((weight - expected).abs() < 1e-6, "{label}: {weight}");
        }
        assert_eq!(first, prepared(&prepare, &sample, 0).unwrap());
        assert_ne!(first, prepared(&prepare, &sample, 1).unwrap());
    }

    #[test]
    fn without_changes_a_crop_has_the_points_that_a_run_has() {
        let augment = ScanAugment {
            points: 1000,
            flip: 0.0,
            turn_degrees: 0.0,
            scale: [1.0; 2],
            shift_m: 0.0,
            ..ScanAugment::default()
        };
        let sample = scan(100, Some(100));
        let crop = prepared(&PrepareScans::training(INTAKE, 19, augment), &sample, 0).unwrap();
        let whole = prepared(&PrepareScans::evaluation(INTAKE, 19), &sample, 0).unwrap();
        assert_eq!(crop.get(POINTS), whole.get(POINTS));
        assert_eq!(whole.get(TRUTH).unwrap().shape(), [100]);
        let distances = whole.get(DISTANCES).unwrap().values::<f32>().unwrap();
        assert_eq!(distances[80], 40.0);
    }

    #[test]
    fn the_commonest_label_of_a_cell_is_its_label() {
        let cells = [0, 0, 0, 1, 1, -1];
        assert_eq!(commonest(&cells, &[2, 1, 2, 2, 1, 1], 2, 2), [2, 1]);
    }

    #[test]
    fn scans_that_cannot_be_learned_from_are_told() {
        let prepare = PrepareScans::training(INTAKE, 19, ScanAugment::default());
        let error = |sample: &Sample| prepared(&prepare, sample, 0).unwrap_err();
        assert_eq!(error(&scan(4, None)), "a scan: it has no labels");
        assert_eq!(error(&scan(4, Some(3))), "a scan: 3 labels for 4 points");
        assert_eq!(
            error(&scan(0, Some(0))),
            "a scan: no point of it can be looked at"
        );
        let other = PrepareScans::training(INTAKE, 5, ScanAugment::default());
        let error = prepared(&other, &scan(4, Some(4)), 0).unwrap_err();
        assert_eq!(error, "a scan: counts of 20 labels, expected 6");
    }
}
