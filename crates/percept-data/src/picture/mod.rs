//! Pictures of LiDAR data: a frame with its truth, or what a network has found in a cloud.

mod bev;
mod canvas;
mod colours;
mod detections;
mod frame;
mod glyphs;
mod legend;
mod style;

use std::io::Cursor;

use image::{ImageFormat, ImageResult, RgbImage};

pub use bev::DrawnBox;
pub use detections::{Detections, draw_detections};
pub use frame::draw_frame;

/// A picture as the bytes of a PNG file.
pub fn encode_png(picture: &RgbImage) -> ImageResult<Vec<u8>> {
    let mut png = Cursor::new(Vec::new());
    picture.write_to(&mut png, ImageFormat::Png)?;
    Ok(png.into_inner())
}
