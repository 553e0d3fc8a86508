//! What learns: a network, its loss, and what to tell about it.

use percept_graph::{Builder, CrossEntropy, Graph, GraphError, ValueId};
use percept_models::preprocess::Preprocess;
use percept_models::{Model, TrainingGraph};

/// The outputs by which a learner is known.
const LOGITS: &str = "logits";

/// A network as the trainer takes it. Whoever has a graph with a loss can make one.
#[derive(Clone, Debug)]
pub struct Learner {
    /// The network and its settings: a checkpoint of another one is refused.
    pub model: String,
    /// Inputs: `views` [N, 3, H, W] and `labels` i32 [N]. Outputs: the loss, the metrics, and `logits` where there are any.
    pub training: Graph,
    /// Input: the first view. Output: `logits` [N, classes].
    pub inference: Graph,
    /// The inputs that take views of a picture, each augmented on its own.
    pub views: Vec<String>,
    /// The output that is to fall: a number.
    pub loss: String,
    /// Further outputs to log: numbers, such as the parts of a loss.
    pub metrics: Vec<String>,
    /// How a picture becomes an input where nothing is random.
    pub preprocess: Preprocess,
    /// Height and width of the pictures that the network sees.
    pub size: [usize; 2],
}

/// Why a network cannot be trained as a classifier.
#[derive(Debug, thiserror::Error)]
pub enum LearnerError {
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
    /// The loss does not fit.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl Learner {
    /// A classifier of the zoo, which learns by its own loss or by cross-entropy. `size` is that of the pictures; its own when
    /// none. A network with a loss of its own does not smooth labels.
    pub fn classifier(
        model: &Model,
        smoothing: f32,
        size: Option<[usize; 2]>,
    ) -> Result<Self, LearnerError> {
        let not_a_classifier = LearnerError::NotAClassifier { model: model.name };
        let (Some(preprocess), Ok(logits)) = (model.intake.picture(), model.graph.find(LOGITS))
        else {
            return Err(not_a_classifier);
        };
        let shapes = model.input_shapes(1);
        let Some([_, _, height, width]) = shapes.first().map(|(_, s)| s.as_slice()) else {
            return Err(not_a_classifier);
        };
        let training = match &model.training {
            Some(own) if smoothing == 0.0 => own.clone(),
            Some(_) => return Err(LearnerError::OwnLoss { model: model.name }),
            None => by_cross_entropy(model, logits, smoothing)?,
        };
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        Ok(Self {
            model: describe(model),
            training: training.graph,
            inference: model.graph.clone(),
            views: owned(training.views),
            loss: "loss".to_owned(),
            metrics: owned(training.terms),
            preprocess: *preprocess,
            size: size.unwrap_or([*height, *width]),
        })
    }
}

fn by_cross_entropy(
    model: &Model,
    logits: ValueId,
    smoothing: f32,
) -> Result<TrainingGraph, GraphError> {
    let mut b = Builder::resume(model.graph.clone());
    let images = b.shape(logits)[0].clone();
    let labels = b.integer_input("labels", [images]);
    let loss = b.call("loss", CrossEntropy { smoothing }, &[logits, labels]);
    b.output("loss", loss);
    Ok(TrainingGraph {
        graph: b.finish()?,
        views: vec!["image"],
        terms: Vec::new(),
    })
}

/// `resnet18 (classes=16, stem=half, width=16)`.
fn describe(model: &Model) -> String {
    let settings = model.settings.iter();
    let settings: Vec<String> = settings.map(|(k, v)| format!("{k}={v}")).collect();
    format!("{} ({})", model.name, settings.join(", "))
}
