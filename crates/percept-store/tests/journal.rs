//! The journal: nothing that was appended is lost, whatever happens to the writer.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use percept_store::{Collection, Journal, Key, StoreError, Tensor, TensorRef};

fn kind() -> Collection {
    Collection::new("places", 1).unwrap()
}

fn key(number: i32) -> Key {
    Key::of().part(&[number]).finish()
}

fn append(journal: &mut Journal, number: i32, value: f32) {
    let (numbers, descriptor) = ([number], [value, -value]);
    let tensors = [
        TensorRef::new("number", &[1], &numbers),
        TensorRef::new("descriptor", &[2], &descriptor),
    ];
    journal.append(key(number), &tensors).unwrap();
}

/// Opens a journal that nobody else writes. A process that another test is just starting holds a copy of our lock until it
/// becomes its own program, so a lock that was given back may be taken for a moment.
fn open(path: &Path) -> Journal {
    let begun = Instant::now();
    loop {
        match Journal::open(path, &kind()) {
            Err(StoreError::Busy { .. }) if begun.elapsed() < Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// (number, value) of every key, in order.
fn contents(journal: &Journal) -> Vec<(i32, f32)> {
    let entries = journal.iter().map(|(_, tensors)| {
        let tensors: Vec<Tensor<'_>> = tensors.collect();
        let number = tensors[0].numbers::<i32>().unwrap()[0];
        (number, tensors[1].numbers::<f32>().unwrap()[0])
    });
    entries.collect()
}

#[test]
fn the_latest_counts_and_deleted_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let mut journal = open(&path);
    for number in 0..4 {
        append(&mut journal, number, number as f32);
    }
    append(&mut journal, 1, 10.0);
    assert!(journal.delete(key(2)).unwrap());
    assert!(!journal.delete(key(2)).unwrap());
    let expected = [(0, 0.0), (3, 3.0), (1, 10.0)];
    assert_eq!(contents(&journal), expected);
    assert!(journal.get(key(2)).is_none());
    assert_eq!(journal.get(key(3)).unwrap().count(), 2);

    drop(journal);
    let mut journal = open(&path);
    assert_eq!(contents(&journal), expected);
    assert!(journal.compact().unwrap() > 0);
    assert_eq!(contents(&journal), expected);
    append(&mut journal, 9, 9.0);
    drop(journal);
    assert_eq!(contents(&open(&path)).len(), 4);
}

#[test]
fn a_tail_cut_off_at_any_byte_loses_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let mut ends = vec![0];
    {
        let mut journal = open(&path);
        for number in 0..3 {
            append(&mut journal, number, 1.0);
            ends.push(fs::metadata(&path).unwrap().len() as usize);
        }
    }
    let whole = fs::read(&path).unwrap();
    for len in 0..=whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        let kept = ends.iter().filter(|&&end| end <= len).count() - 1;
        let mut journal = open(&path);
        assert_eq!(journal.len(), kept, "{len} bytes");
        assert_eq!(journal.recovery().torn_bytes, (len - ends[kept]) as u64);
        append(&mut journal, 7, 7.0);
        drop(journal);
        let again = contents(&open(&path));
        assert_eq!(again.len(), kept + 1);
        assert_eq!(again[kept], (7, 7.0));
    }
}

#[test]
fn damage_in_the_middle_loses_one_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let mut journal = open(&path);
    append(&mut journal, 0, 0.0);
    let start = fs::metadata(&path).unwrap().len();
    append(&mut journal, 1, 1.0);
    let end = fs::metadata(&path).unwrap().len();
    append(&mut journal, 2, 2.0);
    drop(journal);
    let whole = fs::read(&path).unwrap();
    for at in start..end {
        let mut bytes = whole.clone();
        bytes[at as usize] ^= 0x55;
        fs::write(&path, bytes).unwrap();
        let journal = Journal::read(&path, &kind()).unwrap();
        assert_eq!(contents(&journal), [(0, 0.0), (2, 2.0)]);
        assert_eq!(journal.recovery().damaged, vec![start..end; 1]);
    }
}

#[test]
fn foreign_files_and_second_writers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    for foreign in [
        "x",
        "a letter that somebody wrote, longer than the front of a record is, and dear to them",
    ] {
        fs::write(&path, foreign).unwrap();
        let refused = Journal::open(&path, &kind());
        assert!(matches!(refused, Err(StoreError::NotAJournal { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
    }
    fs::remove_file(&path).unwrap();
    let mut journal = open(&path);
    append(&mut journal, 1, 1.0);
    let second = Journal::open(&path, &kind());
    assert!(matches!(second, Err(StoreError::Busy { .. })));
    let mut reader = Journal::read(&path, &kind()).unwrap();
    assert_eq!(contents(&reader), [(1, 1.0)]);
    assert!(reader.append(key(2), &[]).is_err());
    let other = Collection::new("places", 2).unwrap();
    let refused = Journal::read(&path, &other);
    assert!(matches!(refused, Err(StoreError::OtherKind { .. })));
}

/// Names the journal that this test's other process writes to.
const CHILD: &str = "PERCEPT_STORE_TEST_JOURNAL";

#[test]
fn a_killed_writer_loses_nothing_that_it_had_appended() {
    if let Ok(path) = std::env::var(CHILD) {
        let mut journal = open(Path::new(&path));
        for number in journal.len() as i32.. {
            append(&mut journal, number, number as f32);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let mut before = 0;
    for round in 1..6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "a_killed_writer_loses_nothing_that_it_had_appended",
            ])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Killed when it has written something, at a moment that differs from round to round.
        let began = Instant::now();
        while Journal::read(&path, &kind()).map_or(0, |journal| journal.len()) < before + 5 {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "the child writes nothing"
            );
            std::thread::sleep(Duration::from_millis(round));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let journal = open(&path);
        assert!(journal.recovery().damaged.is_empty());
        let numbers: Vec<(i32, f32)> = (0..journal.len() as i32).map(|n| (n, n as f32)).collect();
        assert_eq!(contents(&journal), numbers);
        assert!(journal.len() >= before + 5);
        before = journal.len();
    }
}
