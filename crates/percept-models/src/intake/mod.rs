//! A network's way in: what a sample of it is, and how samples become the tensors of its inputs.
//!
//! Everything that a network does to the content of files stands behind this trait, so that whoever runs, measures, exports
//! or trains a network asks it instead of knowing it.

mod image;
mod tensors;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use percept_data::points::LidarConvention;
use percept_data::{BatchError, Example, Sample, SampleError};
use percept_kernels::Cpu;

pub use image::ImageIntake;
pub use tensors::TensorIntake;

/// What a part of a sample holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// A picture.
    Image,
    /// The pictures of several cameras at one moment.
    Images,
    /// LiDAR points, of a sensor as this dataset has it.
    Points(LidarConvention),
    /// Masks of a picture.
    Masks,
    /// Numbers, which the network takes as they are.
    Tensor,
}

impl fmt::Display for PartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Image => "image",
            Self::Images => "images",
            Self::Points(_) => "points",
            Self::Masks => "masks",
            Self::Tensor => "tensor",
        })
    }
}

/// A part of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name in a sample, and on the command line.
    pub name: &'static str,
    /// What it holds.
    pub kind: PartKind,
    /// The usual height and width that the network sees of it, where that can be chosen.
    pub size: Option<[usize; 2]>,
    /// What it is, in words.
    pub what: &'static str,
}

/// Height and width of parts, by name.
pub type Sizes = BTreeMap<String, [usize; 2]>;

/// The shapes of a network's inputs, by name.
pub type InputShapes = Vec<(&'static str, Vec<usize>)>;

/// How samples become a network's inputs.
pub trait Intake: fmt::Debug + Send + Sync {
    /// The parts of a sample.
    fn parts(&self) -> &[Part];

    /// The shapes of the inputs for one usual sample, with other sizes of parts where given.
    fn shapes(&self, sizes: &Sizes) -> InputShapes;

    /// The tensors of one sample: a batch of one. Parts without a size here get their usual one, or the nearest to their own.
    fn example(&self, cpu: &Cpu, sample: &Sample, sizes: &Sizes) -> Result<Example, SampleError>;

    /// Several examples at once. A network whose tensors hold numbers of rows shifts them here.
    fn batch(&self, examples: Vec<Example>) -> Result<Example, BatchError> {
        Example::batch(examples)
    }

    /// The same without this part, for which something stands that shows nothing; none where the network needs it.
    fn without(&self, _part: &str) -> Option<Arc<dyn Intake>> {
        None
    }

    /// How a picture becomes the one input, where a sample is a picture.
    fn picture(&self) -> Option<&crate::preprocess::Preprocess> {
        None
    }
}
