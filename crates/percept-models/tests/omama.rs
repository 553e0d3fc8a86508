//! Parity of O-MaMa's trained part with the public system: descriptors, every stage of the head, loss, gradients.

use std::sync::Arc;

use crate::stored::Golden;
use percept_data::ModelWeights;
use percept_data::masks::Rle;
use percept_data::seeded::{Family, seeded_values};
use percept_engine::{Mode, Options, Program, TrainStep};
use percept_graph::{
    AdamW, Builder, Dim, Graph, LEARNING_RATE, Optimiser, Tensor, Training, differentiate,
};
use percept_kernels::Cpu;
use percept_models::answer::Matches;
use percept_models::omama::{Matcher, Pooling, visible_cross_entropy};
use percept_models::{Settings, zoo};

const D: usize = 768;
/// Two pairs, eight candidates each.
const PAIRS: usize = 2;
const CANDIDATES: usize = 8;
const DEST: [usize; 2] = [98, 126];
const SOURCE: [usize; 2] = [84, 140];
const MARGIN_PX: i64 = 100;

const MATCHER: Matcher = Matcher {
    width: D,
    source_grid: [6, 10],
    dest_grid: [7, 9],
    visibility: false,
};

fn golden() -> Golden {
    Golden::fixture("omama_small")
}

/// Features [N, D, rows, columns] of a stream, as rows of patches [N, T, D].
fn features(stream: &str, [rows, columns]: [usize; 2]) -> Tensor<'static> {
    let patches = rows * columns;
    let map = seeded_values(Family::Vision, stream, &[PAIRS, D, rows, columns]);
    let value = |i: usize| {
        let (pair, patch, channel) = (i / (patches * D), i / D % patches, i % D);
        map[(pair * D + channel) * patches + patch]
    };
    let values = (0..map.len()).map(value).collect::<Vec<f32>>();
    Tensor::from_values([PAIRS, patches, D], values).expect("a value each")
}

fn masks(golden: &Golden, name: &str, [height, width]: [usize; 2]) -> Vec<Rle> {
    let pixels = golden.values(name);
    let of_each = pixels.chunks(height * width);
    of_each
        .map(|pixels| {
            let pixels: Vec<u8> = pixels.iter().map(|&value| value as u8).collect();
            Rle::encode(height, width, &pixels).expect("a mask")
        })
        .collect()
}

fn boxes(golden: &Golden, name: &str) -> Vec<[f32; 4]> {
    golden.values(name).as_chunks().0.to_vec()
}

/// The weights of patches for all pairs, [N, M, 2, T].
fn pool(size: [usize; 2], of_pairs: &[(Vec<Rle>, Vec<[f32; 4]>)]) -> Tensor<'static> {
    let pooling = Pooling::new(size);
    let mut values = Vec::new();
    for (masks, boxes) in of_pairs {
        for (mask, around) in masks.iter().zip(boxes) {
            values.extend(pooling.mask(mask).expect("a mask of this size"));
            values.extend(pooling.surroundings(*around, MARGIN_PX));
        }
    }
    let shape = [of_pairs.len(), of_pairs[0].0.len(), 2, pooling.patches()];
    Tensor::from_values(shape, values).expect("a weight each")
}

/// All inputs of the trained part. Both pairs have the same candidates.
fn inputs(golden: &Golden) -> Vec<(&'static str, Tensor<'static>)> {
    let candidates = (masks(golden, "masks", DEST), boxes(golden, "bbox_xywh"));
    let wanted = masks(golden, "src_masks", SOURCE).into_iter();
    let wanted = wanted.zip(boxes(golden, "src_bbox_xywh"));
    let wanted: Vec<_> = wanted
        .map(|(mask, around)| (vec![mask], vec![around]))
        .collect();
    vec![
        (
            "source_features",
            features("input.omama_small.source", MATCHER.source_grid),
        ),
        (
            "dest_features",
            features("input.omama_small.dest", MATCHER.dest_grid),
        ),
        ("source_pool", pool(SOURCE, &wanted)),
        ("dest_pool", pool(DEST, &[candidates.clone(), candidates])),
    ]
}

fn run(
    graph: Graph,
    mode: Mode,
    inputs: &[(&'static str, Tensor<'static>)],
) -> Vec<(String, Tensor<'static>)> {
    let seeds = MATCHER.graph().expect("the head builds");
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &seeds));
    let options = Options {
        mode,
        ..Options::default()
    };
    let mut program = Program::new(graph, weights, Cpu::new(2).expect("two threads"), options);
    let inputs: Vec<(&str, &Tensor<'_>)> = inputs.iter().map(|(n, t)| (*n, t)).collect();
    program.run(&inputs).expect("the head runs").to_tensors()
}

fn output<'o>(outputs: &'o [(String, Tensor<'static>)], name: &str) -> &'o Tensor<'static> {
    let found = outputs.iter().find(|(known, _)| known == name);
    &found.unwrap_or_else(|| panic!("no output {name}")).1
}

/// The largest difference of two lists, as a share of `scale`.
fn largest_difference(got: &[f32], expected: &[f32], scale: f64) -> f64 {
    assert_eq!(got.len(), expected.len());
    let pairs = got.iter().zip(expected);
    let differences = pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs() / scale);
    differences.fold(0.0, |worst: f64, d| {
        if d.is_nan() {
            f64::INFINITY
        } else {
            worst.max(d)
        }
    })
}

#[test]
fn boxes_around_masks_are_those_of_the_public_system() {
    let golden = golden();
    for (size, given, expected) in [
        (DEST, "bbox_xywh", "ctx_box_xyxy"),
        (SOURCE, "src_bbox_xywh", "src_ctx_box_xyxy"),
    ] {
        let pooling = Pooling::new(size);
        let found: Vec<usize> = boxes(&golden, given)
            .into_iter()
            .flat_map(|around| pooling.context(around, MARGIN_PX))
            .collect();
        assert_eq!(found, golden.indices(expected), "{given}");
    }
}

#[test]
fn every_stage_is_that_of_the_public_system() {
    let golden = golden();
    let inputs = inputs(&golden);
    let stages = [
        ("source_desc", 2e-6),
        ("dest_desc", 2e-6),
        ("Q_context_cross", 1e-5),
        ("T_context_cross", 1e-5),
        ("Q_desc", 1e-5),
        ("T_desc", 1e-5),
        ("similarity", 1e-5),
    ];
    for mode in [Mode::Exact, Mode::Fast] {
        let mut graph = MATCHER.graph().expect("the head builds");
        for (name, _) in stages.iter().filter(|(name, _)| *name != "similarity") {
            let value = graph.find(name).expect("the stage exists");
            graph = graph.with_output(name, value);
        }
        let outputs = run(graph, mode, &inputs);
        for (name, tolerance) in stages {
            let got = output(&outputs, name);
            assert_eq!(Some(got.shape().to_vec()), golden.shape(name), "{name}");
            let worst = largest_difference(&got.to_f32(), &golden.values(name), 1.0);
            println!("{mode:?} {name}: {worst:.2e}");
            assert!(worst <= tolerance, "{mode:?} {name}: {worst:.3e}");
        }
        let similarity = output(&outputs, "similarity").to_f32().into_owned();
        let best: Vec<usize> = similarity
            .chunks(CANDIDATES)
            .map(|row| Matches::rank(row, 0.5).ranked[0].candidate)
            .collect();
        assert_eq!(best, golden.indices("best_masks"));
    }
}

/// The trained part with its loss, and with inputs for what is right.
fn with_loss() -> (Graph, percept_graph::ValueId) {
    let graph = MATCHER.graph().expect("the head builds");
    let similarity = graph.find("similarity").expect("its output");
    let mut b = Builder::resume(graph);
    let position = b.integer_input("position", [Dim::symbol("N")]);
    let visible = b.input("visible", [Dim::symbol("N")]);
    let loss = visible_cross_entropy(&mut b, "loss", similarity, position, visible);
    b.output("loss", loss);
    (b.finish().expect("the loss fits"), loss)
}

fn with_truth(golden: &Golden) -> Vec<(&'static str, Tensor<'static>)> {
    let mut inputs = inputs(golden);
    let position: Vec<i32> = golden.indices("pos").iter().map(|&p| p as i32).collect();
    let position = Tensor::from_values([PAIRS], position).expect("one each");
    let visible = Tensor::from_values([PAIRS], golden.values("vis")).expect("one each");
    inputs.extend([("position", position), ("visible", visible)]);
    inputs
}

#[test]
fn loss_and_gradients_are_those_of_the_public_system() {
    let golden = golden();
    let (graph, loss) = with_loss();
    let graph = graph.in_training();
    let states: Vec<_> = graph.states().to_vec();
    let wrt: Vec<_> = states.iter().map(|state| state.value).collect();
    let result = differentiate(graph, loss, &wrt).expect("every op has a gradient");
    let mut graph = result.graph;
    for state in &states {
        if let Some(&gradient) = result.gradients.get(&state.value) {
            graph = graph.with_output(&format!("grad.{}", state.name), gradient);
        }
    }
    let outputs = run(graph, Mode::Exact, &with_truth(&golden));
    let loss = output(&outputs, "loss").to_f32()[0];
    let expected = golden.values("loss")[0];
    assert!(
        (loss - expected).abs() <= 1e-5 * expected.abs().max(1.0),
        "{loss} {expected}"
    );
    let mut compared = 0;
    for (name, got) in outputs.iter().filter(|(name, _)| name.starts_with("grad.")) {
        assert_eq!(
            got.shape(),
            golden.indices(&format!("{name}.shape")),
            "{name}"
        );
        let got = got.to_f32();
        let largest = got.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
        let sampled: Vec<f32> = golden
            .indices(&format!("{name}.idx"))
            .into_iter()
            .map(|index| got[index])
            .collect();
        let expected = golden.values(&format!("{name}.val"));
        let worst = largest_difference(&sampled, &expected, largest);
        println!("{name}: {worst:.2e} of {largest:.2e}");
        assert!(worst <= 1e-4, "{name}: {worst:.3e}");
        compared += 1;
    }
    // All but the bias of the keys, which nothing reads: its gradient is zero.
    assert_eq!(compared, 23);
}

#[test]
fn both_views_share_one_backbone() {
    let build = |settings: &[&str]| {
        let settings = Settings::parse(settings.iter().copied()).expect("settings parse");
        zoo::build("omama", &settings).expect("it builds").graph
    };
    let graph = build(&[]);
    let count = |prefix: &str| -> usize {
        let params = graph.params().iter();
        let of = params.filter(|param| param.name.starts_with(prefix));
        of.map(|param| param.shape.iter().product::<usize>()).sum()
    };
    assert_eq!(count("backbone."), 86_583_552);
    assert_eq!(count("head."), 11_812_994);
    assert_eq!(graph.parameter_count(), 86_583_552 + 11_812_994);
    let of = |graph: &Graph, name: &str| {
        let found = graph.params().iter().find(|param| param.name == name);
        found.expect("a position embedding").shape.clone()
    };
    assert_eq!(of(&graph, "head.pos_embed_T"), [1, 2500, 768]);
    assert_eq!(of(&graph, "head.pos_embed_Q"), [1, 2584, 768]);
    let turned = build(&["direction=ego-to-exo"]);
    assert_eq!(of(&turned, "head.pos_embed_T"), [1, 2584, 768]);
}

#[test]
fn five_steps_of_adamw_are_those_of_the_public_training() {
    let (golden, after) = (golden(), Golden::fixture("omama_train5"));
    let training = Training {
        optimiser: Optimiser::AdamW(AdamW::default()),
        clip_norm: None,
    };
    let (graph, _) = with_loss();
    let step = training.graph(graph, "loss", |_| true);
    let step = step.expect("every op has a gradient");
    let seeds = MATCHER.graph().expect("the head builds");
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &seeds));
    let options = Options {
        mode: Mode::Exact,
        ..Options::default()
    };
    let cpu = Cpu::new(2).expect("two threads");
    let mut step = TrainStep::new(step, weights, cpu, options).expect("the step fits");
    let inputs = with_truth(&golden);
    let (losses, rates) = (after.values("losses"), after.values("lrs"));
    assert_eq!(losses.len(), 5);
    for (expected, rate) in losses.iter().zip(rates) {
        let rate = Tensor::scalar(rate);
        let mut inputs: Vec<(&str, &Tensor<'_>)> = inputs.iter().map(|(n, t)| (*n, t)).collect();
        inputs.push((LEARNING_RATE, &rate));
        let outputs = step.step(&inputs).expect("the step runs").to_tensors();
        let loss = output(&outputs, "loss").to_f32()[0];
        assert!(
            (loss - expected).abs() <= 1e-5 * expected.max(1.0),
            "{loss} {expected}"
        );
    }
    let names: Vec<String> = step.state_names().map(str::to_owned).collect();
    let mut compared = 0;
    for name in names {
        let stored = format!("after5.{name}");
        if after.shape(&format!("{stored}.idx")).is_none() {
            continue;
        }
        let got = step
            .state(&name)
            .expect("a parameter")
            .to_f32()
            .into_owned();
        let indices = after.indices(&format!("{stored}.idx"));
        let sampled: Vec<f32> = indices.into_iter().map(|index| got[index]).collect();
        let worst = largest_difference(&sampled, &after.values(&format!("{stored}.val")), 1.0);
        println!("{name}: {worst:.2e}");
        // A step moves a weight by 8e-5 at most.
        assert!(worst <= 1e-6, "{name}: {worst:.3e}");
        compared += 1;
    }
    assert!(compared >= 23, "{compared}");
}
