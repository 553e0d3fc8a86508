//! What stands on tables: kinds of things made of simple solids.
//!
//! Every recipe stands on z = 0 and fits into a circle around the origin.

use percept_data::random::Draws;

use crate::look::{Light, Look, Pattern, paint};
use crate::material::Material;
use crate::shape::Shape::{Cone, Cuboid, Cylinder, Ellipsoid, Taper, Wheel};
use crate::solid::Part;

/// A kind of thing; its number plus one is its class in pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cup,
    Bowl,
    Plate,
    Bottle,
    Can,
    Carton,
    Jar,
    Book,
    Hammer,
    Screwdriver,
    Knife,
    Pan,
    Teapot,
    Apple,
    Tape,
    Phone,
    Brush,
    ToyCar,
}

impl Kind {
    pub(crate) const ALL: [Self; 18] = [
        Self::Cup,
        Self::Bowl,
        Self::Plate,
        Self::Bottle,
        Self::Can,
        Self::Carton,
        Self::Jar,
        Self::Book,
        Self::Hammer,
        Self::Screwdriver,
        Self::Knife,
        Self::Pan,
        Self::Teapot,
        Self::Apple,
        Self::Tape,
        Self::Phone,
        Self::Brush,
        Self::ToyCar,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cup => "cup",
            Self::Bowl => "bowl",
            Self::Plate => "plate",
            Self::Bottle => "bottle",
            Self::Can => "can",
            Self::Carton => "carton",
            Self::Jar => "jar",
            Self::Book => "book",
            Self::Hammer => "hammer",
            Self::Screwdriver => "screwdriver",
            Self::Knife => "knife",
            Self::Pan => "pan",
            Self::Teapot => "teapot",
            Self::Apple => "apple",
            Self::Tape => "tape",
            Self::Phone => "phone",
            Self::Brush => "brush",
            Self::ToyCar => "toy_car",
        }
    }

    pub(crate) fn class(self) -> u16 {
        self as u16 + 1
    }
}

/// A thing: what it is made of, and how much room it takes.
#[derive(Clone, Debug)]
pub(crate) struct Good {
    pub(crate) kind: Kind,
    pub(crate) parts: Vec<Part>,
    pub(crate) radius_m: f64,
}

/// Colours that are told apart at a glance.
pub(crate) const PAINTS: [Light; 12] = [
    paint(200, 44, 40),
    paint(38, 92, 176),
    paint(238, 196, 46),
    paint(52, 140, 76),
    paint(236, 232, 222),
    paint(46, 46, 52),
    paint(232, 124, 40),
    paint(128, 66, 150),
    paint(70, 176, 190),
    paint(230, 150, 170),
    paint(140, 94, 60),
    paint(150, 156, 160),
];

const PATTERNS: [Pattern; 6] = [
    Pattern::Plain,
    Pattern::Bands,
    Pattern::Checks,
    Pattern::Dots,
    Pattern::Label,
    Pattern::Bands,
];

/// A look in one of the room's colours with a pattern and a second colour of its own.
pub(crate) fn look(colour: Light, draws: &mut Draws) -> Look {
    let accent = PAINTS[draws.below(PAINTS.len())];
    // A pattern in its own colour shows nothing.
    let accent = if accent == colour { PAINTS[4] } else { accent };
    let tone = draws.range(0.85, 1.1) as f32;
    Look {
        colour: colour.map(|c| (c * tone).min(1.0)),
        accent,
        pattern: PATTERNS[draws.below(PATTERNS.len())],
        gloss: draws.range(0.0, 0.08) as f32,
        seed: draws.word() as u32,
    }
}

fn centred(width: f64) -> [f64; 2] {
    [-0.5 * width, 0.5 * width]
}

/// A thing of `kind`, its size and pattern drawn at random.
pub(crate) fn good(kind: Kind, colour: Light, draws: &mut Draws) -> Good {
    let skin = Material::solid(0.4).looking(look(colour, draws));
    let plain = skin.looking(skin.look.with(Pattern::Plain));
    let accent = plain.looking(Look::plain(skin.look.accent));
    let steel = Material::METAL;
    let dark = Material::RUBBER;
    let class = kind.class();
    let scale = draws.range(0.85, 1.2);
    let part = |shape, x: [f64; 2], y: [f64; 2], z: [f64; 2], material| {
        let scaled = |v: [f64; 2]| v.map(|v| v * scale);
        Part::new(shape, scaled(x), scaled(y), scaled(z), material, class)
    };
    let round = |shape, radius: f64, z: [f64; 2], material| {
        part(shape, [-radius, radius], [-radius, radius], z, material)
    };
    let (parts, radius_m) = match kind {
        Kind::Cup => (
            vec![
                round(Cylinder, 0.042, [0.0, 0.095], skin),
                round(Cylinder, 0.036, [0.094, 0.0955], dark),
                part(Cuboid, [0.04, 0.068], centred(0.012), [0.02, 0.032], plain),
                part(Cuboid, [0.04, 0.068], centred(0.012), [0.062, 0.074], plain),
                part(Cuboid, [0.058, 0.07], centred(0.012), [0.02, 0.074], plain),
            ],
            0.07,
        ),
        Kind::Bowl => (
            vec![
                round(Cylinder, 0.04, [0.0, 0.012], plain),
                round(Ellipsoid, 0.085, [0.0, 0.1], skin),
                round(Cylinder, 0.078, [0.058, 0.1005], plain),
                round(Cylinder, 0.066, [0.1, 0.101], accent),
            ],
            0.085,
        ),
        Kind::Plate => (
            vec![
                round(Cylinder, 0.115, [0.006, 0.016], skin),
                round(Cylinder, 0.075, [0.0, 0.0165], accent),
            ],
            0.115,
        ),
        Kind::Bottle => (
            vec![
                round(Cylinder, 0.038, [0.0, 0.16], skin),
                round(Ellipsoid, 0.038, [0.13, 0.2], plain),
                round(Cylinder, 0.014, [0.16, 0.25], plain),
                round(Cylinder, 0.017, [0.235, 0.265], accent),
            ],
            0.04,
        ),
        Kind::Can => (
            vec![
                round(Cylinder, 0.034, [0.004, 0.116], skin),
                round(Cylinder, 0.031, [0.0, 0.12], steel),
            ],
            0.035,
        ),
        Kind::Carton => (
            vec![
                part(Cuboid, centred(0.085), centred(0.07), [0.0, 0.17], skin),
                part(
                    Taper([1.0, 0.0]),
                    centred(0.085),
                    centred(0.07),
                    [0.17, 0.21],
                    plain,
                ),
            ],
            0.058,
        ),
        Kind::Jar => (
            vec![
                round(Cylinder, 0.042, [0.0, 0.1], skin),
                round(Cylinder, 0.04, [0.1, 0.122], accent),
            ],
            0.044,
        ),
        Kind::Book => (
            vec![
                part(Cuboid, centred(0.15), centred(0.21), [0.0, 0.006], plain),
                part(
                    Cuboid,
                    [-0.07, 0.072],
                    centred(0.2),
                    [0.006, 0.03],
                    Material::solid(0.6).looking(Look::plain(paint(232, 226, 208))),
                ),
                part(Cuboid, centred(0.15), centred(0.21), [0.03, 0.036], skin),
                part(Cuboid, [-0.075, -0.068], centred(0.21), [0.0, 0.036], plain),
            ],
            0.13,
        ),
        Kind::Hammer => (
            vec![
                part(Cuboid, [-0.13, 0.11], centred(0.026), [0.004, 0.026], skin),
                part(Cuboid, [0.09, 0.125], centred(0.11), [0.0, 0.034], steel),
            ],
            0.135,
        ),
        Kind::Screwdriver => (
            vec![
                part(Cuboid, [-0.1, -0.005], centred(0.03), [0.0, 0.03], skin),
                part(
                    Cuboid,
                    [-0.005, 0.11],
                    centred(0.008),
                    [0.011, 0.019],
                    steel,
                ),
            ],
            0.11,
        ),
        Kind::Knife => (
            vec![
                part(Cuboid, [-0.12, -0.01], centred(0.024), [0.0, 0.018], skin),
                part(
                    Taper([1.0, 0.4]),
                    [-0.01, 0.14],
                    centred(0.03),
                    [0.006, 0.01],
                    steel,
                ),
            ],
            0.14,
        ),
        Kind::Pan => (
            vec![
                round(Cylinder, 0.11, [0.0, 0.045], plain),
                round(Cylinder, 0.102, [0.044, 0.0455], dark),
                part(Cuboid, [0.1, 0.26], centred(0.026), [0.028, 0.044], skin),
            ],
            0.2,
        ),
        Kind::Teapot => (
            vec![
                round(Ellipsoid, 0.075, [0.0, 0.13], skin),
                round(Cylinder, 0.03, [0.122, 0.136], plain),
                round(Ellipsoid, 0.012, [0.134, 0.156], accent),
                part(Cuboid, [0.05, 0.125], centred(0.02), [0.07, 0.09], plain).pitched(-0.6),
                part(
                    Cuboid,
                    [-0.115, -0.1],
                    centred(0.014),
                    [0.035, 0.105],
                    plain,
                ),
                part(
                    Cuboid,
                    [-0.112, -0.06],
                    centred(0.014),
                    [0.092, 0.106],
                    plain,
                ),
            ],
            0.12,
        ),
        Kind::Apple => (
            vec![
                round(Ellipsoid, 0.038, [0.0, 0.07], plain),
                round(Cylinder, 0.003, [0.066, 0.085], Material::BARK),
            ],
            0.04,
        ),
        Kind::Tape => (
            vec![
                round(Cylinder, 0.05, [0.0, 0.045], plain),
                round(Cylinder, 0.036, [0.044, 0.0455], accent),
                round(Cylinder, 0.03, [0.045, 0.046], dark),
            ],
            0.05,
        ),
        Kind::Phone => (
            vec![
                part(Cuboid, centred(0.075), centred(0.15), [0.0, 0.01], plain),
                part(
                    Cuboid,
                    centred(0.068),
                    centred(0.138),
                    [0.01, 0.0105],
                    Material::GLASS,
                ),
            ],
            0.085,
        ),
        Kind::Brush => (
            vec![
                part(Cuboid, [-0.11, 0.03], centred(0.03), [0.005, 0.02], skin),
                part(Cuboid, [0.03, 0.06], centred(0.06), [0.003, 0.022], steel),
                part(
                    Taper([1.0, 0.8]),
                    [0.06, 0.105],
                    centred(0.056),
                    [0.004, 0.02],
                    dark,
                ),
            ],
            0.112,
        ),
        Kind::ToyCar => (
            vec![
                part(Cuboid, centred(0.13), centred(0.058), [0.014, 0.038], skin),
                part(
                    Taper([0.7, 0.85]),
                    [-0.045, 0.03],
                    centred(0.052),
                    [0.038, 0.064],
                    plain,
                ),
                part(Wheel, [0.027, 0.055], centred(0.066), [0.0, 0.028], dark),
                part(Wheel, [-0.055, -0.027], centred(0.066), [0.0, 0.028], dark),
                part(Cone, [0.058, 0.066], centred(0.01), [0.02, 0.03], accent),
            ],
            0.075,
        ),
    };
    Good {
        kind,
        parts,
        radius_m: radius_m * scale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solid::PlacedSolid;
    use percept_data::points::Pose;

    #[test]
    fn every_kind_stands_on_the_table_within_its_circle() {
        for kind in Kind::ALL {
            for seed in 0..10 {
                let good = good(kind, PAINTS[0], &mut Draws::new(seed, 0));
                for part in &good.parts {
                    let bounds =
                        PlacedSolid::new(part, &Pose::IDENTITY, [0.0; 3], [0.0; 2], 0, 0).bounds;
                    // The corners of a round thing's box stick out of its circle, the thing does not.
                    let reach = [0, 1].map(|i| bounds.high[i].max(-bounds.low[i]));
                    let farthest = reach[0].max(reach[1]);
                    assert!(
                        farthest <= 1.36 * good.radius_m && bounds.low[2] > -0.001,
                        "{}: {farthest} of {}",
                        kind.name(),
                        good.radius_m
                    );
                }
            }
        }
    }
}
