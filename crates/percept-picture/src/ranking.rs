//! Names with bars and numbers, the best first, beside an image.

use crate::colours::Colour;
use crate::font::Weight;
use crate::picture::{Anchor, Area, Picture, TextStyle};
use crate::theme::{DARK, TEXT_SIZE};

pub(crate) const ROW_HEIGHT: f64 = 44.0;
const BAR_HEIGHT: f64 = 8.0;

/// One row of a ranking.
pub(crate) struct Ranked {
    pub(crate) name: String,
    pub(crate) number: String,
    /// How long the bar is, 0 to 1.
    pub(crate) share: f64,
    pub(crate) colour: Colour,
}

/// Draws rows from `top`, `width` pixels wide.
pub(crate) fn draw_ranking(
    picture: &mut Picture,
    [left, top]: [f64; 2],
    width: f64,
    rows: &[Ranked],
) {
    for (place, row) in rows.iter().enumerate() {
        let top = top + place as f64 * ROW_HEIGHT;
        let baseline = top + TEXT_SIZE;
        let number_width = Weight::Regular.text_width(TEXT_SIZE, &row.number);
        let name = Weight::Medium.fit(TEXT_SIZE, &row.name, width - number_width - 12.0);
        picture.text(
            [left, baseline],
            TextStyle::new(TEXT_SIZE, DARK.ink).medium(),
            name,
        );
        let style = TextStyle::new(TEXT_SIZE, DARK.faint_ink).anchored(Anchor::End);
        picture.text([left + width, baseline], style, row.number.as_str());
        let whole = Area {
            left,
            top: top + TEXT_SIZE + 8.0,
            width,
            height: BAR_HEIGHT,
        };
        picture.rectangle(whole, DARK.panel);
        let share = if row.share.is_nan() {
            0.0
        } else {
            row.share.clamp(0.0, 1.0)
        };
        let bar = Area {
            width: share * width,
            ..whole
        };
        picture.rectangle(bar, row.colour);
    }
}
