//! Training on the fast engine against the reference engine in f64, on networks that use every op.

mod hashed;

use std::collections::BTreeMap;
use std::sync::Arc;

use hashed::{Weights, tensor};
use percept_engine::{EngineError, Memory, Mode, Options, TrainStep, run_reference};
use percept_graph::{
    Activation, ActiveSites, AdamW, AdaptiveAvgPool2d, Attention, AvgPool2d, BatchNorm, Builder,
    Concat, Conv2d, ConvTranspose2d, CrossEntropy, Dim, Dropout, Expand, Gather, Graph,
    LEARNING_RATE, LayerScale, MatMul, MaxPool2d, Optimiser, RANDOM_COUNTER, Recompute, Reduce,
    ReduceKind, Resize, ResizeMode, ResizeScale, Rulebook, Sgd, Softmax, SparseConv3d,
    SparseToDense, Tensor, Training, ValueId, Window3d,
};
use percept_kernels::{Cpu, Isa};

const CLASSES: usize = 5;

fn integers(shape: &[usize], values: &[i32]) -> Tensor<'static> {
    Tensor::from_values(shape, values.to_vec()).unwrap()
}

/// Ends a network with a classifier and its loss.
fn classify(b: &mut Builder, features: ValueId, width: usize) {
    let logits = b.linear("head", features, width, CLASSES);
    let n = b.shape(logits)[0].clone();
    let labels = b.integer_input("labels", [n]);
    let loss = b.call("loss", CrossEntropy { smoothing: 0.1 }, &[logits, labels]);
    b.output("loss", loss);
}

/// Convolutions of all kinds, pooling, resizing, squeeze and excite, residuals.
fn convolutional() -> Graph {
    let mut b = Builder::new("Convolutional");
    let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
    let x = b.input("x", [n, 3.into(), h, w]);
    let stem = Conv2d::new(3, 16, 3).stride(2).padding(1).no_bias();
    let x = b.conv2d("stem", x, stem);
    let x = b.batch_norm("stem_bn", x, BatchNorm::new(16));
    let x = b.leaf("act", Activation::Silu, &[x]);
    let y = b.conv2d("conv", x, Conv2d::new(16, 16, 3).padding(1).no_bias());
    let y = b.batch_norm("bn", y, BatchNorm::new(16));
    let y = b.add("add", y, x);
    let y = b.relu("relu", y);
    let s = b.leaf("pool", AdaptiveAvgPool2d { output: [1, 1] }, &[y]);
    let s = b.conv2d("squeeze", s, Conv2d::new(16, 16, 1));
    let s = b.leaf("gate", Activation::Sigmoid, &[s]);
    let z = b.mul("scale", y, s);
    let z = b.conv2d(
        "depthwise",
        z,
        Conv2d::new(16, 16, 5).stride(2).padding(2).groups(16),
    );
    let z = b.leaf("leaky", Activation::LeakyRelu { slope: 0.1 }, &[z]);
    let z = b.conv2d("grouped", z, Conv2d::new(16, 8, 3).padding(1).groups(2));
    let up = ConvTranspose2d::new(Conv2d::new(8, 8, 2).stride(2));
    let up = b.leaf("up", up, &[z]);
    let maximum = MaxPool2d {
        kernel: 3,
        stride: 2,
        padding: 1,
    };
    let pooled = b.leaf("max", maximum, &[up]);
    let mean = AvgPool2d {
        kernel: 2,
        stride: 1,
        padding: 1,
        count_include_pad: false,
    };
    let pooled = b.leaf("avg", mean, &[pooled]);
    let resize = Resize {
        mode: ResizeMode::Bilinear,
        size: [5.into(), 7.into()],
        scale: ResizeScale::Sizes,
    };
    let pooled = b.call("resize", resize, &[pooled]);
    let tanh = b.leaf("tanh", Activation::Tanh, &[pooled]);
    let both = b.call("concat", Concat { axis: 1 }, &[pooled, tanh]);
    let kind = ReduceKind::Max;
    let top = b.call(
        "top",
        Reduce {
            kind,
            axes: vec![2, 3],
        },
        &[both],
    );
    let x = b.flatten("flatten", top, 1);
    classify(&mut b, x, 16);
    b.finish().unwrap()
}

/// Tokens: a resized position embedding, a class token, attention, norms, layer scale, dropout, products.
fn transformer() -> Graph {
    let mut b = Builder::new("Transformer");
    let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
    let x = b.input("x", [n.clone(), 3.into(), h, w]);
    let x = b.conv2d("patch", x, Conv2d::new(3, 24, 4).stride(4));
    let [_, _, h, w] = <[Dim; 4]>::try_from(b.shape(x)).unwrap();
    let x = b.flatten("flatten", x, 2);
    let x = b.permute("tokens", x, &[0, 2, 1]);
    let pos = b.parameter("pos", &[1, 24, 5, 5]);
    let resize = Resize {
        mode: ResizeMode::Bicubic,
        size: [h, w],
        scale: ResizeScale::OutputOffset(0.1),
    };
    let pos = b.call("resize", resize, &[pos]);
    let pos = b.flatten("pos_flat", pos, 2);
    let pos = b.permute("pos_tokens", pos, &[0, 2, 1]);
    let x = b.add("add_pos", x, pos);
    let class = b.parameter("cls", &[1, 1, 24]);
    let shape = vec![n.clone(), 1.into(), 24.into()];
    let class = b.call("expand", Expand { shape }, &[class]);
    let x = b.concat("concat", &[class, x], 1);
    let y = b.layer_norm("norm1", x, 24, 1e-6);
    let y = b.linear("qkv", y, 24, 72);
    let y = b.leaf(
        "attn",
        Attention {
            heads: 3,
            width: 24,
        },
        &[y],
    );
    let y = b.linear("proj", y, 24, 24);
    let y = b.leaf("drop", Dropout { p: 0.25 }, &[y]);
    let scale = LayerScale {
        features: 24,
        initial: 0.5,
    };
    let y = b.leaf("ls", scale, &[y]);
    let x = b.add("add", x, y);
    let y = b.layer_norm("norm2", x, 24, 1e-6);
    let y = b.linear("fc1", y, 24, 40);
    let y = b.leaf("gelu", Activation::Gelu, &[y]);
    let y = b.linear("fc2", y, 40, 24);
    let x = b.add("add", x, y);
    // Each token as a mixture of all of them, by their likeness.
    let alike = MatMul {
        transpose_b: true,
        ..MatMul::default()
    };
    let weights = b.call("alike", alike, &[x, x]);
    let weights = b.leaf("softmax", Softmax, &[weights]);
    let mixed = b.call("mix", MatMul::default(), &[weights, x]);
    let class = b.slice("class", mixed, 1, 0, 1);
    let class = b.reshape("class_flat", class, [n.clone(), 24.into()]);
    // Rows in another order, one of them twice.
    let order = b.integer_input("order", [n]);
    let class = b.call("gather", Gather, &[class, order]);
    classify(&mut b, class, 24);
    b.finish().unwrap()
}

/// Sparse convolutions to a dense map.
fn sparse() -> Graph {
    let cells = [4, 6, 5];
    let mut b = Builder::new("Sparse");
    let s = Dim::symbol("S");
    let x = b.input("x", [s.clone(), 3.into()]);
    let sites = b.integer_input("sites", [s, 4.into()]);
    let samples = b.input("samples", [Dim::symbol("N")]);
    let window = Window3d::centred(3);
    let rules = |b: &mut Builder, window, from, to, symbol: &str| {
        let symbol = symbol.to_owned();
        b.call_many(
            "rules",
            Rulebook {
                window,
                cells,
                symbol,
            },
            &[from, to],
        )
    };
    let book = rules(&mut b, window, sites, sites, "P");
    let conv = SparseConv3d {
        in_channels: 3,
        out_channels: 8,
        window,
        bias: true,
        submanifold: true,
    };
    let y = b.leaf("same", conv, &[x, sites, book[0], book[1]]);
    let y = b.batch_norm("bn", y, BatchNorm::rows(8));
    let y = b.relu("relu", y);
    let window = Window3d {
        stride: [2; 3],
        ..window
    };
    let symbol = "O".to_owned();
    let to = b.call(
        "active",
        ActiveSites {
            window,
            cells,
            symbol,
        },
        &[sites],
    );
    let book = rules(&mut b, window, sites, to, "Q");
    let conv = SparseConv3d {
        in_channels: 8,
        out_channels: 6,
        window,
        bias: false,
        submanifold: false,
    };
    let y = b.leaf("down", conv, &[y, to, book[0], book[1]]);
    let cells = window.output_cells(cells);
    let map = b.call("dense", SparseToDense { cells }, &[y, to, samples]);
    let map = b.conv2d("conv", map, Conv2d::new(12, 8, 3).padding(1));
    let map = b.leaf("pool", AdaptiveAvgPool2d { output: [1, 1] }, &[map]);
    let map = b.flatten("flatten", map, 1);
    classify(&mut b, map, 8);
    b.finish().unwrap()
}

type Inputs = Vec<(&'static str, Tensor<'static>)>;

fn images(batch: usize, extra: Inputs) -> Inputs {
    let labels: Vec<i32> = (0..batch).map(|i| (i * 3 % CLASSES) as i32).collect();
    let mut inputs = vec![
        ("x", tensor("x", &[batch, 3, 21, 18])),
        ("labels", integers(&[batch], &labels)),
        (LEARNING_RATE, Tensor::scalar(0.05f32)),
    ];
    inputs.extend(extra);
    inputs
}

fn cases() -> Vec<(&'static str, Graph, Inputs)> {
    let sites = [
        [0, 0, 0, 0],
        [0, 0, 1, 2],
        [0, 1, 1, 1],
        [0, 1, 1, 2],
        [0, 3, 5, 4],
        [1, 0, 0, 1],
        [1, 1, 1, 1],
        [1, 2, 4, 3],
        [1, 2, 5, 3],
    ];
    let points = vec![
        ("x", tensor("x", &[sites.len(), 3])),
        ("sites", integers(&[sites.len(), 4], sites.as_flattened())),
        ("samples", tensor("samples", &[2])),
        ("labels", integers(&[2], &[4, 1])),
        (LEARNING_RATE, Tensor::scalar(0.05f32)),
    ];
    let random = vec![
        (RANDOM_COUNTER, integers(&[2], &[7, 3])),
        ("order", integers(&[3], &[2, 0, 2])),
    ];
    vec![
        ("convolutional", convolutional(), images(3, vec![])),
        ("transformer", transformer(), images(3, random)),
        ("sparse", sparse(), points),
    ]
}

fn borrow(inputs: &Inputs) -> Vec<(&str, &Tensor<'_>)> {
    inputs
        .iter()
        .map(|(name, tensor)| (*name, tensor))
        .collect()
}

fn training(optimiser: Optimiser, clip_norm: Option<f32>, graph: Graph) -> Graph {
    let training = Training {
        optimiser,
        clip_norm,
    };
    training.graph(graph, "loss", |_| true).unwrap()
}

/// One step of the reference in f64: the loss and every state as it leaves.
fn reference_step(
    graph: &Graph,
    weights: &Weights,
    inputs: &Inputs,
) -> (f64, BTreeMap<String, Vec<f64>>) {
    let mut tapped = graph.clone();
    for state in graph.states() {
        tapped = tapped.with_output(&format!("state.{}", state.name), state.next);
    }
    let outputs = run_reference::<f64>(&tapped, weights, &borrow(inputs)).unwrap();
    let loss = outputs[0].1.data[0];
    let states = outputs
        .into_iter()
        .filter_map(|(name, tensor)| Some((name.strip_prefix("state.")?.to_owned(), tensor.data)));
    (loss, states.collect())
}

fn assert_near(what: &str, got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1e-3f64, |m, v| m.max(v.abs()));
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let difference = (f64::from(got) - expected).abs();
        assert!(
            difference <= tolerance * largest,
            "{what}[{i}]: {got} instead of {expected}"
        );
    }
}

#[test]
fn steps_follow_the_reference() {
    let plain = Sgd {
        weight_decay: 0.01,
        ..Sgd::default()
    };
    for (name, graph, inputs) in cases() {
        let graph = training(Optimiser::Sgd(plain), None, graph);
        for isa in Isa::available() {
            let options = Options {
                mode: Mode::Exact,
                ..Options::default()
            };
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let weights = Arc::new(Weights::default());
            let mut step = TrainStep::new(graph.clone(), weights, cpu, options).unwrap();
            let followed = Weights::default();
            for turn in 0..3 {
                let (loss, states) = reference_step(&graph, &followed, &inputs);
                let outputs = step.step(&borrow(&inputs)).unwrap();
                let got = outputs.get("loss").unwrap().to_f32()[0];
                assert_near(&format!("{name} {isa} loss {turn}"), &[got], &[loss], 1e-4);
                for (state, expected) in states {
                    let got = step.state(&state).unwrap();
                    assert_near(
                        &format!("{name} {isa} {state} {turn}"),
                        &got.to_f32(),
                        &expected,
                        1e-4,
                    );
                    // Both go on from the same place.
                    let rounded: Vec<f32> = expected.iter().map(|&v| v as f32).collect();
                    let tensor = Tensor::from_values(got.shape(), &rounded).unwrap();
                    step.set_state(&state, &tensor).unwrap();
                    followed.set.lock().unwrap().insert(state, rounded);
                }
            }
        }
    }
}

#[test]
fn optimisers_move_their_moments() {
    let momentum = Sgd {
        momentum: 0.9,
        nesterov: true,
        ..Sgd::default()
    };
    for optimiser in [Optimiser::Sgd(momentum), Optimiser::AdamW(AdamW::default())] {
        for (name, graph, inputs) in cases() {
            let graph = training(optimiser, Some(0.1), graph);
            let (_, states) = reference_step(&graph, &Weights::default(), &inputs);
            let weights = Arc::new(Weights::default());
            let cpu = Cpu::new(1).unwrap();
            let options = Options {
                mode: Mode::Exact,
                ..Options::default()
            };
            let mut step = TrainStep::new(graph, weights, cpu, options).unwrap();
            step.step(&borrow(&inputs)).unwrap();
            for (state, expected) in states {
                let got = step.state(&state).unwrap();
                // Adam divides a gradient by its own size, so one that is nearly zero may go either way.
                let tolerance = match optimiser {
                    Optimiser::AdamW(_) if !state.contains("moment") => 0.06,
                    _ => 1e-3,
                };
                assert_near(
                    &format!("{name} {state}"),
                    &got.to_f32(),
                    &expected,
                    tolerance,
                );
            }
        }
    }
}

/// The bits of the loss and of every state after some steps.
fn bits_after(graph: &Graph, inputs: &Inputs, threads: usize, memory: Memory) -> Vec<u32> {
    let options = Options {
        memory,
        ..Options::default()
    };
    let cpu = Cpu::new(threads).unwrap();
    let weights = Arc::new(Weights::default());
    let mut step = TrainStep::new(graph.clone(), weights, cpu, options).unwrap();
    let mut bits = Vec::new();
    for _ in 0..3 {
        let outputs = step.step(&borrow(inputs)).unwrap();
        bits.push(outputs.get("loss").unwrap().to_f32()[0].to_bits());
    }
    let names: Vec<String> = step.state_names().map(str::to_owned).collect();
    for name in names {
        let state = step.state(&name).unwrap();
        bits.extend(state.to_f32().iter().map(|v| v.to_bits()));
    }
    bits
}

#[test]
fn threads_and_memory_change_no_bit() {
    let optimiser = Optimiser::AdamW(AdamW::default());
    for (name, graph, inputs) in cases() {
        let graph = training(optimiser, Some(1.0), graph);
        let expected = bits_after(&graph, &inputs, 1, Memory::Frugal);
        for threads in [2, 3] {
            let got = bits_after(&graph, &inputs, threads, Memory::Frugal);
            assert!(got == expected, "{name} on {threads} threads");
        }
        let got = bits_after(&graph, &inputs, 2, Memory::Keep);
        assert!(got == expected, "{name} with all values kept");
    }
}

#[test]
fn what_one_pass_gives_back_has_the_same_bits() {
    let optimiser = Optimiser::AdamW(AdamW::default());
    let what = Recompute {
        elementwise: true,
        ..Recompute::default()
    };
    for (name, graph, inputs) in cases() {
        let graph = training(optimiser, None, graph);
        let expected = bits_after(&graph, &inputs, 1, Memory::Frugal);
        let again = graph.clone().recomputing(&what).unwrap();
        assert!(again.nodes().len() > graph.nodes().len(), "{name}");
        for graph in [again.clone(), again.with_early_updates()] {
            for (threads, memory) in [(1, Memory::Frugal), (2, Memory::Keep)] {
                let got = bits_after(&graph, &inputs, threads, memory);
                assert!(got == expected, "{name}, {threads} threads");
            }
        }
    }
}

#[test]
fn state_survives_a_change_of_batch_size() {
    let momentum = Sgd {
        momentum: 0.9,
        ..Sgd::default()
    };
    let graph = training(Optimiser::Sgd(momentum), None, convolutional());
    let cpu = Cpu::new(2).unwrap();
    let weights = Arc::new(Weights::default());
    let mut step = TrainStep::new(graph, weights, cpu, Options::default()).unwrap();
    let loss = |step: &mut TrainStep, batch: usize| {
        let inputs = images(batch, vec![]);
        let outputs = step.step(&borrow(&inputs)).unwrap();
        outputs.get("loss").unwrap().to_f32()[0]
    };
    let first = loss(&mut step, 2);
    let between = loss(&mut step, 5);
    assert!(between.is_finite());
    let mut last = first;
    for _ in 0..30 {
        last = loss(&mut step, 2);
    }
    assert!(last < 0.7 * first, "from {first} to {last}");
}

#[test]
fn bad_data_is_a_typed_error() {
    let graph = training(Optimiser::Sgd(Sgd::default()), None, convolutional());
    let weights = Arc::new(Weights::default());
    let cpu = Cpu::new(1).unwrap();
    let mut step = TrainStep::new(graph, weights, cpu, Options::default()).unwrap();
    for label in [-1, CLASSES as i32] {
        let mut inputs = images(2, vec![]);
        inputs[1].1 = integers(&[2], &[0, label]);
        let error = step
            .step(&borrow(&inputs))
            .err()
            .expect("the label is wrong");
        assert!(matches!(error, EngineError::Node { .. }), "{error}");
        assert!(error.to_string().contains("loss: index"), "{error}");
    }
    let unknown = step.state("nothing").unwrap_err();
    assert!(matches!(unknown, EngineError::UnknownState { .. }));
    let wrong = step.set_state("head.bias", &tensor("b", &[3])).unwrap_err();
    assert!(matches!(wrong, EngineError::StateShape { .. }), "{wrong}");
}
