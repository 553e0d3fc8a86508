//! Objects cut from frames and pasted into others, so that rare classes are seen often.

use percept_kernels::boxes::{BevBox, iou_bev};

use super::{Interior, count_by_class};
use crate::points::frame::{Box3d, ObjectClass, Point};
use crate::random::Draws;

/// An object with the points on it, where it stood.
#[derive(Clone, Debug, PartialEq)]
pub struct BankObject {
    /// Its box.
    pub object: Box3d,
    /// The returns inside the box, of all sweeps.
    pub points: Vec<Point>,
}

/// Objects to paste, of every class so many at most; newer ones take the place of older ones.
#[derive(Clone, Debug)]
pub struct ObjectBank {
    /// By class id.
    objects: [Vec<BankObject>; ObjectClass::ALL.len()],
    /// How many of each class were offered.
    offered: [usize; ObjectClass::ALL.len()],
    capacity: usize,
    min_points: usize,
}

/// Up to how many objects of each class a frame is filled, by class id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasteCounts(pub [usize; ObjectClass::ALL.len()]);

impl Default for PasteCounts {
    /// OpenPCDet's for nuScenes.
    fn default() -> Self {
        Self(ObjectClass::ALL.map(|class| match class {
            ObjectClass::Car
            | ObjectClass::Barrier
            | ObjectClass::Pedestrian
            | ObjectClass::TrafficCone => 2,
            ObjectClass::Truck => 3,
            ObjectClass::Bus => 4,
            ObjectClass::Trailer | ObjectClass::Motorcycle | ObjectClass::Bicycle => 6,
            ObjectClass::ConstructionVehicle => 7,
        }))
    }
}

impl ObjectBank {
    /// Keeps `capacity` objects per class, of those with at least `min_points` points.
    pub fn new(capacity: usize, min_points: usize) -> Self {
        Self {
            objects: std::array::from_fn(|_| Vec::new()),
            offered: [0; ObjectClass::ALL.len()],
            capacity,
            min_points,
        }
    }

    /// Cuts the objects out of a frame.
    pub fn add(&mut self, points: &[Point], boxes: &[Box3d]) {
        for object in boxes {
            let inside = Interior::of(object);
            let own = points.iter().filter(|point| inside.contains(point));
            let own: Vec<Point> = own.copied().collect();
            if own.len() >= self.min_points.max(1) {
                self.keep(BankObject {
                    object: object.clone(),
                    points: own,
                });
            }
        }
    }

    fn keep(&mut self, object: BankObject) {
        let class = object.object.class.id();
        let (kept, offered) = (&mut self.objects[class], &mut self.offered[class]);
        if kept.len() < self.capacity {
            kept.push(object);
        } else if let Some(place) = offered.checked_rem(self.capacity) {
            kept[place] = object;
        }
        *offered += 1;
    }

    /// The objects of a class.
    pub fn objects(&self, class: ObjectClass) -> &[BankObject] {
        &self.objects[class.id()]
    }

    /// Fills a frame up to `counts` objects per class, each where it was cut out. One that would overlap another, seen from above,
    /// is not pasted; where one is, the frame's own points go.
    pub fn paste(
        &self,
        points: &mut Vec<Point>,
        boxes: &mut Vec<Box3d>,
        counts: &PasteCounts,
        draws: &mut Draws,
    ) {
        let present = count_by_class(boxes);
        let mut footprints: Vec<BevBox> = boxes.iter().map(footprint).collect();
        let mut pasted: Vec<&BankObject> = Vec::new();
        for class in ObjectClass::ALL {
            let choice = self.objects(class);
            let missing = counts.0[class.id()].saturating_sub(present[class.id()]);
            if choice.is_empty() {
                continue;
            }
            for _ in 0..missing {
                let candidate = &choice[draws.below(choice.len())];
                let own = footprint(&candidate.object);
                if footprints.iter().all(|other| iou_bev(&own, other) <= 0.0) {
                    footprints.push(own);
                    pasted.push(candidate);
                }
            }
        }
        if pasted.is_empty() {
            return;
        }
        let taken: Vec<Interior> = pasted.iter().map(|p| Interior::of(&p.object)).collect();
        points.retain(|point| !taken.iter().any(|inside| inside.contains(point)));
        for BankObject {
            object,
            points: own,
        } in pasted
        {
            points.extend_from_slice(own);
            boxes.push(object.clone());
        }
    }
}

fn footprint(object: &Box3d) -> BevBox {
    let [x, y, _] = object.centre;
    let [length, width, _] = object.size;
    BevBox {
        center: [x as f32, y as f32],
        size: [length as f32, width as f32],
        yaw: object.yaw_rad as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{object, points_in};
    use super::*;

    /// Two buses ten metres apart.
    fn bank() -> ObjectBank {
        let mut bank = ObjectBank::new(8, 5);
        let buses = [5.0, 15.0].map(|x| object(ObjectClass::Bus, x, 0.0, 0.0));
        let points = buses.each_ref().map(points_in).concat();
        bank.add(&points, &buses);
        // Without points it is not kept.
        bank.add(&points, &[object(ObjectClass::Bus, -30.0, 0.0, 0.0)]);
        bank
    }

    fn only_buses(count: usize) -> PasteCounts {
        let mut counts = [0; 10];
        counts[ObjectClass::Bus.id()] = count;
        PasteCounts(counts)
    }

    #[test]
    fn objects_take_their_points_along() {
        let bank = bank();
        assert_eq!(bank.objects(ObjectClass::Bus).len(), 2);
        // A stray point where the first bus will stand, and one outside.
        let stray = |x: f32| Point {
            position: [x, 0.2, -1.0],
            intensity: 99.0,
            age_s: 0.0,
            ring: None,
        };
        let (mut points, mut boxes) = (vec![stray(5.1), stray(15.1), stray(30.0)], Vec::new());
        bank.paste(
            &mut points,
            &mut boxes,
            &only_buses(20),
            &mut Draws::new(1, 1),
        );
        assert_eq!(boxes.len(), 2, "each fits once");
        let strays: Vec<f32> = points
            .iter()
            .filter(|point| point.intensity == 99.0)
            .map(|point| point.position[0])
            .collect();
        assert_eq!(strays, [30.0]);
        assert_eq!(points.len(), 1 + 2 * 15);
    }

    #[test]
    fn nothing_is_pasted_over_another() {
        let bank = bank();
        let car = object(ObjectClass::Car, 6.0, 1.0, 0.3);
        let (mut points, mut boxes) = (Vec::new(), vec![car]);
        bank.paste(
            &mut points,
            &mut boxes,
            &only_buses(20),
            &mut Draws::new(1, 1),
        );
        let places: Vec<f64> = boxes.iter().map(|b| b.centre[0]).collect();
        assert_eq!(places, [6.0, 15.0]);
        // Enough are there already.
        bank.paste(
            &mut points,
            &mut boxes,
            &only_buses(1),
            &mut Draws::new(2, 1),
        );
        assert_eq!(boxes.len(), 2);
    }

    #[test]
    fn a_full_bank_keeps_the_newest() {
        let mut bank = ObjectBank::new(2, 1);
        for x in 0..5 {
            let bus = object(ObjectClass::Bus, f64::from(x) * 10.0, 0.0, 0.0);
            bank.add(&points_in(&bus), &[bus]);
        }
        let kept = bank.objects(ObjectClass::Bus);
        let places: Vec<f64> = kept.iter().map(|b| b.object.centre[0]).collect();
        assert_eq!(places, [40.0, 30.0]);
        ObjectBank::new(0, 1).add(&[], &[object(ObjectClass::Bus, 0.0, 0.0, 0.0)]);
    }
}
