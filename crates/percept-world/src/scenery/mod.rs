//! Things that stand in the world for good and are not objects: buildings, trees, poles, fences.

mod border;
mod buildings;
mod plants;
mod street;

pub(crate) use border::{Border, border};
pub(crate) use buildings::{hall, house, skeleton, tower};
pub(crate) use plants::{bush, tree};
pub(crate) use street::{bench, container, heap, lamp, shelter, sign, street_box, traffic_light};

// SemanticKITTI's raw classes.
const OTHER_GROUND: u16 = 49;
const BUILDING: u16 = 50;
const FENCE: u16 = 51;
const OTHER_STRUCTURE: u16 = 52;
const VEGETATION: u16 = 70;
const TRUNK: u16 = 71;
const POLE: u16 = 80;
const SIGN: u16 = 81;
const OTHER_OBJECT: u16 = 99;

/// Foundations reach below the ground, so that slopes show no gap.
const FOUNDATION_M: f64 = 3.0;

fn centred(width: f64) -> [f64; 2] {
    [-0.5 * width, 0.5 * width]
}
