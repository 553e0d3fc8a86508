//! The ten object classes as compounds of simple solids.
//!
//! Every recipe fills the box x in ±length/2, y in ±width/2, z in 0..height, which is the object's true box.

mod people;
mod vehicles;

use percept_data::points::ObjectClass;

use super::material::Material;
use super::shape::Shape::{Cone, Cuboid, Cylinder, Taper};
use super::solid::Part;
use percept_data::random::Draws;

/// What an object looks like.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) class: ObjectClass,
    /// Length, width, height.
    pub(crate) size: [f64; 3],
    pub(crate) parts: Vec<Part>,
}

/// Whether somebody sits on a two-wheeler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rider {
    Present,
    Absent,
}

// SemanticKITTI's raw classes.
const CAR: u16 = 10;
const BICYCLE: u16 = 11;
const BUS: u16 = 13;
const MOTORCYCLE: u16 = 15;
const TRUCK: u16 = 18;
const OTHER_VEHICLE: u16 = 20;
const PERSON: u16 = 30;
const BICYCLIST: u16 = 31;
const MOTORCYCLIST: u16 = 32;
const FENCE: u16 = 51;
const OTHER_OBJECT: u16 = 99;

/// An object of `class`, its size and colours drawn at random.
pub(crate) fn model(class: ObjectClass, rider: Rider, draws: &mut Draws) -> Model {
    let mut around = |mean: f64, spread: f64| draws.range(mean - spread, mean + spread);
    let size = match class {
        ObjectClass::Car => [around(4.6, 0.45), around(1.93, 0.13), around(1.68, 0.2)],
        ObjectClass::Truck => [around(7.0, 1.6), around(2.5, 0.15), around(2.95, 0.45)],
        ObjectClass::ConstructionVehicle => {
            [around(6.2, 1.2), around(2.75, 0.25), around(3.1, 0.35)]
        }
        ObjectClass::Bus => [around(11.2, 1.2), around(2.9, 0.1), around(3.45, 0.2)],
        ObjectClass::Trailer => [around(10.5, 2.5), around(2.85, 0.12), around(3.8, 0.2)],
        ObjectClass::Barrier => [around(0.55, 0.1), around(2.3, 0.35), around(1.0, 0.08)],
        ObjectClass::Motorcycle => [around(2.1, 0.15), around(0.78, 0.06), around(1.42, 0.08)],
        ObjectClass::Bicycle => [around(1.72, 0.1), around(0.6, 0.05), around(1.25, 0.08)],
        ObjectClass::Pedestrian => [around(0.72, 0.1), around(0.66, 0.08), around(1.74, 0.14)],
        ObjectClass::TrafficCone => [around(0.4, 0.05), around(0.4, 0.05), around(0.85, 0.2)],
    };
    let paint = Material::car_paint(around(0.35, 0.27));
    let cloth = Material::clothes(around(0.3, 0.2));
    let with_rider = rider == Rider::Present;
    // A rider sits higher than the handlebar.
    let size = match class {
        ObjectClass::Motorcycle | ObjectClass::Bicycle if with_rider => [size[0], size[1], 1.75],
        _ => size,
    };
    // Whole millimetres, as datasets give them.
    let size = size.map(|v| (v * 1000.0).round() / 1000.0);
    let parts = match class {
        ObjectClass::Car => vehicles::car(size, paint),
        ObjectClass::Truck => vehicles::truck(size, paint),
        ObjectClass::ConstructionVehicle => vehicles::construction_vehicle(size),
        ObjectClass::Bus => vehicles::bus(size, paint),
        ObjectClass::Trailer => vehicles::trailer(size, paint),
        ObjectClass::Barrier => barrier(size),
        ObjectClass::Motorcycle => people::motorcycle(size, paint, cloth, with_rider),
        ObjectClass::Bicycle => people::bicycle(size, cloth, with_rider),
        ObjectClass::Pedestrian => people::pedestrian(size, cloth),
        ObjectClass::TrafficCone => traffic_cone(size),
    };
    Model { class, size, parts }
}

fn centred(width: f64) -> [f64; 2] {
    [-0.5 * width, 0.5 * width]
}

fn barrier([l, w, h]: [f64; 3]) -> Vec<Part> {
    let concrete = Material {
        reflectivity: 0.42,
        ..Material::CONCRETE
    };
    vec![
        Part::new(
            Taper([0.45, 1.0]),
            centred(l),
            centred(w),
            [0.0, 0.35 * h],
            concrete,
            FENCE,
        ),
        Part::new(
            Taper([0.75, 1.0]),
            centred(0.42 * l),
            centred(w),
            [0.35 * h, h],
            concrete,
            FENCE,
        ),
    ]
}

fn traffic_cone([l, w, h]: [f64; 3]) -> Vec<Part> {
    vec![
        Part::new(
            Cuboid,
            centred(l),
            centred(w),
            [0.0, 0.06],
            Material::RUBBER,
            OTHER_OBJECT,
        ),
        Part::new(
            Cone,
            centred(0.8 * l),
            centred(0.8 * w),
            [0.06, h],
            Material::ORANGE,
            OTHER_OBJECT,
        ),
        Part::new(
            Cylinder,
            centred(0.42 * l),
            centred(0.42 * w),
            [0.45 * h, 0.6 * h],
            Material::RETROREFLECTOR,
            OTHER_OBJECT,
        ),
    ]
}

/// SemanticKITTI's raw class for a thing of `class` that moves.
pub(crate) fn moving_class(class: u16) -> u16 {
    match class {
        CAR => 252,
        BUS => 257,
        TRUCK => 258,
        OTHER_VEHICLE => 259,
        PERSON => 254,
        BICYCLIST => 253,
        MOTORCYCLIST => 255,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bvh::Bounds;
    use crate::solid::PlacedSolid;
    use percept_data::points::Pose;

    #[test]
    fn every_part_stays_within_its_box_and_the_box_is_not_too_large() {
        for class in ObjectClass::ALL {
            for rider in [Rider::Present, Rider::Absent] {
                for seed in 0..30 {
                    let model = model(class, rider, &mut Draws::new(seed, 0));
                    let place = |part| {
                        PlacedSolid::new(part, &Pose::IDENTITY, [0.0; 3], [0.0; 2], 0, 0).bounds
                    };
                    let all = model
                        .parts
                        .iter()
                        .map(place)
                        .fold(Bounds::EMPTY, Bounds::union);
                    let limits = [[-0.5, 0.5], [-0.5, 0.5], [0.0, 1.0]];
                    for (axis, limit) in limits.into_iter().enumerate() {
                        let [low, high] = limit.map(|share| share * model.size[axis]);
                        assert!(
                            all.low[axis] >= low - 1e-9 && all.high[axis] <= high + 1e-9,
                            "{} axis {axis}: {all:?} beyond {:?}",
                            class.name(),
                            model.size
                        );
                        let filled = (all.high[axis] - all.low[axis]) / (high - low);
                        assert!(
                            filled > 0.6,
                            "{} axis {axis} fills {filled:.2} of its box",
                            class.name()
                        );
                    }
                }
            }
        }
    }
}
