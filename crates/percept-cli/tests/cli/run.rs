//! Images to classes, sweeps to boxes.

use std::path::Path;

use serde_json::Value;

use crate::asking::{assert_fails, json, stdout};
use crate::{NEAR, image, percept, sweep};

#[test]
fn classify_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grey.png");
    image(&path);
    let record = json(percept().args(["run", "resnet18", "--input"]).arg(&path));
    let top = record["answers"][0]["classes"].as_array().unwrap();
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
    assert_eq!(both["answers"].as_array().unwrap().len(), 2);
    let answer = |image: usize, place: usize| &both["answers"][image]["classes"][place];
    for place in 0..5 {
        let [first, second] = [0, 1].map(|image| answer(image, place));
        assert_eq!(first["class"], second["class"]);
        // A pixel's place in the batch decides which kernel finishes it, so the last bits may differ.
        let [a, b] = [first, second].map(|top| top["probability"].as_f64().unwrap());
        assert!((a - b).abs() < 1e-6, "{a} and {b}");
    }
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
    let boxes = record["answers"][0]["boxes"].as_array().unwrap();
    assert!(!boxes.is_empty() && boxes[0]["score"].as_f64() >= boxes[1]["score"].as_f64());
    assert!(boxes[0]["class"].is_string() && boxes[0]["velocity_m_per_s"].is_array());
    let written = std::fs::read(&picture).unwrap();
    assert!(written.starts_with(b"\x89PNG"));
    assert!(stdout(&mut run(&["--top", "2"])).contains("boxes: "));

    // Of several inputs the pictures are numbered, and named as they are.
    let second = folder.path().join("b.pcd.bin");
    std::fs::copy(&file, &second).unwrap();
    let both = stdout(
        run(&["--picture"])
            .arg(&picture)
            .arg("--input")
            .arg(&second),
    );
    assert!(
        both.contains("bev-0.png to ") && both.contains("bev-1.png\n"),
        "{both}"
    );
    assert!(folder.path().join("bev-1.png").is_file());

    // A broken point is left out and told; the answer is the one without it.
    points.push([f32::NAN, 0.0, 0.0, 1.0, 0.0]);
    sweep(&file, &points);
    let output = run(&["--json"]).assert().success().get_output().clone();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("left out as NaN or infinite: 1 point\n")
    );
    let with_nan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(with_nan["answers"], record["answers"]);

    // No points at all are no error.
    sweep(&file, &[]);
    assert!(json(&mut run(&[]))["answers"][0]["boxes"].is_array());
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
        &["10 sweeps", "folder"],
    );
    assert_fails(run(&fine).args(["--sweeps", "11"]), 2, &["1 to 10"]);
    run(&either)
        .args(["--format", "nuscenes"])
        .assert()
        .success();
    let size = ["run", "centerpoint", "--set", "range=10.1"];
    assert_fails(percept().args(size), 2, &["multiples of 16"]);
    let picture = ["run", "dinov2-vits14", "--picture", "x.png"];
    assert_fails(percept().args(picture), 2, &["no picture of features"]);
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
