use crate::material::Material;
use crate::shape::Shape::{Cuboid, Cylinder, Ellipsoid, Taper, Wheel};
use crate::solid::Part;

use super::{BICYCLE, BICYCLIST, MOTORCYCLE, MOTORCYCLIST, PERSON, centred};

fn person(
    x: f64,
    [w, depth]: [f64; 2],
    feet: f64,
    height: f64,
    cloth: Material,
    class: u16,
) -> Vec<Part> {
    let up = |share: f64| feet + share * height;
    let trousers = Material::trousers(&cloth);
    let skin = Material::skin(&cloth);
    vec![
        // One leg forward, one back: a person in stride.
        Part::new(
            Cylinder,
            [x + 0.02, x + 0.2],
            [0.02, 0.18],
            [feet + 0.02, up(0.5)],
            trousers,
            class,
        )
        .pitched(-0.16),
        Part::new(
            Cylinder,
            [x - 0.2, x - 0.02],
            [-0.18, -0.02],
            [feet + 0.02, up(0.5)],
            trousers,
            class,
        )
        .pitched(0.16),
        Part::new(
            Ellipsoid,
            [x - 0.5 * depth, x + 0.5 * depth],
            centred(0.72 * w),
            [up(0.42), up(0.86)],
            cloth,
            class,
        ),
        Part::new(
            Cylinder,
            [x - 0.06, x + 0.06],
            [0.5 * w - 0.12, 0.5 * w],
            [up(0.44), up(0.8)],
            cloth,
            class,
        ),
        Part::new(
            Cylinder,
            [x - 0.06, x + 0.06],
            [-0.5 * w, -0.5 * w + 0.12],
            [up(0.44), up(0.8)],
            cloth,
            class,
        ),
        Part::new(
            Ellipsoid,
            [x - 0.11, x + 0.11],
            centred(0.18),
            [up(0.86), up(1.0)],
            skin,
            class,
        ),
    ]
}

pub(super) fn pedestrian([l, w, h]: [f64; 3], cloth: Material) -> Vec<Part> {
    person(0.0, [w, 0.45 * l], 0.0, h, cloth, PERSON)
}

fn two_wheeler(
    [l, w, h]: [f64; 3],
    radius: f64,
    tyre: f64,
    spokes: Material,
    class: u16,
) -> Vec<Part> {
    let wheel = |x: f64| {
        Part::new(
            Wheel,
            [x - radius, x + radius],
            centred(tyre),
            [0.0, 2.0 * radius],
            spokes,
            class,
        )
    };
    let bar = h.min(1.15);
    vec![
        wheel(0.5 * l - radius),
        wheel(radius - 0.5 * l),
        Part::new(
            Cuboid,
            [0.24 * l, 0.29 * l],
            centred(w),
            [bar - 0.08, bar],
            Material::METAL,
            class,
        ),
        Part::new(
            Cuboid,
            [0.27 * l, 0.3 * l],
            centred(0.07),
            [0.5, bar],
            Material::METAL,
            class,
        ),
    ]
}

pub(super) fn bicycle(size: [f64; 3], cloth: Material, with_rider: bool) -> Vec<Part> {
    let [l, w, h] = size;
    let class = if with_rider { BICYCLIST } else { BICYCLE };
    let mut parts = two_wheeler(size, 0.34, 0.06, Material::SPOKES, class);
    parts.push(Part::new(
        Cuboid,
        [-0.22 * l, 0.27 * l],
        centred(0.06),
        [0.5, 0.62],
        Material::METAL,
        class,
    ));
    parts.push(Part::new(
        Cuboid,
        [-0.22 * l, -0.06 * l],
        centred(0.16),
        [0.86, 0.95],
        Material::RUBBER,
        class,
    ));
    if with_rider {
        parts.extend(person(-0.08, [w, 0.3], 0.3, h - 0.3, cloth, class));
    }
    parts
}

pub(super) fn motorcycle(
    size: [f64; 3],
    paint: Material,
    cloth: Material,
    with_rider: bool,
) -> Vec<Part> {
    let [l, w, h] = size;
    let class = if with_rider { MOTORCYCLIST } else { MOTORCYCLE };
    let mut parts = two_wheeler(size, 0.31, 0.14, Material::RUBBER, class);
    parts.push(Part::new(
        Ellipsoid,
        [-0.2 * l, 0.26 * l],
        centred(0.4),
        [0.3, 0.9],
        paint,
        class,
    ));
    parts.push(Part::new(
        Cuboid,
        [-0.4 * l, 0.02 * l],
        centred(0.28),
        [0.68, 0.82],
        Material::RUBBER,
        class,
    ));
    if !with_rider {
        parts.push(Part::new(
            Taper([0.5, 0.6]),
            [0.22 * l, 0.34 * l],
            centred(0.4),
            [0.9, h],
            Material::GLASS,
            class,
        ));
    } else {
        parts.extend(person(-0.12, [w, 0.34], 0.3, h - 0.3, cloth, class));
    }
    parts
}
