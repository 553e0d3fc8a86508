//! How LCPR is taught and judged: triplets of places with hard negatives, one random part of the network in each step, and
//! recall.

mod judge;
mod parts;
mod plan;
mod prepare;

use std::collections::BTreeMap;
use std::sync::Arc;

use percept_data::loader::EpochPlan;
use percept_data::random::Draws;
use percept_data::seeded::{Family, seeded_values};
use percept_data::{Example, Prepare};
use percept_graph::{Choice, Graph, Tensor};
use serde_json::{Map, Value};

use super::entries::configured;
use super::triplet::{Mean, TRIPLET};
use super::{CAMERA, RANGE};
use crate::Model;
use crate::lesson::{
    Asked, Course, DataKind, Epoch, Lesson, LessonError, LessonOptions, Metric, TrainingGraph,
    fields, no_classes,
};
use judge::PlaceJudge;
use parts::PlaceOptions;
use prepare::PreparePlaces;

/// Networks that learn from places seen several times.
pub(crate) const PLACES: Course = Course {
    data: DataKind::Places,
    built_in: include_str!("places.toml"),
    frozen: &[],
    lesson: |model, options| Ok(Arc::new(PlaceLesson::new(model, options)?)),
};

/// The lesson of an LCPR.
#[derive(Clone, Debug)]
struct PlaceLesson {
    options: PlaceOptions,
    /// The whole network first, then its parts.
    graphs: Vec<TrainingGraph>,
    /// How often each of them is drawn.
    shares: Vec<f64>,
    inference: Graph,
    preparation: PreparePlaces,
    shapes: Vec<(&'static str, Vec<usize>)>,
    sizes: BTreeMap<String, [usize; 2]>,
}

impl PlaceLesson {
    fn new(model: &Model, options: &LessonOptions) -> Result<Self, LessonError> {
        if options.label_smoothing != 0.0 {
            return Err(LessonError::OwnLoss { model: model.name });
        }
        if model.whole.is_some() {
            return Err(LessonError::Mismatch(
                "the whole network is trained; its parts come with it".to_owned(),
            ));
        }
        let augment = |reason: String| LessonError::Augment { reason };
        let chosen = serde_json::from_value(Value::Object(options.augment.clone()));
        let chosen: PlaceOptions = chosen.map_err(|error| augment(error.to_string()))?;
        chosen.check().map_err(augment)?;
        let network = configured(&model.settings);
        let whole = network.training_graph(&Choice::whole(), Mean::Active)?;
        let mut graphs = vec![training(whole.clone())];
        let drawn = chosen.parts(&whole);
        for (_, choice) in &drawn[1..] {
            let part = network.training_graph(choice, Mean::Active)?;
            graphs.push(training(part.as_part_of(&whole)?));
        }
        let shapes = model.input_shapes(1);
        let size = |part: &str| {
            let found = shapes.iter().find(|(name, _)| *name == part);
            let sides = found.and_then(|(_, shape)| shape.last_chunk::<2>());
            (part.to_owned(), sides.copied().unwrap_or_default())
        };
        Ok(Self {
            options: chosen,
            shares: drawn.into_iter().map(|(share, _)| share).collect(),
            graphs,
            inference: model.graph.clone(),
            preparation: PreparePlaces::new(model),
            sizes: [CAMERA, RANGE].map(size).into_iter().collect(),
            shapes,
        })
    }
}

fn training(graph: Graph) -> TrainingGraph {
    TrainingGraph {
        graph,
        loss: "loss",
        terms: vec!["active"],
    }
}

/// What the draws of levels are for.
const LEVEL_DRAWS: u64 = 0x6c65_7665;

impl Lesson for PlaceLesson {
    fn samples(&self) -> &'static str {
        "places"
    }

    fn sizes(&self) -> BTreeMap<String, [usize; 2]> {
        self.sizes.clone()
    }

    fn settings(&self) -> Map<String, Value> {
        fields(&self.options)
    }

    fn check_classes(&self, classes: &[String]) -> Result<(), LessonError> {
        no_classes(self.samples(), classes)
    }

    fn graphs(&self) -> Vec<TrainingGraph> {
        self.graphs.clone()
    }

    fn choose(&self, seed: u64, step: u64) -> usize {
        let total: f64 = self.shares.iter().sum();
        let mut drawn = Draws::of(&[seed, LEVEL_DRAWS, step]).range(0.0, total);
        for (graph, share) in self.shares.iter().enumerate() {
            if drawn < *share {
                return graph;
            }
            drawn -= share;
        }
        0
    }

    fn preparation(&self) -> Arc<dyn Prepare> {
        Arc::new(self.preparation.clone().with_triplets())
    }

    fn plans(&self) -> bool {
        true
    }

    fn epoch_len(&self, samples: usize) -> usize {
        self.options.groups.min(samples)
    }

    fn plan(&self, epoch: Epoch, network: &mut dyn Asked) -> Result<EpochPlan, LessonError> {
        let groups = self.epoch_len(network.samples());
        let size = plan::Sizes {
            frames: self.options.frames,
            groups,
            negatives: self.options.negatives,
        };
        plan::hard_groups(epoch, network, size)
    }

    fn inference(&self) -> Graph {
        self.inference.clone()
    }

    fn evaluation(&self) -> Arc<dyn Prepare> {
        Arc::new(self.preparation.clone())
    }

    fn metric(&self, _: &[String]) -> Box<dyn Metric> {
        Box::new(PlaceJudge::default())
    }

    fn rehearsal(&self, samples: usize) -> Result<Example, LessonError> {
        let samples = samples.max(3);
        let mut tensors = Vec::new();
        for (name, shape) in &self.shapes {
            let mut shape = shape.clone();
            shape[0] = samples;
            let values = seeded_values(Family::Lcpr, &format!("input.{name}"), &shape);
            tensors.push(((*name).to_owned(), Tensor::from_values(shape, values)?));
        }
        for (role, name) in TRIPLET.into_iter().enumerate() {
            let rows = (0..samples).map(|row| ((row + role) % samples) as i32);
            let rows = Tensor::from_values([samples], rows.collect::<Vec<_>>())?;
            tensors.push((name.to_owned(), rows));
        }
        Ok(Example { samples, tensors })
    }
}
