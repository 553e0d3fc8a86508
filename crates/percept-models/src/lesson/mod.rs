//! Lessons: how a network is taught and judged. A network brings its loss, its augmentation and its metric; the trainer knows
//! none of them.

mod accuracy;
mod classifier;
mod metric;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use percept_data::loader::EpochPlan;
use percept_data::{Example, Prepare, Samples, SettingError};
use percept_graph::{Graph, GraphError, Tensor, TensorError};
use serde::Serialize;
use serde_json::{Map, Value};
use thiserror::Error;

pub use accuracy::Accuracy;
pub use classifier::{CLASSIFIER, Classifier};
pub use metric::{Better, Column, Curves, Figure, FigureTable, FigureValue, Goal, Judged, Metric};

use crate::Model;

/// What was chosen for a lesson, as it is recorded with a run.
pub(crate) fn fields(options: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(options) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// Refuses classes where `samples` have none.
pub(crate) fn no_classes(samples: &str, classes: &[String]) -> Result<(), LessonError> {
    match classes.is_empty() {
        true => Ok(()),
        false => Err(LessonError::Mismatch(format!("{samples} have no classes"))),
    }
}

/// How the networks of an entry of the zoo are taught.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// What they learn from.
    pub data: DataKind,
    /// Settings of a run, in TOML, that suit the built-in data.
    pub built_in: &'static str,
    /// Modules that stay as they are, unless a run says otherwise.
    pub frozen: &'static [&'static str],
    /// The lesson of a configured network.
    pub lesson: MakeLesson,
}

/// Makes the lesson of a configured network.
pub type MakeLesson = fn(&Model, &LessonOptions) -> Result<Arc<dyn Lesson>, LessonError>;

/// What networks learn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// Pictures with one class each; built in are birds.
    Pictures,
    /// LiDAR sweeps with boxes around objects; built in are towns of the synthetic world.
    Sweeps,
    /// Frames of cameras and LiDAR with their positions, of drives that come by the same places; built in are towns of the
    /// synthetic world.
    Places,
    /// LiDAR scans with a label for each point; built in are towns of the synthetic world.
    Scans,
    /// Pairs of views with a masked thing and candidates; built in are rooms of the synthetic world.
    Pairs,
}

impl DataKind {
    /// What there is to learn from without a folder.
    pub fn built_in(self) -> &'static str {
        match self {
            Self::Pictures => "built-in birds",
            Self::Sweeps | Self::Places | Self::Scans => "towns of the synthetic world",
            Self::Pairs => "rooms of the synthetic world",
        }
    }
}

/// What a run says about the lesson.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LessonOptions {
    /// Height and width of what the network sees, where it has a size; its own when none.
    pub size: Option<[usize; 2]>,
    /// The share of a label that is spread over all classes.
    pub label_smoothing: f32,
    /// What is done to training samples: the lesson's own settings.
    pub augment: Map<String, Value>,
}

/// Why a network cannot be taught, or judged.
#[derive(Debug, Error)]
pub enum LessonError {
    /// It brings no lesson.
    #[error("{model} cannot be trained: it brings no loss and no metric")]
    NoLesson {
        /// The network.
        model: &'static str,
    },
    /// It has no pictures to take or no classes to give.
    #[error("{model} is no classifier of images")]
    NotAClassifier {
        /// The network.
        model: &'static str,
    },
    /// Its loss is its own.
    #[error("{model} has a loss of its own, which takes no label_smoothing")]
    OwnLoss {
        /// The network.
        model: &'static str,
    },
    /// A network for another number of classes.
    #[error("the network has {outputs} classes, the data {classes}")]
    Classes {
        /// Of the network.
        outputs: usize,
        /// Of the data.
        classes: usize,
    },
    /// The augmentation is not one of this lesson's.
    #[error("augment: {reason}")]
    Augment {
        /// What is wrong.
        reason: String,
    },
    /// A setting makes no sense.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The loss does not fit.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An output or a tensor of an example that is not there.
    #[error("no tensor `{name}` to judge by; there are {}", present.join(", "))]
    NoTensor {
        /// Its name.
        name: String,
        /// What there is.
        present: Vec<String>,
    },
    /// A tensor of another type.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Answers in a file, or truth, that cannot be judged.
    #[error("{0}")]
    Answers(String),
    /// Nobody agreed on a layout for such answers.
    #[error("there is no public file layout for the answers of this network")]
    NoAnswerFile,
    /// Answers and truth that do not belong together.
    #[error("{0}")]
    Mismatch(String),
    /// The network could not be asked.
    #[error(transparent)]
    Asked(Box<dyn Error + Send + Sync>),
}

/// A graph to learn by. Several of one lesson may share their parameters by name.
#[derive(Clone, Debug)]
pub struct TrainingGraph {
    /// From what the lesson's preparation makes to the loss, its terms, and whatever the lesson observes.
    pub graph: Graph,
    /// The output that is to fall: a number.
    pub loss: &'static str,
    /// Further outputs to log: numbers, such as the terms of the loss.
    pub terms: Vec<&'static str>,
}

/// What came out of a network, by name.
pub struct NamedOutputs<'a>(Vec<(&'a str, Tensor<'a>)>);

impl<'a> NamedOutputs<'a> {
    /// Of these tensors.
    pub fn new(tensors: impl IntoIterator<Item = (&'a str, Tensor<'a>)>) -> Self {
        Self(tensors.into_iter().collect())
    }

    /// The output of this name.
    pub fn get(&self, name: &str) -> Result<&Tensor<'a>, LessonError> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, tensor)| tensor)
            .ok_or_else(|| LessonError::NoTensor {
                name: name.to_owned(),
                present: self
                    .0
                    .iter()
                    .map(|(known, _)| (*known).to_owned())
                    .collect(),
            })
    }
}

/// The tensor of an example, for whoever cannot do without.
pub fn tensor_of<'e>(
    examples: &'e Example,
    name: &str,
) -> Result<&'e Tensor<'static>, LessonError> {
    examples.get(name).ok_or_else(|| LessonError::NoTensor {
        name: name.to_owned(),
        present: examples
            .tensors
            .iter()
            .map(|(known, _)| known.clone())
            .collect(),
    })
}

/// The epoch that a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// What all random numbers of the run come from.
    pub seed: u64,
    /// Whole passes before this one.
    pub number: u64,
}

/// The network with the weights of the moment and the samples that it trains with, for a plan to ask.
pub trait Asked {
    /// How many samples there are to train with.
    fn samples(&self) -> usize;

    /// The numbers of the classes that occur in one of them, where that is known without reading it.
    fn occurring(&self, sample: usize) -> Vec<usize>;

    /// Runs the lesson's inference graph over some of them, as for an evaluation, in order. `hear` gets batch after batch;
    /// samples that cannot be read are left out.
    fn ask(
        &mut self,
        samples: &[usize],
        hear: &mut dyn FnMut(&Judged<'_>) -> Result<(), LessonError>,
    ) -> Result<(), LessonError>;
}

/// How a network is taught and judged.
pub trait Lesson: fmt::Debug + Send + Sync {
    /// What its samples are called: `pictures`, `sweeps`.
    fn samples(&self) -> &'static str;

    /// Height and width of the parts of a sample that have a size, for the card of the weights.
    fn sizes(&self) -> BTreeMap<String, [usize; 2]> {
        BTreeMap::new()
    }

    /// What the lesson understood of its options, for a resumed run to be the same run.
    fn settings(&self) -> Map<String, Value>;

    /// Refuses data whose classes are not those of the network.
    fn check_classes(&self, classes: &[String]) -> Result<(), LessonError>;

    /// The graphs to learn by, over one state: parameters, statistics and moments of the same name are the same.
    fn graphs(&self) -> Vec<TrainingGraph>;

    /// The parameters of all graphs that training may move, also of what was cut off because it does not.
    fn parameters(&self) -> Vec<String> {
        let graphs = self.graphs();
        let parameters = graphs.iter().flat_map(|graph| graph.graph.params());
        let trainable = parameters.filter(|parameter| parameter.trainable);
        trainable.map(|parameter| parameter.name.clone()).collect()
    }

    /// Inputs that are the same whenever a sample comes again. What follows from them and from frozen parameters alone can be
    /// computed once and kept; an input that is drawn anew in each epoch would never be met again.
    fn recurring(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Which of the graphs a step learns by. `step` counts from 0; the answer follows from the arguments alone.
    fn choose(&self, _seed: u64, _step: u64) -> usize {
        0
    }

    /// How training samples become examples.
    fn preparation(&self) -> Arc<dyn Prepare>;

    /// What a step tells beside its loss: named means over the samples of the batch, such as the share told right.
    fn observe(
        &self,
        _outputs: &NamedOutputs<'_>,
        _examples: &Example,
    ) -> Result<Vec<(&'static str, f64)>, LessonError> {
        Ok(Vec::new())
    }

    /// Whether each epoch has a [`plan`](Lesson::plan); otherwise all samples come in a new order in each.
    fn plans(&self) -> bool {
        false
    }

    /// How many samples, or groups of them, the plan of an epoch over so many samples has.
    fn epoch_len(&self, samples: usize) -> usize {
        samples
    }

    /// The samples of an epoch, in order: to balance classes, or, asking the network, to find hard negatives. The same weights
    /// give the same plan.
    fn plan(&self, _epoch: Epoch, network: &mut dyn Asked) -> Result<EpochPlan, LessonError> {
        Ok(EpochPlan::of_samples((0..network.samples()).collect()))
    }

    /// The graph that answers.
    fn inference(&self) -> Graph;

    /// How samples become the inputs of the inference graph and what its answers are compared with.
    fn evaluation(&self) -> Arc<dyn Prepare>;

    /// Samples that are judged at once at most, so that a batch of large ones fits.
    fn judged_at_once(&self) -> usize {
        32
    }

    /// What judges the answers, over data of these classes.
    fn metric(&self, classes: &[String]) -> Box<dyn Metric>;

    /// What judges the answers over these samples.
    fn judge(&self, samples: &Arc<dyn Samples>) -> Box<dyn Metric> {
        self.metric(samples.classes())
    }

    /// Judges answers over these samples that stand in a file, in a public layout, instead of the network's.
    fn judge_file(
        &self,
        _samples: &Arc<dyn Samples>,
        _path: &Path,
    ) -> Result<Box<dyn Metric>, LessonError> {
        Err(LessonError::NoAnswerFile)
    }

    /// A batch to measure steps with, of noise where that costs the same as data.
    fn rehearsal(&self, samples: usize) -> Result<Example, LessonError>;
}
