//! How answers are judged: a metric hears every batch and gives named figures, one of which decides what is best.

use std::path::Path;

use percept_data::Example;
use serde_json::{Map, Value, json};

use super::{LessonError, NamedOutputs};

/// What a network said about some samples, and what it was asked.
pub struct Judged<'a> {
    /// What came out of the network.
    pub outputs: &'a NamedOutputs<'a>,
    /// What went in, and what is true of it, as the lesson's preparation made it.
    pub examples: &'a Example,
    /// The place of each sample in its dataset.
    pub samples: &'a [usize],
}

/// Judges the answers of a network over a whole dataset.
pub trait Metric: Send {
    /// Counts a batch; one with an error is not counted at all.
    fn add(&mut self, batch: &Judged<'_>) -> Result<(), LessonError>;

    /// The figure that decides, and which way is better.
    fn goal(&self) -> Goal;

    /// The figures so far. A value that is no number was not to be had.
    fn figures(&self) -> Vec<Figure>;

    /// Further figures in rows, such as those of each class.
    fn tables(&self) -> Vec<FigureTable> {
        Vec::new()
    }

    /// Figures that people look at as lines, such as precision over recall.
    fn curves(&self) -> Vec<Curves> {
        Vec::new()
    }

    /// Why there are no figures, where truth or answers cannot be judged.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Writes the answers so far as a file in a public layout.
    fn save(&self, _path: &Path) -> Result<(), LessonError> {
        Err(LessonError::NoAnswerFile)
    }
}

/// Lines over one pair of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    /// What they show.
    pub title: String,
    /// What the axes are.
    pub x: &'static str,
    /// What the axes are.
    pub y: &'static str,
    /// The lines, by name.
    pub lines: Vec<(String, Vec<[f64; 2]>)>,
}

/// Which of two values is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Better {
    Higher,
    Lower,
}

/// The figure that decides which weights are the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Its key.
    pub figure: &'static str,
    /// Which way is better.
    pub better: Better,
}

impl Goal {
    /// Whether a value is better than another; one that is no number never is, and every number is better than none.
    pub fn is_better(&self, value: f64, than: f64) -> bool {
        match self.better {
            _ if value.is_nan() => false,
            _ if than.is_nan() => true,
            Better::Higher => value > than,
            Better::Lower => value < than,
        }
    }
}

/// A number by which a network is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What logs and records call it: `top1`.
    pub key: &'static str,
    /// What people read: `top-1`.
    pub title: String,
    /// Its value.
    pub value: FigureValue,
}

impl Figure {
    /// A share of all, which people read in percent.
    pub fn share(key: &'static str, title: impl Into<String>, share: f64) -> Self {
        let (title, value) = (title.into(), FigureValue::Share(share));
        Self { key, title, value }
    }

    /// A number as it is.
    pub fn number(key: &'static str, title: impl Into<String>, number: f64) -> Self {
        let (title, value) = (title.into(), FigureValue::Number(number));
        Self { key, title, value }
    }
}

/// A value that knows how it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum FigureValue {
    /// A share of all.
    Share(f64),
    /// A number, as it is.
    Number(f64),
    /// How many.
    Count(u64),
    /// A name.
    Text(String),
}

impl FigureValue {
    /// As a number; a name is none.
    pub fn as_f64(&self) -> f64 {
        match self {
            Self::Share(value) | Self::Number(value) => *value,
            Self::Count(count) => *count as f64,
            Self::Text(_) => f64::NAN,
        }
    }

    /// Another number that is written in the same way.
    pub fn with_number(&self, number: f64) -> Self {
        match self {
            Self::Share(_) => Self::Share(number),
            _ => Self::Number(number),
        }
    }

    /// As programs read it: shares from 0 to 1; what is no number is null.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Share(value) | Self::Number(value) => json!(value),
            Self::Count(count) => json!(count),
            Self::Text(text) => json!(text),
        }
    }
}

/// As people read it: shares in percent.
impl std::fmt::Display for FigureValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Share(value) | Self::Number(value) if value.is_nan() => f.write_str("-"),
            Self::Share(share) => write!(f, "{:.1} %", 100.0 * share),
            Self::Number(number) => write!(f, "{number:.4}"),
            Self::Count(count) => write!(f, "{count}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A column of a [`FigureTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// What records call it.
    pub key: &'static str,
    /// What people read.
    pub title: &'static str,
}

/// Figures in rows.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureTable {
    /// What records call it.
    pub key: &'static str,
    /// Its columns.
    pub columns: Vec<Column>,
    /// As many values in each row as there are columns.
    pub rows: Vec<Vec<FigureValue>>,
}

impl FigureTable {
    /// A table without rows.
    pub fn new(
        key: &'static str,
        columns: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        let columns = columns.into_iter();
        Self {
            key,
            columns: columns.map(|(key, title)| Column { key, title }).collect(),
            rows: Vec::new(),
        }
    }

    /// The rows as objects.
    pub fn to_json(&self) -> Value {
        let object = |row: &Vec<FigureValue>| -> Value {
            let pairs = self.columns.iter().zip(row);
            let fields: Map<String, Value> = pairs
                .map(|(column, value)| (column.key.to_owned(), value.to_json()))
                .collect();
            Value::Object(fields)
        };
        self.rows.iter().map(object).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_says_which_way_is_better() {
        let goal = |better| Goal {
            figure: "x",
            better,
        };
        let (up, down) = (goal(Better::Higher), goal(Better::Lower));
        assert!(up.is_better(2.0, 1.0) && !up.is_better(1.0, 1.0) && !up.is_better(0.5, 1.0));
        assert!(down.is_better(0.5, 1.0) && !down.is_better(1.0, 1.0));
        for goal in [up, down] {
            assert!(!goal.is_better(f64::NAN, 1.0) && goal.is_better(1.0, f64::NAN));
            assert!(!goal.is_better(f64::NAN, f64::NAN));
        }
    }

    #[test]
    fn values_are_written_for_people_and_for_programs() {
        let mut table = FigureTable::new("classes", [("class", "class"), ("iou", "IoU")]);
        table.rows.push(vec![
            FigureValue::Text("car".to_owned()),
            FigureValue::Share(0.5),
        ]);
        table.rows.push(vec![
            FigureValue::Text("bus".to_owned()),
            FigureValue::Share(f64::NAN),
        ]);
        let expected = json!([{"class": "car", "iou": 0.5}, {"class": "bus", "iou": null}]);
        assert_eq!(table.to_json(), expected);
        let texts: Vec<String> = table
            .rows
            .concat()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(texts, ["car", "50.0 %", "bus", "-"]);
        assert_eq!(FigureValue::Count(3).to_string(), "3");
        assert_eq!(FigureValue::Number(0.25).to_string(), "0.2500");
    }
}
