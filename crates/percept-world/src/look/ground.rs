//! Streets, pavements and lawns.

use crate::ground::Surface;

use super::noise::{cell, lattice, noise2, rough2, share};
use super::{Finish, Light, Spot, grass, mix, paint};

const ASPHALT: Light = paint(92, 92, 96);
const PALE_PAINT: Light = paint(222, 220, 210);
const PAVING: Light = paint(158, 152, 144);
const LAWN: Light = paint(96, 120, 58);
const GRAVEL: Light = paint(150, 140, 124);
const KERB: Light = paint(172, 170, 166);

/// A spot of the ground: its cell tells where in the street it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroundSpot {
    pub(crate) surface: Surface,
    pub(crate) on_kerb: bool,
    /// Metres in the world.
    pub(crate) place: [f64; 2],
    /// The lines around its cell: lower and upper along x and y.
    pub(crate) cell: [[f64; 2]; 2],
    pub(crate) pixel_m: f32,
}

impl GroundSpot {
    /// Metres along the street, and across it from its cell's nearer edge.
    fn along_and_across(&self) -> [f32; 2] {
        let width = |axis: usize| self.cell[axis][1] - self.cell[axis][0];
        let across = usize::from(width(1) < width(0));
        let [low, high] = self.cell[across];
        let at = self.place[across];
        [
            self.place[1 - across] as f32,
            (at - low).min(high - at) as f32,
        ]
    }

    pub(crate) fn finish(&self) -> Finish {
        let spot = Spot {
            place: [self.place[0] as f32, self.place[1] as f32, 0.0],
            half: [1.0; 3],
            facing: 2,
            pixel_m: self.pixel_m,
        };
        let [x, y, _] = spot.place;
        if self.on_kerb {
            return Finish::matt(KERB);
        }
        match self.surface {
            Surface::Road => Finish::matt(asphalt(&spot)),
            Surface::Marking => {
                // Three metres of line, three without; worn.
                let [along, _] = self.along_and_across();
                let (_, dash) = cell(along / 6.0);
                let worn = noise2(8.0 * x, 8.0 * y, 77);
                let cover = if dash < 0.5 { 0.75 + 0.25 * worn } else { 0.0 };
                Finish::matt(mix(asphalt(&spot), PALE_PAINT, cover))
            }
            Surface::Parking => {
                let [along, across] = self.along_and_across();
                let (_, bay) = cell(along / 5.6);
                let line = bay * 5.6 < 0.12 || across < 0.1;
                let cover = if line { 0.8 * spot.detail(0.2) } else { 0.0 };
                let ground = asphalt(&spot).map(|c| 0.9 * c);
                Finish::matt(mix(ground, PALE_PAINT, cover))
            }
            Surface::Pavement => {
                let ((i, u), (j, v)) = (cell(x / 0.6), cell(y / 0.6));
                let detail = spot.detail(0.12);
                let joint = u < 0.04 || v < 0.04;
                let tone = 1.0 + 0.16 * (share(lattice(i, j, 0, 31)) - 0.5) * detail;
                let dirt = 0.88 + 0.24 * rough2(0.3 * x, 0.3 * y, 32);
                let dark = if joint { 1.0 - 0.35 * detail } else { 1.0 };
                Finish::matt(PAVING.map(|c| c * tone * dirt * dark))
            }
            Surface::Yard => {
                let fine = (noise2(14.0 * x, 14.0 * y, 33) - 0.5) * spot.detail(0.07);
                let tone = 0.86 + 0.28 * rough2(0.15 * x, 0.15 * y, 34) + 0.4 * fine;
                Finish::matt(GRAVEL.map(|c| c * tone))
            }
            Surface::Median | Surface::Lawn => {
                let tone = grass(x, y, 35, &spot);
                let dry = 0.35 * rough2(0.08 * x, 0.08 * y, 36);
                Finish::matt(mix(LAWN, paint(150, 140, 80), dry).map(|c| c * tone))
            }
        }
    }
}

/// Grains, mended patches and cracks.
fn asphalt(spot: &Spot) -> Light {
    let [x, y, _] = spot.place;
    let grain = (noise2(25.0 * x, 25.0 * y, 21) - 0.5) * spot.detail(0.04);
    let broad = rough2(0.2 * x, 0.2 * y, 22) - 0.5;
    let ((i, u), (j, v)) = (cell(x / 7.3), cell(y / 5.9));
    let word = lattice(i, j, 0, 23);
    let mended = share(word) < 0.16 && u < 0.35 + 0.3 * share(word >> 4) && v < 0.5;
    let crack = (noise2(0.9 * x, 0.9 * y, 24) - 0.5).abs() < 0.008;
    let tone = 1.0 + 0.35 * grain + 0.25 * broad;
    let tone = if mended { 0.72 * tone } else { tone };
    let tone = if crack {
        tone * (1.0 - 0.45 * spot.detail(0.06))
    } else {
        tone
    };
    ASPHALT.map(|c| c * tone)
}
