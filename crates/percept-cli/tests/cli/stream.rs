//! Many inputs: answers as they come, what cannot be read, and Ctrl-C.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use percept_data::arrays::read_npz;
use serde_json::Value;

use crate::asking::{assert_fails, json};
use crate::{image, percept};

/// A classifier that runs in a millisecond.
const SMALL: [&str; 6] = [
    "resnet18",
    "--set",
    "width=4",
    "--set",
    "stem=whole",
    "--input",
];

/// A folder of images, some of which are none.
fn folder(images: usize, broken: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("0000.png");
    image(&first);
    for index in 1..images {
        std::fs::hard_link(&first, folder.path().join(format!("{index:04}.png"))).unwrap();
    }
    for index in 0..broken {
        std::fs::write(folder.path().join(format!("0000-{index}.jpg")), "no image").unwrap();
    }
    folder
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn what_cannot_be_read_is_named_skipped_and_counted() {
    let (images, place) = (folder(4, 2), tempfile::tempdir().unwrap());
    let (table, out) = (place.path().join("a.csv"), place.path().join("out"));
    let mut command = percept();
    command.arg("run").args(SMALL).arg(images.path());
    command.args(["--batch", "3", "--top", "2", "--json", "--save"]);
    let output = command
        .arg(&table)
        .arg("--out")
        .arg(&out)
        .assert()
        .success();
    let output = output.get_output();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for words in [
        "skipped: ",
        "0000-0.jpg",
        "0000-1.jpg",
        "2 of 6 images were skipped",
    ] {
        assert!(text.contains(words), "`{words}` is missing in: {text}");
    }
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&record["answered"], &record["skipped"]),
        (&4.into(), &2.into())
    );
    let answers = record["answers"].as_array().unwrap();
    let failed = answers.iter().filter(|answer| answer["error"].is_string());
    assert_eq!((answers.len(), failed.count()), (6, 2));
    let written: Value =
        serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    assert_eq!(written, record);
    let lines = lines(&table);
    assert_eq!(lines[0], "input,place,class,name,probability");
    assert_eq!(lines.len(), 1 + 4 * 2);
    let mut told = answers.iter().filter(|answer| answer["classes"].is_array());
    let class = &told.next().unwrap()["classes"][0];
    let cells: Vec<&str> = lines[1].split(',').collect();
    assert_eq!(cells[2], class["class"].to_string());

    let strict = ["--strict", "--batch", "3"];
    let mut command = percept();
    command
        .arg("run")
        .args(SMALL)
        .arg(images.path())
        .args(strict);
    let output = command.assert().code(3).get_output().clone();
    assert!(String::from_utf8_lossy(&output.stderr).contains("error: "));
}

#[test]
fn nothing_that_can_be_used_is_an_error() {
    let (place, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in ["a.jpg", "b.jpg"] {
        std::fs::write(broken.path().join(name), "no image").unwrap();
    }
    let saved = place.path().join("x.npz");
    assert_fails(
        percept()
            .arg("run")
            .args(SMALL)
            .arg(broken.path())
            .arg("--save")
            .arg(&saved),
        3,
        &["a.jpg", "b.jpg", "none of 2 images"],
    );
    assert!(!saved.exists());
}

#[test]
fn tensors_of_many_runs_are_told_apart() {
    let (images, place) = (folder(2, 0), tempfile::tempdir().unwrap());
    let [npz, safetensors] = ["x.npz", "x.safetensors"].map(|name| place.path().join(name));
    for path in [&npz, &safetensors] {
        let mut command = percept();
        command
            .arg("run")
            .args(SMALL)
            .arg(images.path())
            .arg("--save")
            .arg(path);
        json(&mut command);
    }
    let arrays = read_npz(&npz).unwrap();
    let mut tensors = percept_data::safetensors::read_safetensors(&safetensors).unwrap();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut sorted = arrays.clone();
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert_eq!(sorted, tensors);
    let logits: Vec<&String> = arrays
        .iter()
        .map(|(name, _)| name)
        .filter(|name| name.ends_with("png/logits"))
        .collect();
    assert_eq!(logits.len(), 2);
}

#[test]
#[cfg(unix)]
fn what_was_computed_before_an_interrupt_is_kept() {
    const IMAGES: usize = 9000;
    let (images, place) = (folder(IMAGES, 0), tempfile::tempdir().unwrap());
    let table = place.path().join("a.csv");
    let mut command = Command::cargo_bin("percept").unwrap();
    command.arg("run").args(SMALL).arg(images.path());
    command
        .args(["--top", "1", "--threads", "1", "--save"])
        .arg(&table);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    // The first answer is there, so the run is on its way.
    told.read_line(&mut String::new()).unwrap();
    let interrupt = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    std::io::copy(&mut told, &mut std::io::sink()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("what was computed is kept"), "{text}");
    let rows = lines(&table).len() - 1;
    assert!((1..IMAGES).contains(&rows), "{rows} rows");
    assert!(
        text.contains(&format!("stopped after {rows} of {IMAGES} images")),
        "{text}"
    );
}
