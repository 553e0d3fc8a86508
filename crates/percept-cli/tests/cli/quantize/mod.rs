//! Weights as integers: one file that every verb takes, and ranges from samples.

mod mistakes;

use std::path::{Path, PathBuf};

use crate::asking::{assert_fails, json, stdout};
use crate::{NEAR, image, percept};

/// A ResNet-18 that runs in milliseconds.
const SMALL: [&str; 7] = [
    "resnet18",
    "--set",
    "width=8",
    "--set",
    "classes=5",
    "--weights",
    "seeded",
];

fn quantize(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let path = folder.join(name);
    let mut command = percept();
    command
        .arg("quantize")
        .args(SMALL)
        .args(["--size", "32", "--samples", "2", "--measured", "1"]);
    command.args(more).arg("--to").arg(&path).assert().success();
    path
}

#[test]
fn one_file_serves_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let path = quantize(folder.path(), "small.safetensors", &[]);
    let on = |args: &[&str]| {
        let mut command = percept();
        command.args(args).arg("--weights").arg(&path);
        command
    };
    // The size that it was calibrated at is on its card.
    let ran = json(&mut on(&["run", "resnet18"]));
    assert_eq!(ran["answers"][0]["classes"].as_array().unwrap().len(), 5);
    let shown = json(&mut on(&["inspect", "resnet18"]));
    let layers = shown["quantized_layers"].as_array().unwrap();
    assert_eq!(layers.len(), 21, "20 convolutions and a linear layer");
    assert!(
        layers
            .iter()
            .all(|l| l["weight_bits"] == 8 && l["axis"] == 0 && l["amax"].is_number())
    );
    let text = stdout(&mut on(&["inspect", "resnet18", "--show", "storage"]));
    assert!(
        text.contains("layer1.0.conv1 ") && text.contains("steps of integers, f32"),
        "{text}"
    );
    assert!(
        json(&mut on(&[
            "bench",
            "resnet18",
            "--repeats",
            "1",
            "--warmup",
            "1"
        ]))["rows"]
            .is_array()
    );
    on(&["profile", "resnet18", "--repeats", "1"])
        .assert()
        .success();
    let onnx = folder.path().join("small.onnx");
    let mut export = percept();
    export
        .args(["export", "resnet18", "--weights"])
        .arg(&path)
        .arg("--onnx")
        .arg(&onnx);
    export.assert().success();
    let bytes = std::fs::read(&onnx).unwrap();
    let has = |word: &[u8]| bytes.windows(word.len()).any(|at| at == word);
    assert!(has(b"QuantizeLinear") && has(b"DequantizeLinear") && has(b"Clip"));
    // The histograms stand beside it.
    assert!(folder.path().join("small.calibration.safetensors").exists());
}

#[test]
fn a_quarter_of_the_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let wide = [
        "resnet18",
        "--set",
        "width=32",
        "--set",
        "classes=5",
        "--weights",
        "seeded",
    ];
    let path = folder.path().join("wide.safetensors");
    let record = json(
        percept()
            .arg("quantize")
            .args(wide)
            .args(["--size", "32", "--scheme", "weight-only", "--out"])
            .arg(&path),
    );
    let bytes = |key: &str| record["bytes"][key].as_u64().unwrap();
    let all = bytes("integers") + bytes("steps") + bytes("floats");
    let floats = 4 * (bytes("integers") + bytes("floats") / 4);
    assert!(all * 100 < floats * 27, "{all} of {floats}");
    assert!(std::fs::metadata(&path).unwrap().len() < all + 20_000);
    assert_eq!(record["layers"]["i16"], 21);
    assert!(record["plan"][0]["amax"] == "dynamic");
}

#[test]
fn another_calibrator_needs_no_second_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = quantize(folder.path(), "max.safetensors", &[]);
    let kept = folder.path().join("max.calibration.safetensors");
    let amax = |calibrator: &str| {
        let to = folder.path().join(format!("{calibrator}.safetensors"));
        let record = json(
            percept()
                .arg("quantize")
                .args(SMALL)
                .args(["--size", "32", "--measured", "1"])
                .arg("--calibrate")
                .arg(&kept)
                .args(["--calibrator", calibrator])
                .arg("--to")
                .arg(&to),
        );
        record["plan"][3]["amax"].as_f64().unwrap()
    };
    let (max, cut) = (amax("max"), amax("percentile=90"));
    assert!(cut < max, "{cut} of {max}");
    assert!(path.exists());
    let mut other = percept();
    other.args([
        "quantize",
        "resnet34",
        "--set",
        "width=8",
        "--weights",
        "seeded",
        "--size",
        "32",
        "--calibrate",
    ]);
    assert_fails(
        other
            .arg(&kept)
            .arg("--to")
            .arg(folder.path().join("x.safetensors")),
        2,
        &["the calibration is of `resnet18`, not of `resnet34`"],
    );
    let mut other = percept();
    other.args([
        "quantize",
        "resnet18",
        "--set",
        "width=16",
        "--set",
        "classes=5",
    ]);
    other.args(["--weights", "seeded", "--size", "32", "--calibrate"]);
    assert_fails(
        other
            .arg(&kept)
            .arg("--to")
            .arg(folder.path().join("x.safetensors")),
        2,
        &["width=16 contradicts", "which is of width=8"],
    );
}

#[test]
fn folders_inside_folders_calibrate() {
    let folder = tempfile::tempdir().unwrap();
    for class in ["finch", "wren"] {
        let inside = folder.path().join("birds").join(class);
        std::fs::create_dir_all(&inside).unwrap();
        image(&inside.join("one.png"));
    }
    let record = json(
        percept()
            .arg("quantize")
            .args(SMALL)
            .args(["--size", "32", "--calibrate"])
            .arg(folder.path().join("birds"))
            .arg("--to")
            .arg(folder.path().join("x.safetensors")),
    );
    let made_by = record["made_by"].as_str().unwrap();
    assert!(made_by.contains("over 2 samples"), "{made_by}");
}

/// A file of tensors holds as many samples as its first axis says, and `--samples` and `--measured` count those.
#[test]
fn a_batch_in_a_file_is_as_many_samples() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, count: usize| {
        let values = (0..count * 3 * 32 * 32).map(|at| (at / (3 * 32 * 32)) as f32 / 8.0);
        let shape = [count, 3, 32, 32];
        let tensor = percept_graph::Tensor::from_values(shape, values.collect::<Vec<f32>>());
        let tensors = [("image".to_owned(), tensor.unwrap())];
        let path = folder.path().join(name);
        percept_data::safetensors::write_safetensors(&path, &tensors, &Default::default()).unwrap();
        path
    };
    let [eight, none] = [file("eight.safetensors", 8), file("none.safetensors", 0)];
    let on = |path: &Path, more: &[&str]| {
        let mut command = percept();
        command.arg("quantize").args(SMALL).args(["--size", "32"]);
        command.arg("--calibrate").arg(path).args(more);
        command.arg("--to").arg(folder.path().join("x.safetensors"));
        command
    };
    let text = stdout(&mut on(&eight, &[]));
    assert!(text.contains("max over 8 samples"), "{text}");
    assert!(text.contains("ranges from 8 images"), "{text}");
    assert!(text.contains("noise on 2 samples"), "{text}");
    let text = stdout(&mut on(&eight, &["--samples", "3", "--measured", "5"]));
    assert!(text.contains("max over 3 samples"), "{text}");
    assert!(text.contains("noise on 3 samples"), "{text}");
    // The first three are at most a quarter.
    let record = json(&mut on(&eight, &["--samples", "3"]));
    assert_eq!(record["plan"][0]["amax"], 0.25);
    assert_fails(&mut on(&none, &[]), 3, &["no samples to calibrate on"]);
}

/// A channel of weights that are all zero, and an input that is: neither has a range, and both stay zero.
#[test]
fn what_is_always_zero_stays_zero() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, dead, zeros] =
        ["whole", "dead", "zeros"].map(|name| folder.path().join(format!("{name}.safetensors")));
    let mut export = percept();
    export
        .arg("export")
        .args(SMALL)
        .arg("--safetensors")
        .arg(&whole);
    export.assert().success();
    let mut tensors = percept_data::safetensors::read_safetensors(&whole).unwrap();
    for (name, tensor) in &mut tensors {
        if name == "layer1.0.conv1.weight" {
            let mut values = tensor.to_f32().into_owned();
            values[..tensor.shape()[1..].iter().product()].fill(0.0);
            *tensor = percept_graph::Tensor::from_values(tensor.shape().to_vec(), values).unwrap();
        }
    }
    percept_data::safetensors::write_safetensors(&dead, &tensors, &Default::default()).unwrap();
    let black =
        percept_graph::Tensor::from_values([1, 3, 32, 32], vec![0.0f32; 3 * 32 * 32]).unwrap();
    let black = [("image".to_owned(), black)];
    percept_data::safetensors::write_safetensors(&zeros, &black, &Default::default()).unwrap();
    let to = folder.path().join("x.safetensors");
    for calibrate in [&[][..], &["--calibrate", zeros.to_str().unwrap()][..]] {
        let mut command = percept();
        command.arg("quantize").args(&SMALL[..5]);
        command
            .args(["--size", "32", "--samples", "2", "--measured", "1"])
            .args(calibrate);
        command.arg("--weights").arg(&dead).arg("--to").arg(&to);
        command.assert().success();
        let ran = json(percept().args(["run", "resnet18", "--weights"]).arg(&to));
        let classes = ran["answers"][0]["classes"].as_array().unwrap();
        assert!(
            classes.iter().all(|class| class["probability"].is_number()),
            "{ran}"
        );
    }
}

/// What a quantised network gave is what it verifies against; floats are not within the tolerance of it.
#[test]
fn quantised_weights_verify() {
    let folder = tempfile::tempdir().unwrap();
    let path = quantize(folder.path(), "small.safetensors", &[]);
    let (saved, reference) = (
        folder.path().join("out.safetensors"),
        folder.path().join("reference.safetensors"),
    );
    let mut run = percept();
    run.args(["run", "resnet18", "--weights"]).arg(&path);
    run.args(["--tap", "layer2.0", "--save"]).arg(&saved);
    run.assert().success();
    crate::verify::rename_tensors(&saved, &reference, 0.0);
    let mut verify = percept();
    verify.args(["verify", "resnet18", "--weights"]).arg(&path);
    let check = verify.arg("--reference").arg(&reference).assert();
    let text = String::from_utf8_lossy(&check.success().get_output().stdout).into_owned();
    assert!(text.contains("layer2.0"), "{text}");
    let mut verify = percept();
    verify.arg("verify").args(SMALL).args(["--size", "32"]);
    verify.arg("--reference").arg(&reference).assert().code(1);
}

#[test]
fn layers_are_told_apart_and_a_budget_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (to, chart) = (
        folder.path().join("mixed.safetensors"),
        folder.path().join("layers.svg"),
    );
    let record = json(
        percept()
            .arg("quantize")
            .args(SMALL)
            .args(["--size", "32", "--samples", "2", "--measured", "1"])
            .args([
                "--sensitivity",
                "--budget",
                "sqnr=30dB",
                "--gain",
                "bytes",
                "--picture",
            ])
            .arg(&chart)
            .arg("--to")
            .arg(&to),
    );
    let layers = record["sensitivity"].as_array().unwrap();
    assert_eq!(layers.len(), 21);
    assert!(
        layers
            .iter()
            .all(|l| l["own_db"].as_f64().unwrap() > 10.0 && l["float_ms"].as_f64().unwrap() > 0.0)
    );
    let spent = &record["budget"];
    assert!(spent["measured"].as_f64().unwrap() >= 30.0);
    let count = |key: &str| spent[key].as_array().unwrap().len();
    assert_eq!(
        count("taken") + count("refused") + count("without_gain"),
        21
    );
    assert!(count("taken") > 0);
    assert_eq!(
        record["layers"]["i8"].as_u64().unwrap() as usize,
        count("taken")
    );
    assert!(
        std::fs::read_to_string(&chart)
            .unwrap()
            .contains("what each layer gains")
    );
}

#[test]
fn sparse_convolutions_become_integers_too() {
    let folder = tempfile::tempdir().unwrap();
    let counts = |layers: &str| {
        let to = folder.path().join(format!("{layers}.safetensors"));
        let record = json(
            percept()
                .arg("quantize")
                .args(NEAR)
                .args([
                    "--weights",
                    "seeded",
                    "--scheme",
                    "dynamic",
                    "--measured",
                    "1",
                ])
                .args(["--layers", layers, "--wide", "backbone_3d.conv_input"])
                .arg("--to")
                .arg(&to),
        );
        ["i8", "i16", "f32"].map(|kind| record["layers"][kind].as_u64().unwrap())
    };
    assert_eq!(counts("dense"), [87, 0, 21]);
    assert_eq!(counts("all"), [107, 1, 0]);
}

/// RandLA-Net's lean form computes encodings and scores in ops of its own. They stay floats, so that the form serves; who asks for all
/// values to be kept has every layer in integers.
#[test]
fn a_lean_form_serves_integers_too() {
    let folder = tempfile::tempdir().unwrap();
    let scan = folder.path().join("scan.bin");
    let point = |i: usize| [i % 40, i / 40 % 30, i % 7, i % 3].map(|part| part as f32 * 0.5);
    // Four floats a point, a number that no other format divides.
    let points: Vec<u8> = (0..1201)
        .flat_map(point)
        .flat_map(f32::to_le_bytes)
        .collect();
    std::fs::write(&scan, points).unwrap();
    let quantized = |memory: &str| {
        let to = folder.path().join(format!("{memory}.safetensors"));
        let mut command = percept();
        command.args([
            "quantize",
            "randlanet",
            "--weights",
            "seeded",
            "--calibrate",
        ]);
        command.arg(&scan).args(["--memory", memory, "--to"]);
        let record = json(command.arg(&to));
        (record["layers"]["i8"].as_u64().unwrap(), to)
    };
    let is_lean = |weights: &Path| {
        let mut command = percept();
        command.args(["profile", "randlanet", "--repeats", "1", "--input"]);
        let record = json(command.arg(&scan).arg("--weights").arg(weights));
        let rows = record["rows"].as_array().unwrap();
        rows.iter().any(|row| row["op"] == "LocalAggregation")
    };
    let (frugal, lean) = quantized("frugal");
    let (all, plain) = quantized("keep");
    assert_eq!((frugal, all), (29, 45));
    assert!(is_lean(&lean) && !is_lean(&plain));
}
