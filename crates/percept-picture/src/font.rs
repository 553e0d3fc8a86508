//! The embedded typeface: widths of texts, and glyphs as outlines.

use std::sync::OnceLock;

use tiny_skia::{Path, PathBuilder};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// How heavy letters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    Regular,
    Medium,
}

static REGULAR: &[u8] = include_bytes!("../font/Roboto-Regular.ttf");
static MEDIUM: &[u8] = include_bytes!("../font/Roboto-Medium.ttf");

impl Weight {
    fn face(self) -> &'static Face<'static> {
        static FACES: OnceLock<[Face<'static>; 2]> = OnceLock::new();
        let faces = FACES.get_or_init(|| {
            [REGULAR, MEDIUM].map(|font| Face::parse(font, 0).expect("the embedded font is whole"))
        });
        match self {
            Self::Regular => &faces[0],
            Self::Medium => &faces[1],
        }
    }

    /// Each glyph of `text` with its distance from the text's left edge, in pixels, and the width of all of them.
    fn layout(self, size: f64, text: &str) -> (Vec<(GlyphId, f64)>, f64) {
        let face = self.face();
        let scale = size / f64::from(face.units_per_em());
        let mut width = 0.0;
        let glyphs = text
            .chars()
            .filter(|letter| !letter.is_control())
            .map(|letter| {
                // Glyph 0 is the box that stands for unknown letters.
                let glyph = face.glyph_index(letter).unwrap_or(GlyphId(0));
                let left = width;
                width += scale * f64::from(face.glyph_hor_advance(glyph).unwrap_or(0));
                (glyph, left)
            })
            .collect();
        (glyphs, width)
    }

    /// The width of `text` in pixels, its letters `size` pixels to the em.
    pub(crate) fn text_width(self, size: f64, text: &str) -> f64 {
        self.layout(size, text).1
    }

    /// The outline of `text` with the left end of its baseline at the origin; none when nothing of it is visible.
    pub(crate) fn outline(self, size: f64, text: &str) -> Option<Path> {
        let face = self.face();
        let scale = (size / f64::from(face.units_per_em())) as f32;
        let mut path = PathBuilder::new();
        for (glyph, left) in self.layout(size, text).0 {
            let mut pen = Pen {
                path: &mut path,
                left: left as f32,
                scale,
            };
            face.outline_glyph(glyph, &mut pen);
        }
        path.finish()
    }

    /// `text`, cut short with an ellipsis where it is wider than `width` pixels.
    pub(crate) fn fit(self, size: f64, text: &str, width: f64) -> String {
        if self.text_width(size, text) <= width {
            return text.to_owned();
        }
        let mut short = String::new();
        for letter in text.chars() {
            short.push(letter);
            if self.text_width(size, &format!("{short}…")) > width {
                short.pop();
                break;
            }
        }
        format!("{}…", short.trim_end())
    }
}

/// Draws a glyph, whose y points up, at its place in a line of text, whose y points down.
struct Pen<'a> {
    path: &'a mut PathBuilder,
    left: f32,
    scale: f32,
}

impl Pen<'_> {
    fn at(&self, x: f32, y: f32) -> [f32; 2] {
        [self.left + self.scale * x, -self.scale * y]
    }
}

impl OutlineBuilder for Pen<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let [x, y] = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let [x, y] = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ([x1, y1], [x, y]) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ([x1, y1], [x2, y2], [x, y]) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_what_tables_and_axes_say() {
        let letters = ('!'..='~').chain("äéßøŁ°µ×±²³→←↑↓−≤≥≈∞√…–—·Δσα‰₀⁹".chars());
        for weight in [Weight::Regular, Weight::Medium] {
            for letter in letters.clone() {
                assert!(weight.face().glyph_index(letter).is_some(), "{letter}");
                assert!(weight.outline(12.0, &letter.to_string()).is_some());
            }
        }
    }

    #[test]
    fn widths_add_up_and_grow_with_the_size() {
        let width = |text| Weight::Regular.text_width(10.0, text);
        assert!((width("percept") - width("per") - width("cept")).abs() < 1e-9);
        assert!((Weight::Regular.text_width(20.0, "m") - 2.0 * width("m")).abs() < 1e-9);
        // Figures are as wide as each other, so that columns of numbers stand.
        assert_eq!(width("1111"), width("8088"));
        assert!(width("W") > width("i"));
    }

    #[test]
    fn unknown_letters_show_as_boxes_and_control_characters_not_at_all() {
        assert!(Weight::Regular.outline(12.0, "漢").is_some());
        assert!(Weight::Regular.outline(12.0, "\n\t ").is_none());
        assert_eq!(
            Weight::Regular.text_width(12.0, "a\nb"),
            Weight::Regular.text_width(12.0, "ab")
        );
    }

    #[test]
    fn long_texts_are_cut_to_the_width() {
        let fit = |width| Weight::Regular.fit(12.0, "construction vehicle", width);
        assert_eq!(fit(500.0), "construction vehicle");
        let short = fit(80.0);
        assert!(
            short.starts_with("constr") && short.ends_with('…'),
            "{short}"
        );
        assert!(Weight::Regular.text_width(12.0, &short) <= 80.0);
        assert_eq!(fit(0.0), "…");
    }
}
