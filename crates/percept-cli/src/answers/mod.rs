//! What networks say, for people and for programs: one file per kind of answer, whichever network gave it.
//!
//! A kind has a text, a JSON record, rows of a table to save where it fits one, and a picture where it can be looked at.

mod boxes;
mod classes;
mod descriptor;
mod features;
mod labels;
mod matches;
mod save;

use std::path::{Path, PathBuf};

use percept_data::Sample;
use percept_models::answer::{Answer, AnswerKind};
use percept_picture::Picture;
use serde_json::{Value, json};

use crate::fail::{Fail, Result};
use crate::outcome::write_picture;

pub use save::{Saver, csv_line};

/// An answer to show: what it is about, and how much of it.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    pub sample: &'a Sample,
    pub answer: &'a Answer,
    /// Classes or boxes to show; the kind's own number when none.
    pub top: Option<usize>,
}

impl Shown<'_> {
    /// For people.
    pub fn text(&self) -> String {
        let name = &self.sample.name;
        match self.answer {
            Answer::Classes(classes) => classes::text(name, classes, self.top),
            Answer::Boxes(boxes) => boxes::text(name, boxes, self.top),
            Answer::PointLabels(labels) => labels::text(name, labels),
            Answer::Descriptor(answer) => descriptor::text(name, answer),
            Answer::Matches(matches) => matches::text(self.sample, matches, self.top),
            Answer::Features(features) => features::text(name, features),
        }
    }

    /// For programs.
    pub fn record(&self) -> Value {
        let (key, value) = match self.answer {
            Answer::Classes(classes) => ("classes", classes::record(classes, self.top)),
            Answer::Boxes(boxes) => ("boxes", boxes::record(boxes)),
            Answer::PointLabels(labels) => ("labels", labels::record(labels)),
            Answer::Descriptor(answer) => ("descriptor", descriptor::record(answer)),
            Answer::Matches(matches) => ("matches", matches::record(self.sample, matches)),
            Answer::Features(features) => ("features", features::record(features)),
        };
        json!({"input": self.sample.name, key: value})
    }

    /// Draws it over what the network looked at, as .png or .svg.
    pub fn write_picture(&self, path: &Path) -> Result<()> {
        let picture: Picture = match self.answer {
            Answer::Classes(classes) => classes::picture(self.sample, classes, self.top)?,
            Answer::Boxes(boxes) => boxes::picture(self.sample, boxes)?,
            Answer::PointLabels(labels) => labels::picture(self.sample, labels)?,
            Answer::Descriptor(_) => return Err(no_picture("descriptors")),
            Answer::Matches(matches) => matches::picture(self.sample, matches)?,
            Answer::Features(_) => return Err(no_picture("features")),
        };
        write_picture(path, &picture)
    }
}

/// The path itself, or `bev-3.png` of `bev.png`.
pub fn numbered(path: &Path, number: Option<usize>) -> PathBuf {
    let Some(number) = number else {
        return path.to_path_buf();
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.{ending}"))
}

/// The names of numbered files, in words.
pub fn written(path: &Path, count: usize) -> String {
    let name = |number| numbered(path, Some(number)).display().to_string();
    match count {
        0 | 1 => name(0),
        count => format!("{} to {}", name(0), name(count - 1)),
    }
}

/// Refuses a picture of answers that nobody can look at, before anything runs.
pub fn check_picture(kind: AnswerKind) -> Result<()> {
    match kind {
        AnswerKind::Classes | AnswerKind::Boxes | AnswerKind::PointLabels | AnswerKind::Matches => {
            Ok(())
        }
        AnswerKind::Descriptor => Err(no_picture("descriptors")),
        AnswerKind::Features => Err(no_picture("features")),
    }
}

fn no_picture(what: &str) -> Fail {
    Fail::usage(format!("there is no picture of {what}"))
        .hint("--picture draws classes beside their image, boxes and labels among their points, and matches in both views")
}

/// The error for an input that has not what a picture is drawn on.
fn nothing_to_draw_on(sample: &Sample, what: &str) -> Fail {
    Fail::usage(format!(
        "--picture: {} has no {what} to draw on",
        sample.name
    ))
    .hint("name one with --input")
}
