//! Buildings, whole and unfinished.

use crate::material::Material;
use crate::shape::Shape::{Cuboid, Taper};
use crate::solid::Part;
use percept_data::random::Draws;

use super::{BUILDING, FOUNDATION_M, OTHER_STRUCTURE, centred};

/// A tower block: storeys over a recessed ground floor, sometimes stepped.
pub(crate) fn tower([l, w]: [f64; 2], height: f64, draws: &mut Draws) -> Vec<Part> {
    let wall = Material::facade(draws.range(0.15, 0.5));
    let glazed = Material {
        loss: 0.45,
        ..Material::shopfront(0.2, &wall)
    };
    let ground_floor = 3.6;
    let mut parts = vec![
        Part::new(
            Cuboid,
            centred(l - 1.2),
            centred(w - 1.2),
            [-FOUNDATION_M, ground_floor],
            glazed,
            BUILDING,
        ),
        Part::new(
            Cuboid,
            centred(l),
            centred(w),
            [ground_floor, height],
            wall,
            BUILDING,
        ),
    ];
    for x in [-0.5 * l, 0.5 * l - 0.5] {
        for y in [-0.5 * w, 0.5 * w - 0.5] {
            parts.push(Part::new(
                Cuboid,
                [x, x + 0.5],
                [y, y + 0.5],
                [-FOUNDATION_M, ground_floor],
                wall,
                BUILDING,
            ));
        }
    }
    // Balconies or bays on the long sides, every storey or two.
    let bays = draws.below(4);
    for bay in 0..bays {
        let x = (bay as f64 + 0.5) / bays as f64 * l - 0.5 * l;
        parts.push(Part::new(
            Cuboid,
            [x - 1.4, x + 1.4],
            centred(w + 1.8),
            [5.0, 0.85 * height],
            wall,
            BUILDING,
        ));
    }
    if draws.chance(0.5) {
        parts.push(Part::new(
            Cuboid,
            centred(0.6 * l),
            centred(0.6 * w),
            [height, height + 9.0],
            wall,
            BUILDING,
        ));
    }
    parts
}

/// A house with a gable roof, a porch and a chimney.
pub(crate) fn house([l, w]: [f64; 2], draws: &mut Draws) -> Vec<Part> {
    let wall = Material::facade(draws.range(0.25, 0.55));
    let roof = Material::roof(0.2, &wall);
    let chimney = Material::brick(&wall);
    let eaves = draws.range(3.0, 6.2);
    vec![
        Part::new(
            Cuboid,
            centred(l),
            centred(w),
            [-FOUNDATION_M, eaves],
            wall,
            BUILDING,
        ),
        Part::new(
            Taper([1.0, 0.0]),
            centred(l + 0.8),
            centred(w + 0.8),
            [eaves, eaves + 0.36 * w],
            roof,
            BUILDING,
        ),
        Part::new(
            Cuboid,
            [0.2 * l, 0.2 * l + 0.6],
            [0.1 * w, 0.1 * w + 0.6],
            [eaves, eaves + 0.42 * w],
            chimney,
            BUILDING,
        ),
        Part::new(
            Cuboid,
            [-0.15 * l, 0.15 * l],
            [-0.5 * w - 1.4, -0.5 * w],
            [-FOUNDATION_M, 2.6],
            wall,
            BUILDING,
        ),
    ]
}

/// A long low hall with gates and a shallow roof.
pub(crate) fn hall([l, w]: [f64; 2], draws: &mut Draws) -> Vec<Part> {
    let sheet = Material::sheet(draws.range(0.3, 0.6));
    let eaves = draws.range(6.0, 10.0);
    let mut parts = vec![
        Part::new(
            Cuboid,
            centred(l),
            centred(w),
            [-FOUNDATION_M, eaves],
            sheet,
            BUILDING,
        ),
        Part::new(
            Taper([1.0, 0.0]),
            centred(l),
            centred(w),
            [eaves, eaves + 0.08 * w],
            sheet,
            BUILDING,
        ),
    ];
    for gate in 0..4 {
        let x = (f64::from(gate) + 0.5) / 4.0 * l - 0.5 * l;
        let canopy = [-0.5 * w - 1.5, -0.5 * w];
        parts.push(Part::new(
            Cuboid,
            [x - 2.2, x + 2.2],
            canopy,
            [4.4, 4.8],
            Material::METAL,
            BUILDING,
        ));
    }
    parts
}

/// The bare frame of a building that is being made: slabs on columns.
pub(crate) fn skeleton([l, w]: [f64; 2], draws: &mut Draws) -> Vec<Part> {
    let storeys = 2 + draws.below(4);
    let mut parts = Vec::new();
    for storey in 1..=storeys {
        let z = 3.4 * storey as f64;
        parts.push(Part::new(
            Cuboid,
            centred(l),
            centred(w),
            [z - 0.3, z],
            Material::CONCRETE,
            OTHER_STRUCTURE,
        ));
    }
    let top = 3.4 * storeys as f64;
    for i in 0..4 {
        for j in 0..3 {
            let (x, y) = (
                (f64::from(i) / 3.0 - 0.5) * (l - 0.6),
                (f64::from(j) / 2.0 - 0.5) * (w - 0.6),
            );
            let (x, y) = ([x - 0.25, x + 0.25], [y - 0.25, y + 0.25]);
            parts.push(Part::new(
                Cuboid,
                x,
                y,
                [-FOUNDATION_M, top],
                Material::CONCRETE,
                OTHER_STRUCTURE,
            ));
        }
    }
    parts
}
