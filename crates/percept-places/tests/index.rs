//! The index: what it keeps, what it refuses, what it survives; and the public evaluator's figures.

use std::path::Path;

use percept_data::TensorSource as _;
use percept_data::safetensors::Safetensors;
use percept_kernels::Cpu;
use percept_places::{Mode, NEAR_M, Place, PlaceError, PlaceIndex, evaluate};
use percept_testing::shared;

fn mode(descriptor: usize) -> Mode {
    Mode {
        network: "lcpr".to_owned(),
        without: Vec::new(),
        descriptor,
    }
}

fn place(name: &str, x: f64, descriptor: [f32; 2]) -> Place {
    Place {
        name: name.to_owned(),
        position: Some([x, 0.0]),
        descriptor: descriptor.to_vec(),
    }
}

fn nearest(index: &PlaceIndex, query: [f32; 2]) -> Vec<String> {
    let found = index.search(&Cpu::new(2).unwrap(), &query, 9).unwrap();
    let names = found[0]
        .iter()
        .map(|f| index.place(f.place).name.to_owned());
    names.collect()
}

fn filled(path: &Path) -> PlaceIndex {
    let mut index = PlaceIndex::open(path, &mode(2)).unwrap();
    let places = [place("a", 0.0, [1.0, 0.0]), place("b", 10.0, [0.0, 1.0])];
    index.append(&places).unwrap();
    index.append(&[place("c", 20.0, [0.6, 0.8])]).unwrap();
    index
}

#[test]
fn places_are_found_replaced_and_forgotten_across_openings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("town");
    drop(filled(&path));
    let mut index = PlaceIndex::change(&path).unwrap();
    assert_eq!(nearest(&index, [0.0, 1.0]), ["b", "c", "a"]);
    // The same name again is the same place, seen anew.
    index.append(&[place("b", 10.0, [-1.0, 0.0])]).unwrap();
    assert_eq!(nearest(&index, [0.0, 1.0]), ["c", "a", "b"]);
    let names = ["c".to_owned(), "nowhere".to_owned()];
    assert_eq!(index.forget(&names).unwrap(), 1);
    drop(index);
    let index = PlaceIndex::read(&path).unwrap();
    assert_eq!(
        (index.len(), nearest(&index, [0.0, 1.0])),
        (2, vec!["a".to_owned(), "b".to_owned()])
    );
    let first = index.place(index.places().next().unwrap());
    assert_eq!(
        (first.name, first.position, first.descriptor),
        ("a", Some([0.0, 0.0]), &[1.0, 0.0][..])
    );
}

#[test]
fn other_modes_and_sizes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("town");
    let mut index = filled(&path);
    let wide = Place {
        descriptor: vec![0.0; 3],
        ..place("d", 0.0, [0.0; 2])
    };
    let error = index.append(&[wide]).unwrap_err().to_string();
    assert_eq!(error, "d: a descriptor of 3 numbers, the index has 2");
    let error = index
        .append(&[place("d", 0.0, [f32::NAN, 0.0])])
        .unwrap_err();
    assert!(matches!(error, PlaceError::NotFinite { .. }));
    assert_eq!(index.len(), 3);
    assert!(index.search(&Cpu::new(1).unwrap(), &[0.0; 3], 1).is_err());
    drop(index);
    assert!(PlaceIndex::open(&path, &mode(256)).is_err());
    let blind = Mode {
        without: vec!["camera".to_owned()],
        ..mode(2)
    };
    let error = PlaceIndex::open(&path, &blind).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "its descriptors are of lcpr with 2 numbers, not of lcpr with 2 numbers without camera"
        ),
        "{error}"
    );
    let missing = PlaceIndex::read(folder.path().join("none")).unwrap_err();
    assert!(missing.to_string().contains("none"));
    std::fs::write(folder.path().join("text"), "hello, this is no index at all").unwrap();
    assert!(PlaceIndex::read(folder.path().join("text")).is_err());
}

#[test]
fn a_torn_tail_costs_the_last_batch_and_any_damage_is_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("town");
    drop(filled(&path));
    let whole = std::fs::read(&path).unwrap();
    let torn = folder.path().join("torn");
    for cut in (1..whole.len()).step_by(37) {
        std::fs::write(&torn, &whole[..whole.len() - cut]).unwrap();
        if let Ok(index) = PlaceIndex::read(&torn) {
            assert!(index.len() < 3, "{cut}");
        }
    }
    std::fs::write(&torn, &whole[..whole.len() - 1]).unwrap();
    let mut index = PlaceIndex::change(&torn).unwrap();
    assert_eq!(index.len(), 2);
    assert!(index.recovery().torn_bytes > 0);
    index.append(&[place("c", 20.0, [0.6, 0.8])]).unwrap();
    drop(index);
    assert_eq!(
        nearest(&PlaceIndex::read(&torn).unwrap(), [0.6, 0.8])[0],
        "c"
    );
    for at in (0..whole.len()).step_by(11) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        std::fs::write(&torn, &damaged).unwrap();
        if let Ok(index) = PlaceIndex::read(&torn) {
            nearest(&index, [0.0, 1.0]);
        }
    }
}

#[test]
fn figures_of_the_public_evaluator() {
    let Some(folder) = shared("golden/lcpr") else {
        return;
    };
    let golden = Safetensors::open(&folder.join("evaluation.safetensors")).unwrap();
    let numbers = |name: &str| golden.read(name).unwrap().to_f64().into_owned();
    let places = |what: &str| -> Vec<Place> {
        let descriptors = numbers(&format!("{what}.descriptor"));
        let positions = numbers(&format!("{what}.position"));
        let rows = descriptors.chunks(256).zip(positions.chunks(2));
        rows.enumerate()
            .map(|(number, (row, position))| Place {
                name: format!("{what} {number}"),
                position: Some([position[0], position[1]]),
                descriptor: row.iter().map(|v| *v as f32).collect(),
            })
            .collect()
    };
    let temporary = tempfile::tempdir().unwrap();
    let mut index = PlaceIndex::open(temporary.path().join("golden"), &mode(256)).unwrap();
    for batch in places("db").chunks(64) {
        index.append(batch).unwrap();
    }
    let evaluation = evaluate(&index, &Cpu::new(2).unwrap(), &places("query"), NEAR_M).unwrap();
    let recall: Vec<f64> = evaluation
        .recall
        .iter()
        .map(|r| 100.0 * r.share.unwrap())
        .collect();
    assert_eq!(recall[..3], [78.125, 100.0, 100.0]);
    let public = evaluation.max_f1_public.unwrap();
    assert!((public - 0.8875739645).abs() < 1e-9, "{public}");
    assert_eq!(evaluation.queries, 96);
}

#[test]
fn a_compressed_index_gives_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let cpu = Cpu::new(2).unwrap();
    let mut index = filled(&folder.path().join("places"));
    let asked = [[0.3, 0.7], [1.0, -0.2], [0.0, 0.1], [0.5, 0.5], [-1.0, 0.0]].concat();
    let plain = index.search(&cpu, &asked, 2).unwrap();
    index.compress(&cpu);
    assert_eq!(index.search(&cpu, &asked, 2).unwrap(), plain);
    // What comes later counts at once, and joins the bytes when they are made again.
    index.append(&[place("new", 5.0, [0.31, 0.71])]).unwrap();
    let newest = |index: &PlaceIndex| nearest(index, [0.31, 0.71])[0].clone();
    assert_eq!(newest(&index), "new");
    index.compress(&cpu);
    assert_eq!(newest(&index), "new");
    index.forget(&["new".to_owned()]).unwrap();
    assert_eq!(index.search(&cpu, &asked, 2).unwrap(), plain);
}
