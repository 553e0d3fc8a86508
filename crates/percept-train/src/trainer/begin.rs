//! How a run begins: new, or behind a checkpoint of the same run.

use std::path::Path;
use std::sync::Arc;

use percept_graph::WeightSource;
use percept_samples::training::TrainData;
use serde_json::{Value, json};

use super::{Event, RunOptions, Trainer};
use crate::checkpoint::{CheckpointFolder, RunState, Snapshot};
use crate::parameters::InitialParameters;
use crate::stepper::Stepper;
use crate::{Activations, Batches, Learner, RunLength, TrainConfig, TrainError};

/// Where a checkpoint keeps the settings.
const SETTINGS: &str = "settings";
/// Where it keeps what the lesson made of them.
const LESSON: &str = "lesson";

impl Trainer {
    /// Checks that everything fits together; writes nothing yet.
    pub fn new(
        learner: Learner,
        config: TrainConfig,
        data: TrainData,
        options: RunOptions,
    ) -> Result<Self, TrainError> {
        config.check()?;
        let lesson = &learner.lesson;
        lesson.check_classes(data.training.classes())?;
        let names = lesson.parameters();
        config.freeze.check(names.iter().map(String::as_str))?;
        let samples = Arc::clone(&data.training);
        let steps = lesson.epoch_len(samples.len()) / config.batch;
        let (strict, workers) = (options.strict, options.threads);
        let batches = Batches::new(Arc::clone(lesson), &config, samples, strict, workers);
        let length = RunLength {
            steps_per_epoch: steps.max(1) as u64,
            epochs: config.epochs,
        };
        Ok(Self {
            learner,
            config,
            data,
            batches,
            options,
            length,
        })
    }

    /// Locks the folder, and finds what to go on from.
    pub(super) fn open_folder(
        &self,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(CheckpointFolder, Option<Snapshot>), TrainError> {
        let folder =
            CheckpointFolder::open(&self.options.folder, self.config.checkpoint.keep_last)?;
        if !self.options.resume {
            return match folder.newest_step()? {
                Some(step) => Err(TrainError::RunExists {
                    path: self.options.folder.clone(),
                    step,
                }),
                None => Ok((folder, None)),
            };
        }
        let resumed = folder.resume()?;
        for damaged in &resumed.damaged {
            on_event(Event::Damaged(damaged));
        }
        let Some((path, snapshot)) = resumed.snapshot else {
            return Ok((folder, None));
        };
        snapshot.expect_model(&self.learner.describe(), &path)?;
        self.expect_same_run(&snapshot, &path)?;
        let step = snapshot.state.step;
        on_event(Event::Resumed { step });
        Ok((folder, Some(snapshot)))
    }

    /// A network with parameters as training begins.
    pub(super) fn first_stepper(&self) -> Result<Stepper, TrainError> {
        let weights = InitialParameters::of(&self.learner, self.config.seed);
        let weights: Arc<dyn WeightSource> = Arc::new(weights);
        Stepper::new(&self.learner, &self.config, weights, self.options.threads)
    }

    /// What a checkpoint says about its run: its settings and its data.
    pub(super) fn identity(&self) -> Value {
        let data = &self.data;
        json!({
            SETTINGS: self.config,
            LESSON: self.learner.lesson.settings(),
            "training_samples": data.training.len(),
            "testing_samples": data.testing.len(),
            "classes": data.training.classes(),
        })
    }

    fn expect_same_run(&self, snapshot: &Snapshot, path: &Path) -> Result<(), TrainError> {
        let [was, now] = [snapshot.state.config.clone(), self.identity()].map(decisive);
        match first_difference("", &was, &now) {
            Some((key, was, now)) => Err(TrainError::OtherRun {
                path: path.to_owned(),
                key,
                was: was.to_string(),
                now: now.to_string(),
            }),
            None => Ok(()),
        }
    }
}

/// The settings that a checkpoint's run was begun with.
pub fn settings_of(state: &RunState) -> Option<TrainConfig> {
    serde_json::from_value(state.config.get(SETTINGS)?.clone()).ok()
}

/// What decides what is learned: not when checkpoints are written, nor where the pictures lie.
fn decisive(mut identity: Value) -> Value {
    if let Some(settings) = identity.get_mut(SETTINGS) {
        settings["checkpoint"].take();
        settings["data"]["folder"].take();
        // What the lesson made of it counts.
        settings["augment"].take();
        // Values that are computed again have the same bits, unless they are made of rounded ones. Older runs rounded none.
        if settings["activations"].is_null() {
            settings["activations"] = json!(Activations::default());
        }
        if settings["activations"] == json!(Activations::default()) {
            settings["recompute"].take();
            settings["max_memory"].take();
        }
    }
    identity
}

/// The first value that differs, with its key: (`schedule.rate`, as it was, as it is now).
fn first_difference(key: &str, was: &Value, now: &Value) -> Option<(String, Value, Value)> {
    let (Value::Object(old), Value::Object(new)) = (was, now) else {
        return (was != now).then(|| (key.to_owned(), was.clone(), now.clone()));
    };
    let keys = old
        .keys()
        .chain(new.keys().filter(|key| !old.contains_key(*key)));
    keys.into_iter().find_map(|name| {
        let inner = if ["", SETTINGS, LESSON].contains(&key) {
            name.clone()
        } else {
            format!("{key}.{name}")
        };
        let value = |of: &serde_json::Map<String, Value>| of.get(name).cloned().unwrap_or_default();
        first_difference(&inner, &value(old), &value(new))
    })
}
