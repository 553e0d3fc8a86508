//! The fast engine against the slow one, on small networks that use every op and every rewrite.

mod hashed;

use std::sync::Arc;

use hashed::{Weights, tensor};
use percept_engine::{EngineError, Memory, Mode, Options, Program, Recording, run_reference};
use percept_graph::{
    Activation, AdaptiveAvgPool2d, Attention, AvgPool2d, BatchNorm, Binary, BinaryKind, Builder,
    Conv2d, ConvTranspose2d, Cost, CustomOp, Dim, Graph, LayerScale, MatMul, MaxPool2d, Op,
    OpContext, Operator, Reduce, ReduceKind, Resize, ResizeMode, ResizeScale, Softmax, Tensor,
    TensorType, ValueId,
};
use percept_kernels::{Cpu, Isa};
use proptest::prelude::*;

fn map_input(b: &mut Builder, channels: usize) -> ValueId {
    b.input(
        "x",
        [
            Dim::symbol("N"),
            channels.into(),
            Dim::symbol("H"),
            Dim::symbol("W"),
        ],
    )
}

fn binary(b: &mut Builder, name: &str, kind: BinaryKind, x: ValueId, y: ValueId) -> ValueId {
    b.call(name, Binary { kind }, &[x, y])
}

/// Convolutions of all kinds with everything that fuses into them.
fn convolutional() -> Graph {
    let mut b = Builder::new("Convolutional");
    let x = map_input(&mut b, 3);
    let stem = b.conv2d(
        "stem",
        x,
        Conv2d::new(3, 16, 3).stride(2).padding(1).no_bias(),
    );
    let stem = b.batch_norm("stem_bn", stem, BatchNorm::new(16));
    let stem = b.leaf("act", Activation::Silu, &[stem]);
    let y = b.conv2d("conv", stem, Conv2d::new(16, 16, 3).padding(1));
    let y = b.batch_norm("bn", y, BatchNorm::new(16));
    let y = b.add("add", y, stem);
    let y = b.relu("relu", y);
    // Squeeze and excite in front of a pointwise convolution, with a residual behind it.
    let s = b.leaf("pool", AdaptiveAvgPool2d { output: [1, 1] }, &[y]);
    let s = b.conv2d("squeeze", s, Conv2d::new(16, 16, 1));
    let s = b.leaf("gate", Activation::Sigmoid, &[s]);
    let z = b.mul("scale", y, s);
    let z = b.conv2d("project", z, Conv2d::new(16, 16, 1));
    let y = b.add("add", z, y);
    let y = b.conv2d("depthwise", y, Conv2d::new(16, 16, 5).padding(2).groups(16));
    let y = b.leaf("leaky", Activation::LeakyRelu { slope: 0.1 }, &[y]);
    let y = b.conv2d("grouped", y, Conv2d::new(16, 8, 3).groups(2));
    let up = b.leaf(
        "up",
        ConvTranspose2d::new(Conv2d::new(8, 4, 2).stride(2)),
        &[y],
    );
    let up = b.batch_norm("up_bn", up, BatchNorm::new(4));
    let up = b.relu("up_relu", up);
    let lone = b.batch_norm("lone_bn", y, BatchNorm::new(8));
    let pooled = b.leaf(
        "max",
        MaxPool2d {
            kernel: 3,
            stride: 2,
            padding: 1,
        },
        &[lone],
    );
    let mean = AvgPool2d {
        kernel: 2,
        stride: 2,
        padding: 0,
        count_include_pad: true,
    };
    let pooled = b.leaf("avg", mean, &[pooled]);
    // A first layer as those of ResNets: its map is pooled at once.
    let entry = b.conv2d("entry", x, Conv2d::new(3, 16, 7).stride(2).padding(3));
    let entry = b.relu("entry_relu", entry);
    let window = MaxPool2d {
        kernel: 3,
        stride: 2,
        padding: 1,
    };
    let entry = b.leaf("entry_max", window, &[entry]);
    // An inverted residual: nobody but a depthwise convolution reads the wide map.
    let wide = b.conv2d("expand", entry, Conv2d::new(16, 40, 1).no_bias());
    let wide = b.batch_norm("expand_bn", wide, BatchNorm::new(40));
    let wide = b.leaf("expand_act", Activation::Silu, &[wide]);
    let apart = Conv2d::new(40, 40, 3).stride(2).padding(1).groups(40);
    let deep = b.conv2d("deep", wide, apart.no_bias());
    let deep = b.batch_norm("deep_bn", deep, BatchNorm::new(40));
    let deep = b.relu("deep_relu", deep);
    b.output("deep", deep);
    b.output("up", up);
    b.output("pooled", pooled);
    b.output("entry", entry);
    b.finish().unwrap()
}

/// Tokens: linear layers, attention, norms, layer scale, softmax, products, and everything that moves data.
fn transformer() -> Graph {
    let mut b = Builder::new("Transformer");
    let x = map_input(&mut b, 3);
    let x = b.conv2d("patch", x, Conv2d::new(3, 24, 4).stride(4));
    let [n, _, h, w] = <[Dim; 4]>::try_from(b.shape(x)).unwrap();
    let x = b.flatten("flatten", x, 2);
    let x = b.permute("tokens", x, &[0, 2, 1]);
    let pos = b.parameter("pos", &[1, 24, 5, 5]);
    let scale = ResizeScale::OutputOffset(0.1);
    let pos = b.call(
        "resize",
        Resize {
            mode: ResizeMode::Bicubic,
            size: [h, w],
            scale,
        },
        &[pos],
    );
    let pos = b.flatten("pos_flat", pos, 2);
    let pos = b.permute("pos_tokens", pos, &[0, 2, 1]);
    let x = b.add("add_pos", x, pos);
    let class = b.parameter("cls", &[1, 1, 24]);
    let class = b.call(
        "expand",
        percept_graph::Expand {
            shape: vec![n, 1.into(), 24.into()],
        },
        &[class],
    );
    let x = b.concat("concat", &[class, x], 1);
    let y = b.layer_norm("norm1", x, 24, 1e-6);
    let y = b.linear("qkv", y, 24, 72);
    let y = b.call(
        "attention",
        Attention {
            heads: 3,
            width: 24,
        },
        &[y],
    );
    let y = b.linear("proj", y, 24, 24);
    let y = b.leaf(
        "ls",
        LayerScale {
            features: 24,
            initial: 0.1,
        },
        &[y],
    );
    let x = b.add("add", x, y);
    let y = b.layer_norm("norm2", x, 24, 1e-6);
    let y = b.linear("fc1", y, 24, 50);
    let y = b.leaf("gelu", Activation::Gelu, &[y]);
    let y = b.linear("fc2", y, 50, 24);
    let x = b.add("add", x, y);
    let class = b.slice("class", x, 1, 0, 1);
    let similarity = b.call(
        "similarity",
        MatMul {
            transpose_b: true,
            ..MatMul::default()
        },
        &[class, x],
    );
    let weights = b.leaf("softmax", Softmax, &[similarity]);
    let mixed = b.call("mix", MatMul::default(), &[weights, x]);
    let spread = b.call(
        "largest",
        Reduce {
            kind: ReduceKind::Max,
            axes: vec![1],
        },
        &[x],
    );
    let low = b.call(
        "mean",
        Reduce {
            kind: ReduceKind::Mean,
            axes: vec![1, 2],
        },
        &[x],
    );
    let spread = binary(&mut b, "sub", BinaryKind::Sub, spread, low);
    let out = binary(&mut b, "max", BinaryKind::Max, mixed, spread);
    let out = b.leaf("tanh", Activation::Tanh, &[out]);
    b.output("out", out);
    b.finish().unwrap()
}

fn program(graph: &Graph, threads: usize, isa: Isa, options: Options) -> Program {
    Program::new(
        graph.clone(),
        Arc::new(Weights::default()),
        Cpu::with_isa(threads, isa).unwrap(),
        options,
    )
}

fn run(
    graph: &Graph,
    x: &Tensor<'_>,
    threads: usize,
    isa: Isa,
    options: Options,
) -> Vec<(String, Tensor<'static>)> {
    program(graph, threads, isa, options)
        .run(&[("x", x)])
        .unwrap()
        .to_tensors()
}

fn assert_near(graph: &Graph, x: &Tensor<'_>, isa: Isa, options: Options, tolerance: f64) {
    let expected = run_reference::<f64>(graph, &Weights::default(), &[("x", x)]).unwrap();
    let got = run(graph, x, 2, isa, options);
    assert_eq!(expected.len(), got.len());
    for ((name, want), (_, have)) in expected.iter().zip(&got) {
        assert_eq!(want.shape, have.shape(), "{name}");
        for (i, (w, h)) in want.data.iter().zip(&*have.to_f32()).enumerate() {
            let difference = (w - f64::from(*h)).abs();
            assert!(
                difference <= tolerance,
                "{name}[{i}]: {w} and {h}, {isa}, {options:?}"
            );
        }
    }
}

fn all_options() -> [Options; 4] {
    let options = |mode, memory| Options {
        mode,
        memory,
        ..Options::default()
    };
    [
        options(Mode::Exact, Memory::Frugal),
        options(Mode::Exact, Memory::Keep),
        options(Mode::Fast, Memory::Frugal),
        options(Mode::Fast, Memory::Keep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_engine_agrees_with_the_reference(batch in 1usize..4, height in 12usize..40, width in 12usize..40) {
        for graph in [convolutional(), transformer()] {
            let x = tensor("input", &[batch, 3, height, width]);
            for isa in Isa::available() {
                for options in all_options() {
                    assert_near(&graph, &x, isa, options, 2e-4);
                }
            }
        }
    }

    #[test]
    fn the_bits_depend_on_neither_threads_nor_memory_mode(batch in 1usize..3, height in 12usize..60, width in 12usize..60) {
        for graph in [convolutional(), transformer()] {
            let x = tensor("input", &[batch, 3, height, width]);
            for mode in [Mode::Exact, Mode::Fast] {
                let with = |threads, memory| run(&graph, &x, threads, Isa::detect().unwrap(), Options { mode, memory, ..Options::default() });
                let one = with(1, Memory::Frugal);
                prop_assert!(one == with(2, Memory::Frugal), "2 threads");
                prop_assert!(one == with(3, Memory::Frugal), "3 threads");
                prop_assert!(one == with(2, Memory::Keep), "keep");
            }
        }
    }
}

#[test]
fn a_program_serves_changing_sizes_and_repeats_itself() {
    let graph = transformer();
    let mut program = program(&graph, 2, Isa::detect().unwrap(), Options::default());
    let sizes = [
        [1, 3, 16, 16],
        [2, 3, 24, 40],
        [1, 3, 16, 16],
        [1, 3, 20, 20],
    ];
    for shape in sizes {
        let x = tensor("input", &shape);
        let fresh = run(&graph, &x, 2, Isa::detect().unwrap(), Options::default());
        for _ in 0..2 {
            assert_eq!(
                program.run(&[("x", &x)]).unwrap().to_tensors(),
                fresh,
                "{shape:?}"
            );
        }
    }
}

#[test]
fn rewrites_absorb_what_they_should() {
    let graph = convolutional();
    let x = tensor("input", &[1, 3, 24, 24]);
    let mut program = program(&graph, 1, Isa::Portable, Options::default());
    let mut recording = Recording::default();
    program
        .run_recorded(&[("x", &x)], Some(&mut recording))
        .unwrap();
    let infos = program.step_infos(&recording.runs[0].bindings).unwrap();
    let absorbed = |name: &str| -> Vec<String> {
        let info = infos
            .iter()
            .find(|info| info.name == name)
            .unwrap_or_else(|| panic!("no step {name}"));
        info.absorbed.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(absorbed("stem"), ["stem_bn", "act"]);
    assert_eq!(absorbed("conv"), ["bn", "add", "relu"]);
    assert_eq!(absorbed("squeeze"), ["gate"]);
    assert_eq!(absorbed("project"), ["scale", "add_2"]);
    assert_eq!(absorbed("up"), ["up_bn", "up_relu"]);
    assert_eq!(absorbed("entry"), ["entry_relu", "entry_max"]);
    assert_eq!(
        absorbed("expand"),
        ["expand_bn", "expand_act", "deep", "deep_bn", "deep_relu"]
    );
    assert_eq!(recording.runs[0].calls.len(), infos.len());
    let total: u64 = infos.iter().map(|info| info.macs.unwrap()).sum();
    assert_eq!(
        total,
        graph.total_macs(&recording.runs[0].bindings).unwrap()
    );
}

#[test]
fn a_fused_layer_shows_what_it_multiplies() {
    let graph = convolutional();
    let x = tensor("input", &[2, 3, 40, 33]);
    let tapped = graph
        .clone()
        .with_output("tap", graph.find("expand_act").unwrap());
    let isa = Isa::detect().unwrap();
    let expected = run(&tapped, &x, 1, isa, Options::default());
    let mut program = program(&graph, 2, isa, Options::default());
    let mut seen = Vec::new();
    program
        .run_observed(&[("x", &x)], &mut |node, values| {
            if node.name == "deep" {
                seen.push(values.to_vec());
            }
        })
        .unwrap();
    let [seen] = &seen[..] else {
        panic!("shown {} times", seen.len())
    };
    let (_, expected) = expected.iter().find(|(name, _)| name == "tap").unwrap();
    let expected = expected.values::<f32>().unwrap();
    assert_eq!(seen.len(), expected.len());
    for (got, expected) in seen.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-5, "{got} instead of {expected}");
    }
}

#[test]
fn nothing_is_fused_over_a_tapped_scope() {
    let graph = convolutional();
    let tapped = graph.clone().with_output("tap", graph.find("bn").unwrap());
    let x = tensor("input", &[1, 3, 20, 20]);
    assert_near(
        &tapped,
        &x,
        Isa::detect().unwrap(),
        Options::default(),
        2e-4,
    );
}

#[test]
fn frugal_needs_less_than_keep_and_the_peak_is_attributed() {
    let graph = convolutional();
    let x = tensor("input", &[2, 3, 40, 40]);
    let arena = |memory| {
        let mut program = program(
            &graph,
            1,
            Isa::Portable,
            Options {
                memory,
                ..Options::default()
            },
        );
        let bindings = program.prepare(&[("x", x.shape().to_vec())]).unwrap();
        let peak = program.memory_at_peak(&bindings);
        let held: usize = peak.values.iter().map(|holder| holder.bytes).sum();
        assert_eq!(held, peak.live_bytes);
        assert!(peak.live_bytes <= peak.arena_bytes && !peak.values.is_empty());
        peak.arena_bytes
    };
    assert!(arena(Memory::Frugal) < arena(Memory::Keep) / 2);
}

/// Keeps the rows of [N, C] whose first value is positive: how many there are, only a run can tell.
#[derive(Debug)]
struct KeepPositive;

impl Operator for KeepPositive {
    fn kind(&self) -> &'static str {
        "KeepPositive"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let mut kept = inputs[0].clone();
        kept.shape[0] = Dim::symbol("kept");
        Ok(vec![kept])
    }
    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].shape[0].clone(), 1)
    }
    fn describe(&self) -> String {
        "KeepPositive()".to_owned()
    }
}

impl CustomOp for KeepPositive {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        context.machine::<Cpu>()?;
        let (shape, data) = inputs[0].read::<f32>()?;
        let rows = data.chunks_exact(shape[1]).filter(|row| row[0] > 0.0);
        let data: Vec<f32> = rows.flatten().copied().collect();
        let shape = [data.len() / shape[1], shape[1]];
        Ok(vec![Tensor::from_values(shape, data)?])
    }
}

#[test]
fn a_node_that_defines_a_size_cuts_the_plan() {
    let mut b = Builder::new("Ragged");
    let x = b.input("x", [Dim::symbol("N"), 4.into()]);
    let before = b.linear("before", x, 4, 4);
    let kept = b.call("keep", Op::Custom(Arc::new(KeepPositive)), &[before]);
    let after = b.linear("after", kept, 4, 3);
    let after = b.relu("relu", after);
    let mean = b.call(
        "mean",
        Reduce {
            kind: ReduceKind::Mean,
            axes: vec![0, 1],
        },
        &[before],
    );
    let after = b.add("add", after, mean);
    b.output("rows", after);
    b.output("before", before);
    let graph = b.finish().unwrap();
    let mut program = program(&graph, 2, Isa::detect().unwrap(), Options::default());
    let mut counts = Vec::new();
    for rows in [7, 50, 3, 50] {
        let x = tensor(&format!("rows {rows}"), &[rows, 4]);
        let outputs = program.run(&[("x", &x)]).unwrap();
        let before = outputs.get("before").unwrap();
        let positive = before
            .to_f32()
            .chunks_exact(4)
            .filter(|row| row[0] > 0.0)
            .count();
        let rows = outputs.get("rows").unwrap();
        assert_eq!(rows.shape(), [positive, 3]);
        counts.push(positive);
    }
    assert_eq!(counts[1], counts[3]);
    assert!(counts[1] > counts[0]);
}

#[test]
fn bad_inputs_are_typed_errors() {
    let graph = transformer();
    let mut program = program(&graph, 1, Isa::Portable, Options::default());
    let integers = Tensor::from_values([1, 3, 16, 16], vec![0; 768]).unwrap();
    let error = program.run(&[("x", &integers)]).err().unwrap();
    assert_eq!(
        error.to_string(),
        "input `x` holds i32 elements, expected f32"
    );
    let wrong = tensor("input", &[1, 4, 16, 16]);
    assert!(matches!(
        program.run(&[("x", &wrong)]),
        Err(EngineError::Graph(_))
    ));
    assert!(matches!(program.run(&[]), Err(EngineError::Graph(_))));
    let tiny = tensor("input", &[1, 3, 2, 2]);
    assert!(matches!(
        program.run(&[("x", &tiny)]),
        Err(EngineError::Graph(_))
    ));
}
