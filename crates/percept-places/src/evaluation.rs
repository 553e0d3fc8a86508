//! What an index's answers are worth: recall, and the best F1.

use percept_kernels::Cpu;
use percept_metrics::retrieval::{AnsweredQuery, max_f1, max_f1_public, recall_at};
use serde::Serialize;

use crate::index::{Found, Place, PlaceError, PlaceIndex};

/// Two frames this near show one place, as LCPR counts.
pub const NEAR_M: f64 = 9.0;

/// How many answers are looked at.
const ANSWERS: [usize; 4] = [1, 5, 10, 20];

/// How well places are found again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Queries with a known position.
    pub queries: usize,
    /// Those of them that the index has a place for.
    pub with_place: usize,
    /// Recall among the first 1, 5, 10 and 20 answers.
    pub recall: Vec<Recall>,
    /// The best F1 over all thresholds on the first answer's distance.
    pub max_f1: Option<f64>,
    /// The same as LCPR's public code computes it: it divides by the queries whose first answer is right, and is inflated.
    pub max_f1_public: Option<f64>,
}

/// The share of queries with a right place among the first `of` answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Recall {
    pub of: usize,
    pub share: Option<f64>,
}

/// Asks the index for each query and compares the answers' positions with its own; queries without a position are left out.
pub fn evaluate(
    index: &PlaceIndex,
    cpu: &Cpu,
    queries: &[Place],
    near_m: f64,
) -> Result<Evaluation, PlaceError> {
    let located: Vec<(&Place, [f64; 2])> = queries
        .iter()
        .filter_map(|query| Some((query, query.position?)))
        .collect();
    let asked: Vec<f32> = located
        .iter()
        .flat_map(|(query, _)| &query.descriptor)
        .copied()
        .collect();
    let most = ANSWERS.into_iter().max().unwrap_or(1);
    let found = index.search(cpu, &asked, most)?;
    let positions: Vec<[f64; 2]> = index
        .places()
        .filter_map(|place| index.place(place).position)
        .collect();
    let is_near = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]).hypot(a[1] - b[1]) <= near_m;
    let answered: Vec<AnsweredQuery> = located
        .iter()
        .zip(&found)
        .filter_map(|((_, here), found)| {
            let ranking: Vec<(usize, f64)> = found
                .iter()
                .map(|&Found { place, distance }| (place, distance * distance))
                .collect();
            let has_place = positions.iter().any(|there| is_near(*here, *there));
            AnsweredQuery::from_ranking(&ranking, has_place, |place| {
                let there = index.place(place).position;
                there.is_some_and(|there| is_near(*here, there))
            })
        })
        .collect();
    Ok(Evaluation {
        queries: answered.len(),
        with_place: answered.iter().filter(|query| query.has_place).count(),
        recall: ANSWERS
            .map(|of| Recall {
                of,
                share: recall_at(of, &answered),
            })
            .to_vec(),
        max_f1: max_f1(&answered),
        max_f1_public: max_f1_public(&answered),
    })
}
