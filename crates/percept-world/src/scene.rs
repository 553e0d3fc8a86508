//! One town with everything in it, at any time: what sensors look at.

use std::f64::consts::PI;
use std::sync::Arc;

use percept_data::points::pose::{cross, dot, sub};
use percept_data::points::{ObjectClass, Pose};

use super::body::Body;
use super::bvh::{Bounds, Bvh};
use super::cast::Stage;
use super::districts::{Lot, Style, Yard, fill_lot, furnish_side};
use super::ground::Ground;
use super::motion::{Lap, Motion};
use super::objects::{Rider, model, moving_class};
use super::solid::{Part, PlacedSolid};
use super::streets::{self, Axis, BLOCKS, DISTRICTS, LANE_FROM_KERB_M, PAVEMENT_M, Side};
use super::visits::{Guests, Pass, course};
use percept_data::random::Draws;

/// A town and its traffic, made from a seed; the ego vehicle circles the middle district.
#[derive(Debug)]
pub struct Scene {
    pub(crate) ground: Ground,
    pub(crate) still: Solids,
    pub(crate) bodies: Vec<Body>,
    ego: Motion,
}

/// Solids with the tree that finds them.
#[derive(Debug)]
pub(crate) struct Solids {
    pub(crate) list: Vec<PlacedSolid>,
    pub(crate) tree: Bvh,
}

impl Solids {
    pub(crate) fn new(list: Vec<PlacedSolid>) -> Self {
        let bounds: Vec<Bounds> = list.iter().map(|solid| solid.bounds).collect();
        Self {
            tree: Bvh::build(&bounds),
            list,
        }
    }
}

/// The streams of random numbers, one a purpose, so that a change in one place leaves the others alone.
mod stream {
    pub(super) const PLAN: u64 = 1;
    pub(super) const HILLS: u64 = 2;
    pub(super) const STYLES: u64 = 3;
    pub(super) const TRAFFIC: u64 = 100;
    pub(super) const BLOCK: u64 = 1000;
}

const CORNER_RADIUS_M: f64 = 8.0;
/// Axle and track distances over which the ego leans with the ground.
const EGO_WHEELBASE_M: f64 = 2.6;
const EGO_TRACK_M: f64 = 1.5;
/// What other vehicles leave free around the middle of the ego, beyond their own half.
const EGO_ROOM_M: f64 = 3.4;
/// How many of the parked cars and people that a town has room for are there on a day.
const PRESENT_SHARE: f64 = 0.6;
/// Between a truck and its trailer.
const DRAWBAR_M: f64 = 0.8;
/// Followers keep at least this much time to the vehicle ahead: two buses apart at corner speed.
const FOLLOW_S: f64 = 5.2;

/// A drive through a town that is told by how it is passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tour {
    pub(crate) pass: Pass,
    /// When the drive begins and how long it lasts.
    pub(crate) start_s: f64,
    pub(crate) covered_s: f64,
}

impl Scene {
    /// The town of `seed`.
    pub fn new(seed: u64) -> Self {
        Self::build(seed, None)
    }

    /// The town of `seed` on the day of a pass, and the ego vehicle on its tour.
    pub(crate) fn toured(seed: u64, tour: &Tour) -> Self {
        Self::build(seed, Some(tour))
    }

    fn build(seed: u64, tour: Option<&Tour>) -> Self {
        let mut plan = Draws::new(seed, stream::PLAN);
        let (x, y) = (Axis::new(&mut plan), Axis::new(&mut plan));
        let styles = choose_styles(&mut Draws::new(seed, stream::STYLES));
        let style_of = |[bx, by]: [usize; 2]| styles[by / 2 * DISTRICTS + bx / 2];
        let hills = hills(&mut Draws::new(seed, stream::HILLS));
        let ground = Ground::new(x.lines.clone(), y.lines.clone(), hills, |i, j| {
            streets::surface(&x, &y, i, j, |block| style_of(block).lot_surface())
        });
        let mut builder = Builder {
            ground,
            solids: Vec::new(),
            bodies: Vec::new(),
            guests: tour.map(|tour| Guests::of(seed, &tour.pass)),
            block: 0,
            offered: 0,
        };
        for by in 0..BLOCKS {
            for bx in 0..BLOCKS {
                builder.block = by * BLOCKS + bx;
                let mut draws = Draws::new(seed, stream::BLOCK + (by * BLOCKS + bx) as u64);
                let style = style_of([bx, by]);
                for side in Side::of_block(&x, &y, [bx, by]) {
                    furnish_side(&mut builder, &side, style, &mut draws);
                }
                let inside =
                    |[low, high]: [f64; 2]| [low + PAVEMENT_M + 1.0, high - PAVEMENT_M - 1.0];
                let lot = Lot {
                    x: inside(x.blocks[bx]),
                    y: inside(y.blocks[by]),
                };
                fill_lot(&mut builder, &lot, style, &mut draws);
            }
        }
        let mut ego = Motion::Still {
            position: [0.0; 2],
            yaw_rad: 0.0,
        };
        let first_vehicle = builder.bodies.len();
        let traffic_seed = builder.guests.map_or(seed, |guests| guests.key);
        // Traffic is there whole; only what stands or walks is a matter of the day.
        builder.guests = None;
        for dy in 0..DISTRICTS {
            for dx in 0..DISTRICTS {
                let mut draws =
                    Draws::new(traffic_seed, stream::TRAFFIC + (dy * DISTRICTS + dx) as u64);
                let ([x0, x1], [y0, y1]) = (x.district(dx), y.district(dy));
                let out = LANE_FROM_KERB_M;
                let (low, high) = ([x0 - out, y0 - out], [x1 + out, y1 + out]);
                let cruise_m_s = draws.range(7.0, 12.0);
                let lap = Arc::new(Lap::around(low, high, CORNER_RADIUS_M, cruise_m_s));
                let middle = tour.is_none() && dx == DISTRICTS / 2 && dy == DISTRICTS / 2;
                if middle {
                    ego = Motion::Lap {
                        ahead_s: draws.range(0.0, lap.duration_s()),
                        lap: lap.clone(),
                        behind_m: 0.0,
                        axle_m: 0.5 * EGO_WHEELBASE_M,
                    };
                }
                let taken = if let (true, Motion::Lap { ahead_s, .. }) = (middle, &ego) {
                    Some(*ahead_s)
                } else {
                    None
                };
                fill_lane(&mut builder, &lap, taken, &mut draws);
            }
        }
        if let Some(tour) = tour {
            let (lap, begin_s) = course(seed, &tour.pass, &x, &y, tour.covered_s);
            ego = Motion::Lap {
                lap: Arc::new(lap),
                ahead_s: begin_s - tour.start_s,
                behind_m: 0.0,
                axle_m: 0.5 * EGO_WHEELBASE_M,
            };
            clear_the_way(&mut builder.bodies, first_vehicle, &ego, tour);
        }
        Self {
            still: Solids::new(builder.solids),
            ground: builder.ground,
            bodies: builder.bodies,
            ego,
        }
    }

    /// The pose of the ego vehicle: x forward, y left, z up, origin on the ground below its middle.
    pub fn ego_to_world(&self, time_s: f64) -> Pose {
        let placement = self.ego.at(time_s);
        let (sin, cos) = libm::sincos(placement.yaw_rad);
        let [x, y] = placement.position;
        let touch = |along: f64, left: f64| {
            let (px, py) = (x + along * cos - left * sin, y + along * sin + left * cos);
            [px, py, self.ground.height(px, py)]
        };
        let (front, back) = (
            touch(0.5 * EGO_WHEELBASE_M, 0.0),
            touch(-0.5 * EGO_WHEELBASE_M, 0.0),
        );
        let (left, right) = (
            touch(0.0, 0.5 * EGO_TRACK_M),
            touch(0.0, -0.5 * EGO_TRACK_M),
        );
        let forward = normalised(sub(front, back));
        let up = normalised(cross(forward, sub(left, right)));
        let leftward = cross(up, forward);
        let rotation = std::array::from_fn(|i| [forward[i], leftward[i], up[i]]);
        Pose {
            rotation,
            translation: [x, y, 0.5 * (front[2] + back[2])],
        }
    }

    /// What rays meet: the town, and what moves through it.
    pub(crate) fn stage<'a>(&'a self, moving: &'a Solids) -> Stage<'a> {
        Stage {
            ground: Some(&self.ground),
            solids: [&self.still, moving],
        }
    }

    /// Where object `index` is at a time: its frame stands on the ground, upright.
    pub(crate) fn body_at(&self, index: usize, time_s: f64) -> Pose {
        let placement = self.bodies[index].motion.at(time_s);
        let [x, y] = placement.position;
        Pose::from_yaw(placement.yaw_rad, [x, y, self.ground.height(x, y)])
    }

    /// How object `index` moves through a sweep that ends at `end_s`: its pose at the end, and its velocity.
    ///
    /// For the length of a sweep everything goes straight on, with the heading of the sweep's middle.
    pub(crate) fn body_in_sweep(
        &self,
        index: usize,
        end_s: f64,
        duration_s: f64,
    ) -> (Pose, [f64; 3]) {
        let at = |time_s| self.body_at(index, time_s);
        let end = at(end_s);
        if self.bodies[index].motion.is_still() {
            return (end, [0.0; 3]);
        }
        let start = at(end_s - duration_s);
        let velocity = sub(end.translation, start.translation).map(|v| v / duration_s);
        (
            Pose {
                translation: end.translation,
                ..at(end_s - 0.5 * duration_s)
            },
            velocity,
        )
    }

    /// Everything that moves and may come within `reach_m` of `centre`, placed for a sweep that ends at `end_s`
    /// and lasts `duration_s`. Times of the solids count from the sweep's end.
    pub(crate) fn moving_solids(
        &self,
        centre: [f64; 3],
        reach_m: f64,
        end_s: f64,
        duration_s: f64,
    ) -> Solids {
        let mut list = Vec::new();
        for (index, body) in self.bodies.iter().enumerate() {
            if body.motion.is_still() {
                continue;
            }
            let (pose, velocity) = self.body_in_sweep(index, end_s, duration_s);
            let [dx, dy, _] = sub(pose.translation, centre);
            if dx * dx + dy * dy > reach_m * reach_m {
                continue;
            }
            for part in &body.parts {
                let class = moving_class(part.class);
                let times_s = [-duration_s, 0.0];
                let instance = index as u16 + 1;
                list.push(PlacedSolid::new(
                    part, &pose, velocity, times_s, class, instance,
                ));
            }
        }
        Solids::new(list)
    }
}

fn normalised(v: [f64; 3]) -> [f64; 3] {
    let length = dot(v, v).sqrt();
    v.map(|x| x / length)
}

/// Every style at least once, in an order that differs from town to town.
fn choose_styles(draws: &mut Draws) -> Vec<Style> {
    let mut styles: Vec<Style> = (0..DISTRICTS * DISTRICTS)
        .map(|i| Style::ALL[if i < 6 { i } else { draws.below(6) }])
        .collect();
    for i in (1..styles.len()).rev() {
        styles.swap(i, draws.below(i + 1));
    }
    styles
}

/// Road level as a sum of waves, at most about 5 % steep.
fn hills(draws: &mut Draws) -> impl Fn(f64, f64) -> f64 + use<> {
    let waves: Vec<[f64; 4]> = (0..4)
        .map(|_| {
            let (length_m, turn, phase) = (draws.range(120.0, 360.0), draws.angle(), draws.angle());
            let wave_number = 2.0 * PI / length_m;
            let (sin, cos) = libm::sincos(turn);
            [
                wave_number * cos,
                wave_number * sin,
                phase,
                0.0022 * length_m,
            ]
        })
        .collect();
    move |x, y| {
        waves
            .iter()
            .map(|[kx, ky, phase, height]| height * libm::sin(kx * x + ky * y + phase))
            .sum()
    }
}

/// Puts traffic on the lane around a district, leaving room around `taken` (the ego's place in it).
fn fill_lane(builder: &mut Builder, lap: &Arc<Lap>, taken: Option<f64>, draws: &mut Draws) {
    let first = taken.unwrap_or_else(|| draws.range(0.0, FOLLOW_S));
    let slots = (lap.duration_s() / FOLLOW_S) as usize;
    let spacing_s = lap.duration_s() / slots as f64;
    let busy = draws.range(0.35, 0.75);
    for slot in usize::from(taken.is_some())..slots {
        if !draws.chance(busy) {
            continue;
        }
        let slack = 0.12 * spacing_s;
        let ahead_s = first + spacing_s * slot as f64 + draws.range(-slack, slack);
        let class = match draws.below(20) {
            0..=12 => ObjectClass::Car,
            13..=14 => ObjectClass::Truck,
            15 => ObjectClass::Bus,
            16..=18 => ObjectClass::Motorcycle,
            _ => ObjectClass::Trailer,
        };
        // A trailer needs a truck ahead of it.
        let train = [
            (class == ObjectClass::Trailer).then_some(ObjectClass::Truck),
            Some(class),
        ];
        let (mut behind_m, mut ahead_of_it_m) = (0.0, None);
        for class in train.into_iter().flatten() {
            let model = model(class, Rider::Present, draws);
            let length_m = model.size[0];
            if let Some(ahead_m) = ahead_of_it_m {
                behind_m += 0.5 * (ahead_m + length_m) + DRAWBAR_M;
            }
            ahead_of_it_m = Some(length_m);
            let axle_m = 0.3 * length_m;
            let motion = Motion::Lap {
                lap: lap.clone(),
                ahead_s,
                behind_m,
                axle_m,
            };
            builder.add(Body::new(model, motion, Rider::Present));
        }
    }
}

/// Takes vehicles (the bodies from `first` on) that would come too near to the ego on its tour out of the traffic.
fn clear_the_way(bodies: &mut Vec<Body>, first: usize, ego: &Motion, tour: &Tour) {
    const STEP_S: f64 = 0.25;
    let steps = (tour.covered_s / STEP_S) as usize + 8;
    let way: Vec<(f64, [f64; 2])> = (0..steps)
        .map(|step| tour.start_s - 1.0 + STEP_S * step as f64)
        .map(|time_s| (time_s, ego.at(time_s).position))
        .collect();
    let meets = |body: &Body| {
        let reach_m = 0.5 * body.size[0] + EGO_ROOM_M;
        way.iter().any(|(time_s, [x, y])| {
            let [bx, by] = body.motion.at(*time_s).position;
            (bx - x) * (bx - x) + (by - y) * (by - y) < reach_m * reach_m
        })
    };
    let vehicles = bodies.split_off(first);
    bodies.extend(vehicles.into_iter().filter(|body| !meets(body)));
}

struct Builder {
    ground: Ground,
    solids: Vec<PlacedSolid>,
    bodies: Vec<Body>,
    /// Who is in town, when that depends on the day.
    guests: Option<Guests>,
    /// The number of the block that is being furnished, and of objects that were offered a place.
    block: usize,
    offered: usize,
}

impl Builder {
    /// What of an object that the town has room for is there on the day: another of its class, or none.
    fn today(&self, body: Body) -> Option<Body> {
        let Some(guests) = &self.guests else {
            return Some(body);
        };
        if matches!(body.class, ObjectClass::Barrier | ObjectClass::TrafficCone) {
            return guests.has_works(self.block).then_some(body);
        }
        let mut draws = guests.draws(self.offered);
        if !draws.chance(PRESENT_SHARE) {
            return None;
        }
        let model = model(body.class, body.rider, &mut draws);
        Some(Body::new(model, body.motion, body.rider))
    }

    fn place(&mut self, parts: &[Part], position: [f64; 2], yaw_rad: f64, instance: u16) {
        let [x, y] = position;
        let pose = Pose::from_yaw(yaw_rad, [x, y, self.ground.height(x, y)]);
        let placed = parts
            .iter()
            .map(|part| PlacedSolid::new(part, &pose, [0.0; 3], [0.0; 2], part.class, instance));
        self.solids.extend(placed);
    }
}

impl Yard for Builder {
    fn stand(&mut self, parts: Vec<Part>, position: [f64; 2], yaw_rad: f64) {
        self.place(&parts, position, yaw_rad, 0);
    }

    fn add(&mut self, body: Body) {
        self.offered += 1;
        let Some(body) = self.today(body) else {
            return;
        };
        // SemanticKITTI's instances have 16 bits; a town has some two thousand objects.
        let instance = self.bodies.len() as u16 + 1;
        if let Motion::Still { position, yaw_rad } = body.motion {
            self.place(&body.parts, position, yaw_rad, instance);
        }
        self.bodies.push(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn towns_hold_every_class_and_every_style() {
        for seed in 0..4 {
            let scene = Scene::new(seed);
            let classes: HashSet<_> = scene.bodies.iter().map(|body| body.class).collect();
            assert_eq!(classes.len(), 10, "seed {seed}: {classes:?}");
            let styles: HashSet<_> = choose_styles(&mut Draws::new(seed, stream::STYLES))
                .into_iter()
                .collect();
            assert_eq!(styles.len(), 6);
            assert!(scene.bodies.len() < usize::from(u16::MAX));
        }
    }

    /// The corners of a footprint.
    fn footprint(pose: &Pose, [length, width]: [f64; 2]) -> [[f64; 2]; 4] {
        [[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]].map(|[along, left]| {
            let p = pose.apply([along * length, left * width, 0.0]);
            [p[0], p[1]]
        })
    }

    /// Whether two rectangles overlap: none of their sides separates them.
    fn overlap(a: &[[f64; 2]; 4], b: &[[f64; 2]; 4]) -> bool {
        let separates = |from: [f64; 2], to: [f64; 2]| {
            let normal = [to[1] - from[1], from[0] - to[0]];
            let reach = |corners: &[[f64; 2]; 4]| {
                let along = corners.map(|c| c[0] * normal[0] + c[1] * normal[1]);
                (
                    along.iter().fold(f64::INFINITY, |m, v| m.min(*v)),
                    along.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v)),
                )
            };
            let ((a_low, a_high), (b_low, b_high)) = (reach(a), reach(b));
            a_high < b_low || b_high < a_low
        };
        ![a, b]
            .iter()
            .any(|sides| (0..4).any(|i| separates(sides[i], sides[(i + 1) % 4])))
    }

    #[test]
    fn nothing_drives_into_anything() {
        for seed in [3, 4] {
            let scene = Scene::new(seed);
            for step in 0..120 {
                let t = 1.3 * f64::from(step);
                let ego = scene.ego_to_world(t);
                let near = |pose: &Pose| {
                    let apart = sub(pose.translation, ego.translation);
                    dot(apart, apart) < 80.0 * 80.0
                };
                let placed: Vec<_> = (0..scene.bodies.len())
                    .map(|index| (index, scene.body_at(index, t)))
                    .filter(|(_, pose)| near(pose))
                    .map(|(index, pose)| {
                        let [length, width, _] = scene.bodies[index].size;
                        (index, footprint(&pose, [length, width]))
                    })
                    .collect();
                let own = footprint(&ego, [4.4, 1.9]);
                for (index, body) in &placed {
                    let class = scene.bodies[*index].class;
                    assert!(
                        !overlap(&own, body),
                        "seed {seed}: the ego meets a {} at {t} s",
                        class.name()
                    );
                    if !matches!(scene.bodies[*index].motion, Motion::Lap { .. }) {
                        continue;
                    }
                    for (other, elsewhere) in placed.iter().filter(|(other, _)| other != index) {
                        let met = scene.bodies[*other].class.name();
                        // In a corner a trailer folds against the truck that pulls it.
                        if other.abs_diff(*index) == 1
                            && (met == "trailer" || class.name() == "trailer")
                        {
                            continue;
                        }
                        assert!(
                            !overlap(body, elsewhere),
                            "seed {seed}: a {} meets a {met} at {t} s",
                            class.name()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn tours_stay_on_the_road_and_meet_nobody() {
        for number in 0..3 {
            let tour = Tour {
                pass: Pass::new(6, number),
                start_s: 1.0,
                covered_s: 260.0,
            };
            let scene = Scene::toured(6, &tour);
            for step in 0..500 {
                let t = 1.0 + 0.52 * f64::from(step);
                let ego = scene.ego_to_world(t);
                let [x, y, _] = ego.translation;
                let class = scene.ground.surface(x, y).class();
                assert!(
                    matches!(class, 40 | 44 | 60),
                    "pass {number}: {class} at {t} s"
                );
                let own = footprint(&ego, [4.4, 1.9]);
                for (index, body) in scene.bodies.iter().enumerate() {
                    let pose = scene.body_at(index, t);
                    let [dx, dy, _] = sub(pose.translation, ego.translation);
                    if dx * dx + dy * dy > 15.0 * 15.0 {
                        continue;
                    }
                    let [length, width, _] = body.size;
                    let met = overlap(&own, &footprint(&pose, [length, width]));
                    assert!(!met, "pass {number} meets a {} at {t} s", body.class.name());
                }
            }
        }
    }

    #[test]
    fn passes_share_what_stands_and_not_who_is_there() {
        let scene = |number| {
            Scene::toured(
                8,
                &Tour {
                    pass: Pass::new(8, number),
                    start_s: 1.0,
                    covered_s: 20.0,
                },
            )
        };
        let scenery = |scene: &Scene| {
            let standing = scene.still.list.iter().filter(|solid| solid.instance == 0);
            standing.map(|solid| solid.bounds).collect::<Vec<_>>()
        };
        let (first, second) = (scene(0), scene(1));
        assert!(scenery(&first) == scenery(&second) && scenery(&first).len() > 1000);
        let parked = |scene: &Scene| -> HashSet<[u64; 2]> {
            let cars = scene.bodies.iter().filter(|b| b.class == ObjectClass::Car);
            let still = cars.filter(|body| body.motion.is_still());
            still
                .map(|body| body.motion.at(0.0).position.map(f64::to_bits))
                .collect()
        };
        let (a, b) = (parked(&first), parked(&second));
        let shared = a.intersection(&b).count();
        assert!(
            shared > 0 && 10 * shared < 9 * a.len(),
            "{shared} of {}",
            a.len()
        );
    }

    #[test]
    fn the_ego_stays_on_the_road_and_upright() {
        let scene = Scene::new(11);
        for step in 0..400 {
            let pose = scene.ego_to_world(0.7 * f64::from(step));
            assert!(pose.is_rigid(1e-12));
            assert!(
                pose.rotation[2][2] > 0.99,
                "steeper than 8 degrees: {pose:?}"
            );
            let [x, y, _] = pose.translation;
            let surface = scene.ground.surface(x, y);
            assert!(
                matches!(surface.class(), 40 | 44 | 60),
                "{surface:?} at {x:.1}, {y:.1}"
            );
        }
    }
}
