use std::fs;
use std::path::{Path, PathBuf};

use percept_data::loader::Position;
use percept_data::safetensors::write_safetensors;
use percept_graph::Tensor;
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::schedule::Schedule;

fn snapshot(step: u64, best: Option<u64>) -> Snapshot {
    let tensor = |values: &[f32]| {
        Tensor::from_values(vec![values.len()], values)
            .unwrap()
            .into_owned()
    };
    Snapshot {
        state: RunState {
            model: "paco".to_owned(),
            config: json!({"batch": 8, "rate": 0.1}),
            optimiser: json!({"kind": "adamw", "decay": 1e-4}),
            schedule: Schedule::default(),
            seed: u64::MAX - 1,
            step,
            position: Position {
                epoch: step / 10,
                samples: step % 10,
            },
            best: best.map(|step| Best {
                step,
                metric: 0.1 + step as f64,
            }),
            unimproved: 0,
        },
        card: None,
        plan: None,
        tensors: vec![
            (
                "fc.weight".to_owned(),
                tensor(&[step as f32, f32::NAN, -0.0, 1e-40]),
            ),
            ("optimiser.moment.fc.weight".to_owned(), tensor(&[1.0; 4])),
            (
                "bn.num_batches_tracked".to_owned(),
                Tensor::from_values(vec![], &[step as i64])
                    .unwrap()
                    .into_owned(),
            ),
        ],
    }
}

fn folder(keep_last: usize) -> (TempDir, CheckpointFolder) {
    let place = tempfile::tempdir().unwrap();
    let folder = CheckpointFolder::open(&place.path().join("run/checkpoints"), keep_last).unwrap();
    (place, folder)
}

fn names(folder: &CheckpointFolder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| name != ".lock");
    names.sort();
    names
}

/// Equal to the bit, which `NaN == NaN` does not say.
fn assert_same(a: &Snapshot, b: &Snapshot) {
    assert_eq!(a.state, b.state);
    let sorted = |snapshot: &Snapshot| {
        let mut tensors = snapshot.tensors.clone();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        tensors
    };
    let (a, b) = (sorted(a), sorted(b));
    assert_eq!(a.len(), b.len());
    for ((name, a), (other, b)) in a.iter().zip(&b) {
        assert_eq!(
            (name, a.dtype(), a.shape(), a.bytes()),
            (other, b.dtype(), b.shape(), b.bytes())
        );
    }
}

#[test]
fn what_is_saved_is_read_back_to_the_bit() {
    let (_place, folder) = folder(3);
    let saved = snapshot(7, Some(5));
    let path = folder.save(&saved).unwrap();
    assert!(path.ends_with("step-000000007.safetensors"));
    assert_same(&Snapshot::read(&path).unwrap(), &saved);
    let (found, resumed) = folder.resume().unwrap().snapshot.unwrap();
    assert_eq!(found, path);
    assert_same(&resumed, &saved);
}

#[test]
fn the_last_ones_and_the_best_are_kept() {
    let (_place, folder) = folder(2);
    for step in [10, 20, 30, 40] {
        folder.save(&snapshot(step, Some(20.min(step)))).unwrap();
    }
    let expected = [
        "best.safetensors",
        "step-000000030.safetensors",
        "step-000000040.safetensors",
    ];
    assert_eq!(names(&folder), expected);
    assert_eq!(Snapshot::read(&folder.best_path()).unwrap().state.step, 20);
    // Saving the best once more, as a resumed run does, changes nothing.
    folder.save(&snapshot(50, Some(50))).unwrap();
    folder.save(&snapshot(50, Some(50))).unwrap();
    assert_eq!(Snapshot::read(&folder.best_path()).unwrap().state.step, 50);
    assert_eq!(names(&folder).len(), 3);
}

#[test]
fn a_best_one_that_was_not_named_is_named_on_resuming() {
    let (_place, folder) = folder(2);
    snapshot(5, Some(5)).write(&folder.path_of(5)).unwrap();
    assert!(!folder.best_path().exists());
    folder.resume().unwrap();
    assert_eq!(Snapshot::read(&folder.best_path()).unwrap().state.step, 5);
}

#[test]
fn a_damaged_one_is_named_set_aside_and_written_again() {
    let (_place, folder) = folder(2);
    for step in [1, 2] {
        folder.save(&snapshot(step, None)).unwrap();
    }
    let newest = folder.path_of(2);
    let whole = fs::read(&newest).unwrap();
    fs::write(&newest, &whole[..whole.len() - 3]).unwrap();
    let resumed = folder.resume().unwrap();
    assert_eq!(resumed.snapshot.unwrap().1.state.step, 1);
    let [damaged] = &resumed.damaged[..] else {
        panic!("{:?}", resumed.damaged)
    };
    assert_eq!(damaged.path, newest);
    assert!(
        damaged.error.to_string().contains("truncated?"),
        "{}",
        damaged.error
    );
    folder.save(&snapshot(2, None)).unwrap();
    let expected = [
        "step-000000001.safetensors",
        "step-000000002.safetensors",
        "step-000000002.safetensors.aside",
    ];
    assert_eq!(names(&folder), expected);
    assert!(folder.resume().unwrap().damaged.is_empty());
}

#[test]
fn going_back_sets_what_lies_ahead_aside() {
    let (_place, folder) = folder(9);
    for step in 1..=4 {
        folder.save(&snapshot(step, None)).unwrap();
    }
    assert_eq!(folder.resume_at(2).unwrap().state.step, 2);
    assert_eq!(
        latest(folder.path())
            .unwrap()
            .snapshot
            .unwrap()
            .1
            .state
            .step,
        2
    );
    assert!(folder.resume_at(77).is_err());
}

#[test]
fn an_empty_folder_begins_a_run_and_a_missing_one_is_an_error() {
    let (place, folder) = folder(1);
    let resumed = folder.resume().unwrap();
    assert!(resumed.snapshot.is_none() && resumed.damaged.is_empty());
    let error = latest(&place.path().join("none")).unwrap_err();
    assert!(matches!(error, CheckpointError::Io { .. }));
}

#[test]
fn leftovers_are_removed_and_a_second_run_is_kept_out() {
    let (_place, first) = folder(1);
    let path = first.path().to_owned();
    fs::write(path.join(".percept-abc.tmp"), "half").unwrap();
    let error = CheckpointFolder::open(&path, 1).unwrap_err();
    assert!(error.to_string().contains("another run"), "{error}");
    assert_eq!(names(&first).len(), 1);
    drop(first);
    let second = CheckpointFolder::open(&path, 1).unwrap();
    assert!(names(&second).is_empty());
}

#[test]
fn other_files_are_told_apart() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("w.safetensors");
    write_safetensors(&path, &snapshot(1, None).tensors, &Default::default()).unwrap();
    let error = Snapshot::read(&path).unwrap_err().to_string();
    assert!(
        error.contains("not a checkpoint of a training run"),
        "{error}"
    );
    let newer = [("percept.checkpoint".to_owned(), "2".to_owned())].into();
    write_safetensors(&path, &[], &newer).unwrap();
    let error = Snapshot::read(&path).unwrap_err();
    assert!(matches!(error, CheckpointError::Version { .. }) && !error.is_in_content());
    let error = snapshot(1, None)
        .expect_model("resnet50", &path)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("a checkpoint of paco, not of resnet50")
    );
}

/// A folder in the place of a file fails every write to it, as a full disk would.
fn block(folder: &Path, step: u64) -> PathBuf {
    let path = folder.join(format!("step-{step:09}.safetensors"));
    fs::create_dir_all(path.join("in the way")).unwrap();
    path
}

#[test]
fn the_writer_writes_in_order_and_tells_of_failures() {
    let (_place, folder) = folder(2);
    let path = folder.path().to_owned();
    let blocked = block(&path, 3);
    let writer = CheckpointWriter::start(folder).unwrap();
    for step in 1..=3 {
        writer.save(snapshot(step, None)).unwrap();
    }
    // It may or may not have failed by now; at the latest the one after tells.
    let failure = match writer.save(snapshot(4, None)) {
        Err(failure) => failure,
        Ok(()) => writer.save(snapshot(5, None)).unwrap_err(),
    };
    assert!(failure.to_string().contains("step-000000003"), "{failure}");
    assert!(writer.last_written() >= Some(2));
    // The trainer may go on, and the failure is told once.
    writer.save(snapshot(6, None)).unwrap();
    assert_eq!(writer.finish().unwrap(), Some(6));
    fs::remove_dir_all(blocked).unwrap();
    assert_eq!(latest(&path).unwrap().snapshot.unwrap().1.state.step, 6);
}

#[test]
fn a_dropped_writer_finishes_what_it_has_begun() {
    let (_place, folder) = folder(2);
    let path = folder.path().to_owned();
    let writer = CheckpointWriter::start(folder).unwrap();
    writer.save(snapshot(1, None)).unwrap();
    drop(writer);
    assert_eq!(latest(&path).unwrap().snapshot.unwrap().1.state.step, 1);
    // And gives the folder free.
    CheckpointFolder::open(&path, 1).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_damaged_file_is_never_taken_for_another(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s.safetensors");
        let saved = snapshot(3, Some(2));
        saved.write(&path).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, bytes).unwrap();
        if let Ok(read) = Snapshot::read(&path) {
            assert_same(&read, &saved);
        }
    }

    #[test]
    fn numbers_of_the_state_come_back_to_the_bit(metric in any::<f64>(), rate in any::<f64>()) {
        prop_assume!(metric.is_finite() && rate.is_finite());
        let mut state = snapshot(1, Some(1)).state;
        state.best = Some(Best { step: 1, metric });
        state.schedule.rate = rate;
        let text = serde_json::to_string(&state).unwrap();
        let back: RunState = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(back.best.unwrap().metric.to_bits(), metric.to_bits());
        prop_assert_eq!(back.schedule.rate.to_bits(), rate.to_bits());
    }
}
