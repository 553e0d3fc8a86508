//! Candidates by how well they match.

/// Which candidates are what is looked for, the likeliest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Matches {
    /// All candidates, the most similar first; of equal ones the earlier.
    pub ranked: Vec<Match>,
    /// A best match that the network is less sure of is none.
    pub threshold: f32,
}

/// One candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    /// Its number among the candidates.
    pub candidate: usize,
    /// How alike it is: a cosine.
    pub similarity: f32,
}

impl Match {
    /// How sure the network is of it, 0 to 1: the sigmoid of the similarity.
    pub fn confidence(&self) -> f32 {
        1.0 / (1.0 + libm::expf(-self.similarity))
    }
}

impl Matches {
    /// Candidates with these similarities, in their order. What is no number is behind all others.
    pub fn rank(similarities: &[f32], threshold: f32) -> Self {
        let ranked = similarities.iter().enumerate();
        let mut ranked: Vec<Match> = ranked
            .map(|(candidate, &similarity)| Match {
                candidate,
                similarity,
            })
            .collect();
        let key = |m: &Match| match m.similarity.is_nan() {
            true => f32::NEG_INFINITY,
            false => m.similarity,
        };
        ranked.sort_by(|a, b| key(b).total_cmp(&key(a)));
        Self { ranked, threshold }
    }

    /// The match, where the network is sure enough that there is one.
    pub fn best(&self) -> Option<&Match> {
        let best = self.ranked.first()?;
        (best.confidence() > self.threshold).then_some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_is_first_and_may_be_none() {
        let matches = Matches::rank(&[0.1, f32::NAN, 0.9, 0.9], 0.5);
        let order: Vec<usize> = matches.ranked.iter().map(|m| m.candidate).collect();
        assert_eq!(order, [2, 3, 0, 1]);
        assert_eq!(matches.best().map(|m| m.candidate), Some(2));
        assert_eq!(Matches::rank(&[-0.2], 0.5).best(), None);
        assert_eq!(Matches::rank(&[], 0.5).best(), None);
    }
}
