//! The sides of blocks: parking strips, pavements, borders.

use std::f64::consts::{FRAC_PI_2, PI};

use crate::scenery::{self, Border};
use crate::streets::{PAVEMENT_M, Side};
use percept_data::points::ObjectClass;
use percept_data::random::Draws;

use super::{Habits, Style, Yard, park, wander};

/// How far from a corner nothing parks, so that traffic can turn.
const CORNER_M: f64 = 11.0;
const PARKING_FROM_KERB_M: f64 = -1.15;
const FURNITURE_FROM_KERB_M: f64 = 0.5;
const WALK_FROM_KERB_M: f64 = 1.7;
const BICYCLES_FROM_KERB_M: f64 = 2.75;

/// Fills the parking strip and the pavement of one side of a block.
pub(crate) fn furnish_side(yard: &mut dyn Yard, side: &Side, style: Style, draws: &mut Draws) {
    let habits = style.habits();
    let heading = side.heading_rad();
    let end = side.length_m - CORNER_M;
    if draws.chance(habits.works) {
        road_works(yard, side, draws);
    } else {
        let mut u = CORNER_M;
        while u < end {
            if draws.chance(habits.parked) {
                let class = parked_class(style, draws);
                let half = if class == ObjectClass::Car { 2.6 } else { 4.6 };
                let way = if draws.chance(0.12) { PI } else { 0.0 };
                let yaw = heading + way + draws.range(-0.04, 0.04);
                let v = PARKING_FROM_KERB_M + draws.range(-0.1, 0.1);
                if u + 2.0 * half < end {
                    park(yard, class, side.place(u + half, v), yaw, draws);
                }
                u += 2.0 * half + draws.range(0.6, 1.6);
            } else {
                u += draws.range(4.0, 8.0);
            }
        }
    }
    furniture(yard, side, &habits, draws);
    people(yard, side, &habits, draws);
    if side.wide && draws.chance(0.6) {
        // The arm reaches over the lanes.
        yard.stand(
            scenery::traffic_light(),
            side.place(side.length_m - 1.0, 0.6),
            heading + FRAC_PI_2,
        );
    }
    if let Some(border) = habits.border {
        border_line(yard, side, border, draws);
    }
}

fn parked_class(style: Style, draws: &mut Draws) -> ObjectClass {
    let heavy = if style == Style::Industrial {
        0.45
    } else {
        0.08
    };
    if !draws.chance(heavy) {
        return ObjectClass::Car;
    }
    ObjectClass::Truck
}

fn furniture(yard: &mut dyn Yard, side: &Side, habits: &Habits, draws: &mut Draws) {
    let heading = side.heading_rad();
    let mut u = draws.range(3.0, 7.0);
    let mut until_lamp = 0;
    while u < side.length_m - 2.0 {
        let position = side.place(u, FURNITURE_FROM_KERB_M);
        if until_lamp == 0 {
            yard.stand(scenery::lamp(), position, heading + FRAC_PI_2);
            until_lamp = 4;
        } else if draws.chance(habits.trees) {
            yard.stand(scenery::tree(draws), position, draws.angle());
        } else if draws.chance(0.3) {
            yard.stand(scenery::sign(draws), position, heading);
        } else if draws.chance(0.35) {
            yard.stand(scenery::street_box(draws), position, heading);
        }
        until_lamp -= 1;
        u += draws.range(5.5, 8.5);
    }
    if side.wide && draws.chance(0.25) {
        let u = draws.range(0.3, 0.7) * side.length_m;
        yard.stand(scenery::shelter(), side.place(u, 2.3), heading + PI);
    } else if draws.chance(0.45) {
        let start = draws.range(0.2, 0.7) * side.length_m;
        let class = if draws.chance(0.3) {
            ObjectClass::Motorcycle
        } else {
            ObjectClass::Bicycle
        };
        for place in 0..1 + draws.below(4) {
            let u = start + 0.95 * place as f64;
            let yaw = heading
                + draws.range(-0.15, 0.15)
                + if class == ObjectClass::Bicycle {
                    0.5
                } else {
                    0.9
                };
            park(
                yard,
                class,
                side.place(u, BICYCLES_FROM_KERB_M - 0.3),
                yaw,
                draws,
            );
        }
    }
}

fn people(yard: &mut dyn Yard, side: &Side, habits: &Habits, draws: &mut Draws) {
    let mut u = 2.0;
    while u < side.length_m - 8.0 {
        let stretch = draws.range(9.0, 22.0).min(side.length_m - 2.0 - u);
        if draws.chance(habits.people) {
            if draws.chance(0.1) {
                wander(
                    yard,
                    ObjectClass::Bicycle,
                    side.place(u, 1.4),
                    side.place(u + stretch, 1.4),
                    draws,
                );
            } else if draws.chance(0.3) {
                // People standing together.
                let middle = u + 0.5 * stretch;
                for person in 0..1 + draws.below(3) {
                    let spread = [draws.range(-0.2, 0.2), draws.range(-0.3, 0.3)];
                    let at = side.place(
                        middle + 0.9 * person as f64 + spread[0],
                        WALK_FROM_KERB_M + spread[1],
                    );
                    park(yard, ObjectClass::Pedestrian, at, draws.angle(), draws);
                }
            } else {
                let (v, drift) = (
                    WALK_FROM_KERB_M + draws.range(-0.35, 0.35),
                    draws.range(-0.2, 0.2),
                );
                wander(
                    yard,
                    ObjectClass::Pedestrian,
                    side.place(u, v),
                    side.place(u + stretch, v + drift),
                    draws,
                );
            }
        }
        u += stretch + 1.0;
    }
}

/// A closed-off parking strip: cones leading in and out, barriers between, sometimes a machine behind them.
fn road_works(yard: &mut dyn Yard, side: &Side, draws: &mut Draws) {
    let heading = side.heading_rad();
    let start = CORNER_M + draws.range(0.0, 6.0);
    let end = (start + draws.range(18.0, 30.0)).min(side.length_m - CORNER_M);
    let taper = 5.0;
    let outer = -2.2;
    for cone in 0..3 {
        let share = f64::from(cone) / 3.0;
        let v = outer * (0.15 + 0.8 * share);
        for u in [start + taper * share, end - taper * share] {
            park(
                yard,
                ObjectClass::TrafficCone,
                side.place(u, v),
                draws.angle(),
                draws,
            );
        }
    }
    let mut u = start + taper + 1.4;
    while u < end - taper - 1.4 {
        let at = side.place(u, outer + 0.15 + draws.range(-0.06, 0.06));
        park(
            yard,
            ObjectClass::Barrier,
            at,
            heading + FRAC_PI_2 + draws.range(-0.05, 0.05),
            draws,
        );
        u += 2.8;
    }
    if end - start > 22.0 && draws.chance(0.3) {
        for _ in 0..2 {
            let at = side.place(0.5 * (start + end) + draws.range(-4.0, 4.0), -0.8);
            park(yard, ObjectClass::Pedestrian, at, draws.angle(), draws);
        }
    }
}

fn border_line(yard: &mut dyn Yard, side: &Side, border: Border, draws: &mut Draws) {
    let mut u = PAVEMENT_M + 0.5;
    while u + 1.0 < side.length_m - PAVEMENT_M {
        let length = draws.range(5.0, 9.0).min(side.length_m - PAVEMENT_M - u);
        // A gap now and then is a gate.
        if !draws.chance(0.15) {
            let at = side.place(u + 0.5 * length, PAVEMENT_M + 0.5);
            yard.stand(scenery::border(border, length), at, side.heading_rad());
        }
        u += length;
    }
}
