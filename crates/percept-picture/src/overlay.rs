//! An image with boxes and masks drawn on it.

use crate::colours::Colour;
use crate::font::Weight;
use crate::mask::DrawnMask;
use crate::picture::{Area, Picture, Stroke, TextStyle};
use crate::pixels::Pixels;
use crate::theme::{DARK, SMALL_TEXT_SIZE};

const CHIP_HEIGHT: f64 = 17.0;

/// A box on an image.
#[derive(Clone, Copy, Debug)]
pub struct ImageBox<'a> {
    /// Left, top, right and bottom in pixels of the image.
    pub edges: [f64; 4],
    /// Its colour.
    pub colour: Colour,
    /// What stands at its corner; nothing when empty.
    pub label: &'a str,
}

/// An image with what was found in it.
#[derive(Clone, Copy, Debug)]
pub struct Overlay<'a> {
    /// The image.
    pub image: &'a Pixels,
    /// Masks, the last on top.
    pub masks: &'a [DrawnMask<'a>],
    /// Boxes, over the masks.
    pub boxes: &'a [ImageBox<'a>],
}

impl Overlay<'_> {
    /// Draws the image as large as it fits into `width` x `height` pixels.
    ///
    /// ```
    /// use percept_picture::{DrawnMask, ImageBox, Mask, Overlay, Pixels};
    ///
    /// let image = Pixels::new(4, 2, vec![90; 24])?;
    /// let mask = Mask::new(4, 2, &[0, 1, 1, 0, 0, 1, 1, 0])?;
    /// let picture = Overlay {
    ///     image: &image,
    ///     masks: &[DrawnMask { mask: &mask, colour: [230, 159, 0], filled: true }],
    ///     boxes: &[ImageBox { edges: [1.0, 0.0, 3.0, 2.0], colour: [86, 180, 233], label: "cup 0.93" }],
    /// }
    /// .draw(400, 400);
    /// assert_eq!(picture.size(), [400, 200]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn draw(&self, width: u32, height: u32) -> Picture {
        let [width, height] = fitting(self.image, [width, height].map(f64::from));
        let mut pixels = self.image.resized(width as u32, height as u32);
        for mask in self.masks {
            mask.draw(&mut pixels);
        }
        let mut picture = Picture::new(width, height, DARK.panel);
        let whole = Area {
            left: 0.0,
            top: 0.0,
            width,
            height,
        };
        picture.image(whole, pixels);
        let scale = width / f64::from(self.image.width());
        for found in self.boxes {
            let [left, top, right, bottom] = found.edges.map(|edge| edge * scale);
            let area = Area {
                left,
                top,
                width: right - left,
                height: bottom - top,
            };
            picture.outline(area.corners(), Stroke::new(found.colour, 2.0));
            chip(&mut picture, [left - 1.0, top], found.colour, found.label);
        }
        picture
    }
}

/// The size of an image in a room of `width` x `height`: its own shape, at least one pixel.
pub(crate) fn fitting(image: &Pixels, [width, height]: [f64; 2]) -> [f64; 2] {
    let own = [f64::from(image.width()), f64::from(image.height())];
    let scale = (width / own[0]).min(height / own[1]);
    own.map(|side| (side * scale).round().max(1.0))
}

/// A label on a ground of its colour, above a corner or, where there is no room, below it.
fn chip(picture: &mut Picture, [left, top]: [f64; 2], colour: Colour, label: &str) {
    if label.is_empty() {
        return;
    }
    let width = Weight::Medium.text_width(SMALL_TEXT_SIZE, label) + 8.0;
    let area = Area {
        left: left.min(picture.width - width).max(0.0),
        top: if top >= CHIP_HEIGHT {
            top - CHIP_HEIGHT
        } else {
            top.max(0.0)
        },
        width,
        height: CHIP_HEIGHT,
    };
    picture.rectangle(area, colour);
    let style = TextStyle::new(SMALL_TEXT_SIZE, DARK.background).medium();
    picture.text([area.left + 4.0, area.bottom() - 4.5], style, label);
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLUE: Colour = [0, 0, 255];

    #[test]
    fn a_box_lies_where_it_lies_in_the_image() {
        let image = Pixels::filled(100, 50, [0; 3]);
        let boxes = [ImageBox {
            edges: [20.0, 10.0, 60.0, 40.0],
            colour: BLUE,
            label: "",
        }];
        let overlay = Overlay {
            image: &image,
            masks: &[],
            boxes: &boxes,
        };
        let pixels = overlay.draw(200, 200).to_pixels();
        assert_eq!([pixels.width(), pixels.height()], [200, 100]);
        assert_eq!(pixels.at(40, 50), Some(BLUE));
        assert_eq!(pixels.at(120, 50), Some(BLUE));
        assert_eq!(pixels.at(80, 50), Some([0; 3]));
    }

    #[test]
    fn labels_stay_within_the_image() {
        let image = Pixels::filled(100, 100, [0; 3]);
        for edges in [
            [-5.0, -5.0, 20.0, 20.0],
            [90.0, 95.0, 200.0, 200.0],
            [f64::NAN; 4],
        ] {
            let boxes = [ImageBox {
                edges,
                colour: BLUE,
                label: "traffic light",
            }];
            let overlay = Overlay {
                image: &image,
                masks: &[],
                boxes: &boxes,
            };
            let pixels = overlay.draw(100, 100).to_pixels();
            let blue = pixels
                .rgb()
                .as_chunks::<3>()
                .0
                .iter()
                .filter(|pixel| **pixel == BLUE);
            assert!(edges[0].is_nan() || blue.count() > 500, "{edges:?}");
        }
    }

    #[test]
    fn narrow_images_keep_their_shape() {
        assert_eq!(
            fitting(&Pixels::filled(1000, 1, [0; 3]), [100.0, 100.0]),
            [100.0, 1.0]
        );
        assert_eq!(
            fitting(&Pixels::filled(32, 64, [0; 3]), [300.0, 320.0]),
            [160.0, 320.0]
        );
    }
}
