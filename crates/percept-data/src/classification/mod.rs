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

use crate::error::FileError;
use crate::images::RgbImage;

/// Pictures that can be had one by one, from any thread, each with its class.
pub trait ImageDataset: Send + Sync {
    /// How many pictures there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the classes; a label is a place in this list.
    fn classes(&self) -> &[String];

    /// The label of a picture. Panics past the end, as indexing does.
    fn label(&self, index: usize) -> usize;

    /// A picture. Panics past the end, as indexing does.
    fn image(&self, index: usize) -> Result<RgbImage, FileError>;

    /// What messages call a picture: the path of its file.
    fn name(&self, index: usize) -> String;
}
