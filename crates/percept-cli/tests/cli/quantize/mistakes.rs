//! Clear words about samples, plans and files that do not fit, and nothing half done left behind.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use assert_cmd::cargo::CommandCargoExt;

use super::{SMALL, quantize};
use crate::asking::assert_fails;
use crate::{image, percept};

#[test]
fn what_does_not_fit_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = quantize(folder.path(), "small.safetensors", &["--scheme", "dynamic"]);
    assert_fails(
        percept().args(["run", "resnet34", "--weights"]).arg(&path),
        2,
        &["the weights are of `resnet18`, not of `resnet34`"],
    );
    assert_fails(
        percept()
            .args(["run", "resnet18", "--set", "classes=7", "--weights"])
            .arg(&path),
        2,
        &["classes=7 contradicts the weights"],
    );
    assert_fails(
        percept()
            .args(["quantize", "resnet18", "--weights"])
            .arg(&path)
            .args(["--to", "again.safetensors"]),
        2,
        &["quantised already"],
    );
    let onnx = folder.path().join("dynamic.onnx");
    assert_fails(
        percept()
            .args(["export", "resnet18", "--weights"])
            .arg(&path)
            .arg("--onnx")
            .arg(&onnx),
        2,
        &["--scheme static"],
    );
    let to = folder.path().join("x.safetensors");
    let small = |more: &[&str]| {
        let mut command = percept();
        command
            .arg("quantize")
            .args(SMALL)
            .args(["--size", "32"])
            .args(more)
            .arg("--to")
            .arg(&to);
        command
    };
    assert_fails(
        &mut small(&["--float", "layer9"]),
        2,
        &["layer9", "no such scope"],
    );
    assert_fails(
        &mut small(&["--calibrator", "most"]),
        2,
        &["expected max, percentile"],
    );
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_fails(
        &mut small(&["--calibrate", empty.to_str().unwrap()]),
        3,
        &["empty"],
    );
    // Points for a network of pictures.
    let sweep = folder.path().join("sweep.pcd.bin");
    std::fs::write(&sweep, [0u8; 40]).unwrap();
    assert_fails(
        &mut small(&["--calibrate", sweep.to_str().unwrap()]),
        3,
        &["sweep.pcd.bin"],
    );
    assert!(!to.exists());
    assert_fails(percept().arg("quantize").args(SMALL), 2, &["nothing to do"]);
}

#[test]
fn a_picture_calibrates_and_a_number_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("stripes.png");
    image(&picture);
    let to = folder.path().join("x.safetensors");
    let mut command = percept();
    command
        .arg("quantize")
        .args(SMALL)
        .args(["--size", "32", "--calibrate"])
        .arg(&picture);
    command.arg("--to").arg(&to).assert().success();
    let torn = folder.path().join("torn.safetensors");
    let mut values = vec![0.5f32; 3 * 32 * 32];
    values[77] = f32::NAN;
    let tensor = percept_graph::Tensor::from_values([1, 3, 32, 32], values).unwrap();
    let tensors = [("image".to_owned(), tensor)];
    percept_data::safetensors::write_safetensors(&torn, &tensors, &Default::default()).unwrap();
    let mut command = percept();
    command
        .arg("quantize")
        .args(SMALL)
        .args(["--size", "32", "--calibrate"])
        .arg(&torn);
    assert_fails(
        command.arg("--to").arg(&to),
        3,
        &[
            "torn",
            "1 numbers that conv1 would multiply are NaN or infinite",
        ],
    );
}

/// What is wrong with samples, targets and budgets is one line and an exit code, before anything is computed or written.
#[test]
fn samples_and_targets_that_do_not_fit_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(inside("notes.txt"), "hello").unwrap();
    image(&folder.path().join("stripes.png"));
    std::fs::create_dir(inside("empty")).unwrap();
    let (to, notes, stripes) = (
        inside("x.safetensors"),
        inside("notes.txt"),
        inside("stripes.png"),
    );
    let (nowhere, empty) = (inside("nowhere/x.safetensors"), inside("empty"));
    let taken = inside("taken.safetensors");
    std::fs::create_dir(&taken).unwrap();
    let cases: [(&[&str], i32, &[&str]); 7] = [
        (
            &["--calibrate", &notes, "--to", &to],
            3,
            &["notes.txt", "not an image"],
        ),
        (
            &["--calibrate", &empty, "--to", &to],
            3,
            &["empty", "no .jpg or .png"],
        ),
        // The folder that is not there is told first.
        (&["--calibrate", &empty, "--to", &nowhere], 3, &["nowhere"]),
        (&["--to", &empty], 2, &["empty", "ends in .safetensors"]),
        (&["--to", &taken], 3, &["taken", "directory"]),
        (&["--budget", "sqnr=many", "--to", &to], 2, &["sqnr=30dB"]),
        (&["--samples", "0", "--to", &to], 2, &["--samples"]),
    ];
    for (more, code, words) in cases {
        let mut command = percept();
        command.arg("quantize").args(SMALL).args(["--size", "32"]);
        assert_fails(command.args(more), code, words);
    }
    // Pictures for a network of points.
    let mut lidar = percept();
    lidar.args([
        "quantize",
        "centerpoint-small",
        "--calibrate",
        &stripes,
        "--to",
        &to,
    ]);
    assert_fails(&mut lidar, 3, &["stripes.png", "not a known point format"]);
    assert!(!Path::new(&to).exists());
}

/// Bytes that flipped in a file of integers: in the plan, or in what integers stand for.
#[test]
fn damaged_files_of_integers_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let whole = quantize(folder.path(), "small.safetensors", &["--layers", "dense"]);
    let whole = std::fs::read(whole).unwrap();
    let torn = folder.path().join("torn.safetensors");
    let fails = |bytes: &[u8], words: &[&str]| {
        std::fs::write(&torn, bytes).unwrap();
        let mut run = percept();
        assert_fails(
            run.args(["run", "resnet18", "--weights"]).arg(&torn),
            3,
            words,
        );
    };
    // Names and numbers of as many characters, so that everything stays in its place.
    let with = |old: &str, new: &str| {
        assert_eq!(old.len(), new.len());
        let at = whole.windows(old.len()).position(|at| at == old.as_bytes());
        let at = at.unwrap_or_else(|| panic!("no {old}"));
        [&whole[..at], new.as_bytes(), &whole[at + old.len()..]].concat()
    };
    let bits = |name: &str, digit: &str| {
        let key = format!(r#"{name}\":"#);
        with(&format!("{key}8"), &format!("{key}{digit}"))
    };
    let of_weights = ["torn.safetensors: the plan", "weights of 0 bits"];
    fails(&bits("weight_bits", "0"), &of_weights);
    let of_inputs = ["torn.safetensors: the plan", "inputs of 1 bits"];
    fails(&bits("input_bits", "1"), &of_inputs);
    fails(
        &bits("input_bits", "-"),
        &["its plan of precisions is damaged"],
    );
    let unknown = with(r#"fc\":{\"weight_bits"#, r#"fk\":{\"weight_bits"#);
    fails(
        &unknown,
        &["torn.safetensors: the plan", "`fk`", "no such scope"],
    );
    let unmeasured = with(r#"amax\":1"#, r#"amax\":-"#);
    fails(&unmeasured, &["torn.safetensors"]);
    let without_steps = with(r#""conv1.weight.step""#, r#""conv1.weight.stop""#);
    let missing = ["torn.safetensors", "`conv1.weight.step`", "is missing"];
    fails(&without_steps, &missing);
    for length in [0, 7, 100, whole.len() / 2, whole.len() - 1] {
        fails(&whole[..length], &["torn.safetensors"]);
    }
}

/// An interrupt ends a calibration, and leaves nothing that looks like a file of weights.
#[test]
#[cfg(unix)]
fn an_interrupted_calibration_leaves_nothing() {
    use std::os::unix::process::ExitStatusExt;

    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::cargo_bin("percept").unwrap();
    command
        .arg("quantize")
        .args(SMALL)
        .args(["--samples", "1000000"]);
    command.arg("--to").arg(folder.path().join("x.safetensors"));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // The weights are loaded, so it has begun.
    let mut told = BufReader::new(child.stderr.take().unwrap());
    told.read_line(&mut String::new()).unwrap();
    let interrupt = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    let ended = child.wait().unwrap();
    assert_eq!(ended.signal(), Some(2), "{ended}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
