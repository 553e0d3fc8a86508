//! The lean form against the plain one.

use std::collections::BTreeMap;
use std::sync::Arc;

use percept_engine::{Memory, Mode, Program};
use percept_graph::{Builder, Dim, Graph, Tensor, ValueId, differentiate};
use percept_kernels::Cpu;
use percept_models::randlanet::{Cloud, inputs, weighted_cross_entropy};

use super::gradients::Moved;
use super::{
    VARIANTS, cloud, compare, in_order, logits, logits_of, networks, options, rows, small,
};
use crate::stored::Golden;

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
