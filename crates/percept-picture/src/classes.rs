//! An image and what a network takes it for.

use crate::colours::{ON_DARK, mix};
use crate::overlay::fitting;
use crate::picture::{Area, Picture};
use crate::pixels::Pixels;
use crate::ranking::{ROW_HEIGHT, Ranked, draw_ranking};
use crate::theme::{DARK, MARGIN};

const IMAGE_ROOM: [f64; 2] = [520.0, 480.0];
const LIST_WIDTH: f64 = 360.0;

/// Draws an image, and beside it its likeliest classes with their probabilities, 0 to 1.
///
/// ```
/// use percept_picture::{Pixels, draw_classes};
///
/// let image = Pixels::new(2, 2, vec![200; 12])?;
/// let picture = draw_classes("cat.jpg", &image, &[("tabby", 0.81), ("tiger cat", 0.14)]);
/// assert!(picture.to_svg().contains("81.0 %"));
/// # Ok::<(), percept_picture::PixelsError>(())
/// ```
pub fn draw_classes(title: &str, image: &Pixels, classes: &[(&str, f64)]) -> Picture {
    let [width, height] = fitting(image, IMAGE_ROOM);
    let list_height = classes.len() as f64 * ROW_HEIGHT;
    let (mut picture, top) = Picture::titled(
        &DARK,
        title,
        width + MARGIN + LIST_WIDTH,
        height.max(list_height),
    );
    let area = Area {
        left: MARGIN,
        top,
        width,
        height,
    };
    picture.image(area, image.resized(width as u32, height as u32));
    let rows: Vec<Ranked> = classes
        .iter()
        .enumerate()
        .map(|(place, (name, probability))| Ranked {
            name: (*name).to_owned(),
            number: format!("{:.1} %", 100.0 * probability),
            share: *probability,
            colour: match place {
                0 => ON_DARK[0],
                _ => mix(ON_DARK[0], DARK.background, 0.45),
            },
        })
        .collect();
    draw_ranking(
        &mut picture,
        [area.right() + MARGIN, top],
        LIST_WIDTH,
        &rows,
    );
    picture
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_classes_are_likely() {
        let image = Pixels::filled(10, 10, [40; 3]);
        let pixels = draw_classes("a cup", &image, &[("cup", 0.75), ("mug", f64::NAN)]).to_pixels();
        let length = |y: u32| {
            (0..pixels.width())
                .filter(|x| pixels.at(*x, y) == Some(ON_DARK[0]))
                .count()
        };
        assert_eq!(length(56 + 26), 270);
        assert_eq!(length(56 + 26 + 44), 0);
    }

    #[test]
    fn no_class_and_long_names_are_drawn() {
        let image = Pixels::filled(3, 900, [40; 3]);
        assert_eq!(draw_classes("", &image, &[]).size()[1], 520);
        let long = "a very long name ".repeat(20);
        let svg = draw_classes("", &image, &[(&long, 0.5)]).to_svg();
        assert!(svg.contains("a very long name") && !svg.contains(long.trim_end()));
    }
}
