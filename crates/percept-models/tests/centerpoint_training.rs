//! CenterPoint's targets and losses against OpenPCDet's, and the gradients of the whole network.
//!
//! The fixture holds the 52 boxes of a real keyframe with OpenPCDet's targets, and boxes in the range of the generated
//! cloud with losses that numpy computed in f64 by the same rules (heads that the other fixture lacks are zero).

use std::sync::Arc;

use crate::stored::{Golden, shared};
use percept_data::ModelWeights;
use percept_data::seeded::Family;
use percept_engine::{Mode, Options, Program, run_reference};
use percept_graph::{Graph, Tensor, ValueId, differentiate};
use percept_kernels::Cpu;
use percept_models::centerpoint::{
    BOX_VALUES, BRANCHES, CenterPoint, HEADS, TRUE_BOX_COUNTS, TRUE_BOXES, Widths,
};

const FIXTURE: &str = "centerpoint_targets";

/// The range of the generated cloud.
const SYNTH: CenterPoint = CenterPoint {
    range_m: 12.0,
    ..CenterPoint::FINE
};

fn tensor(shape: &[usize], values: Vec<f32>) -> Tensor<'static> {
    Tensor::from_values(shape, values).expect("as many values as the shape says")
}

fn counts(counts: &[i32]) -> Tensor<'static> {
    Tensor::from_values([counts.len()], counts.to_vec()).expect("a list")
}

/// The points of some samples, rows of five values, as the network takes them.
fn inputs(samples: &[&[f32]]) -> [(&'static str, Tensor<'static>); 2] {
    let width = CenterPoint::POINT_CHANNELS;
    let rows: Vec<i32> = samples.iter().map(|s| (s.len() / width) as i32).collect();
    let points = samples.concat();
    let points = tensor(&[points.len() / width, width], points);
    [("points", points), ("counts", counts(&rows))]
}

fn true_boxes(values: Vec<f32>) -> Tensor<'static> {
    tensor(&[values.len() / BOX_VALUES, BOX_VALUES], values)
}

/// Runs a graph with seeded weights of the network that it was made from, and hands out everything by name.
fn run(
    graph: Graph,
    network: &Graph,
    given: &[(&str, Tensor<'_>)],
) -> impl Fn(&str) -> Vec<f32> + use<> {
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, network));
    let options = Options {
        mode: Mode::Exact,
        ..Options::default()
    };
    let mut program = Program::new(graph, weights, Cpu::new(2).expect("two threads"), options);
    let given: Vec<(&str, &Tensor<'_>)> = given.iter().map(|(name, t)| (*name, t)).collect();
    let outputs = program.run(&given).expect("it runs").to_tensors();
    move |name| {
        let found = outputs.iter().find(|(output, _)| output == name);
        let (_, tensor) = found.unwrap_or_else(|| panic!("no output {name}"));
        tensor.to_f32().into_owned()
    }
}

/// The loss graph of a network with targets and each head's terms as outputs.
fn loss_graph(network: &CenterPoint) -> Graph {
    let grid = network.grid().expect("a grid");
    let mut graph = network.loss_graph(&grid).expect("the loss builds");
    for head in 0..HEADS.len() {
        for name in ["heat", "box"] {
            let value = graph.find(&format!("loss.{head}.{name}")).expect("a term");
            graph = graph.with_output(&format!("{name}{head}"), value);
        }
        let node = graph.nodes().iter();
        let mut node = node.filter(|node| node.name == format!("targets.{head}"));
        let outputs = node.next().expect("targets").outputs.clone();
        for (name, value) in ["target.heat", "target.cells", "target.codes"]
            .iter()
            .zip(outputs)
        {
            graph = graph.with_output(&format!("{name}{head}"), value);
        }
    }
    graph
}

/// Runs the loss graph, which has no weights.
fn run_loss(
    network: &CenterPoint,
    given: &[(&str, Tensor<'_>)],
) -> impl Fn(&str) -> Vec<f32> + use<> {
    let graph = loss_graph(network);
    run(graph.clone(), &graph, given)
}

/// The maps of all heads from `golden`, zero where it has none.
fn heads(golden: &Golden, side: usize) -> Vec<(String, Tensor<'static>)> {
    let mut maps = Vec::new();
    for (head, classes) in HEADS.iter().enumerate() {
        for (name, channels) in BRANCHES.into_iter().chain([("hm", classes.len())]) {
            let stored = format!("head{head}.{name}.full");
            let values = match golden.shape(&stored) {
                Some(_) => golden.values(&stored),
                None => vec![0.0; channels * side * side],
            };
            let map = tensor(&[1, channels, side, side], values);
            maps.push((format!("head{head}.{name}"), map));
        }
    }
    maps
}

fn near(what: &str, found: f32, expected: f32, relative: f64) {
    let (found, expected) = (f64::from(found), f64::from(expected));
    let error = (found - expected).abs() / expected.abs().max(1e-3);
    assert!(
        error <= relative,
        "{what}: {found}, expected {expected} ({error:.1e})"
    );
}

#[test]
fn targets_are_those_of_openpcdet() {
    let golden = Golden::fixture(FIXTURE);
    let boxes = golden.values("keyframe.boxes");
    let side = 180;
    let mut given: Vec<(&str, Tensor<'_>)> = vec![
        (
            TRUE_BOX_COUNTS,
            counts(&[(boxes.len() / BOX_VALUES) as i32]),
        ),
        (TRUE_BOXES, true_boxes(boxes)),
    ];
    let maps = heads(&golden, side);
    given.extend(
        maps.iter()
            .map(|(name, map)| (name.as_str(), map.borrowed())),
    );
    let output = run_loss(&CenterPoint::FINE, &given);
    for (head, classes) in HEADS.iter().enumerate() {
        let stored = |part: &str| format!("keyframe.target{head}.{part}");
        let mut heat = vec![0.0; classes.len() * side * side];
        let places = golden.indices(&stored("heat.idx"));
        for (place, value) in places.into_iter().zip(golden.values(&stored("heat.val"))) {
            heat[place] = value;
        }
        let found = output(&format!("target.heat{head}"));
        assert_eq!(found.len(), heat.len());
        for (found, expected) in found.iter().zip(&heat) {
            assert!(
                (found - expected).abs() <= 1e-6,
                "{found}, expected {expected}"
            );
        }
        let cells = golden.indices(&stored("cells"));
        let cells: Vec<f32> = cells.iter().flat_map(|&cell| [0.0, cell as f32]).collect();
        assert_eq!(output(&format!("target.cells{head}")), cells);
        let codes = golden.values(&stored("codes"));
        let found = output(&format!("target.codes{head}"));
        assert_eq!(found.len(), codes.len());
        for (found, expected) in found.iter().zip(&codes) {
            assert!(
                (found - expected).abs() <= 1e-6,
                "{found}, expected {expected}"
            );
        }
    }
}

#[test]
fn losses_are_those_of_numpy() {
    let golden = Golden::fixture(FIXTURE);
    let boxes = golden.values("synth.boxes");
    let maps = heads(&Golden::fixture("centerpoint_synth_heads"), 40);
    let mut given: Vec<(&str, Tensor<'_>)> = vec![
        (
            TRUE_BOX_COUNTS,
            counts(&[(boxes.len() / BOX_VALUES) as i32]),
        ),
        (TRUE_BOXES, true_boxes(boxes)),
    ];
    given.extend(
        maps.iter()
            .map(|(name, map)| (name.as_str(), map.borrowed())),
    );
    let output = run_loss(&SYNTH, &given);
    for term in ["heat", "box"] {
        let expected = golden.values(&format!("synth.loss.{term}"));
        for (head, &expected) in expected.iter().enumerate() {
            let name = format!("{term}{head}");
            near(&name, output(&name)[0], expected, 1e-5);
        }
        near(term, output(term)[0], expected.iter().sum(), 1e-5);
    }
}

#[test]
fn losses_of_the_keyframe_are_those_of_openpcdet() {
    let Some(folder) = shared("golden/centerpoint") else {
        return;
    };
    let golden = Golden::open(&folder.join("keyframe_v0075.safetensors"));
    let mut boxes = golden.values("gt_boxes_x_y_z_dx_dy_dz_yaw_vx_vy_label1");
    for object in boxes.chunks_exact_mut(BOX_VALUES) {
        object[9] -= 1.0;
    }
    let network = CenterPoint::FINE;
    let truth = [
        (
            TRUE_BOX_COUNTS,
            counts(&[(boxes.len() / BOX_VALUES) as i32]),
        ),
        (TRUE_BOXES, true_boxes(boxes)),
    ];
    let check = |output: &dyn Fn(&str) -> Vec<f32>, per_head: bool, tolerance: f64| {
        for (term, stored) in [("heat", "loss.hm_per_head"), ("box", "loss.loc_per_head")] {
            let expected = golden.values(stored);
            for (head, &expected) in expected.iter().enumerate().filter(|_| per_head) {
                let name = format!("{term}{head}");
                near(&name, output(&name)[0], expected, tolerance);
            }
            near(term, output(term)[0], expected.iter().sum(), tolerance);
        }
        near(
            "total",
            output("loss")[0],
            golden.values("loss.total")[0],
            tolerance,
        );
    };
    let maps = heads(&golden, 180);
    let mut given = truth.to_vec();
    given.extend(
        maps.iter()
            .map(|(name, map)| (name.as_str(), map.borrowed())),
    );
    check(&run_loss(&network, &given), true, 1e-5);

    let points = golden.values("points_raw");
    let sample = inputs(&[&points]);
    let grid = network.grid().expect("a grid");
    let mut given = truth.to_vec();
    given.extend(sample.iter().map(|(name, t)| (*name, t.borrowed())));
    let graph = network.training_graph(&grid).expect("the network builds");
    check(&run(graph.clone(), &graph, &given), false, 1e-4);
}

/// A network small enough for the reference engine.
const TINY: CenterPoint = CenterPoint {
    range_m: 3.2,
    voxel_m: [0.2, 0.2, 0.2],
    widths: Widths {
        stages: [4, 4, 6, 6],
        blocks: 1,
        map: [6, 8],
        map_depth: 1,
        map_out: 4,
        head: 4,
    },
    ..CenterPoint::FINE
};

/// Two samples of a few points each, with boxes in the first.
fn tiny_batch(
    points: [usize; 2],
    boxes: &[[f32; BOX_VALUES]],
) -> Vec<(&'static str, Tensor<'static>)> {
    let cloud = |sample: usize, count: usize| -> Vec<f32> {
        let value = |i: usize, channel: usize| {
            let turn = ((i * 37 + channel * 101 + sample * 53) % 97) as f32 / 97.0;
            match channel {
                0 | 1 => 6.0 * turn - 3.0,
                2 => 3.0 * turn - 2.0,
                3 => 10.0 * turn,
                _ => 0.1 * turn,
            }
        };
        (0..count * 5).map(|at| value(at / 5, at % 5)).collect()
    };
    let samples = [0, 1].map(|sample| cloud(sample, points[sample]));
    let given = inputs(&[&samples[0], &samples[1]]);
    let mut batch: Vec<(&'static str, Tensor<'static>)> = given.into_iter().collect();
    batch.push((TRUE_BOXES, true_boxes(boxes.concat())));
    batch.push((TRUE_BOX_COUNTS, counts(&[boxes.len() as i32, 0])));
    batch
}

const TINY_BOXES: [[f32; BOX_VALUES]; 3] = [
    [1.0, 0.5, -1.0, 4.0, 1.8, 1.5, 0.3, 2.0, 0.5, 0.0],
    [-1.5, 1.5, -0.5, 0.7, 0.6, 1.8, 1.0, f32::NAN, f32::NAN, 8.0],
    [-1.0, -2.0, -0.5, 0.4, 0.4, 1.0, 0.0, 0.0, 0.0, 9.0],
];

/// The training graph, and the same with the gradient of every parameter as an output.
fn with_gradients(network: &CenterPoint) -> [Graph; 2] {
    let grid = network.grid().expect("a grid");
    let plain = network.training_graph(&grid).expect("the network builds");
    let graph = plain.clone().in_training();
    let loss = graph.outputs().iter().find(|(name, _)| name == "loss");
    let loss = loss.expect("there is a loss").1;
    let states: Vec<_> = graph.states().to_vec();
    let wrt: Vec<ValueId> = states.iter().map(|state| state.value).collect();
    let result = differentiate(graph, loss, &wrt).expect("every op has a gradient");
    let mut graph = result.graph;
    for state in states {
        if let Some(&gradient) = result.gradients.get(&state.value) {
            graph = graph.with_output(&format!("grad.{}", state.name), gradient);
        }
    }
    [plain, graph]
}

#[test]
fn the_whole_gradient_in_f32_is_that_in_f64() {
    let [plain, graph] = with_gradients(&TINY);
    let batch = tiny_batch([400, 300], &TINY_BOXES);
    let given: Vec<(&str, &Tensor<'_>)> = batch.iter().map(|(name, t)| (*name, t)).collect();
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &plain));
    let exact = run_reference::<f64>(&graph, weights.as_ref(), &given).expect("f64 runs");
    let options = Options {
        mode: Mode::Exact,
        ..Options::default()
    };
    let mut program = Program::new(graph, weights, Cpu::new(2).expect("two threads"), options);
    let fast = program.run(&given).expect("f32 runs").to_tensors();
    let magnitude = |values: &[f64]| values.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let all = exact.iter().map(|(_, tensor)| magnitude(&tensor.data));
    // Biases in front of a batch norm have no gradient but rounding.
    let nothing = 1e-3 * all.fold(0.0, f64::max);
    let mut gradients = 0;
    for (name, found) in &fast {
        let (_, expected) = exact.iter().find(|(n, _)| n == name).expect("both have it");
        let largest = magnitude(&expected.data);
        let differences = found
            .to_f64()
            .iter()
            .zip(&expected.data)
            .map(|(a, b)| a - b)
            .collect::<Vec<_>>();
        assert!(differences.iter().all(|d| d.is_finite()), "{name}");
        let worst = magnitude(&differences);
        assert!(
            worst <= 2e-3 * largest.max(nothing),
            "{name}: {worst:.2e} of {largest:.2e}"
        );
        gradients += usize::from(name.starts_with("grad.") && largest > nothing);
    }
    println!("{gradients} gradients");
    assert!(
        gradients > 50,
        "{gradients} gradients that are not rounding"
    );
}

#[test]
fn batches_without_boxes_or_points_can_be_learned_from() {
    for (points, boxes) in [
        ([400, 300], &[][..]),
        ([400, 0], &TINY_BOXES[..]),
        ([0, 0], &TINY_BOXES[..]),
    ] {
        let [plain, graph] = with_gradients(&TINY);
        let output = run(graph, &plain, &tiny_batch(points, boxes));
        assert!(output("loss")[0].is_finite(), "{points:?}");
        let gradient = output("grad.dense_head.heads_list.0.hm.1.bias");
        assert!(
            gradient[0].is_finite() && gradient[0] != 0.0,
            "{points:?}: {gradient:?}"
        );
        let gradient = output("grad.backbone_3d.conv_input.0.weight");
        assert!(gradient.iter().all(|v| v.is_finite()), "{points:?}");
    }
}
