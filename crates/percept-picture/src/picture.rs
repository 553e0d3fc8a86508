//! A picture: shapes on a ground, to be drawn as pixels or written as SVG.

use crate::canvas::Canvas;
use crate::colours::Colour;
use crate::font::Weight;
use crate::pixels::Pixels;
use crate::svg;
use crate::theme::{HEADER_HEIGHT, MARGIN, TITLE_SIZE, Theme};

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Area {
    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    pub(crate) fn centre(&self) -> [f64; 2] {
        [self.left + 0.5 * self.width, self.top + 0.5 * self.height]
    }

    pub(crate) fn corners(&self) -> Vec<[f64; 2]> {
        let (right, bottom) = (self.right(), self.bottom());
        vec![
            [self.left, self.top],
            [right, self.top],
            [right, bottom],
            [self.left, bottom],
        ]
    }
}

/// What lines are drawn with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stroke {
    pub(crate) colour: Colour,
    pub(crate) opacity: f64,
    pub(crate) width: f64,
    /// Pixels that are drawn and pixels that are left out, in turn.
    pub(crate) dash: Option<[f64; 2]>,
}

impl Stroke {
    pub(crate) fn new(colour: Colour, width: f64) -> Self {
        Self {
            colour,
            opacity: 1.0,
            width,
            dash: None,
        }
    }

    pub(crate) fn faded(self, opacity: f64) -> Self {
        Self { opacity, ..self }
    }
}

/// What areas are filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fill {
    pub(crate) colour: Colour,
    pub(crate) opacity: f64,
}

impl From<Colour> for Fill {
    fn from(colour: Colour) -> Self {
        Self {
            colour,
            opacity: 1.0,
        }
    }
}

/// Which part of a text stands at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TextStyle {
    pub(crate) size: f64,
    pub(crate) weight: Weight,
    pub(crate) colour: Colour,
    pub(crate) anchor: Anchor,
    /// Whether it runs from the bottom to the top.
    pub(crate) upright: bool,
}

impl TextStyle {
    pub(crate) fn new(size: f64, colour: Colour) -> Self {
        Self {
            size,
            weight: Weight::Regular,
            colour,
            anchor: Anchor::Start,
            upright: false,
        }
    }

    pub(crate) fn medium(self) -> Self {
        Self {
            weight: Weight::Medium,
            ..self
        }
    }

    pub(crate) fn anchored(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Path {
        points: Vec<[f64; 2]>,
        closed: bool,
        fill: Option<Fill>,
        stroke: Option<Stroke>,
    },
    Circle {
        centre: [f64; 2],
        radius: f64,
        fill: Option<Fill>,
        stroke: Option<Stroke>,
    },
    /// `at` is on the baseline.
    Text {
        at: [f64; 2],
        text: String,
        style: TextStyle,
    },
    Image {
        area: Area,
        pixels: Pixels,
    },
    /// Shapes that are placed relative to the area's corner, and cut at its edges.
    Group {
        area: Area,
        shapes: Vec<Shape>,
    },
}

/// A picture that can be written as PNG and as SVG.
///
/// ```
/// use percept_picture::{BirdsEye, draw_birds_eye};
///
/// let picture = draw_birds_eye(&BirdsEye {
///     title: "an empty street",
///     ..BirdsEye::default()
/// });
/// assert!(picture.to_png().starts_with(b"\x89PNG"));
/// assert!(picture.to_svg().contains("an empty street"));
/// ```
#[derive(Clone, Debug)]
pub struct Picture {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) background: Colour,
    pub(crate) shapes: Vec<Shape>,
}

impl Picture {
    pub(crate) fn new(width: f64, height: f64, background: Colour) -> Self {
        Self {
            width: width.round().max(1.0),
            height: height.round().max(1.0),
            background,
            shapes: Vec::new(),
        }
    }

    /// Width and height in pixels.
    pub fn size(&self) -> [u32; 2] {
        [self.width as u32, self.height as u32]
    }

    /// The picture drawn.
    pub fn to_pixels(&self) -> Pixels {
        let mut canvas = Canvas::new(self.size(), self.background);
        canvas.draw(&self.shapes);
        canvas.into_pixels()
    }

    /// The picture as the bytes of a PNG file.
    pub fn to_png(&self) -> Vec<u8> {
        self.to_pixels().to_png()
    }

    /// The picture as an SVG file.
    pub fn to_svg(&self) -> String {
        svg::write(self)
    }

    /// A picture with a margin around what it holds, and a title above it; and where that begins.
    pub(crate) fn titled(theme: &Theme, title: &str, width: f64, height: f64) -> (Self, f64) {
        let top = match title.is_empty() {
            true => MARGIN,
            false => HEADER_HEIGHT,
        };
        let mut picture = Self::new(
            width + 2.0 * MARGIN,
            top + height + MARGIN,
            theme.background,
        );
        if !title.is_empty() {
            let style = TextStyle::new(TITLE_SIZE, theme.ink).medium();
            let fitting = Weight::Medium.fit(TITLE_SIZE, title, width);
            picture.text([MARGIN, MARGIN + 16.0], style, fitting);
        }
        (picture, top)
    }

    pub(crate) fn rectangle(&mut self, area: Area, fill: impl Into<Fill>) {
        self.polygon(area.corners(), fill);
    }

    pub(crate) fn polygon(&mut self, points: Vec<[f64; 2]>, fill: impl Into<Fill>) {
        self.shapes.push(Shape::Path {
            points,
            closed: true,
            fill: Some(fill.into()),
            stroke: None,
        });
    }

    pub(crate) fn outline(&mut self, points: Vec<[f64; 2]>, stroke: Stroke) {
        self.shapes.push(Shape::Path {
            points,
            closed: true,
            fill: None,
            stroke: Some(stroke),
        });
    }

    pub(crate) fn line(&mut self, points: Vec<[f64; 2]>, stroke: Stroke) {
        self.shapes.push(Shape::Path {
            points,
            closed: false,
            fill: None,
            stroke: Some(stroke),
        });
    }

    pub(crate) fn circle(&mut self, centre: [f64; 2], radius: f64, stroke: Stroke) {
        self.shapes.push(Shape::Circle {
            centre,
            radius,
            fill: None,
            stroke: Some(stroke),
        });
    }

    pub(crate) fn text(&mut self, at: [f64; 2], style: TextStyle, text: impl Into<String>) {
        self.shapes.push(Shape::Text {
            at,
            text: text.into(),
            style,
        });
    }

    pub(crate) fn image(&mut self, area: Area, pixels: Pixels) {
        self.shapes.push(Shape::Image { area, pixels });
    }

    /// Another picture as a part of this one.
    pub(crate) fn place(&mut self, [left, top]: [f64; 2], part: Picture) {
        let area = Area {
            left,
            top,
            width: part.width,
            height: part.height,
        };
        if part.background != self.background {
            self.rectangle(area, part.background);
        }
        self.shapes.push(Shape::Group {
            area,
            shapes: part.shapes,
        });
    }
}
