//! Parity of CenterPoint with OpenPCDet, stage by stage: seeded weights in, reference outputs out.

use crate::lidar::{Outputs, SYNTH, network, run};
use crate::stored::{Golden, shared};
use percept_engine::{Mode, Options};
use percept_graph::Graph;
use percept_models::centerpoint::CenterPoint;

const EXACT: Options = Options {
    mode: Mode::Exact,
    memory: percept_engine::Memory::Frugal,
    empty: percept_engine::Empty::Skip,
    integers: percept_engine::Integers::Kernels,
};

/// Of the largest magnitude of a sparse stage.
const SPARSE: f64 = 1e-5;
/// Absolute, on maps and heads.
const MAPS: f64 = 1e-4;

const STAGES: [&str; 6] = ["conv_input", "conv1", "conv2", "conv3", "conv4", "conv_out"];

/// A graph whose sparse stages, sites and maps are outputs too.
fn tapped(graph: Graph) -> Graph {
    let maps = [
        "bev",
        "backbone_2d.blocks.0",
        "backbone_2d.blocks.1",
        "backbone_2d",
        "dense_head.shared_conv",
    ];
    let stages = STAGES.map(|stage| format!("backbone_3d.{stage}"));
    let mut graph = graph;
    for name in stages.iter().map(String::as_str).chain(maps) {
        let value = graph.find(name).expect("the name exists");
        graph = graph.with_output(name, value);
    }
    for (stage, node) in [
        ("conv2", "backbone_3d.conv2.0.sites"),
        ("conv3", "backbone_3d.conv3.0.sites"),
        ("conv4", "backbone_3d.conv4.0.sites"),
        ("conv_out", "backbone_3d.conv_out.sites"),
    ] {
        let value = graph.find(node).expect("the node exists");
        graph = graph.with_output(&format!("{stage}.sites"), value);
    }
    graph
}

fn compare(what: &str, got: impl Iterator<Item = f32>, expected: &[f32], tolerance: f64) {
    let mut worst = 0.0f64;
    let mut count = 0;
    for (got, &want) in got.zip(expected) {
        let difference = (f64::from(got) - f64::from(want)).abs();
        worst = if difference.is_nan() {
            f64::INFINITY
        } else {
            worst.max(difference)
        };
        count += 1;
    }
    println!("{what}: largest difference {worst:.2e} of {count}, tolerance {tolerance:.2e}");
    assert_eq!(count, expected.len(), "{what}");
    assert!(
        count > 0 && worst <= tolerance,
        "{what}: {worst:.3e} is past {tolerance:.3e}"
    );
}

fn check_summary(outputs: &Outputs, golden: &Golden, name: &str, stored: &str, tolerance: f64) {
    let got = outputs.get(name);
    let at = golden.indices(&format!("{stored}.sample_flat"));
    let expected = golden.values(&format!("{stored}.sample_value"));
    compare(
        stored,
        at.iter().map(|&at| got.to_f32()[at]),
        &expected,
        tolerance,
    );
    let stats = golden.values(&format!("{stored}.stats"));
    let mean = got.to_f64().iter().sum::<f64>() / got.element_count() as f64;
    compare(
        &format!("{stored} mean"),
        [mean as f32].into_iter(),
        &stats[..1],
        tolerance,
    );
}

fn check(golden: &Golden, outputs: &Outputs, whole: bool) {
    for stage in STAGES {
        let name = format!("backbone_3d.{stage}");
        let got = outputs.get(&name);
        let sites = golden.indices(&format!("{stage}.num_sites"))[0];
        assert_eq!(got.shape()[0], sites, "{stage}");
        let stats = golden.values(&format!("{stage}.stats"));
        let magnitude = f64::from(stats[2].abs().max(stats[3].abs()));
        check_summary(outputs, golden, &name, stage, SPARSE * magnitude);
        if whole {
            let features = golden.values(&format!("{stage}.features"));
            compare(
                stage,
                got.to_f32().iter().copied(),
                &features,
                SPARSE * magnitude,
            );
        }
        if let Some(got) = outputs.find(&format!("{stage}.sites")) {
            if whole {
                assert_eq!(
                    *got.to_f32(),
                    golden.values(&format!("{stage}.coords")),
                    "{stage} sites"
                );
            }
            let sums: Vec<i64> = (0..4)
                .map(|axis| {
                    got.to_f32()
                        .iter()
                        .skip(axis)
                        .step_by(4)
                        .map(|&v| v as i64)
                        .sum()
                })
                .collect();
            let expected: Vec<i64> = golden
                .indices(&format!("{stage}.coord_sum"))
                .into_iter()
                .map(|sum| sum as i64)
                .collect();
            assert_eq!(sums, expected, "{stage} sites");
        }
    }
    for (name, stored) in [
        ("bev", "bev"),
        ("backbone_2d.blocks.0", "backbone_2d.block0"),
        ("backbone_2d.blocks.1", "backbone_2d.block1"),
        ("backbone_2d", "backbone_2d"),
        ("dense_head.shared_conv", "shared_conv"),
    ] {
        check_summary(outputs, golden, name, stored, MAPS);
    }
    for head in 0..6 {
        for branch in ["center", "center_z", "dim", "rot", "vel", "hm"] {
            let name = format!("head{head}.{branch}");
            check_summary(outputs, golden, &name, &name, MAPS);
            if golden.shape(&format!("{name}.full")).is_some() {
                let expected = golden.values(&format!("{name}.full"));
                let got = outputs.get(&name);
                compare(&name, got.to_f32().iter().copied(), &expected, MAPS);
            }
        }
    }
}

#[test]
fn parameters_are_those_of_the_public_network() {
    let graph = network(CenterPoint::FINE);
    assert_eq!(graph.parameter_count(), 8_941_590);
    assert_eq!(network(CenterPoint::COARSE).parameter_count(), 8_941_590);
}

/// The heads that the fixture holds, from the fixture's points: what runs everywhere.
#[test]
fn generated_cloud() {
    let points = Golden::fixture("centerpoint_synth_voxels").values("points_raw");
    let golden = Golden::fixture("centerpoint_synth_heads");
    let outputs = run(network(SYNTH), &[&points], EXACT, 2);
    for head in [1, 3] {
        for branch in ["center", "center_z", "dim", "rot", "vel", "hm"] {
            let name = format!("head{head}.{branch}");
            let expected = golden.values(&format!("{name}.full"));
            compare(
                &name,
                outputs.get(&name).to_f32().iter().copied(),
                &expected,
                MAPS,
            );
        }
    }
}

#[test]
fn whole_references() {
    let Some(folder) = shared("golden/centerpoint") else {
        return;
    };
    let open = |file: &str| Golden::open(&folder.join(format!("{file}.safetensors")));
    let golden = open("synth");
    let points = golden.values("points_raw");
    check(
        &golden,
        &run(tapped(network(SYNTH)), &[&points], EXACT, 2),
        true,
    );
    let golden = open("keyframe_v0075");
    let points = golden.values("points_raw");
    let outputs = run(tapped(network(CenterPoint::FINE)), &[&points], EXACT, 2);
    check(&golden, &outputs, false);
}

#[test]
fn ten_sweeps() {
    let (Some(folder), Some(data)) = (shared("golden/centerpoint"), shared("data/nuscenes")) else {
        return;
    };
    let golden = Golden::open(&folder.join("ten_sweeps_v0075.safetensors"));
    let points = percept_data::points::read_merged_f16(&data.join("ten_sweeps_fp16x5.bin"));
    let points: Vec<f32> = points
        .expect("the sweeps read")
        .points
        .iter()
        .flat_map(|p| {
            [
                p.position[0],
                p.position[1],
                p.position[2],
                p.intensity,
                p.age_s,
            ]
        })
        .collect();
    let outputs = run(tapped(network(CenterPoint::FINE)), &[&points], EXACT, 2);
    check(&golden, &outputs, false);
}
