//! One take: a room, things on its table, and somebody who moves them.

use percept_data::points::Pose;
use percept_data::points::pose::{add_scaled, cross, dot, sub};
use percept_data::random::{Draws, key};
use percept_kernels::Cpu;

use super::furniture::{Furniture, Person, RoomKind, furnish};
use super::goods::{Good, Kind, PAINTS, good};
use crate::cast::Stage;
use crate::material::Material;
use crate::scene::Solids;
use crate::solid::PlacedSolid;
use crate::view::{PictureSize, Shot, View, take};
use crate::weather::Illumination;

/// A room with its things, at any time.
pub(super) struct Take {
    key: u64,
    room: RoomKind,
    furniture: Furniture,
    still: Solids,
    things: Vec<Thing>,
    light: Illumination,
    clothes: Material,
    exo: Pose,
    /// Where the person sits, and how the head sways.
    seat_x: f64,
    sway: [f64; 3],
}

/// A thing and where it stands, or is carried to.
struct Thing {
    good: Good,
    /// Which of all paints it has.
    paint: usize,
    place: [f64; 3],
    yaw_rad: f64,
    carried: Option<Carry>,
}

/// One walk of a thing through the air, from its place to another.
struct Carry {
    to: [f64; 3],
    start_s: f64,
}

const CARRY_S: f64 = 2.4;
/// From the start of one carry to that of the next: there is one pair of hands.
const CARRY_EVERY_S: f64 = 3.0;
const CARRIES: usize = 5;
const LIFT_M: f64 = 0.16;

impl Take {
    pub(super) fn new(take_key: u64) -> Self {
        let mut draws = Draws::of(&[take_key, 1]);
        let room = [RoomKind::Kitchen, RoomKind::Workshop, RoomKind::Desk][draws.below(3)];
        let furniture = furnish(room, &mut Draws::of(&[take_key, 2]));
        let things = lay(&furniture, &mut Draws::of(&[take_key, 3]));
        let lamp = [draws.range(-0.9, 0.9), draws.range(-0.8, 0.5), 2.45];
        let light = Illumination::indoors(
            lamp,
            draws.range(0.0, 0.8) as f32,
            draws.range(0.35, 0.6) as f32,
        );
        let exo = stand(&furniture, &mut draws);
        Self {
            key: take_key,
            room,
            still: Solids::new(furniture.solids.clone()),
            furniture,
            things,
            light,
            clothes: Material::clothes(draws.range(0.1, 0.5)),
            exo,
            seat_x: draws.range(-0.2, 0.2),
            sway: [draws.angle(), draws.angle(), draws.angle()],
        }
    }

    pub(super) fn key(&self) -> u64 {
        self.key
    }

    pub(super) fn room(&self) -> RoomKind {
        self.room
    }

    /// Kind, name and paint of every thing.
    pub(super) fn names(&self) -> impl Iterator<Item = (&'static str, String, usize)> + '_ {
        self.things.iter().enumerate().map(|(number, thing)| {
            let kind = thing.good.kind.name();
            (kind, format!("{kind}_{number}"), thing.paint)
        })
    }

    /// What the two cameras see at pair `frame`, a second after the one before.
    pub(super) fn look(&self, cpu: &Cpu, sizes: [PictureSize; 2], frame: usize) -> [View; 2] {
        let time_s = frame as f64;
        let places: Vec<[f64; 3]> = self.things.iter().map(|thing| thing.at(time_s)).collect();
        let person = self.person(time_s, &places);
        let things = self.things.iter().zip(&places).enumerate();
        let mut seen: Vec<PlacedSolid> = things
            .flat_map(|(number, (thing, place))| thing.solids(*place, time_s, number as u16 + 1))
            .collect();
        seen.extend(person.arms());
        let from_head = Solids::new(seen.clone());
        seen.extend(person.body());
        let from_stand = Solids::new(seen);
        let gaze = self.gaze(time_s, &places);
        let shot = |side: usize| {
            let (solids, camera_to_world, focal) = [
                (&from_head, looking(person.eye, gaze), 0.58),
                (&from_stand, self.exo, 0.98),
            ][side];
            let size = sizes[side];
            let [width, height] = [size.width() as f64, size.height() as f64];
            let focal = focal * width.max(height);
            Shot {
                stage: Stage {
                    ground: None,
                    solids: [&self.still, solids],
                },
                light: &self.light,
                size,
                intrinsics: [
                    [focal, 0.0, 0.5 * width],
                    [0.0, focal, 0.5 * height],
                    [0.0, 0.0, 1.0],
                ],
                camera_to_world,
                time_s: 0.0,
                key: key(&[self.key, 4, frame as u64, side as u64]),
            }
        };
        let mut views = take(cpu, &[shot(0), shot(1)]).into_iter();
        std::array::from_fn(|_| views.next().expect("one view a shot"))
    }

    fn person(&self, time_s: f64, places: &[[f64; 3]]) -> Person {
        let [_, hy] = self.furniture.table_half;
        let wave = |rate: f64, phase: f64| libm::sin(rate * time_s + phase);
        let table_m = self.furniture.table_m;
        let eye = [
            self.seat_x + 0.1 * wave(0.8, self.sway[0]),
            -hy - 0.1 + 0.05 * wave(0.6, self.sway[1]),
            table_m + 0.52 + 0.05 * wave(0.5, self.sway[2]),
        ];
        let resting = |side: f64| [self.seat_x + 0.3 * side, -hy + 0.04, table_m + 0.02];
        let mut hands = [resting(-1.0), resting(1.0)];
        if let Some((number, thing)) = self.in_hand(time_s) {
            let side = usize::from(places[number][0] > self.seat_x);
            // The hand holds the thing from behind.
            let behind = 0.8 * thing.good.radius_m;
            hands[side] = add_scaled(places[number], 1.0, [0.0, -behind, 0.04]);
        }
        Person {
            eye,
            hands,
            clothes: self.clothes,
        }
    }

    /// The thing that is in the air.
    fn in_hand(&self, time_s: f64) -> Option<(usize, &Thing)> {
        let is_carried = |thing: &Thing| {
            let start = thing.carried.as_ref().map(|carry| carry.start_s);
            start.is_some_and(|start_s| (start_s..start_s + CARRY_S).contains(&time_s))
        };
        self.things
            .iter()
            .enumerate()
            .find(|(_, thing)| is_carried(thing))
    }

    /// Where the person looks: about the middle of the table, and after what the hands do.
    fn gaze(&self, time_s: f64, places: &[[f64; 3]]) -> [f64; 3] {
        let wander = |phase: f64| libm::sin(0.45 * time_s + phase);
        let idle = [
            0.25 * wander(self.sway[2]),
            0.06 + 0.08 * wander(self.sway[0]),
            self.furniture.table_m,
        ];
        match self.in_hand(time_s) {
            None => idle,
            Some((number, _)) => std::array::from_fn(|i| 0.6 * idle[i] + 0.4 * places[number][i]),
        }
    }
}

impl Thing {
    fn at(&self, time_s: f64) -> [f64; 3] {
        let Some(carry) = &self.carried else {
            return self.place;
        };
        let share = ((time_s - carry.start_s) / CARRY_S).clamp(0.0, 1.0);
        let way = sub(carry.to, self.place);
        let mut place = add_scaled(self.place, share, way);
        place[2] += LIFT_M * 4.0 * share * (1.0 - share);
        place
    }

    fn solids(&self, place: [f64; 3], time_s: f64, instance: u16) -> Vec<PlacedSolid> {
        let turned = self.carried.as_ref().map_or(0.0, |carry| {
            ((time_s - carry.start_s) / CARRY_S).clamp(0.0, 1.0)
        });
        let pose = Pose::from_yaw(self.yaw_rad + 1.2 * turned, place);
        let parts = self.good.parts.iter();
        parts
            .map(|part| PlacedSolid::new(part, &pose, [0.0; 3], [0.0; 2], part.class, instance))
            .collect()
    }
}

/// Puts things on the table and some on the shelf, none into another; a few will be carried.
fn lay(furniture: &Furniture, draws: &mut Draws) -> Vec<Thing> {
    let count = 12 + draws.below(17);
    // Fewer colours than things: most have others of their colour beside them.
    let colours: Vec<_> = (0..3 + count / 5)
        .map(|_| draws.below(PAINTS.len()))
        .collect();
    let [hx, hy] = furniture.table_half;
    let mut things: Vec<Thing> = Vec::with_capacity(count);
    let mut taken: Vec<([f64; 2], f64)> = Vec::new();
    let mut carries = 0;
    // What finds no room makes place for another try with something else.
    for _ in 0..4 * count {
        let number = things.len();
        if number == count {
            break;
        }
        let kind = Kind::ALL[draws.below(Kind::ALL.len())];
        let paint = colours[draws.below(colours.len())];
        let good = good(kind, PAINTS[paint], draws);
        let yaw_rad = draws.angle();
        if number % 8 == 7 {
            let [x, y, half, z] = furniture.shelf;
            let at = x + half * (0.25 * (number / 8) as f64 - 0.5);
            things.push(Thing {
                good,
                paint,
                place: [at, y, z],
                yaw_rad,
                carried: None,
            });
            continue;
        }
        let mut free = |draws: &mut Draws| {
            let room = good.radius_m;
            let found = (0..80).find_map(|_| {
                let at = [
                    draws.range(-1.0, 1.0) * (hx - room - 0.01),
                    draws.range(-1.0, 1.0) * (hy - room - 0.01),
                ];
                let clear = taken.iter().all(|([x, y], radius)| {
                    let apart = room + radius + 0.008;
                    (at[0] - x) * (at[0] - x) + (at[1] - y) * (at[1] - y) > apart * apart
                });
                clear.then_some(at)
            })?;
            taken.push((found, room));
            Some([found[0], found[1], furniture.table_m])
        };
        let Some(place) = free(draws) else { continue };
        let wanted = carries < CARRIES && draws.chance(0.35);
        let to = if wanted { free(draws) } else { None };
        let carried = to.map(|to| {
            carries += 1;
            Carry {
                to,
                start_s: 0.4 + CARRY_EVERY_S * (carries - 1) as f64,
            }
        });
        things.push(Thing {
            good,
            paint,
            place,
            yaw_rad,
            carried,
        });
    }
    things
}

/// The camera on its stand: somewhere across the table or beside it, looking at the middle.
fn stand(furniture: &Furniture, draws: &mut Draws) -> Pose {
    let azimuth = draws.range(-0.5, 3.6);
    let (sin, cos) = libm::sincos(azimuth);
    let distance = draws.range(1.25, 1.6);
    let at = [
        distance * cos,
        (0.75 * distance * sin).min(furniture.shelf[1] - 0.2),
        furniture.table_m + draws.range(0.55, 0.95),
    ];
    let aim = [
        draws.range(-0.08, 0.08),
        draws.range(-0.1, 0.06),
        furniture.table_m,
    ];
    looking(at, aim)
}

/// A camera at a place that looks at another, upright: x to the right, y down, z forward.
fn looking(from: [f64; 3], at: [f64; 3]) -> Pose {
    let unit = |v: [f64; 3]| {
        let length = dot(v, v).sqrt();
        v.map(|c| c / length)
    };
    let ahead = unit(sub(at, from));
    let right = unit(cross(ahead, [0.0, 0.0, 1.0]));
    let down = cross(ahead, right);
    Pose {
        rotation: std::array::from_fn(|i| [right[i], down[i], ahead[i]]),
        translation: from,
    }
}
