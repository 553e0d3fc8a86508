//! Masks: which pixels of an image belong to a thing, and how that looks on the image.

use thiserror::Error;

use crate::colours::Colour;
use crate::pixels::{Pixels, covers};

/// How much of a mask's colour lies over the image.
const TINT: f64 = 0.45;
/// How dark the image is around a mask.
const SHADE: f64 = 0.6;

/// Which pixels of an image belong to a thing. It may be coarser or finer than the image.
///
/// ```
/// use percept_picture::Mask;
///
/// // Any number but 0 is inside.
/// let mask = Mask::new(3, 2, &[0, 1, 1, 0, 255, 0])?;
/// assert_eq!(mask.share(), 0.5);
/// # Ok::<(), percept_picture::MaskError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    width: u32,
    height: u32,
    inside: Vec<bool>,
}

/// Why numbers are no mask.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{numbers} numbers are no mask of {width}x{height}")]
pub struct MaskError {
    width: u32,
    height: u32,
    numbers: usize,
}

impl Mask {
    /// A mask of `width * height` numbers, row by row from the top; all but 0 are inside.
    pub fn new(width: u32, height: u32, numbers: &[u8]) -> Result<Self, MaskError> {
        if width > 0 && height > 0 && numbers.len() as u64 == u64::from(width) * u64::from(height) {
            return Ok(Self {
                width,
                height,
                inside: numbers.iter().map(|number| *number != 0).collect(),
            });
        }
        Err(MaskError {
            width,
            height,
            numbers: numbers.len(),
        })
    }

    /// The share of the pixels that are inside.
    pub fn share(&self) -> f64 {
        let inside = self.inside.iter().filter(|inside| **inside).count();
        inside as f64 / self.inside.len() as f64
    }

    /// How much of each pixel of an image of this size is inside, 0 to 1.
    fn coverage(&self, width: u32, height: u32) -> Vec<f32> {
        let (columns, rows) = (covers(self.width, width), covers(self.height, height));
        let mut narrow = Vec::with_capacity(self.height as usize * width as usize);
        for row in self.inside.chunks_exact(self.width as usize) {
            let mean = columns
                .iter()
                .map(|cover| cover.mean(|x| [f32::from(row[x])]));
            narrow.extend(mean.map(|[mean]| mean));
        }
        let mut coverage = Vec::with_capacity(width as usize * height as usize);
        for cover in &rows {
            for x in 0..width as usize {
                let [mean] = cover.mean(|y| [narrow[y * width as usize + x]]);
                coverage.push(mean);
            }
        }
        coverage
    }
}

/// A mask in the colour that it is drawn in.
#[derive(Clone, Copy, Debug)]
pub struct DrawnMask<'a> {
    /// Which pixels.
    pub mask: &'a Mask,
    /// Its colour.
    pub colour: Colour,
    /// Whether its inside is tinted too, and not only its edge drawn.
    pub filled: bool,
}

impl DrawnMask<'_> {
    /// Draws it on an image: a tint inside, an edge two pixels wide, and a shade around it that shows on any ground.
    pub(crate) fn draw(&self, image: &mut Pixels) {
        let (width, height) = (image.width(), image.height());
        let coverage = self.mask.coverage(width, height);
        let inside = |x: i64, y: i64| {
            let within = (0..i64::from(width)).contains(&x) && (0..i64::from(height)).contains(&y);
            within && coverage[y as usize * width as usize + x as usize] >= 0.5
        };
        for y in 0..i64::from(height) {
            for x in 0..i64::from(width) {
                let edge = || {
                    let near = [
                        (2, 0),
                        (-2, 0),
                        (0, 2),
                        (0, -2),
                        (1, 1),
                        (1, -1),
                        (-1, 1),
                        (-1, -1),
                    ];
                    near.iter().any(|(dx, dy)| !inside(x + dx, y + dy))
                };
                let cover = f64::from(coverage[y as usize * width as usize + x as usize]);
                let beside = || {
                    [(1, 0), (-1, 0), (0, 1), (0, -1)]
                        .iter()
                        .any(|(dx, dy)| inside(x + dx, y + dy))
                };
                if inside(x, y) && edge() {
                    image.blend(x, y, self.colour, 1.0);
                } else if !inside(x, y) && beside() {
                    image.blend(x, y, [0; 3], SHADE);
                } else if self.filled && cover > 0.0 {
                    image.blend(x, y, self.colour, TINT * cover);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: Colour = [255, 0, 0];

    fn square() -> Mask {
        let inside = |place: usize| {
            u8::from((2..8).contains(&(place % 10)) && (2..8).contains(&(place / 10)))
        };
        let numbers: Vec<u8> = (0..100).map(inside).collect();
        Mask::new(10, 10, &numbers).expect("a mask")
    }

    fn drawn(side: u32, filled: bool) -> Pixels {
        let mut image = Pixels::filled(side, side, [0; 3]);
        let mask = square();
        let drawn = DrawnMask {
            mask: &mask,
            colour: RED,
            filled,
        };
        drawn.draw(&mut image);
        image
    }

    #[test]
    fn an_edge_and_a_tint_show_where_the_mask_is() {
        for side in [10, 40] {
            let image = drawn(side, true);
            let at = |tenth: u32| image.at(tenth * side / 10, side / 2).expect("a pixel");
            assert_eq!(at(1), [0; 3]);
            assert_eq!(at(2), RED);
            assert!((110..120).contains(&at(5)[0]), "{:?}", at(5));
        }
        assert_eq!(drawn(40, false).at(20, 20), Some([0; 3]));
    }

    #[test]
    fn a_mask_that_fills_the_image_has_an_edge_at_its_border() {
        let mask = Mask::new(1, 1, &[1]).expect("a mask");
        let mut image = Pixels::filled(20, 20, [0; 3]);
        let drawn = DrawnMask {
            mask: &mask,
            colour: RED,
            filled: false,
        };
        drawn.draw(&mut image);
        assert_eq!(
            (image.at(0, 10), image.at(10, 10)),
            (Some(RED), Some([0; 3]))
        );
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        for (width, height, numbers) in [(2, 2, 3), (0, 0, 0), (u32::MAX, u32::MAX, 1)] {
            let error = Mask::new(width, height, &vec![0; numbers]).expect_err("no mask");
            assert!(error.to_string().contains(&format!("{numbers} numbers")));
        }
    }
}
