use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use percept_data::classification::ImageDataset;
use percept_data::error::FileError;
use percept_data::images::{ImageFault, RgbImage};
use percept_graph::{Builder, Conv2d, CrossEntropy, Dim, Reduce, ReduceKind};
use percept_models::preprocess::{Fit, PillowFilter, Preprocess};
use percept_models::{Settings, zoo};

use super::*;
use crate::{CheckpointError, read_metrics};

/// A run of a few steps: 4 classes of 6 birds of 16x16.
const TINY: &str = "
    epochs = 3
    batch = 8
    size = 16
    label_smoothing = 0.1
    evaluate_every = 2
    [schedule]
    rate = 0.05
    warmup_epochs = 1.0
    decay = { kind = \"cosine\" }
    [augment.jitter]
    brightness = 0.2
    [data.birds]
    classes = 4
    per_class = 6
    testing_per_class = 3
";

fn config(set: &[&str]) -> TrainConfig {
    TrainConfig::parse(TINY, set).unwrap()
}

/// EfficientNet has dropout, running statistics and squeeze and excite: everything that could go astray.
fn efficientnet(config: &TrainConfig) -> Learner {
    let settings = Settings::none().with("classes", 4);
    let model = zoo::build("efficientnet-b0", &settings).unwrap();
    Learner::classifier(&model, config.label_smoothing, Some([16, 16])).unwrap()
}

/// A network without statistics of a batch, so that a batch in parts gives what it gives whole.
fn small(classes: usize) -> Learner {
    let network = |with_loss: bool| {
        let mut b = Builder::new("Small");
        let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
        let x = b.input("image", [n.clone(), 3.into(), h, w]);
        let x = b.conv2d("conv", x, Conv2d::new(3, 8, 3).stride(2).padding(1));
        let x = b.relu("relu", x);
        let kind = ReduceKind::Mean;
        let axes = vec![2, 3];
        let x = b.call("mean", Reduce { kind, axes }, &[x]);
        let x = b.flatten("flatten", x, 1);
        let logits = b.linear("fc", x, 8, classes);
        b.output("logits", logits);
        if with_loss {
            let labels = b.integer_input("labels", [n]);
            let loss = b.call("loss", CrossEntropy { smoothing: 0.0 }, &[logits, labels]);
            b.output("loss", loss);
        }
        b.finish().unwrap()
    };
    Learner {
        model: "small".to_owned(),
        training: network(true),
        inference: network(false),
        views: vec!["image".to_owned()],
        loss: "loss".to_owned(),
        metrics: vec!["loss".to_owned()],
        preprocess: Preprocess {
            fit: Fit::CoverAndCrop {
                covered: 16,
                kept: 16,
            },
            filter: PillowFilter::Bilinear,
        },
        size: [16, 16],
    }
}

fn options(folder: &Path, resume: bool, threads: usize) -> RunOptions {
    RunOptions {
        folder: folder.to_owned(),
        resume,
        strict: false,
        threads,
    }
}

fn trainer(learner: Learner, config: &TrainConfig, options: RunOptions) -> Trainer {
    let data = config.data.open(config.seed, config.size).unwrap();
    Trainer::new(learner, config.clone(), data, options).unwrap()
}

/// Runs until a step, or to the end.
fn run(trainer: &Trainer, until: Option<u64>) -> Result<Finished, TrainError> {
    let stop = AtomicBool::new(false);
    trainer.run(&stop, &mut |event| {
        if let Event::Step(report) = event
            && Some(report.step) == until
        {
            stop.store(true, Ordering::SeqCst);
        }
    })
}

fn snapshot(finished: &Finished) -> Snapshot {
    Snapshot::read(&finished.checkpoint).unwrap()
}

#[test]
fn a_resumed_run_ends_with_the_same_bits_at_any_number_of_threads() {
    let place = tempfile::tempdir().unwrap();
    let config = config(&["optimiser.kind=adamw", "clip_norm=1.0"]);
    let learner = efficientnet(&config);
    let whole = place.path().join("whole");
    let whole = run(
        &trainer(learner.clone(), &config, options(&whole, false, 2)),
        None,
    )
    .unwrap();
    assert_eq!((whole.ending, whole.steps), (Ending::Complete, 9));
    let expected = snapshot(&whole);
    for (threads, first, second) in [(1, 2, 3), (3, 5, 6)] {
        let folder = place.path().join(format!("{threads}"));
        let part = |resume, threads, until| {
            run(
                &trainer(learner.clone(), &config, options(&folder, resume, threads)),
                until,
            )
            .unwrap()
        };
        let stopped = part(false, threads, Some(first));
        assert_eq!((stopped.ending, stopped.steps), (Ending::Stopped, first));
        assert_eq!(part(true, threads, Some(second)).steps, second);
        let ended = part(true, 2, None);
        assert_eq!(snapshot(&ended), expected, "{threads} threads");
        let steps: Vec<u64> = read_metrics(&folder.join("metrics.jsonl"))
            .unwrap()
            .iter()
            .filter(|record| record.phase == Phase::Train)
            .map(|record| record.step)
            .collect();
        assert_eq!(steps, (1..=9).collect::<Vec<u64>>());
    }
}

#[test]
fn a_batch_in_parts_learns_what_a_whole_one_learns() {
    let place = tempfile::tempdir().unwrap();
    for optimiser in ["optimiser.kind=sgd", "optimiser.kind=adamw"] {
        let states: Vec<Snapshot> = [1, 3]
            .map(|parts| {
                let parts = format!("parts={parts}");
                let config = config(&[optimiser, "clip_norm=0.5", parts.as_str()]);
                let folder = place.path().join(format!("{optimiser} {parts}"));
                snapshot(
                    &run(
                        &trainer(small(4), &config, options(&folder, false, 2)),
                        None,
                    )
                    .unwrap(),
                )
            })
            .into();
        assert_eq!(states[0].tensors.len(), states[1].tensors.len());
        for (name, whole) in &states[0].tensors {
            let (_, parts) = states[1].tensors.iter().find(|(n, _)| n == name).unwrap();
            for (a, b) in whole.to_f32().iter().zip(parts.to_f32().iter()) {
                assert!(
                    (a - b).abs() <= 1e-4 * (1.0 + a.abs()),
                    "{name}: {a} and {b}"
                );
            }
        }
    }
}

#[test]
fn a_run_in_parts_resumes_to_the_same_bits() {
    let place = tempfile::tempdir().unwrap();
    let config = config(&["parts=3"]);
    let [whole, cut] = ["whole", "cut"].map(|name| place.path().join(name));
    let whole = run(&trainer(small(4), &config, options(&whole, false, 1)), None).unwrap();
    run(
        &trainer(small(4), &config, options(&cut, false, 1)),
        Some(4),
    )
    .unwrap();
    let cut = run(&trainer(small(4), &config, options(&cut, true, 2)), None).unwrap();
    assert_eq!(snapshot(&cut), snapshot(&whole));
}

#[test]
fn a_loss_that_is_no_number_names_the_step_the_layer_and_the_last_good_checkpoint() {
    let place = tempfile::tempdir().unwrap();
    let config = config(&[
        "schedule.rate=1e30",
        "checkpoint.every_steps=1",
        "optimiser.momentum=0",
    ]);
    let config = TrainConfig {
        schedule: crate::Schedule {
            warmup_epochs: 0.0,
            ..config.schedule
        },
        ..config
    };
    let error = run(
        &trainer(small(4), &config, options(place.path(), false, 2)),
        None,
    )
    .unwrap_err();
    let TrainError::NotFinite {
        step,
        culprit,
        checkpoint,
    } = &error
    else {
        panic!("{error}")
    };
    assert!((2..=4).contains(step), "{error}");
    let names = ["conv", "relu", "mean", "fc", "loss"];
    assert!(names.iter().any(|name| culprit.contains(name)), "{error}");
    let good = Snapshot::read(checkpoint.as_ref().expect("a checkpoint before it")).unwrap();
    assert!(good.state.step < *step);
    let all_finite = |(_, tensor): &(String, percept_graph::Tensor<'_>)| {
        tensor.to_f32().iter().all(|value| value.is_finite())
    };
    assert!(good.tensors.iter().all(all_finite));
}

#[test]
fn another_network_other_settings_and_a_second_run_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let first = config(&[]);
    run(
        &trainer(small(4), &first, options(place.path(), false, 1)),
        Some(1),
    )
    .unwrap();
    let error = |learner, config: &TrainConfig, resume| {
        run(
            &trainer(learner, config, options(place.path(), resume, 1)),
            None,
        )
        .unwrap_err()
    };
    let exists = error(small(4), &first, false);
    assert!(
        exists
            .to_string()
            .contains("there is a run already, at step 1"),
        "{exists}"
    );
    let other = Learner {
        model: "other".to_owned(),
        ..small(4)
    };
    let other = error(other, &first, true);
    let is_other = matches!(
        other,
        TrainError::Checkpoint(CheckpointError::OtherModel { .. })
    );
    assert!(is_other, "{other}");
    let set = error(small(4), &config(&["schedule.rate=0.25"]), true).to_string();
    assert!(
        set.contains("begun with schedule.rate 0.05, not 0.25"),
        "{set}"
    );
    let data = error(small(4), &config(&["data.birds.per_class=7"]), true).to_string();
    assert!(data.contains("data.birds.per_class 6, not 7"), "{data}");
    // When checkpoints are written changes nothing.
    let often = config(&["checkpoint.every_steps=1"]);
    run(
        &trainer(small(4), &often, options(place.path(), true, 1)),
        None,
    )
    .unwrap();

    let data = first.data.open(0, None).unwrap();
    let error = Trainer::new(small(5), first, data, options(place.path(), true, 1));
    let error = error.err().unwrap().to_string();
    assert_eq!(error, "the network has 5 classes, the data 4");
}

#[test]
fn patience_ends_a_run_that_learns_nothing_more() {
    let place = tempfile::tempdir().unwrap();
    let config = config(&[
        "schedule.rate=1e-12",
        "patience=2",
        "epochs=50",
        "evaluate_every=1",
    ]);
    let finished = run(
        &trainer(small(4), &config, options(place.path(), false, 1)),
        None,
    )
    .unwrap();
    assert_eq!(
        (finished.ending, finished.steps),
        (Ending::OutOfPatience, 9)
    );
    assert_eq!(finished.best.unwrap().step, 3);
    // It stays ended.
    let again = run(
        &trainer(small(4), &config, options(place.path(), true, 1)),
        None,
    )
    .unwrap();
    assert_eq!((again.ending, again.steps), (Ending::OutOfPatience, 9));
}

/// Birds, one of which cannot be read.
struct Broken(Arc<dyn ImageDataset>);

impl ImageDataset for Broken {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn classes(&self) -> &[String] {
        self.0.classes()
    }
    fn label(&self, index: usize) -> usize {
        self.0.label(index)
    }
    fn name(&self, index: usize) -> String {
        format!("{index}.png")
    }
    fn image(&self, index: usize) -> Result<RgbImage, FileError> {
        match index {
            5 => Err(FileError::new(
                self.name(index).as_ref(),
                ImageFault::Truncated { format: "PNG" },
            )),
            _ => self.0.image(index),
        }
    }
}

#[test]
fn a_broken_picture_is_named_skipped_and_counted_or_stops_the_run() {
    let place = tempfile::tempdir().unwrap();
    let config = config(&[]);
    let mut told = Vec::new();
    for strict in [false, true] {
        let mut data = config.data.open(0, config.size).unwrap();
        data.training = Arc::new(Broken(data.training));
        let folder = place.path().join(strict.to_string());
        let options = RunOptions {
            strict,
            ..options(&folder, false, 2)
        };
        let trainer = Trainer::new(small(4), config.clone(), data, options).unwrap();
        let stop = AtomicBool::new(false);
        let finished = trainer.run(&stop, &mut |event| {
            if let Event::Skipped(picture) = event {
                told.push(picture.to_string());
            }
        });
        match (strict, finished) {
            (false, Ok(finished)) => {
                assert_eq!((finished.skipped, finished.steps), (3, 9));
                assert_eq!(told, ["5.png: the PNG image is truncated"; 3]);
            }
            (true, Err(error)) => {
                assert_eq!(error.to_string(), "5.png: the PNG image is truncated");
            }
            (_, other) => panic!("{:?}", other.map(|finished| finished.steps)),
        }
    }
}
