//! Where the time goes.

use serde_json::Value;

use crate::asking::{json, stdout};
use crate::{NEAR, TINY, percept};

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

#[test]
fn caches_and_memory_are_reported_when_asked_for() {
    let mut command = percept();
    command.args(["profile", "randlanet-levels", "--set", "cache=64"]);
    command.args(["--repeats", "2", "--memory-report"]);
    let record = json(&mut command);
    let cache = &record["caches"][0];
    assert_eq!(
        (&cache["name"], &cache["hits"], &cache["misses"]),
        (&"levels".into(), &3.into(), &1.into())
    );
    assert!(cache["bytes"].as_u64().unwrap() > 100_000);
    let watched = record["memory_report"].as_array().unwrap();
    let names: Vec<&str> = watched
        .iter()
        .map(|part| part["what"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "reading the input",
            "the first run",
            "further runs",
            "the whole command"
        ]
    );
    let whole = &watched[3];
    assert!(whole["peak_bytes"].as_u64() >= watched[1]["peak_bytes"].as_u64());
}
