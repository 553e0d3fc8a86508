//! What surfaces do to a laser pulse, and what they look like.

use super::look::{Light, Look, Pattern, paint};

/// How a surface answers a beam, and a look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Material {
    /// Share of the light that comes back from a perpendicular hit, 0..=1.
    pub(crate) reflectivity: f64,
    /// Share of the hits that give no return at all (glass).
    pub(crate) loss: f64,
    /// Twigs, leaves and meshes let beams through: hits per metre of way inside; infinite for solid things.
    pub(crate) density_per_m: f64,
    pub(crate) look: Look,
}

const CAR_PAINTS: [Light; 13] = [
    paint(235, 235, 232),
    paint(228, 228, 226),
    paint(30, 31, 34),
    paint(36, 36, 40),
    paint(150, 153, 158),
    paint(96, 99, 104),
    paint(170, 26, 30),
    paint(28, 62, 128),
    paint(44, 96, 160),
    paint(32, 78, 56),
    paint(190, 170, 130),
    paint(214, 150, 40),
    paint(112, 40, 46),
];
const CLOTHES: [Light; 12] = [
    paint(40, 44, 60),
    paint(180, 44, 48),
    paint(220, 216, 208),
    paint(60, 96, 150),
    paint(54, 54, 56),
    paint(96, 120, 84),
    paint(214, 170, 60),
    paint(150, 90, 130),
    paint(120, 100, 84),
    paint(70, 140, 150),
    paint(226, 130, 110),
    paint(110, 114, 122),
];
const WALLS: [Light; 14] = [
    paint(168, 92, 70),
    paint(146, 78, 62),
    paint(190, 122, 92),
    paint(208, 196, 172),
    paint(226, 220, 208),
    paint(178, 178, 174),
    paint(146, 150, 154),
    paint(214, 184, 140),
    paint(120, 116, 112),
    paint(188, 150, 120),
    paint(164, 176, 184),
    paint(206, 160, 140),
    paint(150, 160, 136),
    paint(98, 74, 66),
];
const ROOFS: [Light; 5] = [
    paint(140, 66, 48),
    paint(90, 56, 46),
    paint(74, 76, 82),
    paint(112, 96, 84),
    paint(64, 60, 62),
];
const STEELS: [Light; 8] = [
    paint(176, 182, 186),
    paint(60, 92, 128),
    paint(150, 62, 46),
    paint(74, 110, 88),
    paint(208, 204, 190),
    paint(196, 150, 60),
    paint(110, 114, 118),
    paint(92, 126, 150),
];
const FOLIAGE: [Light; 7] = [
    paint(74, 104, 44),
    paint(88, 118, 50),
    paint(60, 92, 52),
    paint(110, 128, 60),
    paint(140, 130, 54),
    paint(58, 84, 40),
    paint(120, 96, 48),
];
const SIGNS: [Light; 5] = [
    paint(200, 36, 40),
    paint(32, 84, 168),
    paint(236, 196, 40),
    paint(238, 238, 234),
    paint(36, 120, 70),
];

const LEAF_GREEN: Light = paint(78, 106, 48);

impl Material {
    pub(crate) const ASPHALT: Self = Self::solid(0.11);
    pub(crate) const MARKING: Self = Self::solid(0.45);
    pub(crate) const PAVING: Self = Self::solid(0.22);
    pub(crate) const KERB: Self = Self::solid(0.28);
    pub(crate) const GRASS: Self = Self::solid(0.35);
    pub(crate) const GRAVEL: Self =
        Self::solid(0.25).looking(Look::plain(paint(134, 116, 92)).with(Pattern::Speckled(12)));
    pub(crate) const CONCRETE: Self =
        Self::solid(0.4).looking(Look::plain(paint(168, 165, 158)).with(Pattern::Speckled(60)));
    pub(crate) const GLASS: Self = Self {
        loss: 0.6,
        ..Self::solid(0.15).looking(Look::plain(paint(38, 46, 52)).glossy(0.35))
    };
    pub(crate) const RUBBER: Self = Self::solid(0.06).looking(Look::plain(paint(34, 34, 36)));
    pub(crate) const METAL: Self =
        Self::solid(0.4).looking(Look::plain(paint(128, 132, 136)).glossy(0.12));
    pub(crate) const BARK: Self =
        Self::solid(0.3).looking(Look::plain(paint(92, 76, 62)).with(Pattern::Speckled(6)));
    pub(crate) const WOOD: Self =
        Self::solid(0.4).looking(Look::plain(paint(150, 110, 74)).with(Pattern::Wood));
    pub(crate) const RETROREFLECTOR: Self =
        Self::solid(1.0).looking(Look::plain(paint(214, 206, 200)).glossy(0.2));
    pub(crate) const LAMP_HOUSING: Self = Self::solid(0.1).looking(Look::plain(paint(28, 30, 30)));
    pub(crate) const ORANGE: Self = Self::solid(0.6).looking(Look::plain(paint(236, 96, 30)));
    pub(crate) const DIGGER_YELLOW: Self =
        Self::solid(0.55).looking(Look::plain(paint(232, 176, 38)).glossy(0.08));
    pub(crate) const LEAVES: Self = Self {
        density_per_m: 1.1,
        ..Self::solid(0.45).looking(Look::plain(LEAF_GREEN).with(Pattern::Leaves))
    };
    pub(crate) const HEDGE: Self = Self {
        density_per_m: 4.0,
        ..Self::solid(0.42).looking(Look::plain(paint(62, 88, 44)).with(Pattern::Leaves))
    };
    pub(crate) const MESH: Self = Self {
        density_per_m: 12.0,
        ..Self::solid(0.35).looking(Look::plain(paint(140, 144, 146)))
    };
    pub(crate) const SPOKES: Self = Self {
        density_per_m: 18.0,
        ..Self::solid(0.3).looking(Look::plain(paint(50, 50, 54)))
    };

    /// Opaque, with this reflectivity, and grey.
    pub(crate) const fn solid(reflectivity: f64) -> Self {
        Self {
            reflectivity,
            loss: 0.0,
            density_per_m: f64::INFINITY,
            look: Look::plain([0.3; 3]),
        }
    }

    /// The same, with another look.
    pub(crate) const fn looking(self, look: Look) -> Self {
        Self { look, ..self }
    }

    /// A vehicle's paint; the colour follows from the reflectivity's digits.
    pub(crate) fn car_paint(reflectivity: f64) -> Self {
        Self::solid(reflectivity).looking(Look::chosen(&CAR_PAINTS, reflectivity).glossy(0.1))
    }

    /// Somebody's clothes.
    pub(crate) fn clothes(reflectivity: f64) -> Self {
        let look = Look {
            accent: Look::chosen(&CLOTHES, 1.0 + reflectivity).colour,
            ..Look::chosen(&CLOTHES, reflectivity).with(Pattern::Cloth)
        };
        Self::solid(reflectivity).looking(look)
    }

    pub(crate) fn trousers(of: &Material) -> Self {
        let dark = Look::chosen(&CLOTHES, 2.0 + of.reflectivity);
        Self::solid(0.18).looking(Look::plain(dark.colour.map(|c| 0.5 * c)))
    }

    pub(crate) fn skin(of: &Material) -> Self {
        const SKINS: [Light; 4] = [
            paint(224, 178, 150),
            paint(190, 138, 106),
            paint(136, 92, 68),
            paint(92, 62, 48),
        ];
        Self::solid(0.45).looking(Look::chosen(&SKINS, 3.0 + of.reflectivity))
    }

    /// A wall with windows.
    pub(crate) fn facade(reflectivity: f64) -> Self {
        let look = Look {
            accent: Look::chosen(&STEELS, 1.0 + reflectivity).colour,
            ..Look::chosen(&WALLS, reflectivity).with(Pattern::Facade)
        };
        Self::solid(reflectivity).looking(look)
    }

    /// A ground floor of shops below a building's wall.
    pub(crate) fn shopfront(reflectivity: f64, of: &Material) -> Self {
        Self::solid(reflectivity).looking(of.look.with(Pattern::Shopfront))
    }

    /// Brick of a building's wall, without windows.
    pub(crate) fn brick(of: &Material) -> Self {
        of.looking(of.look.with(Pattern::Brick))
    }

    /// A tiled roof over a wall.
    pub(crate) fn roof(reflectivity: f64, of: &Material) -> Self {
        let look = Look::chosen(&ROOFS, 1.0 + of.reflectivity).with(Pattern::RoofTiles);
        Self::solid(reflectivity).looking(look)
    }

    /// Corrugated metal.
    pub(crate) fn sheet(reflectivity: f64) -> Self {
        let look = Look::chosen(&STEELS, reflectivity).with(Pattern::Sheet);
        Self::solid(reflectivity).looking(look.glossy(0.05))
    }

    /// Leaves of `kind`, in the colour of one tree; `trait_` is any number that is its own.
    pub(crate) fn foliage(kind: Self, trait_: f64) -> Self {
        kind.looking(Look::chosen(&FOLIAGE, trait_).with(Pattern::Leaves))
    }

    /// The face of a sign; `trait_` is any number that is its own.
    pub(crate) fn sign_face(trait_: f64) -> Self {
        let look = Look {
            accent: Look::chosen(&SIGNS, 1.0 + trait_).colour,
            ..Look::chosen(&SIGNS, trait_).with(Pattern::Sign)
        };
        Self::RETROREFLECTOR.looking(look)
    }

    /// A bin or a cabinet; `trait_` is any number that is its own.
    pub(crate) fn cabinet(trait_: f64) -> Self {
        Self::METAL.looking(Look::chosen(&STEELS, trait_).glossy(0.08))
    }
}
