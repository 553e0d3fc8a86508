//! Parity of CenterPoint with OpenPCDet, stage by stage: seeded weights in, reference outputs out.

mod stored;

use std::sync::Arc;

use percept_data::ModelWeights;
use percept_engine::{Mode, Options, Program};
use percept_graph::{Graph, Tensor};
use percept_kernels::Cpu;
use percept_models::centerpoint::CenterPoint;
use stored::{Golden, shared};

/// Of the largest magnitude of a sparse stage.
const SPARSE: f64 = 1e-5;
/// Absolute, on maps and heads.
const MAPS: f64 = 1e-4;

const STAGES: [&str; 6] = ["conv_input", "conv1", "conv2", "conv3", "conv4", "conv_out"];

fn network(config: CenterPoint) -> Graph {
    let grid = config.grid().expect("a grid");
    config.graph(&grid).expect("the network builds")
}

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

fn run(graph: Graph, points: Vec<f32>, mode: Mode, threads: usize) -> Vec<(String, Tensor)> {
    let weights = Arc::new(ModelWeights::seeded(&graph));
    let options = Options {
        mode,
        ..Options::default()
    };
    let cpu = Cpu::new(threads).expect("threads");
    let mut program = Program::new(graph, weights, cpu, options);
    let count = points.len() / CenterPoint::POINT_CHANNELS;
    let points = Tensor {
        shape: vec![count, CenterPoint::POINT_CHANNELS],
        data: points,
    };
    let counts = Tensor {
        shape: vec![1],
        data: vec![count as f32],
    };
    let outputs = program
        .run(&[("points", &points), ("counts", &counts)])
        .expect("it runs");
    outputs.to_tensors()
}

fn find<'a>(outputs: &'a [(String, Tensor)], name: &str) -> &'a Tensor {
    let found = outputs.iter().find(|(output, _)| output == name);
    &found.unwrap_or_else(|| panic!("no output {name}")).1
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

fn check_summary(
    outputs: &[(String, Tensor)],
    golden: &Golden,
    name: &str,
    stored: &str,
    tolerance: f64,
) {
    let got = find(outputs, name);
    let at = golden.indices(&format!("{stored}.sample_flat"));
    let expected = golden.values(&format!("{stored}.sample_value"));
    compare(
        stored,
        at.iter().map(|&at| got.data[at]),
        &expected,
        tolerance,
    );
    let stats = golden.values(&format!("{stored}.stats"));
    let mean = got.data.iter().map(|&v| f64::from(v)).sum::<f64>() / got.data.len() as f64;
    compare(
        &format!("{stored} mean"),
        [mean as f32].into_iter(),
        &stats[..1],
        tolerance,
    );
}

fn check(golden: &Golden, outputs: &[(String, Tensor)], whole: bool) {
    for stage in STAGES {
        let name = format!("backbone_3d.{stage}");
        let got = find(outputs, &name);
        let sites = golden.indices(&format!("{stage}.num_sites"))[0];
        assert_eq!(got.shape[0], sites, "{stage}");
        let stats = golden.values(&format!("{stage}.stats"));
        let magnitude = f64::from(stats[2].abs().max(stats[3].abs()));
        check_summary(outputs, golden, &name, stage, SPARSE * magnitude);
        if whole {
            let features = golden.values(&format!("{stage}.features"));
            compare(
                stage,
                got.data.iter().copied(),
                &features,
                SPARSE * magnitude,
            );
        }
        if let Some((_, got)) = outputs
            .iter()
            .find(|(name, _)| *name == format!("{stage}.sites"))
        {
            if whole {
                assert_eq!(
                    got.data,
                    golden.values(&format!("{stage}.coords")),
                    "{stage} sites"
                );
            }
            let sums: Vec<i64> = (0..4)
                .map(|axis| {
                    got.data
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
                let got = find(outputs, &name);
                compare(&name, got.data.iter().copied(), &expected, MAPS);
            }
        }
    }
}

/// The small cloud's range: 24 m square.
const SYNTH: CenterPoint = CenterPoint {
    range_m: 12.0,
    ..CenterPoint::FINE
};

#[test]
fn parameters_are_those_of_the_public_network() {
    let graph = network(CenterPoint::FINE);
    assert_eq!(graph.parameter_count(), 8_941_590);
    assert_eq!(network(CenterPoint::COARSE).parameter_count(), 8_941_590);
}

#[test]
fn synth_cloud() {
    let Some(folder) = shared("golden/centerpoint") else {
        return;
    };
    let golden = Golden::open(&folder.join("synth.safetensors"));
    let outputs = run(
        tapped(network(SYNTH)),
        golden.values("points_raw"),
        Mode::Exact,
        2,
    );
    check(&golden, &outputs, true);
}

#[test]
fn keyframe() {
    let Some(folder) = shared("golden/centerpoint") else {
        return;
    };
    let golden = Golden::open(&folder.join("keyframe_v0075.safetensors"));
    let outputs = run(
        tapped(network(CenterPoint::FINE)),
        golden.values("points_raw"),
        Mode::Exact,
        2,
    );
    check(&golden, &outputs, false);
}
