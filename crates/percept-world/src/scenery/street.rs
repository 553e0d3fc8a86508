//! What stands on pavements and yards.

use crate::material::Material;
use crate::shape::Shape::{Cone, Cuboid, Cylinder};
use crate::solid::Part;
use percept_data::random::Draws;

use super::{OTHER_GROUND, OTHER_OBJECT, OTHER_STRUCTURE, POLE, SIGN, centred};

/// A street lamp, its arm along x.
pub(crate) fn lamp() -> Vec<Part> {
    vec![
        Part::new(
            Cylinder,
            centred(0.22),
            centred(0.22),
            [-0.3, 7.5],
            Material::METAL,
            POLE,
        ),
        Part::new(
            Cuboid,
            [0.0, 1.9],
            centred(0.12),
            [7.35, 7.5],
            Material::METAL,
            POLE,
        ),
        Part::new(
            Cuboid,
            [1.3, 2.0],
            centred(0.3),
            [7.2, 7.35],
            Material::METAL,
            POLE,
        ),
    ]
}

/// A traffic sign that faces along -x.
pub(crate) fn sign(draws: &mut Draws) -> Vec<Part> {
    let side = draws.range(0.55, 0.95);
    vec![
        Part::new(
            Cylinder,
            centred(0.08),
            centred(0.08),
            [-0.3, 2.3 + side],
            Material::METAL,
            POLE,
        ),
        Part::new(
            Cuboid,
            [-0.07, -0.04],
            centred(side),
            [2.2, 2.2 + side],
            Material::sign_face(side),
            SIGN,
        ),
    ]
}

/// A traffic light on a mast arm along x.
pub(crate) fn traffic_light() -> Vec<Part> {
    vec![
        Part::new(
            Cylinder,
            centred(0.24),
            centred(0.24),
            [-0.3, 6.0],
            Material::METAL,
            POLE,
        ),
        Part::new(
            Cuboid,
            [0.0, 4.2],
            centred(0.16),
            [5.7, 5.9],
            Material::METAL,
            POLE,
        ),
        Part::new(
            Cuboid,
            [3.6, 4.0],
            centred(0.35),
            [4.9, 5.9],
            Material::LAMP_HOUSING,
            SIGN,
        ),
        Part::new(
            Cuboid,
            centred(0.3),
            [0.12, 0.42],
            [2.3, 3.2],
            Material::LAMP_HOUSING,
            SIGN,
        ),
    ]
}

/// A bin, a hydrant or a cabinet.
pub(crate) fn street_box(draws: &mut Draws) -> Vec<Part> {
    let (side, height) = (draws.range(0.35, 0.8), draws.range(0.7, 1.3));
    let shape = if draws.chance(0.5) { Cylinder } else { Cuboid };
    vec![Part::new(
        shape,
        centred(side),
        centred(side),
        [-0.2, height],
        Material::cabinet(side + height),
        OTHER_OBJECT,
    )]
}

pub(crate) fn bench() -> Vec<Part> {
    vec![
        Part::new(
            Cuboid,
            centred(0.5),
            centred(1.8),
            [0.38, 0.45],
            Material::WOOD,
            OTHER_OBJECT,
        ),
        Part::new(
            Cuboid,
            [-0.28, -0.22],
            centred(1.8),
            [0.45, 0.9],
            Material::WOOD,
            OTHER_OBJECT,
        ),
        Part::new(
            Cuboid,
            [-0.2, 0.2],
            centred(1.5),
            [-0.2, 0.38],
            Material::METAL,
            OTHER_OBJECT,
        ),
    ]
}

/// A bus stop's shelter, open along -y.
pub(crate) fn shelter() -> Vec<Part> {
    let pane = Material {
        loss: 0.5,
        ..Material::GLASS
    };
    vec![
        Part::new(
            Cuboid,
            centred(4.0),
            [0.62, 0.68],
            [0.2, 2.3],
            pane,
            OTHER_STRUCTURE,
        ),
        Part::new(
            Cuboid,
            centred(4.2),
            centred(1.5),
            [2.3, 2.42],
            Material::METAL,
            OTHER_STRUCTURE,
        ),
        Part::new(
            Cuboid,
            [-2.0, -1.94],
            [-0.3, 0.65],
            [-0.2, 2.3],
            pane,
            OTHER_STRUCTURE,
        ),
        Part::new(
            Cuboid,
            [1.94, 2.0],
            [-0.3, 0.65],
            [-0.2, 2.3],
            pane,
            OTHER_STRUCTURE,
        ),
    ]
}

/// A shipping container.
pub(crate) fn container(draws: &mut Draws) -> Vec<Part> {
    let length = if draws.chance(0.5) { 6.1 } else { 12.2 };
    let steel = Material::sheet(draws.range(0.2, 0.5));
    vec![Part::new(
        Cuboid,
        centred(length),
        centred(2.44),
        [-0.4, 2.5],
        steel,
        OTHER_OBJECT,
    )]
}

/// A heap of soil or gravel.
pub(crate) fn heap(draws: &mut Draws) -> Vec<Part> {
    let reach = draws.range(2.0, 4.5);
    let round = [-reach, reach];
    vec![Part::new(
        Cone,
        round,
        round,
        [-0.6, 0.55 * reach],
        Material::GRAVEL,
        OTHER_GROUND,
    )]
}
