//! From logits of the points that the network looked at to a class for every point of the scans.

use std::sync::Arc;

use percept_data::Example;
use percept_data::points::{LEARNED_CLASS_IDS, LEARNED_CLASS_NAMES};
use percept_graph::Tensor;

use super::intake::{COUNTS, NEAREST, ROWS, ScanIntake};
use crate::answer::{Answer, AnswerError, AnswerKind, Head, PointLabels, Ran};

/// Reads `logits` [P, classes]: of several clouds of one scan, it takes the mean of their probabilities.
#[derive(Clone, Copy, Debug)]
pub struct PointHead {
    /// How the scans became clouds.
    pub intake: ScanIntake,
    /// Classes of the network.
    pub classes: usize,
}

impl Head for PointHead {
    fn kind(&self) -> AnswerKind {
        AnswerKind::PointLabels
    }

    fn point_classes(&self) -> Option<usize> {
        Some(self.classes)
    }

    fn read(&self, ran: &Ran<'_>) -> Result<Vec<Answer>, AnswerError> {
        let scans = labels_of_points(&self.intake, ran.output("logits")?, ran.inputs)?;
        let nothing = LEARNED_CLASS_NAMES[0].to_owned();
        let names: Arc<[String]> = std::iter::once(nothing)
            .chain(ran.classes.iter().cloned())
            .collect();
        // Files have numbers of their own for the public classes, and for no others.
        let public = names.iter().map(String::as_str).eq(LEARNED_CLASS_NAMES);
        let raw_ids: Arc<[u16]> = if public {
            LEARNED_CLASS_IDS.into()
        } else {
            [].into()
        };
        let answer = |(classes, confidence)| {
            Answer::PointLabels(PointLabels {
                classes,
                confidence,
                names: Arc::clone(&names),
                raw_ids: Arc::clone(&raw_ids),
                colours: [].into(),
            })
        };
        Ok(scans.into_iter().map(answer).collect())
    }
}

/// The class of each point of a scan, counted from 1, and how probable it is; 0 where the network could not look.
pub(super) type ScanLabels = (Vec<u16>, Vec<f32>);

/// The labels of each scan.
pub(super) fn labels_of_points(
    intake: &ScanIntake,
    logits: &Tensor<'_>,
    inputs: &Example,
) -> Result<Vec<ScanLabels>, AnswerError> {
    let other_rows = || AnswerError::OtherRows {
        name: "logits".to_owned(),
        shape: logits.shape().to_vec(),
        samples: inputs.samples,
    };
    let (&[_, classes], values) = logits.read::<f32>()? else {
        return Err(other_rows());
    };
    let input = |name: &str| match inputs.get(name) {
        Some(tensor) => Ok(tensor.values::<i32>()?.to_vec()),
        None => Ok::<Vec<i32>, AnswerError>(Vec::new()),
    };
    let (counts, rows, nearest) = (input(COUNTS)?, input(ROWS)?, input(NEAREST)?);
    let (mut point, mut row) = (0, 0);
    let mut scans = Vec::new();
    for (scan, clouds) in counts.chunks(intake.votes).enumerate() {
        let seen = clouds.first().map_or(0, |&count| count as usize);
        let end = point + seen * clouds.len();
        let own = values.get(point * classes..end * classes);
        let (labels, confidence) = likeliest(own.ok_or_else(other_rows)?, seen, classes);
        // Tensors that no scan was thinned to are clouds as they are.
        let who: Vec<i32> = match rows.get(scan) {
            Some(&count) => nearest
                .iter()
                .skip(row)
                .take(count as usize)
                .copied()
                .collect(),
            None => (0..seen as i32).collect(),
        };
        (row, point) = (row + who.len(), end);
        let at = |who: &i32| usize::try_from(*who).ok().filter(|&at| at < seen);
        let own = who
            .iter()
            .map(|who| at(who).map_or((0, 0.0), |at| (labels[at], confidence[at])));
        scans.push(own.unzip());
    }
    Ok(scans)
}

/// The label and its probability for each of `points` points, whose logits come once for each vote.
fn likeliest(logits: &[f32], points: usize, classes: usize) -> ScanLabels {
    let votes = logits.len() / (points * classes).max(1);
    let mut sums = vec![0.0f32; points * classes];
    for cloud in logits.chunks_exact((points * classes).max(1)) {
        for (sums, row) in sums
            .chunks_exact_mut(classes)
            .zip(cloud.chunks_exact(classes))
        {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f32> = row.iter().map(|&logit| libm::expf(logit - max)).collect();
            let total: f32 = weights.iter().sum();
            sums.iter_mut()
                .zip(weights)
                .for_each(|(sum, weight)| *sum += weight / total);
        }
    }
    let best = |row: &[f32]| {
        let better = |best: (usize, f32), (class, &sum): (usize, &f32)| {
            if sum > best.1 { (class, sum) } else { best }
        };
        let (class, sum) = row.iter().enumerate().fold((0, f32::NEG_INFINITY), better);
        ((class + 1) as u16, sum / votes.max(1) as f32)
    };
    sums.chunks_exact(classes).map(best).unzip()
}

#[cfg(test)]
mod tests {
    use percept_data::Sample;

    use super::*;

    #[test]
    fn votes_are_averaged_and_rows_ask_their_points() {
        let ln = |values: [f32; 2]| values.map(f32::ln);
        // Two votes of two points, then two of one point.
        let votes = [
            [0.9, 0.1],
            [0.4, 0.6],
            [0.2, 0.8],
            [0.3, 0.7],
            [0.5, 0.5],
            [0.5, 0.5],
        ];
        let logits: Vec<f32> = votes.into_iter().flat_map(ln).collect();
        let logits = Tensor::from_values([6, 2], logits).unwrap();
        let numbers = |values: Vec<i32>| Tensor::from_values([values.len()], values).unwrap();
        let inputs = Example {
            samples: 2,
            tensors: vec![
                (COUNTS.to_owned(), numbers(vec![2, 2, 1, 1])),
                (ROWS.to_owned(), numbers(vec![3, 2])),
                (NEAREST.to_owned(), numbers(vec![1, -1, 0, 0, 0])),
            ],
        };
        let intake = ScanIntake {
            channels: 3,
            grid_m: 0.06,
            votes: 2,
            seed: 0,
        };
        let classes: Arc<[String]> = ["road".to_owned(), "car".to_owned()].into();
        let samples = ["a", "b"].map(|name| Sample {
            name: name.to_owned(),
            parts: Vec::new(),
        });
        let ran = Ran {
            outputs: &[("logits", logits)],
            inputs: &inputs,
            samples: &samples,
            classes: &classes,
        };
        let answers = PointHead { intake, classes: 2 }.read(&ran).unwrap();
        let labels: Vec<&PointLabels> = answers
            .iter()
            .map(|answer| match answer {
                Answer::PointLabels(labels) => labels,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            (labels[0].classes.as_slice(), labels[1].classes.as_slice()),
            (&[2u16, 0, 1][..], &[1u16, 1][..])
        );
        for (got, expected) in labels[0].confidence.iter().zip([0.65, 0.0, 0.55]) {
            assert!((got - expected).abs() < 1e-6, "{got} {expected}");
        }
    }
}
