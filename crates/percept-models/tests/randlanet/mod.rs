//! Parity of RandLA-Net with Open3D-ML's network and with the seed repository's: seeded weights in, reference outputs out.

mod clouds;
mod gradients;
mod lean;
mod references;

use std::sync::Arc;

use percept_data::ModelWeights;
use percept_data::seeded::{Family, seeded_values};
use percept_engine::{Memory, Mode, Options, Program};
use percept_graph::{Graph, Tensor};
use percept_kernels::Cpu;
use percept_models::randlanet::{Cloud, RandLaNet, Variant, inputs};

/// Of the deviation of the logits, in exact and in fast mode.
const EXACT: f64 = 1e-4;
const FAST: f64 = 1e-3;

const CFG3: &str = r#"{"model_config": {"d_in": 4, "num_neighbors": 16, "decimation": 4, "max_voxel_dim": 20.0,
    "fc_start": {"d_out": 16},
    "encoder_layers": [{"d_in": 16, "d_out": 32}, {"d_in": 64, "d_out": 128}, {"d_in": 256, "d_out": 256}],
    "decoder_layers": [{"d_in": 1024, "d_out": 256}, {"d_in": 512, "d_out": 128}, {"d_in": 192, "d_out": 32}],
    "fc_end": {"layers": [16], "dropout": 0.3}}}"#;
const BENCH: &str = r#"{"model_config": {"d_in": 4, "num_neighbors": 16, "decimation": 2, "max_voxel_dim": 20.0,
    "fc_start": {"d_out": 8},
    "encoder_layers": [{"d_in": 8, "d_out": 32}, {"d_in": 64, "d_out": 64}, {"d_in": 128, "d_out": 128}],
    "decoder_layers": [{"d_in": 512, "d_out": 128}, {"d_in": 256, "d_out": 64}, {"d_in": 128, "d_out": 8}],
    "fc_end": {"layers": [32, 16], "dropout": 0.3}}}"#;
const CFG7: &str = r#"{"model_config": {"d_in": 4, "num_neighbors": 16, "decimation": 4, "max_voxel_dim": 20.0,
    "fc_start": {"d_out": 8},
    "encoder_layers": [{"d_in": 8, "d_out": 32}, {"d_in": 64, "d_out": 128}, {"d_in": 256, "d_out": 256}, {"d_in": 512, "d_out": 512}],
    "decoder_layers": [{"d_in": 2048, "d_out": 512}, {"d_in": 1024, "d_out": 256}, {"d_in": 512, "d_out": 128}, {"d_in": 192, "d_out": 32}],
    "fc_end": {"layers": [28, 20], "dropout": 0.45}}}"#;

fn seed(text: &str) -> RandLaNet {
    RandLaNet::from_seed_file(text, 10).expect("the configuration fits")
}

/// The networks that references exist of, by the names of their files.
fn networks() -> [(&'static str, RandLaNet); 3] {
    [
        ("faithful", RandLaNet::faithful(19)),
        ("seed_cfg3", seed(CFG3)),
        ("seed_bench", seed(BENCH)),
    ]
}

fn options(mode: Mode, memory: Memory) -> Options {
    Options {
        mode,
        memory,
        ..Options::default()
    }
}

/// The first `channels` of four values of each point.
fn rows(points: &[f32], channels: usize) -> Vec<f32> {
    let rows = points.as_chunks::<4>().0.iter();
    rows.flat_map(|row| &row[..channels]).copied().collect()
}

/// Rows that stay in the order in which they come, as the public networks have it.
fn in_order(len: usize) -> Vec<i32> {
    (0..len as i32).collect()
}

/// All outputs of a run on some clouds.
fn run(
    graph: Graph,
    channels: usize,
    clouds: &[&[f32]],
    options: Options,
) -> Vec<(String, Tensor<'static>)> {
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &graph));
    let mut program = Program::new(graph, weights, Cpu::new(2).expect("two threads"), options);
    let orders: Vec<Vec<i32>> = clouds
        .iter()
        .map(|rows| in_order(rows.len() / channels))
        .collect();
    let clouds = clouds
        .iter()
        .zip(&orders)
        .map(|(rows, priority)| Cloud { rows, priority });
    let inputs = inputs(channels, &clouds.collect::<Vec<_>>()).expect("rows of whole points");
    let named: Vec<(&str, &Tensor<'_>)> = inputs
        .iter()
        .map(|(name, tensor)| (*name, tensor))
        .collect();
    program.run(&named).expect("it runs").to_tensors()
}

fn logits(network: &RandLaNet, clouds: &[&[f32]], options: Options) -> Vec<f32> {
    logits_of(
        network.graph().expect("it builds"),
        network,
        clouds,
        options,
    )
}

fn logits_of(graph: Graph, network: &RandLaNet, clouds: &[&[f32]], options: Options) -> Vec<f32> {
    let outputs = run(graph, network.channels_in, clouds, options);
    let found = outputs.into_iter().find(|(name, _)| name == "logits");
    found.expect("logits").1.to_f32().into_owned()
}

fn compare(what: &str, got: &[f32], expected: &[f32], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let differences = got
        .iter()
        .zip(expected)
        .map(|(a, b)| f64::from((a - b).abs()));
    let worst = differences.fold(0.0, |worst: f64, d| {
        if d.is_nan() {
            f64::INFINITY
        } else {
            worst.max(d)
        }
    });
    println!(
        "{what}: largest difference {worst:.2e} of {}, tolerance {tolerance:.2e}",
        got.len()
    );
    assert!(
        !got.is_empty() && worst <= tolerance,
        "{what}: {worst:.3e} is past {tolerance:.3e}"
    );
}

/// A small network whose every layer is there.
fn small(variant: Variant) -> RandLaNet {
    RandLaNet {
        variant,
        channels_in: 3,
        neighbours: 4,
        ratios: vec![2, 2],
        start: 4,
        encoder: vec![4, 8],
        decoder: vec![8, 4],
        end: vec![4],
        dropout: 0.0,
        classes: 3,
    }
}

const VARIANTS: [Variant; 2] = [
    Variant::Faithful,
    Variant::Seed {
        max_voxel_dim: 20.0,
    },
];

fn cloud(name: &str, points: usize) -> Vec<f32> {
    seeded_values(Family::Vision, name, &[points, 3])
}
