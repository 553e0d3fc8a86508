//! What surfaces look like: colours, and patterns that are computed where a ray meets them.
//!
//! Colours are linear light, 0..=1, and become display values by a square root (a gamma of 2), which every machine
//! computes alike. A pattern fades to its mean where a pixel is wider than its details, so that nothing flickers.

mod goods;
mod ground;
pub(crate) mod noise;
mod walls;

pub(crate) use ground::GroundSpot;

use noise::{lattice, noise2, noise3, rough2, share};

/// Linear light: red, green, blue.
pub(crate) type Light = [f32; 3];

/// A colour as paint charts give it, 0..=255.
pub(crate) const fn paint(red: u8, green: u8, blue: u8) -> Light {
    [linear(red), linear(green), linear(blue)]
}

const fn linear(value: u8) -> f32 {
    let v = value as f32 / 255.0;
    v * v
}

/// The look of a material.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Look {
    pub(crate) colour: Light,
    /// The second colour of a pattern that has one.
    pub(crate) accent: Light,
    pub(crate) pattern: Pattern,
    /// How much of the sky it mirrors when looked at squarely; more at grazing angles.
    pub(crate) gloss: f32,
    /// What tells this thing from others with the same look.
    pub(crate) seed: u32,
}

/// How a look varies over a surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Plain,
    /// Mottled, with features of about this many centimetres.
    Speckled(u8),
    Brick,
    /// Windows in rows and columns on brick, plaster or concrete.
    Facade,
    /// Shops side by side under signs.
    Shopfront,
    /// Corrugated metal.
    Sheet,
    RoofTiles,
    /// Square tiles with joints.
    Tiles,
    Wood,
    Leaves,
    Cloth,
    /// A board with a border and bars.
    Sign,
    /// Bands across the height.
    Bands,
    Checks,
    Dots,
    /// A label around the middle, with lines of text.
    Label,
}

/// Where a surface is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// Metres from the middle of the solid, along its own axes.
    pub(crate) place: [f32; 3],
    /// Half the extent of the solid.
    pub(crate) half: [f32; 3],
    /// The axis that the surface faces most.
    pub(crate) facing: usize,
    /// How wide a pixel is there.
    pub(crate) pixel_m: f32,
}

impl Spot {
    /// Metres along the surface and up it (or over it, where it lies flat).
    fn along_and_up(&self) -> [f32; 2] {
        let [x, y, z] = self.place;
        match self.facing {
            0 => [y, z + self.half[2]],
            1 => [x, z + self.half[2]],
            _ => [x, y],
        }
    }

    /// 1 where details of this size are seen whole, falling to 0 where a pixel swallows them.
    fn detail(&self, size_m: f32) -> f32 {
        (1.5 - self.pixel_m / size_m).clamp(0.0, 1.0)
    }
}

/// A surface as a ray finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finish {
    pub(crate) colour: Light,
    pub(crate) gloss: f32,
    /// Lit from within when it is dark, 0..=1.
    pub(crate) glow: f32,
}

impl Finish {
    fn matt(colour: Light) -> Self {
        Self {
            colour,
            gloss: 0.0,
            glow: 0.0,
        }
    }
}

impl Look {
    pub(crate) const fn plain(colour: Light) -> Self {
        Self {
            colour,
            accent: colour,
            pattern: Pattern::Plain,
            gloss: 0.0,
            seed: 0,
        }
    }

    pub(crate) const fn with(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    pub(crate) const fn glossy(self, gloss: f32) -> Self {
        Self { gloss, ..self }
    }

    /// The look of a thing of many colours. `trait_` is any number that is its own, such as its reflectivity: the digits
    /// choose, so that colours take no random numbers from the town.
    pub(crate) fn chosen(palette: &[Light], trait_: f64) -> Self {
        let bits = trait_.to_bits();
        let seed = lattice(bits as i32, (bits >> 32) as i32, 0, 1);
        let colour = palette[seed as usize % palette.len()];
        // Two things of one paint still differ a little.
        let tone = 0.85 + 0.3 * share(lattice(seed as i32, 3, 0, 2));
        Self {
            seed,
            ..Self::plain(colour.map(|c| (c * tone).min(1.0)))
        }
    }

    /// How the surface looks at a spot.
    pub(crate) fn at(&self, spot: &Spot) -> Finish {
        let [along, up] = spot.along_and_up();
        let own = Finish {
            gloss: self.gloss,
            ..Finish::matt(self.colour)
        };
        match self.pattern {
            Pattern::Plain => own,
            Pattern::Speckled(cm) => {
                let size_m = 0.01 * f32::from(cm);
                let scaled = spot.place.map(|v| v / size_m);
                let depth = 0.5 * (noise3(scaled, self.seed) - 0.5) * spot.detail(size_m);
                shaded(own, 1.0 + depth)
            }
            Pattern::Brick => walls::brick(self, along, up, spot),
            Pattern::Facade => walls::facade(self, along, up, spot),
            Pattern::Shopfront => walls::shopfront(self, along, up, spot),
            Pattern::Sheet => walls::sheet(self, along, spot),
            Pattern::RoofTiles => walls::roof_tiles(self, along, spot.place[2], spot),
            Pattern::Tiles => walls::tiles(self, along, up, spot),
            Pattern::Wood => goods::wood(self, spot),
            Pattern::Leaves => {
                let size_m = 0.16;
                let scaled = spot.place.map(|v| v / size_m);
                let depth = (noise3(scaled, self.seed) - 0.5) * spot.detail(size_m);
                let broad = noise3(spot.place.map(|v| v / 1.3), self.seed ^ 9) - 0.5;
                shaded(own, 1.0 + 0.9 * depth + 0.5 * broad)
            }
            Pattern::Cloth => goods::cloth(self, spot),
            Pattern::Sign => goods::sign(self, along, up, spot),
            Pattern::Bands => goods::bands(self, spot),
            Pattern::Checks => goods::checks(self, spot),
            Pattern::Dots => goods::dots(self, spot),
            Pattern::Label => goods::label(self, spot),
        }
    }
}

fn grass(x: f32, y: f32, seed: u32, spot: &Spot) -> f32 {
    let fine = (noise2(9.0 * x, 9.0 * y, seed) - 0.5) * spot.detail(0.1);
    let broad = rough2(0.35 * x, 0.35 * y, seed ^ 3) - 0.5;
    1.0 + 0.5 * fine + 0.7 * broad
}

fn shaded(finish: Finish, factor: f32) -> Finish {
    Finish {
        colour: finish.colour.map(|c| c * factor),
        ..finish
    }
}

/// The mixture of two colours, `share` of the second.
#[inline]
pub(crate) fn mix(a: Light, b: Light, share: f32) -> Light {
    std::array::from_fn(|i| a[i] + share * (b[i] - a[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERNS: [Pattern; 16] = [
        Pattern::Plain,
        Pattern::Speckled(20),
        Pattern::Brick,
        Pattern::Facade,
        Pattern::Shopfront,
        Pattern::Sheet,
        Pattern::RoofTiles,
        Pattern::Tiles,
        Pattern::Wood,
        Pattern::Leaves,
        Pattern::Cloth,
        Pattern::Sign,
        Pattern::Bands,
        Pattern::Checks,
        Pattern::Dots,
        Pattern::Label,
    ];

    fn spread(pattern: Pattern, pixel_m: f32) -> f32 {
        let look = Look {
            accent: paint(240, 240, 230),
            ..Look::chosen(&[paint(120, 60, 40)], 0.123).with(pattern)
        };
        let (mut low, mut high) = (f32::INFINITY, 0.0f32);
        for step in 0..4000 {
            let t = step as f32 / 4000.0;
            let spot = Spot {
                place: [1.9 * (37.0 * t).fract() - 0.95, -1.0, 3.9 * t - 1.95],
                half: [1.0, 1.0, 2.0],
                facing: 1,
                pixel_m,
            };
            let finish = look.at(&spot);
            assert!(
                finish.colour.iter().all(|c| (0.0..=1.2).contains(c)),
                "{pattern:?}: {finish:?}"
            );
            let grey = finish.colour.iter().sum::<f32>();
            (low, high) = (low.min(grey), high.max(grey));
        }
        high - low
    }

    #[test]
    fn patterns_show_from_near_and_stay_within_reflectance() {
        for pattern in PATTERNS {
            let near = spread(pattern, 0.002);
            assert_eq!(near > 0.02, pattern != Pattern::Plain, "{pattern:?} {near}");
        }
    }

    #[test]
    fn fine_patterns_fade_from_afar() {
        for pattern in [
            Pattern::Brick,
            Pattern::Tiles,
            Pattern::Sheet,
            Pattern::Speckled(20),
        ] {
            let (near, far) = (spread(pattern, 0.002), spread(pattern, 2.0));
            assert!(far < 0.25 * near, "{pattern:?}: {near} near, {far} far");
        }
    }

    #[test]
    fn what_is_its_own_chooses_the_colour() {
        let palette = [[0.1; 3], [0.5; 3], [0.9; 3]];
        let colours: Vec<Light> = (0..40)
            .map(|i| Look::chosen(&palette, 0.2 + 0.01 * f64::from(i)).colour)
            .collect();
        assert_eq!(colours[3], Look::chosen(&palette, 0.2 + 0.03).colour);
        let dark = colours.iter().filter(|c| c[0] < 0.2).count();
        assert!((5..25).contains(&dark), "{dark}");
    }
}
