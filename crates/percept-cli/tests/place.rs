//! `percept place` and `percept elastic` as a user meets them.

use assert_cmd::Command;
use percept_data::arrays::read_npy;
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::contains;

fn percept(folder: &tempfile::TempDir, arguments: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = Command::cargo_bin("percept").expect("the binary");
    let command = command.current_dir(folder.path()).args(arguments);
    command.assert()
}

const TOWN: [&str; 4] = ["--frames", "4", "--passes", "2"];

#[test]
fn a_town_is_indexed_asked_judged_and_exported() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |arguments: &[&str]| percept(&folder, &[&["place"], arguments].concat());
    let town = |verb: &'static str| {
        [&[verb, "--index", "town", "--weights", "seeded"], &TOWN[..]].concat()
    };
    place(&town("index")).success().stdout(contains(
        "town: 4 places added, 4 in all, of lcpr-small with 128 numbers",
    ));
    // The same frames again are the same places.
    place(&town("index")).success().stdout(contains("4 in all"));
    place(&town("query"))
        .success()
        .stdout(contains("pass 1, frame 0 at"))
        .stdout(contains("margin"));
    place(
        &[
            &town("query")[..],
            &["--first", "2", "--picture", "match.svg"],
        ]
        .concat(),
    )
    .success();
    for number in 0..2 {
        let path = folder.path().join(format!("match-{number}.svg"));
        let drawn = std::fs::read_to_string(path).expect("a picture");
        assert!(drawn.contains("query") && drawn.contains("pass 0, frame"));
    }
    place(&town("eval"))
        .success()
        .stdout(contains("recall@1"))
        .stdout(contains("F1 (public)"));
    let name = "synthetic places, seed 0, pass 0, frame 2";
    place(&["forget", "--index", "town", name])
        .success()
        .stdout(contains("1 place deleted, 3 left"));
    place(&["forget", "--index", "town", name]).code(3);
    std::fs::write(folder.path().join("bad.jpg"), "no index of places").expect("written");
    for (verb, index, said) in [
        ("query", "bad.jpg", "bad.jpg: not an index of places"),
        ("index", "bad.jpg", "bad.jpg: not an index of places"),
        ("query", "nope.places", "nope.places: No such file"),
        ("index", "no/a.places", "no/a.places: there is no folder no"),
    ] {
        place(&[verb, "--index", index])
            .code(3)
            .stderr(contains(said))
            .stderr(contains("weights:").not());
    }
    place(&[
        "export", "--index", "town", "--npy", "d.npy", "--csv", "p.csv",
    ])
    .success()
    .stdout(contains("3 places of 128 numbers"));
    let array = read_npy(&folder.path().join("d.npy")).expect("an array");
    assert_eq!(array.shape(), [3, 128]);
    let table = std::fs::read_to_string(folder.path().join("p.csv")).expect("a table");
    assert_eq!(table.lines().count(), 4);
    // A narrower part of the network asks the whole one's index; another mode does not.
    let part = [&town("query")[..], &["--granularity", "2,2/2,2/2,2/2,2"]].concat();
    place(&part).success();
    let blind = [&town("query")[..], &["--without", "camera"]].concat();
    place(&blind).code(2).stderr(contains("without camera"));
    let other = [
        "query",
        "--index",
        "town",
        "--model",
        "lcpr",
        "--weights",
        "seeded",
    ];
    place(&other).code(2).stderr(contains("with 256 numbers"));
    place(&["query", "--index", "none", "--weights", "seeded"]).code(3);
    place(&["query", "--index", "town", "--model", "resnet18"])
        .code(2)
        .stderr(contains("no descriptors"));
}

#[test]
fn a_new_users_first_queries_find_their_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let town = |verb| {
        [
            "place", verb, "--index", "town", "--frames", "12", "--passes", "2",
        ]
    };
    percept(&folder, &town("index"))
        .success()
        .stdout(contains("12 places added"));
    let asked = [&town("query")[..], &["--json"]].concat();
    let found = percept(&folder, &asked).success();
    let text = String::from_utf8(found.get_output().stdout.clone()).expect("JSON");
    let record: serde_json::Value = serde_json::from_str(&text).expect("a record");
    let queries = record["queries"].as_array().expect("queries");
    let apart = |query: &serde_json::Value| query["answers"][0]["apart_m"].as_f64();
    let right = queries.iter().filter(|query| apart(query) <= Some(9.0));
    assert!(queries.len() == 5 && right.count() >= 4, "{record}");
    // A narrow part of the same weights asks the same index.
    let narrow = [&asked[..], &["--granularity", "3,3/3,3/3,3/3,3"]].concat();
    percept(&folder, &narrow).success();
}

#[test]
fn an_extracted_part_gives_the_bits_of_the_slice() {
    let folder = tempfile::tempdir().expect("a folder");
    let part = [
        "--granularity",
        "2,2/3,1/4,4/1,2",
        "--set",
        "stages=3,1,4,2",
    ];
    let extract = [
        "elastic",
        "extract",
        "lcpr-small",
        "--weights",
        "seeded",
        "--to",
        "part.safetensors",
    ];
    percept(&folder, &[&extract[..], &part].concat())
        .success()
        .stdout(contains("0 batch norms measured anew"));
    let run = ["run", "lcpr-small", "--batch", "2", "--save"];
    percept(
        &folder,
        &[&run[..], &["a.npy", "--weights", "seeded"], &part].concat(),
    )
    .success();
    percept(
        &folder,
        &[&run[..], &["b.npy", "--weights", "part.safetensors"]].concat(),
    )
    .success();
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).expect("an array");
    assert_eq!(bytes("a.npy"), bytes("b.npy"));
    percept(
        &folder,
        &[&extract[..], &part, &["--recalibrate", "4", "--batch", "2"]].concat(),
    )
    .success()
    .stdout(contains("batch norms measured anew"));
    percept(
        &folder,
        &[&run[..], &["c.npy", "--weights", "part.safetensors"]].concat(),
    )
    .success();
    assert_ne!(bytes("a.npy"), bytes("c.npy"));
    percept(&folder, &extract)
        .code(2)
        .stderr(contains("nothing is narrowed"));
    percept(
        &folder,
        &["run", "lcpr-small", "--granularity", "5,1/1,1/1,1/1,1"],
    )
    .code(2)
    .stderr(contains("expected levels from 1 to 4"));
    percept(
        &folder,
        &["elastic", "show", "resnet18", "--set", "widths=1,1,1,1"],
    )
    .success()
    .stdout(contains("256 configurations"));
    percept(&folder, &["elastic", "show", "dinov2-vits14"])
        .code(2)
        .stderr(contains("no elastic axes"));
}

#[test]
fn a_search_meets_its_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    let search = [
        "elastic",
        "search",
        "resnet18",
        "--weights",
        "seeded",
        "--set",
        "width=8",
        "--set",
        "stem=half",
        "--samples",
        "4",
        "--batch",
        "2",
        "--size",
        "32",
    ];
    percept(&folder, &[&search[..], &["--budget", "macs=80%"]].concat())
        .success()
        .stdout(contains("whole"))
        .stdout(contains("1.00000"))
        .stdout(contains("--set widths="));
    percept(&folder, &[&search[..], &["--budget", "macs=1%"]].concat()).code(1);
    percept(&folder, &[&search[..], &["--budget", "watts=1"]].concat())
        .code(2)
        .stderr(contains("expected params=90%"));
    percept(
        &folder,
        &[&search[..], &["--budget", "macs=90%", "--fix", "layer9"]].concat(),
    )
    .code(2)
    .stderr(contains("no axis `layer9`"));
    // The same search finds the same, and every way of searching stays within what it was given.
    let told = |arguments: &[&str]| {
        let found = percept(&folder, &[&search[..], arguments].concat()).success();
        let text = String::from_utf8(found.get_output().stdout.clone()).expect("JSON");
        serde_json::from_str::<serde_json::Value>(&text).expect("a record")
    };
    let greedy = ["--budget", "macs=80%", "--json"];
    assert_eq!(told(&greedy)["path"], told(&greedy)["path"]);
    let axes = ["--axes", "layer2.inner,layer4.inner", "--json"];
    let all = told(
        &[
            &axes[..],
            &["--budget", "params=90%", "--method", "exhaustive"],
        ]
        .concat(),
    );
    assert_eq!(all["scored"], 16);
    assert!(all["spent"]["times_fewer"].as_f64() > Some(1.0));
    let monotone = ["--budget", "params=90%", "--method", "monotone"];
    assert_eq!(told(&[&axes[..], &monotone].concat())["scored"], 10);
    let latency = [
        "--budget",
        "latency=100%",
        "--picture",
        "front.svg",
        "--picture",
        "front.png",
        "--json",
    ];
    assert!(told(&latency)["path"][0]["ms"].as_f64() > Some(0.0));
    let drawn = std::fs::read_to_string(folder.path().join("front.svg")).expect("a picture");
    assert!(drawn.contains("latency, ms"));
    let many = [
        "--budget",
        "macs=90%",
        "--method",
        "exhaustive",
        "--most",
        "9",
    ];
    percept(&folder, &[&search[..], &many].concat())
        .code(2)
        .stderr(contains("more than 9 configurations"));
    percept(
        &folder,
        &[&search[..], &["--budget", "macs=90%", "--score", "recall"]].concat(),
    )
    .code(2)
    .stderr(contains("route"));
}

#[test]
fn a_search_by_recall_keeps_what_parts_have_in_common() {
    let folder = tempfile::tempdir().expect("a folder");
    let search = [
        "elastic",
        "search",
        "lcpr-small",
        "--weights",
        "seeded",
        "--size",
        "camera=16x32",
        "range=8x64",
        "--score",
        "recall",
        "--database",
        "whole",
        "--samples",
        "9",
        "--batch",
        "3",
        "--axes",
        "fusion3.mid,fusion4.heads",
        "--budget",
        "params=99%",
        "--json",
    ];
    let found = percept(&folder, &search).success();
    let text = String::from_utf8(found.get_output().stdout.clone()).expect("JSON");
    let record: serde_json::Value = serde_json::from_str(&text).expect("a record");
    assert_eq!(record["score"], "recall@1");
    assert!(
        record["spent"]["times_fewer"].as_f64() > Some(1.5),
        "{record}"
    );
}

#[test]
fn both_searches_of_places_find_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = [
        "place",
        "bench",
        "--places",
        "3000",
        "--width",
        "32",
        "--repeats",
        "1",
    ];
    for queries in ["1", "5"] {
        percept(
            &folder,
            &[
                &bench[..],
                &["--queries", queries, "--save", "rows.safetensors"],
            ]
            .concat(),
        )
        .success()
        .stdout(contains("both find the same"));
    }
    assert!(folder.path().join("rows.safetensors").exists());
}
