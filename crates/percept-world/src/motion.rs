//! How bodies move, in closed form: where anything is at any time, without simulating up to it.
//!
//! Traffic cannot collide by construction. Every lane belongs to the district at its right, and all traffic of a
//! lane circles that district in one direction, each vehicle repeating the same drive some seconds after the one
//! ahead. People walk to and fro on stretches of pavement of their own.

use std::f64::consts::{FRAC_PI_2, PI};
use std::sync::Arc;

/// Where a body is in the ground plane, and how fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placement {
    pub(crate) position: [f64; 2],
    pub(crate) yaw_rad: f64,
    pub(crate) velocity: [f64; 2],
}

/// How a body moves.
#[derive(Clone, Debug)]
pub(crate) enum Motion {
    Still {
        position: [f64; 2],
        yaw_rad: f64,
    },
    /// Circling a district: the drive of the lap `ahead_s` seconds early, `behind_m` metres behind (a towed trailer).
    /// Both axles, `axle_m` before and behind the middle, follow the lane, so long vehicles cut their corners.
    Lap {
        lap: Arc<Lap>,
        ahead_s: f64,
        behind_m: f64,
        axle_m: f64,
    },
    /// Walking or riding between two places and back, having gone `offset_m` metres of the round at time 0.
    Walk {
        from: [f64; 2],
        to: [f64; 2],
        speed_m_s: f64,
        offset_m: f64,
    },
}

impl Motion {
    pub(crate) fn at(&self, time_s: f64) -> Placement {
        match self {
            Self::Still { position, yaw_rad } => Placement {
                position: *position,
                yaw_rad: *yaw_rad,
                velocity: [0.0; 2],
            },
            Self::Lap {
                lap,
                ahead_s,
                behind_m,
                axle_m,
            } => lap.at(time_s + ahead_s, *behind_m, *axle_m),
            Self::Walk {
                from,
                to,
                speed_m_s,
                offset_m,
            } => {
                let way = [to[0] - from[0], to[1] - from[1]];
                let length = (way[0] * way[0] + way[1] * way[1]).sqrt();
                let gone = (offset_m + speed_m_s * time_s).rem_euclid(2.0 * length);
                let (along, sense) = if gone < length {
                    (gone, 1.0)
                } else {
                    (2.0 * length - gone, -1.0)
                };
                let heading = way.map(|w| sense * w / length);
                Placement {
                    position: [0, 1].map(|i| from[i] + way[i] * along / length),
                    yaw_rad: libm::atan2(heading[1], heading[0]),
                    velocity: heading.map(|h| h * speed_m_s),
                }
            }
        }
    }

    pub(crate) fn is_still(&self) -> bool {
        matches!(self, Self::Still { .. })
    }
}

/// A closed drive of straights and rounded quarter turns, slower in the turns.
#[derive(Clone, Debug)]
pub(crate) struct Lap {
    legs: Vec<Leg>,
    radius_m: f64,
    length_m: f64,
    /// The time at which each multiple of [`TABLE_STEP_M`] is passed; the last entry closes the lap.
    times_s: Vec<f64>,
    step_m: f64,
}

/// A straight and the turn at its end.
#[derive(Clone, Copy, Debug)]
struct Leg {
    start: [f64; 2],
    heading_rad: f64,
    straight_m: f64,
    /// 1 to the left, -1 to the right.
    turn: f64,
}

const TABLE_STEP_M: f64 = 0.5;
const CORNER_SPEED_M_S: f64 = 4.0;
const COMFORTABLE_BRAKING_M_S2: f64 = 1.4;

impl Lap {
    /// Clockwise around the rectangle `low`..`high` (the lane's centre line), cruising at `cruise_m_s` on the straights.
    pub(crate) fn around(low: [f64; 2], high: [f64; 2], radius_m: f64, cruise_m_s: f64) -> Self {
        let r = radius_m;
        let [x, y] = [0, 1].map(|axis| high[axis] - low[axis] - 2.0 * r);
        // Eastwards along the top edge, then south, west and north.
        let starts = [
            [low[0] + r, high[1]],
            [high[0], high[1] - r],
            [high[0] - r, low[1]],
            [low[0], low[1] + r],
        ];
        let leg = |side: usize| Leg {
            start: starts[side],
            heading_rad: -FRAC_PI_2 * side as f64,
            straight_m: [x, y, x, y][side],
            turn: -1.0,
        };
        let length_m = 2.0 * (x + y) + 2.0 * PI * r;
        Self::of_legs([0, 1, 2, 3].map(leg).to_vec(), length_m, r, cruise_m_s)
    }

    /// Along lines between `corners` in turn and back to the first; neighbouring lines meet at right angles.
    pub(crate) fn through(corners: &[[f64; 2]], radius_m: f64, cruise_m_s: f64) -> Self {
        let corner = |number: usize| corners[number % corners.len()];
        let heading = |number: usize| {
            let ([x0, y0], [x1, y1]) = (corner(number), corner(number + 1));
            libm::atan2(y1 - y0, x1 - x0)
        };
        let legs: Vec<Leg> = (0..corners.len())
            .map(|number| {
                let ([x0, y0], [x1, y1]) = (corner(number), corner(number + 1));
                let (sin, cos) = libm::sincos(heading(number));
                let way = (x1 - x0) * cos + (y1 - y0) * sin;
                Leg {
                    start: [x0 + radius_m * cos, y0 + radius_m * sin],
                    heading_rad: heading(number),
                    straight_m: way - 2.0 * radius_m,
                    turn: libm::sin(heading(number + 1) - heading(number)).signum(),
                }
            })
            .collect();
        let turn_m = FRAC_PI_2 * radius_m;
        let length_m = legs.iter().map(|leg| leg.straight_m + turn_m).sum();
        Self::of_legs(legs, length_m, radius_m, cruise_m_s)
    }

    fn of_legs(legs: Vec<Leg>, length_m: f64, radius_m: f64, cruise_m_s: f64) -> Self {
        let steps = libm::ceil(length_m / TABLE_STEP_M) as usize;
        let step_m = length_m / steps as f64;
        let mut lap = Self {
            legs,
            radius_m,
            length_m,
            times_s: vec![0.0],
            step_m,
        };
        for step in 0..steps {
            let to_corner = lap.distance_to_corner((step as f64 + 0.5) * step_m);
            let allowed =
                CORNER_SPEED_M_S * CORNER_SPEED_M_S + 2.0 * COMFORTABLE_BRAKING_M_S2 * to_corner;
            let speed = allowed.sqrt().min(cruise_m_s);
            lap.times_s.push(lap.times_s[step] + step_m / speed);
        }
        lap
    }

    /// Seconds for one round.
    pub(crate) fn duration_s(&self) -> f64 {
        self.times_s[self.times_s.len() - 1]
    }

    /// Where a point that drives the lap is.
    pub(crate) fn position(&self, time_s: f64) -> [f64; 2] {
        self.at(time_s, 0.0, 0.0).position
    }

    /// When the lap comes nearest to a place.
    pub(crate) fn time_near_s(&self, [x, y]: [f64; 2]) -> f64 {
        let apart = |step: usize| {
            let ([px, py], _) = self.point(step as f64 * self.step_m);
            (px - x) * (px - x) + (py - y) * (py - y)
        };
        let steps = self.times_s.len() - 1;
        let nearest = (0..steps).fold((0, f64::INFINITY), |best, step| {
            let apart = apart(step);
            if apart < best.1 { (step, apart) } else { best }
        });
        self.times_s[nearest.0]
    }

    fn distance_to_corner(&self, s: f64) -> f64 {
        let mut rest = s;
        for leg in &self.legs {
            if rest < leg.straight_m {
                return rest.min(leg.straight_m - rest);
            }
            rest -= leg.straight_m;
            if rest < FRAC_PI_2 * self.radius_m {
                return 0.0;
            }
            rest -= FRAC_PI_2 * self.radius_m;
        }
        0.0
    }

    fn at(&self, time_s: f64, behind_m: f64, axle_m: f64) -> Placement {
        let within = time_s.rem_euclid(self.duration_s());
        let step = self
            .times_s
            .partition_point(|t| *t <= within)
            .clamp(1, self.times_s.len() - 1)
            - 1;
        let speed = self.step_m / (self.times_s[step + 1] - self.times_s[step]);
        let gone = step as f64 * self.step_m + speed * (within - self.times_s[step]) - behind_m;
        let axle = |along_m: f64| {
            let (position, heading) = self.point((gone + along_m).rem_euclid(self.length_m));
            let (sin, cos) = libm::sincos(heading);
            (position, [speed * cos, speed * sin])
        };
        let ((front, front_velocity), (rear, rear_velocity)) = (axle(axle_m), axle(-axle_m));
        let middle = |a: [f64; 2], b: [f64; 2]| [0.5 * (a[0] + b[0]), 0.5 * (a[1] + b[1])];
        Placement {
            position: middle(front, rear),
            yaw_rad: libm::atan2(front[1] - rear[1], front[0] - rear[0]),
            velocity: middle(front_velocity, rear_velocity),
        }
    }

    /// Place and heading after `s` metres from the start of the first straight.
    fn point(&self, s: f64) -> ([f64; 2], f64) {
        let r = self.radius_m;
        let mut rest = s;
        for leg in &self.legs {
            let (heading, straight, turn) = (leg.heading_rad, leg.straight_m, leg.turn);
            let (sin, cos) = libm::sincos(heading);
            let [x, y] = leg.start;
            if rest < straight {
                return ([x + cos * rest, y + sin * rest], heading);
            }
            rest -= straight;
            if rest < FRAC_PI_2 * r {
                let turned = rest / r;
                // The turn's centre lies beside the straight's end.
                let centre = [
                    x + cos * straight - turn * sin * r,
                    y + sin * straight + turn * cos * r,
                ];
                let heading = heading + turn * turned;
                let (sin, cos) = libm::sincos(heading);
                let at = [centre[0] + turn * sin * r, centre[1] - turn * cos * r];
                return (at, heading);
            }
            rest -= FRAC_PI_2 * r;
        }
        (self.legs[0].start, self.legs[0].heading_rad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
        ((a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1])).sqrt()
    }

    /// A car's place on the lap.
    fn drive(lap: &Arc<Lap>, time_s: f64, behind_m: f64) -> Placement {
        Motion::Lap {
            lap: lap.clone(),
            ahead_s: 0.0,
            behind_m,
            axle_m: 1.4,
        }
        .at(time_s)
    }

    fn lap() -> Arc<Lap> {
        Arc::new(Lap::around([-80.0, -60.0], [70.0, 90.0], 8.0, 9.0))
    }

    #[test]
    fn velocity_is_the_change_of_position_and_points_ahead() {
        let motions = [
            Motion::Lap {
                lap: lap(),
                ahead_s: 3.0,
                behind_m: 0.0,
                axle_m: 3.0,
            },
            Motion::Walk {
                from: [1.0, 2.0],
                to: [9.0, 8.0],
                speed_m_s: 1.3,
                offset_m: 0.4,
            },
        ];
        for motion in motions {
            for step in 0..1000 {
                let t = 0.137 * f64::from(step);
                let (a, b) = (motion.at(t), motion.at(t + 1e-4));
                let measured = [0, 1].map(|i| (b.position[i] - a.position[i]) / 1e-4);
                let turning = distance(a.velocity, b.velocity) > 0.1;
                assert!(
                    turning || distance(measured, a.velocity) < 0.05,
                    "{a:?} moves {measured:?}"
                );
                let ahead = libm::atan2(a.velocity[1], a.velocity[0]);
                assert!(libm::cos(ahead - a.yaw_rad) > 0.98);
            }
        }
    }

    #[test]
    fn laps_close_keep_right_and_slow_down_in_corners() {
        let lap = lap();
        let whole = lap.duration_s();
        assert!(
            distance(
                drive(&lap, 0.0, 0.0).position,
                drive(&lap, whole - 1e-9, 0.0).position
            ) < 1e-6
        );
        let speeds: Vec<f64> = (0..500)
            .map(|i| {
                let p = drive(&lap, whole * f64::from(i) / 500.0, 0.0);
                // The middle of the district lies to the right of the way.
                let to_middle = [-5.0 - p.position[0], 15.0 - p.position[1]];
                assert!(p.velocity[0] * to_middle[1] - p.velocity[1] * to_middle[0] < 0.0);
                distance(p.velocity, [0.0; 2])
            })
            .collect();
        let (slow, fast) = speeds
            .iter()
            .fold((99.0f64, 0.0f64), |(a, b), s| (a.min(*s), b.max(*s)));
        // The middle of a car that cuts its corner a little is a little slower than its wheels.
        assert!(
            slow > 3.9 && slow < 4.0 && (fast - 9.0).abs() < 1e-6,
            "{slow} {fast}"
        );
    }

    #[test]
    fn courses_turn_both_ways_and_close() {
        // An L, whose inner corner turns left on a clockwise way.
        let corners = [
            [0.0, 0.0],
            [0.0, 90.0],
            [50.0, 90.0],
            [50.0, 40.0],
            [120.0, 40.0],
            [120.0, 0.0],
        ];
        let lap = Arc::new(Lap::through(&corners, 7.0, 8.0));
        let whole = lap.duration_s();
        for step in 0..2000 {
            let t = whole * f64::from(step) / 2000.0;
            let (a, b) = (drive(&lap, t, 0.0), drive(&lap, t + 0.01, 0.0));
            assert!(distance(a.position, b.position) < 0.09, "a jump at {t} s");
        }
        for corner in corners {
            let near = drive(&lap, lap.time_near_s(corner), 0.0).position;
            assert!(
                distance(near, corner) < 3.5,
                "{corner:?} is passed at {near:?}"
            );
        }
    }

    #[test]
    fn a_trailer_follows_its_truck() {
        let lap = lap();
        for step in 0..300 {
            let t = f64::from(step) * 0.3;
            let gap = distance(drive(&lap, t, 0.0).position, drive(&lap, t, 8.0).position);
            assert!(gap > 6.5 && gap <= 8.0 + 1e-9, "{gap}");
        }
    }
}
