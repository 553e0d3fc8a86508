//! Exported files in ONNX Runtime, against the public networks' outputs in PyTorch.
//!
//! `PERCEPT_PYTHON` names a Python that has onnxruntime and numpy; without it these tests say that they were skipped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;

use percept_data::ModelWeights;
use percept_data::seeded::{Family, seeded_values};
use percept_graph::Graph;
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

fn write_numbers(path: &Path, values: &[f32]) {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    fs::write(path, bytes).unwrap();
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
    inputs: &[(&str, Vec<usize>, Vec<f32>)],
) -> BTreeMap<String, Vec<f32>> {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.onnx");
    let numbers = |name: &str| folder.path().join(format!("{name}.f32"));
    let shapes: Vec<(&str, Vec<usize>)> = inputs
        .iter()
        .map(|(name, shape, _)| (*name, shape.clone()))
        .collect();
    let bindings = graph.bind(&shapes).unwrap();
    let mut writer = BufWriter::new(File::create(&model).unwrap());
    percept_onnx::export(
        graph,
        &bindings,
        &ModelWeights::seeded(Family::Vision, graph),
        &mut writer,
    )
    .unwrap();
    for (name, _, values) in inputs {
        write_numbers(&numbers(name), values);
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
        .map(|(name, _)| (name.clone(), read_numbers(&numbers(name))))
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
        let outputs = run_in_onnxruntime(&python, &graph, &[("image", case.shape.clone(), input)]);
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
