//! What runs along the border of a lot.

use crate::material::Material;
use crate::shape::Shape::Cuboid;
use crate::solid::Part;

use super::{FENCE, VEGETATION, centred};

/// The kind of a border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Border {
    Mesh,
    Pickets,
    Hedge,
    Wall,
}

/// A stretch of border along x.
pub(crate) fn border(kind: Border, length: f64) -> Vec<Part> {
    let x = centred(length);
    let posts = |height: f64, side: f64| {
        [x[0], x[1] - side].map(|at| {
            Part::new(
                Cuboid,
                [at, at + side],
                centred(side),
                [-0.6, height],
                Material::METAL,
                FENCE,
            )
        })
    };
    match kind {
        Border::Mesh => {
            let mut parts = vec![Part::new(
                Cuboid,
                x,
                centred(0.06),
                [0.05, 2.0],
                Material::MESH,
                FENCE,
            )];
            parts.extend(posts(2.1, 0.08));
            parts
        }
        Border::Pickets => {
            let wood = Material {
                density_per_m: 25.0,
                ..Material::WOOD
            };
            let mut parts = vec![Part::new(Cuboid, x, centred(0.06), [0.0, 1.1], wood, FENCE)];
            parts.extend(posts(1.2, 0.1));
            parts
        }
        Border::Hedge => vec![Part::new(
            Cuboid,
            x,
            centred(0.8),
            [-0.5, 1.3],
            Material::HEDGE,
            VEGETATION,
        )],
        Border::Wall => vec![Part::new(
            Cuboid,
            x,
            centred(0.25),
            [-0.8, 1.0],
            Material {
                reflectivity: 0.35,
                ..Material::CONCRETE
            },
            FENCE,
        )],
    }
}
