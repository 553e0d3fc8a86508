//! What the answers of a part are worth: how well they agree with the whole network's, or how often places are found by them.

use std::ops::Range;

/// Judges the answers to the samples of a search, one row for each.
pub enum Judge {
    /// The mean cosine with what the whole network says: no labels are needed.
    Agreement { whole: Vec<Vec<f32>> },
    /// Recall@1 on a route whose places are known.
    Recall(Route),
}

/// A route that is driven several times.
pub struct Route {
    /// Metres on the ground, sample by sample.
    pub positions: Vec<[f64; 2]>,
    /// The samples that are the database; the others ask it.
    pub database: Range<usize>,
    /// Metres within which an answer is right.
    pub near_m: f64,
    /// What the whole network says of the database, where that is what is asked.
    pub whole: Option<Vec<Vec<f32>>>,
}

impl Judge {
    /// The score; more is better, 1 is the most.
    pub fn score(&self, rows: &[Vec<f32>]) -> f64 {
        match self {
            Self::Agreement { whole } => {
                let pairs = rows.iter().zip(whole);
                pairs.map(|(a, b)| cosine(a, b)).sum::<f64>() / rows.len().max(1) as f64
            }
            Self::Recall(route) => route.recall(rows),
        }
    }

    /// In a word.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Agreement { .. } => "agreement",
            Self::Recall(_) => "recall@1",
        }
    }
}

impl Route {
    fn recall(&self, rows: &[Vec<f32>]) -> f64 {
        let right: Vec<bool> = self.right(rows).into_iter().flatten().collect();
        right.iter().filter(|right| **right).count() as f64 / right.len() as f64
    }

    /// Whether the first answer to each query is right; none where there is no place to find.
    pub fn right(&self, rows: &[Vec<f32>]) -> Vec<Option<bool>> {
        let database = match &self.whole {
            Some(whole) => &whole[self.database.clone()],
            None => &rows[self.database.clone()],
        };
        let places = &self.positions[self.database.clone()];
        let asked = (0..rows.len()).filter(|sample| !self.database.contains(sample));
        let answered = asked.map(|query| {
            let here = self.positions[query];
            let is_near =
                |there: &[f64; 2]| (here[0] - there[0]).hypot(here[1] - there[1]) <= self.near_m;
            let distances = database.iter().map(|row| apart(row, &rows[query]));
            let first = distances.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
            let has_place = places.iter().any(is_near);
            has_place.then(|| first.is_some_and(|(place, _)| is_near(&places[place])))
        });
        answered.collect()
    }
}

fn apart(a: &[f32], b: &[f32]) -> f64 {
    let pairs = a.iter().zip(b);
    pairs
        .map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2))
        .sum()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_agree_score_one() {
        let judge = Judge::Agreement {
            whole: vec![vec![1.0, 0.0], vec![0.0, 2.0]],
        };
        assert_eq!(judge.score(&[vec![3.0, 0.0], vec![0.0, 1.0]]), 1.0);
        assert_eq!(judge.score(&[vec![3.0, 0.0], vec![1.0, 0.0]]), 0.5);
    }

    #[test]
    fn recall_counts_queries_whose_nearest_place_is_near() {
        let route = |whole| Route {
            positions: vec![
                [0.0, 0.0],
                [50.0, 0.0],
                [1.0, 0.0],
                [49.0, 0.0],
                [500.0, 0.0],
            ],
            database: 0..2,
            near_m: 9.0,
            whole,
        };
        let rows = [[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.8, 0.2], [0.0, 0.0]].map(Vec::from);
        // The second query is taken for the first place; the third has none to be found.
        assert_eq!(Judge::Recall(route(None)).score(&rows), 0.5);
        let swapped = vec![rows[1].clone(), rows[0].clone()];
        assert_eq!(Judge::Recall(route(Some(swapped))).score(&rows), 0.5);
    }
}
