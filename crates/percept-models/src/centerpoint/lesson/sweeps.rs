//! Sweeps and their boxes as tensors, augmented for training.

use percept_data::points::augment::{CloudMotion, ObjectBank, PasteCounts};
use percept_data::points::{Box3d, LidarFrame, Point};
use percept_data::{Example, Prepare, Sample, SampleError, SampleKey, SettingError};
use percept_graph::{Tensor, TensorError};
use percept_kernels::Cpu;
use serde::{Deserialize, Serialize};

use super::super::{BOX_VALUES, CenterPoint, TRUE_BOX_COUNTS, TRUE_BOXES};

/// The part of a sample with its points and boxes.
const POINTS: &str = "points";

/// The part of a sample with objects of other sweeps, to be pasted; a sample may lack it.
pub const OBJECTS: &str = "objects";

/// The tensor with the number of points in every true box, which the metric needs and the network does not.
pub(super) const BOX_POINTS: &str = "box_points";

/// Of an object that is pasted, at least.
const MIN_PASTED_POINTS: usize = 5;

/// What is done to sweeps that are learned from; the defaults are OpenPCDet's for nuScenes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepAugment {
    /// How often left and right change places, and ahead and behind.
    pub flip: f64,
    /// Turned by at most this, either way.
    pub turn_degrees: f64,
    /// Scaled by a factor between these.
    pub scale: [f64; 2],
    /// Shifted by this standard deviation.
    pub shift_m: f64,
    /// Whether objects of other sweeps are pasted in.
    pub paste: bool,
    /// Whether sweeps with rare classes come more often.
    pub balance: bool,
}

impl Default for SweepAugment {
    fn default() -> Self {
        let motion = CloudMotion::default();
        Self {
            flip: motion.flip_chance,
            turn_degrees: motion.max_turn_rad.to_degrees(),
            scale: motion.scale,
            shift_m: motion.shift_m,
            paste: true,
            balance: true,
        }
    }
}

impl SweepAugment {
    /// Refuses what makes no sense.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let Self {
            flip,
            turn_degrees,
            scale: [least, most],
            shift_m,
            ..
        } = *self;
        SettingError::unless((0.0..=1.0).contains(&flip), "augment.flip", flip, "0 to 1")?;
        let turns = (0.0..=180.0).contains(&turn_degrees);
        SettingError::unless(turns, "augment.turn_degrees", turn_degrees, "0 to 180")?;
        let scales = least > 0.0 && least <= most && most.is_finite();
        SettingError::unless(
            scales,
            "augment.scale",
            least,
            "two factors above 0, ascending",
        )?;
        let shifts = (0.0..=10.0).contains(&shift_m);
        SettingError::unless(shifts, "augment.shift_m", shift_m, "0 to 10")
    }

    fn motion(&self) -> CloudMotion {
        CloudMotion {
            flip_chance: self.flip,
            max_turn_rad: self.turn_degrees.to_radians(),
            scale: self.scale,
            shift_m: self.shift_m,
        }
    }
}

/// Makes examples of frames.
pub(super) struct PrepareSweeps {
    /// Lowest and highest x, y and z of a box that is learned from.
    limits_m: [[f64; 3]; 2],
    /// None where answers are judged: then every box is kept, and the metric chooses.
    augment: Option<SweepAugment>,
}

impl PrepareSweeps {
    pub(super) fn training(network: &CenterPoint, augment: SweepAugment) -> Self {
        Self {
            augment: Some(augment),
            ..Self::evaluation(network)
        }
    }

    pub(super) fn evaluation(network: &CenterPoint) -> Self {
        let range = f64::from(network.range_m);
        let [low, high] = network.height_m.map(f64::from);
        Self {
            limits_m: [[-range, -range, low], [range, range, high]],
            augment: None,
        }
    }

    fn is_within(&self, place: [f64; 3]) -> bool {
        let [low, high] = self.limits_m;
        (0..3).all(|axis| (low[axis]..=high[axis]).contains(&place[axis]))
    }

    /// What is learned from: a changed cloud, and the boxes in it that a point lies in and the network reaches.
    fn changed(
        &self,
        augment: &SweepAugment,
        frame: &LidarFrame,
        boxes: &[Box3d],
        objects: Option<&LidarFrame>,
        key: &SampleKey,
    ) -> (Vec<Point>, Vec<Box3d>) {
        let mut points = frame.points.clone();
        let seen = boxes.iter().filter(|object| object.lidar_points > 0);
        let mut boxes: Vec<Box3d> = seen.cloned().collect();
        let others = objects.and_then(|objects| Some((objects, objects.boxes.as_deref()?)));
        if let Some((objects, cut)) = others.filter(|_| augment.paste) {
            let mut bank = ObjectBank::new(cut.len(), MIN_PASTED_POINTS);
            bank.add(&objects.points, cut);
            let counts = PasteCounts::default();
            bank.paste(&mut points, &mut boxes, &counts, &mut key.draws(1));
        }
        let mut draws = key.draws(2);
        augment.motion().apply(&mut points, &mut boxes, &mut draws);
        boxes.retain(|object| self.is_within(object.centre));
        (points, boxes)
    }
}

impl Prepare for PrepareSweeps {
    fn prepare(&self, _: &Cpu, sample: &Sample, key: &SampleKey) -> Result<Example, SampleError> {
        let frame = sample.frame(POINTS)?;
        let unusable = |reason: String| SampleError::Unusable {
            sample: sample.name.clone(),
            reason,
        };
        let boxes = frame.boxes.as_deref();
        let boxes = boxes.ok_or_else(|| unusable("it has no annotated boxes".to_owned()))?;
        let (points, boxes) = match &self.augment {
            Some(augment) => {
                let objects = match sample.get(OBJECTS) {
                    Some(_) => Some(sample.frame(OBJECTS)?),
                    None => None,
                };
                self.changed(augment, frame, boxes, objects, key)
            }
            None => (frame.points.clone(), boxes.to_vec()),
        };
        example(&points, &boxes).map_err(|error| unusable(error.to_string()))
    }
}

fn example(points: &[Point], boxes: &[Box3d]) -> Result<Example, TensorError> {
    let mut values = Vec::with_capacity(points.len() * CenterPoint::POINT_CHANNELS);
    for point in points {
        let [x, y, z] = point.position;
        values.extend([x, y, z, point.intensity, point.age_s]);
    }
    let mut truth = Vec::with_capacity(boxes.len() * BOX_VALUES);
    for object in boxes {
        let ([x, y, z], [length, width, height]) = (object.centre, object.size);
        // What is not known is not learned.
        let [vx, vy] = object.velocity.unwrap_or([f64::NAN; 2]);
        let (yaw, class) = (object.yaw_rad, object.class.id() as f64);
        let row = [x, y, z, length, width, height, yaw, vx, vy, class];
        truth.extend(row.map(|value| value as f32));
    }
    let inside: Vec<i32> = boxes.iter().map(|b| b.lidar_points as i32).collect();
    let count = |count: usize| Tensor::from_values([1], vec![count as i32]);
    Ok(Example::of_one([
        (
            POINTS,
            Tensor::from_values([points.len(), CenterPoint::POINT_CHANNELS], values)?,
        ),
        ("counts", count(points.len())?),
        (
            TRUE_BOXES,
            Tensor::from_values([boxes.len(), BOX_VALUES], truth)?,
        ),
        (TRUE_BOX_COUNTS, count(boxes.len())?),
        (BOX_POINTS, Tensor::from_values([boxes.len()], inside)?),
    ]))
}

#[cfg(test)]
mod tests {
    use percept_data::Datum;
    use percept_data::points::{LidarConvention, ObjectClass};

    use super::*;

    fn sample(boxes: Option<Vec<Box3d>>) -> Sample {
        let point = |x: f32| Point {
            position: [x, 1.0, -1.0],
            intensity: 20.0,
            age_s: 0.0,
            ring: None,
        };
        let points = (0..50).map(|i| point(i as f32 * 0.5)).collect();
        let frame = LidarFrame {
            boxes,
            ..LidarFrame::from_points(LidarConvention::NuScenes, points)
        };
        Sample::of("a sweep", POINTS, Datum::Frame(Box::new(frame)))
    }

    fn car(x: f64, lidar_points: usize) -> Box3d {
        Box3d {
            class: ObjectClass::Car,
            centre: [x, 1.0, -1.0],
            size: [4.0, 2.0, 1.5],
            yaw_rad: 0.0,
            velocity: None,
            lidar_points,
            instance: 1,
        }
    }

    fn boxes_of(prepare: &PrepareSweeps, sample: &Sample, epoch: u64) -> Tensor<'static> {
        let key = SampleKey {
            epoch,
            ..SampleKey::default()
        };
        let cpu = Cpu::new(1).unwrap();
        let example = prepare.prepare(&cpu, sample, &key).unwrap();
        assert_eq!(
            example.get("counts").unwrap().values::<i32>().unwrap(),
            [50]
        );
        example.get(TRUE_BOXES).unwrap().clone()
    }

    #[test]
    fn what_is_learned_lies_in_reach_and_is_seen() {
        let sample = sample(Some(vec![car(5.0, 9), car(8.0, 0), car(90.0, 9)]));
        let network = CenterPoint::SMALL;
        let training = PrepareSweeps::training(&network, SweepAugment::default());
        let first = boxes_of(&training, &sample, 0);
        assert_eq!(first.shape(), [1, BOX_VALUES]);
        assert!(
            first.values::<f32>().unwrap()[7].is_nan(),
            "an unknown velocity"
        );
        assert_eq!(first.bytes(), boxes_of(&training, &sample, 0).bytes());
        assert_ne!(first.bytes(), boxes_of(&training, &sample, 1).bytes());
        let evaluation = PrepareSweeps::evaluation(&network);
        assert_eq!(boxes_of(&evaluation, &sample, 0).shape(), [3, BOX_VALUES]);
    }

    #[test]
    fn a_sweep_without_annotations_is_told() {
        let prepare = PrepareSweeps::evaluation(&CenterPoint::SMALL);
        let cpu = Cpu::new(1).unwrap();
        let error = prepare.prepare(&cpu, &sample(None), &SampleKey::default());
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("a sweep") && error.contains("no annotated boxes"),
            "{error}"
        );
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        assert!(SweepAugment::default().check().is_ok());
        let wrong = [
            SweepAugment {
                flip: 1.5,
                ..SweepAugment::default()
            },
            SweepAugment {
                turn_degrees: -1.0,
                ..SweepAugment::default()
            },
            SweepAugment {
                scale: [1.1, 0.9],
                ..SweepAugment::default()
            },
            SweepAugment {
                shift_m: f64::NAN,
                ..SweepAugment::default()
            },
        ];
        assert!(wrong.iter().all(|augment| augment.check().is_err()));
    }
}
