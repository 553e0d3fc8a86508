//! How fast it is.

use serde_json::Value;

use crate::asking::{json, stdout};
use crate::{NEAR, TINY, percept};

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
fn samples_are_counted_and_not_their_points() {
    let args = ["--batch", "2", "--repeats", "1", "--warmup", "1"];
    let record = json(percept().arg("bench").args(NEAR).args(args));
    let row = &record["rows"][0];
    assert_eq!(row["samples"], 2);
    let seconds = row["wall_ms"]["median"].as_f64().unwrap() * 1e-3;
    let rate = row["samples_per_s"].as_f64().unwrap();
    assert!((rate * seconds - 2.0).abs() < 1e-9, "{rate} in {seconds}");
    let text = stdout(percept().arg("bench").args(NEAR).args(args));
    assert!(text.contains("sweeps/s"), "{text}");
}

/// Each row is measured by another process, in both forms, and their outputs agree.
#[test]
fn a_study_over_clouds_holds_frugal_against_keep() {
    let sizes = ["--points", "300,700", "--batch", "1,2", "--repeats", "1"];
    let record = json(percept().args(["bench", "randlanet"]).args(sizes));
    let rows = record["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[3]["points"]), (4, &700.into()));
    for row in rows {
        assert!(row["difference"].as_f64().unwrap() < 1e-4, "{row}");
        assert!(row["frugal"]["wall_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(row["frugal"]["components_ms"].as_array().unwrap().len(), 3);
        let planned = |form: &str| row[form]["planned_bytes"].as_u64().unwrap();
        assert!(planned("frugal") < planned("keep"), "{row}");
    }
    let text = stdout(
        percept()
            .args(["bench", "randlanet", "--study", "memory", "--points", "300"])
            .args(["--batch", "1", "--repeats", "1"]),
    );
    assert!(text.contains("20-40 % less peak memory"), "{text}");
    let mut none = percept();
    none.args(["bench", "resnet18", "--points", "300"]);
    none.assert()
        .code(2)
        .stderr(predicates::str::contains("brings no study over clouds"));
}

/// Which figures a report has; what they come to is the machine's affair.
#[test]
fn a_study_of_a_pipeline_measures_every_stage_and_every_section() {
    let small = "bench omama-small --study report --repeats 1 --batch 2 --threads 1";
    let set = [
        "data.pairs.ego=[70, 70]",
        "data.pairs.exo=[70, 112]",
        "data.pairs.smallest=12",
    ];
    let set = set.iter().flat_map(|set| ["--set", *set]);
    let record = json(percept().args(small.split(' ')).args(set));
    let rows = |of: &Value| of.as_array().unwrap().clone();
    let mut text = String::new();
    for stage in rows(&record["tree"]) {
        let passes = stage["ms"].as_object().unwrap().values();
        let measured = passes.filter(|ms| ms.as_f64().is_some_and(|ms| ms >= 0.0));
        let name = stage["stage"].as_str().unwrap();
        text += &format!("{name}: {} of 4 passes\n", measured.count());
    }
    for section in rows(&record["sections"]) {
        text += &format!("\n{}\n", section["title"].as_str().unwrap());
        for line in rows(&section["lines"]) {
            let unit = |side: &str| match line[side].as_object() {
                Some(figure) => figure.keys().next().cloned().unwrap(),
                None => "nothing".to_owned(),
            };
            let units = [unit("before"), unit("after")].join(", ");
            text += &format!("  {}: {units}\n", line["what"].as_str().unwrap());
        }
    }
    insta::assert_snapshot!("pipeline_report", text);
    let share = |of: &str| record["share"][of].as_f64().unwrap();
    assert!(share("kept") < share("made") && share("made") < 1.0);
    percept()
        .args(small.split(' '))
        .args(["--input", "a.png"])
        .assert()
        .code(2)
        .stderr(predicates::str::contains("makes its own samples"));
}
