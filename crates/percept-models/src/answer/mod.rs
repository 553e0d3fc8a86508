//! A network's way out: what it says of a sample, typed, however many tensors it says it with.

mod boxes;
mod class_file;
mod classes;
mod descriptor;
mod features;
mod labels;
mod matches;

use std::fmt;
use std::sync::Arc;

use percept_data::{Example, Sample};
use percept_graph::{Tensor, TensorError};
use thiserror::Error;

pub use boxes::{Boxes, FoundBox};
pub use class_file::{ClassFile, ClassFileError};
pub use classes::{ClassHead, Classes, Prediction};
pub use descriptor::{Descriptor, DescriptorHead};
pub use features::{FeatureHead, Features};
pub use labels::PointLabels;
pub use matches::{Match, Matches};

/// What a network says of one sample.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Which class it is.
    Classes(Classes),
    /// Boxes around objects.
    Boxes(Boxes),
    /// What every point is.
    PointLabels(PointLabels),
    /// A place in numbers.
    Descriptor(Descriptor),
    /// Candidates by how well they match.
    Matches(Matches),
    /// Features for other networks.
    Features(Features),
}

/// The kinds of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AnswerKind {
    Classes,
    Boxes,
    PointLabels,
    Descriptor,
    Matches,
    Features,
}

impl fmt::Display for AnswerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Classes => "classes",
            Self::Boxes => "boxes",
            Self::PointLabels => "point labels",
            Self::Descriptor => "descriptor",
            Self::Matches => "matches",
            Self::Features => "features",
        })
    }
}

/// What a run of a network gave, and what it was given.
#[derive(Clone, Copy, Debug)]
pub struct Ran<'a> {
    /// The outputs, by name.
    pub outputs: &'a [(&'a str, Tensor<'a>)],
    /// The tensors of the batch.
    pub inputs: &'a Example,
    /// The samples of the batch.
    pub samples: &'a [Sample],
    /// The names of the network's classes; empty where nobody knows them.
    pub classes: &'a Arc<[String]>,
}

impl<'a> Ran<'a> {
    /// An output, which must be there.
    pub fn output(&self, name: &str) -> Result<&'a Tensor<'a>, AnswerError> {
        let found = self.outputs.iter().find(|(output, _)| *output == name);
        found
            .map(|(_, tensor)| tensor)
            .ok_or_else(|| AnswerError::NoOutput {
                name: name.to_owned(),
            })
    }

    /// The rows of an output [N, D], one per sample.
    pub fn rows(&self, name: &str) -> Result<Vec<Vec<f32>>, AnswerError> {
        let output = self.output(name)?;
        match *output.shape() {
            [rows, width] if rows == self.samples.len() => {
                let values = output.to_f32();
                let row = |row: usize| values[row * width..(row + 1) * width].to_vec();
                Ok((0..rows).map(row).collect())
            }
            ref shape => Err(AnswerError::OtherRows {
                name: name.to_owned(),
                shape: shape.to_vec(),
                samples: self.samples.len(),
            }),
        }
    }
}

/// Why outputs cannot be read as an answer.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum AnswerError {
    #[error("the network gave no output `{name}`")]
    NoOutput { name: String },
    #[error(
        "the output `{name}` has the shape {shape:?}, which is not one row for each of {samples} samples"
    )]
    OtherRows {
        name: String,
        shape: Vec<usize>,
        samples: usize,
    },
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// How a network's outputs become answers.
pub trait Head: fmt::Debug + Send + Sync {
    /// What kind of answer it reads.
    fn kind(&self) -> AnswerKind;

    /// How many classes it tells points apart by, beside what is left out; none where it labels no points.
    fn point_classes(&self) -> Option<usize> {
        None
    }

    /// The answer to each sample.
    fn read(&self, ran: &Ran<'_>) -> Result<Vec<Answer>, AnswerError>;
}
