//! How O-MaMa is taught and judged: a thing's own mask among its neighbours, and the public evaluation of what is found.

mod judge;
mod negatives;
mod prepare;

use std::collections::BTreeMap;
use std::sync::Arc;

use percept_data::masks::Rle;
use percept_data::seeded::{Family, seeded_values};
use percept_data::{Example, Prepare, SampleKey, SettingError};
use percept_graph::{Builder, CrossEntropy, Dim, Graph, GraphError, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{PICTURES, POOLS, SIMILARITY, VISIBLE_LOGITS, visible_cross_entropy};
use crate::Model;
use crate::lesson::{
    Course, DataKind, Lesson, LessonError, LessonOptions, Metric, NamedOutputs, TrainingGraph,
    fields, no_classes, tensor_of,
};
use judge::MatchJudge;
use prepare::{IN_VIEW, POSITION, PreparePairs, VISIBLE};

/// O-MaMa at the size of the public system.
pub(crate) const WHOLE_PAIRS: Course = Course {
    data: DataKind::Pairs,
    built_in: include_str!("whole.toml"),
    frozen: &["backbone"],
    lesson: |model, options| Ok(Arc::new(PairLesson::new(model, options)?)),
};

/// O-MaMa that learns on a plain CPU.
pub(crate) const SMALL_PAIRS: Course = Course {
    built_in: include_str!("small.toml"),
    ..WHOLE_PAIRS
};

/// Which candidates a sample is to be told from, for whoever measures what that takes.
pub(super) fn choose_negatives(
    candidates: &[Rle],
    truth: &Rle,
    options: &PairOptions,
    key: &SampleKey,
) -> Vec<Option<usize>> {
    negatives::choose(candidates, None, truth, options, &mut key.draws(0))
}

const LOSS: &str = "loss";
/// Descriptors as the backbone gives them, which an untrained match compares: of the thing, of the candidates.
const DESCRIPTORS: [&str; 2] = ["head.source_desc", "head.dest_desc"];

/// How a run teaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PairOptions {
    /// Candidates of a training sample, the right one included; the public system's `N_masks_per_batch`.
    pub(crate) masks: usize,
    /// How many steps from neighbour to neighbour negatives are away at most.
    pub(crate) order: usize,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self {
            masks: 32,
            order: 2,
        }
    }
}

/// The lesson of an O-MaMa.
#[derive(Clone, Debug)]
struct PairLesson {
    model: Model,
    options: PairOptions,
    training: TrainingGraph,
    inference: Graph,
    threshold: f64,
}

impl PairLesson {
    fn new(model: &Model, options: &LessonOptions) -> Result<Self, LessonError> {
        if options.label_smoothing != 0.0 {
            return Err(LessonError::OwnLoss { model: model.name });
        }
        let chosen = serde_json::from_value(Value::Object(options.augment.clone()));
        let chosen: PairOptions = chosen.map_err(|error| LessonError::Augment {
            reason: error.to_string(),
        })?;
        let (masks, order) = (chosen.masks, chosen.order);
        SettingError::unless(
            (2..=4096).contains(&masks),
            "augment.masks",
            masks,
            "2 to 4096",
        )?;
        SettingError::unless((1..=3).contains(&order), "augment.order", order, "1 to 3")?;
        let training = TrainingGraph {
            graph: training_graph(&model.graph)?,
            loss: LOSS,
            terms: match model.settings.flag("visibility-head") {
                true => vec!["matching", "telling"],
                false => Vec::new(),
            },
        };
        let mut inference = model.graph.clone();
        for name in DESCRIPTORS {
            let value = inference.find(name)?;
            inference = inference.with_output(name, value);
        }
        Ok(Self {
            model: model.clone(),
            options: chosen,
            training,
            inference,
            threshold: model.settings.number("threshold"),
        })
    }
}

/// The network with its loss.
fn training_graph(network: &Graph) -> Result<Graph, GraphError> {
    let similarity = network.find(SIMILARITY)?;
    let outputs = network.outputs().iter();
    let mut told = outputs.filter(|(name, _)| name == VISIBLE_LOGITS);
    let told = told.next().map(|(_, value)| *value);
    let mut b = Builder::resume(network.clone());
    let position = b.integer_input(POSITION, [Dim::symbol("N")]);
    let visible = b.input(VISIBLE, [Dim::symbol("N")]);
    let Some(logits) = told else {
        let loss = visible_cross_entropy(&mut b, LOSS, similarity, position, visible);
        b.output(LOSS, loss);
        return b.finish();
    };
    let matching = visible_cross_entropy(&mut b, "matching", similarity, position, visible);
    let in_view = b.integer_input(IN_VIEW, [Dim::symbol("N")]);
    let telling = b.call(
        "telling",
        CrossEntropy { smoothing: 0.0 },
        &[logits, in_view],
    );
    let loss = b.add(LOSS, matching, telling);
    b.output("matching", matching);
    b.output("telling", telling);
    b.output(LOSS, loss);
    b.finish()
}

impl Lesson for PairLesson {
    fn samples(&self) -> &'static str {
        "pairs"
    }

    fn sizes(&self) -> BTreeMap<String, [usize; 2]> {
        BTreeMap::new()
    }

    fn settings(&self) -> Map<String, Value> {
        fields(&self.options)
    }

    fn check_classes(&self, classes: &[String]) -> Result<(), LessonError> {
        no_classes(self.samples(), classes)
    }

    fn graphs(&self) -> Vec<TrainingGraph> {
        vec![self.training.clone()]
    }

    /// Pictures come again in every epoch; candidates are drawn anew.
    fn recurring(&self) -> Vec<&'static str> {
        PICTURES.to_vec()
    }

    fn preparation(&self) -> Arc<dyn Prepare> {
        Arc::new(PreparePairs::training(&self.model, self.options))
    }

    /// The share of things that were told from their neighbours.
    fn observe(
        &self,
        outputs: &NamedOutputs<'_>,
        examples: &Example,
    ) -> Result<Vec<(&'static str, f64)>, LessonError> {
        let similarity = outputs.get(SIMILARITY)?;
        let candidates = similarity.shape().get(1).copied().unwrap_or(1).max(1);
        let rows = similarity.values::<f32>()?.chunks_exact(candidates);
        let truth = tensor_of(examples, POSITION)?.values::<i32>()?;
        let right = rows
            .zip(truth)
            .filter(|(row, truth)| judge::best_of(row) == Some(**truth as usize))
            .count();
        Ok(vec![("top1", right as f64 / truth.len().max(1) as f64)])
    }

    fn inference(&self) -> Graph {
        self.inference.clone()
    }

    fn evaluation(&self) -> Arc<dyn Prepare> {
        Arc::new(PreparePairs::evaluation(&self.model))
    }

    fn judged_at_once(&self) -> usize {
        16
    }

    fn metric(&self, _: &[String]) -> Box<dyn Metric> {
        Box::new(MatchJudge::new(self.threshold))
    }

    fn rehearsal(&self, samples: usize) -> Result<Example, LessonError> {
        let mut tensors = Vec::new();
        for (name, mut shape) in self.model.input_shapes(samples) {
            let values = if PICTURES.contains(&name) {
                seeded_values(Family::Vision, &format!("input.{name}"), &shape)
            } else {
                if name == POOLS[1] {
                    shape[1] = self.options.masks;
                }
                // A mean over all patches costs what any other costs.
                let patches = shape.last().copied().unwrap_or(1);
                vec![1.0 / patches as f32; shape.iter().product()]
            };
            tensors.push((name.to_owned(), Tensor::from_values(shape, values)?));
        }
        let positions = Tensor::from_values([samples], vec![0i32; samples])?;
        let visible = Tensor::from_values([samples], vec![1.0f32; samples])?;
        tensors.push((POSITION.to_owned(), positions));
        tensors.push((VISIBLE.to_owned(), visible));
        let in_view = Tensor::from_values([samples], vec![1i32; samples])?;
        tensors.push((IN_VIEW.to_owned(), in_view));
        Ok(Example { samples, tensors })
    }
}
