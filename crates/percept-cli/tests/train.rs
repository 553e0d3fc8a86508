//! `percept train` and `percept eval` as a user meets them: runs, resumes, kills, broken pictures, full disks.

mod asking;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use asking::{assert_fails, json, stdout};
use assert_cmd::Command;
use assert_cmd::cargo::CommandCargoExt;
use percept_data::random::Draws;
use serde_json::Value;

/// A run of some seconds at most.
const TINY: [&str; 21] = [
    "train",
    "resnet18",
    "--set",
    "width=4",
    "--set",
    "size=32",
    "--set",
    "stem=whole",
    "--set",
    "batch=8",
    "--set",
    "data.birds.classes=3",
    "--set",
    "data.birds.per_class=16",
    "--set",
    "data.birds.testing_per_class=4",
    "--set",
    "epochs=4",
    "--threads",
    "2",
    "--quiet",
];
const KILLS: usize = 5;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn percept() -> Command {
    Command::cargo_bin("percept").expect("the command is built")
}

fn tiny(out: &Path) -> Command {
    let mut command = percept();
    command.args(TINY).arg("--out").arg(out);
    command
}

/// The newest checkpoint, to the byte: weights, moments, and where the run stands.
fn newest(folder: &Path) -> (PathBuf, Vec<u8>) {
    let files = fs::read_dir(folder).expect("the folder is read");
    let files = files.map(|entry| entry.expect("an entry").path());
    let is_checkpoint = |path: &PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        name.starts_with("step-") && name.ends_with(".safetensors")
    };
    let newest = files.filter(is_checkpoint).max().expect("a checkpoint");
    let content = fs::read(&newest).expect("it is read");
    (PathBuf::from(newest.file_name().expect("a name")), content)
}

#[test]
fn train_then_evaluate() {
    let place = tempfile::tempdir().expect("a folder");
    let record = json(&mut tiny(place.path()));
    assert_eq!(
        (&record["steps"], &record["ending"]),
        (&24.into(), &"complete".into())
    );
    let best = place.path().join("best.safetensors");
    let evaluated = json(
        percept()
            .args(["eval", "resnet18", "-q", "--weights"])
            .arg(&best),
    );
    assert_eq!(evaluated["samples"], 12);
    assert_eq!(evaluated["top1"], record["best"]["metric"]);
    assert_eq!(evaluated["classes"].as_array().map(Vec::len), Some(3));
    let contradicted = ["eval", "resnet18", "--set", "width=8", "--weights"];
    assert_fails(
        percept().args(contradicted).arg(&best),
        2,
        &["width=8 contradicts the weights, which have width=4"],
    );
    // Integers of these weights know which pictures the run was judged by.
    let integers = place.path().join("best.i8.safetensors");
    let mut quantize = percept();
    quantize.args(["quantize", "resnet18", "-q", "--samples", "2", "--weights"]);
    stdout(quantize.arg(&best).arg("--to").arg(&integers));
    let evaluated = json(
        percept()
            .args(["eval", "resnet18", "-q", "--weights"])
            .arg(&integers),
    );
    assert_eq!(evaluated["samples"], 12);
    let curves = fs::read_to_string(place.path().join("curves.svg")).expect("curves");
    assert!(curves.contains("test top1"), "{}", &curves[..200]);
    let text = stdout(
        percept()
            .args(["eval", "resnet18", "-q", "--split", "training", "--weights"])
            .arg(&best),
    );
    assert!(text.contains("48 pictures of 3 classes"), "{text}");
    assert_fails(
        &mut tiny(place.path()),
        2,
        &["there is a run already", "--resume"],
    );
    assert_fails(
        tiny(place.path()).args(["--resume", "--set", "width=8"]),
        2,
        &["a checkpoint of resnet18", "width=4", "not of", "width=8"],
    );
    assert_fails(
        tiny(place.path()).args(["--resume", "--set", "schedule.rate=0.5"]),
        2,
        &["begun with schedule.rate", "not 0.5"],
    );
}

#[test]
fn a_run_begins_with_the_weights_of_another_and_a_head_of_its_own() {
    let place = tempfile::tempdir().expect("a folder");
    let [first, second] = ["first", "second"].map(|name| place.path().join(name));
    stdout(tiny(&first).args(["--set", "epochs=1"]));
    let weights = first.join("best.safetensors");
    let four = ["--set", "epochs=1", "--set", "data.birds.classes=4"];
    let tuning = |out: &Path| {
        let mut command = percept();
        let loud = TINY.iter().filter(|argument| **argument != "--quiet");
        command.args(loud).args(four).arg("--out").arg(out);
        command
    };
    let output = tuning(&second).arg("--weights").arg(&weights).output();
    let output = output.expect("it runs");
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{notes}");
    for words in ["begins with weights: ", "fc.weight", "fc.bias"] {
        assert!(notes.contains(words), "`{words}` is missing in: {notes}");
    }
    assert!(!notes.contains("layer1.0.conv1"), "{notes}");
    // A run that goes on knows what it began with.
    stdout(tuning(&second).arg("--resume"));
    let other = ["--resume", "--weights", "other.safetensors"];
    assert_fails(tuning(&second).args(other), 2, &["begun with start"]);
    let missing = place.path().join("third");
    let nowhere = ["--weights", "nowhere.safetensors"];
    assert_fails(tuning(&missing).args(nowhere), 3, &["nowhere.safetensors"]);
}

#[test]
fn untrained_weights_are_judged_too() {
    let few = [
        "--set",
        "data.birds.classes=4",
        "--set",
        "data.birds.testing_per_class=4",
        "--set",
        "width=4",
    ];
    let eval = ["eval", "resnet18", "-q", "--weights", "seeded"];
    let record = json(percept().args(eval).args(few));
    assert_eq!(record["samples"], 16);
    assert_eq!(record["weights"], "seeded, accuracy means nothing");
}

/// `TINY` for PaCo-2: two views, and prototypes that training moves.
fn tiny_paco(out: &Path) -> Process {
    let mut command = Process::cargo_bin("percept").expect("the command is built");
    let arguments = TINY.map(|argument| match argument {
        "resnet18" => "paco",
        other => other,
    });
    command.args(arguments).arg("--out").arg(out);
    command
}

#[cfg(unix)]
#[test]
fn paco_that_is_interrupted_resumes_to_the_same_bits() {
    let place = tempfile::tempdir().expect("a folder");
    let [whole, stopped] = ["whole", "stopped"].map(|name| place.path().join(name));
    assert!(
        tiny_paco(&whole)
            .output()
            .expect("it runs")
            .status
            .success()
    );
    let log = fs::read_to_string(whole.join("metrics.jsonl")).expect("a log");
    let first: Value = serde_json::from_str(log.lines().next().expect("a line")).expect("JSON");
    for term in ["loss", "ce", "pac", "soc"] {
        assert!(first[term].is_f64(), "{term} is missing in {first}");
    }

    let output = Stdio::piped();
    let mut child = tiny_paco(&stopped)
        .stdout(output)
        .spawn()
        .expect("a process");
    wait_for(&stopped.join("metrics.jsonl"), &mut child);
    let interrupt = Process::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupt.expect("kill").success());
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("--resume goes on"),
        "{told}"
    );
    assert_ne!(
        newest(&stopped).0,
        newest(&whole).0,
        "it was over before the interrupt"
    );
    let resumed = tiny_paco(&stopped)
        .arg("--resume")
        .output()
        .expect("it runs");
    assert!(resumed.status.success());
    assert!(
        newest(&stopped) == newest(&whole),
        "the resumed run has other bits"
    );

    let best = whole.join("best.safetensors");
    let evaluated = json(
        percept()
            .args(["eval", "paco", "-q", "--weights"])
            .arg(&best),
    );
    assert_eq!(evaluated["samples"], 12);
    let mut smoothed = percept();
    smoothed
        .args(["train", "paco", "--set", "label_smoothing=0.1", "--out"])
        .arg(&best);
    assert_fails(&mut smoothed, 2, &["paco has a loss of its own"]);
}

#[test]
fn a_study_of_trainings_holds_every_row_against_the_first() {
    let place = tempfile::tempdir().expect("a folder");
    let study = ["--study", "ablation", "--seeds", "2", "--epochs", "1"];
    let mut command = Command::from_std(tiny_paco(place.path()));
    let record = json(command.args(study));
    let rows = record["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["row"].as_str()).collect();
    assert_eq!(names, ["CE", "CE + PaC", "CE + SoC", "CE + PaC + SoC"]);
    assert!(
        rows.iter()
            .all(|row| row["top1"].as_array().map(Vec::len) == Some(2))
    );
    assert!(rows[0].get("against_first").is_none());
    assert!(rows[3]["against_first"]["finding"].is_string());
    // Whatever is there already is not trained again.
    let mut command = Command::from_std(tiny_paco(place.path()));
    let again = json(command.args(study).arg("--resume"));
    let again = again["rows"].as_array().expect("rows");
    for (again, row) in again.iter().zip(rows) {
        assert_eq!(again["top1"], row["top1"]);
        assert_eq!(again["against_first"], row["against_first"]);
        assert!(row["seconds"].as_f64() > Some(0.0));
        assert!(again["seconds"].is_null() && again["step_bytes"].is_null());
    }
    let mut other = tiny(place.path());
    assert_fails(
        other.args(["--study", "ablation"]),
        2,
        &["resnet18 has no study `ablation`", "brings none"],
    );
    let mut varied = Command::from_std(tiny_paco(place.path()));
    varied.args(["--study", "ablation", "--set", "eta_soc=1"]);
    assert_fails(&mut varied, 2, &["eta_soc", "ablation compares"]);
    let mut steps = percept();
    steps.args(["train", "paco", "--study", "cost"]);
    assert_fails(&mut steps, 2, &["percept bench paco --study cost"]);
}

#[test]
fn a_study_of_steps_measures_every_row_and_the_published_claims() {
    // Narrow, because what is asked is whether every row is measured.
    let small = ["--batch", "2", "--repeats", "1", "-q", "--set", "width=8"];
    let mut command = percept();
    command
        .args(["bench", "paco", "--study", "cost"])
        .args(small);
    let record = json(&mut command);
    let rows = record["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 11);
    for row in rows {
        let components = row["components_ms"].as_array().expect("components");
        let sum: f64 = components.iter().filter_map(Value::as_f64).sum();
        let step = row["step_ms"].as_f64().expect("a step");
        assert!(0.0 < sum && sum < step, "{row}");
        assert!(
            components.iter().all(|part| part.as_f64() > Some(0.0)),
            "{row}"
        );
    }
    assert_eq!(rows[4]["set"]["d"], "32");
    let mut command = percept();
    command.args(["bench", "paco", "--study", "cots"]);
    assert_fails(
        &mut command,
        2,
        &["no study `cots`", "cost (", "ablation ("],
    );
}

#[test]
fn a_training_step_is_profiled_with_its_data() {
    let small = [
        "profile",
        "paco",
        "--train",
        "-q",
        "--batch",
        "4",
        "--size",
        "32",
        "--repeats",
        "2",
        "--set",
        "backbone=resnet18",
        "--set",
        "width=4",
        "--set",
        "stem=whole",
        "--set",
        "d=8",
    ];
    let record = json(percept().args(small));
    let step = record["step"].as_array().expect("a tree");
    let time = |row: &Value| row["time_ms"].as_f64().expect("a time");
    let parts = step.iter().filter(|row| row["depth"] == 1).map(time);
    assert!((time(&step[0]) - parts.sum::<f64>()).abs() < 1e-9);
    let rows = record["rows"].as_array().expect("rows");
    let layer = |name: &str| rows.iter().find(|row| row["name"] == name).expect(name);
    for name in [
        "backbone.layer1.0.conv1",
        "dim_reduction",
        "covariance",
        "pac.contrast",
    ] {
        let [forward, backward] =
            ["forward_ms", "backward_ms"].map(|key| layer(name)[key].as_f64());
        assert!(forward > Some(0.0) && backward > Some(0.0), "{name}");
    }
    assert_eq!(layer("backbone.conv1")["parameters"], 4 * 3 * 9);
    let text = stdout(
        percept()
            .args(small)
            .args(["--by", "module", "--depth", "1"]),
    );
    for word in [
        "waiting for data",
        "forward",
        "backward",
        "update",
        "4 pictures (image [4, 3, 32, 32], image_2 [4, 3, 32, 32], labels [4])",
    ] {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
    let wide = ["profile", "resnet18", "--train", "--size", "32x64"];
    assert_fails(percept().args(wide), 2, &["square"]);
    assert_fails(
        percept().args(["profile", "resnet18", "--data", "x"]),
        2,
        &["--train"],
    );
}

#[test]
fn settings_that_do_not_exist_are_refused() {
    let place = tempfile::tempdir().expect("a folder");
    for (set, words) in [
        (
            "epohcs=3",
            [
                "there is no setting `epohcs`; the nearest are `epochs`",
                "epohcs",
            ],
        ),
        ("width=0", ["width", "a whole number"]),
        ("schedule.rate=-1", ["schedule.rate", "above 0"]),
    ] {
        assert_fails(tiny(place.path()).args(["--set", set]), 2, &words);
    }
    assert_fails(
        percept().args(["train", "resnet81"]),
        2,
        &["did you mean `resnet18`"],
    );
    assert_fails(
        percept().args(["train", "dinov2-vits14"]),
        2,
        &[
            "dinov2-vits14 cannot be trained",
            "those that can be",
            "paco",
        ],
    );
    let missing = place.path().join("missing.toml");
    assert_fails(
        percept()
            .args(["train", "resnet18", "--config"])
            .arg(&missing),
        3,
        &["missing.toml"],
    );
    assert_fails(
        percept()
            .args(["eval", "resnet18", "--weights"])
            .arg(&missing),
        3,
        &["missing.toml"],
    );
}

/// Pictures of one colour a class, in folders.
fn photographs(root: &Path) {
    for (class, colour) in [("auk", 40), ("jay", 200)] {
        for number in 0..8u8 {
            let path = root.join(class).join(format!("{number}.png"));
            fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
            let file = fs::File::create(&path).expect("a file");
            let mut encoder = png::Encoder::new(file, 16, 16);
            encoder.set_color(png::ColorType::Rgb);
            let mut writer = encoder.write_header().expect("a header");
            let pixels: Vec<u8> = (0..16 * 16 * 3)
                .map(|i| colour + number + (i % 7) as u8)
                .collect();
            writer.write_image_data(&pixels).expect("pixels");
        }
    }
}

fn on_photographs(data: &Path, out: &Path) -> Command {
    let mut command = percept();
    let set = [
        "width=4",
        "stem=whole",
        "size=16",
        "batch=4",
        "schedule.rate=0.01",
    ];
    command.args(["train", "resnet18", "--epochs", "2"]);
    command.args(set.iter().flat_map(|set| ["--set", set]));
    command.arg("--data").arg(data).arg("--out").arg(out);
    command
}

#[test]
fn a_corrupt_picture_is_skipped_or_stops_a_strict_run() {
    let place = tempfile::tempdir().expect("a folder");
    let (data, out) = (place.path().join("data"), place.path().join("run"));
    photographs(&data);
    // All of a class, so that one of them is among those to train with.
    let broken = data.join("auk/3.png");
    let content = fs::read(&broken).expect("a picture");
    fs::write(&broken, &content[..content.len() / 2]).expect("it is cut");
    let hold = ["--set", "data.hold_out=0.25", "--set", "seed=1"];
    let mut found = false;
    for seed in ["seed=1", "seed=2", "seed=3", "seed=4"] {
        let out = out.join(seed);
        let output = on_photographs(&data, &out)
            .args(hold)
            .args(["--set", seed])
            .output();
        let output = output.expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{told}");
        assert!(
            told.contains("skipped: ") && told.contains("3.png"),
            "{told}"
        );
        found |= String::from_utf8_lossy(&output.stdout).contains("pictures skipped");
        let strict = out.join("strict");
        let mut strict = on_photographs(&data, &strict);
        assert_fails(
            strict.args(hold).args(["--set", seed, "--strict", "-q"]),
            3,
            &["3.png", "--strict"],
        );
    }
    assert!(found, "the picture was never among those to train with");
}

#[test]
fn an_empty_class_is_named() {
    let place = tempfile::tempdir().expect("a folder");
    let data = place.path().join("data");
    photographs(&data);
    fs::create_dir(data.join("owl")).expect("an empty class");
    let out = place.path().join("run");
    assert_fails(
        &mut on_photographs(&data, &out),
        3,
        &["class `owl` has no images"],
    );
}

#[test]
fn a_loss_that_is_no_number_stops_the_run() {
    let place = tempfile::tempdir().expect("a folder");
    let set = [
        "--set",
        "schedule.rate=1e30",
        "--set",
        "schedule.warmup_epochs=0",
    ];
    assert_fails(
        tiny(place.path())
            .args(set)
            .args(["--set", "checkpoint.every_steps=1"]),
        1,
        &[
            "step ",
            "not finite",
            "step-000000001.safetensors",
            "schedule.rate",
        ],
    );
}

/// Files of at most some kilobytes stand for a full disk; writing on is then an error instead of the end of the process.
#[cfg(unix)]
#[test]
fn a_full_disk_stops_the_run_and_leaves_what_was_written() {
    let place = tempfile::tempdir().expect("a folder");
    tiny(place.path()).assert().success();
    let (last, _) = newest(place.path());
    fs::remove_file(place.path().join(last)).expect("it is removed");
    let before = newest(place.path());
    let output = Process::new("sh")
        .arg("-c")
        .arg("ulimit -f 64; trap '' XFSZ; exec \"$0\" \"$@\"")
        .arg(assert_cmd::cargo::cargo_bin("percept"))
        .args(TINY)
        .arg("--resume")
        .arg("--out")
        .arg(place.path())
        .output()
        .expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(
        told.contains("step-000000024") && told.contains("make room"),
        "{told}"
    );
    assert_eq!(newest(place.path()), before);
}

/// Real photographs, where `PERCEPT_SHARED` (default: `../shared`) has them: 5 classes of birds, told apart without an error
/// once they were seen often enough.
#[test]
fn photographs_are_learned_by_heart() {
    let Some(data) = percept_testing::shared("data/cub200") else {
        return;
    };
    let place = tempfile::tempdir().expect("a folder");
    let mut train = percept();
    train.args(["train", "paco", "-q", "--epochs", "40"]);
    let set = [
        "backbone=resnet18",
        "width=8",
        "stem=half",
        "d=16",
        "r=1",
        "lambda_pac=0.1",
        "size=64",
        "batch=12",
        "evaluate_every=40",
        "optimiser.kind=adamw",
        "optimiser.weight_decay=0.01",
        "schedule.rate=0.003",
        "augment.crop.scale=[0.7, 0.9]",
    ];
    train.args(set.iter().flat_map(|set| ["--set", set]));
    train
        .arg("--data")
        .arg(&data)
        .arg("--out")
        .arg(place.path());
    train.assert().success();
    let weights = place.path().join(newest(place.path()).0);
    let mut test = percept();
    test.args(["eval", "paco", "-q", "--split", "training", "--data"]);
    let tested = json(test.arg(&data).arg("--weights").arg(&weights));
    assert_eq!(
        (&tested["samples"], &tested["top1"]),
        (&50.into(), &1.0.into())
    );
}

/// Waits until a file is there, or the process ended.
fn wait_for(path: &Path, child: &mut std::process::Child) {
    let begun = Instant::now();
    while !path.exists() && child.try_wait().expect("a process").is_none() {
        assert!(begun.elapsed() < PATIENCE, "{} never came", path.display());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_that_is_killed_again_and_again_ends_with_the_same_bits() {
    let place = tempfile::tempdir().expect("a folder");
    let often = ["--set", "checkpoint.every_steps=2"];
    let whole = place.path().join("whole");
    let begun = Instant::now();
    tiny(&whole).args(often).assert().success();
    let took = begun.elapsed();
    let expected = newest(&whole);

    let folder = place.path().join("killed");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.map_or(0, |time| time.subsec_nanos().into());
    println!("seed {seed}");
    let mut draws = Draws::new(seed, 0);
    let mut kills = 0;
    for _ in 0..KILLS {
        let mut child = Process::cargo_bin("percept")
            .expect("the command is built")
            .args(TINY)
            .args(often)
            .arg("--out")
            .arg(&folder)
            .arg("--resume")
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        wait_for(&folder.join(".lock"), &mut child);
        let share = draws.range(0.0, 0.5);
        thread::sleep(took.mul_f64(share));
        child.kill().expect("the process can be killed");
        kills += usize::from(child.wait().expect("it ends").code().is_none());
    }
    assert!(kills > 0, "every process ended before it was killed");
    tiny(&folder).args(often).arg("--resume").assert().success();
    assert!(
        newest(&folder) == expected,
        "the bits differ after {kills} kills"
    );
}
