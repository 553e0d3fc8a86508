//! An object of one view, looked for among the masks of another.

use std::path::{Path, PathBuf};

use percept_data::arrays::write_npz;
use percept_data::masks::read_masks;
use percept_graph::Tensor;

use crate::asking::{assert_fails, json};
use crate::percept;

/// Small views: a backbone on them runs in a fraction of a second.
const SMALL: [&str; 5] = ["run", "omama-small", "--size", "source=56x98", "dest=56x56"];

/// The folders of one room's pairs.
fn pairs(folder: &Path) -> Vec<PathBuf> {
    let out = folder.join("pairs");
    let make = "world make --kind egoexo --takes 1 --frames 1 --layout pairs --ego-size 56x56 --exo-size 98x56 -q --out";
    let mut command = percept();
    command.args(make.split(' ')).arg(&out).assert().success();
    let found = std::fs::read_dir(&out).expect("the folder is there");
    let found = found.map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> = found.filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

#[test]
fn an_object_is_found_among_masks_and_its_mask_saved() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pairs(folder.path()).remove(0);
    let part = |name: &str, file: &str| format!("{name}={}", pair.join(file).display());
    let by_part = [
        part("source", "source.jpg"),
        part("source-mask", "source-mask.json"),
        part("dest", "dest.jpg"),
        part("dest-masks", "dest-masks.json"),
    ];
    let [saved, table] = ["found.png", "found.csv"].map(|name| folder.path().join(name));
    let whole = json(
        percept()
            .args(SMALL)
            .arg("--input")
            .arg(&pair)
            .arg("--save")
            .arg(&table),
    );
    let parts = json(
        percept()
            .args(SMALL)
            .arg("--input")
            .args(by_part)
            .arg("--save")
            .arg(&saved),
    );
    let answer = &whole["answers"][0]["matches"];
    assert_eq!(*answer, parts["answers"][0]["matches"]);

    let candidates = read_masks(&pair.join("dest-masks.json")).unwrap();
    let ranked = answer["candidates"].as_array().unwrap();
    assert_eq!(ranked.len(), candidates.len());
    let similarity = |place: usize| ranked[place]["similarity"].as_f64().unwrap();
    assert!((1..ranked.len()).all(|place| similarity(place - 1) >= similarity(place)));
    let best = answer["match"].as_u64().unwrap() as usize;
    assert_eq!(read_masks(&saved).unwrap()[0], candidates[best]);
    let rows = std::fs::read_to_string(&table).unwrap();
    assert_eq!(rows.lines().count(), 1 + candidates.len());

    // The same candidates as a stack of planes.
    let stack = folder.path().join("dest-masks.npy");
    let (height, width) = (candidates[0].height(), candidates[0].width());
    let shape = format!("({}, {height}, {width})", candidates.len());
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
    let header = format!("{header:<117}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    file.extend(candidates.iter().flat_map(|mask| mask.decode()));
    std::fs::write(&stack, file).unwrap();
    let by_stack = [
        part("source", "source.jpg"),
        part("source-mask", "source-mask.json"),
        part("dest", "dest.jpg"),
        format!("dest-masks={}", stack.display()),
    ];
    let stacked = json(percept().args(SMALL).arg("--input").args(by_stack));
    assert_eq!(*answer, stacked["answers"][0]["matches"]);

    let sure = ["--set", "threshold=0.99"];
    let none = json(percept().args(SMALL).args(sure).arg("--input").arg(&pair));
    assert!(none["answers"][0]["matches"]["match"].is_null());
}

#[test]
fn the_head_that_comes_with_the_small_network_finds_a_hammer() {
    let record = json(percept().args(["run", "omama-small", "--quiet"]));
    let answer = &record["answers"][0]["matches"];
    // The thing of the first room, among 33 masks; its picture shows that this is the one.
    assert_eq!(answer["match"], 22);
    assert!(answer["candidates"][0]["similarity"].as_f64() > Some(0.75));
}

#[test]
fn pairs_that_lack_something_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pairs(folder.path()).remove(0);
    let source = format!("source={}", pair.join("source.jpg").display());
    assert_fails(
        percept().args(SMALL).args(["--input", &source]),
        3,
        &["no part `source-mask`"],
    );
    std::fs::write(pair.join("dest-masks.json"), "[]").unwrap();
    assert_fails(
        percept()
            .args(SMALL)
            .args(["--strict", "--input"])
            .arg(&pair),
        3,
        &["dest-masks"],
    );
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_fails(
        percept().args(SMALL).arg("--input").arg(&empty),
        3,
        &["empty", "a folder per pair"],
    );
}

/// A pair by its parts, with these candidates.
fn with_candidates(pair: &Path, masks: &Path) -> [String; 4] {
    let part = |name: &str, path: &Path| format!("{name}={}", path.display());
    [
        part("source", &pair.join("source.jpg")),
        part("source-mask", &pair.join("source-mask.json")),
        part("dest", &pair.join("dest.jpg")),
        part("dest-masks", masks),
    ]
}

fn write_stack(path: &Path, shape: [usize; 3], planes: Vec<u8>) {
    let planes = Tensor::from_values(shape, planes).unwrap();
    write_npz(path, &[("arr_0".to_owned(), planes)]).unwrap();
}

#[test]
fn masks_of_another_picture_and_broken_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pairs(folder.path()).remove(0);
    let refused = |file: &str, content: &[u8], says: &[&str]| {
        let path = folder.path().join(file);
        std::fs::write(&path, content).unwrap();
        let parts = with_candidates(&pair, &path);
        assert_fails(percept().args(SMALL).arg("--input").args(parts), 3, says);
    };
    // Runs that cover another number of pixels than the size says, and a mask of another shape.
    refused(
        "size.json",
        br#"[{"size": [60, 60], "counts": [5488]}]"#,
        &["size.json", "5488 pixels", "60x60 has 3600"],
    );
    refused(
        "shape.json",
        br#"[{"size": [30, 90], "counts": [2700]}]"#,
        &["`dest-masks`, mask 0", "90x30"],
    );
    let stack = folder.path().join("stack.npz");
    write_stack(&stack, [2, 40, 90], vec![1; 2 * 40 * 90]);
    let whole = std::fs::read(&stack).unwrap();
    refused("other.npz", &whole, &["`dest-masks`, mask 0", "90x40"]);
    refused(
        "torn.npz",
        &whole[..whole.len() / 2],
        &["torn.npz", "corrupt zip"],
    );
    let mut flipped = whole.clone();
    flipped[300] ^= 0xff;
    refused("flipped.npz", &flipped, &["flipped.npz", "checksum"]);
    refused("junk.npz", b"no masks at all", &["junk.npz", "not masks"]);
    write_stack(&stack, [0, 56, 56], Vec::new());
    let none = std::fs::read(&stack).unwrap();
    refused("none.npz", &none, &["`dest-masks` has no mask"]);
}

#[test]
fn an_empty_mask_is_never_found_and_never_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pairs(folder.path()).remove(0);
    let masks = read_masks(&pair.join("dest-masks.json")).unwrap();
    let [height, width] = [masks[0].height(), masks[0].width()];
    let stack = folder.path().join("masks.npz");
    let mut planes = vec![0; height * width];
    let whole: Vec<u8> = masks
        .iter()
        .take(2)
        .flat_map(|mask| mask.decode())
        .collect();
    planes.extend(&whole);
    let answer = |parts: [String; 4]| {
        let record = json(percept().args(SMALL).arg("--input").args(parts));
        record["answers"][0]["matches"].clone()
    };
    write_stack(&stack, [3, height, width], planes.clone());
    let with_empty = answer(with_candidates(&pair, &stack));
    let ranked = with_empty["candidates"].as_array().unwrap();
    assert_eq!(ranked.len(), 2, "{with_empty}");
    assert!(ranked.iter().all(|found| found["candidate"] != 0));
    write_stack(&stack, [2, height, width], whole);
    let without = answer(with_candidates(&pair, &stack));
    let best = |answer: &serde_json::Value| answer["candidates"][0]["similarity"].as_f64();
    let [with_empty, without] = [best(&with_empty), best(&without)].map(Option::unwrap);
    assert!(
        (with_empty - without).abs() < 1e-4,
        "{with_empty} {without}"
    );

    planes.truncate(height * width);
    write_stack(&stack, [1, height, width], planes);
    let nothing = answer(with_candidates(&pair, &stack));
    assert!(nothing["match"].is_null(), "{nothing}");

    let source = &read_masks(&pair.join("source-mask.json")).unwrap()[0];
    let [height, width] = [source.height(), source.width()];
    let empty = format!(
        r#"{{"size": [{height}, {width}], "counts": [{}]}}"#,
        height * width
    );
    std::fs::write(pair.join("source-mask.json"), empty).unwrap();
    assert_fails(
        percept()
            .args(SMALL)
            .args(["--strict", "--input"])
            .arg(&pair),
        3,
        &["`source-mask` is empty"],
    );
}
