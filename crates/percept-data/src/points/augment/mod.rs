//! Clouds and their boxes, changed so that a detector sees more than was recorded: CenterPoint's public augmentations for
//! nuScenes, in the order paste, flip, turn, scale, shift.
//!
//! Everything is drawn from a [`Draws`], so a view depends on its counters alone.

mod balance;
mod paste;

pub use balance::balanced_by_class;
pub use paste::{BankObject, ObjectBank, PasteCounts};

use super::frame::{Box3d, ObjectClass, Point};
use super::pose::{Pose, wrap_angle};
use crate::random::Draws;

/// How a whole cloud is moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CloudMotion {
    /// How often left and right change places, and how often ahead and behind.
    pub flip_chance: f64,
    /// Turned by at most this, either way.
    pub max_turn_rad: f64,
    /// Scaled by a factor between these.
    pub scale: [f64; 2],
    /// Shifted by this standard deviation along every axis.
    pub shift_m: f64,
}

impl Default for CloudMotion {
    /// OpenPCDet's for nuScenes.
    fn default() -> Self {
        Self {
            flip_chance: 0.5,
            max_turn_rad: std::f64::consts::FRAC_PI_4,
            scale: [0.9, 1.1],
            shift_m: 0.5,
        }
    }
}

impl CloudMotion {
    /// Moves points and boxes alike.
    pub fn apply(&self, points: &mut [Point], boxes: &mut [Box3d], draws: &mut Draws) {
        if draws.chance(self.flip_chance) {
            flip(points, boxes, 1);
        }
        if draws.chance(self.flip_chance) {
            flip(points, boxes, 0);
        }
        let yaw_rad = draws.range(-self.max_turn_rad, self.max_turn_rad);
        let scale = draws.range(self.scale[0], self.scale[1]);
        let shift = std::array::from_fn(|_| self.shift_m * crate::random::bell(draws.word()));
        moved(points, boxes, yaw_rad, scale, shift);
    }
}

/// Mirrors one axis of the ground plane.
fn flip(points: &mut [Point], boxes: &mut [Box3d], axis: usize) {
    for point in points {
        point.position[axis] = -point.position[axis];
    }
    for object in boxes {
        object.centre[axis] = -object.centre[axis];
        if let Some(velocity) = &mut object.velocity {
            velocity[axis] = -velocity[axis];
        }
        // Across y the heading's sine changes its sign, across x its cosine.
        let mirrored = match axis {
            1 => -object.yaw_rad,
            _ => std::f64::consts::PI - object.yaw_rad,
        };
        object.yaw_rad = wrap_angle(mirrored);
    }
}

/// Turned about the vertical, scaled, then shifted. Velocities are scaled too: so are the tracks that points of older sweeps
/// leave.
fn moved(points: &mut [Point], boxes: &mut [Box3d], yaw_rad: f64, scale: f64, shift: [f64; 3]) {
    let turn = Pose::from_yaw(yaw_rad, [0.0; 3]);
    let apply = |p: [f64; 3]| -> [f64; 3] {
        let turned = turn.rotate(p);
        std::array::from_fn(|axis| scale * turned[axis] + shift[axis])
    };
    for point in points {
        point.position = apply(point.position.map(f64::from)).map(|v| v as f32);
    }
    for object in boxes {
        object.centre = apply(object.centre);
        object.size = object.size.map(|side| scale * side);
        object.yaw_rad = wrap_angle(object.yaw_rad + yaw_rad);
        if let Some([x, y]) = object.velocity {
            let [x, y, _] = turn.rotate([x, y, 0.0]);
            object.velocity = Some([scale * x, scale * y]);
        }
    }
}

/// The space inside a box, ready to be asked about many points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interior {
    centre: [f64; 3],
    half: [f64; 3],
    sin: f64,
    cos: f64,
    radius_squared: f64,
}

impl Interior {
    pub(crate) fn of(object: &Box3d) -> Self {
        let (sin, cos) = libm::sincos(object.yaw_rad);
        let half = object.size.map(|side| 0.5 * side);
        Self {
            centre: object.centre,
            half,
            sin,
            cos,
            radius_squared: half[0] * half[0] + half[1] * half[1],
        }
    }

    pub(crate) fn contains(&self, point: &Point) -> bool {
        let [x, y, z]: [f64; 3] =
            std::array::from_fn(|axis| f64::from(point.position[axis]) - self.centre[axis]);
        if x * x + y * y > self.radius_squared || z.abs() > self.half[2] {
            return false;
        }
        let along = self.cos * x + self.sin * y;
        let across = self.cos * y - self.sin * x;
        along.abs() <= self.half[0] && across.abs() <= self.half[1]
    }
}

/// How many of `boxes` are of each class, by id.
fn count_by_class(boxes: &[Box3d]) -> [usize; ObjectClass::ALL.len()] {
    let mut counts = [0; ObjectClass::ALL.len()];
    for object in boxes {
        counts[object.class.id()] += 1;
    }
    counts
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn object(class: ObjectClass, x: f64, y: f64, yaw_rad: f64) -> Box3d {
        Box3d {
            class,
            centre: [x, y, -1.0],
            size: [4.0, 2.0, 1.5],
            yaw_rad,
            velocity: Some([3.0, 1.0]),
            lidar_points: 0,
            instance: 1,
        }
    }

    /// Points inside a box, in a grid.
    pub(crate) fn points_in(object: &Box3d) -> Vec<Point> {
        let pose = Pose::from_yaw(object.yaw_rad, object.centre);
        let mut points = Vec::new();
        for i in 0..5 {
            for j in 0..3 {
                let local = [f64::from(i) * 0.9 - 1.8, f64::from(j) * 0.9 - 0.9, 0.3];
                points.push(Point {
                    position: pose.apply(local).map(|v| v as f32),
                    intensity: 7.0,
                    age_s: 0.0,
                    ring: None,
                });
            }
        }
        points
    }

    proptest! {
        /// Points stay in their boxes, and velocity keeps its angle to the heading, up to a mirror.
        #[test]
        fn points_boxes_and_velocities_move_together(
            seed in any::<u64>(),
            x in -20.0..20.0_f64,
            y in -20.0..20.0_f64,
            yaw_rad in -3.0..3.0_f64,
        ) {
            let mut boxes = [object(ObjectClass::Car, x, y, yaw_rad)];
            let mut points = points_in(&boxes[0]);
            let slip = |object: &Box3d| {
                let [vx, vy] = object.velocity.unwrap();
                wrap_angle(libm::atan2(vy, vx) - object.yaw_rad).abs()
            };
            let (slip_before, speed) = (slip(&boxes[0]), 10.0_f64.sqrt());
            CloudMotion::default().apply(&mut points, &mut boxes, &mut Draws::new(seed, 0));
            let inside = Interior::of(&boxes[0]);
            prop_assert!(points.iter().all(|point| inside.contains(point)));
            prop_assert!(points.iter().all(|p| boxes[0].contains(p.position.map(f64::from), 1e-4)));
            prop_assert!((slip(&boxes[0]) - slip_before).abs() < 1e-9);
            let [vx, vy] = boxes[0].velocity.unwrap();
            let scale = boxes[0].size[0] / 4.0;
            prop_assert!(((vx * vx + vy * vy).sqrt() - scale * speed).abs() < 1e-9);
            prop_assert!((0.9..=1.1).contains(&scale));
        }
    }

    #[test]
    fn the_same_draws_give_the_same_view() {
        let view = |seed| {
            let mut boxes = [object(ObjectClass::Bus, 5.0, 3.0, 0.4)];
            let mut points = points_in(&boxes[0]);
            CloudMotion::default().apply(&mut points, &mut boxes, &mut Draws::new(seed, 1));
            (points, boxes)
        };
        assert_eq!(view(3), view(3));
        assert_ne!(view(3), view(4));
    }

    #[test]
    fn an_interior_is_what_the_box_contains() {
        let car = object(ObjectClass::Car, 3.0, -2.0, 0.7);
        let inside = Interior::of(&car);
        let mut draws = Draws::new(1, 2);
        let mut found = 0;
        for _ in 0..2000 {
            let position = [
                draws.range(-1.0, 7.0) as f32,
                draws.range(-6.0, 2.0) as f32,
                draws.range(-3.0, 1.0) as f32,
            ];
            let point = Point {
                position,
                intensity: 0.0,
                age_s: 0.0,
                ring: None,
            };
            let expected = car.contains(position.map(f64::from), 0.0);
            assert_eq!(inside.contains(&point), expected);
            found += usize::from(expected);
        }
        assert!(found > 50, "{found} points inside");
    }
}
