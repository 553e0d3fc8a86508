//! A spinning LiDAR that looks at a scene.

use std::sync::{Mutex, PoisonError};

use percept_kernels::Cpu;

use percept_data::points::pose::dot;
use percept_data::points::{LidarConvention, Point, PointLabel, Pose};

use super::cast::{Gaps, Hit, Ray, Stage};
use super::material::Material;
use super::scene::Scene;
use super::shape::Shape;
use super::solid::{Part, PlacedSolid};
use percept_data::random::{BELL_LIMIT, bell, hash, unit};

/// A spinning LiDAR: its beams, its errors, and where it stands on the vehicle.
#[derive(Clone, Debug)]
pub struct Lidar {
    /// Sine and cosine of each beam's elevation, from the lowest.
    beams: Vec<[f64; 2]>,
    /// Sine and cosine of each column's azimuth, in the order of the turn.
    columns: Vec<[f64; 2]>,
    first_azimuth_rad: f64,
    /// 1 counter-clockwise, -1 clockwise.
    turn: f64,
    period_s: f64,
    farthest_m: f64,
    noise_m: f64,
    convention: LidarConvention,
    sensor_to_ego: Pose,
    /// Where each beam meets the ego vehicle itself, rows of columns; infinite where it does not.
    own_vehicle_m: Vec<f64>,
}

/// One turn of a LiDAR. Points are in the sensor's frame at the end of the turn: the vehicle's own motion is taken
/// out, as both datasets do, while objects that move are seen where they were when the beam passed.
#[derive(Clone, Debug)]
pub(crate) struct Sweep {
    pub(crate) points: Vec<Point>,
    pub(crate) labels: Vec<PointLabel>,
    pub(crate) ego_to_world: Pose,
    pub(crate) sensor_to_world: Pose,
}

/// The raw class of a return from the ego vehicle: SemanticKITTI's outlier.
const OUTLIER: u16 = 1;
/// Ranges are measured in steps of 2 mm.
const RANGE_STEP_M: f64 = 0.002;
/// Share of the beams lost for no visible reason.
const RANDOM_LOSS: f64 = 0.004;
/// Reflectivity times cosine over squared range below which returns begin to be lost.
const FAINT_SIGNAL: f64 = 2.5e-6;
/// Blocks of columns that threads share; a function of the sensor only.
const COLUMNS_PER_BLOCK: usize = 16;

impl Lidar {
    /// The 32-beam HDL-32E on the roof of the nuScenes cars: 20 turns a second, x to the right, y forward.
    pub fn nuscenes() -> Self {
        let elevations_deg = (0..32).map(|beam| -30.67 + 41.34 / 31.0 * f64::from(beam));
        let mut lidar = Self::new(elevations_deg, 1084, -172.0, -1.0);
        lidar.sensor_to_ego = Pose::from_yaw(-std::f64::consts::FRAC_PI_2, [0.94, 0.0, 1.84]);
        lidar.see_own_roof([-0.55, 0.55], [-0.98, 0.7], -0.33);
        lidar
    }

    /// The 64-beam HDL-64E of KITTI: 10 turns a second, x forward, y left.
    pub fn kitti() -> Self {
        // Two blocks of lasers: the lower half spread by 1/2 degree, the upper by 1/3.
        let lower = (0..32).map(|beam| -24.8 + 15.97 / 31.0 * f64::from(beam));
        let upper = (0..32).map(|beam| -8.33 + 10.33 / 31.0 * f64::from(beam));
        let mut lidar = Self::new(lower.chain(upper), 2083, 180.0, 1.0);
        lidar.period_s = 0.1;
        lidar.noise_m = 0.015;
        lidar.farthest_m = 80.0;
        lidar.convention = LidarConvention::Kitti;
        lidar.sensor_to_ego = Pose {
            translation: [0.0, 0.0, 1.73],
            ..Pose::IDENTITY
        };
        lidar.see_own_roof([-0.85, 0.98], [-0.6, 0.6], -0.35);
        lidar
    }

    fn new(
        elevations_deg: impl Iterator<Item = f64>,
        columns: usize,
        first_azimuth_deg: f64,
        turn: f64,
    ) -> Self {
        let sin_cos = |angle_rad| {
            let (sin, cos) = libm::sincos(angle_rad);
            [sin, cos]
        };
        let beams: Vec<_> = elevations_deg.map(|e| sin_cos(e.to_radians())).collect();
        let first_azimuth_rad = first_azimuth_deg.to_radians();
        let step_rad = turn * 2.0 * std::f64::consts::PI / columns as f64;
        Self {
            own_vehicle_m: vec![f64::INFINITY; beams.len() * columns],
            columns: (0..columns)
                .map(|c| sin_cos(first_azimuth_rad + step_rad * c as f64))
                .collect(),
            beams,
            first_azimuth_rad,
            turn,
            period_s: 0.05,
            farthest_m: 100.0,
            noise_m: 0.02,
            convention: LidarConvention::NuScenes,
            sensor_to_ego: Pose::IDENTITY,
        }
    }

    /// Puts the vehicle's roof below the sensor, in the sensor's frame.
    fn see_own_roof(&mut self, x: [f64; 2], y: [f64; 2], top_m: f64) {
        let part = Part::new(
            Shape::Cuboid,
            x,
            y,
            [top_m - 0.4, top_m],
            Material::METAL,
            OUTLIER,
        );
        let solid = PlacedSolid::new(&part, &Pose::IDENTITY, [0.0; 3], [0.0; 2], part.class, 0);
        for column in 0..self.columns.len() {
            for beam in 0..self.beams.len() {
                let span = solid.span([0.0; 3], self.direction(beam, column), 0.0);
                if let Some(span) = span.filter(|span| span.enter > 0.0) {
                    self.own_vehicle_m[column * self.beams.len() + beam] = span.enter;
                }
            }
        }
    }

    /// How many beams a turn sends.
    pub fn rays(&self) -> usize {
        self.beams.len() * self.columns.len()
    }

    /// How long a turn lasts.
    pub fn period_s(&self) -> f64 {
        self.period_s
    }

    /// Whose conventions its points follow.
    pub fn convention(&self) -> LidarConvention {
        self.convention
    }

    /// The farthest that a measured range is from the true one.
    pub fn largest_error_m(&self) -> f64 {
        BELL_LIMIT * self.noise_m + RANGE_STEP_M
    }

    /// Where the sensor stands on the vehicle.
    pub fn sensor_to_ego(&self) -> &Pose {
        &self.sensor_to_ego
    }

    /// When the turn passes a place given in the sensor's frame, in seconds before its end (so at most 0).
    pub(crate) fn pass_time_s(&self, position: [f64; 3]) -> f64 {
        let azimuth = libm::atan2(position[1], position[0]);
        let turned = self.turn * (azimuth - self.first_azimuth_rad) / (2.0 * std::f64::consts::PI);
        (turned.rem_euclid(1.0) - 1.0) * self.period_s
    }

    /// When the beams of a column leave, in seconds before the turn's end.
    fn leave_time_s(&self, column: usize) -> f64 {
        ((column as f64 + 1.0) / self.columns.len() as f64 - 1.0) * self.period_s
    }

    /// When the column that looks at a place (in the sensor's frame at that time) leaves.
    #[cfg(test)]
    pub(crate) fn column_time_s(&self, position: [f64; 3]) -> f64 {
        let columns = self.columns.len();
        let column = (self.pass_time_s(position) / self.period_s + 1.0) * columns as f64;
        self.leave_time_s(column.round() as usize % columns)
    }

    fn direction(&self, beam: usize, column: usize) -> [f64; 3] {
        let ([up, flat], [sin, cos]) = (self.beams[beam], self.columns[column]);
        [flat * cos, flat * sin, up]
    }

    /// The turn that ends at `end_s`; `number` makes its noise its own.
    pub(crate) fn sweep(
        &self,
        cpu: &Cpu,
        scene: &Scene,
        seed: u64,
        number: u64,
        end_s: f64,
    ) -> Sweep {
        let sensor_at = |time_s: f64| scene.ego_to_world(time_s).compose(&self.sensor_to_ego);
        let sensor_to_world = sensor_at(end_s);
        let world_to_sensor = sensor_to_world.inverse();
        let moving = scene.moving_solids(
            sensor_to_world.translation,
            self.farthest_m + 15.0,
            end_s,
            self.period_s,
        );
        let stage = scene.stage(&moving);
        let blocks = self.columns.len().div_ceil(COLUMNS_PER_BLOCK);
        let results: Vec<Mutex<Vec<Return>>> = (0..blocks).map(|_| Mutex::default()).collect();
        cpu.parallel(blocks, &|block, _| {
            let first = block * COLUMNS_PER_BLOCK;
            let last = (first + COLUMNS_PER_BLOCK).min(self.columns.len());
            let mut returns = Vec::with_capacity((last - first) * self.beams.len());
            for column in first..last {
                let time_s = self.leave_time_s(column);
                let here = sensor_at(end_s + time_s);
                let to_end = world_to_sensor.compose(&here);
                for beam in 0..self.beams.len() {
                    let key = hash(seed, number, (column * self.beams.len() + beam) as u64);
                    let ray = Ray {
                        origin: here.translation,
                        direction: here.rotate(self.direction(beam, column)),
                        time_s,
                        gaps: Gaps::Random(key),
                    };
                    let own_m = self.own_vehicle_m[column * self.beams.len() + beam];
                    let echo = self.measure(&stage, &ray, key, own_m);
                    if echo.distance_m == 0.0 && self.convention == LidarConvention::Kitti {
                        continue;
                    }
                    let local = self.direction(beam, column).map(|d| d * echo.distance_m);
                    let point = Point {
                        position: to_end.apply(local).map(|v| v as f32),
                        intensity: echo.intensity,
                        age_s: 0.0,
                        ring: Some(beam as u8),
                    };
                    returns.push(Return {
                        point,
                        label: echo.label,
                    });
                }
            }
            *results[block]
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = returns;
        });
        let mut returns: Vec<Return> = results
            .into_iter()
            .flat_map(|block| block.into_inner().unwrap_or_else(PoisonError::into_inner))
            .collect();
        if self.convention == LidarConvention::Kitti {
            // Beam by beam from the highest, each from straight ahead round to the left.
            returns.sort_by_key(|r| (std::cmp::Reverse(r.point.ring), r.point.position[1] < 0.0));
        }
        Sweep {
            points: returns.iter().map(|r| r.point).collect(),
            labels: returns.iter().map(|r| r.label).collect(),
            ego_to_world: scene.ego_to_world(end_s),
            sensor_to_world,
        }
    }

    /// What comes back of one beam.
    pub(crate) fn measure(&self, stage: &Stage, ray: &Ray, key: u64, own_vehicle_m: f64) -> Echo {
        let chance = |purpose: u64| unit(hash(key, 0, purpose));
        let hit = if own_vehicle_m.is_finite() {
            Some(Reflector {
                distance_m: own_vehicle_m,
                normal: [0.0, 0.0, 1.0],
                material: &Material::METAL,
                label: PointLabel {
                    class: OUTLIER,
                    instance: 0,
                },
            })
        } else {
            stage.first_hit(ray, self.farthest_m).map(Reflector::from)
        };
        let nothing = Echo {
            distance_m: 0.0,
            intensity: 0.0,
            label: PointLabel::default(),
        };
        // KITTI's files have no returns from the vehicle itself.
        let blocked = own_vehicle_m.is_finite() && self.convention == LidarConvention::Kitti;
        let Some(hit) = hit.filter(|_| !blocked) else {
            // A beam without a return still carries the detector's noise in nuScenes.
            return Echo {
                intensity: (chance(3) * 12.0).floor() as f32,
                ..nothing
            };
        };
        let facing = (dot(hit.normal, ray.direction) / dot(hit.normal, hit.normal).sqrt()).abs();
        let light = hit.material.reflectivity * facing;
        let heard = light / (hit.distance_m * hit.distance_m * FAINT_SIGNAL);
        if chance(0) < RANDOM_LOSS || chance(1) < hit.material.loss || chance(2) > heard {
            return nothing;
        }
        let speckle = 1.0 + 0.15 * bell(hash(key, 0, 4));
        // Rough surfaces send light back at every angle, so brightness falls less than the cosine.
        let brightness =
            (hit.material.reflectivity * (0.3 + 0.7 * facing) * speckle).clamp(0.0, 1.0);
        let intensity = match self.convention {
            LidarConvention::NuScenes => (brightness * 0.55 * 255.0).round(),
            LidarConvention::Kitti => (brightness.sqrt() * 99.0).round() / 100.0,
        };
        let noisy = hit.distance_m + self.noise_m * bell(hash(key, 0, 5));
        let distance_m = (noisy / RANGE_STEP_M).round() * RANGE_STEP_M;
        Echo {
            distance_m: distance_m.max(RANGE_STEP_M),
            intensity: intensity as f32,
            label: hit.label,
        }
    }
}

/// What sends a beam back: a part of the scene, or the vehicle itself.
struct Reflector<'a> {
    distance_m: f64,
    normal: [f64; 3],
    material: &'a Material,
    label: PointLabel,
}

impl<'a> From<Hit<'a>> for Reflector<'a> {
    fn from(hit: Hit<'a>) -> Self {
        Self {
            distance_m: hit.distance_m,
            normal: hit.normal,
            material: hit.material,
            label: hit.label,
        }
    }
}

struct Return {
    point: Point,
    label: PointLabel,
}

pub(crate) struct Echo {
    /// 0 when nothing came back.
    pub(crate) distance_m: f64,
    intensity: f32,
    pub(crate) label: PointLabel,
}

#[cfg(test)]
mod tests {
    use super::*;
    use percept_data::points::pose::add_scaled;

    #[test]
    fn beams_have_the_published_angles() {
        let degrees = |lidar: &Lidar, beam: usize| libm::asin(lidar.beams[beam][0]).to_degrees();
        let nuscenes = Lidar::nuscenes();
        assert_eq!(nuscenes.rays(), 34_688);
        assert!(
            (degrees(&nuscenes, 0) + 30.67).abs() < 1e-9
                && (degrees(&nuscenes, 31) - 10.67).abs() < 1e-9
        );
        let kitti = Lidar::kitti();
        assert_eq!(kitti.beams.len(), 64);
        assert!(
            (degrees(&kitti, 0) + 24.8).abs() < 1e-9 && (degrees(&kitti, 63) - 2.0).abs() < 1e-9
        );
        assert!((1..64).all(|beam| degrees(&kitti, beam) > degrees(&kitti, beam - 1)));
    }

    #[test]
    fn the_turn_passes_columns_in_order() {
        for lidar in [Lidar::nuscenes(), Lidar::kitti()] {
            let mut last = -1.0;
            for column in 1..lidar.columns.len() {
                let [sin, cos] = lidar.columns[column];
                let time = lidar.pass_time_s(add_scaled([0.0; 3], 7.0, [cos, sin, 0.1]));
                assert!(time > last && time <= 0.0);
                last = time;
            }
        }
    }
}
