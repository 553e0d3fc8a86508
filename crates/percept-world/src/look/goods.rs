//! Wood, cloth, signs, and the patterns that tell one cup from another.

use super::noise::{cell, lattice, noise2, noise3, share};
use super::{Finish, Look, Spot, mix, shaded};

impl Look {
    fn finish(&self, accent_share: f32) -> Finish {
        Finish {
            gloss: self.gloss,
            ..Finish::matt(mix(self.colour, self.accent, accent_share))
        }
    }
}

/// Where on a thing a pattern is: around it and up it, in shares of its size, so that a pattern is the same however
/// large the thing is.
fn wrapped(spot: &Spot) -> [f32; 2] {
    let [x, y, z] = spot.place;
    let [hx, hy, hz] = spot.half;
    match spot.facing {
        0 => [y / hy, z / hz],
        1 => [x / hx, z / hz],
        _ => [x / hx, y / hy],
    }
}

/// The smallest side of the surface that is seen, which limits what of a pattern a pixel can show.
fn extent(spot: &Spot) -> f32 {
    let [x, y, z] = spot.half;
    match spot.facing {
        0 => y.min(z),
        1 => x.min(z),
        _ => x.min(y),
    }
}

/// Grain along the longest side.
pub(super) fn wood(look: &Look, spot: &Spot) -> Finish {
    let longest = (0..3).fold(0, |best, i| {
        if spot.half[i] > spot.half[best] {
            i
        } else {
            best
        }
    });
    let mut scaled = spot.place.map(|v| v / 0.03);
    scaled[longest] *= 0.06;
    let grain = (noise3(scaled, look.seed) - 0.5) * spot.detail(0.05);
    let (board, u) = cell(spot.place[(longest + 1) % 3] / 0.14);
    let detail = spot.detail(0.05);
    let tone = 1.0 + 0.3 * (share(lattice(board, 0, 0, look.seed)) - 0.5);
    let joint = if u < 0.03 { 1.0 - 0.5 * detail } else { 1.0 };
    shaded(look.finish(0.0), (tone + 0.5 * grain) * joint)
}

/// Plain, striped or checked, as the seed has it, with folds.
pub(super) fn cloth(look: &Look, spot: &Spot) -> Finish {
    let folds = 0.85 + 0.3 * noise3(spot.place.map(|v| v / 0.13), look.seed);
    let [x, y, z] = spot.place;
    let pattern = match look.seed % 4 {
        0 => f32::from(cell(z / 0.09).0 & 1 == 0),
        1 => f32::from((cell(z / 0.08).0 + cell((x + y) / 0.08).0) & 1 == 0),
        _ => 0.0,
    };
    shaded(look.finish(pattern * spot.detail(0.05)), folds)
}

/// A border and a few bars in the accent's colour.
pub(super) fn sign(look: &Look, along: f32, up: f32, spot: &Spot) -> Finish {
    let [u, v] = wrapped(spot);
    let border = u.abs().max(v.abs()) > 0.86;
    let bars = match look.seed % 3 {
        0 => v.abs() < 0.2 && u.abs() < 0.7,
        1 => u * u + v * v < 0.3,
        _ => noise2(6.0 * along, 6.0 * up, look.seed) > 0.6,
    };
    look.finish(f32::from(border || bars))
}

/// Bands across the height, as many as the seed says.
pub(super) fn bands(look: &Look, spot: &Spot) -> Finish {
    let count = 1.5 + (look.seed % 3) as f32;
    let (band, _) = cell(spot.place[2] / spot.half[2] * count);
    let size_m = 2.0 * spot.half[2] / count;
    let share = if band & 1 == 0 { 1.0 } else { 0.0 };
    look.finish(0.5 + (share - 0.5) * spot.detail(0.5 * size_m))
}

/// A chess board, around the thing and up it.
pub(super) fn checks(look: &Look, spot: &Spot) -> Finish {
    let [u, v] = wrapped(spot);
    let count = 2.0 + (look.seed % 2) as f32;
    let share = f32::from((cell(u * count).0 + cell(v * count).0) & 1 == 0);
    look.finish(0.5 + (share - 0.5) * spot.detail(0.7 * extent(spot) / count))
}

/// Round dots in rows.
pub(super) fn dots(look: &Look, spot: &Spot) -> Finish {
    let [u, v] = wrapped(spot);
    let count = 2.0 + (look.seed % 2) as f32;
    let (row, y) = cell(v * count);
    let (_, x) = cell(u * count + 0.5 * (row & 1) as f32);
    let (x, y) = (x - 0.5, y - 0.5);
    let detail = spot.detail(0.7 * extent(spot) / count);
    let share = f32::from(x * x + y * y < 0.1);
    look.finish(0.3 + (share - 0.3) * detail)
}

/// A label in the accent's colour with lines of print.
pub(super) fn label(look: &Look, spot: &Spot) -> Finish {
    let [u, v] = wrapped(spot);
    if v.abs() > 0.55 || spot.facing == 2 {
        return look.finish(0.0);
    }
    let (line, w) = cell((v + 0.55) / 0.22);
    let word = noise2(5.0 * u, line as f32, look.seed) > 0.4;
    let printed = word && w > 0.45 && v.abs() < 0.48;
    let detail = spot.detail(0.15 * spot.half[2]);
    let share = if printed { 1.0 - 0.8 * detail } else { 1.0 };
    look.finish(share)
}
