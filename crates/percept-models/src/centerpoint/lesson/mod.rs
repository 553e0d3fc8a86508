//! How CenterPoint is taught and judged: points and true boxes of sweeps, and nuScenes' metric.

mod judge;
mod plan;
mod sweeps;

use std::path::Path;
use std::sync::Arc;

use percept_data::loader::EpochPlan;
use percept_data::points::ObjectClass;
use percept_data::random::Draws;
use percept_data::{Example, Prepare, Samples};
use percept_graph::{Graph, Tensor};
use serde_json::{Map, Value};

use super::entries::configured;
use super::{BOX_VALUES, CenterPoint, LOSS_TERMS, TRUE_BOX_COUNTS, TRUE_BOXES};
use crate::Model;
use crate::lesson::{
    Asked, Course, DataKind, Epoch, Lesson, LessonError, LessonOptions, Metric, TrainingGraph,
    fields,
};
use judge::DetectionJudge;
pub use sweeps::OBJECTS;
use sweeps::{PrepareSweeps, SweepAugment};

/// Detectors that learn from sweeps with boxes.
pub(crate) const DETECTOR: Course = Course {
    data: DataKind::Sweeps,
    built_in: include_str!("world.toml"),
    frozen: &[],
    lesson: |model, options| Ok(Arc::new(Detector::new(model, options)?)),
};

/// The lesson of a CenterPoint.
#[derive(Clone, Debug)]
struct Detector {
    network: CenterPoint,
    training: TrainingGraph,
    inference: Graph,
    augment: SweepAugment,
}

impl Detector {
    fn new(model: &Model, options: &LessonOptions) -> Result<Self, LessonError> {
        if options.label_smoothing != 0.0 {
            return Err(LessonError::OwnLoss { model: model.name });
        }
        let configured = configured(model.name, &model.settings);
        let (network, grid) =
            configured.map_err(|error| LessonError::Mismatch(error.to_string()))?;
        let augment = serde_json::from_value(Value::Object(options.augment.clone()));
        let augment: SweepAugment = augment.map_err(|error| LessonError::Augment {
            reason: error.to_string(),
        })?;
        augment.check()?;
        let training = TrainingGraph {
            graph: network.training_graph(&grid)?,
            loss: "loss",
            terms: LOSS_TERMS.to_vec(),
        };
        Ok(Self {
            network,
            training,
            inference: model.graph.clone(),
            augment,
        })
    }
}

impl Lesson for Detector {
    fn samples(&self) -> &'static str {
        "sweeps"
    }

    fn settings(&self) -> Map<String, Value> {
        fields(&self.augment)
    }

    fn check_classes(&self, classes: &[String]) -> Result<(), LessonError> {
        let known = ObjectClass::ALL.map(ObjectClass::name);
        match classes.iter().map(String::as_str).eq(known) {
            true => Ok(()),
            false => Err(LessonError::Mismatch(format!(
                "the data's classes are {}: expected nuScenes' ten, {}",
                classes.join(", "),
                known.join(", ")
            ))),
        }
    }

    fn graphs(&self) -> Vec<TrainingGraph> {
        vec![self.training.clone()]
    }

    fn preparation(&self) -> Arc<dyn Prepare> {
        Arc::new(PrepareSweeps::training(&self.network, self.augment))
    }

    fn plans(&self) -> bool {
        self.augment.balance
    }

    fn plan(&self, epoch: Epoch, network: &mut dyn Asked) -> Result<EpochPlan, LessonError> {
        Ok(EpochPlan::of_samples(plan::balanced(epoch, network)))
    }

    fn inference(&self) -> Graph {
        self.inference.clone()
    }

    fn evaluation(&self) -> Arc<dyn Prepare> {
        Arc::new(PrepareSweeps::evaluation(&self.network))
    }

    fn metric(&self, _: &[String]) -> Box<dyn Metric> {
        Box::new(DetectionJudge::new(self.network.range_m))
    }

    fn judge(&self, samples: &Arc<dyn Samples>) -> Box<dyn Metric> {
        let judge = DetectionJudge::new(self.network.range_m);
        Box::new(judge.over(Arc::clone(samples)))
    }

    fn judge_file(
        &self,
        samples: &Arc<dyn Samples>,
        path: &Path,
    ) -> Result<Box<dyn Metric>, LessonError> {
        let range_m = self.network.range_m;
        Ok(Box::new(DetectionJudge::of_file(
            range_m, &**samples, path,
        )?))
    }

    fn rehearsal(&self, samples: usize) -> Result<Example, LessonError> {
        rehearsal(&self.network, samples)
    }
}

/// Points of a rehearsed sweep: those of one turn within 25 m.
const REHEARSED_POINTS: usize = 20_000;
/// Its boxes.
const REHEARSED_BOXES: usize = 30;

/// Sweeps over bumpy ground, denser where it is near, as a LiDAR's are: as many voxels as a street has.
fn rehearsal(network: &CenterPoint, samples: usize) -> Result<Example, LessonError> {
    let (mut points, mut boxes) = (Vec::new(), Vec::new());
    for sample in 0..samples {
        let mut draws = Draws::new(sample as u64, 0);
        for _ in 0..REHEARSED_POINTS {
            let (angle, far) = (draws.angle(), draws.range(0.0, 1.0));
            let distance = f64::from(network.range_m) * far * far;
            let height = if draws.chance(0.3) { 2.5 } else { 0.1 };
            let [x, y] = [libm::cos(angle), libm::sin(angle)].map(|side| distance * side);
            let z = draws.range(-1.8, -1.8 + height);
            points.extend([x, y, z, draws.range(0.0, 255.0), 0.0].map(|v| v as f32));
        }
        for _ in 0..REHEARSED_BOXES {
            let side = f64::from(network.range_m);
            let [x, y] = [0, 1].map(|_| draws.range(-side, side));
            let class = draws.below(ObjectClass::ALL.len()) as f64;
            let size = [4.0, 1.8, 1.6];
            let values = [
                x,
                y,
                -1.0,
                size[0],
                size[1],
                size[2],
                draws.angle(),
                1.0,
                0.0,
                class,
            ];
            boxes.extend(values.map(|v| v as f32));
        }
    }
    let counts = |each: usize| Tensor::from_values([samples], vec![each as i32; samples]);
    let rows =
        |values: Vec<f32>, width: usize| Tensor::from_values([values.len() / width, width], values);
    Ok(Example {
        samples,
        tensors: vec![
            (
                "points".to_owned(),
                rows(points, CenterPoint::POINT_CHANNELS)?,
            ),
            ("counts".to_owned(), counts(REHEARSED_POINTS)?),
            (TRUE_BOXES.to_owned(), rows(boxes, BOX_VALUES)?),
            (TRUE_BOX_COUNTS.to_owned(), counts(REHEARSED_BOXES)?),
        ],
    })
}
