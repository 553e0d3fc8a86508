//! Samples: what a network looks at once, as named parts, and where they come from.
//!
//! A part is what one sensor saw (an image, a sweep of points) or what is known to be true of it (a class, boxes). Truth is a
//! part like any other: whoever trains or scores asks for it by name, whoever runs a network does not.

use percept_graph::Tensor;
use thiserror::Error;

use crate::egoexo::PairsError;
use crate::error::FileError;
use crate::images::RgbImage;
use crate::masks::Rle;
use crate::points::nuscenes::NuScenes;
use crate::points::{LidarFrame, PointsError};

/// The part that says where a sample was: x, y, z in metres, f64.
pub const POSITION: &str = "position";

/// What one part of a sample holds.
#[derive(Clone, Debug)]
pub enum Datum {
    /// A picture.
    Image(RgbImage),
    /// Pictures that belong together, such as those of six cameras around a vehicle.
    Images(Vec<RgbImage>),
    /// LiDAR points, with the labels, boxes and cameras of the same moment where they are known.
    Frame(Box<LidarFrame>),
    /// Masks of one image: the candidates of a match, or one alone.
    Masks(Vec<Rle>),
    /// Plain numbers: a range image, features, anything that a network takes as it is.
    Tensor(Tensor<'static>),
    /// The number of a class.
    Class(usize),
}

impl Datum {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Image(_) => "an image",
            Self::Images(_) => "several images",
            Self::Frame(_) => "LiDAR points",
            Self::Masks(_) => "masks",
            Self::Tensor(_) => "a tensor",
            Self::Class(_) => "a class",
        }
    }
}

/// What a network looks at once.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What messages and answers call it: the path of its file, or which frame of which world.
    pub name: String,
    /// Its parts, by name.
    pub parts: Vec<(String, Datum)>,
}

impl Sample {
    /// A sample of one part.
    pub fn of(name: impl Into<String>, part: impl Into<String>, datum: Datum) -> Self {
        Self {
            name: name.into(),
            parts: vec![(part.into(), datum)],
        }
    }

    /// The same sample with one part more.
    pub fn with(mut self, part: impl Into<String>, datum: Datum) -> Self {
        self.parts.push((part.into(), datum));
        self
    }

    /// The part of this name, where there is one.
    pub fn get(&self, part: &str) -> Option<&Datum> {
        let found = self.parts.iter().find(|(name, _)| name == part);
        found.map(|(_, datum)| datum)
    }

    /// The part of this name; the error names the sample and what it has.
    pub fn part(&self, part: &str) -> Result<&Datum, SampleError> {
        self.get(part).ok_or_else(|| SampleError::NoPart {
            sample: self.name.clone(),
            part: part.to_owned(),
            present: self.parts.iter().map(|(name, _)| name.clone()).collect(),
        })
    }

    /// The picture that this part is.
    pub fn image(&self, part: &str) -> Result<&RgbImage, SampleError> {
        match self.part(part)? {
            Datum::Image(image) => Ok(image),
            other => Err(self.other_kind(part, "an image", other)),
        }
    }

    /// The LiDAR frame that this part is.
    pub fn frame(&self, part: &str) -> Result<&LidarFrame, SampleError> {
        match self.part(part)? {
            Datum::Frame(frame) => Ok(frame),
            other => Err(self.other_kind(part, "LiDAR points", other)),
        }
    }

    /// The numbers that this part is.
    pub fn tensor(&self, part: &str) -> Result<&Tensor<'static>, SampleError> {
        match self.part(part)? {
            Datum::Tensor(tensor) => Ok(tensor),
            other => Err(self.other_kind(part, "a tensor", other)),
        }
    }

    /// The masks that this part is.
    pub fn masks(&self, part: &str) -> Result<&[Rle], SampleError> {
        match self.part(part)? {
            Datum::Masks(masks) => Ok(masks),
            other => Err(self.other_kind(part, "masks", other)),
        }
    }

    /// The class that this part is.
    pub fn class(&self, part: &str) -> Result<usize, SampleError> {
        match self.part(part)? {
            Datum::Class(class) => Ok(*class),
            other => Err(self.other_kind(part, "a class", other)),
        }
    }

    /// The error for a part that holds something else.
    pub fn other_kind(&self, part: &str, expected: &'static str, found: &Datum) -> SampleError {
        SampleError::OtherKind {
            sample: self.name.clone(),
            part: part.to_owned(),
            expected,
            found: found.kind(),
        }
    }
}

/// Why a sample cannot be had or used.
#[derive(Debug, Error)]
pub enum SampleError {
    /// A file of it.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its points.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// Its pair of views.
    #[error(transparent)]
    Pairs(#[from] PairsError),
    /// It lacks a part.
    #[error("{sample}: no part `{part}`; it has {}", present.join(", "))]
    NoPart {
        /// The sample's name.
        sample: String,
        /// The part that was asked for.
        part: String,
        /// The parts that it has.
        present: Vec<String>,
    },
    /// A part holds something else.
    #[error("{sample}: `{part}` is {found}, expected {expected}")]
    OtherKind {
        /// The sample's name.
        sample: String,
        /// The part.
        part: String,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// Whatever a network cannot do with it.
    #[error("{sample}: {reason}")]
    Unusable {
        /// The sample's name.
        sample: String,
        /// What is wrong.
        reason: String,
    },
}

/// Samples that can be had one by one, from any thread.
pub trait Samples: Send + Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the classes that truth is told in; none where it tells none.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// The numbers of the classes that occur in a sample, each once; none where it cannot be told without reading the sample.
    /// Panics past the end, as indexing does.
    fn occurring(&self, _index: usize) -> Vec<usize> {
        Vec::new()
    }

    /// The keyframe that a sample is, where it comes from a nuScenes folder, whose tables tell more than its parts. Panics past
    /// the end, as indexing does.
    fn keyframe(&self, _index: usize) -> Option<(&NuScenes, usize)> {
        None
    }

    /// What messages call a sample. Panics past the end, as indexing does.
    fn name(&self, index: usize) -> String;

    /// A sample. Panics past the end, as indexing does.
    fn sample(&self, index: usize) -> Result<Sample, SampleError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_name_and_kind() {
        let image = RgbImage::filled(2, 1, [1, 2, 3]);
        let sample = Sample::of("a.jpg", "image", Datum::Image(image.clone()))
            .with("class", Datum::Class(3));
        assert_eq!(sample.image("image").unwrap(), &image);
        assert_eq!(sample.class("class").unwrap(), 3);
        assert!(sample.get("points").is_none());
        let error = sample.frame("points").unwrap_err().to_string();
        assert_eq!(error, "a.jpg: no part `points`; it has image, class");
        let error = sample.frame("image").unwrap_err().to_string();
        assert_eq!(error, "a.jpg: `image` is an image, expected LiDAR points");
    }
}
