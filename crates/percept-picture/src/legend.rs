//! What the colours mean, and how many there are of each.

use crate::colours::{Colour, ramp};
use crate::font::Weight;
use crate::picture::{Anchor, Area, Picture, TextStyle};
use crate::pixels::Pixels;
use crate::theme::{DARK, SMALL_TEXT_SIZE, TEXT_SIZE};

pub(crate) const LEGEND_WIDTH: f64 = 220.0;
const ROW_HEIGHT: f64 = 22.0;
const SWATCH: f64 = 12.0;
const INDENT: f64 = 22.0;
const SCALE_HEIGHT: f64 = 10.0;

/// A column of rows, filled from the top.
pub(crate) struct Legend<'a> {
    picture: &'a mut Picture,
    left: f64,
    top: f64,
}

impl<'a> Legend<'a> {
    pub(crate) fn new(picture: &'a mut Picture, [left, top]: [f64; 2]) -> Self {
        Self { picture, left, top }
    }

    /// What the rows below count, and how many there are in all.
    pub(crate) fn heading(&mut self, name: &str, count: usize) {
        let style = TextStyle::new(TEXT_SIZE, DARK.ink).medium();
        self.picture.text([self.left, self.baseline()], style, name);
        self.count(count);
    }

    /// A colour, its name and a count.
    pub(crate) fn row(&mut self, colour: Colour, name: &str, count: usize) {
        let swatch = Area {
            left: self.left,
            top: self.top + 0.5 * (ROW_HEIGHT - SWATCH),
            width: SWATCH,
            height: SWATCH,
        };
        self.picture.rectangle(swatch, colour);
        let room = LEGEND_WIDTH - INDENT - Weight::Regular.text_width(TEXT_SIZE, "  0000000");
        let name = Weight::Regular.fit(TEXT_SIZE, &name.replace('_', " "), room);
        let style = TextStyle::new(TEXT_SIZE, DARK.ink);
        self.picture
            .text([self.left + INDENT, self.baseline()], style, name);
        self.count(count);
    }

    /// Room between one part and the next.
    pub(crate) fn gap(&mut self) {
        self.top += 0.6 * ROW_HEIGHT;
    }

    /// Every class that something has, in the order of the classes.
    pub(crate) fn classes(
        &mut self,
        names: &[&str],
        colours: &[Colour],
        classes: impl Iterator<Item = usize>,
    ) {
        let mut counts = vec![0; names.len()];
        for class in classes {
            if let Some(count) = counts.get_mut(class) {
                *count += 1;
            }
        }
        for ((name, colour), count) in names.iter().zip(colours).zip(counts) {
            if count > 0 {
                self.row(*colour, name, count);
            }
        }
    }

    /// A bar of colours for a number that runs from `low` to `high`.
    pub(crate) fn scale(&mut self, name: &str, [low, high]: [String; 2]) {
        let style = TextStyle::new(TEXT_SIZE, DARK.ink).medium();
        self.picture.text([self.left, self.baseline()], style, name);
        self.top += ROW_HEIGHT + 2.0;
        let mut bar = Pixels::filled(LEGEND_WIDTH as u32, 1, [0; 3]);
        for column in 0..bar.width() {
            let share = f64::from(column) / (LEGEND_WIDTH - 1.0);
            bar.blend(i64::from(column), 0, ramp(share), 1.0);
        }
        let area = Area {
            left: self.left,
            top: self.top,
            width: LEGEND_WIDTH,
            height: SCALE_HEIGHT,
        };
        self.picture.image(area, bar);
        let (right, baseline) = (self.left + LEGEND_WIDTH, self.top + SCALE_HEIGHT + 15.0);
        let style = TextStyle::new(SMALL_TEXT_SIZE, DARK.faint_ink);
        self.picture.text([self.left, baseline], style, low);
        self.picture
            .text([right, baseline], style.anchored(Anchor::End), high);
        self.top += 2.0 * ROW_HEIGHT;
    }

    fn baseline(&self) -> f64 {
        self.top + 0.5 * (ROW_HEIGHT + TEXT_SIZE * 0.71)
    }

    fn count(&mut self, count: usize) {
        let style = TextStyle::new(TEXT_SIZE, DARK.faint_ink).anchored(Anchor::End);
        let at = [self.left + LEGEND_WIDTH, self.baseline()];
        self.picture.text(at, style, count.to_string());
        self.top += ROW_HEIGHT;
    }
}
