//! A small CenterPoint learns from towns of the world, through the trainer that all networks share.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use percept_models::{Settings, zoo};
use percept_train::{Evaluated, Event, Learner, RunOptions, TrainConfig, Trainer};

/// Four frames to learn from and two to be judged by; a network of a few thousand parameters.
const RUN: &str = r#"
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

/// The losses of a run, step by step, and what the judgement at its end says.
fn run(folder: &Path) -> (Vec<f64>, Evaluated) {
    let config = TrainConfig::parse(RUN, [] as [&str; 0]).expect("the settings are fine");
    let entry = zoo::find("centerpoint-small").expect("it is in the zoo");
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
        resume: false,
        strict: true,
        threads: 2,
        tensorboard: false,
    };
    let trainer = Trainer::new(learner.expect("a learner"), config, data, options);
    let trainer = trainer.expect("everything fits");
    let mut losses = Vec::new();
    let finished = trainer.run(&AtomicBool::new(false), &mut |event| {
        if let Event::Step { report, .. } = event {
            losses.push(report.loss);
        }
    });
    let last = finished.expect("the run ends").last;
    (losses, last.expect("it was judged"))
}

#[test]
fn a_detector_learns_from_the_world() {
    let folder = tempfile::tempdir().expect("a folder");
    let (losses, judged) = run(folder.path());
    assert_eq!(losses.len(), 24);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (early, late) = (mean(&losses[..4]), mean(&losses[20..]));
    assert!(late < 0.7 * early, "the loss went from {early} to {late}");
    assert_eq!(judged.samples, 2);
    let map = judged.decisive();
    assert!(map.is_nan() || (0.0..=1.0).contains(&map), "mAP {map}");
}
