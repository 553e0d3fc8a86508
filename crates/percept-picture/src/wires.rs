//! Things in space drawn on an image of them as their edges.

use crate::colours::Colour;
use crate::overlay::fitting;
use crate::picture::{Area, Picture, Stroke};
use crate::pixels::Pixels;
use crate::theme::DARK;

const WIRE: f64 = 2.5;
/// A dark rim shows wires on any ground.
const RIM: f64 = 4.5;

/// The edges of a thing.
#[derive(Clone, Copy, Debug)]
pub struct Wireframe<'a> {
    /// From pixel to pixel of the image; what lies outside of it is cut off.
    pub edges: &'a [[[f64; 2]; 2]],
    /// Its colour.
    pub colour: Colour,
}

/// Draws an image as large as it fits into `width` x `height` pixels, with the edges of things on it.
///
/// ```
/// use percept_picture::{Pixels, Wireframe, draw_wireframes};
///
/// let image = Pixels::new(40, 20, vec![90; 2400])?;
/// let edges = [[[5.0, 5.0], [35.0, 5.0]], [[35.0, 5.0], [35.0, 15.0]]];
/// let picture = draw_wireframes(&image, &[Wireframe { edges: &edges, colour: [230, 159, 0] }], 400, 400);
/// assert_eq!(picture.size(), [400, 200]);
/// # Ok::<(), percept_picture::PixelsError>(())
/// ```
pub fn draw_wireframes(
    image: &Pixels,
    frames: &[Wireframe<'_>],
    width: u32,
    height: u32,
) -> Picture {
    let [width, height] = fitting(image, [width, height].map(f64::from));
    let mut picture = Picture::new(width, height, DARK.panel);
    let whole = Area {
        left: 0.0,
        top: 0.0,
        width,
        height,
    };
    picture.image(whole, image.resized(width as u32, height as u32));
    let scale = width / f64::from(image.width());
    for frame in frames {
        let shown = frame.edges.iter().filter_map(|edge| {
            let scaled = edge.map(|end| end.map(|v| v * scale));
            within(scaled, [width, height])
        });
        let shown: Vec<[[f64; 2]; 2]> = shown.collect();
        for (colour, stroke) in [([0; 3], RIM), (frame.colour, WIRE)] {
            let opacity = if stroke == RIM { 0.35 } else { 1.0 };
            for edge in &shown {
                picture.line(edge.to_vec(), Stroke::new(colour, stroke).faded(opacity));
            }
        }
    }
    picture
}

/// The part of a line inside of a picture: lines that come from right beside a camera are very long.
fn within(line: [[f64; 2]; 2], size: [f64; 2]) -> Option<[[f64; 2]; 2]> {
    if !line.as_flattened().iter().all(|v| v.is_finite()) {
        return None;
    }
    let [from, to] = line;
    let (mut start, mut end) = (0.0f64, 1.0f64);
    for axis in 0..2 {
        let way = to[axis] - from[axis];
        let [low, high] = [-from[axis], size[axis] - from[axis]];
        if way == 0.0 {
            if low > 0.0 || high < 0.0 {
                return None;
            }
            continue;
        }
        let (near, far) = (low / way, high / way);
        start = start.max(near.min(far));
        end = end.min(near.max(far));
    }
    let at = |share: f64| [0, 1].map(|axis| from[axis] + share * (to[axis] - from[axis]));
    (start < end).then(|| [at(start), at(end)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_lie_where_they_lie_and_are_cut_at_the_border() {
        let image = Pixels::filled(100, 50, [0; 3]);
        let edges = [
            [[-1e9, 25.0], [1e9, 25.0]],
            [[10.0, -50.0], [10.0, -10.0]],
            [[f64::NAN, 0.0], [50.0, 40.0]],
        ];
        let green = [0, 200, 0];
        let frame = Wireframe {
            edges: &edges,
            colour: green,
        };
        let pixels = draw_wireframes(&image, &[frame], 200, 200).to_pixels();
        assert_eq!(pixels.at(20, 50), Some(green));
        assert_eq!(pixels.at(180, 50), Some(green));
        assert_eq!(pixels.at(20, 10), Some([0; 3]));
    }
}
