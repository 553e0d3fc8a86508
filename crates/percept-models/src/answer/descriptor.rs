//! A place in numbers.

use super::{Answer, AnswerError, AnswerKind, Head, Ran};

/// Numbers that are near those of another sample where both show the same place.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    /// Of length one.
    pub values: Vec<f32>,
}

impl Descriptor {
    /// The Euclidean distance to another one; infinite where that has another size.
    pub fn distance(&self, other: &Descriptor) -> f64 {
        if self.values.len() != other.values.len() {
            return f64::INFINITY;
        }
        let pairs = self.values.iter().zip(&other.values);
        let squares = pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
        squares.sum::<f64>().sqrt()
    }
}

/// Reads an output [N, D].
#[derive(Clone, Copy, Debug)]
pub struct DescriptorHead {
    /// The output that it reads.
    pub output: &'static str,
}

impl Head for DescriptorHead {
    fn kind(&self) -> AnswerKind {
        AnswerKind::Descriptor
    }

    fn read(&self, ran: &Ran<'_>) -> Result<Vec<Answer>, AnswerError> {
        let rows = ran.rows(self.output)?;
        let answer = |values: Vec<f32>| Answer::Descriptor(Descriptor { values });
        Ok(rows.into_iter().map(answer).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_need_the_same_size() {
        let of = |values: &[f32]| Descriptor {
            values: values.to_vec(),
        };
        assert_eq!(of(&[0.0, 3.0]).distance(&of(&[4.0, 0.0])), 5.0);
        assert_eq!(of(&[0.0]).distance(&of(&[4.0, 0.0])), f64::INFINITY);
    }
}
