//! From similarities to candidates by how well they match.

use super::SIMILARITY;
use super::intake::CANDIDATES;
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
        // What only fills up a batch is no candidate.
        let counts = ran
            .inputs
            .get(CANDIDATES)
            .map(|counts| counts.values::<i32>());
        let counts = counts.transpose()?.unwrap_or_default();
        let count = |sample: usize| match counts.get(sample) {
            Some(&count) => (count.max(0) as usize).min(candidates),
            None => candidates,
        };
        let rows = (0..samples).map(|sample| &values[sample * candidates..][..count(sample)]);
        let answer = |row: &[f32]| Answer::Matches(Matches::rank(row, self.threshold));
        Ok(rows.map(answer).collect())
    }
}
