//! Parity of RandLA-Net with Open3D-ML's network and with the seed repository's: seeded weights in, reference outputs out.

mod stored;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use percept_data::ModelWeights;
use percept_data::seeded::{Family, seeded_values};
use percept_engine::{Memory, Mode, Options, Program, run_reference};
use percept_graph::{
    Builder, Dim, Graph, Reduce, ReduceKind, Tensor, ValueId, WeightError, WeightSource,
    differentiate,
};
use percept_kernels::Cpu;
use percept_models::randlanet::{
    Cloud, KnnCache, RandLaNet, Variant, inputs, weighted_cross_entropy,
};
use stored::{Golden, shared};

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

#[test]
fn names_and_shapes_are_those_of_the_public_checkpoints() {
    let manifests = [
        include_str!("fixtures/randlanet_faithful.txt"),
        include_str!("fixtures/randlanet_seed_cfg3.txt"),
        include_str!("fixtures/randlanet_seed_bench.txt"),
    ];
    for ((name, network), manifest) in networks().into_iter().zip(manifests) {
        let graph = network.graph().expect("it builds");
        let mut got: Vec<String> = graph
            .params()
            .iter()
            .map(|param| {
                let sizes: Vec<String> = param.shape.iter().map(usize::to_string).collect();
                format!("{} {}", param.name, sizes.join("x"))
            })
            .collect();
        let mut expected: Vec<&str> = manifest.lines().collect();
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected, "{name}");
    }
    let counts: Vec<usize> = [RandLaNet::faithful(19), seed(CFG3), seed(BENCH), seed(CFG7)]
        .iter()
        .map(|network| network.graph().expect("it builds").parameter_count())
        .collect();
    assert_eq!(counts, [1_242_307, 1_252_010, 326_858, 5_200_938]);
}

/// Every 16th point of the references, which the fixture holds.
#[test]
fn generated_cloud() {
    let golden = Golden::fixture("randlanet_synth");
    let points = golden.values("points");
    for (name, network) in networks() {
        let rows = rows(&points, network.channels_in);
        let expected = golden.values(&format!("{name}.logits"));
        let deviation = f64::from(golden.values(&format!("{name}.stats"))[1]);
        for (mode, tolerance) in [(Mode::Exact, EXACT), (Mode::Fast, FAST)] {
            let all = logits(&network, &[&rows], options(mode, Memory::Frugal));
            let some: Vec<f32> = all
                .chunks(network.classes)
                .step_by(16)
                .flatten()
                .copied()
                .collect();
            compare(
                &format!("{name} {mode:?}"),
                &some,
                &expected,
                tolerance * deviation,
            );
        }
    }
}

#[test]
fn whole_references() {
    let Some(folder) = shared("golden/randlanet") else {
        return;
    };
    for (name, network) in networks() {
        let golden = Golden::open(&folder.join(format!("{name}_synth4096.safetensors")));
        let rows = rows(&golden.values("points"), network.channels_in);
        let deviation = f64::from(golden.values("logits.stats")[1]);
        let points = rows.len() / network.channels_in;
        let by_class = golden.values("logits.full");
        let expected: Vec<f32> = (0..points * network.classes)
            .map(|at| by_class[at % network.classes * points + at / network.classes])
            .collect();
        let argmax = golden.indices("argmax");
        for (mode, tolerance) in [(Mode::Exact, EXACT), (Mode::Fast, FAST)] {
            let got = logits(&network, &[&rows], options(mode, Memory::Frugal));
            let tolerance = tolerance * deviation;
            compare(&format!("{name} {mode:?}"), &got, &expected, tolerance);
            for (row, (scores, &best)) in got.chunks(network.classes).zip(&argmax).enumerate() {
                let clear = scores.iter().enumerate().all(|(class, &score)| {
                    class == best || f64::from(scores[best] - score) > 2.0 * tolerance
                });
                let unclear = scores.iter().any(|&score| {
                    f64::from((scores[best] - score).abs()) <= 4.0 * tolerance
                        && score != scores[best]
                });
                assert!(clear || unclear, "{name}: point {row} is not {best}");
            }
        }
    }
}

/// The levels that the network works on, against the public pipeline's, as sets.
#[test]
fn neighbours_are_those_of_the_public_pipeline() {
    let golden = Golden::fixture("randlanet_synth");
    let points: Vec<[f32; 3]> = golden
        .values("points")
        .as_chunks::<4>()
        .0
        .iter()
        .map(|p| [p[0], p[1], p[2]])
        .collect();
    let plan = percept_kernels::points::LevelPlan {
        ratios: &[4; 4],
        k: 16,
        up_k: 1,
        priority: None,
    };
    let cpu = Cpu::new(2).expect("two threads");
    let cloud = KnnCache::new()
        .build(&cpu, &points, &plan)
        .expect("it searches");
    for level in 0..4 {
        let nearest = cloud.query(&cpu, level + 1, level, 1).expect("levels");
        let expected = golden.indices(&format!("faithful.up{level}.idx"));
        assert!(
            nearest.rows.iter().map(|&row| row as usize).eq(expected),
            "up {level}"
        );
    }
    let near = cloud.query(&cpu, 2, 2, 16).expect("level 2");
    let expected = golden.indices("faithful.knn2.idx");
    for (at, expected) in expected.chunks(16).enumerate() {
        let mut got: Vec<usize> = near.list(at).0.iter().map(|&row| row as usize).collect();
        let mut expected = expected.to_vec();
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected, "point {at}");
    }
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

#[test]
fn clouds_of_a_batch_are_labelled_as_if_alone() {
    let sizes = [40, 1, 300, 3, 0, 17];
    let clouds: Vec<Vec<f32>> = sizes
        .iter()
        .map(|&size| cloud(&format!("input.{size}"), size))
        .collect();
    for variant in VARIANTS {
        let network = small(variant);
        for memory in [Memory::Frugal, Memory::Keep] {
            let options = options(Mode::Exact, memory);
            let together = logits(
                &network,
                &clouds.iter().map(Vec::as_slice).collect::<Vec<_>>(),
                options,
            );
            let alone: Vec<f32> = clouds
                .iter()
                .flat_map(|cloud| logits(&network, &[cloud], options))
                .collect();
            compare(&format!("{variant:?} {memory:?}"), &together, &alone, 1e-5);
        }
    }
}

/// The order of the rows decides which points are kept, unless priorities do.
#[test]
fn a_priority_does_what_the_order_of_the_rows_did() {
    let network = small(Variant::Faithful);
    let rows = cloud("input.order", 100);
    let turned: Vec<f32> = rows
        .as_chunks::<3>()
        .0
        .iter()
        .rev()
        .flatten()
        .copied()
        .collect();
    let options = options(Mode::Exact, Memory::Frugal);
    let expected = logits(&network, &[&rows], options);
    let priority: Vec<i32> = (0..100).rev().collect();
    let inputs = inputs(
        3,
        &[Cloud {
            rows: &turned,
            priority: &priority,
        }],
    )
    .expect("whole points");
    let graph = network.graph().expect("it builds");
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &graph));
    let mut program = Program::new(graph, weights, Cpu::new(1).expect("a thread"), options);
    let named: Vec<(&str, &Tensor<'_>)> = inputs
        .iter()
        .map(|(name, tensor)| (*name, tensor))
        .collect();
    let outputs = program.run(&named).expect("it runs").to_tensors();
    let got: Vec<f32> = outputs[0]
        .1
        .to_f32()
        .chunks(3)
        .rev()
        .flatten()
        .copied()
        .collect();
    compare("turned", &got, &expected, 1e-5);
}

#[test]
fn input_that_cannot_be_is_refused() {
    let network = small(Variant::Faithful);
    let graph = network.graph().expect("it builds");
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &graph));
    let mut program = Program::new(
        graph,
        weights,
        Cpu::new(1).expect("a thread"),
        Options::default(),
    );
    let mut message = |points: Vec<f32>, priority: Vec<i32>, counts: Vec<i32>| {
        let rows = points.len() / 3;
        let tensors = [
            Tensor::from_values([rows, 3], points).expect("rows"),
            Tensor::from_values([rows], priority).expect("ranks"),
            Tensor::from_values([counts.len()], counts).expect("counts"),
        ];
        let named: Vec<(&str, &Tensor<'_>)> = ["points", "priority", "counts"]
            .into_iter()
            .zip(&tensors)
            .collect();
        program.run(&named).err().expect("refused").to_string()
    };
    let two = || vec![0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    assert!(message(vec![0.0, f32::NAN, 0.0], vec![0], vec![1]).contains("point 0: y is NaN"));
    assert!(message(two(), vec![0, 0], vec![2]).contains("comes twice"));
    assert!(message(two(), vec![0, 2], vec![2]).contains("priority 2"));
    assert!(message(two(), vec![0, 1], vec![3]).contains("more than 2 points"));
    assert!(message(two(), vec![0, 0], vec![1]).contains("fewer than 2 points"));
    assert!(message(two(), vec![0, 1], vec![-1]).contains("counts [-1]"));
}

#[test]
fn points_that_coincide_and_clouds_far_away_have_answers() {
    for variant in VARIANTS {
        let network = small(variant);
        let same = [1.0f32; 3 * 50];
        let far: Vec<f32> = cloud("input.far", 200).iter().map(|v| v + 1e6).collect();
        let got = logits(&network, &[&same, &far], Options::default());
        assert!(
            got.len() == 250 * 3 && got.iter().all(|v| v.is_finite()),
            "{variant:?}"
        );
        assert!(
            got[..150].chunks(3).all(|row| row == &got[..3]),
            "{variant:?}: equal points, equal labels"
        );
    }
}

/// Slopes of Σ logits · (fixed numbers) by a value of every parameter, in f64, against the gradients.
#[test]
fn gradients_are_the_slopes_of_the_loss() {
    for (variant, in_training) in VARIANTS
        .into_iter()
        .flat_map(|variant| [(variant, false), (variant, true)])
    {
        let graph = small(variant).graph().expect("it builds");
        check_gradients(&format!("{variant:?} {in_training}"), graph, in_training);
    }
}

fn check_gradients(what: &str, graph: Graph, in_training: bool) {
    let logits = graph.find("logits").expect("logits");
    let mut b = Builder::resume(graph);
    let probe = b.input("probe", [Dim::symbol("P"), 3.into()]);
    let weighted = b.mul("weighted", logits, probe);
    let sum = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![0, 1],
    };
    let loss = b.call("sum", sum, &[weighted]);
    let loss = b.reshape("loss", loss, []);
    b.output("loss", loss);
    let graph = b.finish().expect("it builds");
    let graph = match in_training {
        true => graph.in_training(),
        false => graph.with_state(),
    };
    let states = graph
        .states()
        .iter()
        .filter(|state| !state.name.contains(".running_"));
    let states: Vec<(String, ValueId)> = states
        .map(|state| (state.name.clone(), state.value))
        .collect();
    let values: Vec<ValueId> = states.iter().map(|(_, value)| *value).collect();
    let mut made = differentiate(graph, loss, &values).expect("every op has a gradient");
    for (name, value) in &states {
        let gradient = made.gradients[value];
        made.graph = made.graph.with_output(&format!("grad {name}"), gradient);
    }
    let points = 30;
    let rows = cloud("input.gradient", points);
    let priority = in_order(points);
    let [points_in, priority_in, counts_in] = inputs(
        3,
        &[Cloud {
            rows: &rows,
            priority: &priority,
        }],
    )
    .expect("whole points");
    let probe = Tensor::from_values([points, 3], cloud("input.probe", points)).expect("a probe");
    let named: [(&str, &Tensor<'_>); 4] = [
        (points_in.0, &points_in.1),
        (priority_in.0, &priority_in.1),
        (counts_in.0, &counts_in.1),
        ("probe", &probe),
    ];
    let weights = Moved::default();
    let run = |weights: &Moved| -> BTreeMap<String, Vec<f64>> {
        let outputs = run_reference::<f64>(&made.graph, weights, &named).expect("it runs");
        outputs
            .into_iter()
            .map(|(name, tensor)| (name, tensor.data))
            .collect()
    };
    let analytic = run(&weights);
    let mut checked = 0;
    for (name, _) in &states {
        let gradient = &analytic[&format!("grad {name}")];
        let index = gradient.len() / 2;
        let [below, above] = [-STEP, STEP].map(|step| {
            let moved = Moved(Some((name.clone(), index, step)));
            run(&moved)["loss"][0]
        });
        let slope = (above - below) / (2.0 * f64::from(STEP));
        let got = gradient[index];
        assert!(
            (got - slope).abs() <= 1e-3 * slope.abs().max(1.0),
            "{what} {name}[{index}]: gradient {got}, slope {slope}"
        );
        checked += 1;
    }
    assert!(checked > 50, "{what}: {checked} gradients");
}

/// A power of two, so that moved weights are exact.
const STEP: f32 = 1.0 / (1 << 17) as f32;

/// Seeded weights, rounded to multiples of the step, with one of them moved.
#[derive(Default)]
struct Moved(Option<(String, usize, f32)>);

impl WeightSource for Moved {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        let mut values = seeded_values(Family::Vision, name, shape);
        values
            .iter_mut()
            .for_each(|value| *value = (*value / STEP).round() * STEP);
        if let Some((_, index, step)) = self.0.as_ref().filter(|(moved, _, _)| moved == name) {
            values[*index] += step;
        }
        Ok(Cow::Owned(values))
    }

    fn describe(&self) -> String {
        "one weight moved".to_owned()
    }
}

/// The lean form computes what the plain one computes: of the logits' deviation, on whole clouds and on ragged batches.
#[test]
fn the_lean_form_gives_the_same_answers() {
    const LEAN: f64 = 1e-5;
    let golden = Golden::fixture("randlanet_synth");
    let points = golden.values("points");
    let small_clouds: Vec<Vec<f32>> = [40, 1, 300, 3, 0, 17]
        .iter()
        .map(|&size| cloud(&format!("input.{size}"), size))
        .collect();
    for (name, network) in networks() {
        let deviation = f64::from(golden.values(&format!("{name}.stats"))[1]);
        let rows = rows(&points, network.channels_in);
        for mode in [Mode::Exact, Mode::Fast] {
            let options = options(mode, Memory::Frugal);
            let plain = logits(&network, &[&rows], options);
            let lean = logits_of(
                network.lean_graph(None).expect("it builds"),
                &network,
                &[&rows],
                options,
            );
            compare(&format!("{name} {mode:?}"), &lean, &plain, LEAN * deviation);
        }
    }
    for variant in VARIANTS {
        let network = small(variant);
        let options = options(Mode::Exact, Memory::Frugal);
        let clouds: Vec<&[f32]> = small_clouds.iter().map(Vec::as_slice).collect();
        let plain = logits(&network, &clouds, options);
        let lean = logits_of(
            network.lean_graph(None).expect("it builds"),
            &network,
            &clouds,
            options,
        );
        compare(&format!("{variant:?} ragged"), &lean, &plain, 1e-5);
    }
}

#[test]
fn both_forms_have_the_same_parameters() {
    for (name, network) in networks() {
        let names = |graph: Graph| {
            let mut names: Vec<(String, Vec<usize>)> = graph
                .params()
                .iter()
                .map(|p| (p.name.clone(), p.shape.clone()))
                .collect();
            names.sort();
            names
        };
        let plain = names(network.graph().expect("it builds"));
        assert_eq!(
            names(network.lean_graph(None).expect("it builds")),
            plain,
            "{name}"
        );
        assert_eq!(
            names(network.lean_training_graph().expect("it builds")),
            plain,
            "{name}"
        );
    }
}

/// A training step of both forms: loss, gradients of every parameter, and running statistics afterwards.
#[test]
fn the_lean_form_learns_the_same() {
    for variant in VARIANTS {
        let network = small(variant);
        let [plain, lean] = [network.graph(), network.lean_training_graph()]
            .map(|graph| learnt(graph.expect("it builds")));
        assert_eq!(
            plain.keys().collect::<Vec<_>>(),
            lean.keys().collect::<Vec<_>>()
        );
        for (name, expected) in &plain {
            let largest = expected
                .iter()
                .fold(1e-2f64, |most, v| most.max(f64::from(v.abs())));
            // PyTorch's running variance is unbiased: of 4 · 200 rows that is 1 / 800 more.
            let tolerance = if name.ends_with("running_var") {
                2e-3
            } else {
                2e-4
            };
            compare(
                &format!("{variant:?} {name}"),
                &lean[name],
                expected,
                tolerance * largest,
            );
        }
    }
}

/// Gradients and statistics of one step, by name; a score's bias, which a softmax cancels, has none.
fn learnt(graph: Graph) -> BTreeMap<String, Vec<f32>> {
    let points = 200;
    let logits = graph.find("logits").expect("logits");
    let mut b = Builder::resume(graph);
    let labels = b.integer_input("labels", [Dim::symbol("P")]);
    let weights = b.input("weights", [Dim::symbol("P")]);
    let loss = weighted_cross_entropy(&mut b, "loss", logits, labels, weights);
    b.output("loss", loss);
    let graph = b.finish().expect("it builds").in_training();
    let moving = graph.states().iter().filter(|state| {
        !state.name.contains(".running_")
            && !state.name.contains("score") | state.name.ends_with("weight")
    });
    let moving: Vec<(String, ValueId)> = moving
        .map(|state| (state.name.clone(), state.value))
        .collect();
    let running: Vec<(String, ValueId)> = graph
        .states()
        .iter()
        .filter(|state| state.name.contains(".running_"))
        .map(|state| (state.name.clone(), state.next))
        .collect();
    let values: Vec<ValueId> = moving.iter().map(|(_, value)| *value).collect();
    let made = differentiate(graph, loss, &values).expect("every op has a gradient");
    let mut graph = made.graph;
    for (name, value) in &moving {
        graph = graph.with_output(&format!("grad {name}"), made.gradients[value]);
    }
    for (name, value) in &running {
        graph = graph.with_output(&format!("next {name}"), *value);
    }
    let rows = cloud("input.learnt", points);
    let priority = in_order(points);
    let mut tensors: Vec<(&str, Tensor<'static>)> = inputs(
        3,
        &[Cloud {
            rows: &rows,
            priority: &priority,
        }],
    )
    .expect("whole points")
    .into_iter()
    .collect();
    let labels: Vec<i32> = (0..points as i32).map(|row| row % 4).collect();
    let weights: Vec<f32> = labels.iter().map(|label| *label as f32).collect();
    tensors.push((
        "labels",
        Tensor::from_values([points], labels).expect("labels"),
    ));
    tensors.push((
        "weights",
        Tensor::from_values([points], weights).expect("weights"),
    ));
    let named: Vec<(&str, &Tensor<'_>)> = tensors
        .iter()
        .map(|(name, tensor)| (*name, tensor))
        .collect();
    let weights = Arc::new(Moved::default());
    let mut program = Program::new(
        graph,
        weights,
        Cpu::new(2).expect("two threads"),
        options(Mode::Exact, Memory::Frugal),
    );
    let outputs = program.run(&named).expect("it runs").to_tensors();
    let wanted = outputs.into_iter().filter(|(name, _)| name != "logits");
    wanted
        .map(|(name, tensor)| (name, tensor.to_f32().into_owned()))
        .collect()
}
