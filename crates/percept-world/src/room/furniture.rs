//! Rooms: floor, walls, a table, what stands around, and the person at the table.

use percept_data::points::Pose;
use percept_data::points::pose::{cross, dot, sub};
use percept_data::random::Draws;

use crate::look::{Light, Look, Pattern, paint};
use crate::material::Material;
use crate::shape::Shape::{Cuboid, Cylinder, Ellipsoid, Taper};
use crate::solid::{Part, PlacedSolid};

/// What the room is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomKind {
    /// Tiles, cupboards, a fridge.
    Kitchen,
    /// Brick, a tool board, crates.
    Workshop,
    /// A screen, shelves of books.
    Desk,
}

impl RoomKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kitchen => "kitchen",
            Self::Workshop => "workshop",
            Self::Desk => "desk",
        }
    }
}

/// The classes of what is no object start here; each piece of furniture has a number of its own, so that background
/// falls into pieces as a segmenter would have them.
pub(crate) const BACKGROUND_CLASS: u16 = 100;

/// A table in a room; the person sits at its lower y side.
#[derive(Clone, Debug)]
pub(crate) struct Furniture {
    pub(crate) solids: Vec<PlacedSolid>,
    /// Half the table's extent, and its height.
    pub(crate) table_half: [f64; 2],
    pub(crate) table_m: f64,
    /// A board behind the table on which things stand: its middle, half its length, its height.
    pub(crate) shelf: [f64; 4],
}

const ROOM_HALF_M: f64 = 2.4;
const ROOM_HEIGHT_M: f64 = 2.7;

const WALL_PAINTS: [Light; 6] = [
    paint(222, 216, 202),
    paint(190, 204, 210),
    paint(206, 190, 170),
    paint(176, 190, 172),
    paint(214, 206, 212),
    paint(232, 230, 226),
];
const WOODS: [Light; 5] = [
    paint(176, 132, 88),
    paint(140, 96, 62),
    paint(206, 172, 128),
    paint(108, 76, 54),
    paint(190, 186, 178),
];

pub(crate) fn furnish(kind: RoomKind, draws: &mut Draws) -> Furniture {
    let table_half = [draws.range(0.65, 0.85), draws.range(0.38, 0.48)];
    let table_m = draws.range(0.72, 0.78);
    let mut parts = shell(kind, draws);
    let wood = Material::WOOD.looking(Look {
        seed: draws.word() as u32,
        ..Look::plain(WOODS[draws.below(WOODS.len())])
            .with(Pattern::Wood)
            .glossy(0.03)
    });
    let [hx, hy] = table_half;
    let solid = |x: [f64; 2], y: [f64; 2], z: [f64; 2], material| (Cuboid, x, y, z, material);
    parts.push(solid(
        [-hx, hx],
        [-hy, hy],
        [table_m - 0.035, table_m],
        wood,
    ));
    for x in [-hx + 0.02, hx - 0.08] {
        for y in [-hy + 0.02, hy - 0.08] {
            parts.push(solid(
                [x, x + 0.06],
                [y, y + 0.06],
                [0.0, table_m - 0.035],
                wood,
            ));
        }
    }
    // A shelf against the wall behind the table.
    let back = hy + draws.range(0.35, 0.6);
    let shelf_m = draws.range(0.95, 1.15);
    let depth = 0.26;
    let shelf_half = draws.range(0.6, 1.0);
    let shelf_x = draws.range(-0.3, 0.3);
    let shelf_span = [shelf_x - shelf_half, shelf_x + shelf_half];
    parts.push(solid(
        shelf_span,
        [back, back + depth],
        [shelf_m - 0.03, shelf_m],
        wood,
    ));
    parts.push(solid(
        shelf_span,
        [back + depth, back + depth + 0.02],
        [0.0, shelf_m + 0.5],
        wood,
    ));
    around(kind, &mut parts, back, draws);
    let solids = parts
        .into_iter()
        .enumerate()
        .map(|(number, (shape, x, y, z, material))| {
            let class = BACKGROUND_CLASS + number as u16;
            let part = Part::new(shape, x, y, z, material, class);
            PlacedSolid::new(&part, &Pose::IDENTITY, [0.0; 3], [0.0; 2], class, 0)
        })
        .collect();
    Furniture {
        solids,
        table_half,
        table_m,
        shelf: [shelf_x, back + 0.5 * depth, shelf_half, shelf_m],
    }
}

type Piece = (crate::shape::Shape, [f64; 2], [f64; 2], [f64; 2], Material);

/// Floor, ceiling and four walls.
fn shell(kind: RoomKind, draws: &mut Draws) -> Vec<Piece> {
    let r = ROOM_HALF_M;
    let seed = draws.word() as u32;
    let wall_paint = WALL_PAINTS[draws.below(WALL_PAINTS.len())];
    let pattern = match kind {
        RoomKind::Kitchen => Pattern::Tiles,
        RoomKind::Workshop => Pattern::Brick,
        RoomKind::Desk => Pattern::Speckled(90),
    };
    let look = |colour: Light, pattern| Look {
        seed,
        accent: paint(236, 234, 228),
        ..Look::plain(colour).with(pattern)
    };
    let wall_colour = match kind {
        RoomKind::Workshop => paint(172, 104, 82),
        _ => wall_paint,
    };
    let wall = Material::solid(0.5).looking(look(wall_colour, pattern));
    let floor = match kind {
        RoomKind::Desk => look(WOODS[draws.below(WOODS.len())], Pattern::Wood),
        _ => look(paint(128, 126, 122), Pattern::Tiles),
    };
    let floor = Material::solid(0.4).looking(floor);
    let ceiling = Material::solid(0.7).looking(Look::plain(paint(236, 236, 234)));
    let (across, up) = ([-r, r], [0.0, ROOM_HEIGHT_M]);
    vec![
        (Cuboid, across, across, [-0.1, 0.0], floor),
        (
            Cuboid,
            across,
            across,
            [ROOM_HEIGHT_M, ROOM_HEIGHT_M + 0.1],
            ceiling,
        ),
        (Cuboid, [-r - 0.1, -r], across, up, wall),
        (Cuboid, [r, r + 0.1], across, up, wall),
        (Cuboid, across, [-r - 0.1, -r], up, wall),
        (Cuboid, across, [r, r + 0.1], up, wall),
    ]
}

/// What makes a kitchen a kitchen.
fn around(kind: RoomKind, parts: &mut Vec<Piece>, back: f64, draws: &mut Draws) {
    let plain = |colour: Light| Material::solid(0.4).looking(Look::plain(colour).glossy(0.04));
    let pattern = |pattern, a: Light, b: Light, seed: u64| {
        Material::solid(0.4).looking(Look {
            accent: b,
            seed: seed as u32,
            ..Look::plain(a).with(pattern)
        })
    };
    let side = draws.sign();
    let beside = |near: f64, far: f64| {
        let (a, b) = (side * near, side * far);
        [a.min(b), a.max(b)]
    };
    match kind {
        RoomKind::Kitchen => {
            parts.push((
                Cuboid,
                beside(1.3, 1.95),
                [back, back + 0.6],
                [0.0, 1.75],
                plain(paint(224, 226, 228)),
            ));
            parts.push((
                Cuboid,
                beside(-1.9, -0.9),
                [back + 0.1, back + 0.6],
                [1.5, 2.2],
                plain(paint(196, 170, 130)),
            ));
            parts.push((
                Cylinder,
                beside(-1.5, -1.2),
                [back + 0.1, back + 0.4],
                [1.1, 1.4],
                Material::METAL,
            ));
        }
        RoomKind::Workshop => {
            let holes = pattern(
                Pattern::Dots,
                paint(150, 116, 82),
                paint(70, 54, 40),
                draws.word(),
            );
            parts.push((Cuboid, [-1.1, 1.1], [2.3, 2.36], [1.2, 2.1], holes));
            for crate_ in 0..3 {
                let at = -1.6 + 0.55 * f64::from(crate_) + draws.range(0.0, 0.1);
                let colour =
                    [paint(60, 92, 128), paint(168, 62, 46), paint(198, 150, 60)][draws.below(3)];
                parts.push((
                    Cuboid,
                    beside(at, at + 0.42),
                    [back + 0.35, back + 0.75],
                    [0.0, draws.range(0.3, 0.5)],
                    plain(colour),
                ));
            }
        }
        RoomKind::Desk => {
            let screen = pattern(
                Pattern::Label,
                paint(30, 36, 48),
                paint(120, 150, 190),
                draws.word(),
            );
            parts.push((
                Cuboid,
                beside(0.9, 1.5),
                [back + 0.1, back + 0.14],
                [1.2, 1.56],
                screen,
            ));
            let mut x = -1.8;
            while x < -0.8 {
                let width = draws.range(0.03, 0.07);
                let colour = super::goods::PAINTS[draws.below(12)].map(|c| 0.7 * c);
                parts.push((
                    Cuboid,
                    beside(x, x + width),
                    [back + 0.2, back + 0.4],
                    [1.4, 1.4 + draws.range(0.2, 0.3)],
                    plain(colour),
                ));
                x += width;
            }
        }
    }
    let lampshade = plain(paint(240, 226, 190));
    parts.push((
        Taper([0.5, 0.5]),
        beside(1.55, 1.85),
        [-1.6, -1.3],
        [1.3, 1.6],
        lampshade,
    ));
    parts.push((
        Cylinder,
        beside(1.68, 1.72),
        [-1.47, -1.43],
        [0.0, 1.3],
        Material::METAL,
    ));
}

/// The person at the table: where the eyes are, where the hands are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Person {
    pub(crate) eye: [f64; 3],
    pub(crate) hands: [[f64; 3]; 2],
    pub(crate) clothes: Material,
}

const PERSON_CLASS: u16 = BACKGROUND_CLASS + 90;

impl Person {
    /// Arms and hands, which both cameras see.
    pub(crate) fn arms(&self) -> Vec<PlacedSolid> {
        let skin = Material::skin(&self.clothes);
        let mut solids = Vec::new();
        for (hand, side) in self.hands.into_iter().zip([-1.0, 1.0]) {
            let shoulder = [
                self.eye[0] + 0.2 * side,
                self.eye[1] - 0.12,
                self.eye[2] - 0.28,
            ];
            let elbow = [
                0.5 * (shoulder[0] + hand[0]) + 0.12 * side,
                0.5 * (shoulder[1] + hand[1]) - 0.05,
                0.5 * (shoulder[2] + hand[2]) - 0.08,
            ];
            solids.push(limb(shoulder, elbow, 0.05, self.clothes));
            solids.push(limb(elbow, hand, 0.038, self.clothes));
            let palm = Part::new(
                Ellipsoid,
                [-0.04, 0.04],
                [-0.055, 0.055],
                [-0.022, 0.022],
                skin,
                PERSON_CLASS,
            );
            let pose = Pose {
                translation: hand,
                ..Pose::IDENTITY
            };
            solids.push(placed(&palm, &pose));
        }
        solids
    }

    /// Head and body, which only the other camera sees.
    pub(crate) fn body(&self) -> Vec<PlacedSolid> {
        let [x, y, z] = self.eye;
        let part = |shape, half: [f64; 2], heights: [f64; 2], material| {
            Part::new(
                shape,
                [-half[0], half[0]],
                [-half[1], half[1]],
                heights,
                material,
                PERSON_CLASS,
            )
        };
        let pose = Pose {
            translation: [x, y - 0.12, 0.0],
            ..Pose::IDENTITY
        };
        let hair = Material::solid(0.2).looking(Look::plain(paint(58, 42, 34)));
        [
            part(Ellipsoid, [0.23, 0.14], [0.35, z - 0.2], self.clothes),
            part(
                Ellipsoid,
                [0.085, 0.105],
                [z - 0.13, z + 0.12],
                Material::skin(&self.clothes),
            ),
            part(Ellipsoid, [0.092, 0.1], [z - 0.02, z + 0.14], hair),
        ]
        .iter()
        .map(|part| placed(part, &pose))
        .collect()
    }
}

fn placed(part: &Part, pose: &Pose) -> PlacedSolid {
    PlacedSolid::new(part, pose, [0.0; 3], [0.0; 2], part.class, 0)
}

/// A round stick between two places.
fn limb(from: [f64; 3], to: [f64; 3], radius_m: f64, material: Material) -> PlacedSolid {
    let way = sub(to, from);
    let length = dot(way, way).sqrt().max(1e-6);
    let up = way.map(|v| v / length);
    let aside = if up[0].abs() < 0.9 {
        [1.0, 0.0, 0.0]
    } else {
        [0.0, 1.0, 0.0]
    };
    let across = cross(up, aside);
    let size = dot(across, across).sqrt();
    let across = across.map(|v| v / size);
    let third = cross(up, across);
    let pose = Pose {
        rotation: std::array::from_fn(|i| [across[i], third[i], up[i]]),
        translation: from,
    };
    let round = [-radius_m, radius_m];
    placed(
        &Part::new(
            Cylinder,
            round,
            round,
            [0.0, length],
            material,
            PERSON_CLASS,
        ),
        &pose,
    )
}
