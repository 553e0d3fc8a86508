//! Who found what: predictions of one class take true boxes, the surest first.

use percept_data::points::ObjectClass;

use super::boxes::{GlobalBox, Prediction};
use super::filter::{Counted, Frame};

/// The boxes of one class that count.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    pub class: ObjectClass,
    /// In all frames, as the file lists them.
    pub predictions: Vec<Candidate<'a, Prediction>>,
    /// In all frames, frame after frame.
    pub truths: Vec<Candidate<'a, GlobalBox>>,
    /// Where each frame's truths begin, and the end.
    truth_starts: Vec<usize>,
    /// Predictions by falling score.
    order: Vec<usize>,
}

/// A box and its frame.
#[derive(Debug)]
pub(super) struct Candidate<'a, B> {
    pub counted: &'a Counted<'a, B>,
    pub token: &'a str,
    frame: usize,
}

/// A prediction, when its turn came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Visit {
    /// Into [`Candidates::predictions`].
    pub prediction: usize,
    /// Into [`Candidates::truths`]: what it took, if it was near enough.
    pub truth: Option<usize>,
    pub score: f64,
}

impl<'a> Candidates<'a> {
    pub fn of(class: ObjectClass, frames: &'a [Frame<'a>]) -> Self {
        let (mut predictions, mut truths) = (Vec::new(), Vec::new());
        let mut truth_starts = vec![0];
        for (frame, boxes) in frames.iter().enumerate() {
            let token = boxes.token;
            let of_class = boxes.predictions.iter();
            let of_class = of_class.filter(|p| p.value.found.class == class);
            predictions.extend(of_class.map(|counted| Candidate {
                counted,
                token,
                frame,
            }));
            let of_class = boxes.truths.iter().filter(|t| t.value.class == class);
            truths.extend(of_class.map(|counted| Candidate {
                counted,
                token,
                frame,
            }));
            truth_starts.push(truths.len());
        }
        let score = |i: usize| predictions[i].counted.value.score;
        let mut order: Vec<usize> = (0..predictions.len()).collect();
        // Of equal scores the last listed comes first, across frames too: the public code sorts upwards and reverses.
        order.sort_by(|&a, &b| {
            let by_score = score(b).partial_cmp(&score(a));
            // Scores were checked to be numbers.
            by_score
                .unwrap_or(std::cmp::Ordering::Equal)
                .then(b.cmp(&a))
        });
        Self {
            class,
            predictions,
            truths,
            truth_starts,
            order,
        }
    }

    /// Every prediction by falling score, with the nearest free truth of its frame if that is nearer than
    /// `threshold_m`; of truths at the same distance the first listed.
    pub fn matched_within(&self, threshold_m: f64) -> Vec<Visit> {
        let mut taken = vec![false; self.truths.len()];
        let visit = |&prediction: &usize| {
            let Candidate { counted, frame, .. } = &self.predictions[prediction];
            let middle = [counted.value.found.centre[0], counted.value.found.centre[1]];
            let (mut nearest, mut nearest_m) = (None, f64::INFINITY);
            let start = self.truth_starts[*frame];
            let of_frame = &self.truths[start..self.truth_starts[frame + 1]];
            for (truth, candidate) in (start..).zip(of_frame) {
                let distance_m = candidate.counted.value.ground_distance_m(middle);
                if !taken[truth] && distance_m < nearest_m {
                    (nearest, nearest_m) = (Some(truth), distance_m);
                }
            }
            let truth = nearest.filter(|_| nearest_m < threshold_m);
            if let Some(truth) = truth {
                taken[truth] = true;
            }
            Visit {
                prediction,
                truth,
                score: counted.value.score,
            }
        };
        self.order.iter().map(visit).collect()
    }
}
