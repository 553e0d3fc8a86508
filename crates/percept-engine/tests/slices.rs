//! Batches that are computed in slices against the same batches at once, which `Memory::Keep` gives: the same bits, in floats and in bytes.

mod hashed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashed::{Weights, hashed, tensor};
use percept_engine::{
    Integers, Memory, Options, PrecisionPlan, Program, Quantization, Recording, RoundedWeights,
    is_contraction,
};
use percept_graph::{
    Activation, AdaptiveAvgPool2d, AvgPool2d, BatchNorm, Builder, Conv2d, ConvTranspose2d, Dim,
    Graph, MaxPool2d, Node, Sign, Tensor, ValueId,
};
use percept_kernels::{Cpu, Isa};

/// A map that is no whole number of tiles or vectors, and so that slices begin between cache lines.
const SIZE: [usize; 2] = [107, 91];
const LAYERS: usize = 9;

/// A network of layers of all kinds, which `seed` chooses, on bytes but for some of them.
fn network(seed: usize) -> Graph {
    let graph = on_floats(seed);
    let layers = graph.nodes().iter().filter(|node| is_contraction(node));
    let layers = layers.filter(|node| hashed(&node.name, seed) < 0.9);
    let plan = layers.fold(PrecisionPlan::new(), |plan, node| {
        let grid = Quantization::dynamic(8).with_input(6.0, Sign::NonNegative);
        plan.with(&node.name, grid)
    });
    plan.quantize(graph).unwrap()
}

fn on_floats(seed: usize) -> Graph {
    let mut b = Builder::new("Random");
    let [height, width] = SIZE;
    let x = b.input(
        "x",
        [Dim::symbol("N"), 3.into(), height.into(), width.into()],
    );
    let conv = |b: &mut Builder, name: &str, x: ValueId, conv: Conv2d| {
        let channels = conv.out_channels;
        let x = b.conv2d(name, x, conv.no_bias());
        let x = b.batch_norm(&format!("{name}_bn"), x, BatchNorm::new(channels));
        b.relu(&format!("{name}_relu"), x)
    };
    let mut x = conv(&mut b, "stem", x, Conv2d::new(3, 12, 3).padding(1));
    let mut channels = 12;
    for layer in 0..LAYERS {
        let name = format!("layer{layer}");
        let kind = (9.0 * (hashed("kind", LAYERS * seed + layer) + 1.0)) as usize;
        x = match kind {
            0..=2 => conv(
                &mut b,
                &name,
                x,
                Conv2d::new(channels, channels, 3).padding(1),
            ),
            3..=5 => {
                let wider = if channels > 24 { 12 } else { channels + 8 };
                let y = conv(&mut b, &name, x, Conv2d::new(channels, wider, 1));
                channels = wider;
                y
            }
            6 => {
                let half = Conv2d::new(channels, channels, 3).stride(2).padding(1);
                conv(&mut b, &name, x, half)
            }
            7 if channels > 20 => {
                let twice = ConvTranspose2d::new(Conv2d::new(channels, 8, 2).stride(2));
                channels = 8;
                b.leaf(&name, twice, &[x])
            }
            8..=9 => {
                let apart = Conv2d::new(channels, channels, 5).padding(2);
                conv(&mut b, &name, x, apart.groups(channels))
            }
            10 => conv(
                &mut b,
                &name,
                x,
                Conv2d::new(channels, channels, 3).padding(1).groups(2),
            ),
            11..=13 => {
                let y = b.conv2d(&name, x, Conv2d::new(channels, channels, 3).padding(1));
                let y = b.add(&format!("{name}_add"), y, x);
                b.relu(&format!("{name}_relu"), y)
            }
            14 if channels < 24 => {
                let y = conv(&mut b, &name, x, Conv2d::new(channels, channels, 1));
                channels *= 2;
                b.concat(&format!("{name}_concat"), &[x, y], 1)
            }
            15 => {
                let s = b.leaf(
                    &format!("{name}_mean"),
                    AdaptiveAvgPool2d { output: [1, 1] },
                    &[x],
                );
                let s = b.conv2d(
                    &format!("{name}_gate"),
                    s,
                    Conv2d::new(channels, channels, 1),
                );
                let s = b.leaf(&format!("{name}_sigmoid"), Activation::Sigmoid, &[s]);
                b.mul(&name, x, s)
            }
            16 => {
                let pool = MaxPool2d {
                    kernel: 3,
                    stride: 2,
                    padding: 1,
                };
                b.leaf(&name, pool, &[x])
            }
            _ => {
                b.output(&name, x);
                b.leaf(&name, Activation::Silu, &[x])
            }
        };
    }
    let pool = AvgPool2d {
        kernel: 2,
        stride: 2,
        padding: 0,
        count_include_pad: false,
    };
    let x = b.leaf("pool", pool, &[x]);
    let x = b.leaf("mean", AdaptiveAvgPool2d { output: [3, 3] }, &[x]);
    let x = b.conv2d("head", x, Conv2d::new(channels, 24, 1));
    let x = b.flatten("flat", x, 1);
    let x = b.linear("fc", x, 24 * 9, 7);
    b.output("y", x);
    b.finish().unwrap()
}

fn program(graph: &Graph, threads: usize, isa: Isa, options: Options) -> Program {
    let weights = RoundedWeights::new(Arc::new(Weights::default()), graph);
    let cpu = Cpu::with_isa(threads, isa).unwrap();
    Program::new(graph.clone(), Arc::new(weights), cpu, options)
}

fn input(batch: usize) -> Tensor<'static> {
    tensor("x", &[batch, 3, SIZE[0], SIZE[1]])
}

/// The outputs' bits, and the steps that took turns.
fn run(program: &mut Program, x: &Tensor<'_>) -> (Vec<Vec<u32>>, Vec<String>) {
    let outputs = program.run(&[("x", x)]).unwrap();
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect();
    let outputs = outputs
        .iter()
        .map(|(_, y)| bits(y.values::<f32>().unwrap()));
    let outputs = outputs.collect();
    let sizes = program.graph().bind(&[("x", x.shape().to_vec())]).unwrap();
    let infos = program.step_infos(&sizes).unwrap().into_iter();
    let turns = infos.filter(|info| info.turns > 1).map(|info| info.name);
    (outputs, turns.collect())
}

#[test]
fn slices_have_the_bits_of_the_batch() {
    for isa in Isa::available_for_bytes() {
        let seeds = if isa == Isa::Portable { 2 } else { 5 };
        let mut sliced = 0;
        for seed in 0..seeds {
            let (graph, x) = (network(seed), input([24, 27, 30][seed % 3]));
            let options = Options {
                integers: [Integers::Kernels, Integers::Exact][seed % 2],
                ..Options::default()
            };
            let keep = Options {
                memory: Memory::Keep,
                ..options
            };
            let (whole, turns) = run(&mut program(&graph, 1, isa, keep), &x);
            assert!(turns.is_empty(), "what is kept is kept whole");
            for threads in 1..=3 {
                let mut program = program(&graph, threads, isa, options);
                for _ in 0..threads {
                    let (outputs, turns) = run(&mut program, &x);
                    assert!(outputs == whole, "{threads} threads, {isa}, {graph:?}");
                    sliced += turns.len();
                }
            }
        }
        assert!(sliced >= 6 * seeds, "{sliced} steps in turns, {isa}");
    }
}

/// A network with slices, its batch, and what it gives.
fn sliced() -> (Graph, Program, Tensor<'static>, Vec<Vec<u32>>) {
    let (graph, x) = (network(1), input(27));
    let mut program = program(&graph, 2, Isa::detect().unwrap(), Options::default());
    let (outputs, turns) = run(&mut program, &x);
    assert!(turns.iter().any(|name| name == "stem"), "{turns:?}");
    (graph, program, x, outputs)
}

#[test]
fn who_looks_at_layers_sees_the_batch() {
    let (graph, mut program, x, outputs) = sliced();
    let mut seen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut observe = |node: &Node, values: &[f32]| {
        seen.entry(node.name.clone())
            .or_default()
            .push(values.len());
    };
    program.run_observed(&[("x", &x)], &mut observe).unwrap();
    let sizes = graph.bind(&[("x", x.shape().to_vec())]).unwrap();
    for node in graph.nodes().iter().filter(|node| is_contraction(node)) {
        let shape = graph.value_shape(node.inputs[0], &sizes).unwrap();
        assert_eq!(seen[&node.name], [shape.iter().product::<usize>()]);
    }
    assert_eq!(run(&mut program, &x).0, outputs);
}

#[test]
fn batches_of_other_sizes_follow_each_other() {
    let (graph, mut program, x, outputs) = sliced();
    for batch in [0, 1, 7, 24] {
        let x = input(batch);
        let expected = self::program(&graph, 1, program.cpu().isa(), Options::default());
        let expected = run(&mut { expected }, &x);
        assert!(run(&mut program, &x) == expected, "{batch} samples");
    }
    assert!(run(&mut program, &x).0 == outputs);
}

#[test]
fn a_profile_adds_the_turns_of_a_step() {
    let (graph, mut program, x, _) = sliced();
    let mut recording = Recording::default();
    program
        .run_recorded(&[("x", &x)], Some(&mut recording))
        .unwrap();
    let recorded = &recording.runs[0];
    let infos = program.step_infos(&recorded.bindings).unwrap();
    let times = recorded.step_times();
    assert_eq!(times.len(), infos.len());
    let sum: Duration = recorded.calls.iter().map(|call| call.elapsed).sum();
    assert_eq!(times.values().sum::<Duration>(), sum);
    let macs: u64 = infos.iter().map(|info| info.macs.unwrap()).sum();
    assert_eq!(macs, graph.total_macs(&recorded.bindings).unwrap());
    let peak = program.memory_at_peak(&recorded.bindings);
    assert!(peak.live_bytes <= peak.arena_bytes);
    for info in &infos {
        let calls = recorded.calls.iter();
        assert_eq!(
            calls.filter(|call| call.step == info.step).count(),
            info.turns
        );
        assert!(info.live_bytes <= peak.live_bytes);
    }
}
