//! Pictures of what networks see and say, as PNG and SVG.
//!
//! Every function takes plain slices and returns a [`Picture`]: shapes that become pixels with anti-aliased lines and a real
//! font ([`Picture::to_png`]), or an SVG file ([`Picture::to_svg`]). The same description gives the same bytes on every
//! machine.

mod bars;
mod bev;
mod birds_eye;
mod canvas;
mod chart;
mod classes;
mod colours;
mod font;
mod legend;
mod mask;
mod matches;
mod overlay;
mod picture;
mod pixels;
mod range_image;
mod ranking;
mod svg;
mod theme;
mod tiles;
mod wires;

pub use bars::{BarColumn, Bars, ProfileRow, draw_profile};
pub use bev::{DrawnBox, DrawnPoint};
pub use birds_eye::{BirdsEye, PointColours, draw_birds_eye};
pub use chart::{Axis, Better, Chart, Mark, Panel, Scale, Series, pareto_front};
pub use classes::draw_classes;
pub use colours::{Colour, class_colours};
pub use mask::{DrawnMask, Mask, MaskError};
pub use matches::{MatchView, draw_matches};
pub use overlay::{ImageBox, Overlay};
pub use picture::Picture;
pub use pixels::{Pixels, PixelsError};
pub use range_image::{Scanner, draw_scan};
pub use tiles::{Neighbour, Tile, draw_grid, draw_neighbours, draw_surround};
pub use wires::{Wireframe, draw_wireframes};
