//! A query beside the places that were found for it.

use percept_data::images::RgbImage;
use percept_data::points::LidarFrame;
use percept_data::{Datum, Sample};
use percept_picture::{Neighbour, Picture, Pixels, Tile, draw_neighbours};

use crate::fail::{Blame, Result};

/// Pixels of a top view, and metres that it shows in each direction.
const TOP_SIDE: usize = 240;
const TOP_REACH_M: f32 = 60.0;
/// Pictures of a frame that stand beside each other.
const COLUMNS: usize = 3;

/// A place that was found.
pub struct Match<'a> {
    pub sample: &'a Sample,
    pub caption: String,
    /// Whether it is near the query, where that is known.
    pub right: Option<bool>,
}

/// The query and what was found, in a row.
pub fn draw(title: &str, query: &Sample, found: &[Match<'_>]) -> Result<Picture> {
    let seen = pixels(query)?;
    let images = found.iter().map(|found| pixels(found.sample));
    let images = images.collect::<Result<Vec<Pixels>>>()?;
    let neighbours: Vec<Neighbour<'_>> = found
        .iter()
        .zip(&images)
        .map(|(found, image)| Neighbour {
            caption: &found.caption,
            image,
            right: found.right,
        })
        .collect();
    let tile = Tile {
        caption: "query",
        image: &seen,
    };
    Ok(draw_neighbours(title, tile, &neighbours))
}

/// What a sample shows: its pictures side by side, or its points from above.
fn pixels(sample: &Sample) -> Result<Pixels> {
    let parts = || sample.parts.iter().map(|(_, datum)| datum);
    let images = parts().find_map(|datum| match datum {
        Datum::Images(images) => Some(images.as_slice()),
        Datum::Image(image) => Some(std::slice::from_ref(image)),
        _ => None,
    });
    let points = parts().find_map(|datum| match datum {
        Datum::Frame(frame) => Some(frame),
        _ => None,
    });
    let drawn = match (images, points) {
        (Some(images), _) if !images.is_empty() => side_by_side(images),
        (_, Some(frame)) => from_above(frame),
        // Tensors that a user brought have no picture.
        _ => RgbImage::filled(TOP_SIDE, TOP_SIDE, [40; 3]),
    };
    let [width, height] = [drawn.width, drawn.height].map(|side| side as u32);
    Pixels::new(width, height, drawn.pixels).bad_input()
}

/// Pictures in rows of three, in cells of the first one's size.
fn side_by_side(images: &[RgbImage]) -> RgbImage {
    let (width, height) = (images[0].width, images[0].height);
    let columns = images.len().min(COLUMNS);
    let rows = images.len().div_ceil(columns);
    let mut all = RgbImage::filled(columns * width, rows * height, [0; 3]);
    for (place, image) in images.iter().enumerate() {
        let [left, top] = [place % columns * width, place / columns * height];
        let row_length = 3 * image.width.min(width);
        let lines = image.pixels.chunks_exact(3 * image.width.max(1));
        for (y, line) in lines.take(height).enumerate() {
            let start = 3 * ((top + y) * all.width + left);
            all.pixels[start..start + row_length].copy_from_slice(&line[..row_length]);
        }
    }
    all
}

/// The points as light dots, the sensor in the middle.
fn from_above(frame: &LidarFrame) -> RgbImage {
    let mut image = RgbImage::filled(TOP_SIDE, TOP_SIDE, [12; 3]);
    let middle = TOP_SIDE as f32 / 2.0;
    for point in &frame.points {
        let [x, y, _] = point.position;
        let at = [x, -y].map(|metres| middle + metres / TOP_REACH_M * middle);
        let inside = at.iter().all(|v| (0.0..TOP_SIDE as f32).contains(v));
        if inside {
            let start = 3 * (at[1] as usize * TOP_SIDE + at[0] as usize);
            let pixel = &mut image.pixels[start..start + 3];
            pixel.iter_mut().for_each(|v| *v = v.saturating_add(60));
        }
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_pictures_stand_in_two_rows() {
        let images: Vec<RgbImage> = (0..6).map(|i| RgbImage::filled(4, 2, [i; 3])).collect();
        let all = side_by_side(&images);
        assert_eq!((all.width, all.height), (12, 4));
        let at = |x: usize, y: usize| all.pixels[3 * (y * 12 + x)];
        assert_eq!([at(0, 0), at(11, 1), at(4, 2), at(8, 3)], [0, 2, 4, 5]);
    }

    #[test]
    fn a_picture_of_another_size_stays_in_its_cell() {
        let images = [
            RgbImage::filled(2, 2, [1; 3]),
            RgbImage::filled(5, 1, [9; 3]),
        ];
        let all = side_by_side(&images);
        assert_eq!((all.width, all.height), (4, 2));
        assert_eq!(all.pixels[6..12], [9; 6]);
        assert_eq!(all.pixels[18..24], [0; 6]);
    }
}
