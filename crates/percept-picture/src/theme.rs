//! The sizes and colours that pictures share.

use crate::colours::Colour;

/// The colours of everything that is not data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    pub(crate) background: Colour,
    /// The ground that data is drawn on.
    pub(crate) panel: Colour,
    pub(crate) ink: Colour,
    pub(crate) faint_ink: Colour,
    pub(crate) grid: Colour,
}

/// For sensors: what glows in the dark shows best.
pub(crate) const DARK: Theme = Theme {
    background: [14, 16, 22],
    panel: [20, 23, 31],
    ink: [222, 227, 236],
    faint_ink: [142, 150, 168],
    grid: [88, 98, 120],
};

pub(crate) const MARGIN: f64 = 20.0;
pub(crate) const TITLE_SIZE: f64 = 20.0;
pub(crate) const TEXT_SIZE: f64 = 14.0;
pub(crate) const SMALL_TEXT_SIZE: f64 = 12.0;
/// From the top of a picture to what stands below its title.
pub(crate) const HEADER_HEIGHT: f64 = 56.0;

/// For charts, which stand on paper.
pub(crate) const LIGHT: Theme = Theme {
    background: [255, 255, 255],
    panel: [255, 255, 255],
    ink: [32, 36, 44],
    faint_ink: [98, 105, 118],
    grid: [224, 227, 233],
};
