//! A process that writes checkpoints is killed at random moments; what it leaves is always whole.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use percept_data::loader::Position;
use percept_data::random::Draws;
use percept_graph::Tensor;
use percept_train::checkpoint::{Best, latest};
use percept_train::{
    CheckpointFolder, CheckpointWriter, MetricsLog, Phase, Record, RunState, Schedule, Snapshot,
    read_metrics,
};

/// Set for the process that is to be killed: the folder of its run.
const RUN: &str = "PERCEPT_KILL_TEST_RUN";
const KILLS: u64 = 5;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Some milliseconds of writing.
const ELEMENTS: usize = 1 << 20;

/// Tensors that follow from the step, so that a checkpoint can be checked without its run.
fn snapshot(step: u64) -> Snapshot {
    let values: Vec<f32> = (0..ELEMENTS).map(|i| (step + i as u64) as f32).collect();
    let tensor = Tensor::from_values(vec![ELEMENTS], &values).expect("a tensor");
    Snapshot {
        state: RunState {
            model: "killed".to_owned(),
            config: serde_json::Value::Null,
            optimiser: serde_json::Value::Null,
            schedule: Schedule::default(),
            seed: 1,
            step,
            position: Position {
                epoch: 0,
                samples: step,
            },
            best: Some(Best {
                step: step / 3 * 3,
                metric: step as f64,
            }),
            unimproved: 0,
        },
        card: None,
        plan: None,
        tensors: vec![("weight".to_owned(), tensor.into_owned())],
    }
}

fn record(step: u64) -> Record {
    Record::new(step, 0, Phase::Train, [("loss", 1.0 / step as f64)])
}

/// Resumes the run in `folder` and goes on until somebody kills it; if nobody does, it ends some day.
fn run(folder: &Path) {
    let begun = Instant::now();
    let checkpoints = CheckpointFolder::open(folder, 2).expect("the folder opens");
    let resumed = checkpoints.resume().expect("the run resumes");
    assert!(resumed.damaged.is_empty(), "{:?}", resumed.damaged);
    let done = resumed
        .snapshot
        .map_or(0, |(_, snapshot)| snapshot.state.step);
    let mut log = MetricsLog::resume(&folder.join("metrics.jsonl"), done).expect("the log resumes");
    let writer = CheckpointWriter::start(checkpoints).expect("the writer starts");
    for step in done + 1.. {
        log.append(&record(step)).expect("the log is written");
        writer
            .save(snapshot(step))
            .expect("the checkpoint is written");
        if begun.elapsed() > PATIENCE {
            return;
        }
    }
}

/// Waits until the first checkpoint is there.
fn wait_for_first(folder: &Path) {
    let begun = Instant::now();
    while latest(folder).map_or(true, |found| found.snapshot.is_none()) {
        assert!(begun.elapsed() < PATIENCE, "no checkpoint was written");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn killed_runs_leave_whole_checkpoints() {
    if let Some(folder) = std::env::var_os(RUN) {
        return run(Path::new(&folder));
    }
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.map_or(0, |time| time.subsec_nanos().into());
    println!("seed {seed}");
    let mut draws = Draws::new(seed, 0);
    let mut done = 0;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "killed_runs_leave_whole_checkpoints"])
            .env(RUN, &folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        if kill == 0 {
            wait_for_first(&folder);
        }
        thread::sleep(Duration::from_millis(draws.below(250) as u64));
        child.kill().expect("the process can be killed");
        let status = child.wait().expect("the process ends");
        // Where this process was suspended meanwhile, the other may have ended before.
        assert!(status.code().is_none_or(|code| code == 0), "{status}");

        let found = latest(&folder).expect("the folder is read");
        assert!(found.damaged.is_empty(), "kill {kill}: {:?}", found.damaged);
        let step = found
            .snapshot
            .as_ref()
            .map_or(0, |(_, snapshot)| snapshot.state.step);
        assert!(step >= done, "kill {kill}: {step} after {done}");
        done = step;
        if let Some((_, found)) = found.snapshot {
            assert_eq!(found, snapshot(step), "kill {kill}");
            let records = read_metrics(&folder.join("metrics.jsonl")).expect("the log is read");
            let expected: Vec<Record> = (1..=step).map(record).collect();
            assert!(records.starts_with(&expected), "kill {kill}");
        }
    }
    let opened = CheckpointFolder::open(&folder, 2).expect("the folder opens");
    opened.resume().expect("the run resumes");
    let best = Snapshot::read(&opened.best_path()).expect("the best one is read");
    assert_eq!(best.state.step, done / 3 * 3);
    let names = std::fs::read_dir(&folder).expect("the folder is read");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let left: Vec<_> = names
        .filter(|name| name.to_string_lossy().ends_with(".tmp"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
