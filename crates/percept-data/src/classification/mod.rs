//! Pictures with one class each: folders of photographs, the CUB-200-2011 layout, and the built-in birds.

pub mod birds;
mod cub;
mod error;
mod files;
mod folder;
mod layout;

pub use birds::{Birds, BirdsConfig};
pub use cub::read_cub;
pub use error::DatasetError;
pub use files::{ImageFile, ImageFiles};
pub use folder::{FolderListing, read_image_folder};
pub use layout::{FoundImages, HoldOut, Layout, SplitImages, read_images};

use crate::images::RgbImage;
use crate::{Datum, Sample};

/// The part of a sample that is its picture.
pub const IMAGE: &str = "image";
/// The part of a sample that is its class, a place among the classes of its dataset.
pub const CLASS: &str = "class";

/// A picture and its class.
fn sample(name: String, image: RgbImage, class: usize) -> Sample {
    Sample::of(name, IMAGE, Datum::Image(image)).with(CLASS, Datum::Class(class))
}
