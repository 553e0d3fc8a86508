//! LCPR against the public implementation: names, counts, every stage, every elastic configuration, the range image.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::stored::{Golden, shared};
use percept_data::points::{LidarConvention, LidarFrame, Point, PointFormat, read_frame};
use percept_data::safetensors::write_safetensors;
use percept_data::seeded::{Family, Seeded, seeded_values};
use percept_data::{Datum, ModelWeights, Sample, Sliced, TensorSource as _};
use percept_engine::{Mode, Options, Program, run_reference};
use percept_graph::{
    Choice, Dim, Graph, PART_SEPARATOR, PriceList, Slicing, StateKind, Tensor, ValueId,
    WeightSource as _, differentiate,
};
use percept_kernels::Cpu;
use percept_models::lcpr::{CAMERA, DESCRIPTOR, Lcpr, Mean, RANGE, TRIPLET, range_image};
use percept_models::{Settings, zoo};

fn whole() -> Graph {
    Lcpr::PUBLIC.graph(&Choice::whole()).unwrap()
}

/// Seeded inputs of these sizes.
fn inputs(camera: [usize; 2], range: [usize; 2], samples: usize) -> [Tensor<'static>; 2] {
    let seeded = |name: &str, shape: &[usize]| {
        let values = seeded_values(Family::Lcpr, &format!("input.{name}"), shape);
        Tensor::from_values(shape, values).unwrap()
    };
    [
        seeded(CAMERA, &[samples, 6, 3, camera[0], camera[1]]),
        seeded(RANGE, &[samples, 1, range[0], range[1]]),
    ]
}

fn tiny() -> [Tensor<'static>; 2] {
    inputs([64, 64], [8, 96], 1)
}

/// Seeded weights of the whole network, sliced for this graph.
fn weights(graph: &Graph) -> ModelWeights {
    let whole = whole();
    let slicing = Slicing::between(&whole, graph).unwrap();
    let source = Sliced::new(Seeded::of(Family::Lcpr, &whole), slicing);
    ModelWeights::of(Box::new(source), graph).unwrap().0
}

fn run(
    graph: &Graph,
    mode: Mode,
    [camera, range]: &[Tensor<'static>; 2],
    taps: &[&str],
) -> Vec<(String, Tensor<'static>)> {
    let mut tapped = graph.clone();
    for tap in taps {
        let value = graph.find(tap).unwrap();
        tapped = tapped.with_output(&format!("tap.{tap}"), value);
    }
    let options = Options {
        mode,
        ..Options::default()
    };
    let cpu = Cpu::new(2).unwrap();
    let mut program = Program::new(tapped, Arc::new(weights(graph)), cpu, options);
    let outputs = program.run(&[(CAMERA, camera), (RANGE, range)]).unwrap();
    outputs.to_tensors()
}

/// The largest difference of the descriptor.
fn error(outputs: &[(String, Tensor<'static>)], expected: &[f64]) -> f64 {
    let (name, got) = &outputs[0];
    assert_eq!(name, DESCRIPTOR);
    let got = got.to_f64();
    assert_eq!(got.len(), expected.len());
    let pairs = got.iter().zip(expected);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

const EXACT: f64 = 2e-6;
const EXACT_STAGE: f64 = 5e-6;
const FAST: f64 = 2e-5;
const FAST_STAGE: f64 = 1e-4;

#[test]
fn names_and_shapes_equal_the_public_state_dict() {
    let graph = whole();
    let ours: BTreeSet<String> = graph
        .params()
        .iter()
        .map(|param| {
            let sizes: Vec<String> = param.shape.iter().map(usize::to_string).collect();
            format!("{} {}", param.name, sizes.join("x"))
        })
        .collect();
    let public: BTreeSet<String> = include_str!("fixtures/lcpr.txt")
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(public.difference(&ours).next(), None);
    assert_eq!(ours.difference(&public).next(), None);
    assert_eq!(graph.parameter_count(), 31_139_651);
    let small = Lcpr::SMALL.graph(&Choice::whole()).unwrap();
    assert!(small.parameter_count() <= 1_900_000);
}

#[test]
fn multiply_adds_are_the_published_ones() {
    let graph = whole();
    let model = zoo::build("lcpr", &Settings::none()).unwrap();
    let sizes = graph.bind(&model.input_shapes(1)).unwrap();
    let total = graph.total_macs(&sizes).unwrap();
    assert_eq!((total as f64 / 1e6).round(), 58_602.0);
    let stage = |prefix: &str| -> f64 {
        let costs = graph.costs(&sizes).unwrap();
        let nodes = graph.nodes().iter().zip(costs);
        let own = nodes.filter(|(node, _)| node.name.starts_with(prefix));
        own.map(|(_, cost)| cost.macs.unwrap_or(0) as f64 / 1e9)
            .sum()
    };
    for (prefix, expected) in [
        ("conv1_i", 2.543),
        ("layer1_i.", 9.966),
        ("layer3_l.", 4.429),
        ("fusion1.", 1.458),
        ("fusion4.", 1.352),
        ("v_conv_i.", 0.632),
        ("netvlad_l.", 0.003),
    ] {
        assert!((stage(prefix) - expected).abs() < 6e-4, "{prefix}");
    }
}

/// Stages of the reference, ours under other names, and how a place there is found here.
fn check_stages(
    golden: &Golden,
    prefix: &str,
    mode: Mode,
    tolerance: f64,
    input: &[Tensor<'static>; 2],
) {
    let graph = whole();
    let mut stages: Vec<(String, String)> = Vec::new();
    for plain in [
        "conv1_i",
        "maxpool",
        "layer1_i",
        "conv_l",
        "v_conv_i",
        "v_conv_l",
        "netvlad_i",
        "netvlad_l",
        "netvlad_i.softmax",
        "netvlad_l.softmax",
        "eca",
        "sum4.l",
    ] {
        stages.push((plain.to_owned(), plain.to_owned()));
    }
    for k in 1..=4 {
        for part in ["v_conv_i", "v_conv_l", "atten", "i", "l"] {
            let name = format!("fusion{k}.{part}");
            stages.push((name.clone(), name));
        }
        for part in ["i", "l"] {
            if k > 1 {
                stages.push((format!("layer{k}_{part}"), format!("layer{k}_{part}")));
            }
            if k < 4 {
                stages.push((format!("sum{k}.{part}"), format!("sum{k}.{part}")));
            }
        }
    }
    stages.push(("sum4.pano".to_owned(), "sum4.i".to_owned()));
    let taps: Vec<&str> = stages.iter().map(|(_, ours)| ours.as_str()).collect();
    let outputs = run(&graph, mode, input, &taps);
    let mut worst: f64 = 0.0;
    for (stage, ours) in &stages {
        let tap = format!("tap.{ours}");
        let (_, got) = outputs.iter().find(|(name, _)| *name == tap).unwrap();
        let values = got.to_f64();
        let shape = golden.indices(&format!("{prefix}act.{stage}.shape"));
        let places = golden.indices(&format!("{prefix}act.{stage}.index"));
        let expected = golden.doubles(&format!("{prefix}act.{stage}.value.f64"));
        assert!(!expected.is_empty());
        let place = |flat: usize| -> usize {
            let broadcast =
                stage.starts_with("fusion") && (stage.ends_with(".i") || stage.ends_with(".l"));
            match shape[..] {
                // One row stands for all.
                [_, _, h, w] if broadcast => flat / (h * w) * w + flat % w,
                [_, c, h, pano] if stage == "sum4.pano" => {
                    let (column, row) = (flat % pano, flat / pano % h);
                    let (channel, w) = (flat / (pano * h) % c, pano / 6);
                    ((column / w * c + channel) * h + row) * w + column % w
                }
                _ => flat,
            }
        };
        let mut squares = [0.0f64; 2];
        for (&flat, want) in places.iter().zip(&expected) {
            squares[0] += (values[place(flat)] - want).powi(2);
            squares[1] += want * want;
        }
        let relative = (squares[0] / squares[1]).sqrt();
        worst = worst.max(relative);
        assert!(
            relative <= tolerance,
            "{prefix}{stage} {mode:?}: {relative:.3e}"
        );
    }
    println!("{prefix} {mode:?}: stages differ by {worst:.2e} at most");
}

#[test]
fn tiny_stage_by_stage() {
    let golden = Golden::fixture("lcpr");
    let expected = golden.doubles("tiny.descriptor.f64");
    for (mode, whole_tolerance, stage_tolerance) in [
        (Mode::Exact, EXACT, EXACT_STAGE),
        (Mode::Fast, FAST, FAST_STAGE),
    ] {
        check_stages(&golden, "tiny.", mode, stage_tolerance, &tiny());
        let worst = error(&run(&whole(), mode, &tiny(), &[]), &expected);
        println!("tiny {mode:?}: {worst:.2e}");
        assert!(worst <= whole_tolerance, "{mode:?}: {worst:.3e}");
    }
    // A check that can fail: the cameras in another order are another place.
    let [camera, range] = tiny();
    let values = camera.to_f32();
    let one = values.len() / 6;
    let turned = [&values[one..], &values[..one]].concat();
    let turned = Tensor::from_values(camera.shape(), turned).unwrap();
    assert!(
        error(
            &run(&whole(), Mode::Exact, &[turned, range], &[]),
            &expected
        ) > 1e-4
    );
}

#[test]
fn short_and_full() {
    let golden = Golden::fixture("lcpr");
    let cases = [
        ("short", inputs([64, 704], [8, 1056], 1)),
        ("full", inputs([256, 704], [32, 1056], 1)),
    ];
    for (name, input) in &cases {
        let expected = golden.doubles(&format!("{name}.descriptor.f64"));
        for (mode, tolerance) in [(Mode::Exact, EXACT), (Mode::Fast, FAST)] {
            let worst = error(&run(&whole(), mode, input, &[]), &expected);
            println!("{name} {mode:?}: {worst:.2e}");
            assert!(worst <= tolerance, "{name} {mode:?}: {worst:.3e}");
        }
    }
}

#[test]
fn whole_references() {
    let Some(folder) = shared("golden/lcpr") else {
        return;
    };
    for (name, input) in [
        ("short", inputs([64, 704], [8, 1056], 1)),
        ("full", inputs([256, 704], [32, 1056], 1)),
    ] {
        let golden = Golden::open(&folder.join(format!("{name}.safetensors")));
        check_stages(&golden, "", Mode::Exact, EXACT_STAGE, &input);
        check_stages(&golden, "", Mode::Fast, FAST_STAGE, &input);
    }
    let golden = Golden::open(&folder.join("range_image.safetensors"));
    check_range_image(&golden, 1056);
}

#[test]
fn a_batch_equals_its_samples() {
    let graph = whole();
    let [camera, range] = inputs([64, 64], [8, 96], 2);
    let both = run(&graph, Mode::Exact, &[camera.clone(), range.clone()], &[]);
    let both = both[0].1.to_f64().into_owned();
    let half = |tensor: &Tensor<'_>, second: usize| {
        let values = tensor.to_f32();
        let length = values.len() / 2;
        let mut shape = tensor.shape().to_vec();
        shape[0] = 1;
        Tensor::from_values(shape, values[second * length..][..length].to_vec()).unwrap()
    };
    for second in [0, 1] {
        let input = [half(&camera, second), half(&range, second)];
        let worst = error(
            &run(&graph, Mode::Exact, &input, &[]),
            &both[second * 256..][..256],
        );
        assert!(worst <= 1e-6, "{worst:.3e}");
    }
}

fn configuration(levels: &[usize]) -> Choice {
    let mut choice = Choice::whole();
    for (block, pair) in levels.chunks(2).enumerate() {
        let block = block + 1;
        choice = choice
            .with(format!("fusion{block}.mid"), pair[0])
            .with(format!("fusion{block}.heads"), pair[1]);
    }
    choice
}

#[test]
fn every_elastic_configuration_of_the_reference() {
    let golden = Golden::fixture("lcpr");
    let configs = golden.indices("elastic.config");
    let params = golden.indices("elastic.params");
    let expected = golden.doubles("elastic.descriptor.f64");
    assert_eq!(configs.len(), 11 * 8);
    for (number, levels) in configs.chunks(8).enumerate() {
        let graph = Lcpr::PUBLIC.graph(&configuration(levels)).unwrap();
        assert_eq!(graph.parameter_count(), params[number], "{levels:?}");
        let expected = &expected[number * 256..][..256];
        for (mode, tolerance) in [(Mode::Exact, EXACT), (Mode::Fast, FAST)] {
            let worst = error(&run(&graph, mode, &tiny(), &[]), expected);
            assert!(worst <= tolerance, "{levels:?} {mode:?}: {worst:.3e}");
        }
    }
}

#[test]
fn every_configuration_is_priced_without_building_it() {
    let build = |choice: &Choice| Lcpr::PUBLIC.graph(choice);
    let shapes = zoo::build("lcpr", &Settings::none())
        .unwrap()
        .input_shapes(1);
    let prices = PriceList::new(build, &shapes).unwrap();
    let fusion = |name: &str| -> usize {
        let axes = prices.axes().iter();
        axes.enumerate().find(|(_, a)| a.name == name).unwrap().0
    };
    let place: Vec<[usize; 2]> = (1..=4)
        .map(|k| ["mid", "heads"].map(|part| fusion(&format!("fusion{k}.{part}"))))
        .collect();
    let whole_levels: Vec<usize> = prices.axes().iter().map(|axis| axis.levels).collect();
    // The specification's formula.
    let formula = |c: usize, g: usize, h: usize| {
        let m = g * c / 8;
        2 * (2 * c * c + 5 * c + 2 * c * m + 6 * m + 6 * m * m) + h * c * c + 3 * h * c / 4 + c
    };
    let mut distinct = BTreeSet::new();
    for index in 0..65_536usize {
        let mut levels = whole_levels.clone();
        let mut expected = 26_594_371;
        for (block, &[mid, heads]) in place.iter().enumerate() {
            let (g, h) = (index >> (4 * block) & 3, index >> (4 * block + 2) & 3);
            (levels[mid], levels[heads]) = (g + 1, h + 1);
            expected += formula(64 << block, g + 1, h + 1);
        }
        let price = prices.price(&levels);
        assert_eq!(price.params, expected as u64);
        distinct.insert(price.macs);
    }
    for (level, params, gmacs) in [
        (1, 28_587_251, 57.130),
        (2, 29_307_491, 57.597),
        (3, 30_158_291, 58.087),
        (4, 31_139_651, 58.602),
    ] {
        let mut levels = whole_levels.clone();
        for &[mid, heads] in &place {
            (levels[mid], levels[heads]) = (level, level);
        }
        let price = prices.price(&levels);
        assert_eq!(price.params, params);
        assert!((price.macs as f64 / 1e9 - gmacs).abs() < 6e-4);
    }
    // All axes at once, against the network itself.
    for seed in 0..6usize {
        let axes = prices.axes();
        let levels: Vec<usize> = (0..axes.len())
            .map(|i| 1 + (7 * i + 5 * seed * (i + 3)) % 4)
            .collect();
        let pairs = axes.iter().zip(&levels);
        let choice = pairs.fold(Choice::whole(), |choice, (axis, &level)| {
            choice.with(&axis.name, level)
        });
        let graph = build(&choice).unwrap();
        let sizes = graph.bind(&shapes).unwrap();
        let price = prices.price(&levels);
        assert_eq!(price.params, graph.parameter_count() as u64);
        assert_eq!(price.macs, graph.total_macs(&sizes).unwrap());
    }
}

fn check_range_image(golden: &Golden, columns: usize) {
    let values = golden.values("points");
    let points = values.chunks(3).map(|p| Point {
        position: [p[0], p[1], p[2]],
        intensity: 0.0,
        age_s: 0.0,
        ring: None,
    });
    let frame = LidarFrame::from_points(LidarConvention::NuScenes, points.collect());
    let image = range_image(&frame, [32, 1056]);
    let expected = golden.values("range");
    let mut seen = 0;
    for row in 0..32 {
        for column in 0..1056 {
            let got = image.metres[row * 1056 + column];
            match column < columns {
                true => {
                    let want = expected[row * columns + column];
                    assert!((got - want).abs() <= 1e-5, "{row} {column}: {got} {want}");
                    seen += usize::from(want > 0.0);
                }
                false => assert_eq!(got, -1.0, "{row} {column}"),
            }
        }
    }
    assert!(seen > 1000);
}

#[test]
fn the_range_image_of_a_real_sweep() {
    check_range_image(&Golden::fixture("lcpr_range_image"), 264);
}

/// The train step of the public network: two negatives, a positive and a query, in f64.
#[test]
fn gradients_of_the_public_train_step() {
    let Some(folder) = shared("golden/lcpr") else {
        return;
    };
    let golden = Golden::open(&folder.join("train_step.safetensors"));
    let network = whole();
    let graph = Lcpr::PUBLIC
        .training_graph(&Choice::whole(), Mean::All)
        .unwrap()
        .in_training();
    let loss = graph.find("loss").unwrap();
    let params: Vec<(String, ValueId)> = graph
        .states()
        .iter()
        .filter(|state| state.kind == StateKind::Parameter)
        .map(|state| (state.name.clone(), state.value))
        .collect();
    let buffers: Vec<(String, ValueId)> = graph
        .states()
        .iter()
        .filter(|state| state.kind == StateKind::Buffer)
        .map(|state| (state.name.clone(), state.next))
        .collect();
    let wrt: Vec<ValueId> = params.iter().map(|(_, value)| *value).collect();
    let made = differentiate(graph, loss, &wrt).unwrap();
    let mut graph = made.graph;
    for (name, value) in &params {
        if let Some(gradient) = made.gradients.get(value) {
            graph = graph.with_output(&format!("grad.{name}"), *gradient);
        }
    }
    for (name, next) in &buffers {
        graph = graph.with_output(&format!("buf.{name}"), *next);
    }
    let [camera, range] = inputs([64, 64], [8, 96], 4);
    let rows = [vec![3, 3], vec![2, 2], vec![0, 1]];
    let rows = rows.map(|rows: Vec<i32>| Tensor::from_values([2], rows).unwrap());
    let mut given = vec![(CAMERA, &camera), (RANGE, &range)];
    given.extend(TRIPLET.into_iter().zip(&rows));
    let outputs = run_reference::<f64>(&graph, &weights(&network), &given).unwrap();
    let output = |name: &str| {
        let found = outputs.iter().find(|(output, _)| output == name);
        found.map(|(_, tensor)| &tensor.data)
    };
    let loss = output("loss").unwrap()[0];
    let expected = golden.doubles("loss.f64")[0];
    println!("loss {loss} {expected}");
    assert!(
        (loss - expected).abs() <= 1e-6 * expected.abs(),
        "{loss} {expected}"
    );
    let (mut compared, mut worst) = (0, 0.0f64);
    for (name, _) in &params {
        let stored = format!("grad.{name}.norm.f64");
        if golden.shape(&stored).is_none() {
            continue;
        }
        let norm = golden.doubles(&stored)[0];
        // Mathematically zero (a bias in front of a batch norm): noise there and here.
        if norm < 1e-9 {
            continue;
        }
        let got = output(&format!("grad.{name}")).unwrap_or_else(|| panic!("{name}"));
        let places = golden.indices(&format!("grad.{name}.index"));
        let values = golden.doubles(&format!("grad.{name}.value.f64"));
        let scale = norm / (got.len() as f64).sqrt();
        for (&place, want) in places.iter().zip(&values) {
            let difference = (got[place] - want).abs() / scale.max(want.abs());
            worst = worst.max(difference);
            assert!(difference <= 1e-4, "{name}: {} {want}", got[place]);
        }
        let own = got.iter().map(|v| v * v).sum::<f64>().sqrt();
        assert!((own - norm).abs() <= 1e-5 * norm, "{name}: {own} {norm}");
        compared += 1;
    }
    println!("{compared} gradients, largest difference {worst:.1e} of their deviation");
    assert!(compared > 200, "{compared}");
    for (name, _) in &buffers {
        let stored = format!("buf.{name}.sum.f64");
        if golden.shape(&stored).is_some() {
            let want = golden.doubles(&stored)[0];
            let got: f64 = output(&format!("buf.{name}")).unwrap().iter().sum();
            assert!(
                (got - want).abs() <= 1e-6 * want.abs().max(1.0),
                "{name}: {got} {want}"
            );
        }
    }
}

/// A part learns into the whole: its gradient is that of the whole's leading part, and zero elsewhere.
#[test]
fn gradients_of_a_part_are_whole_and_zero_outside() {
    let tiny_network = Lcpr {
        width: 8,
        features: 8,
        clusters: 4,
        descriptor: 4,
    };
    let whole = tiny_network
        .training_graph(&Choice::whole(), Mean::Active)
        .unwrap();
    let choice = Choice::whole()
        .with("fusion2.mid", 2)
        .with("fusion1.heads", 1)
        .with("netvlad.clusters", 2)
        .with("stage3.inner", 3);
    let part = tiny_network.training_graph(&choice, Mean::Active).unwrap();
    let graph = part.as_part_of(&whole).unwrap().in_training();
    let loss = graph.find("loss").unwrap();
    let states: Vec<(String, ValueId)> = graph
        .states()
        .iter()
        .filter(|state| state.kind == StateKind::Parameter)
        .map(|state| (state.name.clone(), state.value))
        .collect();
    // Statistics are other ones in every part: it moves its own and leaves the whole's alone.
    let statistics = graph.states().iter();
    let statistics: Vec<_> = statistics
        .filter(|s| s.kind == StateKind::Buffer && !s.name.contains("bn2.running_"))
        .collect();
    assert!(statistics.iter().any(|s| s.name.contains(PART_SEPARATOR)));
    for state in statistics {
        let moves = state.next != state.value;
        assert_eq!(moves, state.name.contains(PART_SEPARATOR), "{}", state.name);
    }
    let narrow = graph.states().iter().find(|state| {
        let name = "fusion2.v_conv_i.reduce_conv.1.running_var";
        state.name.split(PART_SEPARATOR).next() == Some(name) && state.name.len() > name.len()
    });
    let shape = &graph.value(narrow.unwrap().value).ty.shape;
    assert_eq!(shape[..], [Dim::from(4)]);
    let wrt: Vec<ValueId> = states.iter().map(|(_, value)| *value).collect();
    let made = differentiate(graph, loss, &wrt).unwrap();
    let mut graph = made.graph;
    for (name, value) in &states {
        if let Some(gradient) = made.gradients.get(value) {
            graph = graph.with_output(name, *gradient);
        }
    }
    let [camera, range] = inputs([32, 32], [8, 32], 4);
    let rows = [vec![3, 0], vec![2, 1], vec![0, 2]];
    let rows = rows.map(|rows: Vec<i32>| Tensor::from_values([2], rows).unwrap());
    let mut given = vec![(CAMERA, &camera), (RANGE, &range)];
    given.extend(TRIPLET.into_iter().zip(&rows));
    let whole_weights = ModelWeights::seeded(Family::Lcpr, &whole);
    let outputs = run_reference::<f64>(&graph, &whole_weights, &given).unwrap();
    let of = |name: &str| &outputs.iter().find(|(o, _)| o == name).unwrap().1;
    let hidden = of("netvlad_i.hidden1_weights");
    assert_eq!(hidden.shape, [32, 4]);
    for (place, value) in hidden.data.iter().enumerate() {
        // Rows are features x clusters; the last two clusters of four are left out.
        let is_out = place / 4 % 4 >= 2;
        assert_eq!(*value == 0.0, is_out, "{place}");
    }
    let heads = of("fusion1.atten.w_q.weight");
    assert_eq!(heads.shape, [8, 8]);
    assert!(heads.data[16..].iter().all(|v| *v == 0.0));
    assert!(heads.data[..16].iter().any(|v| *v != 0.0));
}

/// LiDAR alone: two scans of one street are nearer to each other than to one of another street.
#[test]
fn neighbouring_kitti_scans_are_neighbours() {
    let Some(folder) = shared("data/place") else {
        return;
    };
    let model = zoo::build("lcpr", &Settings::none()).unwrap();
    let model = model.without(CAMERA).unwrap();
    let weights = Arc::new(ModelWeights::seeded(Family::Lcpr, &model.graph));
    let cpu = Cpu::new(2).unwrap();
    let mut program = Program::new(
        model.graph.clone(),
        weights,
        Cpu::new(2).unwrap(),
        Options::default(),
    );
    let mut describe = |scan: &str| -> Vec<f64> {
        let frame = read_frame(
            &folder.join(format!("{scan}.bin")),
            Some(PointFormat::Kitti),
        )
        .unwrap();
        assert_eq!(frame.convention, LidarConvention::Kitti);
        let sample = Sample::of(scan, RANGE, Datum::Frame(Box::new(frame)));
        let example = model.example(&cpu, &sample).unwrap();
        let inputs: Vec<(&str, &Tensor<'_>)> = [CAMERA, RANGE]
            .map(|name| (name, example.get(name).unwrap()))
            .to_vec();
        program.run(&inputs).unwrap().to_tensors()[0]
            .1
            .to_f64()
            .into_owned()
    };
    let [a, b, c] = ["000094", "000095", "000198"].map(&mut describe);
    let distance = |x: &[f64], y: &[f64]| -> f64 {
        x.iter()
            .zip(y)
            .map(|(x, y)| (x - y).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    println!(
        "94 to 95: {}, to 198: {}",
        distance(&a, &b),
        distance(&a, &c)
    );
    assert!(distance(&a, &b) < distance(&a, &c));
}

/// A ResNet-18 file is what training begins with: the LiDAR's stages are copies of the cameras'.
#[test]
fn a_resnet18_is_taken_for_both_streams() {
    let resnet = zoo::build("resnet18", &Settings::none()).unwrap();
    let source = Seeded::of(resnet.family, &resnet.graph);
    let tensors: Vec<(String, Tensor<'_>)> = resnet
        .graph
        .params()
        .iter()
        .map(|param| (param.name.clone(), source.read(&param.name).unwrap()))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resnet18.safetensors");
    write_safetensors(&path, &tensors, &BTreeMap::new()).unwrap();
    let model = zoo::build("lcpr", &Settings::none()).unwrap();
    let layouts = model.other_layouts.iter();
    let layouts = layouts.map(|layout| (layout.name, layout.renames.as_slice()));
    let (weights, report) = ModelWeights::open_partly(&path, &model.graph, layouts).unwrap();
    // 100 of the cameras' tensors without the classifier, and 75 of three LiDAR stages.
    assert_eq!(report.matched, 175);
    let shape = [128, 64, 3, 3];
    let [camera, lidar] = ["layer2_i", "layer2_l"].map(|stage| {
        let name = format!("{stage}.0.conv1.weight");
        weights.read(&name, &shape).unwrap().into_owned()
    });
    assert_eq!(camera, *source.read_f32("layer2.0.conv1.weight").unwrap());
    assert_eq!(camera, lidar);
}
