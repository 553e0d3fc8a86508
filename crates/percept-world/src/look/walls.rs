//! Brick, windows, shops, metal sheets, tiles.

use super::noise::{cell, lattice, noise2, rough2, share};
use super::{Finish, Light, Look, Spot, mix, paint, shaded};

const MORTAR: Light = paint(176, 170, 160);
const GLASS: Light = paint(46, 56, 66);
const FRAME: Light = paint(225, 225, 220);
const CURTAINS: [Light; 4] = [
    paint(190, 180, 160),
    paint(150, 120, 100),
    paint(120, 140, 160),
    paint(210, 205, 200),
];
const SHOP_SIGNS: [Light; 8] = [
    paint(190, 40, 40),
    paint(30, 90, 160),
    paint(230, 180, 40),
    paint(40, 120, 70),
    paint(120, 50, 120),
    paint(235, 235, 230),
    paint(230, 120, 40),
    paint(40, 40, 46),
];

/// A running bond of bricks, 25 cm by 8 cm with their joints.
pub(super) fn brick(look: &Look, along: f32, up: f32, spot: &Spot) -> Finish {
    let detail = spot.detail(0.06);
    let (row, v) = cell(up / 0.08);
    let (column, u) = cell(along / 0.25 + 0.5 * (row & 1) as f32);
    let tone = 1.0 + 0.35 * (share(lattice(column, row, 0, look.seed)) - 0.5) * detail;
    let weathered = 0.9 + 0.2 * rough2(0.4 * along, 0.4 * up, look.seed);
    let brick = look.colour.map(|c| c * tone * weathered);
    let in_joint = v < 0.13 || u < 0.05;
    // The joints' share of the wall stays in the mean that is left from afar.
    let joint = if in_joint { detail } else { 0.0 } + 0.17 * (1.0 - detail);
    Finish::matt(mix(brick, MORTAR, joint))
}

/// Storeys of windows; the seed decides how they look.
pub(super) fn facade(look: &Look, along: f32, up: f32, spot: &Spot) -> Finish {
    let own = |number: i32| share(lattice(number, 7, 1, look.seed));
    let wall = if own(0) < 0.45 {
        brick(look, along, up, spot)
    } else {
        let stained = 0.88 + 0.24 * rough2(0.25 * along, 0.12 * up, look.seed);
        Finish::matt(look.colour.map(|c| c * stained))
    };
    if spot.facing == 2 {
        return Finish::matt(look.colour.map(|c| 0.6 * c));
    }
    let (storey_m, bay_m) = (2.9 + 0.9 * own(1), 2.0 + 2.6 * own(2));
    // Whole storeys and bays, from the middle of the wall.
    let ((storey, v), (bay, u)) = (cell(up / storey_m), cell(along / bay_m + 0.5));
    let (width, height) = (0.35 + 0.5 * own(3), 0.42 + 0.3 * own(4));
    let from_middle = [
        (u - 0.5).abs() / (0.5 * width),
        (v - 0.52).abs() / (0.5 * height),
    ];
    let band = if own(5) < 0.4 && v < 0.07 { 0.75 } else { 1.0 };
    let outside = from_middle[0].max(from_middle[1]);
    // Half a window short of the wall's end there is none.
    let room = spot.half[if spot.facing == 0 { 1 } else { 0 }] - along.abs();
    if outside > 1.0 || room < 0.5 * bay_m * width {
        return shaded(wall, band);
    }
    let window = lattice(bay, storey, spot.facing as i32, look.seed);
    let frame_m = 0.5 * width * bay_m * (1.0 - outside);
    if frame_m < 0.07 * spot.detail(0.1) {
        return Finish::matt(mix(FRAME, look.accent, own(6)));
    }
    let curtain = CURTAINS[window as usize % CURTAINS.len()];
    let drawn = share(window) < 0.3 && v > 0.3 + 0.4 * share(window >> 3);
    Finish {
        colour: if drawn {
            curtain.map(|c| 0.7 * c)
        } else {
            GLASS
        },
        gloss: if drawn { 0.1 } else { 0.35 },
        glow: if share(window.wrapping_mul(0x9e37)) < 0.4 {
            1.0
        } else {
            0.0
        },
    }
}

/// Shops some metres wide, each with a sign in a colour of its own over glass.
pub(super) fn shopfront(look: &Look, along: f32, up: f32, spot: &Spot) -> Finish {
    let width_m = 4.0 + 3.0 * share(lattice(0, 1, 2, look.seed));
    let (shop, u) = cell(along / width_m);
    let word = lattice(shop, spot.facing as i32, 5, look.seed);
    let sign = SHOP_SIGNS[word as usize % SHOP_SIGNS.len()];
    let from_top = 2.0 * spot.half[2] - up;
    if u < 0.04 || from_top < 0.15 {
        return Finish::matt(look.colour);
    }
    if from_top < 1.0 {
        // Letters: blocks of light on the sign.
        let (_, letter) = cell(along / 0.42);
        let is_letter = (0.2..0.8).contains(&u)
            && (0.35..0.8).contains(&from_top)
            && letter < 0.62
            && noise2(3.0 * along, 4.0 * from_top, word) > 0.35;
        let ink = if sign[0] + sign[1] + sign[2] > 1.2 {
            paint(40, 40, 50)
        } else {
            paint(240, 238, 230)
        };
        let share = if is_letter { spot.detail(0.2) } else { 0.0 };
        return Finish {
            glow: 0.6,
            ..Finish::matt(mix(sign, ink, share))
        };
    }
    let goods = noise2(2.2 * along, 2.2 * up, word);
    let inside = mix(GLASS, sign, 0.25 * goods);
    Finish {
        colour: inside,
        gloss: 0.3,
        glow: if share(word >> 2) < 0.7 { 1.0 } else { 0.0 },
    }
}

/// Corrugated metal with a joint every few metres and a darker foot.
pub(super) fn sheet(look: &Look, along: f32, spot: &Spot) -> Finish {
    let (_, u) = cell(along / 0.3);
    let ridge = (2.0 * u - 1.0).abs() - 0.5;
    let (panel, _) = cell(along / 4.0);
    let tone = 0.92 + 0.16 * share(lattice(panel, 0, 0, look.seed)) * spot.detail(4.0);
    let finish = Finish {
        gloss: look.gloss,
        ..Finish::matt(look.colour)
    };
    shaded(finish, tone * (1.0 + 0.35 * ridge * spot.detail(0.15)))
}

/// Rows of roof tiles.
pub(super) fn roof_tiles(look: &Look, along: f32, up: f32, spot: &Spot) -> Finish {
    let ((row, v), (column, _)) = (cell(up / 0.22), cell(along / 0.24));
    let detail = spot.detail(0.15);
    let tone =
        1.0 + detail * (0.4 * (v - 0.5) + 0.25 * (share(lattice(column, row, 0, look.seed)) - 0.5));
    Finish::matt(look.colour.map(|c| c * tone))
}

/// Square tiles of 20 cm with pale joints.
pub(super) fn tiles(look: &Look, along: f32, up: f32, spot: &Spot) -> Finish {
    let ((i, u), (j, v)) = (cell(along / 0.2), cell(up / 0.2));
    let detail = spot.detail(0.06);
    let in_joint = u < 0.04 || v < 0.04;
    let joint = if in_joint { detail } else { 0.0 } + 0.08 * (1.0 - detail);
    let tone = 1.0 + 0.12 * (share(lattice(i, j, 0, look.seed)) - 0.5) * detail;
    Finish {
        gloss: look.gloss * (1.0 - joint),
        ..Finish::matt(mix(look.colour.map(|c| c * tone), look.accent, joint))
    }
}
