//! The sizes and colours that all pictures share.

use super::canvas::Colour;

pub(super) const BACKGROUND: Colour = [14, 16, 22];
pub(super) const PANEL: Colour = [19, 22, 30];
pub(super) const INK: Colour = [206, 212, 224];
pub(super) const FAINT_INK: Colour = [122, 130, 148];
pub(super) const GRID: Colour = [70, 78, 96];

pub(super) const MARGIN: u32 = 16;
pub(super) const BEV_SIDE: u32 = 1000;
pub(super) const LEGEND_WIDTH: u32 = 232;
pub(super) const TITLE_SCALE: u32 = 3;
pub(super) const TEXT_SCALE: u32 = 2;
