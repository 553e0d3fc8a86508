//! Places found again: recall at k, and the best F1.
//!
//! A query is answered by the places nearest to it, nearest first; an answer is right when it lies near enough on the ground
//! (9 m in LCPR's evaluation).
//!
//! - recall@k: of the queries that have a right place, the share with one among the first k answers.
//! - F1: a threshold on the first answer's distance decides which queries are answered at all. With n answered and r of them
//!   right, precision = r / n, recall = r / queries that have a right place, F1 = 2 precision recall / (precision + recall);
//!   the best over all thresholds.
//! - F1 as LCPR's public code computes it divides by the queries whose first answer is right instead, so that recall always
//!   reaches 1 and the figure is inflated; it also tries 1000 thresholds only, evenly from 0.1 below the smallest (squared)
//!   distance to 0.1 above the largest. It is here to compare with published figures.

use serde::Serialize;

/// How one query was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct AnsweredQuery {
    /// The distance of the first answer, in whatever measure the answers are ordered by.
    pub distance: f64,
    /// Whether each answer is right, nearest first.
    pub right: Vec<bool>,
    /// Whether there is a right place for it at all.
    pub has_place: bool,
}

impl AnsweredQuery {
    /// From the database's places in the order of their distances, `is_right` telling which are right.
    /// Nothing when the database is empty.
    pub fn from_ranking(
        ranking: &[(usize, f64)],
        has_place: bool,
        is_right: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        Some(Self {
            distance: ranking.first()?.1,
            right: ranking.iter().map(|&(place, _)| is_right(place)).collect(),
            has_place,
        })
    }

    fn first_is_right(&self) -> bool {
        self.right.first() == Some(&true)
    }
}

/// Precision and recall when first answers up to a distance are given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OperatingPoint {
    /// Answers further away are not given.
    pub distance: f64,
    /// Share of right ones among the given.
    pub precision: f64,
    /// Share of what could be found.
    pub recall: f64,
}

impl OperatingPoint {
    /// The harmonic mean of precision and recall.
    pub fn f1(&self) -> f64 {
        let sum = self.precision + self.recall;
        if sum > 0.0 {
            2.0 * self.precision * self.recall / sum
        } else {
            0.0
        }
    }
}

/// The share of queries, among those that have a right place, with one in their first `k` answers; nothing when none has.
pub fn recall_at(k: usize, queries: &[AnsweredQuery]) -> Option<f64> {
    let with_place = queries.iter().filter(|query| query.has_place);
    let found = with_place
        .clone()
        .filter(|q| q.right.iter().take(k).any(|r| *r));
    share(found.count(), with_place.count())
}

/// Precision and recall at the distance of every first answer, ascending.
pub fn precision_recall(queries: &[AnsweredQuery]) -> Vec<OperatingPoint> {
    let first = FirstAnswers::of(queries);
    let with_place = queries.iter().filter(|query| query.has_place).count();
    let thresholds = first.distances.iter().enumerate();
    // Equal distances are one threshold: the last of them.
    let last_of_equals = thresholds.filter(|&(i, d)| first.distances.get(i + 1) != Some(d));
    last_of_equals
        .filter_map(|(i, &distance)| first.operating_point(distance, i + 1, with_place))
        .collect()
}

/// The best F1 over all thresholds.
pub fn max_f1(queries: &[AnsweredQuery]) -> Option<f64> {
    best(&precision_recall(queries))
}

/// Thresholds that the public code tries.
const PUBLIC_THRESHOLDS: usize = 1000;

/// How far beyond the distances its thresholds reach.
const PUBLIC_MARGIN: f64 = 0.1;

/// The curve as LCPR's public code computes it; `distance` must be squared.
pub fn precision_recall_public(queries: &[AnsweredQuery]) -> Vec<OperatingPoint> {
    let first = FirstAnswers::of(queries);
    let (Some(least), Some(most)) = (first.distances.first(), first.distances.last()) else {
        return Vec::new();
    };
    let (from, to) = (least - PUBLIC_MARGIN, most + PUBLIC_MARGIN);
    let step = (to - from) / (PUBLIC_THRESHOLDS - 1) as f64;
    let right = first.right_among.last().copied().unwrap_or(0);
    (0..PUBLIC_THRESHOLDS)
        .filter_map(|i| {
            let threshold = from + i as f64 * step;
            let answered = first.distances.partition_point(|d| *d < threshold);
            first.operating_point(threshold, answered, right)
        })
        .collect()
}

/// The best F1 as LCPR's public code computes it; `distance` must be squared.
pub fn max_f1_public(queries: &[AnsweredQuery]) -> Option<f64> {
    best(&precision_recall_public(queries))
}

/// How much more often one of two searches is right than the other, on the same queries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairedDifference {
    /// The first one's share less the second one's.
    pub mean: f64,
    /// The ends of its 95 % interval, by the deviation of the queries' differences.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Queries that both could answer.
    pub queries: usize,
}

impl PairedDifference {
    /// Of whether each query was answered right; `None` where there is nothing to find.
    pub fn of(first: &[Option<bool>], second: &[Option<bool>]) -> Self {
        let pairs = first.iter().zip(second);
        let differences: Vec<f64> = pairs
            .filter_map(|(a, b)| Some(f64::from(u8::from((*a)?)) - f64::from(u8::from((*b)?))))
            .collect();
        let count = differences.len() as f64;
        let mean = differences.iter().sum::<f64>() / count;
        let squares: f64 = differences.iter().map(|d| (d - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0) / count).sqrt();
        Self {
            mean,
            low: mean - 1.96 * deviation,
            high: mean + 1.96 * deviation,
            queries: differences.len(),
        }
    }
}

/// First answers, nearest first.
struct FirstAnswers {
    distances: Vec<f64>,
    /// How many of the first i + 1 are right.
    right_among: Vec<usize>,
}

impl FirstAnswers {
    fn of(queries: &[AnsweredQuery]) -> Self {
        let mut order: Vec<&AnsweredQuery> = queries.iter().collect();
        order.sort_by(|a, b| a.distance.total_cmp(&b.distance));
        let right = order
            .iter()
            .map(|query| usize::from(query.first_is_right()));
        let right_among = right.scan(0, |sum, right| {
            *sum += right;
            Some(*sum)
        });
        Self {
            right_among: right_among.collect(),
            distances: order.iter().map(|query| query.distance).collect(),
        }
    }

    /// When the first `answered` are given of which `findable` could be right.
    fn operating_point(
        &self,
        distance: f64,
        answered: usize,
        findable: usize,
    ) -> Option<OperatingPoint> {
        let right = *self.right_among.get(answered.checked_sub(1)?)?;
        Some(OperatingPoint {
            distance,
            precision: share(right, answered)?,
            recall: share(right, findable)?,
        })
    }
}

fn best(points: &[OperatingPoint]) -> Option<f64> {
    points.iter().map(OperatingPoint::f1).max_by(f64::total_cmp)
}

fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// What the public evaluator said of 96 queries against 300 places (golden/lcpr/evaluation.safetensors), with the
    /// distances and right answers that it saw.
    fn fixture() -> Vec<AnsweredQuery> {
        let file = include_str!("../tests/fixtures/lcpr_evaluation.json");
        let rows: Vec<Value> = serde_json::from_str(file).unwrap();
        rows.iter()
            .map(|row| AnsweredQuery {
                distance: row[0].as_f64().unwrap(),
                right: row[1]
                    .as_str()
                    .unwrap()
                    .bytes()
                    .map(|b| b == b'1')
                    .collect(),
                has_place: row[2].as_bool().unwrap(),
            })
            .collect()
    }

    #[test]
    fn figures_of_the_public_evaluator() {
        let queries = fixture();
        assert_eq!(queries.len(), 96);
        let recalls = [1, 5, 10].map(|k| 100.0 * recall_at(k, &queries).unwrap());
        assert_eq!(recalls, [78.125, 100.0, 100.0]);
        let public = max_f1_public(&queries).unwrap();
        assert!((public - 0.8875739644970414).abs() < 1e-9, "{public}");
        assert_eq!(precision_recall_public(&queries).len(), 845);
        let standard = max_f1(&queries).unwrap();
        assert!((standard - 0.7894736842105263).abs() < 1e-12, "{standard}");
    }

    #[test]
    fn nothing_gives_no_figure() {
        assert_eq!(recall_at(1, &[]), None);
        assert_eq!((max_f1(&[]), max_f1_public(&[])), (None, None));
        assert!(AnsweredQuery::from_ranking(&[], true, |_| true).is_none());
        let lost = AnsweredQuery::from_ranking(&[(3, 0.5)], false, |_| false).unwrap();
        assert_eq!(recall_at(1, std::slice::from_ref(&lost)), None);
        assert_eq!(max_f1(&[lost]), None);
    }

    proptest! {
        #[test]
        fn the_best_f1_equals_trying_every_threshold(
            rows in prop::collection::vec((0_u8..10, any::<bool>(), any::<bool>()), 0..40),
        ) {
            let queries: Vec<AnsweredQuery> = rows
                .iter()
                .map(|&(distance, right, has_place)| AnsweredQuery {
                    distance: f64::from(distance),
                    right: vec![right && has_place],
                    has_place,
                })
                .collect();
            let with_place = queries.iter().filter(|q| q.has_place).count();
            let mut best: Option<f64> = None;
            for threshold in 0..10 {
                let given = queries.iter().filter(|q| q.distance <= f64::from(threshold));
                let right = given.clone().filter(|q| q.right[0]).count() as f64;
                let given = given.count() as f64;
                if given > 0.0 && with_place > 0 {
                    // 2pr / (p + r) without the division by what may be 0.
                    let f1 = 2.0 * right / (given + with_place as f64);
                    best = Some(best.map_or(f1, |b: f64| b.max(f1)));
                }
            }
            match (max_f1(&queries), best) {
                (Some(fast), Some(slow)) => prop_assert!((fast - slow).abs() < 1e-12),
                (fast, slow) => prop_assert_eq!(fast, slow),
            }
        }
    }

    #[test]
    fn differences_are_paired() {
        let [yes, no] = [Some(true), Some(false)];
        let same = PairedDifference::of(&[yes, no, yes, None], &[yes, no, yes, yes]);
        assert_eq!(
            (same.mean, same.low, same.high, same.queries),
            (0.0, 0.0, 0.0, 3)
        );
        let better = PairedDifference::of(&[yes, yes, yes, no], &[yes, no, yes, no]);
        assert_eq!(better.mean, 0.25);
        // Differences 0, 1, 0, 0 have the deviation 1/2, their mean 1/4.
        assert!((better.high - (0.25 + 1.96 * 0.25)).abs() < 1e-12);
    }
}
