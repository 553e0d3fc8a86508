use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use percept_data::error::FileError;
use percept_data::images::ImageFault;
use percept_data::loader::EpochPlan;
use percept_data::random::key;
use percept_data::{Example, Prepare, Sample, SampleError, Samples};
use percept_graph::{BatchNorm, Builder, Conv2d, CrossEntropy, Dim, Graph, Reduce, ReduceKind};
use percept_models::lesson::{
    Accuracy, Asked, Classifier, DataKind, Epoch, Lesson, LessonError, Metric, TrainingGraph,
};
use percept_models::{Card, LessonOptions, Settings, zoo};
use serde_json::{Map, Value};

use super::*;
use crate::{CheckpointError, Phase, Snapshot, read_metrics};

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
    let entry = zoo::find("efficientnet-b0").unwrap();
    let (model, course) = (entry.build(&settings).unwrap(), entry.course.unwrap());
    let classes = data(config).training.classes().to_vec();
    Learner::new(&model, &course, &config.lesson_options(), &classes).unwrap()
}

/// A network without statistics of a batch, so that a batch in parts gives what it gives whole. Its pictures are those of
/// another classifier.
#[derive(Debug)]
struct Small {
    classes: usize,
    pictures: Classifier,
    /// A second graph over the same parameters, with a batch norm of its own.
    has_variants: bool,
    /// Plans groups of a picture that the network finds hard and one that it finds easy.
    mines: bool,
}

impl Small {
    fn graph(&self, variant: usize, with_loss: bool) -> Graph {
        let mut b = Builder::new("Small");
        let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
        let x = b.input("image", [n.clone(), 3.into(), h, w]);
        let mut x = b.conv2d("conv", x, Conv2d::new(3, 8, 3).stride(2).padding(1));
        if variant == 1 {
            x = b.batch_norm("bn", x, BatchNorm::new(8));
        }
        let x = b.relu("relu", x);
        let kind = ReduceKind::Mean;
        let axes = vec![2, 3];
        let x = b.call("mean", Reduce { kind, axes }, &[x]);
        let x = b.flatten("flatten", x, 1);
        let logits = b.linear("fc", x, 8, self.classes);
        b.output("logits", logits);
        if with_loss {
            let labels = b.integer_input("labels", [n]);
            let loss = b.call("loss", CrossEntropy { smoothing: 0.0 }, &[logits, labels]);
            b.output("loss", loss);
        }
        b.finish().unwrap()
    }
}

impl Lesson for Small {
    fn samples(&self) -> &'static str {
        "pictures"
    }

    fn settings(&self) -> Map<String, Value> {
        self.pictures.settings()
    }

    fn check_classes(&self, classes: &[String]) -> Result<(), LessonError> {
        self.pictures.check_classes(classes)
    }

    fn graphs(&self) -> Vec<TrainingGraph> {
        let graph = |variant| TrainingGraph {
            graph: self.graph(variant, true),
            loss: "loss",
            terms: vec!["loss"],
        };
        (0..1 + usize::from(self.has_variants)).map(graph).collect()
    }

    fn choose(&self, seed: u64, step: u64) -> usize {
        match self.has_variants {
            true => (key(&[seed, step]) % 2) as usize,
            false => 0,
        }
    }

    fn preparation(&self) -> Arc<dyn Prepare> {
        self.pictures.preparation()
    }

    fn plans(&self) -> bool {
        self.mines
    }

    fn epoch_len(&self, samples: usize) -> usize {
        match self.mines {
            true => samples / 2,
            false => samples,
        }
    }

    fn plan(&self, epoch: Epoch, network: &mut dyn Asked) -> Result<EpochPlan, LessonError> {
        let all: Vec<usize> = (0..network.samples()).collect();
        let mut margins: Vec<(f32, usize)> = Vec::new();
        network.ask(&all, &mut |judged| {
            let logits = judged.outputs.get("logits")?.to_f32().into_owned();
            for (row, &sample) in logits.chunks(self.classes).zip(judged.samples) {
                let margin = row.iter().copied().fold(f32::MIN, f32::max);
                margins.push((margin - row[epoch.number as usize % self.classes], sample));
            }
            Ok(())
        })?;
        margins.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (hard, easy) = margins.split_at(margins.len() / 2);
        let pairs = hard.iter().zip(easy.iter().rev());
        Ok(EpochPlan::of_groups(pairs.map(|(a, b)| vec![a.1, b.1])))
    }

    fn inference(&self) -> Graph {
        self.graph(0, false)
    }

    fn evaluation(&self) -> Arc<dyn Prepare> {
        self.pictures.evaluation()
    }

    fn metric(&self, classes: &[String]) -> Box<dyn Metric> {
        Box::new(Accuracy::new(classes.to_vec()))
    }

    fn rehearsal(&self, samples: usize) -> Result<Example, LessonError> {
        self.pictures.rehearsal(samples)
    }
}

fn small_lesson(classes: usize) -> Small {
    let settings = Settings::none().with("classes", classes).with("width", 1);
    let model = zoo::build("resnet18", &settings.with("stem", "whole")).unwrap();
    let augment = serde_json::json!({"jitter": {"brightness": 0.2}});
    let options = LessonOptions {
        size: Some([16, 16]),
        augment: augment.as_object().unwrap().clone(),
        ..LessonOptions::default()
    };
    Small {
        classes,
        pictures: Classifier::by_cross_entropy(&model, &options).unwrap(),
        has_variants: false,
        mines: false,
    }
}

fn learner(lesson: Small) -> Learner {
    Learner {
        card: Card {
            network: "small".to_owned(),
            ..Card::default()
        },
        lesson: Arc::new(lesson),
        start: None,
    }
}

fn small(classes: usize) -> Learner {
    learner(small_lesson(classes))
}

fn data(config: &TrainConfig) -> TrainData {
    let opened = config
        .data
        .open(DataKind::Pictures, config.seed, config.size);
    opened.unwrap()
}

fn options(folder: &Path, resume: bool, threads: usize) -> RunOptions {
    RunOptions {
        folder: folder.to_owned(),
        resume,
        strict: false,
        threads,
        tensorboard: false,
    }
}

fn trainer(learner: Learner, config: &TrainConfig, options: RunOptions) -> Trainer {
    Trainer::new(learner, config.clone(), data(config), options).unwrap()
}

/// Runs until a step, or to the end.
fn run(trainer: &Trainer, until: Option<u64>) -> Result<Finished, TrainError> {
    let stop = AtomicBool::new(false);
    trainer.run(&stop, &mut |event| {
        if let Event::Step { report, .. } = event
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
    let card = Card {
        network: "other".to_owned(),
        ..Card::default()
    };
    let other = Learner { card, ..small(4) };
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
    let birds = error(small(4), &config(&["data.birds.per_class=7"]), true).to_string();
    assert!(birds.contains("data.birds.per_class 6, not 7"), "{birds}");
    // When checkpoints are written changes nothing.
    let often = config(&["checkpoint.every_steps=1"]);
    run(
        &trainer(small(4), &often, options(place.path(), true, 1)),
        None,
    )
    .unwrap();

    let data = data(&first);
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
struct Broken(Arc<dyn Samples>);

impl Samples for Broken {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn classes(&self) -> &[String] {
        self.0.classes()
    }
    fn name(&self, index: usize) -> String {
        format!("{index}.png")
    }
    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        match index {
            5 => {
                let fault = ImageFault::Truncated { format: "PNG" };
                Err(FileError::new(self.name(index).as_ref(), fault).into())
            }
            _ => self.0.sample(index),
        }
    }
}

#[test]
fn a_broken_picture_is_named_skipped_and_counted_or_stops_the_run() {
    let place = tempfile::tempdir().unwrap();
    let config = config(&[]);
    let mut told = Vec::new();
    for strict in [false, true] {
        let mut data = data(&config);
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

/// Runs in one go, and in three with other threads, and gives both ends.
fn in_one_and_in_three(lesson: impl Fn() -> Small, config: &TrainConfig) -> [Snapshot; 2] {
    let place = tempfile::tempdir().unwrap();
    let run_in = |name: &str, resume, threads, until| {
        let folder = place.path().join(name);
        let options = options(&folder, resume, threads);
        let trainer = trainer(learner(lesson()), config, options);
        snapshot(&run(&trainer, until).unwrap())
    };
    let whole = run_in("whole", false, 1, None);
    run_in("cut", false, 2, Some(2));
    run_in("cut", true, 1, Some(4));
    [whole, run_in("cut", true, 2, None)]
}

#[test]
fn steps_by_several_graphs_over_one_state_resume_to_the_same_bits() {
    let lesson = || Small {
        has_variants: true,
        ..small_lesson(4)
    };
    for set in [&["optimiser.kind=adamw"][..], &["parts=3"]] {
        let config = config(set);
        let chosen: Vec<usize> = (0..9)
            .map(|step| lesson().choose(config.seed, step))
            .collect();
        assert!(chosen.contains(&0) && chosen.contains(&1), "{chosen:?}");
        let [whole, cut] = in_one_and_in_three(lesson, &config);
        assert_eq!(whole, cut);
        let tensor = |name: &str| {
            let found = whole.tensors.iter().find(|(known, _)| known == name);
            found
                .unwrap_or_else(|| panic!("{name} is missing"))
                .1
                .to_f32()
                .into_owned()
        };
        // Only the second graph has a batch norm; its steps moved the statistics, and the rest moved in between.
        assert!(tensor("bn.running_mean").iter().any(|&mean| mean != 0.0));
        let names: Vec<&String> = whole.tensors.iter().map(|(name, _)| name).collect();
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "each state once: {names:?}");
        if config.parts == 1 {
            assert_eq!(tensor("optimiser.steps"), [9.0], "of both graphs together");
        }
    }
}

#[test]
fn plans_that_ask_the_network_resume_to_the_same_bits() {
    let lesson = || Small {
        mines: true,
        ..small_lesson(4)
    };
    let config = config(&["batch=4"]);
    let [whole, cut] = in_one_and_in_three(lesson, &config);
    assert_eq!(
        whole.state.step, 9,
        "24 pictures are 12 pairs, 3 batches of 4 in each epoch"
    );
    assert_eq!(whole, cut);

    // In the middle of an epoch the plan is in the checkpoint; behind it, the weights tell the next one.
    let place = tempfile::tempdir().unwrap();
    let stop_at = |step, name: &str| {
        let folder = place.path().join(name);
        let trainer = trainer(learner(lesson()), &config, options(&folder, false, 1));
        snapshot(&run(&trainer, Some(step)).unwrap())
    };
    let plan = stop_at(5, "middle").plan.expect("a plan");
    let mut samples = plan.samples().to_vec();
    samples.sort_unstable();
    assert_eq!((plan.len(), samples), (12, (0..24).collect()));
    assert_eq!(stop_at(3, "end").plan, None);
}

#[test]
fn what_is_frozen_stays_as_it_is_and_has_no_moments() {
    let place = tempfile::tempdir().unwrap();
    let set = ["optimiser.kind=adamw", "freeze=conv,bn", "epochs=1"];
    let config = config(&set);
    let lesson = Small {
        has_variants: true,
        ..small_lesson(4)
    };
    let trainer = trainer(learner(lesson), &config, options(place.path(), false, 1));
    let before: BTreeMap<_, _> = trainer
        .first_stepper()
        .unwrap()
        .state()
        .unwrap()
        .into_iter()
        .collect();
    let after: BTreeMap<_, _> = snapshot(&run(&trainer, None).unwrap())
        .tensors
        .into_iter()
        .collect();
    for (name, tensor) in &before {
        let is_frozen = name.starts_with("conv.") || name.starts_with("bn.");
        assert_eq!(after[name] == *tensor, is_frozen, "{name}");
    }
    assert!(after.contains_key("fc.weight.first_moment"));
    let frozen_moment = |name: &&String| name.starts_with("conv.") && name.ends_with("moment");
    assert!(!after.keys().any(|name| frozen_moment(&name)));

    let trainer = |set: &str| {
        let config = TrainConfig::parse(TINY, [set]).unwrap();
        let made = Trainer::new(
            small(4),
            config.clone(),
            data(&config),
            options(place.path(), false, 1),
        );
        made.err().unwrap().to_string()
    };
    assert!(trainer("freeze=cnov").contains("did you mean `conv`?"));
    assert!(trainer("freeze=conv,fc").contains("nothing is left to train"));
}
