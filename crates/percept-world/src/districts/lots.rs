//! The insides of blocks.

use std::f64::consts::{FRAC_PI_2, PI};

use crate::scenery;
use percept_data::points::ObjectClass;
use percept_data::random::Draws;

use super::{Style, Yard, park, wander};

/// A rectangle of ground to be filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lot {
    pub(crate) x: [f64; 2],
    pub(crate) y: [f64; 2],
}

impl Lot {
    fn size(&self) -> [f64; 2] {
        [self.x[1] - self.x[0], self.y[1] - self.y[0]]
    }

    /// The place at these shares of the lot's extent.
    fn at(&self, share_x: f64, share_y: f64) -> [f64; 2] {
        let [width, depth] = self.size();
        [self.x[0] + share_x * width, self.y[0] + share_y * depth]
    }
}

/// Fills the inside of a block.
pub(crate) fn fill_lot(yard: &mut dyn Yard, lot: &Lot, style: Style, draws: &mut Draws) {
    match style {
        Style::Downtown => downtown(yard, lot, draws),
        Style::Residential => residential(yard, lot, draws),
        Style::Industrial => industrial(yard, lot, draws),
        Style::Park => parkland(yard, lot, draws),
        Style::BuildingSite => building_site(yard, lot, draws),
        Style::Shopping => shopping(yard, lot, draws),
    }
}

fn downtown(yard: &mut dyn Yard, lot: &Lot, draws: &mut Draws) {
    let [width, depth] = lot.size();
    for i in 0..2 {
        for j in 0..2 {
            let (l, w) = (
                0.5 * width - draws.range(1.5, 7.0),
                0.5 * depth - draws.range(1.5, 7.0),
            );
            let at = lot.at(0.25 + 0.5 * f64::from(i), 0.25 + 0.5 * f64::from(j));
            let height = draws.range(11.0, 38.0);
            yard.stand(scenery::tower([l, w], height, draws), at, 0.0);
        }
    }
}

fn residential(yard: &mut dyn Yard, lot: &Lot, draws: &mut Draws) {
    for i in 0..3 {
        for j in 0..3 {
            let at = lot.at((f64::from(i) + 0.5) / 3.0, (f64::from(j) + 0.5) / 3.0);
            if (i, j) == (1, 1) || draws.chance(0.12) {
                yard.stand(scenery::tree(draws), at, draws.angle());
                continue;
            }
            let size = [draws.range(8.0, 11.5), draws.range(7.0, 9.5)];
            let quarter = f64::from(draws.below(4) as u32) * FRAC_PI_2;
            yard.stand(
                scenery::house(size, draws),
                at,
                quarter + draws.range(-0.25, 0.25),
            );
            let beside = [at[0] + draws.sign() * 7.6, at[1] + draws.sign() * 7.2];
            if draws.chance(0.5) {
                yard.stand(scenery::bush(draws), beside, 0.0);
            } else if draws.chance(0.4) {
                yard.stand(scenery::tree(draws), beside, 0.0);
            }
        }
    }
}

fn industrial(yard: &mut dyn Yard, lot: &Lot, draws: &mut Draws) {
    let [width, depth] = lot.size();
    let behind = draws.sign();
    yard.stand(
        scenery::hall([0.8 * width, 0.42 * depth], draws),
        lot.at(0.5, 0.5 + 0.24 * behind),
        0.0,
    );
    let yard_y = 0.5 - 0.3 * behind;
    let places = 5;
    for place in 0..places {
        let at = lot.at(
            (f64::from(place) + 0.5) / f64::from(places),
            yard_y + draws.range(-0.02, 0.02),
        );
        let yaw = FRAC_PI_2 * behind + draws.range(-0.2, 0.2);
        match draws.below(4) {
            0 => park(yard, ObjectClass::Trailer, at, yaw, draws),
            1 => park(yard, ObjectClass::Truck, at, yaw, draws),
            2 => yard.stand(scenery::container(draws), at, yaw),
            _ => {}
        }
    }
}

fn parkland(yard: &mut dyn Yard, lot: &Lot, draws: &mut Draws) {
    for i in 0..6 {
        for j in 0..6 {
            let jitter = [draws.range(-0.05, 0.05), draws.range(-0.05, 0.05)];
            let at = lot.at(
                (f64::from(i) + 0.5) / 6.0 + jitter[0],
                (f64::from(j) + 0.5) / 6.0 + jitter[1],
            );
            match draws.below(10) {
                0..=4 => yard.stand(scenery::tree(draws), at, draws.angle()),
                5 => yard.stand(scenery::bush(draws), at, 0.0),
                6 => yard.stand(scenery::bench(), at, draws.angle()),
                7 => {
                    let turn = draws.angle();
                    let (sin, cos) = libm::sincos(turn);
                    wander(
                        yard,
                        ObjectClass::Pedestrian,
                        at,
                        [at[0] + 3.0 * cos, at[1] + 3.0 * sin],
                        draws,
                    );
                }
                _ => {}
            }
        }
    }
}

fn building_site(yard: &mut dyn Yard, lot: &Lot, draws: &mut Draws) {
    let [width, depth] = lot.size();
    yard.stand(
        scenery::skeleton([0.42 * width, 0.4 * depth], draws),
        lot.at(0.3, 0.3),
        0.0,
    );
    for place in [[0.75, 0.25], [0.75, 0.72], [0.28, 0.78]] {
        let at = lot.at(place[0], place[1]);
        match draws.below(3) {
            0 => yard.stand(scenery::heap(draws), at, 0.0),
            _ => park(
                yard,
                ObjectClass::ConstructionVehicle,
                at,
                draws.angle(),
                draws,
            ),
        }
    }
    yard.stand(
        scenery::container(draws),
        lot.at(0.52, 0.92),
        draws.range(-0.1, 0.1),
    );
    for cone in 0..6 {
        let at = lot.at(
            0.55 + 0.06 * f64::from(cone),
            0.5 + draws.range(-0.02, 0.02),
        );
        let class = if draws.chance(0.6) {
            ObjectClass::TrafficCone
        } else {
            ObjectClass::Pedestrian
        };
        park(yard, class, at, draws.angle(), draws);
    }
}

fn shopping(yard: &mut dyn Yard, lot: &Lot, draws: &mut Draws) {
    let [width, depth] = lot.size();
    let behind = draws.sign();
    yard.stand(
        scenery::hall([0.85 * width, 0.3 * depth], draws),
        lot.at(0.5, 0.5 + 0.33 * behind),
        0.0,
    );
    // Bays at an angle, the same for the whole car park.
    let slant = draws.range(0.6, FRAC_PI_2) * draws.sign();
    let columns = (0.84 * width / 3.4) as u32;
    for row in 0..2 {
        for column in 0..columns {
            if !draws.chance(0.55) {
                continue;
            }
            let share = 0.08 + 0.84 * (f64::from(column) + 0.5) / f64::from(columns);
            let at = lot.at(share, 0.5 - behind * (0.1 + 0.27 * f64::from(row)));
            let way = if draws.chance(0.5) { PI } else { 0.0 };
            park(
                yard,
                ObjectClass::Car,
                at,
                slant + way + draws.range(-0.05, 0.05),
                draws,
            );
        }
    }
    for lane in [0.04, 0.22, 0.4] {
        let y = 0.5 - behind * lane;
        wander(
            yard,
            ObjectClass::Pedestrian,
            lot.at(0.1, y),
            lot.at(0.9, y),
            draws,
        );
    }
}
