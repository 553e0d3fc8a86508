//! What was found, as the public evaluation scores it, beside chance and beside what the descriptors alone would find.

use percept_metrics::matching::{balanced_accuracy, calibrated_threshold};

use super::prepare::{SCORES, VISIBLE};
use super::{DESCRIPTORS, SIMILARITY, VISIBLE_LOGITS};
use crate::answer::Match;
use crate::lesson::{Better, Figure, Goal, Judged, LessonError, Metric, tensor_of};
use crate::omama::POOLS;
use crate::omama::intake::{CANDIDATES, are_offered};

/// A candidate that overlaps the truth this much is right.
const RIGHT_IOU: f64 = 0.5;
/// How far down the list the thing may be for the second figure.
const TOP: usize = 5;

/// Pairs so far.
#[derive(Debug)]
pub(super) struct MatchJudge {
    /// A best candidate that the network is less sure of is none.
    threshold: f64,
    found: Vec<Found>,
}

/// What was found in one pair.
#[derive(Clone, Copy, Debug)]
struct Found {
    visible: bool,
    confidence: f64,
    /// IoU, contour F and location of the best candidate.
    score: [f64; 3],
    in_top: bool,
    /// Whether the descriptors alone are right.
    by_cosine: bool,
    /// The share of candidates that are right.
    chance: f64,
    /// What the head for visibility says, where it is called.
    told: Option<bool>,
}

/// The largest of some numbers; the first of equal ones, and never what is no number.
pub(super) fn best_of(values: &[f32]) -> Option<usize> {
    let numbers = (0..values.len()).filter(|&place| !values[place].is_nan());
    numbers.reduce(|best, place| match values[place] > values[best] {
        true => place,
        false => best,
    })
}

impl MatchJudge {
    pub(super) fn new(threshold: f64) -> Self {
        Self {
            threshold,
            found: Vec::new(),
        }
    }

    fn confidences(&self) -> Vec<(bool, f64)> {
        self.found
            .iter()
            .map(|f| (f.visible, f.confidence))
            .collect()
    }
}

/// One pair of a batch.
struct Row<'a> {
    similarity: &'a [f32],
    scores: &'a [[f32; 3]],
    visible: bool,
    /// The thing's descriptor, and those of the candidates.
    wanted: &'a [f32],
    offered: &'a [f32],
    logits: Option<[f32; 2]>,
}

impl Row<'_> {
    fn judge(&self) -> Option<Found> {
        let best = best_of(self.similarity)?;
        let is_right = |place: usize| f64::from(self.scores[place][0]) >= RIGHT_IOU;
        let mut order: Vec<usize> = (0..self.similarity.len()).collect();
        order.sort_by(|&a, &b| self.similarity[b].total_cmp(&self.similarity[a]));
        let cosines: Vec<f32> = self
            .offered
            .chunks_exact(self.wanted.len())
            .map(|offered| cosine(self.wanted, offered))
            .collect();
        let right = (0..self.scores.len())
            .filter(|&place| is_right(place))
            .count();
        let similarity = self.similarity[best];
        let found = Match {
            candidate: best,
            similarity,
        };
        Some(Found {
            visible: self.visible,
            confidence: f64::from(found.confidence()),
            score: self.scores[best].map(f64::from),
            in_top: order.iter().take(TOP).any(|&place| is_right(place)),
            by_cosine: best_of(&cosines).is_some_and(is_right),
            chance: right as f64 / self.scores.len() as f64,
            told: self.logits.map(|[no, yes]| yes > no),
        })
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    (dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(1e-12)) as f32
}

impl Metric for MatchJudge {
    fn add(&mut self, batch: &Judged<'_>) -> Result<(), LessonError> {
        let mismatch =
            || LessonError::Mismatch("candidates and scores differ in number".to_owned());
        let samples = batch.samples.len();
        let mut similarity = batch.outputs.get(SIMILARITY)?.values::<f32>()?.to_vec();
        // An empty mask is never what is looked for.
        let offered = batch.examples.get(POOLS[1]).map(are_offered);
        let judged = similarity.iter_mut().zip(offered.unwrap_or_default());
        judged
            .filter(|(_, offered)| !offered)
            .for_each(|(similarity, _)| *similarity = f32::NEG_INFINITY);
        let wanted = batch.outputs.get(DESCRIPTORS[0])?.values::<f32>()?;
        let offered = batch.outputs.get(DESCRIPTORS[1])?.values::<f32>()?;
        let scores = tensor_of(batch.examples, SCORES)?.values::<f32>()?;
        let scores = scores.as_chunks::<3>().0;
        let visible = tensor_of(batch.examples, VISIBLE)?.values::<f32>()?;
        let logits = match batch.outputs.get(VISIBLE_LOGITS) {
            Ok(logits) => Some(logits.values::<f32>()?.as_chunks::<2>().0.to_vec()),
            Err(_) => None,
        };
        let counts = tensor_of(batch.examples, CANDIDATES)?.values::<i32>()?;
        let (most, width) = (
            similarity.len() / samples.max(1),
            wanted.len() / samples.max(1),
        );
        let fits = scores.len() == samples * most
            && offered.len() == samples * most * width
            && visible.len() == samples
            && counts
                .iter()
                .all(|&count| (0..=most as i32).contains(&count));
        if !fits || counts.len() != samples {
            return Err(mismatch());
        }
        for sample in 0..samples {
            let count = counts[sample] as usize;
            let row = Row {
                similarity: &similarity[sample * most..][..count],
                scores: &scores[sample * most..][..count],
                visible: visible[sample] > 0.0,
                wanted: &wanted[sample * width..][..width],
                offered: &offered[sample * most * width..][..count * width],
                logits: logits.as_ref().and_then(|rows| rows.get(sample).copied()),
            };
            self.found.push(row.judge().ok_or_else(mismatch)?);
        }
        Ok(())
    }

    fn goal(&self) -> Goal {
        Goal {
            figure: "top1",
            better: Better::Higher,
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let seen: Vec<&Found> = self.found.iter().filter(|found| found.visible).collect();
        let mean = |value: &dyn Fn(&Found) -> f64| {
            let sum: f64 = seen.iter().map(|found| value(found)).sum();
            sum / seen.len() as f64
        };
        let share = |is: &dyn Fn(&Found) -> bool| mean(&|found| f64::from(u8::from(is(found))));
        let confidences = self.confidences();
        let accuracy = |threshold: f64| {
            let both = confidences.iter().map(|(seen, _)| *seen).max()
                != confidences.iter().map(|(seen, _)| *seen).min();
            let answers = confidences.iter().map(|&(seen, c)| (seen, c > threshold));
            let accuracy = balanced_accuracy(answers).filter(|_| both);
            accuracy.unwrap_or(f64::NAN)
        };
        let calibrated = calibrated_threshold(&confidences).unwrap_or(f64::NAN);
        let threshold = self.threshold;
        let told = self.found.iter().filter_map(|f| Some((f.visible, f.told?)));
        let told = balanced_accuracy(told)
            .map(|share| Figure::share("visibility_head", "visibility by its own head", share));
        let figures = vec![
            Figure::share("top1", "top-1", share(&|f| f.score[0] >= RIGHT_IOU)),
            Figure::share("top5", "top-5", share(&|f| f.in_top)),
            Figure::share(
                "cosine",
                "cosine of the descriptors alone",
                share(&|f| f.by_cosine),
            ),
            Figure::share("chance", "chance", mean(&|f| f.chance)),
            Figure::number("iou", "IoU", mean(&|f| f.score[0])),
            Figure::number("contour_f", "contour F", mean(&|f| f.score[1])),
            Figure::number("location", "location error", mean(&|f| f.score[2])),
            Figure::share(
                "visibility",
                format!("visibility (balanced accuracy) above {threshold}"),
                accuracy(threshold),
            ),
            Figure::share(
                "visibility_calibrated",
                format!("the same above {calibrated:.4}, calibrated on these"),
                accuracy(calibrated),
            ),
        ];
        figures.into_iter().chain(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use percept_data::Example;
    use percept_graph::Tensor;

    use super::*;
    use crate::lesson::NamedOutputs;

    /// Two pairs of three candidates, of which the second has two and does not show the thing.
    fn judged(similarity: [f32; 6]) -> Vec<Figure> {
        let tensor =
            |shape: &[usize], values: Vec<f32>| Tensor::from_values(shape, values).unwrap();
        let scores = [
            [0.9, 0.8, 0.1],
            [0.2, 0.1, 0.3],
            [0.0; 3],
            [0.0; 3],
            [0.0; 3],
            [0.0; 3],
        ];
        let examples = Example {
            samples: 2,
            tensors: vec![
                (
                    SCORES.to_owned(),
                    tensor(&[2, 3, 3], scores.as_flattened().to_vec()),
                ),
                (VISIBLE.to_owned(), tensor(&[2], vec![1.0, 0.0])),
                (
                    CANDIDATES.to_owned(),
                    Tensor::from_values([2], vec![3i32, 2]).unwrap(),
                ),
            ],
        };
        let outputs = [
            (SIMILARITY, tensor(&[2, 3], similarity.to_vec())),
            (DESCRIPTORS[0], tensor(&[2, 1, 2], vec![1.0, 0.0, 1.0, 0.0])),
            (
                DESCRIPTORS[1],
                tensor(
                    &[2, 3, 2],
                    vec![0.0, 1.0, 2.0, 0.1, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0],
                ),
            ),
        ];
        let mut judge = MatchJudge::new(0.5);
        let batch = Judged {
            outputs: &NamedOutputs::new(outputs),
            examples: &examples,
            samples: &[0, 1],
        };
        judge.add(&batch).unwrap();
        judge.figures()
    }

    #[test]
    fn the_best_candidate_is_scored_and_what_fills_up_is_not_looked_at() {
        let figures = judged([0.5, 0.1, -0.5, -0.4, -0.9, 7.0]);
        let value = |key: &str| {
            let found = figures.iter().find(|figure| figure.key == key);
            found.unwrap().value.as_f64()
        };
        assert_eq!((value("top1"), value("top5")), (1.0, 1.0));
        assert_eq!(
            value("cosine"),
            0.0,
            "the second candidate is the most alike"
        );
        assert!((value("chance") - 1.0 / 3.0).abs() < 1e-12);
        assert!((value("iou") - 0.9).abs() < 1e-6 && (value("location") - 0.1).abs() < 1e-6);
        assert_eq!(
            (value("visibility"), value("visibility_calibrated")),
            (1.0, 1.0)
        );
    }

    #[test]
    fn a_wrong_candidate_is_wrong() {
        let figures = judged([0.1, 0.5, -0.5, 0.4, 0.9, 0.0]);
        let text: Vec<String> = figures
            .iter()
            .map(|f| format!("{} {}", f.title, f.value))
            .collect();
        assert_eq!(text[0], "top-1 0.0 %");
        assert_eq!(text[7], "visibility (balanced accuracy) above 0.5 50.0 %");
    }
}
