//! Training steps that hold less memory: the same bits where values are computed again, small errors where they wait in 16 bits.

mod hashed;

use std::collections::BTreeMap;
use std::sync::Arc;

use hashed::{Weights, tensor};
use percept_engine::{Options, Recording, TrainStep};
use percept_graph::{
    AdaptiveAvgPool2d, BatchNorm, Bindings, Builder, Conv2d, CrossEntropy, DType, Dim, Dropout,
    Graph, LEARNING_RATE, MaxPool2d, Optimiser, RANDOM_COUNTER, Recompute, Sgd, Tensor, Training,
    ValueId, WeightSource,
};
use percept_kernels::Cpu;

const CLASSES: usize = 5;

fn conv_norm(b: &mut Builder, number: usize, x: ValueId, conv: Conv2d) -> ValueId {
    let channels = conv.out_channels;
    let y = b.conv2d(&format!("conv{number}"), x, conv.no_bias());
    b.batch_norm(&format!("bn{number}"), y, BatchNorm::new(channels))
}

/// A ResNet's bottleneck.
fn block(b: &mut Builder, x: ValueId, channels: usize, width: usize, stride: usize) -> ValueId {
    let out = 4 * width;
    let y = conv_norm(b, 1, x, Conv2d::new(channels, width, 1));
    let y = b.relu("relu1", y);
    let y = conv_norm(
        b,
        2,
        y,
        Conv2d::new(width, width, 3).stride(stride).padding(1),
    );
    let y = b.relu("relu2", y);
    let y = b.leaf("drop", Dropout { p: 0.1 }, &[y]);
    let y = conv_norm(b, 3, y, Conv2d::new(width, out, 1));
    let x = match channels == out {
        true => x,
        false => b.module("downsample", "Sequential", |b| {
            conv_norm(b, 0, x, Conv2d::new(channels, out, 1).stride(stride))
        }),
    };
    let y = b.add("add", y, x);
    b.relu("relu3", y)
}

/// A small ResNet with bottlenecks in two layers, with its loss, as it trains.
fn resnet() -> Graph {
    let mut b = Builder::new("ResNet");
    let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
    let x = b.input("image", [n.clone(), 3.into(), h, w]);
    let x = conv_norm(&mut b, 1, x, Conv2d::new(3, 16, 3).padding(1));
    let x = b.relu("relu", x);
    let pool = MaxPool2d {
        kernel: 3,
        stride: 2,
        padding: 1,
    };
    let mut x = b.leaf("maxpool", pool, &[x]);
    let mut channels = 16;
    for (layer, width) in [("layer1", 16), ("layer2", 32)] {
        x = b.module(layer, "Sequential", |b| {
            for (number, stride) in [(0, if width == 16 { 1 } else { 2 }), (1, 1)] {
                x = b.module(&number.to_string(), "Bottleneck", |b| {
                    block(b, x, channels, width, stride)
                });
                channels = 4 * width;
            }
            x
        });
    }
    let x = b.leaf("avgpool", AdaptiveAvgPool2d { output: [1, 1] }, &[x]);
    let x = b.flatten("flatten", x, 1);
    let logits = b.linear("fc", x, channels, CLASSES);
    let labels = b.integer_input("labels", [n]);
    let loss = b.call("loss", CrossEntropy { smoothing: 0.0 }, &[logits, labels]);
    b.output("loss", loss);
    let training = Training {
        optimiser: Optimiser::Sgd(Sgd::default()),
        clip_norm: None,
    };
    let graph = training.graph(b.finish().unwrap(), "loss", |_| true);
    graph.unwrap()
}

/// The state after a step, and the bytes of all intermediate values.
fn after_a_step(graph: &Graph, threads: usize) -> (BTreeMap<String, Vec<f32>>, usize) {
    let labels: Vec<i32> = (0..4).map(|i| i % CLASSES as i32).collect();
    let inputs = [
        ("image", tensor("image", &[4, 3, 40, 40])),
        ("labels", Tensor::from_values([4], labels).unwrap()),
        (LEARNING_RATE, Tensor::scalar(1.0f32)),
        (
            RANDOM_COUNTER,
            Tensor::from_values([2], vec![3i32, 4]).unwrap(),
        ),
    ];
    let inputs: Vec<_> = inputs.iter().map(|(name, t)| (*name, t)).collect();
    let weights = Arc::new(Weights::default());
    let cpu = Cpu::new(threads).unwrap();
    let mut step = TrainStep::new(graph.clone(), weights, cpu, Options::default()).unwrap();
    let mut recording = Recording::default();
    step.step_recorded(&inputs, &mut recording).unwrap();
    let memory = step.program().memory_at_peak(&recording.runs[0].bindings);
    let names: Vec<String> = step.state_names().map(str::to_owned).collect();
    let state = |name: String| {
        let values = step.state(&name).unwrap().to_f32().into_owned();
        (name, values)
    };
    (names.into_iter().map(state).collect(), memory.arena_bytes)
}

fn modules(names: &[&str]) -> Recompute {
    Recompute {
        modules: names.iter().map(|name| (*name).to_owned()).collect(),
        elementwise: false,
    }
}

#[test]
fn modules_that_are_computed_again_change_no_bit_and_save_memory() {
    let graph = resnet();
    let (expected, whole) = after_a_step(&graph, 1);
    let elementwise = Recompute {
        elementwise: true,
        ..Recompute::default()
    };
    let blocks = modules(&["layer1.0", "layer1.1", "layer2.0", "layer2.1"]);
    let both = Recompute {
        elementwise: true,
        ..blocks.clone()
    };
    let mut peaks = Vec::new();
    let stem = modules(&["conv1+bn1+relu+maxpool", "layer1", "layer2"]);
    for what in [
        elementwise,
        modules(&["layer1", "layer2"]),
        blocks,
        both,
        stem,
    ] {
        let graph = graph.clone().recomputing(&what).unwrap();
        for threads in [1, 2] {
            let (got, bytes) = after_a_step(&graph.clone().with_early_updates(), threads);
            for (name, values) in &expected {
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert!(bits(&got[name]) == bits(values), "{name}: {what:?}");
            }
            peaks.push(bytes);
        }
    }
    let [elementwise, _, layers, _, blocks, _, both, _, _, _] = peaks[..] else {
        unreachable!("five plans on one and two threads")
    };
    assert!(elementwise < whole, "{elementwise} of {whole}");
    assert!(
        blocks < layers && layers < whole,
        "{blocks}, {layers}, {whole}"
    );
    assert!(both <= blocks, "{both} of {blocks}");
}

#[test]
fn gradients_bear_activations_in_16_bits() {
    let graph = resnet();
    let (exact, whole) = after_a_step(&graph, 1);
    let start = Weights::default();
    for (dtype, tolerance) in [(DType::F16, 2e-3), (DType::BF16, 1.5e-2)] {
        let elementwise = Recompute {
            elementwise: true,
            ..Recompute::default()
        };
        for what in [Recompute::default(), elementwise] {
            let narrow = graph.clone().recomputing(&what).unwrap().keeping(dtype);
            let (got, bytes) = after_a_step(&narrow, 2);
            assert!(bytes < whole * 3 / 4, "{dtype}: {bytes} of {whole}");
            let mut differ = 0;
            for (name, exact) in exact.iter().filter(|(name, _)| !name.contains("running")) {
                let shape = graph
                    .value(graph.state(name).unwrap().value)
                    .ty
                    .eval(&Bindings::new());
                let begin = start.read(name, &shape.unwrap()).unwrap();
                // The learning rate is one: a parameter has moved by its gradient.
                let moved = exact
                    .iter()
                    .zip(&*begin)
                    .map(|(a, b)| f64::from(a - b).powi(2));
                let off = exact.iter().zip(&got[name]);
                let off = off
                    .map(|(a, b)| f64::from(a - b).powi(2))
                    .sum::<f64>()
                    .sqrt();
                let error = off / moved.sum::<f64>().sqrt();
                assert!(error < tolerance, "{dtype}, {name}: {error}");
                differ += usize::from(error > 0.0);
            }
            assert!(differ > 10, "{dtype}: rounding must be seen");
            let statistics = exact.keys().filter(|name| name.contains("running"));
            for name in statistics {
                assert_eq!(got[name], exact[name], "{name}: the forward pass is exact");
            }
        }
    }
}
