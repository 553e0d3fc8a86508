//! Which class a sample is of.

use std::sync::Arc;

use super::{Answer, AnswerError, AnswerKind, Head, Ran};

/// How a classifier rates each of its classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Classes {
    /// One number for each class; the largest is the likeliest.
    pub logits: Vec<f32>,
    /// The names of the classes; empty where nobody knows them.
    pub names: Arc<[String]>,
}

/// One class and how probable a network holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction<'a> {
    /// Index of the class.
    pub class: usize,
    /// Its name, where it is known.
    pub name: Option<&'a str>,
    /// Softmax of the logits.
    pub probability: f32,
}

impl Classes {
    /// The `count` most probable classes, best first; equal logits keep the order of the classes, and a NaN comes last.
    pub fn top(&self, count: usize) -> Vec<Prediction<'_>> {
        let logits = &self.logits;
        let rank = |class: &usize| {
            if logits[*class].is_nan() {
                f32::NEG_INFINITY
            } else {
                logits[*class]
            }
        };
        let mut classes: Vec<usize> = (0..logits.len()).collect();
        classes.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
        let largest = classes.first().map_or(0.0, rank);
        let weight = |logit: f32| f64::from(logit - largest).exp();
        let total: f64 = logits.iter().map(|&logit| weight(logit)).sum();
        let prediction = |&class: &usize| Prediction {
            class,
            name: self.names.get(class).map(String::as_str),
            probability: (weight(logits[class]) / total) as f32,
        };
        classes.iter().take(count).map(prediction).collect()
    }
}

/// Reads an output [N, classes] of logits.
#[derive(Clone, Copy, Debug)]
pub struct ClassHead;

impl ClassHead {
    /// The output that it reads.
    pub const OUTPUT: &str = "logits";
}

impl Head for ClassHead {
    fn kind(&self) -> AnswerKind {
        AnswerKind::Classes
    }

    fn read(&self, ran: &Ran<'_>) -> Result<Vec<Answer>, AnswerError> {
        let answer = |logits: Vec<f32>| {
            Answer::Classes(Classes {
                logits,
                names: Arc::clone(ran.classes),
            })
        };
        Ok(ran.rows(Self::OUTPUT)?.into_iter().map(answer).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(logits: &[f32], names: &[&str]) -> Classes {
        Classes {
            logits: logits.to_vec(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn probabilities_are_the_softmax_of_the_best() {
        let answer = classes(&[0.0, 2f32.ln(), 5f32.ln(), 0.0, 0.0], &[]);
        let best = answer.top(2);
        assert_eq!((best[0].class, best[1].class), (2, 1));
        assert!((best[0].probability - 0.5).abs() < 1e-6);
        assert!((best[1].probability - 0.2).abs() < 1e-6);
        assert_eq!(best[0].name, None);
    }

    #[test]
    fn ties_keep_their_order_and_large_logits_do_not_overflow() {
        let answer = classes(&vec![1e30; 1000], &["tench", "goldfish"]);
        let best = answer.top(5);
        let order: Vec<usize> = best.iter().map(|p| p.class).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert_eq!((best[1].name, best[2].name), (Some("goldfish"), None));
        assert!((best[0].probability - 0.001).abs() < 1e-6);
        assert_eq!(classes(&[f32::NAN, 1.0], &[]).top(1)[0].class, 1);
        assert!(classes(&[], &[]).top(5).is_empty());
    }
}
