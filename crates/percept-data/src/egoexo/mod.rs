//! Pairs of views: an object's mask in one, candidate masks in the other, and where known which is the same object.
//!
//! [`EgoExo`] reads the layout of the public O-MaMa system, [`PairFolder`] a folder of a user's own pairs. Both give samples of
//! the parts named here. Written from a specification of that system, which is AGPL-licensed, not from its code.

mod annotation;
mod dataset;
mod error;
mod folder;
mod results;

pub use dataset::EgoExo;
pub use error::PairsError;
pub use folder::PairFolder;
pub use results::{FoundMask, read_found_masks, write_found_masks, write_results_json};

use percept_graph::Tensor;

use crate::images::RgbImage;
use crate::masks::{MaskFault, Rle};

/// The part with the picture that the object is shown in.
pub const SOURCE: &str = "source";
/// The part with the object's mask in it: one mask.
pub const SOURCE_MASK: &str = "source-mask";
/// The part with the picture that the object is looked for in.
pub const DEST: &str = "dest";
/// The part with the candidates in it.
pub const DEST_MASKS: &str = "dest-masks";
/// The part with their boxes, f32 [N, 4] x, y, width, height, where a segmenter gave some.
pub const DEST_BOXES: &str = "dest-boxes";
/// The part with the true mask: one, which is empty where the object is not in view.
pub const TRUTH: &str = "truth";

/// From which view to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Direction {
    EgoToExo,
    /// What O-MaMa calls "reverse".
    ExoToEgo,
}

/// A part of the dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Split {
    Train,
    Val,
    Test,
}

impl Split {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}

/// Which object of which moment is looked for, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairId {
    /// The recording.
    pub take: String,
    /// The object.
    pub object: String,
    /// The camera that shows it.
    pub source_camera: String,
    /// The camera that it is looked for in.
    pub dest_camera: String,
    /// The frame of both, as a number in the recording.
    pub frame: u32,
}

impl std::fmt::Display for PairId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            take,
            object,
            source_camera,
            dest_camera,
            frame,
        } = self;
        write!(f, "{take}/{object}/{source_camera}_{dest_camera}/{frame}")
    }
}

/// By how much the shapes of a mask and of its image may differ: sizes are rounded to whole pixels.
const MAX_ASPECT_DIFFERENCE: f64 = 0.02;

/// A mask at the size of its image; one of another shape belongs to another image.
pub fn fit_mask(mask: &Rle, image: &RgbImage) -> Result<Rle, MaskFault> {
    let (height, width) = (image.height, image.width);
    if (mask.height(), mask.width()) == (height, width) {
        return Ok(mask.clone());
    }
    let aspect = |width: usize, height: usize| width as f64 / height.max(1) as f64;
    let ratio = aspect(mask.width(), mask.height()) / aspect(width, height);
    // A mask without a pixel has no shape at all.
    if ratio.is_nan() || (ratio - 1.0).abs() > MAX_ASPECT_DIFFERENCE {
        return Err(MaskFault::Sizes {
            expected: (width, height),
            found: (mask.width(), mask.height()),
        });
    }
    mask.resized_nearest(height, width)
}

/// Boxes [N, 4] of masks of one size, for an image of another.
fn fit_boxes(boxes: &Tensor<'_>, mask: &Rle, image: &RgbImage) -> Result<Tensor<'static>, String> {
    let (shape, values) = boxes.read::<f32>()?;
    let factors = [
        image.width as f32 / mask.width().max(1) as f32,
        image.height as f32 / mask.height().max(1) as f32,
    ];
    let scaled = values.iter().zip(factors.iter().cycle());
    let scaled: Vec<f32> = scaled.map(|(value, factor)| value * factor).collect();
    Ok(Tensor::from_values(shape, scaled)?)
}

#[cfg(test)]
mod tests;
