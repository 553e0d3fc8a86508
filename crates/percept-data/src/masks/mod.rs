//! Masks: which pixels of an image belong to an object.
//!
//! A mask lives as an [`Rle`] from the file to the answer. Areas, boxes, centroids, overlaps, resizing and contours are
//! computed on its runs; pixels are made only for who asks for pixels.

mod adjacency;
mod coco;
mod coco_json;
mod combine;
mod contour;
mod error;
mod read;
mod resize;
mod rle;

pub use adjacency::Adjacency;
pub(crate) use coco::CocoRle;
pub use error::MaskFault;
pub use read::read_masks;
pub use rle::{PixelBox, Rle};
