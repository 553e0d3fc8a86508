//! What the colours mean, and how many there are of each.

use crate::points::ObjectClass;

use super::bev::DrawnBox;
use super::canvas::{Area, Canvas, Colour};
use super::colours;
use super::style::{FAINT_INK, INK, LEGEND_WIDTH, TEXT_SCALE};

const ROW_HEIGHT: u32 = 19;
const SWATCH: u32 = 12;

/// A column of rows, filled from the top.
pub(super) struct Legend<'a> {
    canvas: &'a mut Canvas,
    left: u32,
    top: u32,
}

impl<'a> Legend<'a> {
    pub(super) fn new(canvas: &'a mut Canvas, left: u32, top: u32) -> Self {
        Self { canvas, left, top }
    }

    /// A name and a count, with a swatch of the colour if there is one.
    pub(super) fn row(&mut self, colour: Option<Colour>, name: &str, count: usize) {
        if let Some(colour) = colour {
            self.canvas.fill(&self.swatch(SWATCH), colour);
        }
        self.text(20, name, INK);
        self.right_text(&count.to_string());
        self.top += ROW_HEIGHT;
    }

    /// The classes of some boxes, with their counts.
    pub(super) fn boxes(&mut self, boxes: &[DrawnBox]) {
        self.row(None, "boxes", boxes.len());
        for class in ObjectClass::ALL {
            let count = boxes.iter().filter(|drawn| drawn.class == class).count();
            if count > 0 {
                self.row(
                    Some(colours::of_object(class)),
                    &class.name().replace('_', " "),
                    count,
                );
            }
        }
    }

    /// A bar of colours for a number that runs from `low` to `high`.
    pub(super) fn scale(
        &mut self,
        name: &str,
        [low, high]: [f64; 2],
        colour: impl Fn(f64) -> Colour,
    ) {
        self.top += ROW_HEIGHT / 2;
        self.text(0, name, INK);
        self.top += ROW_HEIGHT;
        for column in 0..LEGEND_WIDTH {
            let share = f64::from(column) / f64::from(LEGEND_WIDTH - 1);
            let bar = Area {
                left: self.left + column,
                ..self.swatch(1)
            };
            self.canvas.fill(&bar, colour(low + share * (high - low)));
        }
        self.top += ROW_HEIGHT;
        self.text(0, &format!("{low:.0}"), FAINT_INK);
        self.right_text(&format!("{high:.0}"));
        self.top += ROW_HEIGHT;
    }

    fn swatch(&self, width: u32) -> Area {
        Area {
            left: self.left,
            top: self.top,
            width,
            height: SWATCH,
        }
    }

    fn text(&mut self, indent: u32, text: &str, colour: Colour) {
        self.canvas
            .text(self.left + indent, self.top + 1, TEXT_SCALE, text, colour);
    }

    fn right_text(&mut self, text: &str) {
        let indent = LEGEND_WIDTH - Canvas::text_width(TEXT_SCALE, text);
        self.text(indent, text, FAINT_INK);
    }
}
