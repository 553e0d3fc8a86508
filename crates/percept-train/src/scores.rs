//! How well a classifier does on pictures that it does not train on.

use serde::Serialize;
use thiserror::Error;

/// Answers that count as right in [`Scores::top5`].
const FIVE: usize = 5;

/// Answers of a classifier, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scores {
    classes: usize,
    /// How often a class (row) was taken for each class (column).
    taken_for: Vec<u64>,
    /// Pictures of each class without an answer: none of its logits was a number.
    unanswered: Vec<u64>,
    within_five: u64,
}

/// The pictures of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClassScore {
    /// How many there were.
    pub images: u64,
    /// How many of them were told right.
    pub right: u64,
}

/// Pictures of one class that were taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Confusion {
    /// Their class.
    pub class: usize,
    /// What they were taken for.
    pub taken_for: usize,
    /// How many.
    pub images: u64,
}

/// Logits and labels that do not belong together.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ScoresError {
    /// The logits are no rows of the classes, one a label.
    #[error("{logits} logits for {labels} images of {classes} classes")]
    Length {
        /// Logits given.
        logits: usize,
        /// Labels given.
        labels: usize,
        /// Classes of the scores.
        classes: usize,
    },
    /// A label beyond the classes.
    #[error("image {image} has the label {label}: expected one of {classes} classes, from 0")]
    Label {
        /// The image's place in the batch.
        image: usize,
        /// Its label.
        label: i32,
        /// Classes of the scores.
        classes: usize,
    },
}

impl Scores {
    /// Of a classifier with this many classes, before any picture.
    pub fn new(classes: usize) -> Self {
        Self {
            classes,
            taken_for: vec![0; classes * classes],
            unanswered: vec![0; classes],
            within_five: 0,
        }
    }

    /// Counts a batch: logits [N, classes] and N labels. A batch with an error is not counted at all.
    ///
    /// Of equal logits the first class is ahead; one that is no number is behind all others.
    pub fn add(&mut self, logits: &[f32], labels: &[i32]) -> Result<(), ScoresError> {
        let classes = self.classes;
        if labels.len().checked_mul(classes) != Some(logits.len()) {
            let (logits, labels) = (logits.len(), labels.len());
            return Err(ScoresError::Length {
                logits,
                labels,
                classes,
            });
        }
        let known = |label: i32| usize::try_from(label).ok().filter(|&label| label < classes);
        let unknown = labels.iter().position(|&label| known(label).is_none());
        if let Some(image) = unknown {
            let label = labels[image];
            return Err(ScoresError::Label {
                image,
                label,
                classes,
            });
        }
        let labels = labels.iter().filter_map(|&label| known(label));
        for (row, label) in logits.chunks_exact(classes.max(1)).zip(labels) {
            self.count(row, label);
        }
        Ok(())
    }

    fn count(&mut self, logits: &[f32], label: usize) {
        let mut numbers = (0..logits.len()).filter(|&class| !logits[class].is_nan());
        let Some(first) = numbers.next() else {
            self.unanswered[label] += 1;
            return;
        };
        let answer = numbers.fold(first, |best, class| {
            if logits[class] > logits[best] {
                class
            } else {
                best
            }
        });
        self.taken_for[label * self.classes + answer] += 1;
        let own = logits[label];
        let is_ahead = |class: &usize| {
            let other = logits[*class];
            other > own || (other == own && *class < label)
        };
        let ahead = (0..logits.len()).filter(is_ahead).count();
        if !own.is_nan() && ahead < FIVE {
            self.within_five += 1;
        }
    }

    /// Pictures so far.
    pub fn images(&self) -> u64 {
        let counts = self.taken_for.iter().chain(&self.unanswered);
        counts.sum()
    }

    /// The share of pictures whose class came first; none before the first picture.
    pub fn top1(&self) -> Option<f64> {
        let right = (0..self.classes).map(|class| self.right(class)).sum();
        share(right, self.images())
    }

    /// The share of pictures whose class was among the first five; none before the first picture.
    pub fn top5(&self) -> Option<f64> {
        share(self.within_five, self.images())
    }

    /// Each class on its own.
    pub fn by_class(&self) -> Vec<ClassScore> {
        let score = |class: usize| {
            let row = &self.taken_for[class * self.classes..][..self.classes];
            ClassScore {
                images: row.iter().sum::<u64>() + self.unanswered[class],
                right: self.right(class),
            }
        };
        (0..self.classes).map(score).collect()
    }

    /// The `most` commonest confusions, most pictures first, then by class.
    pub fn most_confused(&self, most: usize) -> Vec<Confusion> {
        let all = self.taken_for.iter().enumerate();
        let mut confusions: Vec<Confusion> = all
            .map(|(place, &images)| Confusion {
                class: place / self.classes,
                taken_for: place % self.classes,
                images,
            })
            .filter(|confusion| confusion.class != confusion.taken_for && confusion.images > 0)
            .collect();
        confusions.sort_by_key(|confusion| std::cmp::Reverse(confusion.images));
        confusions.truncate(most);
        confusions
    }

    fn right(&self, class: usize) -> u64 {
        self.taken_for[class * self.classes + class]
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_are_counted() {
        let mut scores = Scores::new(3);
        assert_eq!((scores.top1(), scores.top5()), (None, None));
        // Right; taken for 2; a tie, which the first class wins.
        scores
            .add(&[3.0, 1.0, 2.0, 0.0, 1.0, 5.0, 1.0, 1.0, 0.0], &[0, 1, 1])
            .unwrap();
        scores.add(&[0.0, 0.0, 9.0], &[1]).unwrap();
        assert_eq!(
            (scores.images(), scores.top1(), scores.top5()),
            (4, Some(0.25), Some(1.0))
        );
        let of_class = |images, right| ClassScore { images, right };
        assert_eq!(
            scores.by_class(),
            [of_class(1, 1), of_class(3, 0), of_class(0, 0)]
        );
        let confused = |class, taken_for, images| Confusion {
            class,
            taken_for,
            images,
        };
        assert_eq!(
            scores.most_confused(9),
            [confused(1, 2, 2), confused(1, 0, 1)]
        );
        assert_eq!(scores.most_confused(1).len(), 1);
    }

    #[test]
    fn what_is_no_number_is_never_right() {
        let mut scores = Scores::new(2);
        let nan = f32::NAN;
        scores
            .add(&[nan, nan, nan, 1.0, nan, 1.0], &[0, 0, 1])
            .unwrap();
        assert_eq!((scores.images(), scores.top1()), (3, Some(1.0 / 3.0)));
        assert_eq!(scores.top5(), Some(1.0 / 3.0));
        assert_eq!(
            scores.by_class()[0],
            ClassScore {
                images: 2,
                right: 0
            }
        );
    }

    #[test]
    fn a_bad_batch_is_refused_and_not_counted() {
        let mut scores = Scores::new(2);
        let error = scores.add(&[0.0; 4], &[0, 2]).unwrap_err().to_string();
        assert_eq!(
            error,
            "image 1 has the label 2: expected one of 2 classes, from 0"
        );
        assert!(scores.add(&[0.0; 4], &[0, -1]).is_err());
        let error = scores.add(&[0.0; 3], &[0, 1]).unwrap_err().to_string();
        assert_eq!(error, "3 logits for 2 images of 2 classes");
        assert_eq!(scores.images(), 0);
        assert!(Scores::new(0).add(&[], &[0]).is_err());
        assert!(Scores::new(0).add(&[], &[]).is_ok());
    }

    proptest! {
        /// Sorting all logits is slower and says the same.
        #[test]
        fn counts_equal_those_of_a_full_sort(
            classes in 1usize..12,
            rows in prop::collection::vec((prop::collection::vec(-2i8..3, 12), 0usize..12), 1..20),
        ) {
            let mut scores = Scores::new(classes);
            let (mut first, mut five) = (0, 0);
            for (row, label) in &rows {
                let logits: Vec<f32> = row[..classes].iter().map(|&v| f32::from(v)).collect();
                let label = label % classes;
                let mut order: Vec<usize> = (0..classes).collect();
                order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
                first += usize::from(order[0] == label);
                five += usize::from(order[..classes.min(5)].contains(&label));
                scores.add(&logits, &[label as i32]).unwrap();
            }
            prop_assert_eq!(scores.top1(), Some(first as f64 / rows.len() as f64));
            prop_assert_eq!(scores.top5(), Some(five as f64 / rows.len() as f64));
            let images: u64 = scores.by_class().iter().map(|class| class.images).sum();
            prop_assert_eq!(images, rows.len() as u64);
        }
    }
}
