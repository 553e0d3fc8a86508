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
fn doctor_measures() {
    let record = json(percept().arg("doctor"));
    assert!(record["peak_gflops_per_s"].as_f64().unwrap() > 0.1);
    let usable = record["isas_usable"].as_array().unwrap();
    assert!(usable.contains(&record["isa"]), "{usable:?}");
    let portable = json(percept().arg("doctor").env("PERCEPT_ISA", "portable"));
    assert_eq!(portable["isa"], "portable");
}
