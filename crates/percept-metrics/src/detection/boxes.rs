//! What is compared: true and predicted boxes in the global frame.

use percept_data::points::{ObjectClass, Pose, Quaternion};

/// A property of an object that may change while its class stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Attribute {
    CycleWithRider,
    CycleWithoutRider,
    PedestrianMoving,
    PedestrianSittingOrLyingDown,
    PedestrianStanding,
    VehicleMoving,
    VehicleParked,
    VehicleStopped,
}

/// Faster than this, an object moves.
const MOVING_M_S: f64 = 0.2;

impl Attribute {
    /// Every attribute.
    pub const ALL: [Self; 8] = [
        Self::CycleWithRider,
        Self::CycleWithoutRider,
        Self::PedestrianMoving,
        Self::PedestrianSittingOrLyingDown,
        Self::PedestrianStanding,
        Self::VehicleMoving,
        Self::VehicleParked,
        Self::VehicleStopped,
    ];

    /// nuScenes' name.
    pub fn name(self) -> &'static str {
        match self {
            Self::CycleWithRider => "cycle.with_rider",
            Self::CycleWithoutRider => "cycle.without_rider",
            Self::PedestrianMoving => "pedestrian.moving",
            Self::PedestrianSittingOrLyingDown => "pedestrian.sitting_lying_down",
            Self::PedestrianStanding => "pedestrian.standing",
            Self::VehicleMoving => "vehicle.moving",
            Self::VehicleParked => "vehicle.parked",
            Self::VehicleStopped => "vehicle.stopped",
        }
    }

    /// The attribute with nuScenes' `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// The likeliest attribute of an object that moves at this speed, as CenterPoint's public code guesses it: parked
    /// rather than stopped, but for buses. Barriers and cones have none.
    pub fn from_speed(class: ObjectClass, speed_m_s: f64) -> Option<Self> {
        let moving = speed_m_s > MOVING_M_S;
        let (fast, slow) = match class {
            ObjectClass::Barrier | ObjectClass::TrafficCone => return None,
            ObjectClass::Pedestrian => (Self::PedestrianMoving, Self::PedestrianStanding),
            ObjectClass::Motorcycle | ObjectClass::Bicycle => {
                (Self::CycleWithRider, Self::CycleWithoutRider)
            }
            ObjectClass::Bus => (Self::VehicleMoving, Self::VehicleStopped),
            ObjectClass::Car
            | ObjectClass::Truck
            | ObjectClass::ConstructionVehicle
            | ObjectClass::Trailer => (Self::VehicleMoving, Self::VehicleParked),
        };
        Some(if moving { fast } else { slow })
    }
}

/// A box in the global frame.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobalBox {
    /// What it is.
    pub class: ObjectClass,
    /// The middle, metres.
    pub centre: [f64; 3],
    /// Width, length, height, metres: nuScenes' order.
    pub size_wlh: [f64; 3],
    /// Takes the box's frame (x ahead) to the global one.
    pub rotation: Quaternion,
    /// Metres per second in the global ground plane, where known.
    pub velocity: Option<[f64; 2]>,
    /// What it does, where known.
    pub attribute: Option<Attribute>,
    /// Returns of LiDAR and radar inside, where counted. A box with none is left out.
    pub points: Option<u64>,
}

impl GlobalBox {
    /// The box that a sensor sees at `centre`, turned by `yaw_rad` about its vertical, of this length, width and height,
    /// moving at `velocity` in its ground plane. The attribute follows from the speed.
    pub fn from_sensor(
        class: ObjectClass,
        centre: [f64; 3],
        size_lwh: [f64; 3],
        yaw_rad: f64,
        velocity: Option<[f64; 2]>,
        sensor_to_global: &Pose,
    ) -> Self {
        let pose = sensor_to_global.compose(&Pose::from_yaw(yaw_rad, centre));
        let [length, width, height] = size_lwh;
        let speed = |[x, y]: [f64; 2]| (x * x + y * y).sqrt();
        Self {
            class,
            centre: pose.translation,
            size_wlh: [width, length, height],
            rotation: Quaternion::from_pose(&pose),
            velocity: velocity.map(|[x, y]| {
                let turned = sensor_to_global.rotate([x, y, 0.0]);
                [turned[0], turned[1]]
            }),
            attribute: velocity.and_then(|v| Attribute::from_speed(class, speed(v))),
            points: None,
        }
    }

    /// Metres between the middles in the ground plane.
    pub(super) fn ground_distance_m(&self, other: [f64; 2]) -> f64 {
        let (x, y) = (self.centre[0] - other[0], self.centre[1] - other[1]);
        (x * x + y * y).sqrt()
    }

    /// Radians from the global x axis to the box's own, in the ground plane.
    pub(super) fn heading_rad(&self) -> f64 {
        let Quaternion([w, x, y, z]) = self.rotation;
        (2.0 * (x * y + w * z)).atan2(w * w + x * x - y * y - z * z)
    }
}

/// A box that a detector found.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Where and what.
    pub found: GlobalBox,
    /// How sure the detector is: at least 0, and larger is surer.
    pub score: f64,
}

/// A stand of bicycles, which nobody annotates one by one: two-wheelers in it do not count.
#[derive(Clone, Debug, PartialEq)]
pub struct BicycleRack {
    /// The middle, metres.
    pub centre: [f64; 3],
    /// Width, length, height, metres.
    pub size_wlh: [f64; 3],
    /// Takes the rack's frame to the global one.
    pub rotation: Quaternion,
}

impl BicycleRack {
    /// Whether `point` lies inside or on the surface.
    pub(super) fn contains(&self, point: [f64; 3]) -> bool {
        let Some(pose) = self.rotation.to_pose(self.centre) else {
            return false;
        };
        let [x, y, z] = pose.inverse().apply(point);
        let [width, length, height] = self.size_wlh;
        x.abs() <= 0.5 * length && y.abs() <= 0.5 * width && z.abs() <= 0.5 * height
    }
}

/// What is true of a keyframe.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameTruth {
    /// The keyframe's name.
    pub token: String,
    /// Where the vehicle is, metres: ranges are measured from here.
    pub ego: [f64; 2],
    /// The objects of the ten classes.
    pub boxes: Vec<GlobalBox>,
    /// Where two-wheelers do not count.
    pub bicycle_racks: Vec<BicycleRack>,
}

/// What a detector found in a keyframe.
#[derive(Clone, Debug, PartialEq)]
pub struct FramePredictions {
    /// The keyframe's name.
    pub token: String,
    /// The boxes, in the order of the file: among equal scores the last counts first.
    pub boxes: Vec<Prediction>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_follow_from_speed() {
        let name = |class, speed| Attribute::from_speed(class, speed).map(Attribute::name);
        assert_eq!(name(ObjectClass::Car, 0.2), Some("vehicle.parked"));
        assert_eq!(name(ObjectClass::Car, 0.21), Some("vehicle.moving"));
        assert_eq!(name(ObjectClass::Bus, 0.0), Some("vehicle.stopped"));
        assert_eq!(name(ObjectClass::Bicycle, 3.0), Some("cycle.with_rider"));
        assert_eq!(
            name(ObjectClass::Motorcycle, 0.0),
            Some("cycle.without_rider")
        );
        assert_eq!(
            name(ObjectClass::Pedestrian, 0.0),
            Some("pedestrian.standing")
        );
        assert_eq!(name(ObjectClass::Barrier, 9.0), None);
        for attribute in Attribute::ALL {
            assert_eq!(Attribute::from_name(attribute.name()), Some(attribute));
        }
    }

    #[test]
    fn a_seen_box_stands_in_the_global_frame() {
        let quarter = std::f64::consts::FRAC_PI_2;
        let sensor = Pose::from_yaw(quarter, [100.0, 50.0, 2.0]);
        let seen = GlobalBox::from_sensor(
            ObjectClass::Truck,
            [10.0, 1.0, -1.0],
            [8.0, 2.5, 3.0],
            0.25,
            Some([5.0, 0.0]),
            &sensor,
        );
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} and {b}");
        for (value, expected) in seen.centre.into_iter().zip([99.0, 60.0, 1.0]) {
            near(value, expected);
        }
        assert_eq!(seen.size_wlh, [2.5, 8.0, 3.0]);
        near(seen.heading_rad(), quarter + 0.25);
        let [x, y] = seen.velocity.unwrap();
        near(x, 0.0);
        near(y, 5.0);
        assert_eq!(seen.attribute, Some(Attribute::VehicleMoving));
    }

    #[test]
    fn a_rack_holds_its_surface_and_turns() {
        let rack = BicycleRack {
            centre: [10.0, 0.0, 0.0],
            size_wlh: [1.0, 4.0, 2.0],
            rotation: Quaternion([1.0, 0.0, 0.0, 0.0]),
        };
        assert!(rack.contains([12.0, 0.5, -1.0]));
        assert!(!rack.contains([12.0, 0.5, -1.001]));
        let turned = BicycleRack {
            rotation: Quaternion::from_yaw(std::f64::consts::FRAC_PI_2),
            ..rack
        };
        assert!(turned.contains([10.0, 1.9, 0.0]));
        assert!(!turned.contains([12.0, 0.0, 0.0]));
    }
}
