//! `percept place` and `percept elastic` as a user meets them.

use assert_cmd::Command;
use percept_data::arrays::read_npy;
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
    place(&town("eval"))
        .success()
        .stdout(contains("recall@1"))
        .stdout(contains("F1 (public)"));
    let name = "synthetic places, seed 0, pass 0, frame 2";
    place(&["forget", "--index", "town", name])
        .success()
        .stdout(contains("1 places deleted, 3 left"));
    place(&["forget", "--index", "town", name]).code(3);
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
    .stderr(contains("no such axis"));
}
