//! How RandLA-Net is taught and judged: crops of labelled scans, weighted cross-entropy, and the IoU of every row of a scan.

mod crop;
mod judge;
mod scans;

use std::sync::Arc;

use percept_data::points::LEARNED_CLASS_NAMES;
use percept_data::random::{Draws, hash, permutation};
use percept_data::{Example, Prepare};
use percept_graph::{Builder, Dim, Graph, GraphError, Tensor};
use serde_json::{Map, Value};

use super::entries::configured;
use super::intake::{COUNTS, POINTS, PRIORITY, ScanIntake};
use super::{RandLaNet, weighted_cross_entropy};
use crate::Model;
use crate::lesson::{
    Course, DataKind, Lesson, LessonError, LessonOptions, Metric, NamedOutputs, TrainingGraph,
    fields, tensor_of,
};
pub use crop::ScanAugment;
use judge::SegmentationJudge;
use scans::{LABELS, PrepareScans, WEIGHTS};

/// The part of a sample with how many points each learned class has in all the data, i64 [classes + 1], unlabelled ones first.
pub const LABEL_COUNTS: &str = "label-counts";

const LOGITS: &str = "logits";
const LOSS: &str = "loss";

/// Networks that learn a label for each point of labelled scans.
pub(crate) const SEGMENTER: Course = Course {
    data: DataKind::Scans,
    built_in: include_str!("world.toml"),
    frozen: &[],
    lesson: |model, options| Ok(Arc::new(Segmenter::new(model, options)?)),
};

/// The lesson of a RandLA-Net.
#[derive(Clone, Debug)]
struct Segmenter {
    network: RandLaNet,
    intake: ScanIntake,
    training: TrainingGraph,
    inference: Graph,
    augment: ScanAugment,
}

impl Segmenter {
    fn new(model: &Model, options: &LessonOptions) -> Result<Self, LessonError> {
        if options.label_smoothing != 0.0 {
            return Err(LessonError::OwnLoss { model: model.name });
        }
        let configured = configured(model.name, &model.settings);
        let (network, intake) =
            configured.map_err(|error| LessonError::Mismatch(error.to_string()))?;
        let augment = serde_json::from_value(Value::Object(options.augment.clone()));
        let augment: ScanAugment = augment.map_err(|error| LessonError::Augment {
            reason: error.to_string(),
        })?;
        augment.check()?;
        let training = TrainingGraph {
            graph: training_graph(&network)?,
            loss: LOSS,
            terms: Vec::new(),
        };
        Ok(Self {
            network,
            intake,
            training,
            inference: model.form(true).clone(),
            augment,
        })
    }
}

/// The lean form with its loss: a step holds nothing for each neighbour, forward or backward. Neighbours are searched in every
/// step: a crop never comes again, so there is nothing to keep.
fn training_graph(network: &RandLaNet) -> Result<Graph, GraphError> {
    let graph = network.lean_training_graph()?;
    let logits = graph.find(LOGITS)?;
    let mut b = Builder::resume(graph);
    let labels = b.integer_input(LABELS, [Dim::symbol("P")]);
    let weights = b.input(WEIGHTS, [Dim::symbol("P")]);
    let loss = weighted_cross_entropy(&mut b, LOSS, logits, labels, weights);
    b.output(LOSS, loss);
    b.finish()
}

impl Lesson for Segmenter {
    fn samples(&self) -> &'static str {
        "scans"
    }

    fn settings(&self) -> Map<String, Value> {
        fields(&self.augment)
    }

    fn check_classes(&self, classes: &[String]) -> Result<(), LessonError> {
        let outputs = self.network.classes;
        match classes.len() == outputs {
            true => Ok(()),
            false => Err(LessonError::Classes {
                outputs,
                classes: classes.len(),
            }),
        }
    }

    fn graphs(&self) -> Vec<TrainingGraph> {
        vec![self.training.clone()]
    }

    fn preparation(&self) -> Arc<dyn Prepare> {
        Arc::new(PrepareScans::training(
            self.intake,
            self.network.classes,
            self.augment,
        ))
    }

    /// The share of labelled points that were told right.
    fn observe(
        &self,
        outputs: &NamedOutputs<'_>,
        examples: &Example,
    ) -> Result<Vec<(&'static str, f64)>, LessonError> {
        let logits = outputs.get(LOGITS)?.values::<f32>()?;
        let labels = tensor_of(examples, LABELS)?.values::<i32>()?;
        let (mut right, mut labelled) = (0u64, 0u64);
        for (row, &label) in logits.chunks_exact(self.network.classes).zip(labels) {
            let best =
                (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best });
            labelled += u64::from(label != 0);
            right += u64::from(best as i32 + 1 == label);
        }
        Ok(vec![("accuracy", right as f64 / labelled.max(1) as f64)])
    }

    fn inference(&self) -> Graph {
        self.inference.clone()
    }

    fn evaluation(&self) -> Arc<dyn Prepare> {
        Arc::new(PrepareScans::evaluation(self.intake, self.network.classes))
    }

    /// Whole scans are large, and a batch of them is no faster than one after the other.
    fn judged_at_once(&self) -> usize {
        2
    }

    fn metric(&self, classes: &[String]) -> Box<dyn Metric> {
        let nothing = LEARNED_CLASS_NAMES[0].to_owned();
        let names = std::iter::once(nothing).chain(classes.iter().cloned());
        Box::new(SegmentationJudge::new(self.intake, names.collect()))
    }

    fn rehearsal(&self, samples: usize) -> Result<Example, LessonError> {
        rehearsal(&self.network, self.augment.points, samples)
    }
}

/// How far rehearsed points lie from the sensor.
const REHEARSED_REACH_M: f64 = 40.0;

/// Crops of bumpy ground, denser where it is near, as a LiDAR's are.
fn rehearsal(network: &RandLaNet, points: usize, samples: usize) -> Result<Example, LessonError> {
    let (mut rows, mut priority, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for sample in 0..samples {
        let mut draws = Draws::new(sample as u64, 0);
        for _ in 0..points {
            let (angle, far) = (draws.angle(), draws.range(0.0, 1.0));
            let distance = REHEARSED_REACH_M * far * far;
            let [x, y] = [libm::cos(angle), libm::sin(angle)].map(|side| distance * side);
            let top = if draws.chance(0.3) { 0.7 } else { -1.7 };
            let z = draws.range(-1.8, top);
            let values = [x, y, z].into_iter().chain(std::iter::repeat(0.5));
            rows.extend(values.take(network.channels_in).map(|value| value as f32));
            labels.push(draws.below(network.classes + 1) as i32);
        }
        let ranks = permutation(points, |row| hash(sample as u64, 1, row));
        priority.extend(ranks.into_iter().map(|rank| rank as i32));
    }
    let all = labels.len();
    let tensors = [
        (
            POINTS,
            Tensor::from_values([all, network.channels_in], rows)?,
        ),
        (PRIORITY, Tensor::from_values([all], priority)?),
        (
            COUNTS,
            Tensor::from_values([samples], vec![points as i32; samples])?,
        ),
        (LABELS, Tensor::from_values([all], labels)?),
        (WEIGHTS, Tensor::from_values([all], vec![1.0f32; all])?),
    ];
    Ok(Example {
        samples,
        ..Example::of_one(tensors)
    })
}
