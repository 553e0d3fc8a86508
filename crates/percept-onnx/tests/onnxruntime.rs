//! Exported files in ONNX Runtime, against the public networks' outputs in PyTorch, and in integers against percept's own.
//!
//! `PERCEPT_PYTHON` names a Python that has onnxruntime and numpy; without it these tests say that they were skipped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use percept_data::ModelWeights;
use percept_data::seeded::{Family, seeded_values};
use percept_engine::{
    Integers, Options, PrecisionPlan, Program, Quantization, RoundedWeights, run_reference,
};
use percept_graph::{
    Affine, Binary, BinaryKind, Builder, Constant, Dim, Gather, Graph, Normalize, Pad, Quantizer,
    ScatterAdd, Sign, Tensor, WeightSource,
};
use percept_kernels::{Cpu, Isa};
use percept_models::{Settings, zoo};

/// Outputs are equal within this share of their standard deviation.
const TOLERANCE: f32 = 1e-4;

fn python() -> Option<OsString> {
    let python = std::env::var_os("PERCEPT_PYTHON");
    if python.is_none() {
        percept_testing::skipped("PERCEPT_PYTHON names no Python with onnxruntime");
    }
    python
}

fn read_numbers(path: &Path) -> Vec<f32> {
    let number = |chunk: &[u8]| f32::from_le_bytes(chunk.try_into().unwrap());
    fs::read(path)
        .unwrap()
        .chunks_exact(4)
        .map(number)
        .collect()
}

/// Exports a graph for these inputs, runs it in ONNX Runtime, and gives its outputs by name.
fn run_in_onnxruntime(
    python: &OsString,
    graph: &Graph,
    weights: &dyn WeightSource,
    inputs: &[(&str, Tensor<'_>)],
) -> BTreeMap<String, Vec<f32>> {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.onnx");
    let file = |name: &str, ending: &str| folder.path().join(format!("{name}.{ending}"));
    let shapes: Vec<(&str, Vec<usize>)> = inputs
        .iter()
        .map(|(name, tensor)| (*name, tensor.shape().to_vec()))
        .collect();
    let bindings = graph.bind(&shapes).unwrap();
    let mut writer = BufWriter::new(File::create(&model).unwrap());
    percept_onnx::export(graph, &bindings, weights, &mut writer).unwrap();
    for (name, tensor) in inputs {
        fs::write(file(name, "raw"), tensor.bytes()).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run_onnx.py");
    let run = Command::new(python)
        .arg(script)
        .arg(&model)
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let outputs = graph.outputs().iter();
    outputs
        .map(|(name, _)| (name.clone(), read_numbers(&file(name, "f32"))))
        .collect()
}

/// Samples of one output of the public network.
struct Expected {
    name: String,
    shape: Vec<usize>,
    std: f32,
    samples: Vec<(usize, f32)>,
}

struct Case {
    model: String,
    input: String,
    shape: Vec<usize>,
    settings: Vec<String>,
    outputs: Vec<Expected>,
}

fn sizes(text: &str) -> Vec<usize> {
    text.split('x').map(|size| size.parse().unwrap()).collect()
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in include_str!("fixtures/golden.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["#", ..] => {}
            ["run", model, input, shape, settings @ ..] => cases.push(Case {
                model: (*model).to_owned(),
                input: (*input).to_owned(),
                shape: sizes(shape),
                settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
                outputs: Vec::new(),
            }),
            ["output", name, shape, std] => cases.last_mut().unwrap().outputs.push(Expected {
                name: (*name).to_owned(),
                shape: sizes(shape),
                std: std.parse().unwrap(),
                samples: Vec::new(),
            }),
            samples => {
                let sample = |text: &&str| {
                    let (index, value) = text.split_once(':').unwrap();
                    (index.parse().unwrap(), value.parse().unwrap())
                };
                let outputs = &mut cases.last_mut().unwrap().outputs;
                outputs.last_mut().unwrap().samples = samples.iter().map(sample).collect();
            }
        }
    }
    cases
}

#[test]
fn exported_networks_give_the_public_networks_outputs() {
    let Some(python) = python() else { return };
    for case in cases() {
        let settings = Settings::parse(&case.settings).unwrap();
        let mut graph = zoo::build(&case.model, &settings).unwrap().graph;
        for expected in &case.outputs {
            let value = graph.find(&expected.name).unwrap();
            if graph
                .outputs()
                .iter()
                .all(|(name, _)| *name != expected.name)
            {
                graph = graph.with_output(&expected.name, value);
            }
        }
        let input = seeded_values(Family::Vision, &case.input, &case.shape);
        let input = Tensor::from_values(case.shape.clone(), input).unwrap();
        let weights = ModelWeights::seeded(Family::Vision, &graph);
        let outputs = run_in_onnxruntime(&python, &graph, &weights, &[("image", input)]);
        for expected in &case.outputs {
            let what = format!(
                "{} {:?} {}: {}",
                case.model, case.settings, case.input, expected.name
            );
            let got = &outputs[&expected.name];
            assert_eq!(
                got.len(),
                expected.shape.iter().product::<usize>(),
                "{what}"
            );
            for &(index, value) in &expected.samples {
                let difference = (got[index] - value).abs() / expected.std;
                assert!(
                    difference < TOLERANCE,
                    "{what}[{index}] is {}, expected {value}",
                    got[index]
                );
            }
        }
    }
}

#[test]
fn rows_lines_and_constants_give_the_reference_engines_outputs() {
    let Some(python) = python() else { return };
    let mut b = Builder::new("Rows");
    let x = b.input("x", [4, 3].map(Dim::from));
    let rows = b.integer_input("rows", [Dim::from(5)]);
    let picked = b.call("pick", Gather, &[x, rows]);
    let summed = b.call("sum", ScatterAdd { rows: 6.into() }, &[picked, rows]);
    let pad = Pad {
        axis: 1,
        before: 2.into(),
        after: 1.into(),
    };
    let padded = b.call("pad", pad, &[summed]);
    let line = b.call("line", Affine::divided(4.into()).shifted(0.5), &[padded]);
    let unit = b.call("unit", Normalize { eps: 1e-3 }, &[line]);
    let shape = vec![6.into(), 6.into()];
    let constant = b.call("constant", Constant { value: 0.4, shape }, &[]);
    let kind = BinaryKind::Greater;
    let above = b.call("above", Binary { kind }, &[unit, constant]);
    b.output("unit", unit);
    b.output("above", above);
    let graph = b.finish().unwrap();
    let numbers = seeded_values(Family::Vision, "rows", &[4, 3]);
    let x = Tensor::from_values([4, 3], numbers).unwrap();
    let rows = Tensor::from_values([5], vec![3i32, 0, 3, 1, 2]).unwrap();
    let weights = ModelWeights::seeded(Family::Vision, &graph);
    let inputs = [("x", &x), ("rows", &rows)];
    let expected = run_reference::<f32>(&graph, &weights, &inputs).unwrap();
    let inputs = inputs.map(|(name, tensor)| (name, tensor.borrowed()));
    let got = run_in_onnxruntime(&python, &graph, &weights, &inputs);
    for (name, expected) in expected {
        assert_eq!(got[&name].len(), 36, "{name}");
        for (got, expected) in got[&name].iter().zip(&expected.data) {
            assert!((got - expected).abs() < 1e-6, "{name}: {got}, {expected}");
        }
    }
}

/// A small ResNet-18 in integers, with ranges that stand in the fixture, and its logits in ONNX Runtime (bench/peers/qdq_agreement.py
/// compares larger networks, and OpenVINO).
struct Quantised {
    graph: Graph,
    weights: Arc<RoundedWeights>,
    image: Tensor<'static>,
    logits: Vec<f32>,
}

fn quantised() -> Quantised {
    let settings = Settings::parse(["width=16", "classes=10"]).unwrap();
    let graph = zoo::build("resnet18", &settings).unwrap().graph;
    let (mut plan, mut logits) = (PrecisionPlan::new(), Vec::new());
    for line in include_str!("fixtures/resnet18_qdq.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["#", ..] => {}
            ["range", layer, lowest, amax] => {
                let sign = match lowest.starts_with('-') {
                    true => Sign::Signed,
                    false => Sign::NonNegative,
                };
                let grids = Quantization::dynamic(8).with_input(amax.parse().unwrap(), sign);
                plan = plan.with(*layer, grids);
            }
            ["logits", numbers @ ..] => {
                logits.extend(numbers.iter().map(|x| x.parse::<f32>().unwrap()));
            }
            _ => panic!("{line}"),
        }
    }
    let graph = plan.quantize(graph).unwrap();
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &graph));
    let shape = [2, 3, 64, 64];
    let image = seeded_values(Family::Vision, "input", &shape);
    Quantised {
        weights: Arc::new(RoundedWeights::new(weights, &graph)),
        graph,
        image: Tensor::from_values(shape, image).unwrap(),
        logits,
    }
}

/// How far numbers are apart, in steps of the output's own grid.
fn steps_apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let step = Quantizer::new(8, percept_graph::largest_magnitude(a)).step();
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs() / step);
    apart.fold(0.0, f32::max)
}

/// Sums of integers are exact, and what is done with them is the same operation here and there, so that not one integer of 21 layers
/// differs; the mean of a map may be summed in another order. For comparison: bytes as residuals, the default, are 1.9 steps away.
const STEPS_APART: f32 = 1e-3;

#[test]
fn networks_in_exact_integers_give_onnxruntimes_numbers() {
    let network = quantised();
    for isa in Isa::available() {
        let cpu = Cpu::with_isa(2, isa).unwrap();
        let options = Options {
            integers: Integers::Exact,
            ..Options::default()
        };
        let weights = network.weights.clone();
        let mut program = Program::new(network.graph.clone(), weights, cpu, options);
        let ours = program.run(&[("image", &network.image)]).unwrap();
        let apart = steps_apart(&network.logits, &ours.get("logits").unwrap().to_f32());
        assert!(apart < STEPS_APART, "{isa:?}: {apart} steps");
    }
}

#[test]
fn onnxruntime_still_gives_the_numbers_of_the_fixture() {
    let Some(python) = python() else { return };
    let network = quantised();
    let inputs = [("image", network.image)];
    let theirs = run_in_onnxruntime(&python, &network.graph, &*network.weights, &inputs);
    let apart = steps_apart(&network.logits, &theirs["logits"]);
    assert!(apart < STEPS_APART, "{apart} steps: {:?}", theirs["logits"]);
}
