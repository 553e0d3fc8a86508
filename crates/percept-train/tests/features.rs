//! What is cut off gives the same bits as the whole network, from the disk or computed, for more than one network.

use std::sync::Arc;

use percept_data::seeded::{Family, seeded_values};
use percept_data::{Example, ModelWeights};
use percept_engine::{Options, Program, TrainStep};
use percept_graph::{
    FrozenCut, Graph, LEARNING_RATE, Optimiser, Sgd, Tensor, Training, WeightSource,
};
use percept_kernels::Cpu;
use percept_models::lesson::Lesson;
use percept_models::{LessonOptions, Model, Settings, zoo};
use percept_train::features::{FeatureOptions, FeatureType, Features};

fn network(name: &str, set: &[&str]) -> Model {
    let settings = Settings::parse(set).expect("settings");
    zoo::build(name, &settings).expect("a network")
}

fn weights(model: &Model) -> Arc<dyn WeightSource> {
    Arc::new(ModelWeights::seeded(model.family, &model.graph))
}

fn noise(name: &str, shape: &[usize]) -> Tensor<'static> {
    let values = seeded_values(Family::Vision, &format!("input.{name}"), shape);
    Tensor::from_values(shape, values).expect("a number each")
}

fn options(folder: Option<&std::path::Path>, kind: FeatureType) -> FeatureOptions {
    FeatureOptions {
        folder: folder.map(Into::into),
        limit_bytes: 1 << 30,
        kind,
        threads: 2,
    }
}

/// All outputs of a graph for some tensors, by name.
fn run(graph: &Graph, weights: &Arc<dyn WeightSource>, tensors: &Example) -> Vec<Tensor<'static>> {
    let cpu = Cpu::new(2).expect("two threads");
    let mut program = Program::new(graph.clone(), Arc::clone(weights), cpu, Options::default());
    let inputs: Vec<(&str, &Tensor<'_>)> = graph
        .inputs()
        .iter()
        .map(|input| {
            (
                input.name.as_str(),
                tensors.get(&input.name).expect("an input"),
            )
        })
        .collect();
    let outputs = program.run(&inputs).expect("it runs").to_tensors();
    outputs.into_iter().map(|(_, tensor)| tensor).collect()
}

/// The samples of a batch with their features, put together again.
fn completed(features: &Features, batch: &Example) -> Example {
    let samples = (0..batch.samples).map(|sample| {
        let tensors = batch.tensors.iter().map(|(name, tensor)| {
            let mut shape = tensor.shape().to_vec();
            let row = tensor.bytes().len() / shape[0];
            shape[0] = 1;
            let bytes = tensor.bytes()[sample * row..][..row].to_vec();
            let one = Tensor::new(tensor.dtype(), shape, bytes).expect("a row");
            (name.clone(), one)
        });
        let mut one = Example::of_one(tensors);
        features.complete(&mut one).expect("features");
        one
    });
    Example::batch(samples.collect()).expect("a batch")
}

#[test]
fn a_classifier_cut_behind_frozen_stages_gives_the_same_bits() {
    let model = network("resnet18", &["classes=7", "width=8", "stem=half"]);
    let weights = weights(&model);
    let frozen = ["conv1", "bn1", "layer1", "layer2"];
    let trains = |name: &str| !frozen.iter().any(|module| name.starts_with(module));
    let cut = model.graph.cut_frozen(&["image"], trains).expect("a cut");
    assert!(cut.rest.nodes().len() < model.graph.nodes().len());
    let params = cut.rest.params().iter();
    assert!(params.map(|param| &param.name).all(|name| trains(name)));
    // One picture: convolutions of a batch may take other algorithms, which round differently.
    let batch = Example {
        samples: 1,
        tensors: vec![("image".to_owned(), noise("image", &[1, 3, 40, 56]))],
    };
    let features = Features::new(
        std::slice::from_ref(&cut),
        &weights,
        &options(None, FeatureType::F32),
    );
    let tensors = completed(&features.expect("features"), &batch);
    assert!(
        tensors.get("image").is_none(),
        "nothing reads the picture any more"
    );
    assert!(run(&cut.rest, &weights, &tensors) == run(&model.graph, &weights, &batch));
}

/// O-MaMa with its lesson, and a batch of two pairs in small pictures.
fn omama() -> (Model, Arc<dyn Lesson>, Example) {
    let model = network("omama-small", &[]);
    let model = model.sized(Some("source"), [42, 56]).expect("a size");
    let model = model.sized(Some("dest"), [56, 42]).expect("a size");
    let course = zoo::find("omama-small")
        .expect("an entry")
        .course
        .expect("a course");
    let options = LessonOptions::default();
    let lesson = (course.lesson)(&model, &options).expect("a lesson");
    let batch = lesson.rehearsal(2).expect("a batch");
    (model, lesson, batch)
}

fn is_trained(name: &str) -> bool {
    !name.starts_with("backbone")
}

fn cut(graph: &Graph, lesson: &dyn Lesson) -> FrozenCut {
    graph
        .cut_frozen(&lesson.recurring(), is_trained)
        .expect("a cut")
}

#[test]
fn o_mama_on_kept_features_gives_the_same_bits_and_halves_nearly_the_same() {
    let (model, lesson, batch) = omama();
    let weights = weights(&model);
    let folder = tempfile::tempdir().expect("a folder");
    let graph = lesson.inference();
    let cut = cut(&graph, &*lesson);
    let whole = run(&graph, &weights, &batch);
    // The second time everything comes from the disk; another process would find it too.
    for hits in [0, 4] {
        let kept = options(Some(folder.path()), FeatureType::F32);
        let features =
            Features::new(std::slice::from_ref(&cut), &weights, &kept).expect("features");
        let tensors = completed(&features, &batch);
        assert!(run(&cut.rest, &weights, &tensors) == whole);
        let counters = features.counters();
        assert_eq!((counters.disk.hits, counters.computed), (hits, 4 - hits));
    }
    let halves = options(Some(folder.path()), FeatureType::F16);
    for _ in 0..2 {
        let features =
            Features::new(std::slice::from_ref(&cut), &weights, &halves).expect("features");
        let rounded = run(&cut.rest, &weights, &completed(&features, &batch));
        for (rounded, whole) in rounded.iter().zip(&whole) {
            let (rounded, whole) = (rounded.to_f64(), whole.to_f64());
            let mut pairs = rounded.iter().zip(whole.iter());
            assert!(pairs.all(|(a, b)| (a - b).abs() < 5e-3));
        }
    }
    // Other weights are another content.
    let other: Arc<dyn WeightSource> = Arc::new(ModelWeights::seeded(Family::Lcpr, &model.graph));
    let kept = options(Some(folder.path()), FeatureType::F32);
    let features = Features::new(&[cut], &other, &kept).expect("features");
    completed(&features, &batch);
    assert_eq!(features.counters().disk.hits, 0);
}

#[test]
fn a_training_step_on_features_moves_the_head_as_the_whole_network_would() {
    let (model, lesson, batch) = omama();
    let weights = weights(&model);
    let training = Training {
        optimiser: Optimiser::Sgd(Sgd::default()),
        clip_norm: None,
    };
    let whole = lesson.graphs().remove(0);
    let cut = cut(&whole.graph, &*lesson);
    let features = Features::new(
        std::slice::from_ref(&cut),
        &weights,
        &options(None, FeatureType::F32),
    );
    let tensors = completed(&features.expect("features"), &batch);
    let rate = Tensor::scalar(0.1f32);
    let mut steps = Vec::new();
    for (graph, tensors) in [(whole.graph, &batch), (cut.rest, &tensors)] {
        let graph = training
            .graph(graph, whole.loss, is_trained)
            .expect("a step");
        let inputs: Vec<(String, &Tensor<'_>)> = graph
            .inputs()
            .iter()
            .map(|input| match input.name.as_str() {
                LEARNING_RATE => (input.name.clone(), &rate),
                name => (input.name.clone(), tensors.get(name).expect("an input")),
            })
            .collect();
        let given: Vec<(&str, &Tensor<'_>)> =
            inputs.iter().map(|(n, t)| (n.as_str(), *t)).collect();
        let cpu = Cpu::new(2).expect("two threads");
        let mut step = TrainStep::new(graph.clone(), Arc::clone(&weights), cpu, Options::default())
            .expect("a step");
        for _ in 0..2 {
            step.step(&given).expect("it runs");
        }
        steps.push(step);
    }
    let [whole, cut] = &mut steps[..] else {
        panic!("two steps")
    };
    let names: Vec<String> = cut.state_names().map(str::to_owned).collect();
    assert!(names.iter().all(|name| is_trained(name)) && names.len() > 20);
    // In a training graph weights are values, which fold into nothing, so the backbone rounds differently there.
    for name in names {
        let (whole, cut) = (whole.state(&name).unwrap(), cut.state(&name).unwrap());
        let (whole, cut) = (whole.to_f64(), cut.to_f64());
        let mut pairs = whole.iter().zip(cut.iter());
        assert!(
            pairs.all(|(a, b)| (a - b).abs() < 1e-4 * (1.0 + a.abs())),
            "{name}"
        );
    }
}
