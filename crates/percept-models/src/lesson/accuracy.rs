//! How often a classifier is right, class by class.

use percept_data::augment::LABELS;

use super::{
    Better, Figure, FigureTable, FigureValue, Goal, Judged, LessonError, Metric, tensor_of,
};

/// Answers that count as right in [`Accuracy::top5`].
const FIVE: usize = 5;
/// Confusions that are told.
const MOST_CONFUSED: usize = 10;

/// Answers of a classifier, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accuracy {
    classes: Vec<String>,
    /// How often a class (row) was taken for each class (column).
    taken_for: Vec<u64>,
    /// Pictures of each class without an answer: none of its logits was a number.
    unanswered: Vec<u64>,
    within_five: u64,
}

/// The pictures of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassScore {
    /// How many there were.
    pub images: u64,
    /// How many of them were told right.
    pub right: u64,
}

/// Pictures of one class that were taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confusion {
    /// Their class.
    pub class: usize,
    /// What they were taken for.
    pub taken_for: usize,
    /// How many.
    pub images: u64,
}

impl Accuracy {
    /// Of a classifier with these classes, before any picture.
    pub fn new(classes: Vec<String>) -> Self {
        let count = classes.len();
        Self {
            classes,
            taken_for: vec![0; count * count],
            unanswered: vec![0; count],
            within_five: 0,
        }
    }

    /// Counts a batch: logits [N, classes] and N labels. A batch with an error is not counted at all.
    ///
    /// Of equal logits the first class is ahead; one that is no number is behind all others.
    pub fn count(&mut self, logits: &[f32], labels: &[i32]) -> Result<(), LessonError> {
        let classes = self.classes.len();
        if labels.len().checked_mul(classes) != Some(logits.len()) {
            return Err(match logits.len().checked_div(labels.len()) {
                Some(outputs) if outputs * labels.len() == logits.len() => {
                    LessonError::Classes { outputs, classes }
                }
                _ => LessonError::Mismatch(format!(
                    "{} logits for {} images of {classes} classes",
                    logits.len(),
                    labels.len(),
                )),
            });
        }
        let known = |label: i32| usize::try_from(label).ok().filter(|&label| label < classes);
        let unknown = labels.iter().position(|&label| known(label).is_none());
        if let Some(image) = unknown {
            return Err(LessonError::Mismatch(format!(
                "image {image} has the label {}: expected one of {classes} classes, from 0",
                labels[image]
            )));
        }
        let labels = labels.iter().filter_map(|&label| known(label));
        for (row, label) in logits.chunks_exact(classes.max(1)).zip(labels) {
            self.count_one(row, label);
        }
        Ok(())
    }

    fn count_one(&mut self, logits: &[f32], label: usize) {
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
        self.taken_for[label * self.classes.len() + answer] += 1;
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
        let right = (0..self.classes.len()).map(|class| self.right(class)).sum();
        share(right, self.images())
    }

    /// The share of pictures whose class was among the first five; none before the first picture.
    pub fn top5(&self) -> Option<f64> {
        share(self.within_five, self.images())
    }

    /// Each class on its own.
    pub fn by_class(&self) -> Vec<ClassScore> {
        let score = |class: usize| {
            let count = self.classes.len();
            let row = &self.taken_for[class * count..][..count];
            ClassScore {
                images: row.iter().sum::<u64>() + self.unanswered[class],
                right: self.right(class),
            }
        };
        (0..self.classes.len()).map(score).collect()
    }

    /// The `most` commonest confusions, most pictures first, then by class.
    pub fn most_confused(&self, most: usize) -> Vec<Confusion> {
        let all = self.taken_for.iter().enumerate();
        let mut confusions: Vec<Confusion> = all
            .map(|(place, &images)| Confusion {
                class: place / self.classes.len(),
                taken_for: place % self.classes.len(),
                images,
            })
            .filter(|confusion| confusion.class != confusion.taken_for && confusion.images > 0)
            .collect();
        confusions.sort_by_key(|confusion| std::cmp::Reverse(confusion.images));
        confusions.truncate(most);
        confusions
    }

    fn right(&self, class: usize) -> u64 {
        self.taken_for[class * self.classes.len() + class]
    }
}

impl Metric for Accuracy {
    fn add(&mut self, batch: &Judged<'_>) -> Result<(), LessonError> {
        let labels = tensor_of(batch.examples, LABELS)?.values()?;
        let logits = batch.outputs.get("logits")?;
        self.count(&logits.to_f32(), labels)
    }

    fn goal(&self) -> Goal {
        Goal {
            figure: "top1",
            better: Better::Higher,
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let share = |share: Option<f64>| share.unwrap_or(f64::NAN);
        vec![
            Figure::share("top1", "top-1", share(self.top1())),
            Figure::share("top5", "top-5", share(self.top5())),
        ]
    }

    fn tables(&self) -> Vec<FigureTable> {
        let named = |class: usize| FigureValue::Text(self.classes[class].clone());
        let columns = [
            ("class", "class"),
            ("images", "pictures"),
            ("right", "right"),
            ("share", "share"),
        ];
        let mut classes = FigureTable::new("classes", columns);
        for (class, score) in self.by_class().iter().enumerate() {
            let share = share(score.right, score.images).unwrap_or(f64::NAN);
            classes.rows.push(vec![
                named(class),
                FigureValue::Count(score.images),
                FigureValue::Count(score.right),
                FigureValue::Share(share),
            ]);
        }
        let columns = [
            ("class", "most confused"),
            ("taken_for", "taken for"),
            ("images", "pictures"),
        ];
        let mut confused = FigureTable::new("most_confused", columns);
        for pair in self.most_confused(MOST_CONFUSED) {
            let images = FigureValue::Count(pair.images);
            let row = vec![named(pair.class), named(pair.taken_for), images];
            confused.rows.push(row);
        }
        vec![classes, confused]
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_classes(count: usize) -> Accuracy {
        Accuracy::new((0..count).map(|class| format!("class {class}")).collect())
    }

    #[test]
    fn answers_are_counted() {
        let mut scores = of_classes(3);
        assert_eq!((scores.top1(), scores.top5()), (None, None));
        // Right; taken for 2; a tie, which the first class wins.
        scores
            .count(&[3.0, 1.0, 2.0, 0.0, 1.0, 5.0, 1.0, 1.0, 0.0], &[0, 1, 1])
            .unwrap();
        scores.count(&[0.0, 0.0, 9.0], &[1]).unwrap();
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
        let mut scores = of_classes(2);
        let nan = f32::NAN;
        scores
            .count(&[nan, nan, nan, 1.0, nan, 1.0], &[0, 0, 1])
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
        let mut scores = of_classes(2);
        let error = scores.count(&[0.0; 4], &[0, 2]).unwrap_err().to_string();
        assert_eq!(
            error,
            "image 1 has the label 2: expected one of 2 classes, from 0"
        );
        assert!(scores.count(&[0.0; 4], &[0, -1]).is_err());
        let error = scores.count(&[0.0; 3], &[0, 1]).unwrap_err().to_string();
        assert_eq!(error, "3 logits for 2 images of 2 classes");
        let error = scores.count(&[0.0; 6], &[0, 1]).unwrap_err().to_string();
        assert_eq!(error, "the network has 3 classes, the data 2");
        assert_eq!(scores.images(), 0);
        assert!(of_classes(0).count(&[], &[0]).is_err());
        assert!(of_classes(0).count(&[], &[]).is_ok());
    }

    proptest! {
        /// Sorting all logits is slower and says the same.
        #[test]
        fn counts_equal_those_of_a_full_sort(
            classes in 1usize..12,
            rows in prop::collection::vec((prop::collection::vec(-2i8..3, 12), 0usize..12), 1..20),
        ) {
            let mut scores = of_classes(classes);
            let (mut first, mut five) = (0, 0);
            for (row, label) in &rows {
                let logits: Vec<f32> = row[..classes].iter().map(|&v| f32::from(v)).collect();
                let label = label % classes;
                let mut order: Vec<usize> = (0..classes).collect();
                order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
                first += usize::from(order[0] == label);
                five += usize::from(order[..classes.min(5)].contains(&label));
                scores.count(&logits, &[label as i32]).unwrap();
            }
            prop_assert_eq!(scores.top1(), Some(first as f64 / rows.len() as f64));
            prop_assert_eq!(scores.top5(), Some(five as f64 / rows.len() as f64));
            let images: u64 = scores.by_class().iter().map(|class| class.images).sum();
            prop_assert_eq!(images, rows.len() as u64);
        }
    }
}
