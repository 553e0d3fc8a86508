use thiserror::Error;

use crate::error::FaultKind;
use crate::images::{MAX_PIXELS, MAX_SIDE_PIXELS};

/// What is wrong with a mask.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum MaskFault {
    /// More pixels than percept takes.
    #[error(
        "the mask is too large: {width}x{height}, at most {MAX_PIXELS} pixels and {MAX_SIDE_PIXELS} per side"
    )]
    TooLarge {
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
    },
    /// Pixels of another number than the size asks for.
    #[error("corrupt mask: {width}x{height} needs {} pixels, got {found}", u64::from(*width) * u64::from(*height))]
    Pixels {
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
        /// The pixels that came.
        found: usize,
    },
    /// A compressed RLE that is no such text.
    #[error("corrupt RLE: {reason} at byte {at}")]
    Text {
        /// What is wrong.
        reason: &'static str,
        /// Where, from 0.
        at: usize,
    },
    /// Runs of another length than the mask has pixels.
    #[error("corrupt RLE: its runs cover {covered} pixels, {width}x{height} has {}", u64::from(*width) * u64::from(*height))]
    Runs {
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
        /// The pixels that its runs cover: the first number that is too large, where they are too many.
        covered: u64,
    },
    /// A mask of another image.
    #[error("the mask is {}x{} (width x height), expected {}x{}", found.0, found.1, expected.0, expected.1)]
    Sizes {
        /// Width and height that it should have.
        expected: (usize, usize),
        /// Its width and height.
        found: (usize, usize),
    },
    /// A file of something else.
    #[error("not masks: expected npz, npy, PNG or COCO's JSON, found {found}")]
    NotMasks {
        /// What it looks like.
        found: String,
    },
    /// A folder without a file of masks, or a file with none in it.
    #[error("no masks")]
    NoMasks,
    /// Masks of an image without pixels.
    #[error("{count} masks without a pixel")]
    NoPixels {
        /// How many they are.
        count: usize,
    },
    /// An archive of several arrays, none of them known to be the masks.
    #[error("no array `masks` or `arr_0`; it has {}", present.join(", "))]
    NoStack {
        /// The arrays that it has.
        present: Vec<String>,
    },
    /// Data behind the last mask.
    #[error("corrupt npy: the data goes on behind the last mask")]
    MoreThanShape,
    /// More detail than any stack of masks has.
    #[error("the masks have more than {most} runs together")]
    TooManyRuns {
        /// The most that are taken.
        most: usize,
    },
    /// JSON that is broken or says something else.
    #[error("not masks as COCO writes them: {reason}")]
    Json {
        /// What the parser says.
        reason: String,
    },
    /// Outlines in place of an RLE.
    #[error("annotation {index}: polygons are not supported, only RLE")]
    Polygons {
        /// The annotation, from 0.
        index: usize,
    },
    /// Masks of several images where those of one are asked for.
    #[error("masks of several images ({first} and {second}), expected those of one")]
    SeveralImages {
        /// One of them.
        first: String,
        /// Another.
        second: String,
    },
}

impl MaskFault {
    pub(crate) fn kind(&self) -> FaultKind {
        match self {
            Self::TooLarge { .. }
            | Self::Sizes { .. }
            | Self::NotMasks { .. }
            | Self::NoMasks
            | Self::NoStack { .. }
            | Self::TooManyRuns { .. }
            | Self::Polygons { .. }
            | Self::SeveralImages { .. } => FaultKind::Unsupported,
            Self::Pixels { .. }
            | Self::Text { .. }
            | Self::Runs { .. }
            | Self::NoPixels { .. }
            | Self::MoreThanShape
            | Self::Json { .. } => FaultKind::Corrupt,
        }
    }
}
