use crate::material::Material;
use crate::shape::Shape::{Cuboid, Taper, Wheel};
use crate::solid::Part;

use super::{BUS, CAR, OTHER_VEHICLE, TRUCK, centred};

fn wheels(at_x: &[f64], width: f64, radius: f64, thickness: f64, class: u16) -> Vec<Part> {
    let pair = |x: f64| {
        [1.0, -1.0].map(|side| {
            let (outer, inner) = (side * 0.5 * width, side * (0.5 * width - thickness));
            let y = [outer.min(inner), outer.max(inner)];
            Part::new(
                Wheel,
                [x - radius, x + radius],
                y,
                [0.0, 2.0 * radius],
                Material::RUBBER,
                class,
            )
        })
    };
    at_x.iter().copied().flat_map(pair).collect()
}

pub(super) fn car([l, w, h]: [f64; 3], paint: Material) -> Vec<Part> {
    let (front, back, belt) = (0.5 * l, -0.5 * l, 0.58 * h);
    let mut parts = vec![
        Part::new(
            Cuboid,
            [back, front],
            centred(w - 0.06),
            [0.2, 0.46 * h],
            paint,
            CAR,
        ),
        // Shoulders, slightly narrower, with a falling bonnet.
        Part::new(
            Taper([0.94, 0.94]),
            [back, front],
            centred(w - 0.06),
            [0.46 * h, belt],
            paint,
            CAR,
        ),
        Part::new(
            Taper([0.66, 0.82]),
            [back + 0.05 * l, front - 0.24 * l],
            centred(0.92 * w),
            [belt, h - 0.04],
            Material::GLASS,
            CAR,
        ),
        Part::new(
            Cuboid,
            [back + 0.17 * l, front - 0.37 * l],
            centred(0.72 * w),
            [h - 0.05, h],
            paint,
            CAR,
        ),
        // Lights and plates answer strongly.
        Part::new(
            Cuboid,
            [back, back + 0.03],
            centred(0.5),
            [0.4 * h, 0.47 * h],
            Material::RETROREFLECTOR,
            CAR,
        ),
        Part::new(
            Cuboid,
            [front - 0.03, front],
            centred(0.5),
            [0.24 * h, 0.3 * h],
            Material::RETROREFLECTOR,
            CAR,
        ),
    ];
    parts.extend(wheels(&[0.3 * l, -0.3 * l], w, 0.33, 0.22, CAR));
    parts
}

pub(super) fn truck([l, w, h]: [f64; 3], paint: Material) -> Vec<Part> {
    let (front, back) = (0.5 * l, -0.5 * l);
    let cab = 0.28 * l;
    let mut parts = vec![
        Part::new(
            Cuboid,
            [front - cab, front],
            centred(w - 0.1),
            [0.45, 0.5 * h],
            paint,
            TRUCK,
        ),
        Part::new(
            Taper([0.85, 0.95]),
            [front - cab, front],
            centred(w - 0.1),
            [0.5 * h, 0.85 * h],
            Material::GLASS,
            TRUCK,
        ),
        Part::new(
            Cuboid,
            [back, front - cab - 0.15],
            centred(w),
            [0.95, h],
            paint,
            TRUCK,
        ),
        Part::new(
            Cuboid,
            [back, front - cab],
            centred(0.9),
            [0.55, 0.95],
            Material::METAL,
            TRUCK,
        ),
        Part::new(
            Cuboid,
            [back, back + 0.04],
            centred(0.8 * w),
            [1.0, 1.1],
            Material::RETROREFLECTOR,
            TRUCK,
        ),
    ];
    parts.extend(wheels(&[0.34 * l, -0.27 * l], w, 0.48, 0.3, TRUCK));
    parts
}

pub(super) fn bus([l, w, h]: [f64; 3], paint: Material) -> Vec<Part> {
    let x = centred(l);
    let mut parts = vec![
        Part::new(Cuboid, x, centred(w), [0.35, 0.42 * h], paint, BUS),
        Part::new(
            Cuboid,
            x,
            centred(w - 0.06),
            [0.42 * h, 0.78 * h],
            Material {
                loss: 0.3,
                ..Material::GLASS
            },
            BUS,
        ),
        Part::new(Cuboid, x, centred(w), [0.78 * h, h], paint, BUS),
    ];
    parts.extend([-0.25, 0.0, 0.25].map(|at| {
        Part::new(
            Cuboid,
            [at * l - 0.1, at * l + 0.1],
            centred(w),
            [0.42 * h, 0.78 * h],
            paint,
            BUS,
        )
    }));
    parts.extend(wheels(&[0.32 * l, -0.28 * l], w, 0.5, 0.3, BUS));
    parts
}

pub(super) fn trailer([l, w, h]: [f64; 3], paint: Material) -> Vec<Part> {
    let mut parts = vec![
        Part::new(
            Cuboid,
            centred(l),
            centred(w),
            [1.15, h],
            paint,
            OTHER_VEHICLE,
        ),
        Part::new(
            Cuboid,
            [-0.5 * l, 0.45 * l],
            centred(1.0),
            [0.85, 1.15],
            Material::METAL,
            OTHER_VEHICLE,
        ),
        Part::new(
            Cuboid,
            [-0.5 * l, -0.5 * l + 0.04],
            centred(0.9 * w),
            [0.9, 1.05],
            Material::RETROREFLECTOR,
            OTHER_VEHICLE,
        ),
        // The landing legs.
        Part::new(
            Cuboid,
            [0.28 * l, 0.3 * l],
            centred(1.4),
            [0.0, 0.9],
            Material::METAL,
            OTHER_VEHICLE,
        ),
    ];
    parts.extend(wheels(&[-0.24 * l, -0.36 * l], w, 0.5, 0.35, OTHER_VEHICLE));
    parts
}

pub(super) fn construction_vehicle([l, w, h]: [f64; 3]) -> Vec<Part> {
    let track = |side: f64| {
        let y = [side * 0.5 * w, side * (0.5 * w - 0.5)];
        let y = [y[0].min(y[1]), y[0].max(y[1])];
        Part::new(
            Taper([0.8, 1.0]),
            [-0.5 * l, 0.14 * l],
            y,
            [0.0, 0.8],
            Material::METAL,
            OTHER_VEHICLE,
        )
    };
    let boom_height = 0.62 * h;
    vec![
        track(1.0),
        track(-1.0),
        Part::new(
            Cuboid,
            [-0.5 * l, 0.12 * l],
            centred(0.85 * w),
            [0.85, 0.5 * h],
            Material::DIGGER_YELLOW,
            OTHER_VEHICLE,
        ),
        Part::new(
            Taper([0.85, 0.95]),
            [-0.2 * l, 0.12 * l],
            [0.02, 0.42 * w],
            [0.5 * h, h],
            Material::GLASS,
            OTHER_VEHICLE,
        ),
        Part::new(
            Cuboid,
            [0.0, 0.36 * l],
            [-0.35, -0.02],
            [boom_height - 0.17, boom_height + 0.17],
            Material::DIGGER_YELLOW,
            OTHER_VEHICLE,
        )
        .pitched(-0.5),
        Part::new(
            Cuboid,
            [0.33 * l, 0.33 * l + 0.28],
            [-0.33, -0.04],
            [0.5, 0.78 * h],
            Material::DIGGER_YELLOW,
            OTHER_VEHICLE,
        ),
        Part::new(
            Taper([0.6, 1.0]),
            [0.3 * l, 0.5 * l],
            centred(0.4 * w),
            [0.0, 0.75],
            Material::METAL,
            OTHER_VEHICLE,
        ),
    ]
}
