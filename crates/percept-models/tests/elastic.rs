//! Elastic networks: a part of one set of weights, sliced, extracted, measured anew; for any network.

use std::collections::BTreeMap;
use std::sync::Arc;

use percept_data::seeded::{Seeded, seeded_values};
use percept_data::{MemoryWeights, ModelWeights, Sliced, TensorSource as _};
use percept_engine::{Mode, Options, Program, Recalibration};
use percept_graph::{Graph, GraphError, Slicing, Tensor, WeightSource};
use percept_kernels::Cpu;
use percept_models::{Model, Settings, zoo};

fn model(name: &str, settings: &[&str]) -> Model {
    zoo::build(name, &Settings::parse(settings).unwrap()).unwrap()
}

fn sliced(model: &Model) -> Sliced<Seeded> {
    let whole = model.whole.as_ref().unwrap();
    let slicing = Slicing::between(whole, &model.graph).unwrap();
    Sliced::new(Seeded::of(model.family, whole), slicing)
}

fn inputs(model: &Model, samples: usize) -> Vec<(&'static str, Tensor<'static>)> {
    let shapes = model.input_shapes(samples).into_iter();
    shapes
        .map(|(name, shape)| {
            let values = seeded_values(model.family, &format!("input.{name}"), &shape);
            (name, Tensor::from_values(shape, values).unwrap())
        })
        .collect()
}

fn exact() -> Options {
    Options {
        mode: Mode::Exact,
        ..Options::default()
    }
}

fn run(
    graph: &Graph,
    weights: Arc<dyn WeightSource>,
    inputs: &[(&'static str, Tensor<'static>)],
    options: Options,
) -> Vec<f32> {
    let inputs: Vec<(&str, &Tensor<'_>)> = inputs.iter().map(|(n, t)| (*n, t)).collect();
    let mut program = Program::new(graph.clone(), weights, Cpu::new(2).unwrap(), options);
    let outputs = program.run(&inputs).unwrap().to_tensors();
    outputs[0].1.to_f32().into_owned()
}

fn checked(
    source: impl percept_data::TensorSource + 'static,
    graph: &Graph,
) -> Arc<dyn WeightSource> {
    Arc::new(ModelWeights::of(Box::new(source), graph).unwrap().0)
}

/// Channels that a slice leaves out are as good as channels that are always zero.
#[test]
fn a_sliced_resnet18_is_the_whole_one_with_dead_channels() {
    let narrow = model("resnet18", &["width=16", "stem=half", "widths=1,2,3,4"]);
    let whole = model("resnet18", &["width=16", "stem=half"]);
    let input = inputs(&narrow, 1);
    let got = run(
        &narrow.graph,
        checked(sliced(&narrow), &narrow.graph),
        &input,
        exact(),
    );

    let seeded = Seeded::of(whole.family, &whole.graph);
    let mut dead: BTreeMap<String, Tensor<'static>> = BTreeMap::new();
    for param in whole.graph.params() {
        let mut values = seeded.read_f32(&param.name).unwrap().into_owned();
        // bn1 of a block closes its inner channels: without weight and bias they stay zero.
        let stage = param
            .name
            .strip_prefix("layer")
            .and_then(|rest| rest[..1].parse::<usize>().ok());
        if let Some(stage) = stage
            && (param.name.ends_with("bn1.weight") || param.name.ends_with("bn1.bias"))
        {
            let kept = values.len() * stage / 4;
            values[kept..].fill(0.0);
        }
        let tensor = Tensor::from_values(param.shape.clone(), values).unwrap();
        dead.insert(param.name.clone(), tensor);
    }
    let dead = MemoryWeights::new("dead channels", dead);
    let expected = run(&whole.graph, checked(dead, &whole.graph), &input, exact());
    let largest = expected.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    for (got, expected) in got.iter().zip(&expected) {
        assert!((got - expected).abs() <= 1e-4 * largest, "{got} {expected}");
    }
    assert!(narrow.graph.parameter_count() < whole.graph.parameter_count());
}

/// What `elastic extract` writes, in memory.
fn extracted(model: &Model) -> MemoryWeights<'static> {
    let source = sliced(model);
    let tensors = model.graph.params().iter().map(|param| {
        let values = source.read_f32(&param.name).unwrap().into_owned();
        let tensor = Tensor::from_values(param.shape.clone(), values).unwrap();
        (param.name.clone(), tensor)
    });
    MemoryWeights::new("extracted", tensors.collect::<Vec<_>>())
}

#[test]
fn a_slice_equals_its_extraction_bit_for_bit() {
    for settings in [
        &["granularity=2,2/3,1/4,4/1,2"][..],
        &[
            "granularity=1,4/2,3/3,2/4,1",
            "stages=3,1,4,2",
            "head=2,3,1",
        ],
    ] {
        let part = model("lcpr-small", settings);
        let input = inputs(&part, 2);
        for options in [exact(), Options::default()] {
            let slice = run(
                &part.graph,
                checked(sliced(&part), &part.graph),
                &input,
                options,
            );
            // Weights of the part's own shapes are taken as they are.
            let whole = part.whole.as_ref().unwrap();
            let slicing = Slicing::between(whole, &part.graph).unwrap();
            let own = Sliced::new(extracted(&part), slicing);
            let extraction = run(&part.graph, checked(own, &part.graph), &input, options);
            assert!(
                slice
                    .iter()
                    .zip(&extraction)
                    .all(|(a, b)| a.to_bits() == b.to_bits())
            );
            let length: f32 = slice.iter().map(|v| v * v).sum();
            assert!((length - 2.0).abs() < 1e-4, "two rows of length one");
        }
    }
}

#[test]
fn measured_statistics_are_those_of_the_batch() {
    let part = model("resnet18", &["width=8", "stem=half", "widths=4,2,4,4"]);
    let input = inputs(&part, 4);
    let weights = checked(sliced(&part), &part.graph);
    let first = part
        .graph
        .nodes()
        .iter()
        .find(|n| n.name == "layer2.0.conv1")
        .unwrap();
    let cpu = Cpu::new(2).unwrap();
    let mut measured =
        Recalibration::new(&part.graph, first.id, Arc::clone(&weights), cpu, exact()).unwrap();
    let named: Vec<(&str, &Tensor<'_>)> = input.iter().map(|(n, t)| (*n, t)).collect();
    measured.add(&named).unwrap();
    measured.add(&named).unwrap();
    let statistics: BTreeMap<String, Vec<f32>> = measured.statistics().into_iter().collect();
    // What stands in front of the first narrowed layer keeps its own.
    assert!(!statistics.contains_key("layer1.0.bn1.running_mean"));
    let mut tapped = part.graph.clone();
    let conv = tapped.find("layer2.0.conv1").unwrap();
    tapped = tapped.with_output("conv", conv);
    let mut program = Program::new(tapped, weights, Cpu::new(2).unwrap(), exact());
    let outputs = program.run(&named).unwrap().to_tensors();
    let conv = &outputs.iter().find(|(name, _)| name == "conv").unwrap().1;
    let [samples, channels, h, w] = *conv.shape() else {
        panic!("a map")
    };
    let values = conv.to_f64();
    for channel in 0..channels {
        let own: Vec<f64> = (0..samples)
            .flat_map(|n| &values[(n * channels + channel) * h * w..][..h * w])
            .copied()
            .collect();
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        let square: f64 = own.iter().map(|v| (v - mean).powi(2)).sum();
        let variance = square / (own.len() - 1) as f64;
        let got = |buffer: &str| f64::from(statistics[&format!("layer2.0.bn1.{buffer}")][channel]);
        assert!((got("running_mean") - mean).abs() < 1e-4 * (1.0 + mean.abs()));
        assert!((got("running_var") - variance).abs() < 1e-3 * variance);
    }
}

#[test]
fn levels_and_axes_that_are_none_are_errors() {
    use percept_graph::Choice;
    use percept_models::lcpr::Lcpr;
    let error = |choice: Choice| Lcpr::SMALL.graph(&choice).unwrap_err();
    let low = error(Choice::whole().with("fusion1.mid", 0));
    assert_eq!(low.to_string(), "fusion1.mid: level 0, expected 1 to 4");
    let unknown = error(Choice::whole().with("fusion9.mid", 1));
    assert!(matches!(unknown, GraphError::UnknownAxis { .. }));
    let text = Settings::parse(["granularity=5,1/1,1/1,1/1,1"]).unwrap();
    assert!(zoo::build("lcpr", &text).is_err());
    let seven = Settings::parse(["granularity=1,1/1,1/1,1/1"]).unwrap();
    assert!(zoo::build("lcpr", &seven).is_err());
}

/// Training keeps running statistics of each part that it trains beside those of the whole network.
#[test]
fn a_part_takes_the_statistics_that_training_kept_for_it() {
    let name = "layer2.0.bn1.running_mean";
    let narrow = model("resnet18", &["width=16", "stem=half", "widths=1,2,3,4"]);
    let other = model("resnet18", &["width=16", "stem=half", "widths=1,2,3,3"]);
    let whole = narrow.whole.as_ref().unwrap();
    let seeded = Seeded::of(narrow.family, whole);
    let tensors = whole.params().iter().map(|param| {
        let values = seeded.read_f32(&param.name).unwrap().into_owned();
        let tensor = Tensor::from_values(param.shape.clone(), values).unwrap();
        (param.name.clone(), tensor)
    });
    let slicing = Slicing::between(whole, &narrow.graph).unwrap();
    let width = slicing.part(name).unwrap().narrow[0];
    let kept = Tensor::from_values([width], vec![7.0f32; width]).unwrap();
    let mut weights = MemoryWeights::new("trained", tensors);
    weights.insert(slicing.own_name(name).unwrap(), kept);
    assert_eq!(slicing.own_name(name).unwrap(), format!("{name}@1234"));

    let read = |model: &Model| {
        let slicing = Slicing::between(whole, &model.graph).unwrap();
        let part = Sliced::new(weights.clone(), slicing);
        let (weights, report) = ModelWeights::of(Box::new(part), &model.graph).unwrap();
        assert!(report.unexpected.is_empty(), "{:?}", report.unexpected);
        weights.read(name, &[width]).unwrap().into_owned()
    };
    assert_eq!(read(&narrow), vec![7.0; width]);
    assert_ne!(read(&other), vec![7.0; width]);
}
