//! O-MaMa's training on kept features as a user meets it: extraction, a run that is killed, two processes, damaged files.

mod asking;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use asking::{assert_fails, json, stdout};
use assert_cmd::Command;
use assert_cmd::cargo::CommandCargoExt;

/// Small pictures of two rooms: the backbone is a whole ViT-S all the same.
const ROOMS: [&str; 16] = [
    "--set",
    "data.pairs.rooms=2",
    "--set",
    "data.pairs.testing_rooms=1",
    "--set",
    "data.pairs.ego=[70, 70]",
    "--set",
    "data.pairs.exo=[70, 112]",
    "--set",
    "data.pairs.smallest=12",
    "--set",
    "data.pairs.candidates=8",
    "--threads",
    "2",
    "--quiet",
    "--features",
];
const PATIENCE: Duration = Duration::from_secs(120);

fn percept(arguments: &[&str], features: &Path) -> Command {
    let mut command = Command::cargo_bin("percept").expect("the command is built");
    command.args(arguments).args(ROOMS).arg(features);
    command
}

const TRAIN: [&str; 8] = [
    "train",
    "omama-small",
    "--set",
    "batch=4",
    "--set",
    "augment.masks=8",
    "--set",
    "checkpoint.every_steps=1",
];

fn train(features: &Path, out: &Path) -> Process {
    let mut command = Process::cargo_bin("percept").expect("the command is built");
    command
        .args(TRAIN)
        .args(["--set", "epochs=2", "--set", "evaluate_every=9"]);
    command
        .args(ROOMS)
        .arg(features)
        .arg("--out")
        .arg(out)
        .arg("--resume");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The newest checkpoint.
fn newest(folder: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()));
    let name = |path: &PathBuf| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let steps = files.filter(|path| {
        name(path).is_some_and(|name| name.starts_with("step-") && name.ends_with(".safetensors"))
    });
    steps.max()
}

#[test]
fn a_run_on_features_that_is_killed_ends_with_the_same_bits_and_a_damaged_file_is_made_again() {
    let place = tempfile::tempdir().expect("a folder");
    let [kept, whole, killed] = ["kept", "whole", "killed"].map(|name| place.path().join(name));
    // Two processes fill one folder at once.
    let extract = || {
        let mut command = Process::cargo_bin("percept").expect("the command is built");
        command
            .args(["features", "extract", "omama-small"])
            .args(ROOMS)
            .arg(&kept);
        command.stdout(Stdio::null()).spawn().expect("a process")
    };
    let processes = [extract(), extract()];
    for mut process in processes {
        assert!(process.wait().expect("it ends").success());
    }
    let record = json(&mut percept(&["features", "extract", "omama-small"], &kept));
    assert_eq!(
        (&record["kept_before"], &record["computed"]),
        (&6.into(), &0.into())
    );

    // A torn file is a miss, and is made again.
    let files = fs::read_dir(kept.join("features")).expect("features");
    let torn = files
        .filter_map(|file| Some(file.ok()?.path()))
        .min()
        .expect("a file");
    let content = fs::read(&torn).expect("it is read");
    fs::write(&torn, &content[..content.len() / 2]).expect("it is torn");
    assert!(train(&kept, &whole).status().expect("a process").success());
    assert_eq!(fs::read(&torn).expect("it is there again"), content);

    let mut child = train(&kept, &killed).spawn().expect("a process");
    let begun = Instant::now();
    while newest(&killed).is_none() {
        assert!(begun.elapsed() < PATIENCE, "no checkpoint");
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    assert!(train(&kept, &killed).status().expect("a process").success());
    let bits = |folder: &Path| fs::read(newest(folder).expect("a checkpoint")).expect("it is read");
    assert!(bits(&whole) == bits(&killed), "the bits differ");

    // A checkpoint has the head alone; the backbone is seeded by name.
    let best = whole.join("best.safetensors").display().to_string();
    let record = json(&mut percept(
        &["eval", "omama-small", "--weights", &best],
        &kept,
    ));
    assert!(
        record["top1"].is_number() && record["chance"].as_f64() > Some(0.0),
        "{record}"
    );
    assert_eq!(record["features"]["computed"], 0);
}

#[test]
fn features_are_listed_checked_and_removed_and_others_have_none() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().display().to_string();
    let features = |verb: &str| {
        let mut command = Command::cargo_bin("percept").expect("the command is built");
        command.args(["features", verb, "--features", &folder]);
        command
    };
    assert!(stdout(&mut features("list")).contains("0 files"));
    let nowhere = place.path().join("nowhere").display().to_string();
    for verb in ["verify", "clear"] {
        let mut command = Command::cargo_bin("percept").expect("the command is built");
        command.args(["features", verb, "--features", &nowhere]);
        assert_fails(&mut command, 3, &["nowhere", "no such folder"]);
    }
    let broken = place.path().join("features");
    fs::create_dir_all(&broken).expect("a folder");
    fs::write(
        broken.join(format!("{}.blob", "0".repeat(64))),
        "of another version",
    )
    .expect("a file");
    assert_eq!(json(&mut features("verify"))["removed"], 1);
    assert_eq!(json(&mut features("clear"))["files"], 0);
    let mut other = percept(&["features", "extract", "resnet18"], place.path());
    assert_fails(&mut other, 2, &["freezes nothing that comes again"]);
    let mut small = percept(
        &[
            "features",
            "extract",
            "omama-small",
            "--features-limit",
            "0.000001",
        ],
        place.path(),
    );
    assert_fails(&mut small, 2, &["the limit is"]);
}
