//! CenterPoint from points to boxes: in fast mode, in batches, on any number of threads, on strange clouds.

use crate::lidar::{Outputs, SYNTH, network, run};
use crate::stored::{Golden, shared};
use percept_engine::{Empty, Mode, Options};
use percept_models::answer::FoundBox;
use percept_models::centerpoint::decode::{DecodeConfig, HeadMaps, decode};
use percept_models::centerpoint::{CenterPoint, HEADS};

const FAST: Options = Options {
    mode: Mode::Fast,
    memory: percept_engine::Memory::Frugal,
    empty: Empty::Skip,
    integers: percept_engine::Integers::Kernels,
};

fn synth_points() -> Vec<f32> {
    Golden::fixture("centerpoint_synth_voxels").values("points_raw")
}

fn bits(outputs: &Outputs, name: &str) -> Vec<u32> {
    outputs
        .get(name)
        .to_f32()
        .iter()
        .map(|value| value.to_bits())
        .collect()
}

fn head_names() -> impl Iterator<Item = String> {
    (0..HEADS.len()).flat_map(|head| {
        ["center", "center_z", "dim", "rot", "vel", "hm"].map(|map| format!("head{head}.{map}"))
    })
}

/// The boxes of a run whose heat maps are made steeper, as those of the reference were: seeded maps are nearly flat.
fn peaky(outputs: &Outputs, config: &CenterPoint) -> Vec<FoundBox> {
    let shape = outputs.get("head0.hm").shape();
    let size = [shape[2], shape[3]];
    let mut found = Vec::new();
    for (head, classes) in HEADS.iter().enumerate() {
        let map = |name: &str| {
            let map = outputs.get(&format!("head{head}.{name}"));
            map.values::<f32>().expect("a map of floats")
        };
        let hm: Vec<f32> = map("hm").iter().map(|logit| 30.0 * logit - 2.19).collect();
        let maps = HeadMaps {
            classes,
            hm: &hm,
            center: map("center"),
            center_z: map("center_z"),
            dim: map("dim"),
            rot: map("rot"),
            vel: map("vel"),
        };
        found.extend(decode(&[maps], size, &DecodeConfig::new(config)));
    }
    found
}

/// At least 99 % of the reference's boxes have a partner of equal label within 1 cm and 1e-3 of score.
fn check_partners(golden: &Golden, stored: &str, found: &[FoundBox]) {
    let labels = golden.indices(&format!("{stored}.labels_1based"));
    let boxes = golden.values(&format!("{stored}.boxes"));
    let scores = golden.values(&format!("{stored}.scores"));
    let mut alone = 0;
    for (row, expected) in boxes.chunks_exact(9).enumerate() {
        let fits = |d: &&FoundBox| {
            d.class + 1 == labels[row]
                && (d.score - scores[row]).abs() <= 1e-3
                && (0..3).all(|axis| (d.center[axis] - expected[axis]).abs() <= 0.01)
        };
        if found.iter().find(fits).is_none() {
            alone += 1;
            println!(
                "{stored} row {row}: no partner, score {}, above the threshold by {:.1e}",
                scores[row],
                scores[row] - 0.1
            );
        }
    }
    println!(
        "{stored}: {} of {} boxes have a partner",
        labels.len() - alone,
        labels.len()
    );
    assert!(
        !labels.is_empty() && alone * 100 <= labels.len(),
        "{alone} of {} are alone",
        labels.len()
    );
}

#[test]
fn fast_mode_finds_the_same_boxes() {
    let outputs = run(network(SYNTH), &[&synth_points()], FAST, 2);
    let golden = Golden::fixture("centerpoint_synth_heads");
    check_partners(&golden, "final_peaky_det", &peaky(&outputs, &SYNTH));
    let Some(folder) = shared("golden/centerpoint") else {
        return;
    };
    let golden = Golden::open(&folder.join("keyframe_v0075.safetensors"));
    let outputs = run(
        network(CenterPoint::FINE),
        &[&golden.values("points_raw")],
        FAST,
        2,
    );
    check_partners(
        &golden,
        "final_peaky_det",
        &peaky(&outputs, &CenterPoint::FINE),
    );
}

#[test]
fn threads_and_skipping_change_no_bit() {
    let points = synth_points();
    let first = run(network(SYNTH), &[&points], FAST, 1);
    let computed = Options {
        empty: Empty::Compute,
        ..FAST
    };
    for other in [
        run(network(SYNTH), &[&points], FAST, 2),
        run(network(SYNTH), &[&points], FAST, 3),
        run(network(SYNTH), &[&points], computed, 2),
    ] {
        for name in head_names().chain(["detections".to_owned()]) {
            assert_eq!(bits(&first, &name), bits(&other, &name), "{name}");
        }
    }
}

/// On the full range the small cloud leaves most of the map empty, borders and middle.
#[test]
fn empty_parts_have_the_networks_answer() {
    let points = synth_points();
    let skipped = run(network(CenterPoint::FINE), &[&points], FAST, 2);
    let ignored = Options {
        empty: Empty::Ignore,
        ..FAST
    };
    let plain = run(network(CenterPoint::FINE), &[&points], ignored, 2);
    for name in head_names() {
        let (skipped, plain) = (skipped.get(&name), plain.get(&name));
        for (at, (a, b)) in skipped.to_f32().iter().zip(&*plain.to_f32()).enumerate() {
            assert!((a - b).abs() < 1e-4, "{name}: {a} and {b} at {at}");
        }
    }
}

#[test]
fn a_batch_equals_its_samples() {
    let points = synth_points();
    let (some, others) = points.split_at(points.len() / 10 * 5);
    let batch = run(network(SYNTH), &[some, &[], others], FAST, 2);
    let found = batch.boxes(3);
    for (sample, points) in [some, &[], others].into_iter().enumerate() {
        let alone = run(network(SYNTH), &[points], FAST, 2);
        let expected = alone.boxes(1).remove(0);
        assert_eq!(found[sample], expected, "sample {sample}");
        for name in head_names() {
            let (whole, part) = (bits(&batch, &name), bits(&alone, &name));
            assert_eq!(
                whole[sample * part.len()..][..part.len()],
                part,
                "{name} of sample {sample}"
            );
        }
    }
}

#[test]
fn strange_clouds_have_an_honest_answer() {
    let nowhere = [1e6, 0.0, 0.0, 1.0, 0.0];
    let broken = [
        f32::NAN,
        1.0,
        0.0,
        5.0,
        0.0,
        1.0,
        f32::INFINITY,
        0.0,
        5.0,
        0.0,
    ];
    let one = [1.0, 2.0, 0.0, 30.0, 0.0];
    let empty = run(network(SYNTH), &[&[]], FAST, 2);
    for cloud in [&nowhere[..], &broken] {
        let outputs = run(network(SYNTH), &[cloud], FAST, 2);
        for name in head_names() {
            assert_eq!(bits(&outputs, &name), bits(&empty, &name), "{name}");
        }
    }
    let mixed: Vec<f32> = [&broken[..], &one, &nowhere].concat();
    let (alone, mixed) = (
        run(network(SYNTH), &[&one], FAST, 2),
        run(network(SYNTH), &[&mixed], FAST, 2),
    );
    assert_ne!(bits(&alone, "head0.hm"), bits(&empty, "head0.hm"));
    for name in head_names() {
        assert_eq!(bits(&alone, &name), bits(&mixed, &name), "{name}");
    }
}
