//! From similarities to candidates by how well they match.

use super::intake::are_offered;
use super::{POOLS, SIMILARITY};
use crate::answer::{Answer, AnswerError, AnswerKind, Head, Matches, Ran};

/// Reads `similarity` [N, M].
#[derive(Clone, Copy, Debug)]
pub struct MatchHead {
    /// A best match that the network is less sure of is none.
    pub threshold: f32,
}

impl Head for MatchHead {
    fn kind(&self) -> AnswerKind {
        AnswerKind::Matches
    }

    fn read(&self, ran: &Ran<'_>) -> Result<Vec<Answer>, AnswerError> {
        let (shape, values) = ran.output(SIMILARITY)?.read::<f32>()?;
        let &[samples, candidates] = shape else {
            return Err(AnswerError::OtherRows {
                name: SIMILARITY.to_owned(),
                shape: shape.to_vec(),
                samples: ran.inputs.samples,
            });
        };
        // An empty mask, or what only fills up a batch, is no candidate.
        let offered = ran.inputs.get(POOLS[1]).map(are_offered);
        let offered = offered.unwrap_or_else(|| vec![true; samples * candidates]);
        let answer = |sample: usize| {
            let from = sample * candidates;
            let mut matches = Matches::rank(&values[from..][..candidates], self.threshold);
            let is_offered = |candidate: usize| offered.get(from + candidate) == Some(&true);
            matches.ranked.retain(|found| is_offered(found.candidate));
            Answer::Matches(matches)
        };
        Ok((0..samples).map(answer).collect())
    }
}
