//! What learns: a network, its lesson, and where its parameters begin.

use std::fmt;
use std::sync::Arc;

use percept_graph::WeightSource;
use percept_models::lesson::Lesson;
use percept_models::{Card, Course, LessonError, LessonOptions, Model};

/// A network as the trainer takes it.
#[derive(Clone)]
pub struct Learner {
    /// The network and its settings: a checkpoint of another one is refused, and every checkpoint carries it.
    pub card: Card,
    /// How it is taught and judged.
    pub lesson: Arc<dyn Lesson>,
    /// Where parameters begin; as their layers declare, and drawn from the run's seed, when none.
    pub start: Option<Arc<dyn WeightSource>>,
}

impl Learner {
    /// A network of the zoo that learns from data of these classes.
    pub fn new(
        model: &Model,
        course: &Course,
        options: &LessonOptions,
        classes: &[String],
    ) -> Result<Self, LessonError> {
        let learner = Self::unjudged(model, course, options)?;
        learner.lesson.check_classes(classes)?;
        let mut card = learner.card;
        card.classes = classes.to_vec();
        Ok(Self { card, ..learner })
    }

    /// A network of the zoo without data, to be measured.
    pub fn unjudged(
        model: &Model,
        course: &Course,
        options: &LessonOptions,
    ) -> Result<Self, LessonError> {
        let lesson = (course.lesson)(model, options)?;
        let mut card = Card::of(model, Vec::new());
        card.sizes.extend(lesson.sizes());
        Ok(Self {
            card,
            lesson,
            start: None,
        })
    }

    /// `resnet18 (classes=16, stem=half, width=16)`.
    pub fn describe(&self) -> String {
        let settings = self.card.settings.iter();
        let settings: Vec<String> = settings.map(|(k, v)| format!("{k}={v}")).collect();
        format!("{} ({})", self.card.network, settings.join(", "))
    }
}

impl fmt::Debug for Learner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}
