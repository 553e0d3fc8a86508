//! A checkpoint that does not fit the disk is an error, and the one before stays.
#![cfg(unix)]

use std::path::Path;
use std::process::Command;

use percept_data::loader::Position;
use percept_graph::Tensor;
use percept_train::checkpoint::latest;
use percept_train::{CheckpointFolder, CheckpointWriter, RunState, Schedule, Snapshot};

/// Set for the process whose files may not grow: the folder of its run.
const RUN: &str = "PERCEPT_FULL_DISK_TEST_RUN";

fn snapshot(step: u64, bytes: usize) -> Snapshot {
    let tensor = Tensor::from_values([bytes], vec![step as u8; bytes]);
    Snapshot {
        state: RunState {
            model: "large".to_owned(),
            config: serde_json::Value::Null,
            optimiser: serde_json::Value::Null,
            schedule: Schedule::default(),
            seed: 1,
            step,
            position: Position::default(),
            best: None,
            unimproved: 0,
        },
        card: None,
        plan: None,
        tensors: vec![("weight".to_owned(), tensor.expect("a tensor"))],
    }
}

fn write_more_than_fits(folder: &Path) {
    let checkpoints = CheckpointFolder::open(folder, 1).expect("the folder opens");
    let writer = CheckpointWriter::start(checkpoints).expect("the writer starts");
    writer.save(snapshot(1, 1000)).expect("it is taken");
    writer.save(snapshot(2, 10_000_000)).expect("it is taken");
    let error = writer.finish().expect_err("it does not fit");
    assert!(
        error.is_disk_full() && error.to_string().contains("step-000000002"),
        "{error}"
    );
}

#[test]
fn the_last_good_checkpoint_stays() {
    if let Some(folder) = std::env::var_os(RUN) {
        write_more_than_fits(Path::new(&folder));
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    // Files of at most 1 MB stand for a full disk; writing on is then an error instead of the end of the process.
    let limited =
        "ulimit -f 2048; trap '' XFSZ; exec \"$0\" --exact the_last_good_checkpoint_stays";
    let output = Command::new("sh")
        .arg("-c")
        .arg(limited)
        .arg(std::env::current_exe().expect("this test"))
        .env(RUN, &folder)
        .output()
        .expect("a shell");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let (path, found) = latest(&folder)
        .expect("the folder is read")
        .snapshot
        .expect("a checkpoint");
    assert_eq!(found, snapshot(1, 1000));
    let names: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder is read")
        .map(|entry| entry.expect("an entry").path())
        .filter(|other| *other != path && !other.ends_with(".lock"))
        .collect();
    assert!(names.is_empty(), "{names:?}");
}
