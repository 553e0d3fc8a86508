//! Layers on bytes against the same network simulated on floats.

mod hashed;

use std::sync::Arc;

use hashed::{Weights, tensor};
use percept_engine::{
    EngineError, Integers, Options, PrecisionPlan, Program, Quantization, RoundedWeights,
};
use percept_graph::{
    Activation, AdaptiveAvgPool2d, BatchNorm, Builder, Conv2d, ConvTranspose2d, Dim, Graph,
    MaxPool2d, Per, Sign, Tensor,
};
use percept_kernels::{Cpu, Isa};

/// A stem with a pool, a bottleneck with a residual, convolutions of the other kinds, and linear layers.
fn network() -> Graph {
    let mut b = Builder::new("Bottleneck");
    let x = b.input("x", [Dim::symbol("N"), 3.into(), 23.into(), 21.into()]);
    let x = b.conv2d("stem", x, Conv2d::new(3, 18, 3).padding(1).no_bias());
    let x = b.batch_norm("bn", x, BatchNorm::new(18));
    let x = b.relu("relu", x);
    let pool = MaxPool2d {
        kernel: 3,
        stride: 2,
        padding: 1,
    };
    let x = b.leaf("pool", pool, &[x]);
    let y = b.conv2d("reduce", x, Conv2d::new(18, 16, 1));
    let y = b.relu("relu1", y);
    let y = b.conv2d("middle", y, Conv2d::new(16, 20, 3).padding(1));
    let y = b.batch_norm("middle_bn", y, BatchNorm::new(20));
    let y = b.relu("relu2", y);
    let y = b.conv2d("expand", y, Conv2d::new(20, 18, 1));
    let x = b.add("add", y, x);
    let x = b.relu("relu3", x);
    let x = b.conv2d("depthwise", x, Conv2d::new(18, 18, 3).padding(1).groups(18));
    let x = b.leaf("leaky", Activation::LeakyRelu { slope: 0.1 }, &[x]);
    let x = b.conv2d("strided", x, Conv2d::new(18, 16, 3).stride(2));
    let x = b.relu("relu4", x);
    let x = b.conv2d("grouped", x, Conv2d::new(16, 8, 3).groups(2));
    let x = b.leaf("mean", AdaptiveAvgPool2d { output: [1, 1] }, &[x]);
    let x = b.flatten("flat", x, 1);
    let x = b.linear("fc1", x, 8, 30);
    let x = b.leaf("gelu", Activation::Gelu, &[x]);
    let x = b.linear("fc2", x, 30, 7);
    b.output("y", x);
    b.finish().unwrap()
}

/// Ranges that nothing exceeds: where something does, bytes end at -127 and the simulation, as others have it, at -128.
fn plan() -> PrecisionPlan {
    let grid = |amax, sign| Quantization::dynamic(8).with_input(amax, sign);
    let plan = PrecisionPlan::new()
        .with("stem", grid(1.0, Sign::Signed))
        .with("reduce", grid(4.0, Sign::NonNegative))
        .with("strided", grid(6.0, Sign::Signed))
        .with("fc1", grid(5.0, Sign::Signed))
        .with("fc2", grid(5.0, Sign::Signed));
    let positive = ["middle", "expand", "depthwise", "grouped"];
    positive.into_iter().fold(plan, |plan, layer| {
        plan.with(layer, grid(8.0, Sign::NonNegative))
    })
}

fn program(plan: &PrecisionPlan, isa: Isa, threads: usize, integers: Integers) -> Program {
    program_of(network(), plan, isa, threads, integers)
}

fn program_of(
    graph: Graph,
    plan: &PrecisionPlan,
    isa: Isa,
    threads: usize,
    integers: Integers,
) -> Program {
    let graph = plan.quantize(graph).unwrap();
    let weights = RoundedWeights::new(Arc::new(Weights::default()), &graph);
    let cpu = Cpu::with_isa(threads, isa).unwrap();
    let options = Options {
        integers,
        ..Options::default()
    };
    Program::new(graph, Arc::new(weights), cpu, options)
}

fn run(program: &mut Program, x: &Tensor<'_>) -> Result<Vec<f32>, EngineError> {
    let outputs = program.run(&[("x", x)])?;
    let (_, y) = outputs.iter().next().unwrap();
    Ok(y.values::<f32>().unwrap().to_vec())
}

/// Signal to noise in decibels.
fn sqnr(expected: &[f32], got: &[f32]) -> f64 {
    let power = |values: &mut dyn Iterator<Item = f32>| -> f64 {
        values.map(|v| f64::from(v).powi(2)).sum()
    };
    let noise = power(&mut expected.iter().zip(got).map(|(a, b)| a - b));
    10.0 * (power(&mut expected.iter().copied()) / noise.max(1e-30)).log10()
}

/// No more than the rounding of floats; one integer that differs is at most 60 dB in these networks.
const SAME_INTEGERS_DB: f64 = 100.0;

/// One layer: the simulation multiplies the same integers, so nothing is left but the rounding of floats.
#[test]
fn single_layers_are_those_of_the_simulation() {
    let plain = Conv2d::new(12, 9, 3).padding(1);
    let layers = [
        plain.clone(),
        plain.clone().stride(2),
        Conv2d::new(12, 9, 1),
        Conv2d::new(12, 12, 3).padding(1).groups(12),
        Conv2d::new(12, 24, 3).groups(3),
    ];
    let x = tensor("x", &[2, 12, 10, 11]);
    for (sign, conv) in [Sign::Signed, Sign::NonNegative]
        .into_iter()
        .flat_map(|sign| layers.iter().map(move |conv| (sign, conv.clone())))
    {
        let mut b = Builder::new("Layer");
        let input = b.input("x", [2, 12, 10, 11].map(Dim::from));
        let channels = conv.out_channels;
        let y = b.conv2d("conv", input, conv.clone());
        let y = b.batch_norm("bn", y, BatchNorm::new(channels));
        b.output("y", y);
        let graph = b.finish().unwrap();
        let plan =
            PrecisionPlan::new().with("conv", Quantization::dynamic(8).with_input(1.0, sign));
        let isa = Isa::detect().unwrap();
        let run = |integers| {
            let mut program = program_of(graph.clone(), &plan, isa, 1, integers);
            run(&mut program, &x).unwrap()
        };
        let sqnr = sqnr(&run(Integers::Simulate), &run(Integers::Exact));
        assert!(sqnr > SAME_INTEGERS_DB, "{conv:?} {sign:?}: {sqnr} dB");
    }
}

/// Many layers: every one of them multiplies the integers that the simulation rounds to. By default a residual is the bytes
/// that another layer reads, which is noise of its own.
#[test]
fn kernels_on_bytes_give_what_the_simulation_gives() {
    let x = tensor("x", &[3, 3, 23, 21]);
    let simulated = run(
        &mut program(&plan(), Isa::Portable, 1, Integers::Simulate),
        &x,
    )
    .unwrap();
    for isa in Isa::available_for_bytes() {
        for (integers, least) in [
            (Integers::Exact, SAME_INTEGERS_DB),
            (Integers::Kernels, 25.0),
        ] {
            let one = run(&mut program(&plan(), isa, 1, integers), &x).unwrap();
            let two = run(&mut program(&plan(), isa, 2, integers), &x).unwrap();
            assert_eq!(one, two, "{isa} {integers:?} on two threads");
            let sqnr = sqnr(&simulated, &one);
            assert!(sqnr > least, "{isa} {integers:?}: {sqnr} dB");
        }
    }
}

#[test]
fn bytes_flow_from_layer_to_layer() {
    let x = tensor("x", &[1, 3, 23, 21]);
    let isa = Isa::detect().unwrap();
    let mut kernels = program(&plan(), isa, 1, Integers::Kernels);
    let mut simulated = program(&plan(), isa, 1, Integers::Simulate);
    run(&mut kernels, &x).unwrap();
    run(&mut simulated, &x).unwrap();
    let bindings = kernels.graph().bind(&[("x", x.shape().to_vec())]).unwrap();
    let steps = kernels.step_infos(&bindings).unwrap();
    assert!(steps.iter().all(|step| step.kind != "FakeQuantize"));
    let layers = steps.iter().filter(|step| {
        let name = step.algorithm.as_deref().unwrap_or("");
        name.starts_with("int8")
    });
    assert_eq!(layers.count(), 9);
    let allocated = |name: &str| {
        let step = steps.iter().find(|step| step.name == name).unwrap();
        step.allocated_bytes
    };
    // Quads of 18 channels are 20 bytes a pixel.
    assert_eq!(allocated("stem"), 20 * 23 * 21);
    assert_eq!(allocated("pool"), 20 * 12 * 11);
    // The next layer takes other steps than the residual's.
    assert_eq!(allocated("expand"), 20 * 12 * 11);
    assert_eq!(allocated("grouped"), 4 * 8 * 3 * 3);
    let peak = |program: &Program| program.memory_at_peak(&bindings);
    assert!(2 * peak(&kernels).arena_bytes < peak(&simulated).arena_bytes);
    // AMX fills weights up to whole registers of 16 rows of 16 quads, which is most of layers as small as these.
    if isa != Isa::Amx {
        assert!(2 * peak(&kernels).weight_bytes < peak(&simulated).weight_bytes);
    }
}

/// A block that changes its width and its resolution: its last layer and its shortcut are one step, with the integers of both.
#[test]
fn shortcuts_are_summed_with_the_last_layer() {
    let mut b = Builder::new("Downsample");
    let input = b.input("x", [2, 8, 14, 13].map(Dim::from));
    let x = b.conv2d("stem", input, Conv2d::new(8, 12, 1));
    let x = b.relu("relu", x);
    let y = b.conv2d("middle", x, Conv2d::new(12, 16, 3).padding(1).stride(2));
    let y = b.relu("relu1", y);
    let y = b.conv2d("last", y, Conv2d::new(16, 20, 1));
    let y = b.batch_norm("last_bn", y, BatchNorm::new(20));
    let shortcut = b.conv2d("shortcut", x, Conv2d::new(12, 20, 1).stride(2));
    let shortcut = b.batch_norm("shortcut_bn", shortcut, BatchNorm::new(20));
    let x = b.add("add", y, shortcut);
    let x = b.relu("relu2", x);
    let x = b.conv2d("next", x, Conv2d::new(20, 4, 1));
    b.output("y", x);
    let graph = b.finish().unwrap();
    let grid = |sign| Quantization::dynamic(8).with_input(6.0, sign);
    let layers = ["middle", "last", "shortcut", "next"];
    let plan = layers.into_iter().fold(
        PrecisionPlan::new().with("stem", grid(Sign::Signed)),
        |plan, layer| plan.with(layer, grid(Sign::NonNegative)),
    );
    let x = tensor("x", &[2, 8, 14, 13]);
    let run_with = |isa, threads, integers| {
        let mut program = program_of(graph.clone(), &plan, isa, threads, integers);
        let y = run(&mut program, &x).unwrap();
        (y, program)
    };
    let (simulated, _) = run_with(Isa::Portable, 1, Integers::Simulate);
    for isa in Isa::available_for_bytes() {
        let (y, program) = run_with(isa, 1, Integers::Exact);
        assert_eq!(
            y,
            run_with(isa, 2, Integers::Exact).0,
            "{isa} on two threads"
        );
        let sqnr = sqnr(&simulated, &y);
        assert!(sqnr > SAME_INTEGERS_DB, "{isa}: {sqnr} dB");
        let bindings = program.graph().bind(&[("x", x.shape().to_vec())]).unwrap();
        let steps = program.step_infos(&bindings).unwrap();
        let layers: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(layers, ["stem", "middle", "shortcut", "next"], "{isa}");
        let both = steps[2].macs.unwrap();
        assert_eq!(both, 2 * 20 * 7 * 7 * (16 + 12), "products of both layers");
    }
}

/// Two maps of different resolution, brought to one by transposed convolutions and stacked.
fn pyramid() -> Graph {
    let mut b = Builder::new("Pyramid");
    let x = b.input("x", [2, 8, 10, 12].map(Dim::from));
    let x = b.conv2d("fine", x, Conv2d::new(8, 8, 3).padding(1));
    let fine = b.relu("relu1", x);
    let x = b.conv2d("coarse", fine, Conv2d::new(8, 12, 3).stride(2).padding(1));
    let coarse = b.relu("relu2", x);
    let same = ConvTranspose2d::new(Conv2d::new(8, 16, 1));
    let same = b.leaf("same", same, &[fine]);
    let same = b.relu("relu3", same);
    let up = ConvTranspose2d::new(Conv2d::new(12, 8, 2).stride(2).no_bias());
    let up = b.leaf("up", up, &[coarse]);
    let up = b.batch_norm("bn", up, BatchNorm::new(8));
    let up = b.relu("relu4", up);
    let x = b.concat("stacked", &[same, up], 1);
    let x = b.conv2d("last", x, Conv2d::new(24, 5, 3).padding(1));
    b.output("y", x);
    b.finish().unwrap()
}

#[test]
fn transposed_convolutions_and_stacks_pass_bytes_on() {
    let grid = |amax, sign| Quantization::dynamic(8).with_input(amax, sign);
    let mut whole = grid(3.0, Sign::NonNegative);
    whole.weight.per = Per::Tensor;
    let plan = PrecisionPlan::new()
        .with("fine", grid(1.0, Sign::Signed))
        .with("coarse", grid(3.0, Sign::NonNegative))
        .with("same", whole)
        .with("up", whole)
        .with("last", grid(5.0, Sign::NonNegative));
    let x = tensor("x", &[2, 8, 10, 12]);
    let simulated = program_of(pyramid(), &plan, Isa::Portable, 1, Integers::Simulate);
    let simulated = run(&mut { simulated }, &x).unwrap();
    for isa in Isa::available_for_bytes() {
        let mut program = program_of(pyramid(), &plan, isa, 2, Integers::Exact);
        let sqnr = sqnr(&simulated, &run(&mut program, &x).unwrap());
        assert!(sqnr > SAME_INTEGERS_DB, "{isa}: {sqnr} dB");
        let bindings = program.graph().bind(&[("x", x.shape().to_vec())]).unwrap();
        let steps = program.step_infos(&bindings).unwrap();
        assert!(steps.iter().all(|step| step.kind != "FakeQuantize"));
        let step = |name: &str| steps.iter().find(|step| step.name == name).unwrap();
        assert_eq!(step("up").algorithm.as_deref(), Some("int8"));
        // A byte for each of 24 channels.
        let stacked = ["same", "up", "stacked"].map(|name| step(name).allocated_bytes);
        assert_eq!(stacked.iter().sum::<usize>(), 2 * 24 * 10 * 12 * 2);
    }
    // With a scale for each input channel there is nothing to sum in integers.
    let mut apart = whole;
    apart.weight.per = Per::Channel;
    let plan = plan.with("up", apart);
    let mut program = program_of(pyramid(), &plan, Isa::Portable, 1, Integers::Exact);
    run(&mut program, &x).unwrap();
    let bindings = program.graph().bind(&[("x", x.shape().to_vec())]).unwrap();
    let steps = program.step_infos(&bindings).unwrap();
    assert!(steps.iter().any(|step| step.kind == "FakeQuantize"));
}

/// What kernels on bytes do not compute is simulated, in the same network.
#[test]
fn other_grids_stay_simulated() {
    let x = tensor("x", &[1, 3, 23, 21]);
    let plan = plan().with("middle", Quantization::dynamic(8)).with(
        "fc2",
        Quantization::dynamic(16).with_input(3.0, Sign::Signed),
    );
    let isa = Isa::detect().unwrap();
    let simulated = run(&mut program(&plan, isa, 1, Integers::Simulate), &x).unwrap();
    let mut mixed = program(&plan, isa, 1, Integers::Exact);
    let got = run(&mut mixed, &x).unwrap();
    let sqnr = sqnr(&simulated, &got);
    assert!(sqnr > SAME_INTEGERS_DB, "{sqnr} dB");
    let bindings = mixed.graph().bind(&[("x", x.shape().to_vec())]).unwrap();
    let steps = mixed.step_infos(&bindings).unwrap();
    let quantizers = steps.iter().filter(|step| step.kind == "FakeQuantize");
    assert_eq!(quantizers.count(), 2);
}
