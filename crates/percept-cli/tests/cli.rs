//! The command as a user meets it: output, errors, exit codes, files.

mod asking;

use std::path::Path;

use asking::{assert_fails, json, stdout};
use assert_cmd::Command;
use predicates::prelude::*;
use serde_json::Value;

/// A small network that runs in milliseconds.
const TINY: [&str; 9] = [
    "dinov2-vits14",
    "--set",
    "embed=48",
    "--set",
    "depth=2",
    "--set",
    "heads=4",
    "--set",
    "image_size=70",
];

fn percept() -> Command {
    let mut command = Command::cargo_bin("percept").expect("the command is built");
    command.args(["--threads", "2"]);
    command
}

#[test]
fn models_and_settings() {
    insta::assert_snapshot!("models", stdout(percept().arg("models")));
    insta::assert_snapshot!(
        "settings",
        stdout(percept().args(["models", "dinov2-vitb14"]))
    );
    let record = json(percept().arg("models"));
    assert_eq!(record["schema_version"], 1);
    let models = record["models"].as_array().unwrap();
    let parameters = |name: &str| {
        let found = models.iter().find(|model| model["name"] == name);
        found.unwrap()["parameters"].as_u64().unwrap()
    };
    assert_eq!(parameters("resnet50"), 25_557_032);
    assert_eq!(parameters("centerpoint"), 8_941_590);
}

#[test]
fn inspect_a_network() {
    insta::assert_snapshot!(
        "inspect",
        stdout(percept().args(["inspect", "resnet18", "--depth", "2"]))
    );
    let record = json(percept().args(["inspect", "resnet50"]));
    assert_eq!(record["parameters"], 25_557_032);
    assert_eq!(record["macs"], 4_089_184_256u64);
    assert_eq!(record["storage"][0]["elements"], 25_557_032);
}

#[test]
fn help_has_examples() {
    for verb in [
        "models", "inspect", "run", "profile", "bench", "verify", "export", "doctor",
    ] {
        percept()
            .args([verb, "--help"])
            .assert()
            .success()
            .stdout(predicate::str::contains("Examples:"));
    }
}

#[test]
fn run_save_tap_and_verify() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("out.safetensors");
    let text = stdout(
        percept()
            .arg("run")
            .args(TINY)
            .args(["--tap", "blocks.0.attn", "--save"])
            .arg(&saved),
    );
    assert!(
        text.contains("blocks.0.attn") && text.contains("x_norm_patchtokens"),
        "{text}"
    );
    let listed = stdout(percept().arg("inspect").arg(&saved));
    assert!(listed.contains("blocks.0.attn"), "{listed}");

    // What it gave is what it verifies against, under the reference's names.
    let reference = folder.path().join("reference.safetensors");
    rename_tensors(&saved, &reference, 0.0);
    percept()
        .arg("verify")
        .args(TINY)
        .arg("--reference")
        .arg(&reference)
        .assert()
        .success();
    percept()
        .arg("verify")
        .args(TINY)
        .args(["--dtype", "f64", "--reference"])
        .arg(&reference)
        .assert()
        .success();
    // One changed value is found.
    rename_tensors(&saved, &reference, 0.5);
    let check = percept()
        .arg("verify")
        .args(TINY)
        .arg("--reference")
        .arg(&reference)
        .assert()
        .code(1);
    let text = String::from_utf8_lossy(&check.get_output().stdout).into_owned();
    assert!(
        text.contains("PAST TOLERANCE") && text.contains("NOT verified"),
        "{text}"
    );
}

/// Stores every tensor as `expect.NAME`, with `error` added to the first value of the first.
fn rename_tensors(from: &Path, to: &Path, error: f32) {
    let tensors = percept_data::safetensors::read_safetensors(from).unwrap();
    let mut error = Some(error);
    let renamed: Vec<_> = tensors
        .into_iter()
        .map(|(name, tensor)| {
            let mut values = tensor.to_f32().into_owned();
            values[0] += error.take().unwrap_or(0.0);
            let stored = percept_graph::Tensor::from_values(tensor.shape(), values).unwrap();
            (format!("expect.{name}"), stored)
        })
        .collect();
    percept_data::safetensors::write_safetensors(to, &renamed, &Default::default()).unwrap();
}

#[test]
fn classify_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grey.png");
    image(&path);
    let record = json(percept().args(["run", "resnet18", "--input"]).arg(&path));
    let top = record["predictions"][0]["top"].as_array().unwrap();
    assert_eq!(top.len(), 5);
    assert!(top[0]["probability"].as_f64() >= top[1]["probability"].as_f64());
    assert!(top[0]["name"].is_string());
    // A folder, in batches, gives the same answer for the same image.
    std::fs::copy(&path, folder.path().join("copy.png")).unwrap();
    let both = json(
        percept()
            .args(["run", "resnet18", "--batch", "2", "--input"])
            .arg(folder.path()),
    );
    assert_eq!(both["predictions"].as_array().unwrap().len(), 2);
    let answer = |image: usize, place: usize| &both["predictions"][image]["top"][place];
    for place in 0..5 {
        let [first, second] = [0, 1].map(|image| answer(image, place));
        assert_eq!(first["class"], second["class"]);
        // A pixel's place in the batch decides which kernel finishes it, so the last bits may differ.
        let [a, b] = [first, second].map(|top| top["probability"].as_f64().unwrap());
        assert!((a - b).abs() < 1e-6, "{a} and {b}");
    }
}

/// CenterPoint on a square of 12 m: the whole way in a fraction of a second.
const NEAR: [&str; 3] = ["centerpoint", "--set", "range=6"];

/// Some points as a nuScenes file.
fn sweep(path: &Path, points: &[[f32; 5]]) {
    let bytes: Vec<u8> = points
        .iter()
        .flatten()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn detect_in_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let (file, picture) = (
        folder.path().join("a.pcd.bin"),
        folder.path().join("bev.png"),
    );
    let mut points: Vec<[f32; 5]> = (0..400u16)
        .map(|i| {
            [
                f32::from(i % 20) * 0.5 - 5.0,
                f32::from(i / 20) * 0.5 - 5.0,
                -1.5,
                20.0,
                3.0,
            ]
        })
        .collect();
    sweep(&file, &points);
    let run = |extra: &[&str]| {
        let mut command = percept();
        command
            .arg("run")
            .args(NEAR)
            .arg("--input")
            .arg(&file)
            .args(extra);
        command
    };
    let record = json(run(&["--picture"]).arg(&picture));
    let boxes = record["detections"][0]["boxes"].as_array().unwrap();
    assert!(!boxes.is_empty() && boxes[0]["score"].as_f64() >= boxes[1]["score"].as_f64());
    assert!(boxes[0]["class"].is_string() && boxes[0]["velocity_m_per_s"].is_array());
    let written = std::fs::read(&picture).unwrap();
    assert!(written.starts_with(b"\x89PNG"));
    assert!(stdout(&mut run(&["--top", "2"])).contains("boxes: "));

    // A broken point is left out and told; the answer is the one without it.
    points.push([f32::NAN, 0.0, 0.0, 1.0, 0.0]);
    sweep(&file, &points);
    let output = run(&["--json"]).assert().success().get_output().clone();
    assert!(String::from_utf8_lossy(&output.stderr).contains("left out 1 points"));
    let with_nan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(with_nan["detections"], record["detections"]);

    // No points at all are no error.
    sweep(&file, &[]);
    assert!(json(&mut run(&[]))["detections"][0]["boxes"].is_array());
}

#[test]
fn lidar_mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let torn = file("torn.pcd.bin", &[0; 33]);
    let either = file("either.bin", &[0; 80]);
    let fine = file("fine.pcd.bin", &[0; 40]);
    let missing = folder.path().join("missing.pcd.bin");
    let run = |path: &Path| {
        let mut command = percept();
        command.arg("run").args(NEAR).arg("--input").arg(path);
        command
    };
    assert_fails(&mut run(&torn), 3, &["torn.pcd.bin", "33"]);
    assert_fails(&mut run(&either), 3, &["either.bin", "hint: ", "--format"]);
    assert_fails(&mut run(&missing), 3, &["missing.pcd.bin"]);
    assert_fails(
        run(&fine).args(["--sweeps", "10"]),
        2,
        &["--sweeps", "folder"],
    );
    assert_fails(run(&fine).args(["--sweeps", "11"]), 2, &["1 to 10"]);
    run(&either)
        .args(["--format", "nuscenes"])
        .assert()
        .success();
    let size = ["run", "centerpoint", "--set", "range=10.1"];
    assert_fails(percept().args(size), 2, &["multiples of 16"]);
    let picture = ["run", "resnet18", "--picture", "x.png"];
    assert_fails(percept().args(picture), 2, &["LiDAR"]);
    let export = folder.path().join("a.onnx");
    assert_fails(
        percept()
            .args(["export", "centerpoint", "--onnx"])
            .arg(&export),
        2,
        &["centerpoint-dense"],
    );
    assert!(!export.exists());
}

#[test]
fn profile_reports_a_detector() {
    let args = ["--report", "--repeats", "2"];
    let text = stdout(percept().arg("profile").args(NEAR).args(args));
    for words in [
        "VoxelResBackBone8x(",
        "Rulebook",
        "RotatedNms",
        "Storage",
        "of the map computed",
    ] {
        assert!(text.contains(words), "`{words}` is missing in:\n{text}");
    }
}

/// A small PNG of horizontal stripes.
fn image(path: &Path) {
    let pixels: Vec<u8> = (0..40 * 60 * 3).map(|i| (i / 180 * 6) as u8).collect();
    let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), 60, 40);
    encoder.set_color(png::ColorType::Rgb);
    encoder
        .write_header()
        .unwrap()
        .write_image_data(&pixels)
        .unwrap();
}

#[test]
fn profile_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let mut command = percept();
    command.arg("profile").args(TINY).args([
        "--repeats",
        "3",
        "--by",
        "module",
        "--depth",
        "9",
        "--trace",
    ]);
    let record = json(command.arg(&trace));
    let rows = record["rows"].as_array().unwrap();
    let time = |row: &Value| row["time_ms"]["median"].as_f64().unwrap();
    let children: f64 = rows.iter().filter(|row| row["depth"] == 1).map(time).sum();
    assert!(
        (time(&rows[0]) - children).abs() < 1e-9 * children.max(1.0),
        "{} and {children}",
        time(&rows[0])
    );
    assert!(
        record["memory_at_peak"]["values"]
            .as_array()
            .is_some_and(|values| !values.is_empty())
    );
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 10);
    for by in ["layer", "op"] {
        let text = stdout(percept().arg("profile").args(TINY).args([
            "--repeats",
            "1",
            "--sort",
            "time",
            "--by",
            by,
        ]));
        assert!(
            text.contains("whole network") && text.contains("held at the peak"),
            "{text}"
        );
    }
}

#[test]
fn bench_takes_lists_and_paces() {
    let mut command = percept();
    command.arg("bench").args(TINY).args([
        "--batch",
        "1,2",
        "--size",
        "42x56,70",
        "--repeats",
        "2",
        "--threads",
        "1,2",
    ]);
    let record = json(&mut command);
    assert_eq!(record["rows"].as_array().unwrap().len(), 8);
    let mut command = percept();
    command
        .arg("bench")
        .args(TINY)
        .args(["--paced", "--warmup", "1"])
        .write_stdin("\n\n");
    let text = stdout(&mut command);
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0]["ready"], true);
    assert!(lines[1]["wall_ms"].as_f64().unwrap() > 0.0);
    assert!(lines[3]["peak_memory_bytes"].as_u64().unwrap() > 0);
    let text = stdout(percept().args([
        "bench",
        "conv2d",
        "--set",
        "in_channels=8",
        "--repeats",
        "2",
    ]));
    assert!(text.contains("x [1, 8, 56, 56]"), "{text}");
}

#[test]
fn export_writes_a_file_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let onnx = folder.path().join("tiny.onnx");
    percept()
        .arg("export")
        .args(TINY)
        .arg("--onnx")
        .arg(&onnx)
        .assert()
        .success();
    assert!(std::fs::metadata(&onnx).unwrap().len() > 10_000);
    let nowhere = folder.path().join("missing/tiny.onnx");
    assert_fails(
        percept()
            .arg("export")
            .args(TINY)
            .arg("--onnx")
            .arg(&nowhere),
        3,
        &["tiny.onnx"],
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing half-written is left"
    );
}

#[test]
fn doctor_measures() {
    let record = json(percept().arg("doctor"));
    assert!(record["peak_gflops_per_s"].as_f64().unwrap() > 0.1);
    let portable = json(percept().arg("doctor").env("PERCEPT_ISA", "portable"));
    assert_eq!(portable["isa"], "portable");
}

#[test]
fn mistakes_in_the_command_line() {
    assert_fails(
        percept().args(["run", "resnet51"]),
        2,
        &["resnet51", "hint: did you mean `resnet50`?"],
    );
    assert_fails(
        percept().args(["inspect", "resnet50", "--set", "clases=3"]),
        2,
        &["clases", "classes"],
    );
    assert_fails(
        percept().args(["inspect", "dinov2-vitb14", "--size", "520"]),
        2,
        &["520", "multiple of 14", "518"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--threads", "0"]),
        2,
        &["0 threads"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--threads", "100000"]),
        2,
        &["100000"],
    );
    percept()
        .args(["run", "resnet18", "--size", "0"])
        .assert()
        .code(2);
    percept()
        .args(["run", "resnet18", "--size", "99999999999"])
        .assert()
        .code(2);
    percept()
        .args(["run", "resnet18", "--batch", "0"])
        .assert()
        .code(2);
    let vast = ["run", "resnet50", "--batch", "4096", "--size", "32768"];
    assert_fails(percept().args(vast), 2, &["bytes", "available"]);
    percept().args(["fly"]).assert().code(2);
    assert_fails(
        percept().args(["run", "resnet18", "--tap", "layer9", "--save", "x.npz"]),
        2,
        &["layer9"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--tap", "layer1"]),
        2,
        &["hint: add --save"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--save", "x.txt"]),
        2,
        &[".safetensors or .npz"],
    );
    assert_fails(
        percept().args(["doctor"]).env("PERCEPT_ISA", "mmx"),
        2,
        &["mmx"],
    );
}

#[test]
fn bad_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let missing = folder.path().join("missing.jpg");
    assert_fails(
        percept().args(["run", "resnet18", "--input"]).arg(&missing),
        3,
        &["missing.jpg"],
    );
    let text = file("text.jpg", b"this is no image");
    assert_fails(
        percept().args(["run", "resnet18", "--input"]).arg(&text),
        3,
        &["text.jpg"],
    );
    let empty = tempfile::tempdir().unwrap();
    assert_fails(
        percept()
            .args(["run", "resnet18", "--input"])
            .arg(empty.path()),
        3,
        &["no .jpg or .png"],
    );
    // A header that claims terabytes.
    let mut huge = (1u64 << 50).to_le_bytes().to_vec();
    huge.extend(b"{}");
    let huge = file("huge.safetensors", &huge);
    assert_fails(
        percept().args(["run", "resnet18", "--weights"]).arg(&huge),
        3,
        &["huge.safetensors"],
    );
    assert_fails(
        percept().arg("inspect").arg(&huge),
        3,
        &["huge.safetensors"],
    );
    let old = file("old.pth", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.");
    assert_fails(
        percept().args(["run", "resnet18", "--weights"]).arg(&old),
        3,
        &["old.pth"],
    );
    // Weights of another network.
    let other = file("other.safetensors", &tiny_safetensors());
    let words = ["other.safetensors", "missing", "conv1.weight"];
    assert_fails(
        percept().args(["run", "resnet18", "--weights"]).arg(&other),
        3,
        &words,
    );
    assert_fails(
        percept()
            .args(["verify", "resnet18", "--reference"])
            .arg(&other),
        3,
        &["expect.NAME"],
    );
    assert_fails(
        percept()
            .args(["run", "resnet18", "--input-tensors"])
            .arg(&other),
        2,
        &["image"],
    );
}

fn tiny_safetensors() -> Vec<u8> {
    let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend([0; 4]);
    bytes
}
