//! Where the parts of a batch lie, followed through a network that has all that a run of slices may meet.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use percept_graph::{
    AdaptiveAvgPool2d, Binary, BinaryKind, Bindings, Builder, Conv2d, CrossEntropy, Dim, Expand,
    Graph, LEARNING_RATE, MaxPool2d, Optimiser, Reduce, ReduceKind, Sgd, Sign, Training, ValueId,
    WeightError, WeightSource,
};
use percept_kernels::{Cpu, Isa};

use crate::schedule::{Place, Schedule};
use crate::{
    Integers, Memory, Options, PrecisionPlan, Program, Quantization, RoundedWeights, is_contraction,
};

const SIDE: usize = 256;

struct Ones;

impl WeightSource for Ones {
    fn read(&self, _: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        Ok(vec![1.0; shape.iter().product()].into())
    }

    fn describe(&self) -> String {
        "ones".to_owned()
    }
}

/// The whole batch at first; then large maps on bytes with residuals, of which one is a constant for each sample, an output, and
/// concatenations inside and behind; then layers with much larger weights than maps. `batch` counts samples, or is how many there are.
/// Also gives the scores.
fn network(batch: Dim) -> (Builder, ValueId) {
    let mut b = Builder::new("Funnel");
    let x = b.input("x", [batch.clone(), 3.into(), SIDE.into(), SIDE.into()]);
    let mean = Reduce {
        kind: ReduceKind::Mean,
        axes: vec![0],
    };
    let mean = b.call("mean", mean, &[x]);
    let sub = Binary {
        kind: BinaryKind::Sub,
    };
    let x = b.call("centred", sub, &[x, mean]);
    let offset = b.parameter("offset", &[1, 16, SIDE, SIDE]);
    let shape = vec![batch, 16.into(), SIDE.into(), SIDE.into()];
    let offset = b.call("offsets", Expand { shape }, &[offset]);
    let x = b.conv2d("stem", x, Conv2d::new(3, 16, 3).padding(1));
    let x = b.add("moved", x, offset);
    let x = b.relu("relu", x);
    let y = b.conv2d("left", x, Conv2d::new(16, 16, 3).padding(1));
    let left = b.relu("left_relu", y);
    let y = b.conv2d("right", left, Conv2d::new(16, 16, 1));
    let y = b.add("add", y, x);
    let y = b.relu("right_relu", y);
    let [up, down] = ["up", "down"].map(|name| b.conv2d(name, y, Conv2d::new(16, 4, 1)));
    let y = b.concat("concat", &[x, y], 1);
    let pool = MaxPool2d {
        kernel: 2,
        stride: 2,
        padding: 0,
    };
    let y = b.leaf("pool", pool, &[y]);
    let y = b.conv2d("narrow", y, Conv2d::new(32, 64, 3).stride(4));
    let twice = b.concat("twice", &[up, down], 0);
    let y = b.leaf("even", AdaptiveAvgPool2d { output: [2; 2] }, &[y]);
    let y = b.conv2d("wide", y, Conv2d::new(64, 2048, 1));
    let y = b.conv2d("deep", y, Conv2d::new(2048, 512, 1));
    let y = b.flatten("flat", y, 1);
    let y = b.linear("fc", y, 2048, 8);
    for (name, value) in [("y", y), ("left", left), ("twice", twice)] {
        b.output(name, value);
    }
    (b, y)
}

/// A network with all of its layers on bytes.
fn on_bytes(graph: Graph) -> Graph {
    let layers = graph.nodes().iter().filter(|node| is_contraction(node));
    let plan = layers.fold(PrecisionPlan::new(), |plan, node| {
        let grid = Quantization::dynamic(8).with_input(6.0, Sign::NonNegative);
        plan.with(&node.name, grid)
    });
    plan.quantize(graph).unwrap()
}

fn planned(graph: Graph, batch: usize, options: Options) -> (Program, Bindings) {
    let cpu = Cpu::with_isa(1, Isa::Portable).unwrap();
    let weights = RoundedWeights::new(Arc::new(Ones), &graph);
    let mut program = Program::new(graph, Arc::new(weights), cpu, options);
    let inputs = program.graph().inputs().iter();
    let shapes = inputs.map(|input| match input.name.as_str() {
        "x" => ("x", vec![batch, 3, SIDE, SIDE]),
        "labels" => ("labels", vec![batch]),
        _ => (LEARNING_RATE, vec![]),
    });
    let shapes: Vec<_> = shapes.collect();
    let bindings = program.prepare(&shapes).unwrap();
    (program, bindings)
}

fn funnel(batch: usize) -> (Program, Bindings) {
    let graph = network(Dim::symbol("N")).0.finish().unwrap();
    planned(on_bytes(graph), batch, Options::default())
}

/// How often the step of each name is called.
fn turns(program: &Program, bindings: &Bindings) -> BTreeMap<String, usize> {
    let infos = program.step_infos(bindings).unwrap().into_iter();
    infos.map(|info| (info.name, info.turns)).collect()
}

#[test]
fn large_maps_are_sliced_and_large_weights_see_the_batch() {
    // Maps of `concat` are 6 MB a sample: slices have two samples, or three where two do not divide the batch.
    for (batch, in_slices) in [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 2),
        (5, 1),
        (6, 3),
        (7, 1),
        (9, 3),
    ] {
        let (program, bindings) = funnel(batch);
        for (name, turns) in turns(&program, &bindings) {
            let expected = match name.as_str() {
                "offset" | "offsets" => 0,
                "stem" | "left" | "right" | "up" | "down" | "concat" | "pool" | "narrow" => {
                    in_slices
                }
                _ => 1,
            };
            assert_eq!(turns, expected, "{name} of a batch of {batch}");
        }
    }
}

#[test]
fn who_needs_the_batch_at_once_sees_it_so() {
    let is_whole = |graph: Graph, options: Options| {
        let (program, bindings) = planned(graph, 4, options);
        turns(&program, &bindings).values().all(|&turns| turns <= 1)
    };
    let of = |batch: Dim| network(batch).0.finish().unwrap();
    let n = || Dim::symbol("N");
    let plain = Options::default();
    assert!(!is_whole(on_bytes(of(n())), plain));
    assert!(is_whole(of(n()), plain), "floats");
    assert!(
        is_whole(on_bytes(of(4.into())), plain),
        "no batch has this size"
    );
    let keep = Options {
        memory: Memory::Keep,
        ..plain
    };
    assert!(is_whole(on_bytes(of(n())), keep));
    let simulated = Options {
        integers: Integers::Simulate,
        ..plain
    };
    assert!(is_whole(on_bytes(of(n())), simulated), "floats on grids");
    let (mut b, scores) = network(n());
    let labels = b.integer_input("labels", [n()]);
    let loss = CrossEntropy { smoothing: 0.0 };
    let loss = b.call("loss", loss, &[scores, labels]);
    b.output("loss", loss);
    let training = Training {
        optimiser: Optimiser::Sgd(Sgd::default()),
        clip_norm: None,
    };
    let graph = training.graph(on_bytes(b.finish().unwrap()), "loss", |_| true);
    assert!(is_whole(graph.unwrap(), plain), "training");
}

#[test]
fn a_slice_saves_memory() {
    let (program, bindings) = funnel(6);
    let infos = program.step_infos(&bindings).unwrap();
    let allocated = |name: &str| {
        let info = infos.iter().find(|info| info.name == name);
        info.unwrap().allocated_bytes
    };
    // Bytes of two samples, which each turn overwrites; floats of all that leave the run.
    assert_eq!(allocated("right"), 2 * 16 * SIDE * SIDE);
    assert_eq!(allocated("left"), 6 * 4 * 16 * SIDE * SIDE);
    let arena = |batch| {
        let (program, bindings) = funnel(batch);
        let peak = program.memory_at_peak(&bindings);
        let held: usize = peak.values.iter().map(|holder| holder.bytes).sum();
        assert_eq!(held, peak.live_bytes);
        peak.arena_bytes
    };
    // A batch of seven has no slices.
    assert!(arena(8) < arena(7), "{} and {}", arena(8), arena(7));
    assert!(arena(2) < arena(8));
}

/// A float of a value: which one of the batch.
type Float = (ValueId, usize);

/// Runs the calls of a schedule on an arena that holds the names of floats: who reads one must find those of his own turn.
fn follow(program: &Program, bindings: &Bindings, schedule: &Schedule) {
    let steps = &program.lowered.steps;
    let mut arena: Vec<Option<Float>> = vec![None; schedule.plan.arena_bytes / 4];
    let context = program.context(bindings);
    let floats = |value: ValueId, place: &Place, turn: usize| {
        let range = place.arena()?;
        let range = range.start / 4..range.end / 4;
        let first = turn * range.len();
        Some(range.clone().zip((first..).map(move |at| (value, at))))
    };
    let mut calls: BTreeMap<usize, usize> = BTreeMap::new();
    for call in &schedule.calls {
        let step = &steps[call.step];
        if call.joined {
            let host = schedule.place(&context, step.outputs[0]).unwrap();
            let parts = step.inputs.iter().flat_map(|&part| {
                let place = schedule.place(&context, part).unwrap();
                floats(part, &place, 0).unwrap()
            });
            let hosted = floats(step.outputs[0], &host, 0).unwrap();
            for ((at, float), (place, part)) in hosted.zip(parts.collect::<Vec<_>>()) {
                assert_eq!(
                    (at, arena[at]),
                    (place, Some(part)),
                    "a part of a concatenation"
                );
                arena[at] = Some(float);
            }
            continue;
        }
        let turn = *calls
            .entry(call.step)
            .and_modify(|turn| *turn += 1)
            .or_insert(0);
        for (value, read) in step.reads().zip(&call.reads) {
            // What is overwritten lies where the first output will.
            let place = &read.as_ref().unwrap_or(&call.writes[0]).place;
            if let Place::Input(_, bytes) | Place::Constant(_, bytes) = place {
                assert_eq!(bytes.start, turn * bytes.len(), "step {}", call.step);
            }
            for (at, float) in floats(value, place, turn).into_iter().flatten() {
                assert_eq!(arena[at], Some(float), "step {}, turn {turn}", call.step);
            }
        }
        for (&value, to) in step.outputs.iter().zip(&call.writes) {
            for (at, float) in floats(value, &to.place, turn).into_iter().flatten() {
                arena[at] = Some(float);
            }
        }
    }
    for (_, value) in program.graph.outputs() {
        let value = program.lowered.root(*value);
        let place = schedule.place(&context, value).unwrap();
        for (at, float) in floats(value, &place, 0).into_iter().flatten() {
            assert_eq!(arena[at], Some(float), "an output");
        }
    }
}

#[test]
fn every_turn_finds_what_it_reads() {
    for batch in [1, 4, 6, 7, 8] {
        let (program, bindings) = funnel(batch);
        follow(&program, &bindings, program.schedules_for(&bindings)[0]);
    }
}
