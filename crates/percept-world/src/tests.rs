//! The promises of the world, checked against geometry.

use std::collections::HashMap;

use percept_kernels::Cpu;

use percept_data::points::pose::{add_scaled, dot, sub};
use percept_data::points::{LidarFrame, Point};

use super::lidar::Sweep;
use super::solid::PlacedSolid;
use super::{World, WorldConfig, WorldKind};

const KINDS: [WorldKind; 2] = [WorldKind::NuScenes, WorldKind::SemanticKitti];

fn cpu(threads: usize) -> Cpu {
    Cpu::new(threads).expect("a CPU")
}

/// f32 coordinates of up to 100 m.
const STORAGE_ERROR_M: f64 = 1e-4;

/// A sweep with everything that was in its world.
struct Looked {
    world: World,
    index: usize,
    sweep: Sweep,
    /// Of objects, by instance.
    solids: HashMap<u16, Vec<PlacedSolid>>,
    end_s: f64,
}

impl Looked {
    fn new(kind: WorldKind, seed: u64, index: usize) -> Self {
        let mut world = World::new(WorldConfig::new(kind, seed));
        let sweep = world.sweep(&cpu(2), index, 0);
        let end_s = world.time_s(index, 0);
        let period_s = world.lidar().period_s();
        let scene = world.scene(index);
        let moving = scene.moving_solids(sweep.sensor_to_world.translation, 200.0, end_s, period_s);
        let mut solids: HashMap<u16, Vec<PlacedSolid>> = HashMap::new();
        for solid in scene.still.list.iter().chain(&moving.list) {
            solids
                .entry(solid.instance)
                .or_default()
                .push(solid.clone());
        }
        Self {
            world,
            index,
            sweep,
            solids,
            end_s,
        }
    }

    /// When the beam of `point` left, where from, and where the point is in the world.
    fn beam(&mut self, point: &Point) -> (f64, [f64; 3], [f64; 3]) {
        let in_world = self
            .sweep
            .sensor_to_world
            .apply(point.position.map(f64::from));
        let lidar = self.world.lidar().clone();
        let end_s = self.end_s;
        let scene = self.world.scene(self.index);
        let mut time_s = lidar.pass_time_s(point.position.map(f64::from));
        let sensor_at = |time_s: f64| {
            scene
                .ego_to_world(end_s + time_s)
                .compose(lidar.sensor_to_ego())
        };
        for _ in 0..3 {
            let seen = sensor_at(time_s).inverse().apply(in_world);
            time_s = lidar.column_time_s(seen);
        }
        (time_s, sensor_at(time_s).translation, in_world)
    }

    /// How far `p` is from where its beam meets `instance`, along the beam.
    fn miss_m(&self, time_s: f64, origin: [f64; 3], p: [f64; 3], instance: u16) -> f64 {
        let way = sub(p, origin);
        let length = dot(way, way).sqrt();
        let direction = way.map(|v| v / length);
        let miss = |solid: &PlacedSolid| {
            let span = solid.span(origin, direction, time_s)?;
            if solid.material.density_per_m.is_finite() {
                // Spokes: anywhere inside.
                return Some((span.enter - length).max(length - span.exit).max(0.0));
            }
            Some((span.enter - length).abs())
        };
        let of_instance = self.solids[&instance].iter();
        of_instance.filter_map(miss).fold(f64::INFINITY, f64::min)
    }
}

#[test]
fn points_of_an_object_lie_on_its_surface_and_in_its_box() {
    for (kind, seed, index) in [
        (WorldKind::NuScenes, 3, 12),
        (WorldKind::SemanticKitti, 4, 40),
    ] {
        let mut looked = Looked::new(kind, seed, index);
        let sweep = looked.sweep.clone();
        let boxes = looked.world.true_boxes(index, &sweep);
        assert!(boxes.len() > 10, "{kind}: only {} boxes", boxes.len());
        let tolerance = looked.world.lidar().largest_error_m() + STORAGE_ERROR_M;
        let lidar = looked.world.lidar().clone();
        let world_to_sensor = sweep.sensor_to_world.inverse();
        let mut checked = 0;
        let mut grazing = 0;
        for (point, label) in sweep
            .points
            .iter()
            .zip(&sweep.labels)
            .filter(|(_, l)| l.instance != 0)
        {
            let (time_s, origin, p) = looked.beam(point);
            let miss = looked.miss_m(time_s, origin, p, label.instance);
            checked += 1;
            // A beam rebuilt from rounded coordinates may just pass an edge that the true one touched.
            if miss > tolerance {
                grazing += 1;
            }
            let object = boxes
                .iter()
                .find(|b| b.body + 1 == usize::from(label.instance))
                .expect("a box");
            // Since the box's moment the object has moved on.
            let middle = world_to_sensor.apply(object.box_to_world.translation);
            let later_s = time_s - lidar.pass_time_s(middle);
            let p_then = add_scaled(p, -later_s, object.velocity);
            let local = object.box_to_world.inverse().apply(p_then);
            for axis in 0..3 {
                // The wrap of the turn may put the object's middle and its end one period apart.
                let slack = tolerance + 1e-6 + 0.02 * dot(object.velocity, object.velocity).sqrt();
                assert!(
                    local[axis].abs() <= 0.5 * object.size[axis] + slack,
                    "{kind}: {:?} point {local:?} outside of {:?}",
                    object.class,
                    object.size
                );
            }
        }
        assert!(checked > 1000, "{kind}: {checked} points on objects");
        assert!(
            grazing * 200 < checked,
            "{kind}: {grazing} of {checked} points off their surface"
        );
    }
}

#[test]
fn ground_points_lie_on_the_ground() {
    let mut looked = Looked::new(WorldKind::NuScenes, 5, 2);
    let sweep = looked.sweep.clone();
    let tolerance = looked.world.lidar().largest_error_m() + STORAGE_ERROR_M;
    let mut checked = 0;
    for (point, label) in sweep.points.iter().zip(&sweep.labels) {
        if !matches!(label.class, 40 | 44 | 48 | 72) {
            continue;
        }
        let (_, origin, p) = looked.beam(point);
        let way = sub(p, origin);
        let length = dot(way, way).sqrt();
        let ground = &looked.world.scene(2).ground;
        let hit = ground
            .cast(origin, way.map(|v| v / length), 150.0)
            .expect("the ground");
        checked += 1;
        assert!(
            (hit.distance - length).abs() < tolerance + 0.02,
            "{} m at {length} m",
            hit.distance
        );
    }
    assert!(checked > 5000);
}

#[test]
fn one_seed_repeats_to_the_bit_on_any_number_of_threads_and_two_seeds_differ() {
    for kind in KINDS {
        let frame = |seed, threads| {
            World::new(WorldConfig {
                sweeps: 2,
                ..WorldConfig::new(kind, seed)
            })
            .frame(&cpu(threads), 7)
        };
        let first = frame(1, 1);
        assert_eq!(bits(&first), bits(&frame(1, 2)));
        assert_eq!(bits(&first), bits(&frame(1, 3)));
        assert_ne!(bits(&first), bits(&frame(2, 2)));
    }
}

fn bits(frame: &LidarFrame) -> Vec<u32> {
    let of_point = |p: &Point| {
        [
            p.position[0],
            p.position[1],
            p.position[2],
            p.intensity,
            p.age_s,
        ]
        .map(f32::to_bits)
    };
    let boxes = frame
        .boxes
        .iter()
        .flatten()
        .flat_map(|b| b.centre.map(|v| (v as f32).to_bits()));
    let labels = frame.labels.iter().flatten().map(|label| label.to_word());
    frame
        .points
        .iter()
        .flat_map(of_point)
        .chain(boxes)
        .chain(labels)
        .collect()
}

#[test]
fn frames_do_not_depend_on_the_order_in_which_they_are_asked_for() {
    let cpu = cpu(2);
    let config = WorldConfig::new(WorldKind::NuScenes, 9);
    let mut world = World::new(config);
    let (late, early) = (world.frame(&cpu, 41), world.frame(&cpu, 0));
    let mut stream = World::new(config).into_stream(&cpu);
    assert_eq!(stream.next(), Some(early));
    assert_eq!(stream.nth(40), Some(late));
}

#[test]
fn box_counts_are_the_points_of_the_object_and_moving_things_have_velocities() {
    let frame = World::new(WorldConfig::new(WorldKind::NuScenes, 2)).frame(&cpu(2), 0);
    let labels = frame.labels.as_ref().expect("labels");
    let boxes = frame.boxes.as_ref().expect("boxes");
    for object in boxes {
        let on_it = labels
            .iter()
            .filter(|label| u32::from(label.instance) == object.instance);
        assert_eq!(on_it.clone().count(), object.lidar_points);
        let speed = object
            .velocity
            .map(|[x, y]| (x * x + y * y).sqrt())
            .expect("a velocity");
        let labelled_moving = on_it.clone().any(|label| label.class >= 252);
        assert_eq!(
            labelled_moving,
            speed > 0.01,
            "{:?} at {speed} m/s",
            object.class
        );
        assert!(speed < 15.0);
    }
    assert!(
        boxes
            .iter()
            .any(|b| b.velocity.is_some_and(|[x, y]| x * x + y * y > 1.0))
    );
}

/// Changes with the scene on purpose; what it must not change with is the machine.
#[test]
fn the_first_frame_has_the_known_bits() {
    let fingerprint = |kind| {
        let frame = World::new(WorldConfig::new(kind, 0)).frame(&cpu(2), 0);
        let bytes = bits(&frame).into_iter().flat_map(u32::to_le_bytes);
        // FNV-1a.
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    };
    let found = KINDS.map(|kind| format!("{:#018x}", fingerprint(kind)));
    assert_eq!(found, ["0x699b4d7e85f3ba78", "0x53821a965c5abe6e"]);
}
