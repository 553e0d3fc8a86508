//! What the cameras promise: pictures that agree with the LiDAR, with the boxes, with themselves, and with the place.

use std::collections::BTreeMap;

use percept_data::points::Pose;
use percept_data::points::pose::{add_scaled, sub};
use percept_kernels::Cpu;

use crate::cast::{Gaps, Ray};
use crate::{
    CameraRig, CameraView, PictureSize, Weather, World, WorldConfig, WorldError, WorldKind,
};

fn cpu(threads: usize) -> Cpu {
    Cpu::new(threads).expect("a CPU")
}

fn rig(width: usize, height: usize) -> CameraRig {
    CameraRig::nuscenes(PictureSize::new(width, height).expect("a size"))
}

fn streets(seed: u64) -> World {
    World::new(WorldConfig::new(WorldKind::NuScenes, seed))
}

/// How long before the turn's end a picture was taken.
fn time_s(world: &World, index: usize, seen: &CameraView) -> f64 {
    (seen.camera.timestamp_us - world.timestamp_us(index, 0)) as f64 * 1e-6
}

#[test]
fn the_depth_of_a_pixel_is_the_lidars_range_along_the_same_ray() {
    let index = 4;
    let mut world = streets(3);
    let views = world.views(&cpu(2), index, &rig(96, 54));
    let (lidar, end_s) = (world.lidar().clone(), world.time_s(index, 0));
    let (mut compared, mut heard) = (0, 0);
    for seen in &views {
        let time_s = time_s(&world, index, seen);
        let scene = world.scene(index);
        let pose = seen.camera.camera_to_world();
        let moving = scene.moving_solids(pose.translation, 220.0, end_s, lidar.period_s());
        let stage = scene.stage(&moving);
        let [[fx, _, cx], [_, fy, cy], _] = seen.camera.intrinsics;
        for (pixel, depth_m) in seen.view.depth_m.iter().enumerate() {
            let (x, y) = ((pixel % 96) as f64 + 0.5, (pixel / 96) as f64 + 0.5);
            let ahead = [(x - cx) / fx, (y - cy) / fy, 1.0];
            let length = (ahead[0] * ahead[0] + ahead[1] * ahead[1] + 1.0).sqrt();
            let ray = Ray {
                origin: pose.translation,
                direction: pose.rotate(ahead.map(|v| v / length)),
                time_s,
                gaps: Gaps::Random(pixel as u64),
            };
            let echo = lidar.measure(&stage, &ray, pixel as u64, f64::INFINITY);
            if echo.distance_m == 0.0 {
                continue;
            }
            heard += 1;
            // Leaves and fences let a beam through by chance, where a picture has fixed gaps.
            let class = seen.view.classes[pixel];
            if class != echo.label.class || matches!(class, 11 | 31 | 51 | 70 | 253) {
                continue;
            }
            assert_eq!(seen.view.instances[pixel], echo.label.instance);
            let range_m = f64::from(*depth_m) * length;
            assert!(
                (range_m - echo.distance_m).abs() <= lidar.largest_error_m() + 1e-5 * range_m,
                "{range_m} m in the picture, {} m by the LiDAR, class {class}",
                echo.distance_m
            );
            compared += 1;
        }
    }
    println!("{compared} of {heard} beams compared");
    assert!(
        heard > 10_000 && compared * 4 > heard * 3,
        "{compared} of {heard}"
    );
}

#[test]
fn projected_boxes_hold_the_pixels_of_their_instances() {
    let index = 9;
    let mut world = streets(2);
    let views = world.views(&cpu(2), index, &rig(320, 180));
    let (end_s, period_s) = (world.time_s(index, 0), world.lidar().period_s());
    let mut checked = 0;
    for seen in &views {
        let time_s = time_s(&world, index, seen);
        let scene = world.scene(index);
        let mut found: BTreeMap<u16, [f64; 4]> = BTreeMap::new();
        for (pixel, instance) in seen.view.instances.iter().enumerate() {
            if *instance != 0 {
                let (x, y) = ((pixel % 320) as f64 + 0.5, (pixel / 320) as f64 + 0.5);
                let edges = found.entry(*instance).or_insert([x, y, x, y]);
                *edges = [
                    edges[0].min(x),
                    edges[1].min(y),
                    edges[2].max(x),
                    edges[3].max(y),
                ];
            }
        }
        for (instance, [left, top, right, bottom]) in found {
            let body = usize::from(instance) - 1;
            let (end, velocity) = scene.body_in_sweep(body, end_s, period_s);
            let pose = Pose {
                translation: add_scaled(end.translation, time_s, velocity),
                ..end
            };
            let [l, w, h] = scene.bodies[body].size;
            let corners: Option<Vec<[f64; 2]>> = (0..8)
                .map(|corner| {
                    let share = |bit: usize| f64::from(u8::from(corner >> bit & 1 == 1)) - 0.5;
                    let at = pose.apply([share(0) * l, share(1) * w, (share(2) + 0.5) * h]);
                    seen.camera.project(at).map(|(pixel, _)| pixel)
                })
                .collect();
            // A box that reaches behind the camera has no outline.
            let Some(corners) = corners else { continue };
            let reach = |axis: usize, fold: fn(f64, f64) -> f64, start: f64| {
                corners.iter().map(|c| c[axis]).fold(start, fold)
            };
            let inside = left >= reach(0, f64::min, f64::INFINITY) - 1e-6
                && top >= reach(1, f64::min, f64::INFINITY) - 1e-6
                && right <= reach(0, f64::max, f64::NEG_INFINITY) + 1e-6
                && bottom <= reach(1, f64::max, f64::NEG_INFINITY) + 1e-6;
            assert!(inside, "instance {instance} in {}", seen.camera.channel);
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked} boxes");
}

#[test]
fn pictures_repeat_to_the_bit_on_any_number_of_threads() {
    let size = PictureSize::new(40, 23)
        .and_then(|size| size.sampled(3))
        .expect("a size");
    let views = |seed, threads| {
        streets(seed).views_under(&cpu(threads), 2, &CameraRig::nuscenes(size), &Weather::RAIN)
    };
    let first = views(1, 1);
    assert!(first == views(1, 2) && first == views(1, 3));
    assert!(first != views(2, 2));
}

/// The correlation of two pictures' brightness.
fn correlation(a: &[CameraView], b: &[CameraView]) -> f64 {
    let grey = |views: &[CameraView]| -> Vec<f64> {
        let pixels = views
            .iter()
            .flat_map(|seen| seen.view.image.pixels.chunks_exact(3));
        pixels
            .map(|rgb| rgb.iter().map(|v| f64::from(*v)).sum())
            .collect()
    };
    let (a, b) = (grey(a), grey(b));
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(&a), mean(&b));
    let covariance = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    let spread = (covariance(&a, ma, &a, ma) * covariance(&b, mb, &b, mb)).sqrt();
    covariance(&a, ma, &b, mb) / spread
}

/// Measured: 50 places of one town, each on the day of the first pass and under the sky of another day from the same spot.
#[test]
fn one_place_on_two_days_is_more_alike_than_two_places() {
    let config = WorldConfig {
        frames_per_pass: 450,
        passes: 2,
        ..WorldConfig::new(WorldKind::Places, 5)
    };
    let (cpu, rig) = (cpu(2), rig(44, 16));
    let mut world = World::new(config);
    let places: Vec<usize> = (0..50).map(|place| 9 * place).collect();
    let nearest = |world: &mut World, place: usize| {
        let here = world.ego_to_world(place).translation;
        (450..900)
            .map(|index| {
                let [dx, dy, _] = sub(world.ego_to_world(index).translation, here);
                (dx * dx + dy * dy, index)
            })
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(0, |(_, index)| index)
    };
    let days: Vec<[Vec<CameraView>; 2]> = places
        .iter()
        .map(|place| {
            let later = nearest(&mut world, *place);
            [*place, later].map(|index| world.views(&cpu, index, &rig))
        })
        .collect();
    let (mut same, mut other) = (0.0, 0.0);
    for (number, [first, later]) in days.iter().enumerate() {
        same += correlation(first, later) / 50.0;
        other += correlation(first, &days[(number + 17) % 50][1]) / 50.0;
    }
    println!("correlation of one place {same:.3}, of two places {other:.3}");
    assert!(same - other >= 0.2, "{same:.3} {other:.3}");
}

#[test]
fn impossible_cameras_are_told() {
    assert!(matches!(
        PictureSize::new(0, 9),
        Err(WorldError::PictureSize {
            width: 0,
            height: 9
        })
    ));
    let size = PictureSize::new(8, 8).expect("a size");
    assert!(matches!(
        size.sampled(0),
        Err(WorldError::Samples { samples: 0 })
    ));
    let error = rig(8, 8)
        .only(&["CAM_FRONT", "CAM_ROOF"])
        .expect_err("no such camera");
    let text = error.to_string();
    assert!(
        text.contains("CAM_ROOF") && text.contains("CAM_BACK_LEFT"),
        "{text}"
    );
    let two = rig(8, 8).only(&["CAM_BACK", "CAM_FRONT"]).expect("cameras");
    assert!(two.channels().eq(["CAM_FRONT", "CAM_BACK"]));
}
