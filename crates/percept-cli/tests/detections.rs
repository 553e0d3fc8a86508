//! `percept eval` of a detector on a nuScenes folder: answers saved and judged again, curves, and folders and files that are broken.

mod asking;

use std::fs;
use std::path::Path;

use asking::{assert_fails, json, stdout};
use assert_cmd::Command;
use serde_json::{Value, json as value};

/// A detector of a few thousand parameters, untrained: it finds boxes that mean nothing.
const TINY: [&str; 19] = [
    "eval",
    "centerpoint-small",
    "--quiet",
    "--set",
    "range=12.8",
    "--set",
    "voxel=0.2",
    "--set",
    "stage1=4",
    "--set",
    "stage2=4",
    "--set",
    "stage3=4",
    "--set",
    "stage4=4",
    "--set",
    "head=4",
    "--split",
    "whole",
];

/// In a folder with a street of three keyframes.
struct Street(tempfile::TempDir);

impl Street {
    fn new() -> Self {
        let street = Self(tempfile::tempdir().expect("a folder"));
        let world = ["world", "make", "--frames", "3", "--sweeps", "1", "--out"];
        stdout(street.percept().args(world).arg("street"));
        street
    }

    fn percept(&self) -> Command {
        let mut command = Command::cargo_bin("percept").expect("the command is built");
        command.current_dir(self.0.path());
        command
    }

    /// An evaluation on the street.
    fn eval(&self) -> Command {
        let mut command = self.percept();
        command.args(TINY).args(["--data", "street"]);
        command
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

fn write(path: &Path, contents: &Value) {
    fs::write(path, contents.to_string()).expect("it is written");
}

#[test]
fn answers_are_saved_judged_again_and_drawn() {
    let street = Street::new();
    let asked = ["--weights", "seeded", "--save", "answers.json"];
    let record = json(street.eval().args(asked).args(["--curves", "curves.png"]));
    assert_eq!(record["samples"], 3);
    let keys = ["map", "nds", "classes", "slices", "ranges"];
    assert!(keys.iter().all(|key| !record[*key].is_null()), "{record}");
    let picture = fs::read(street.path("curves.png")).expect("a picture");
    assert!(picture.starts_with(b"\x89PNG"));

    let answers = read(&street.path("answers.json"));
    assert_eq!(answers["meta"]["use_lidar"], true);
    let frames = answers["results"].as_object().expect("frames by token");
    assert_eq!(frames.len(), 3);
    let mut boxes = frames.values().flat_map(|frame| frame.as_array().unwrap());
    let moving = boxes.find(|found| found["detection_name"] == "car");
    let attribute = moving.map(|car| car["attribute_name"].as_str().unwrap().to_owned());
    assert!(attribute.is_none_or(|name| name.starts_with("vehicle.")));

    // The same boxes, in the global frame and through a file, are worth the same.
    let again = json(street.eval().args(["--results", "answers.json"]));
    for key in ["map", "nds", "mate_m", "mase"] {
        let (first, second) = (record[key].as_f64(), again[key].as_f64());
        let apart = first.zip(second).map(|(a, b)| (a - b).abs());
        assert!(apart.is_some_and(|apart| apart < 1e-9), "{key}: {apart:?}");
    }
    assert_eq!(record["classes"], again["classes"]);
}

#[test]
fn broken_answers_and_folders_are_told() {
    let street = Street::new();
    let asked = ["--weights", "seeded", "--save", "answers.json"];
    stdout(street.eval().args(asked));
    let answers = read(&street.path("answers.json"));
    let judged = |name: &str, contents: &Value, words: &[&str]| {
        write(&street.path(name), contents);
        assert_fails(street.eval().args(["--results", name]), 3, words);
    };

    let mut other = answers.clone();
    let frames = other["results"].as_object_mut().expect("frames");
    frames.clear();
    frames.insert("a frame from elsewhere".to_owned(), value!([]));
    judged(
        "other.json",
        &other,
        &["other.json", "only: predictions must name"],
    );

    let mut not_finite = answers.clone();
    let frames = not_finite["results"].as_object_mut().expect("frames");
    let full = frames
        .values_mut()
        .find(|boxes| !boxes.as_array().unwrap().is_empty());
    full.expect("a box")[0]["translation"][0] = Value::Null;
    judged("nan.json", &not_finite, &["nan.json"]);
    judged("no_results.json", &value!({"meta": {}}), &["results"]);
    assert_fails(
        street.eval().args(["--results", "nowhere.json"]),
        3,
        &["nowhere.json"],
    );

    // Only keyframes have names that others know.
    let world = [
        "--set",
        "data.world.frames=1",
        "--set",
        "data.world.testing_frames=1",
    ];
    let save = ["--weights", "seeded", "--save", "nowhere.json"];
    let mut in_memory = street.percept();
    assert_fails(
        in_memory.args(TINY).args(world).args(save),
        3,
        &["nuScenes folder"],
    );
    assert!(!street.path("nowhere.json").exists());
    assert_fails(
        street
            .percept()
            .args(["eval", "resnet18", "--results", "answers.json", "--quiet"]),
        2,
        &["no public file layout"],
    );

    let tables = street.path("street").join("v1.0-synthetic");
    write(&tables.join("sample_annotation.json"), &value!([]));
    let unannotated = ["--results", "answers.json"];
    assert_fails(street.eval().args(unannotated), 3, &["no true boxes"]);
    assert_fails(
        street.eval().args(["--weights", "seeded"]),
        3,
        &["no true boxes"],
    );
}
