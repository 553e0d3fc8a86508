//! What networks are, and the machine.

use predicates::prelude::*;

use crate::asking::{json, stdout};
use crate::percept;

#[test]
fn models_and_settings() {
    insta::assert_snapshot!("models", stdout(percept().arg("models")));
    insta::assert_snapshot!(
        "settings",
        stdout(percept().args(["models", "dinov2-vitb14"]))
    );
    let record = json(percept().arg("models"));
    assert_eq!(record["schema_version"], 2);
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
fn help_and_lists_stay_within_a_line() {
    for verb in [
        "models", "inspect", "run", "profile", "bench", "train", "eval", "features", "verify",
        "export", "quantize", "elastic", "place", "world", "doctor",
    ] {
        let help = stdout(percept().args([verb, "--help"]));
        let examples = help
            .split_once("Examples:\n")
            .map_or("", |(_, examples)| examples);
        let examples = examples.split("\n\n").next().unwrap_or_default();
        for line in examples.lines() {
            assert!(
                line.starts_with("  "),
                "{verb}: an example is broken at `{line}`"
            );
        }
    }
    for list in [&["models"][..], &["models", "resnet18"]] {
        let text = stdout(percept().args(list));
        let wide = text.lines().find(|line| line.chars().count() >= 100);
        assert_eq!(wide, None);
    }
}

#[test]
fn an_empty_instruction_set_is_none() {
    percept()
        .args(["run", "resnet18", "--size", "32"])
        .env("PERCEPT_ISA", "")
        .assert()
        .success();
}

#[test]
fn doctor_measures() {
    let record = json(percept().arg("doctor"));
    assert!(record["peak_gflops_per_s"].as_f64().unwrap() > 0.1);
    let usable = record["isas_usable"].as_array().unwrap();
    assert!(usable.contains(&record["isa"]), "{usable:?}");
    let portable = json(percept().arg("doctor").env("PERCEPT_ISA", "portable"));
    assert_eq!(portable["isa"], "portable");
}
