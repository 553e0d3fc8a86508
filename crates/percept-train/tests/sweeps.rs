//! Small networks learn from towns of the world, through the trainer that all share: a CenterPoint and a RandLA-Net.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use percept_data::ModelWeights;
use percept_data::safetensors::Safetensors;
use percept_models::{Card, Settings, zoo};
use percept_train::{
    EvaluationOptions, Event, Finished, Learner, RunOptions, Snapshot, TrainConfig, Trainer,
    evaluate,
};

/// Four frames to learn from and two to be judged by; a network of a few thousand parameters.
const SWEEPS: &str = r#"
epochs = 12
batch = 2
evaluate_every = 12
[optimiser]
kind = "adamw"
[schedule]
rate = 0.004
[data.world]
frames = 4
testing_frames = 2
reach_m = 20.0
[augment]
shift_m = 0.1
[network]
range = "12.8"
voxel = "0.2"
stage1 = "4"
stage2 = "6"
stage3 = "8"
stage4 = "8"
blocks = "1"
map1 = "8"
map2 = "8"
map_depth = "1"
map_out = "8"
head = "8"
"#;

/// Large crops of coarsely thinned scans: of small ones each would be another task.
const SCANS: &str = r#"
epochs = 12
batch = 2
evaluate_every = 12
[optimiser]
kind = "adamw"
[schedule]
rate = 0.01
warmup_epochs = 0.5
[data.scans]
frames = 4
testing_frames = 2
per_town = 2
[augment]
points = 8000
[network]
grid = "0.5"
neighbours = "8"
"#;

/// How a run ends: its losses, step by step, and what it says.
struct Ran {
    losses: Vec<f64>,
    finished: Finished,
}

/// Trains a network of the zoo; `stop_at` interrupts it behind that step.
fn run(network: &str, text: &str, folder: &Path, resume: bool, stop_at: Option<u64>) -> Ran {
    let config = TrainConfig::parse(text, [] as [&str; 0]).expect("the settings are fine");
    let entry = zoo::find(network).expect("it is in the zoo");
    let course = entry.course.expect("it can be trained");
    let data = config.data.open(course.data, config.seed, config.size);
    let data = data.expect("the towns are rendered");
    let settings = config.network.iter().map(|(k, v)| format!("{k}={v}"));
    let settings: Vec<String> = settings.collect();
    let settings = Settings::parse(settings.iter().map(String::as_str)).expect("settings");
    let model = entry.build(&settings).expect("the network builds");
    let options = config.lesson_options();
    let learner = Learner::new(&model, &course, &options, data.training.classes());
    let options = RunOptions {
        folder: folder.to_path_buf(),
        resume,
        strict: true,
        threads: 2,
        tensorboard: false,
    };
    let trainer = Trainer::new(learner.expect("a learner"), config, data, options);
    let trainer = trainer.expect("everything fits");
    let (mut losses, stop) = (Vec::new(), AtomicBool::new(false));
    let finished = trainer.run(&stop, &mut |event| {
        if let Event::Step { report, .. } = event {
            losses.push(report.loss);
            if stop_at == Some(report.step) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    let finished = finished.expect("the run ends");
    Ran { losses, finished }
}

fn mean(losses: &[f64]) -> f64 {
    losses.iter().sum::<f64>() / losses.len() as f64
}

#[test]
fn a_detector_learns_from_the_world() {
    let folder = tempfile::tempdir().expect("a folder");
    let Ran { losses, finished } = run("centerpoint-small", SWEEPS, folder.path(), false, None);
    assert_eq!(losses.len(), 24);
    let (early, late) = (mean(&losses[..4]), mean(&losses[20..]));
    assert!(late < 0.7 * early, "the loss went from {early} to {late}");
    let judged = finished.last.expect("it was judged");
    assert_eq!(judged.samples, 2);
    let map = judged.decisive();
    assert!(map.is_nan() || (0.0..=1.0).contains(&map), "mAP {map}");
}

#[test]
fn labels_of_points_are_learned_and_an_interrupted_run_is_the_same_run() {
    let [whole, parted] = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let first = run("randlanet", SCANS, whole.path(), false, None);
    let losses = &first.losses;
    assert_eq!(losses.len(), 24);
    let (early, late) = (mean(&losses[..3]), mean(&losses[20..]));
    assert!(late < 0.9 * early, "the loss went from {early} to {late}");
    let judged = first.finished.last.as_ref().expect("it was judged");
    assert_eq!(judged.samples, 2);
    assert!((0.0..=1.0).contains(&judged.decisive()));
    let keys: Vec<&str> = judged.tables.iter().map(|table| table.key).collect();
    assert_eq!(keys, ["classes", "distances", "confused"]);

    let before = run("randlanet", SCANS, parted.path(), false, Some(3));
    let after = run("randlanet", SCANS, parted.path(), true, None);
    assert_eq!([before.losses, after.losses].concat(), *losses);
    let ends = [&first.finished, &after.finished].map(|finished| {
        let end = Snapshot::read(&finished.checkpoint).expect("a checkpoint");
        end.tensors
    });
    assert!(ends[0] == ends[1], "the same bits");
}

#[test]
fn the_weights_that_come_with_randlanet_label_a_street_that_they_never_saw() {
    let entry = zoo::find("randlanet").expect("it is in the zoo");
    let bytes = entry.shipped.expect("it comes with weights");
    assert!(bytes.len() <= 3_000_000, "{} bytes", bytes.len());
    let weights = Safetensors::embedded("shipped", bytes).expect("a weight file");
    let card = Card::of_weights(&weights).expect("a card").expect("a card");
    let settings = card.settings_for("randlanet", &Settings::none());
    let model = entry
        .build(&settings.expect("its settings"))
        .expect("it builds");
    let (weights, report) = ModelWeights::of(Box::new(weights), &model.graph).expect("they fit");
    assert!(report.unexpected.is_empty(), "{:?}", report.unexpected);

    let set = [
        "data.scans.frames=1",
        "data.scans.testing_frames=2",
        "data.scans.seed=9",
    ];
    let config = TrainConfig::parse("", set).expect("the settings are fine");
    let course = entry.course.expect("it can be trained");
    let data = config.data.open(course.data, 0, None).expect("towns");
    let learner = Learner::new(
        &model,
        &course,
        &config.lesson_options(),
        data.testing.classes(),
    );
    let options = EvaluationOptions {
        batch: 1,
        threads: 2,
        strict: true,
    };
    let lesson = learner.expect("a learner").lesson;
    let judged = evaluate(&*lesson, Arc::new(weights), data.testing, &options, |_| ());
    let judged = judged.expect("it runs");
    let figure = |key: &str| judged.figure(key).expect("a figure").value.as_f64();
    assert!(figure("accuracy") > 0.8, "{}", figure("accuracy"));
    assert!(figure("miou_common") > 0.5, "{}", figure("miou_common"));
}
