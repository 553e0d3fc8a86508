//! Exported files in ONNX Runtime, against the public networks' outputs in PyTorch.
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
    Options, PrecisionPlan, Program, Quantization, RoundedWeights, run_reference,
};
use percept_graph::{
    Affine, Binary, BinaryKind, Builder, Constant, Dim, Gather, Graph, Normalize, Pad, Quantizer,
    ScatterAdd, Sign, Tensor,
};
use percept_kernels::Cpu;
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
    let weights = ModelWeights::seeded(Family::Vision, graph);
    percept_onnx::export(graph, &bindings, &weights, &mut writer).unwrap();
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
        let outputs = run_in_onnxruntime(&python, &graph, &[("image", input)]);
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
    let got = run_in_onnxruntime(&python, &graph, &inputs);
    for (name, expected) in expected {
        assert_eq!(got[&name].len(), 36, "{name}");
        for (got, expected) in got[&name].iter().zip(&expected.data) {
            assert!((got - expected).abs() < 1e-6, "{name}: {got}, {expected}");
        }
    }
}

/// Quantisers and weights as integers, in ONNX Runtime and here: a step of the output's own grid apart at most, nearly
/// everywhere. Sums that differ in their last bit round to neighbours.
#[test]
fn quantised_networks_agree_within_a_step() {
    let Some(python) = python() else { return };
    let settings = Settings::parse(["width=16", "classes=10"]).unwrap();
    let model = zoo::build("resnet18", &settings).unwrap();
    let shape = [2, 3, 64, 64];
    let image = seeded_values(Family::Vision, "input", &shape);
    let image = Tensor::from_values(shape, image).unwrap();
    // Ranges as they are on this input; behind a ReLU they begin at zero.
    let mut ranges: BTreeMap<String, (f32, f32)> = BTreeMap::new();
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &model.graph));
    let cpu = Cpu::new(1).unwrap();
    let mut float = Program::new(
        model.graph.clone(),
        weights.clone(),
        cpu,
        Options::default(),
    );
    let watched = float.run_observed(&[("image", &image)], &mut |node, values| {
        let lowest = values.iter().copied().fold(0.0, f32::min);
        ranges.insert(
            node.name.clone(),
            (lowest, percept_graph::largest_magnitude(values)),
        );
    });
    watched.unwrap();
    let plan = ranges
        .iter()
        .fold(PrecisionPlan::new(), |plan, (name, (lowest, amax))| {
            let sign = if *lowest < 0.0 {
                Sign::Signed
            } else {
                Sign::NonNegative
            };
            plan.with(name, Quantization::dynamic(8).with_input(*amax, sign))
        });
    let graph = plan.quantize(model.graph).unwrap();
    let rounded = Arc::new(RoundedWeights::new(weights, &graph));
    let cpu = Cpu::new(1).unwrap();
    let mut program = Program::new(graph.clone(), rounded, cpu, Options::default());
    let ours = program.run(&[("image", &image)]).unwrap().to_tensors();
    let theirs = run_in_onnxruntime(&python, &graph, &[("image", image)]);
    for (name, tensor) in ours {
        let (ours, theirs) = (tensor.to_f32(), &theirs[&name]);
        let step = Quantizer::new(8, percept_graph::largest_magnitude(&ours)).step();
        let within = ours
            .iter()
            .zip(theirs)
            .filter(|(a, b)| (*a - *b).abs() <= step)
            .count();
        println!("{name}: {within} of {} within a step of {step}", ours.len());
        assert!(
            within * 1000 >= ours.len() * 999,
            "{name}: {within} of {}",
            ours.len()
        );
    }
}
