//! Trees and bushes.

use crate::material::Material;
use crate::shape::Shape::{Cone, Cylinder, Ellipsoid};
use crate::solid::Part;
use percept_data::random::Draws;

use super::{TRUNK, VEGETATION};

/// A broad-leaved tree, or a conifer.
pub(crate) fn tree(draws: &mut Draws) -> Vec<Part> {
    let height = draws.range(5.0, 11.5);
    let bare = draws.range(1.8, 2.7);
    let trunk = draws.range(0.14, 0.28);
    let reach = draws.range(0.22, 0.34) * height;
    let round = [-reach, reach];
    let mut parts = vec![Part::new(
        Cylinder,
        [-trunk, trunk],
        [-trunk, trunk],
        [-0.5, 0.6 * height],
        Material::BARK,
        TRUNK,
    )];
    if draws.chance(0.25) {
        let slim = [-0.7 * reach, 0.7 * reach];
        parts.push(Part::new(
            Cone,
            slim,
            slim,
            [0.5 * bare, height],
            Material::foliage(Material::HEDGE, height),
            VEGETATION,
        ));
        return parts;
    }
    let leaves = Material::foliage(Material::LEAVES, height);
    parts.push(Part::new(
        Ellipsoid,
        round,
        round,
        [bare, height],
        leaves,
        VEGETATION,
    ));
    for _ in 0..2 {
        let (x, y) = (
            draws.range(-0.6, 0.6) * reach,
            draws.range(-0.6, 0.6) * reach,
        );
        let bough = draws.range(0.5, 0.75) * reach;
        let z = draws.range(0.45, 0.75) * height;
        let at = |v: f64| [v - bough, v + bough];
        parts.push(Part::new(
            Ellipsoid,
            at(x),
            at(y),
            [z - 0.7 * bough, z + 0.7 * bough],
            leaves,
            VEGETATION,
        ));
    }
    parts
}

pub(crate) fn bush(draws: &mut Draws) -> Vec<Part> {
    let reach = draws.range(0.4, 1.1);
    let round = [-reach, reach];
    vec![Part::new(
        Ellipsoid,
        round,
        round,
        [-0.3, 1.3 * reach],
        Material::foliage(Material::HEDGE, reach),
        VEGETATION,
    )]
}
